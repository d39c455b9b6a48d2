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
)

// TestLogFieldsHaveOneType: log collectors take the type of a field from the first line
// that has it, and reject lines with another. Arguments of zap.Any are not checked here.
func TestLogFieldsHaveOneType(t *testing.T) {
	t.Parallel()
	fields := logFields(t, load(t))
	report(t, mixedFields(fields))
	for name, want := range map[string]string{"step": "text", "step_no": "number", "task_uuid": "text"} {
		require.Equal(t, []string{want}, slices.Collect(maps.Keys(fields[name])), name)
	}
}

// typesOfFields are the functions of zap that make a named field, by its type in JSON.
// That of a duration depends on the encoder.
var typesOfFields = map[string][]string{
	"text":     {"String", "Stringer", "ByteString", "NamedError", "Stack"},
	"number":   {"Int", "Int8", "Int16", "Int32", "Int64", "Uint", "Uint8", "Uint16", "Uint32", "Uint64", "Float32", "Float64"},
	"truth":    {"Bool"},
	"duration": {"Duration"},
	"time":     {"Time"},
	"list":     {"Strings", "Stringers", "Ints", "Int32s", "Int64s", "Uint64s", "Float64s", "Durations", "Times", "Errors", "Array"},
	"object":   {"Object", "Dict", "Namespace"},
}

// logFields lists, by the name of the field, its types with one place each.
func logFields(t *testing.T, pkgs []pkg) map[string]map[string]string {
	t.Helper()
	found := map[string]map[string]string{}
	for _, p := range pkgs {
		if p.testKit() {
			continue
		}
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			ast.Inspect(f, func(n ast.Node) bool {
				if field, kind := fieldOf(n); field != "" {
					if found[field] == nil {
						found[field] = map[string]string{}
					}
					found[field][kind] = fset.Position(n.Pos()).String()
				}
				return true
			})
		}
	}
	return found
}

// fieldOf returns the name and the type of the field that a call makes, "" if it makes
// none.
func fieldOf(n ast.Node) (field, kind string) {
	of, name := calls(n)
	if of != "zap" {
		return "", ""
	}
	for kind, makers := range typesOfFields {
		if !slices.Contains(makers, name) {
			continue
		}
		if lit, ok := n.(*ast.CallExpr).Args[0].(*ast.BasicLit); ok { //nolint:forcetypeassert // calls has seen to it
			field, _ = strconv.Unquote(lit.Value)
			return field, kind
		}
	}
	return "", ""
}

func mixedFields(fields map[string]map[string]string) (wrong []string) {
	for field, kinds := range fields {
		if len(kinds) < 2 {
			continue
		}
		var places []string
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			places = append(places, kind+" at "+kinds[kind])
		}
		wrong = append(wrong, fmt.Sprintf("the field %q of the log has several types: %s", field, strings.Join(places, ", ")))
	}
	return wrong
}

func TestPlantedLogFieldsAreFound(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body  string
		wrong int
	}{
		"a name and a number":     {`zap.String("step", "a"), zap.Int("step", 1)`, 1},
		"a number and a time":     {`zap.Int("running", 1), zap.Duration("running", 1)`, 1},
		"a text and its list":     {`zap.String("step", "a"), zap.Strings("step", nil)`, 1},
		"texts":                   {`zap.String("step", "a"), zap.Stringer("step", s)`, 0},
		"numbers":                 {`zap.Int("steps", 1), zap.Uint64("steps", 1)`, 0},
		"other names":             {`zap.String("step", "a"), zap.Int("step_no", 1)`, 0},
		"of another package":      {`zap.String("step", "a"), metric.Int("step", 1)`, 0},
		"names that are not text": {`zap.String(name, "a"), zap.Int(name, 1)`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plant(t, "worker", "x.go", "package x\n\nfunc f() { log.Info(`m`, "+tt.body+") }\n")
			require.Len(t, mixedFields(logFields(t, []pkg{p})), tt.wrong)
		})
	}
}
