package architecture_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/telemetry"
)

// TestLogFieldsAreThoseOfTheCatalogue: collectors take the type of a field from the first line
// that has it, and reject lines with another; readers search by the leading ones.
func TestLogFieldsAreThoseOfTheCatalogue(t *testing.T) {
	t.Parallel()
	l := newLogLines()
	l.read(t, load(t))
	report(t, l.wrong)
	for name := range l.keys {
		if !l.used[name] && name != "error" {
			t.Errorf("internal/telemetry/logkeys.go has the key %q, which no line has", name)
		}
	}
}

func TestTheCatalogueNamesEachKeyOnce(t *testing.T) {
	t.Parallel()
	all := slices.Concat(telemetry.LeadingLogKeys, telemetry.LogKeys)
	require.Len(t, newLogLines().keys, len(all))
	require.True(t, slices.IsSortedFunc(telemetry.LogKeys, func(a, b telemetry.LogKey) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	}), "in order of the alphabet")
	for _, k := range all {
		require.Contains(t, slices.Collect(maps.Keys(typesOfFields)), k.Type, k.Name)
		require.NotEmpty(t, k.Meaning, k.Name)
	}
}

// typesOfFields are the functions of zap that make a named field, by its type in JSON.
var typesOfFields = map[string][]string{
	telemetry.KeyText:     {"String", "Stringer", "ByteString", "NamedError", "Stack"},
	telemetry.KeyNumber:   {"Int", "Int8", "Int16", "Int32", "Int64", "Uint", "Uint8", "Uint16", "Uint32", "Uint64", "Float32", "Float64"},
	telemetry.KeyBoolean:  {"Bool"},
	telemetry.KeyDuration: {"Duration"},
	telemetry.KeyTime:     {"Time"},
	telemetry.KeyList:     {"Strings", "Stringers", "Ints", "Int32s", "Int64s", "Uint64s", "Float64s", "Durations", "Times", "Errors", "Array"},
	telemetry.KeyObject:   {"Object", "Dict", "Namespace", "Any", "Reflect", "Reflected"},
}

// logLines holds the lines of the log to the catalogue.
type logLines struct {
	keys    map[string]string // name → type
	leading []string
	used    map[string]bool
	wrong   []string
}

func newLogLines() *logLines {
	l := &logLines{keys: map[string]string{}, used: map[string]bool{}}
	for _, k := range telemetry.LeadingLogKeys {
		l.leading = append(l.leading, k.Name)
	}
	for _, k := range slices.Concat(telemetry.LeadingLogKeys, telemetry.LogKeys) {
		l.keys[k.Name] = k.Type
	}
	return l
}

func (l *logLines) read(t *testing.T, pkgs []pkg) {
	t.Helper()
	for _, p := range pkgs {
		if p.testKit() || !p.product() {
			continue
		}
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			ast.Inspect(f, func(n ast.Node) bool {
				at := ""
				if n != nil {
					at = fset.Position(n.Pos()).String()
				}
				switch n := n.(type) {
				case *ast.CallExpr:
					l.order(at, n.Args)
					l.field(at, n)
				case *ast.CompositeLit:
					l.order(at, n.Elts)
				case *ast.FuncDecl:
					l.object(at, n)
				}
				return true
			})
		}
	}
}

func (l *logLines) find(at, format string, args ...any) {
	l.wrong = append(l.wrong, at+": "+fmt.Sprintf(format, args...))
}

// field holds the key of one field to the catalogue.
func (l *logLines) field(at string, n *ast.CallExpr) {
	key, kind := fieldOf(n)
	switch want, known := l.keys[key]; {
	case kind == "":
	case key == "":
		l.find(at, "the key of a field of the log is not a text in the code")
	case !known:
		l.find(at, "the key %q is not in internal/telemetry/logkeys.go", key)
	case want != kind:
		l.find(at, "the key %q is a %s by internal/telemetry/logkeys.go, not a %s", key, want, kind)
	default:
		l.used[key] = true
	}
}

// object holds the fields of a value that writes itself, which stand in a line like others.
func (l *logLines) object(at string, n *ast.FuncDecl) {
	if n.Name.Name != "MarshalLogObject" {
		return
	}
	var fields []ast.Expr
	ast.Inspect(n.Body, func(n ast.Node) bool {
		of, name := calls(n)
		maker, adds := strings.CutPrefix(name, "Add")
		if call, ok := n.(*ast.CallExpr); ok && adds && of != "zap" {
			field := &ast.CallExpr{Fun: &ast.SelectorExpr{X: ast.NewIdent("zap"), Sel: ast.NewIdent(maker)}, Args: call.Args}
			fields = append(fields, field)
			l.field(at, field)
		}
		return true
	})
	l.order(at, fields)
}

