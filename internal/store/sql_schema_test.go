package store_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/schema"
)

// plainSchema draws a schema that SQL checks.
func plainSchema(t *rapid.T, depth int) map[string]any {
	s := map[string]any{}
	some := func(key string, of *rapid.Generator[any]) {
		if rapid.IntRange(0, 3).Draw(t, key+"?") == 0 {
			s[key] = of.Draw(t, key)
		}
	}
	some("type", rapid.SampledFrom([]any{"string", "integer", "number", "boolean", "null", "array", "object", []any{"object", "null"}, []any{"integer", "string"}}))
	some("enum", rapid.SampledFrom([]any{[]any{"a", 1, nil}, []any{1.5, true}, []any{map[string]any{"a": 1}}, []any{[]any{}, "b"}}))
	for _, key := range []string{"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"} {
		some(key, rapid.IntRange(0, 3).AsAny())
	}
	for _, key := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"} {
		some(key, rapid.SampledFrom([]any{0, 1, -2.5, 1e20, 0.1}))
	}
	some("required", rapid.SampledFrom([]any{[]any{"a"}, []any{"b", "a"}, []any{"a/b", "~"}}))
	if depth == 0 {
		return s
	}
	part := rapid.Custom(func(t *rapid.T) any {
		if rapid.IntRange(0, 4).Draw(t, "flag") == 0 {
			return rapid.Bool().Draw(t, "any")
		}
		return plainSchema(t, depth-1)
	})
	some("properties", rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "a/b", "~"}), part, 0, 3).AsAny())
	some("additionalProperties", part)
	some("items", part)
	some("title", rapid.Just[any]("for people"))
	return s
}

// plainValue draws a value for such a schema.
func plainValue(t *rapid.T, depth int) any {
	kinds := 4
	if depth > 0 {
		kinds = 6
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.SampledFrom([]any{nil, true, false}).Draw(t, "word")
	case 1:
		return rapid.SampledFrom([]json.Number{"0", "1", "1.0", "1.5", "-3", "-2.5", "1e20", "100000000000000000001", "0.1"}).Draw(t, "number")
	case 2, 3:
		return rapid.SampledFrom([]string{"", "a", "b", "é€😀", "four"}).Draw(t, "text")
	case 4:
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) any { return plainValue(t, depth-1) }), 0, 4).Draw(t, "list")
	default:
		return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "a/b", "~", "other"}), rapid.Custom(func(t *rapid.T) any { return plainValue(t, depth-1) }), 0, 4).Draw(t, "object")
	}
}

// SQL finds the same violations of an input schema as Go, in the same words.
func TestSchemasAreCheckedBySQLAsInGo(t *testing.T) {
	t.Parallel()
	_, db := open(t)
	pool, ctx := db.Pool(t), t.Context()
	violations := 0
	rapid.Check(t, func(t *rapid.T) {
		document, err := json.Marshal(plainSchema(t, 2))
		require.NoError(t, err)
		s, err := schema.Read(document)
		require.NoError(t, err, "%s", document)
		wants, err := s.Wants()
		require.NoError(t, err, "%s", document)
		prepared, err := json.Marshal(wants)
		require.NoError(t, err)
		for range 4 {
			value, err := json.Marshal(plainValue(t, 2))
			require.NoError(t, err)
			var want []string
			found, err := (*schema.Checker)(nil).Check(ctx, s, json.RawMessage(value))
			require.NoError(t, err)
			for _, v := range found {
				want = append(want, v.Path+": "+v.Message)
			}
			var got []string
			require.NoError(t, pool.QueryRow(ctx, `select array_agg(p order by path collate "C", message collate "C") from (
				select distinct path, message, path || ': ' || message as p from tasker.schema_problems($1, $2, '')) x`, prepared, value).Scan(&got))
			require.Equal(t, want, got, "%s\n%s", document, value)
			violations += len(want)
		}
	})
	require.Greater(t, violations, 10)
}

// What SQL cannot check it does not let pass.
func TestOtherSchemasAreNotCheckedBySQL(t *testing.T) {
	t.Parallel()
	for keyword, part := range map[string]string{
		"Pattern": `{"pattern": "^a"}`, "Not": `{"not": {"type": "null"}}`, "AllOf": `{"allOf": [{}]}`, "AnyOf": `{"anyOf": [{}]}`, "OneOf": `{"oneOf": [{}]}`, "If": `{"if": {}, "then": {}}`,
		"Const": `{"const": 1}`, "MultipleOf": `{"multipleOf": 2}`, "UniqueItems": `{"uniqueItems": true}`, "Contains": `{"contains": {}}`, "PrefixItems": `{"prefixItems": [{}]}`,
		"PropertyNames": `{"propertyNames": {}}`, "PatternProperties": `{"patternProperties": {"a": {}}}`, "DependentRequired": `{"dependentRequired": {"a": ["b"]}}`,
		"DependentSchemas": `{"dependentSchemas": {"a": {}}}`, "UnevaluatedProperties": `{"unevaluatedProperties": {}}`, "UnevaluatedItems": `{"unevaluatedItems": {}}`,
		"Ref": `{"$ref": "#/$defs/n", "$defs": {"n": {}}}`, "a list of Items": `{"items": [{}]}`,
	} {
		documents := []string{part, fmt.Sprintf(`{"properties": {"deep": {"items": %s}}}`, part)}
		if keyword == "Ref" {
			documents = documents[:1]
		}
		for _, document := range documents {
			s, err := schema.Read(json.RawMessage(document))
			require.NoError(t, err, document)
			_, err = s.Wants()
			require.ErrorContains(t, err, "it uses "+keyword, document)
		}
	}
}
