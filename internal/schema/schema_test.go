package schema_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/internal/schema"
	"github.com/tasker-go/tasker/workflow/template"
)

const head = "name: n\nnamespace_name: ns\nversion: 1.0.0\n"

func compileInput(t testing.TB, source string) *schema.Schema {
	t.Helper()
	read, _, err := template.Parse("t.yaml", []byte(head+"steps: [{name: a, handler: {callable: x}}]\ninput_schema: "+source+"\n"))
	require.NoError(t, err)
	input, err := schema.Read(read.InputSchema)
	require.NoError(t, err)
	return input
}

func decode(t testing.TB, text string) any {
	t.Helper()
	v, err := jsonscan.Decode([]byte(text))
	require.NoError(t, err)
	return v
}

func TestValidateContext(t *testing.T) {
	const order = `{type: object, required: [order_id, customer], additionalProperties: false, properties: {
		order_id: {type: string, format: uuid, pattern: "^[a-z0-9-]+$"}, amount: {type: number, minimum: 0, multipleOf: 0.01},
		customer: {type: object, required: [id, name, email]}, items: {type: array, minItems: 1, items: {type: integer}},
		kind: {enum: [web, shop, 3]}, either: {anyOf: [{type: string}, {type: integer}]}, "a/b": {maxLength: 2}}}`
	tests := []struct{ context, want string }{
		{`{"order_id":"x-1","customer":{"id":1,"name":"n","email":"e"},"amount":1.25,"items":[1],"kind":3,"either":"x"}`, ``},
		{`{"order_id":"not a uuid","customer":{"id":1,"name":"n","email":"e"}}`, `/order_id: does not have the expected form`},
		{`{}`, `: lacks the required properties order_id, customer`},
		{`{"customer":{"id":12345},"order_id":"x","items":[]}`, "/customer: lacks the required properties name, email\n/items: must have at least 1 item"},
		{`{"customer":{"id":1,"name":"n","email":"e"},"order_id":7,"amount":-1,"items":["a",1.5,2.0]}`,
			"/amount: must be at least 0\n/items/0: must be an integer, not a string\n/items/1: must be an integer, not a number\n/order_id: must be a string, not a number"},
		{`{"customer":{"id":1,"name":"n","email":"e"},"order_id":"x","kind":"fax","either":[],"a/b":"long","extra":1}`,
			": has an unknown property: extra\n/a~1b: must have at most 2 characters\n/either: does not match the allowed alternatives\n/kind: must be one of the allowed values: web, shop, 3"},
		{`"text"`, `: must be an object, not a string`},
		{`null`, `: must be an object, not null`},
	}
	input := compileInput(t, order)
	for _, test := range tests {
		t.Run(test.context, func(t *testing.T) {
			require.Equal(t, test.want, violations(check(t, input, decode(t, test.context))))
			require.Equal(t, test.want, violations(check(t, input, json.RawMessage(test.context))), "as JSON text")
		})
	}
}

// check checks a value within the default budget.
func check(t testing.TB, s *schema.Schema, value any) []schema.Violation {
	t.Helper()
	found, err := (*schema.Checker)(nil).Check(t.Context(), s, value)
	require.NoError(t, err)
	return found
}

func violations(found []schema.Violation) string {
	lines := make([]string, len(found))
	for i, v := range found {
		lines[i] = v.Path + ": " + v.Message
	}
	return strings.Join(lines, "\n")
}

func TestNoSchemaAcceptsEverything(t *testing.T) {
	input, err := schema.Read(json.RawMessage(`null`))
	require.NoError(t, err)
	require.Nil(t, input)
	require.Empty(t, check(t, input, nil))
	require.Empty(t, check(t, input, make(chan int)))
}

func TestValidateGoValues(t *testing.T) {
	input := compileInput(t, `{type: object, properties: {n: {type: integer}, list: {type: array, items: {type: string}}}}`)
	require.Empty(t, check(t, input, struct {
		N    int      `json:"n"`
		List []string `json:"list"`
	}{3, []string{"a"}}))
	require.Empty(t, check(t, input, map[string]any{"n": int64(3), "list": []string{"a"}}))
	require.Equal(t, "/n: must be an integer, not a string", violations(check(t, input, map[string]string{"n": "3"})))
	require.Len(t, check(t, input, map[string]any{"n": make(chan int)}), 1)
	require.Len(t, check(t, input, json.RawMessage(`{"n":`)), 1)
	require.Len(t, check(t, input, json.RawMessage(`{"n":1e999999}`)), 1)
	require.Len(t, check(t, input, map[string]any{"n": json.Number("1e999999")}), 1)
	require.Empty(t, check(t, input, map[string]any{"n": json.Number("1e-999999")}), "nearest to 0")
	require.Empty(t, check(t, input, map[string]any{"n": json.Number("1." + strings.Repeat("0", 20_000) + "1")}), "nearest to 1, and too long for anything else")
	require.Len(t, check(t, input, json.RawMessage(`{"n":1.000000000000000001}`)), 1, "not an integer, though no double distinguishes it from 1")
}

