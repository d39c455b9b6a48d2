package codegen

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

var update = flag.Bool("update", false, "write the expected texts anew")

func parse(t testing.TB, file string) *workflow.Template {
	t.Helper()
	src, err := os.ReadFile(file)
	require.NoError(t, err)
	parsed, problems, err := template.Parse(file, src)
	require.NoError(t, err, "%v", problems)
	return parsed
}

// TestEveryFeature writes what a template with every feature of the schemas becomes.
func TestEveryFeature(t *testing.T) {
	t.Parallel()
	every := parse(t, "testdata/every.yaml")
	for _, language := range Languages() {
		files, err := Generate(every, Options{Language: language})
		require.NoError(t, err, language)
		for _, f := range []File{files.Types, files.Handlers, files.Tests} {
			golden := filepath.Join("testdata", "every", language, f.Name+".golden")
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(golden), 0o750))
				require.NoError(t, os.WriteFile(golden, f.Text, 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), string(f.Text), "run go test ./internal/codegen -update and look at the difference")
		}
	}
}

// TestNamesAreTheSameForOneStep compares a step's code with its part of all.
func TestNamesAreTheSameForOneStep(t *testing.T) {
	t.Parallel()
	every := parse(t, "testdata/every.yaml")
	for _, language := range Languages() {
		all, err := Generate(every, Options{Language: language})
		require.NoError(t, err)
		one, err := Generate(every, Options{Language: language, Step: "check_result", Handlers: "mine" + languages[language].ending})
		require.NoError(t, err)
		require.Equal(t, all.Types.Name, one.Types.Name)
		require.Contains(t, one.Handlers.Name, "mine")
		require.Contains(t, one.Tests.Name, "mine")
		for _, want := range []string{"CheckResultResult", "CheckResult", "EveryFeatureContext"} {
			require.Contains(t, string(one.Types.Text), want)
		}
		require.NotContains(t, string(one.Types.Text), "PackResult")
		require.NotContains(t, string(one.Handlers.Text), "shop.pack")
		for line := range strings.Lines(string(one.Types.Text)) {
			require.Contains(t, string(all.Types.Text), line)
		}
	}
}

func TestWhatCannotBeGenerated(t *testing.T) {
	t.Parallel()
	every := parse(t, "testdata/every.yaml")
	_, err := Generate(every, Options{Language: "ruby"})
	require.EqualError(t, err, `invalid language "ruby": want go, python, typescript`)
	_, err = Generate(every, Options{Language: "go", Step: "approve"})
	require.ErrorContains(t, err, `invalid step "approve": want one that has a handler: check, check_result, route`)
	every.Steps[0].ResultSchema = []byte(`{"type":"nothing"}`)
	_, err = Generate(every, Options{Language: "go"})
	require.ErrorContains(t, err, `read the result_schema of step check: invalid schema at "/type"`)
	every.InputSchema = []byte(`{"$ref":"#/$defs/none"}`)
	_, err = Generate(every, Options{Language: "go"})
	require.ErrorContains(t, err, "read the input_schema: invalid schema")
}

// TestWithoutSchemas: nothing is known, and everything is allowed.
func TestWithoutSchemas(t *testing.T) {
	t.Parallel()
	for _, language := range Languages() {
		for name, context := range map[string]string{"none": "", "null": "null", "true": "true", "a number": `{"type":"number"}`} {
			plain := &workflow.Template{Name: "type", Namespace: "n", Version: "1", InputSchema: json.RawMessage(context),
				Steps: []workflow.StepTemplate{{Name: "class", Kind: workflow.KindStandard, Handler: workflow.HandlerReference{Callable: `a"""\`}}}}
			files, err := Generate(plain, Options{Language: language})
			require.NoError(t, err, name)
			require.Contains(t, string(files.Handlers.Text), "not implemented")
		}
	}
}

// TestRecursion: what contains itself still has a type, and a sample where it can have one.
func TestRecursion(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{"type":"object","required":["a"],"properties":{"a":{"$ref":"#"}}}`:                                                          "A *TContext `json:\"a\"`",
		`{"type":"array","items":{"$ref":"#"}}`:                                                                                       "type TContext []any",
		`{"$ref":"#/$defs/l","$defs":{"l":{"type":"array","items":{"type":"object","properties":{"c":{"$ref":"#/$defs/l"}}}}}}`:       "C []LItem `json:\"c,omitzero\"`",
		`{"anyOf":[{"type":"object","properties":{"a":{"$ref":"#"}}},{"type":"null"}]}`:                                               "A *TContext `json:\"a,omitzero\"`",
		`{"$ref":"#/$defs/n","$defs":{"n":{"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#/$defs/n"}}]}}}`:                "type TContext []any",
		`{"$ref":"#/$defs/n","$defs":{"n":{"anyOf":[{"type":"null"},{"properties":{"b":{"$ref":"#/$defs/n"}},"required":["b"]}]}}}`:   "B *N `json:\"b\"`",
		`{"$ref":"#/$defs/TContext","$defs":{"TContext":{"properties":{"b":{"type":"string"}}}}}`:                                     "type TContext struct",
		`{"type":"array","items":{"$ref":"#/$defs/t_context"},"$defs":{"t_context":{"properties":{"b":{"type":["string","null"]}}}}}`: "type TContext2 []TContext",
	} {
		files, err := Generate(&workflow.Template{Name: "t", InputSchema: json.RawMessage(schema)}, Options{Language: "go"})
		require.NoError(t, err, schema)
		require.Contains(t, strings.Join(strings.Fields(string(files.Types.Text)), " "), want, schema)
		requireTypes(t, files.Types.Text)
	}
}
