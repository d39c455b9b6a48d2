package architecture_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/config"
)

// TestEveryKeyHasTheEffectItClaims checks the code: an active key is read outside of its
// table, by its field or by a method that reads the field; a planned or ignored key is
// read nowhere; and config has no method without a caller.
func TestEveryKeyHasTheEffectItClaims(t *testing.T) {
	t.Parallel()
	house := typed(t)
	report(t, idleKeys(house, config.Keys()))
}

// source is one package, parsed and type-checked.
type source struct {
	path  string
	files []*ast.File
	info  *types.Info
	types *types.Package
}

// checked are the packages of the product, which several rules walk.
var checked struct {
	sync.Once
	house []source
}

// typed type-checks the packages of the product, once; their imports come from export
// data.
func typed(t *testing.T) []source {
	t.Helper()
	checked.Do(func() { checked.house = checkHouse(t) })
	require.Greater(t, len(checked.house), 3)
	return checked.house
}

func checkHouse(t *testing.T) []source {
	t.Helper()
	product := slices.DeleteFunc(slices.Clone(load(t)), func(p pkg) bool {
		return internal(p.ImportPath) || strings.HasPrefix(p.room(), "test/")
	})
	exports := exported(t, product)
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	house := make([]source, 0, len(product))
	for _, p := range product {
		s := source{path: p.ImportPath}
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution|parser.ParseComments)
			require.NoError(t, err)
			s.files = append(s.files, f)
		}
		require.NoError(t, s.check(fset, imports))
		house = append(house, s)
	}
	return house
}

func (s *source) check(fset *token.FileSet, imports types.Importer) (err error) {
	s.info = &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}, Types: map[ast.Expr]types.TypeAndValue{}}
	s.types, err = (&types.Config{Importer: imports}).Check(s.path, fset, s.files, s.info)
	return err
}

const configPath = module + "/config"

// exported returns the export data of all imports of some packages. It is compiled as
// fleet.Build compiles the daemons, so that both share the build cache.
func exported(t *testing.T, of []pkg) map[string]string {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export"}
	for _, p := range of {
		args = append(args, p.ImportPath)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...) // #nosec G204 -- the arguments are built here
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoErrorf(t, err, "go list: %s", stderr.String())
	files := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		files[p.ImportPath] = p.Export
	}
}

// member is a field or a method of a type of config; a struct without a name is its
// own text, tags and all.
type member struct{ owner, name string }

func (m member) String() string {
	if strings.HasPrefix(m.owner, "struct{") {
		return m.name
	}
	return m.owner + "." + m.name
}

// uses are the members that some code reads or calls.
type uses map[member]bool

// idleKeys compares the status of the keys with the code.
func idleKeys(house []source, keys []config.Key) (wrong []string) {
	at := slices.IndexFunc(house, func(s source) bool { return s.path == configPath })
	table := house[at].types
	read, methods := uses{}, map[member]uses{}
	for _, s := range house {
		for _, f := range s.files {
			for _, d := range f.Decls {
				if m, ok := methodOf(s, d); ok {
					methods[m] = usesIn(s, d)
					continue
				}
				maps.Copy(read, usesIn(s, d))
			}
		}
	}
	for again := true; again; { // a called method reads what its body reads
		again = false
		for m, body := range methods {
			if read[m] && body != nil {
				maps.Copy(read, body)
				methods[m], again = nil, true
			}
		}
	}
	fields := map[string][]member{}
	for _, root := range []string{"Common", "Orchestration", "Worker"} {
		fieldsOf(strings.ToLower(root), table.Scope().Lookup(root).Type(), fields)
	}
	wrong = append(idleMethods(methods, fields), claims(keys, fields, read)...)
	slices.Sort(wrong)
	return wrong
}

