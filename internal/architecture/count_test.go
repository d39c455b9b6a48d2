package architecture_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ratchetFile holds the largest numbers that the product may have.
const ratchetFile = "testdata/ratchet.txt"

var updateRatchet = flag.Bool("ratchet.update", false, "write the present numbers to "+ratchetFile)

// size is the output of `make count` for a package, or for all.
type size struct {
	files, lines, code, comments int
	bytes                        int // of lines that are not empty
	functions, functionLines     int
	exported                     int // identifiers and methods outside internal and main packages
	largest                      int // lines of the largest file
}

func (s *size) add(o size) {
	s.files += o.files
	s.lines += o.lines
	s.code += o.code
	s.comments += o.comments
	s.bytes += o.bytes
	s.functions += o.functions
	s.functionLines += o.functionLines
	s.exported += o.exported
	s.largest = max(s.largest, o.largest)
}

// users are folders beside the product: they use it and are not shipped.
var users = []string{"bench", "chaos", "examples", "test"}

// product reports whether a package is shipped: no test kit, and not a user of the
// product.
func (p pkg) product() bool {
	room := p.room()
	return ours(p.ImportPath) && len(p.GoFiles) > 0 && !strings.HasSuffix(room, "test") && !slices.Contains(p.Imports, "testing") &&
		!slices.Contains(users, strings.Split(room, "/")[0])
}

// measure counts the files of a package that are not tests.
func measure(t *testing.T, p pkg) (s size) {
	t.Helper()
	for _, name := range p.GoFiles {
		src, err := os.ReadFile(filepath.Join(p.Dir, name))
		require.NoError(t, err)
		if generated(t, src) {
			continue
		}
		one := measureFile(t, name, src)
		if !p.public() {
			one.exported = 0
		}
		s.add(one)
	}
	return s
}

// generated reports whether a program has written a file, which says so before its package clause.
func generated(t *testing.T, src []byte) bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "", src, parser.PackageClauseOnly|parser.ParseComments)
	require.NoError(t, err)
	return ast.IsGenerated(f)
}

func measureFile(t *testing.T, name string, src []byte) (s size) {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, src, parser.SkipObjectResolution)
	require.NoError(t, err)
	s.files = 1
	for lines := bufio.NewScanner(bytes.NewReader(src)); lines.Scan(); {
		s.lines++
		if text := bytes.TrimSpace(lines.Bytes()); len(text) > 0 {
			s.bytes += len(lines.Bytes())
		}
	}
	s.largest = s.lines
	s.code, s.comments = linesOf(src)
	for _, d := range f.Decls {
		s.exported += exportedBy(d)
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			s.functions++
			s.functionLines += files.Position(fn.End()).Line - files.Position(fn.Pos()).Line + 1
		}
	}
	return s
}

// linesOf returns the lines with code, and those with only comments.
func linesOf(src []byte) (code, comments int) {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	with, only := map[int]bool{}, map[int]bool{}
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && text == "\n" {
			continue
		}
		first := file.Line(pos)
		lines := with
		if tok == token.COMMENT {
			lines = only
		}
		for n := first; n <= first+strings.Count(text, "\n"); n++ {
			lines[n] = true
		}
	}
	for n := range only {
		if !with[n] {
			comments++
		}
	}
	return len(with), comments
}

// exportedBy counts the names that a declaration exports: types, functions, variables,
// constants, and methods of exported types.
func exportedBy(d ast.Decl) (n int) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))) {
			n++
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() {
					n++
				}
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					if name.IsExported() {
						n++
					}
				}
			}
		}
	}
	return n
}

// receiver is the name of the type that a method belongs to.
func receiver(d *ast.FuncDecl) string {
	x := d.Recv.List[0].Type
	for {
		switch t := x.(type) {
		case *ast.StarExpr:
			x = t.X
		case *ast.IndexExpr:
			x = t.X
		case *ast.IndexListExpr:
			x = t.X
		case *ast.Ident:
			return t.Name
		default:
			return ""
		}
	}
}

