package docscheck_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/logroom"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// problemCodes reads the values of the code… constants of package template.
func problemCodes(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "workflow/template/problem.go"), nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	var codes []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 || !strings.HasPrefix(strings.ToLower(spec.Names[0].Name), "code") {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
			code, err := strconv.Unquote(lit.Value)
			require.NoError(t, err)
			codes = append(codes, code)
		}
		return true
	})
	return codes
}

var schemaObject = regexp.MustCompile(`(?m)^create (?:or replace )?(?:unique |unlogged )*(?:table|index|view|sequence|function|trigger) (?:if not exists )?(?:tasker\.)?([a-z0-9_]+)`)

// schemaObjects reads the names of tables, indexes, views, sequences and
// functions from the baseline and the migrations after it.
func schemaObjects(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "internal/store/migrations/*.sql"))
	require.NoError(t, err)
	var names []string
	for _, file := range append([]string{filepath.Join(root, "internal/store/schema.sql")}, files...) { // in the order in which they are applied
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		for _, m := range schemaDrop.FindAllStringSubmatch(up, -1) {
			for _, gone := range strings.Split(m[1], ",") {
				names = slices.DeleteFunc(names, func(name string) bool { return "tasker."+name == strings.TrimSpace(gone) })
			}
		}
		for _, m := range schemaObject.FindAllStringSubmatch(up, -1) {
			if name := m[1]; !strings.HasSuffix(name, "_default") && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// schemaDrop lists tables and views that a migration drops.
var schemaDrop = regexp.MustCompile(`(?m)^drop (?:table|view) ([^;]+);`)

// metricNames are those of the catalogue.
func metricNames() (names []string) {
	for _, e := range telemetry.Catalogue() {
		names = append(names, e.Name)
	}
	return names
}

// TestLoggersOfDaemonsAreRooms: the level of each can be set apart.
func TestLoggersOfDaemonsAreRooms(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "daemon/*.go"))
	require.NoError(t, err)
	named := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`\blog\.Named\("(\w+)"\)`).FindAllStringSubmatch(string(text), -1) {
			named[m[1]] = true
		}
	}
	delete(named, "orchestrator") // parts of a program that is both
	delete(named, "worker")
	rooms := map[string]bool{}
	for _, room := range logroom.Names {
		rooms[room] = true
	}
	delete(rooms, "worker")
	require.Equal(t, rooms, named)
}
