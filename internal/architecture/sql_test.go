package architecture_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// statement matches a text that is SQL from its first word on, as statements
// are written here: keywords in capitals, perhaps after comments.
var statement = regexp.MustCompile(`^(?:\s|--[^\n]*\n)*(?:SELECT\s|INSERT\s+INTO\s|UPDATE\s+\S+\s+(?:\S+\s+)?SET\s|DELETE\s+FROM\s|WITH\s+(?:RECURSIVE\s+)?\w+\s+(?:\([^)]*\)\s+)?AS\s|MERGE\s+INTO\s|CREATE\s+TABLE\s|ALTER\s+TABLE\s|TRUNCATE\s)`)

// TestOnlyStoreHoldsSQL reads the string literals of every other package.
// signal/* may speak to the server for LISTEN, NOTIFY and replication, and the
// internal kits are no part of the product.
func TestOnlyStoreHoldsSQL(t *testing.T) {
	t.Parallel()
	for _, p := range load(t) {
		top, _, below := strings.Cut(p.room(), "/")
		if top == "store" || top == "internal" || (top == "signal" && below) {
			continue
		}
		for _, name := range p.GoFiles {
			for _, at := range sqlIn(t, filepath.Join(p.Dir, name)) {
				t.Errorf("%s holds SQL; statements live in store", at)
			}
		}
	}
}

// sqlIn returns the positions of SQL statements in a file.
func sqlIn(t *testing.T, file string) (found []string) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(f, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(lit.Value)
		if err == nil && statement.MatchString(text) {
			found = append(found, fset.Position(lit.Pos()).String())
		}
		return true
	})
	return found
}

func TestStatementPattern(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{
		"SELECT 1", "\n\t-- why\n\tSELECT now()", "INSERT INTO t VALUES (1)", "UPDATE t SET n = 1", "UPDATE t x SET n = 1",
		"DELETE FROM t", "WITH due AS (SELECT 1) SELECT 2", "WITH RECURSIVE up (id) AS (SELECT 1) SELECT 2",
	} {
		require.True(t, statement.MatchString(sql), sql)
	}
	for _, text := range []string{
		"SELECTED", "Select a mode", "UPDATE the configuration", "with retries as configured", "DELETE", "selects from", "",
	} {
		require.False(t, statement.MatchString(text), text)
	}
}

// TestNothingSleepsInTests: a test that sleeps is slow when all is well and
// fails when the machine is. Inside testing/synctest sleeping takes no time, so
// a file that imports it may.
func TestNothingSleepsInTests(t *testing.T) {
	t.Parallel()
	for _, p := range load(t) {
		for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			for _, at := range sleepsIn(t, filepath.Join(p.Dir, name)) {
				t.Errorf("%s sleeps; wait for a state (pgtest.Eventually), an event or a fake clock", at)
			}
		}
	}
}

func sleepsIn(t *testing.T, file string) (found []string) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, imp := range f.Imports {
		if imp.Path.Value == `"testing/synctest"` {
			return nil
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name != "Sleep" {
			return true
		}
		if id, ok := sel.X.(*ast.Ident); ok && id.Name == "time" {
			found = append(found, fset.Position(sel.Pos()).String())
		}
		return true
	})
	return found
}
