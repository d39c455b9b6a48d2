package codegen

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/workflow"
)

// words of which schemas are made: common ones, and what languages keep for themselves.
var oddWords = []string{"a", "b", "A", "a_b", "aB", "a-b", "1", "", "-", "type", "class", "self", "data", "Any", "T", "T_context",
	"from_dict", "constructor", "__proto__", "日本", "ﬁ", "a\nb", "a\"b", "a`b", "a\\", "*/", "\"\"\"", "'''", "</script>", "${a}", "#", "\u2028", "\x7f", "\U0001f600"}

var oddWord = rapid.SampledFrom(oddWords)

// anySchema draws a schema; most are valid.
func anySchema(t *rapid.T, depth int) any {
	word := func() string { return oddWord.Draw(t, "word") }
	several := func() (list []any) {
		for range rapid.IntRange(1, 3).Draw(t, "several") {
			list = append(list, anySchema(t, depth-1))
		}
		return list
	}
	s := map[string]any{"description": word()}
	form := rapid.IntRange(0, 12).Draw(t, "form")
	if depth == 0 {
		form %= 6
	}
	switch form {
	case 0:
		return rapid.Bool().Draw(t, "any")
	case 1, 2:
		s["type"] = rapid.SampledFrom([]any{"string", "integer", "number", "boolean", "null", []any{"string", "null"}, []any{"integer", "string"}, "array", "object"}).Draw(t, "type")
	case 3:
		s["enum"] = rapid.SliceOfNDistinct(rapid.SampledFrom([]any{"x", "y", 1, 1.5, true, nil, "日", "\"", "*/", "a b"}), 1, 4, rapid.ID[any]).Draw(t, "enum")
	case 4:
		s["$ref"] = rapid.SampledFrom([]string{"#", "#/$defs/a", "#/$defs/b", "#/$defs/1"}).Draw(t, "ref")
	case 5:
		s["const"] = word()
	case 6:
		s["items"] = anySchema(t, depth-1)
	case 7:
		s["type"], s["additionalProperties"] = "object", anySchema(t, depth-1)
	case 8:
		s[rapid.SampledFrom([]string{"anyOf", "oneOf", "allOf"}).Draw(t, "of")] = several()
	case 9:
		s["anyOf"] = []any{anySchema(t, depth-1), map[string]any{"type": "null"}}
	default:
		properties := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "properties") {
			properties[word()] = anySchema(t, depth-1)
		}
		s["type"], s["properties"] = "object", properties
		s["required"] = rapid.SliceOfNDistinct(oddWord, 0, 3, rapid.ID[string]).Draw(t, "required")
	}
	return s
}

// TestAnySchema: what is generated of any schema is of the language.
func TestAnySchema(t *testing.T) {
	t.Parallel()
	dir, valid := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		s, ok := anySchema(t, 3).(map[string]any)
		if !ok {
			return
		}
		defs := map[string]any{}
		for _, name := range []string{"a", "b", "1"} {
			defs[name] = anySchema(t, 2)
		}
		s["$defs"] = defs
		doc, err := json.Marshal(s)
		require.NoError(t, err)
		handler := workflow.HandlerReference{Callable: oddWord.Draw(t, "callable"), Method: oddWord.Draw(t, "method")}
		step := workflow.StepTemplate{Name: oddWord.Draw(t, "step"), Kind: workflow.KindStandard, Handler: handler, ResultSchema: doc}
		after := step
		after.Name, after.Dependencies, after.Handler.Callable = step.Name+"2", []string{step.Name}, "after"
		template := &workflow.Template{Name: oddWord.Draw(t, "name"), Namespace: "n", InputSchema: doc, Steps: []workflow.StepTemplate{step, after}}
		for _, language := range Languages() {
			files, err := Generate(template, Options{Language: language})
			if err != nil {
				require.ErrorContains(t, err, "invalid schema", "%s", doc)
				return
			}
			if language == "go" {
				requireTypes(t, files.Types.Text)
			}
			folder := filepath.Join(dir, language, strconv.Itoa(valid))
			require.NoError(t, os.MkdirAll(folder, 0o750))
			for _, f := range []File{files.Types, files.Handlers, files.Tests} {
				require.NoError(t, os.WriteFile(filepath.Join(folder, f.Name), f.Text, 0o600))
			}
		}
		valid++
	})
	require.Greater(t, valid, 10)
	t.Run("Python", func(t *testing.T) {
		needs.Tool(t, needs.Python)
		command(t, filepath.Join(dir, "python"), "python3", "-m", "compileall", "-q", ".")
	})
	t.Run("TypeScript", func(t *testing.T) {
		compileTypeScript(t, filepath.Join(dir, "typescript"))
	})
}

// TestFieldsThatAllObjectsHave: an object without an optional field of such a name is of its type.
func TestFieldsThatAllObjectsHave(t *testing.T) {
	t.Parallel()
	properties := map[string]any{"a": map[string]any{"type": "string"}}
	for _, name := range typescriptInherited {
		properties[name] = map[string]any{"type": "null"}
	}
	schema, err := json.Marshal(map[string]any{"type": "object", "properties": properties, "required": []string{"a"}})
	require.NoError(t, err)
	steps := []workflow.StepTemplate{{Name: "constructor", Kind: workflow.KindStandard, Handler: workflow.HandlerReference{Callable: "x"}, ResultSchema: schema}}
	steps = append(steps, steps[0])
	steps[1].Name, steps[1].Dependencies, steps[1].Handler.Callable = "after", []string{"constructor"}, "y"
	files, err := Generate(&workflow.Template{Name: "t", Namespace: "n", InputSchema: schema, Steps: steps}, Options{Language: "typescript"})
	require.NoError(t, err)
	needs.Tool(t, needs.Node, needs.TypeScript)
	dir := t.TempDir()
	for _, f := range []File{files.Types, files.Handlers, files.Tests} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, f.Name), f.Text, 0o600))
	}
	compileTypeScript(t, dir)
}

// requireTypes checks the Go types of a file, which imports nothing.
func requireTypes(t require.TestingT, src []byte) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "types.go", src, parser.SkipObjectResolution)
	require.NoError(t, err)
	_, err = new(types.Config).Check("p", set, []*ast.File{file}, nil)
	require.NoError(t, err, "%s", src)
}