// methodOf names a declaration that is a method of a type of config.
func methodOf(s source, d ast.Decl) (m member, ok bool) {
	f, isFunc := d.(*ast.FuncDecl)
	if s.path != configPath || !isFunc || f.Recv == nil {
		return m, false
	}
	t := f.Recv.List[0].Type
	if star, pointer := t.(*ast.StarExpr); pointer {
		t = star.X
	}
	return member{t.(*ast.Ident).Name, f.Name.Name}, true //nolint:forcetypeassert // config has no generic types with methods
}

// usesIn collects the members of config that code selects; an assignment is not a read.
func usesIn(s source, d ast.Decl) uses {
	found, written := uses{}, map[ast.Expr]bool{}
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				written[left] = n.Tok == token.ASSIGN
			}
		case *ast.SelectorExpr:
			if sel := s.info.Selections[n]; sel != nil && !written[n] {
				found.add(sel)
			}
		}
		return true
	})
	return found
}

// add records the members of a selection, including embedded fields on its path.
func (u uses) add(sel *types.Selection) {
	at := sel.Recv()
	for i, index := range sel.Index() {
		owner := configType(at)
		if last := i == len(sel.Index())-1; last && sel.Kind() != types.FieldVal {
			u[member{owner, sel.Obj().Name()}] = owner != ""
			return
		}
		structure, ok := pointed(at).Underlying().(*types.Struct)
		if !ok {
			return
		}
		field := structure.Field(index)
		u[member{owner, field.Name()}] = owner != ""
		at = field.Type()
	}
}

// configType names a type of config, or what it points to; "" for another type.
func configType(t types.Type) string {
	if named := namedOf(t); named != nil {
		if of(named) {
			return named.Obj().Name()
		}
		return ""
	}
	if s, ok := pointed(t).(*types.Struct); ok && s.NumFields() > 0 && s.Field(0).Pkg().Path() == configPath {
		return types.TypeString(s, nil)
	}
	return ""
}

func pointed(t types.Type) types.Type {
	if p, ok := t.Underlying().(*types.Pointer); ok {
		return p.Elem()
	}
	return t
}

func of(named *types.Named) bool {
	return named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == configPath
}

func namedOf(t types.Type) *types.Named {
	named, _ := types.Unalias(pointed(t)).(*types.Named)
	return named
}

// fieldsOf lists the keys in the fields of a struct: for each path the field and the
// embedded ones above it.
func fieldsOf(path string, t types.Type, into map[string][]member) {
	structure := t.Underlying().(*types.Struct) //nolint:forcetypeassert // only structs are walked
	for i := range structure.NumFields() {
		f := structure.Field(i)
		if f.Name() == "_" {
			continue
		}
		at := path
		if tag := reflect.StructTag(structure.Tag(i)).Get("toml"); tag != "" {
			at += "." + tag
		}
		if _, table := f.Type().Underlying().(*types.Struct); table {
			fieldsOf(at, f.Type(), into)
			continue
		}
		into[at] = append(into[at], member{configType(t), f.Name()})
	}
}

// idleMethods finds the methods of the tables that are called nowhere.
func idleMethods(methods map[member]uses, fields map[string][]member) (wrong []string) {
	owners := map[string]bool{}
	for _, list := range fields {
		for _, m := range list {
			owners[m.owner] = true
		}
	}
	for m, body := range methods {
		if body != nil && owners[m.owner] {
			wrong = append(wrong, fmt.Sprintf("config: %s is called nowhere", m))
		}
	}
	return wrong
}

// claims compares the status of each key with the reads.
func claims(keys []config.Key, fields map[string][]member, read uses) (wrong []string) {
	activeField := map[member]bool{} // a type may stand for several tables
	for _, k := range keys {
		for _, m := range fields[k.Path] {
			activeField[m] = activeField[m] || k.Status == config.StatusActive
		}
	}
	for _, k := range keys {
		if k.Member {
			continue // checked with its array
		}
		isRead := slices.ContainsFunc(fields[k.Path], func(m member) bool { return read[m] })
		switch {
		case k.Status == config.StatusActive && !isRead && len(k.Sets) == 0:
			wrong = append(wrong, k.Path+" is active and read nowhere")
		case k.Status != config.StatusActive && isRead && !activeField[fields[k.Path][0]]:
			wrong = append(wrong, fmt.Sprintf("%s is %s, and %s is read", k.Path, k.Status, fields[k.Path][0]))
		}
	}
	return wrong
}