// order holds the fields that stand beside each other to the order of the leading ones.
func (l *logLines) order(at string, list []ast.Expr) {
	last, before := -1, ""
	for _, e := range list {
		call, ok := e.(*ast.CallExpr)
		if !ok {
			continue
		}
		key, kind := fieldOf(call)
		if of, name := calls(call); of == "zap" && name == "Error" {
			key, kind = "error", telemetry.KeyText
		}
		if kind == "" {
			continue
		}
		rank := slices.Index(l.leading, key)
		if rank < 0 {
			rank = len(l.leading)
		}
		if rank < last {
			l.find(at, "the key %q stands behind %q: want %v first, in this order", key, before, l.leading)
		}
		last, before = max(last, rank), key
	}
}

// fieldOf returns the key and the type of the field that a call makes: no type if it makes
// none, no key if it is not a text in the code.
func fieldOf(n *ast.CallExpr) (key, kind string) {
	of, name := calls(n)
	if of != "zap" {
		return "", ""
	}
	for kind, makers := range typesOfFields {
		if !slices.Contains(makers, name) {
			continue
		}
		if lit, ok := n.Args[0].(*ast.BasicLit); ok {
			key, _ = strconv.Unquote(lit.Value)
		}
		return key, kind
	}
	return "", ""
}

func TestPlantedFieldsOfObjectsAreFound(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`to.AddString("elapsed", "a")`: `the key "elapsed" is not in`,
		`to.AddInt64("step_name", 1)`:  `the key "step_name" is a text by`,
		`if x { to.AddString("task_uuid", "a") }; to.AddString("correlation_id", "a")`:     `the key "correlation_id" stands behind "task_uuid"`,
		`to.AddString("correlation_id", "a"); to.AddInt("attempt", 1); other(to.Added(1))`: "",
	} {
		l := newLogLines()
		l.read(t, []pkg{plant(t, "worker", "x.go", "package x\n\nfunc (x *y) MarshalLogObject(to z) { "+body+" }\n")})
		if want == "" {
			require.Empty(t, l.wrong, body)
			continue
		}
		require.Len(t, l.wrong, 1, body)
		require.Contains(t, l.wrong[0], want)
	}
}

func TestPlantedLogFieldsAreFound(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body string
		want string // of the only finding
	}{
		"an unknown key":            {`log.Info("m", zap.String("elapsed", "a"))`, `the key "elapsed" is not in`},
		"another type":              {`log.Info("m", zap.Int("step_name", 1))`, `the key "step_name" is a text by`},
		"a time for a number":       {`log.Info("m", zap.Duration("running", 1))`, `the key "running" is a number by`},
		"a list for a text":         {`log.With(zap.Strings("template", nil))`, `the key "template" is a text by`},
		"any value for a text":      {`log.Info("m", zap.Any("address", a))`, `the key "address" is a text by`},
		"a key made at run time":    {`log.Info("m", zap.Int(name, 1))`, "not a text in the code"},
		"a leading key behind":      {`log.Info("m", zap.String("reason", "a"), zap.Stringer("task_uuid", id))`, `the key "task_uuid" stands behind "reason"`},
		"behind an error":           {`log.Info("m", zap.Error(err), zap.Stringer("task_uuid", id))`, `the key "task_uuid" stands behind "error"`},
		"leading keys turned":       {`log.Info("m", zap.Stringer("task_uuid", id), zap.Stringer("correlation_id", id))`, `the key "correlation_id" stands behind "task_uuid"`},
		"turned in a list":          {`_ = []zap.Field{zap.Int("attempt", 1), zap.String("step_name", "a")}`, `the key "step_name" stands behind "attempt"`},
		"the order of the keys":     {`log.Info("m", zap.Stringer("correlation_id", id), zap.Stringer("task_uuid", id), zap.Int("attempt", 1), zap.Error(err))`, ""},
		"kinds of texts":            {`log.Info("m", zap.Stringer("step_name", s)); log.Info("m", zap.String("step_name", "a"))`, ""},
		"kinds of numbers":          {`log.Info("m", zap.Uint64("steps", 1), zap.Int("tasks", 1))`, ""},
		"of another package":        {`log.Info("m", metric.Int("elapsed", 1))`, ""},
		"fields of different lines": {`log.Info("m", zap.String("reason", "a")); log.Info("m", zap.Stringer("task_uuid", id))`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLogLines()
			l.read(t, []pkg{plant(t, "worker", "x.go", "package x\n\nfunc f() { "+tt.body+" }\n")})
			if tt.want == "" {
				require.Empty(t, l.wrong)
				return
			}
			require.Len(t, l.wrong, 1)
			require.Contains(t, l.wrong[0], tt.want)
		})
	}
}
