package workflow

import (
	"slices"
	"strconv"
)

// Keywords whose value is a schema, a list of schemas, or a mapping from names
// to schemas.
var (
	schemaKeywords = []string{
		"items", "additionalItems", "additionalProperties", "not", "if", "then", "else", "contains",
		"propertyNames", "unevaluatedItems", "unevaluatedProperties", "contentSchema",
	}
	schemaListKeywords = []string{"allOf", "anyOf", "oneOf", "prefixItems", "items"}
	schemaMapKeywords  = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)

// relaxSchema repairs, in place, two habits of hand-written schemas that the standard
// rejects but whose meaning is clear: a keyword without a value (an empty description:) is
// dropped, and required: true at a property becomes an entry in the required list of the
// enclosing object; hoisted is called for each.
func relaxSchema(v any, at []string, hoisted func(pointer []string)) {
	s, ok := v.(map[string]any)
	if !ok {
		return
	}
	for key, value := range s {
		if value == nil && key != "const" && key != "default" {
			delete(s, key)
		}
	}
	for _, key := range schemaKeywords {
		relaxSchema(s[key], below(at, key), hoisted)
	}
	for _, key := range schemaListKeywords {
		if list, ok := s[key].([]any); ok {
			for i, item := range list {
				relaxSchema(item, below(at, key, strconv.Itoa(i)), hoisted)
			}
		}
	}
	for _, key := range schemaMapKeywords {
		if named, ok := s[key].(map[string]any); ok {
			for _, name := range sortedKeys(named) {
				if named[name] == nil {
					named[name] = true // a property without constraints
				}
				relaxSchema(named[name], below(at, key, name), hoisted)
			}
		}
	}
	hoistRequired(s, at, hoisted)
}

func hoistRequired(s map[string]any, at []string, hoisted func(pointer []string)) {
	properties, ok := s["properties"].(map[string]any)
	if !ok {
		return
	}
	required, isList := s["required"].([]any)
	if _, present := s["required"]; present && !isList {
		return // this object's own flag; its parent handles it
	}
	for _, name := range sortedKeys(properties) {
		property, ok := properties[name].(map[string]any)
		if !ok {
			continue
		}
		flag, ok := property["required"].(bool)
		if !ok {
			continue
		}
		delete(property, "required")
		hoisted(below(at, "properties", name, "required"))
		if flag && !slices.Contains(required, any(name)) {
			required = append(required, name)
		}
	}
	if len(required) > 0 {
		s["required"] = required
	}
}

func below(at []string, parts ...string) []string {
	return append(slices.Clone(at), parts...)
}
