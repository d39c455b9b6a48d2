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

var metricName = regexp.MustCompile(`"((?:tasker|mpsc)_[a-z_]+)", "|(?:Name: |metric:)"((?:tasker|mpsc)_[a-z_]+)"`)

// metricNames reads the names of metrics from the sources: the catalogue in telemetry,
// and the metrics that the daemons register besides it.
func metricNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, dir := range []string{"internal/telemetry", "daemon"} {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, m := range metricName.FindAllStringSubmatch(page(t, dir+"/"+filepath.Base(file)), -1) {
				names = append(names, m[1]+m[2])
			}
		}
	}
	pools := 0
	names = slices.DeleteFunc(names, func(name string) bool {
		if strings.HasSuffix(name, "_pool") { // observeConnections adds the names of each
			pools++
			return true
		}
		return false
	})
	require.Equal(t, 2, pools)
	return append(names, "tasker_pool_connections_max", "tasker_pool_connections_active", "tasker_pool_connections_idle", "tasker_pool_acquires_total",
		"tasker_transaction_pool_connections_active")
}
