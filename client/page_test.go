package client_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
)

// rows of the table of calls: names of methods, what they do, an example.
var callRow = regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|[^|]+\\| `(Example\\w+)` \\|$")

// TestEveryCallHasAnExample: the page names each method of a client and an example, and the
// example calls it.
func TestEveryCallHasAnExample(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/use/clients.md")
	require.NoError(t, err)
	examples, shown := examplesHere(t), map[string]bool{}
	for _, row := range callRow.FindAllStringSubmatch(string(page), -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			name = strings.Trim(name, "`")
			shown[name] = true
			require.Contains(t, examples[row[2]], name, "%s is not called in %s", name, row[2])
		}
	}
	calls := reflect.TypeFor[*client.Client]()
	for i := range calls.NumMethod() {
		require.Contains(t, shown, calls.Method(i).Name, "docs/use/clients.md has no row for it")
	}
}

// examplesHere are the examples of the package, and the names that each calls.
func examplesHere(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	examples := map[string][]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is || !strings.HasPrefix(f.Name.Name, "Example") {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if s, is := n.(*ast.SelectorExpr); is {
					examples[f.Name.Name] = append(examples[f.Name.Name], s.Sel.Name)
				}
				return true
			})
		}
	}
	return examples
}
