package architecture_test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// apiDir holds the exported declarations of each public package; the page says what
// is promised about them.
const (
	apiDir  = "testdata/api"
	apiPage = "../../docs/reference/api-stability.md"
)

var updateAPI = flag.Bool("api.update", false, "write the exported declarations to "+apiDir)

// TestPublicAPI compares the exported declarations of every public package with the
// record: a change of what programs can compile against is made on purpose.
// -api.update writes the record anew.
func TestPublicAPI(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(apiPage)
	require.NoError(t, err)
	recorded := map[string]bool{}
	for _, p := range load(t) {
		if !p.product() || !p.public() {
			continue
		}
		require.Contains(t, string(page), "`"+p.room()+"`", "%s says nothing about the package", apiPage)
		file := filepath.Join(apiDir, strings.ReplaceAll(p.room(), "/", ".")+".txt")
		recorded[file] = true
		now := declarations(t, p)
		if *updateAPI {
			require.NoError(t, os.MkdirAll(apiDir, 0o750))
			require.NoError(t, os.WriteFile(file, []byte(now), 0o600))
			continue
		}
		before, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, string(before), now, "the exported declarations of %s have changed; -api.update records them", p.room())
	}
	files, err := filepath.Glob(filepath.Join(apiDir, "*.txt"))
	require.NoError(t, err)
	for _, file := range files {
		require.True(t, recorded[file], "%s is of no public package", file)
	}
}

// public reports whether programs can import the package.
func (p pkg) public() bool {
	return p.Name != "main" && !slices.Contains(strings.Split(p.room(), "/"), "internal")
}

// declarations prints what a package exports, sorted, without comments and bodies. Types of
// internal packages that it exports under other names, or embeds, belong to it.
func declarations(t *testing.T, p pkg) string {
	t.Helper()
	var list []string
	inner := map[string][]string{} // names by package
	eachExported(t, p, func(files *token.FileSet, f *ast.File, d ast.Decl) {
		list = append(list, printed(t, files, d)...)
		borrowed(f, d, inner)
	})
	for path, names := range inner {
		list = append(list, lent(t, path, names)...)
	}
	slices.Sort(list)
	return strings.Join(list, "")
}

// borrowed adds the types of internal packages that a declaration makes public.
func borrowed(f *ast.File, d ast.Decl, inner map[string][]string) {
	group, ok := d.(*ast.GenDecl)
	if !ok {
		return
	}
	add := func(x ast.Expr) {
		if star, ok := x.(*ast.StarExpr); ok {
			x = star.X
		}
		name, ok := x.(*ast.SelectorExpr)
		if !ok {
			return
		}
		for _, imp := range f.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			if of, ok := name.X.(*ast.Ident); ok && ours(path) && strings.Contains(path, "/internal/") && strings.HasSuffix(path, "/"+of.Name) {
				inner[path] = append(inner[path], name.Sel.Name)
			}
		}
	}
	for _, spec := range group.Specs {
		typ, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		if typ.Assign.IsValid() {
			add(typ.Type)
		}
		if of, ok := typ.Type.(*ast.StructType); ok {
			for _, field := range of.Fields.List {
				if len(field.Names) == 0 {
					add(field.Type)
				}
			}
		}
	}
}

// lent prints types of an internal package with their methods.
func lent(t *testing.T, path string, names []string) (list []string) {
	t.Helper()
	for _, p := range load(t) {
		if p.ImportPath != path {
			continue
		}
		eachExported(t, p, func(files *token.FileSet, _ *ast.File, d ast.Decl) {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil || !slices.Contains(names, receiver(d)) {
					return
				}
			case *ast.GenDecl:
				d.Specs = slices.DeleteFunc(d.Specs, func(spec ast.Spec) bool {
					typ, ok := spec.(*ast.TypeSpec)
					return !ok || !slices.Contains(names, typ.Name.Name)
				})
			}
			list = append(list, printed(t, files, d)...)
		})
	}
	return list
}

// eachExported calls visit with each declaration that a package exports.
func eachExported(t *testing.T, p pkg, visit func(files *token.FileSet, f *ast.File, d ast.Decl)) {
	t.Helper()
	for _, name := range p.GoFiles {
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		if !ast.FileExports(f) {
			continue
		}
		for _, d := range f.Decls {
			visit(files, f, d)
		}
	}
}

// printed is a declaration as text, a group of them one by one.
func printed(t *testing.T, files *token.FileSet, d ast.Decl) (list []string) {
	t.Helper()
	ast.Inspect(d, func(n ast.Node) bool {
		if field, ok := n.(*ast.Field); ok && field.Tag != nil && strings.Contains(field.Tag.Value, "toml:") {
			field.Tag = nil // of configuration keys, which the reference of the configuration records
		}
		return true
	})
	add := func(node any) {
		var b bytes.Buffer
		require.NoError(t, (&printer.Config{Mode: printer.TabIndent}).Fprint(&b, files, node))
		list = append(list, b.String()+"\n")
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		d.Body = nil
		if d.Recv == nil || ast.IsExported(receiver(d)) {
			add(d)
		}
	case *ast.GenDecl:
		if d.Tok == token.IMPORT {
			return nil
		}
		for _, spec := range d.Specs {
			if values, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.VAR {
				values.Values = nil // what a variable begins with is no promise
			}
			add(&ast.GenDecl{Tok: d.Tok, Specs: []ast.Spec{spec}})
		}
	}
	return list
}

// TestPlantedChangesOfTheAPIAreFound: what a program can see changes the record, and
// nothing else does.
func TestPlantedChangesOfTheAPIAreFound(t *testing.T) {
	t.Parallel()
	const before = "package x\n\n// T is.\ntype T struct{ A int; b int }\n\nfunc (T) M() {}\n\nconst C = 1\n\nvar V = 1\n\nfunc f() {}\n"
	record := declarations(t, plant(t, "client", "x.go", before))
	for change, same := range map[string]bool{
		"A int>A int64": false, "M()>M(int)": false, "C = 1>C = 2": false, "(T) M>(T) N": false,
		"b int>c bool": true, "V = 1>V = 2": true, "f()>g()": true, "T is>T was": true,
	} {
		from, to, _ := strings.Cut(change, ">")
		after := declarations(t, plant(t, "client", "x.go", strings.Replace(before, from, to, 1)))
		require.Equal(t, same, record == after, change)
	}
}