// The rule is tested on tables and daemons that break it: a dead key, a key that only a
// dead method reads, one that is only written, a planned key that is read, and a method
// without a caller.
func TestIdleKeysAreFound(t *testing.T) {
	t.Parallel()
	const table = `package config
type Common struct { A A ` + "`toml:\"a\"`" + ` }
type Orchestration struct { Base ; Web Web ` + "`toml:\"web\"`" + ` }
type Base struct { Direct int ` + "`toml:\"direct\"`" + ` }
type Worker struct { Web Web ` + "`toml:\"web\"`" + ` }
type Web struct { Port int ` + "`toml:\"port\"`" + ` }
type A struct {
	Dead    int ` + "`toml:\"dead\"`" + `
	Read    int ` + "`toml:\"read\"`" + `
	Got     int ` + "`toml:\"got\"`" + `
	Hidden  int ` + "`toml:\"hidden\"`" + `
	Written int ` + "`toml:\"written\"`" + `
	Later   int ` + "`toml:\"later\"`" + `
	B       struct {
		Used   int ` + "`toml:\"used\"`" + `
		Unused int ` + "`toml:\"unused\"`" + `
		_      int ` + "`toml:\"blank\"`" + `
	} ` + "`toml:\"b\"`" + `
}
func (a A) GotIt() int { return a.deeper() }
func (a A) deeper() int { return a.Got }
func (a A) HiddenIt() int { return a.Hidden }
`
	const daemon = `package daemon
import "` + configPath + `"
func start(c config.Common, o config.Orchestration, w *config.Worker) int {
	c.A.Written = 3
	b := &c.A.B
	return c.A.Read + c.A.GotIt() + c.A.Later + o.Direct + w.Web.Port + b.Used
}
`
	var keys []config.Key
	for _, name := range []string{"common.a.dead", "common.a.read", "common.a.got", "common.a.hidden", "common.a.written", "common.a.through",
		"orchestration.direct", "orchestration.web.port", "worker.web.port", "common.a.b.used", "common.a.b.unused", "common.a.b.blank"} {
		keys = append(keys, config.Key{Path: name, Status: config.StatusActive})
	}
	keys[5].Sets = []string{"common.a.read"}
	keys[7].Status = "planned" // of a table that another daemon reads
	keys[11].Status = "ignored"
	keys = append(keys, config.Key{Path: "common.a.later", Status: "planned"})
	require.Equal(t, []string{
		"common.a.b.unused is active and read nowhere",
		"common.a.dead is active and read nowhere",
		"common.a.hidden is active and read nowhere",
		"common.a.later is planned, and A.Later is read",
		"common.a.written is active and read nowhere",
		"config: A.HiddenIt is called nowhere",
	}, idleKeys(planted(t, configPath, table, module+"/daemon", daemon), keys))
}

// planted type-checks packages that exist only in this test: the path and the text of
// each, imported ones first.
func planted(t *testing.T, packages ...string) []source {
	t.Helper()
	fset, found := token.NewFileSet(), planters{importer.Default(), map[string]*types.Package{}}
	var house []source
	for p := range slices.Chunk(packages, 2) {
		f, err := parser.ParseFile(fset, p[0], p[1], parser.SkipObjectResolution|parser.ParseComments)
		require.NoError(t, err)
		s := source{path: p[0], files: []*ast.File{f}}
		require.NoError(t, s.check(fset, found))
		found.planted[p[0]] = s.types
		house = append(house, s)
	}
	return house
}

// planters imports planted packages and the standard library.
type planters struct {
	types.Importer
	planted map[string]*types.Package
}

// Import implements types.Importer.
func (p planters) Import(path string) (*types.Package, error) {
	if own, ok := p.planted[path]; ok {
		return own, nil
	}
	return p.Importer.Import(path)
}