func TestViolationsAreBoundedAndKeepSecrets(t *testing.T) {
	input := compileInput(t, `{type: object, additionalProperties: {type: integer}}`)
	context := map[string]any{}
	for i := range 100 {
		context[fmt.Sprintf("key%02d", i)] = "swordfish"
	}
	found := check(t, input, context)
	require.Len(t, found, 20)
	require.Equal(t, "/key00", found[0].Path)
	require.NotContains(t, fmt.Sprint(found), "swordfish")
	require.NotContains(t, fmt.Sprint(found), "tasker:")
}

// Schemas in common hand-written forms: older drafts, required at a property, keywords
// without a value.
func TestRelaxedSchemas(t *testing.T) {
	tests := []struct{ schema, good, bad string }{
		{`{type: object, properties: {a: {type: string, required: true, description: }, b: {required: false}}}`, `{"a":"x"}`, `{"b":1}`},
		{`{type: object, required: , properties: {a: {type: object, properties: {b: {required: true}}}, c: }}`, `{"c":1,"a":{"b":1}}`, `{"a":{}}`},
		{`{type: object, properties: {a: {type: number, minimum: 0, exclusiveMinimum: true}}}`, `{"a":1}`, `{"a":0}`},
		{`{type: object, properties: {a: {type: array, items: [{type: string}, {type: integer}]}}}`, `{"a":["x",1]}`, `{"a":[1]}`},
		{`{$schema: "http://json-schema.org/draft-07/schema#", properties: {a: {type: string, format: email}}}`, `{"a":"no at"}`, `{"a":1}`},
		{`{type: object, definitions: {d: {type: string}}, properties: {a: {$ref: "#/definitions/d"}}}`, `{"a":"x"}`, `{"a":1}`},
		{`{type: object, properties: {a: {pattern: "^\\u0041$"}}}`, `{"a":"A"}`, `{"a":"B"}`},
	}
	for _, test := range tests {
		t.Run(test.schema, func(t *testing.T) {
			input := compileInput(t, test.schema)
			require.Empty(t, check(t, input, decode(t, test.good)))
			require.NotEmpty(t, check(t, input, decode(t, test.bad)))
		})
	}
}

func TestReadRejectsBrokenSchemas(t *testing.T) {
	for _, text := range []string{`{`, `{"type":"nothing"}`, `{"$ref":"http://localhost/x"}`, `{"$schema":"http://localhost/x"}`, `7`, `{"$ref":"file:///etc/passwd"}`} {
		_, err := schema.Read(json.RawMessage(text))
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "root:", "nothing is read")
	}
}

func TestSchemaThatRefersToItself(t *testing.T) {
	tree := compileInput(t, `{type: object, properties: {child: {$ref: "#"}}}`)
	require.Empty(t, check(t, tree, decode(t, `{"child":{"child":{}}}`)))
	require.Equal(t, "/child/child: must be an object, not a number", violations(check(t, tree, decode(t, `{"child":{"child":1}}`))))
}

func TestEndlessAndExpensiveSchemas(t *testing.T) {
	var doubling strings.Builder
	doubling.WriteString("{$defs: {d0: {type: object}")
	for i := 1; i <= 30; i++ {
		fmt.Fprintf(&doubling, ", d%d: {allOf: [{$ref: '#/$defs/d%d'}, {$ref: '#/$defs/d%[2]d'}]}", i, i-1)
	}
	doubling.WriteString("}, type: object, properties: {a: {$ref: '#/$defs/d30'}}}")

	tests := map[string]string{
		`{type: object, $ref: "#"}`: "t.yaml:4:15: error: input_schema is not a valid JSON Schema: it refers to itself without end [SCHEMA_INVALID]",
		`{type: object, $defs: {a: {allOf: [{$ref: "#/$defs/b"}]}, b: {not: {$ref: "#/$defs/a"}}}, additionalProperties: {$ref: "#/$defs/a"}}`: "it refers to itself without end",
		doubling.String(): "it applies too many subschemas to one value",
	}
	for source, want := range tests {
		_, _, err := template.Parse("t.yaml", []byte(head+"input_schema: "+source+"\nsteps: [{name: a, handler: {callable: x}}]\n"))
		require.ErrorContains(t, err, want)
	}
}