// topFolders are those of the repository, without hidden ones and that of make build.
func topFolders(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("../..")
	require.NoError(t, err)
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && e.Name() != "bin" {
			n++
		}
	}
	return n
}

// TestRatchet keeps the product from growing unnoticed: a number may fall, and rises only
// with testdata/ratchet.txt, for which the commit gives a reason. -ratchet.update writes
// the present numbers; with -v all packages are listed.
func TestRatchet(t *testing.T) {
	t.Parallel()
	var all size
	list := func(format string, values ...any) {
		if testing.Verbose() {
			t.Logf(format, values...)
		}
	}
	list("%7s %7s %8s %5s %9s %8s  package", "lines", "code", "comments", "files", "functions", "exported")
	for _, p := range load(t) {
		if !p.product() {
			continue
		}
		s := measure(t, p)
		list("%7d %7d %8d %5d %9d %8d  %s", s.lines, s.code, s.comments, s.files, s.functions, s.exported, p.room())
		all.add(s)
	}
	list("%7d %7d %8d %5d %9d %8d  all; a line has %.1f bytes, a function %.2f lines", all.lines, all.code, all.comments, all.files, all.functions, all.exported,
		float64(all.bytes)/float64(all.code+all.comments), float64(all.functionLines)/float64(all.functions))
	now := map[string]int{"product_lines": all.lines, "exported_names": all.exported, "largest_file_lines": all.largest, "top_folders": topFolders(t)}
	if *updateRatchet {
		writeRatchet(t, now)
		return
	}
	require.Empty(t, grown(now, readRatchet(t)))
}

// grown lists the numbers above their bound, or without one.
func grown(now, bounds map[string]int) (wrong []string) {
	for name, n := range now {
		bound, ok := bounds[name]
		switch {
		case !ok:
			wrong = append(wrong, fmt.Sprintf("%s has no bound in %s", name, ratchetFile))
		case n > bound:
			wrong = append(wrong, fmt.Sprintf("%s rose from %d to %d: -ratchet.update records it, with the reason in the commit", name, bound, n))
		}
	}
	slices.Sort(wrong)
	return wrong
}

func readRatchet(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(ratchetFile)
	require.NoError(t, err)
	bounds := map[string]int{}
	for line := range strings.Lines(string(text)) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		bounds[name], err = strconv.Atoi(strings.TrimSpace(number))
		require.NoError(t, err, line)
	}
	return bounds
}

func writeRatchet(t *testing.T, now map[string]int) {
	t.Helper()
	var lines []string
	for name, n := range now {
		lines = append(lines, fmt.Sprintf("%s %d\n", name, n))
	}
	slices.Sort(lines)
	require.NoError(t, os.WriteFile(ratchetFile, []byte(strings.Join(lines, "")), 0o600))
}

func TestGrowthIsFound(t *testing.T) {
	t.Parallel()
	bounds := map[string]int{"product_lines": 10, "exported_names": 5}
	require.Empty(t, grown(map[string]int{"product_lines": 10, "exported_names": 4}, bounds))
	require.Len(t, grown(map[string]int{"product_lines": 11, "exported_names": 6}, bounds), 2)
	require.Len(t, grown(map[string]int{"another": 1}, bounds), 1)
	s := measureFile(t, "x.go", []byte("// Package x is planted.\npackage x\n\n// A is\n// exported.\nfunc A() {\n}\n\ntype (\n\tb struct{}\n\tC[T any] int\n)\n\nfunc (b) D() {}\nfunc (*C[T]) E() {}\n\nvar F, g = 1, `\n\n`\n"))
	require.Equal(t, size{files: 1, lines: 19, code: 12, comments: 3, bytes: s.bytes, functions: 3, functionLines: 4, exported: 4, largest: 19}, s)
}
