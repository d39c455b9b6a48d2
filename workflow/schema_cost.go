package workflow

import (
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxSchemaFanOut bounds how many subschemas may apply to one and the same
// value. A few lines of references that each refer to the next one twice would
// otherwise keep the check of a tiny context busy for hours.
const maxSchemaFanOut = 10_000

// checkSchemaCost examines every reachable schema and returns the fault of the first that is
// too expensive or never ends; nil when none is.
func checkSchemaCost(root *jsonschema.Schema) []schemaFault {
	c := schemaCost{fanOut: map[*jsonschema.Schema]int{}, busy: map[*jsonschema.Schema]bool{}}
	seen := map[*jsonschema.Schema]bool{root: true}
	for queue := []*jsonschema.Schema{root}; len(queue) > 0; queue = queue[1:] {
		s := queue[0]
		if c.measure(s) > maxSchemaFanOut && c.fault == "" {
			c.fault = "it applies too many subschemas to one value"
		}
		if c.fault != "" {
			return []schemaFault{{pointer: fragment(s.Location), message: c.fault}}
		}
		for _, next := range append(sameValue(s), partsOfValue(s)...) {
			if next != nil && !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
	return nil
}

type schemaCost struct {
	fanOut map[*jsonschema.Schema]int
	busy   map[*jsonschema.Schema]bool // being measured
	fault  string
}

// measure counts the schemas that apply to a value when s does. Its recursion
// is as deep as the longest chain of references.
func (c *schemaCost) measure(s *jsonschema.Schema) int {
	if n, known := c.fanOut[s]; known {
		return n
	}
	if c.busy[s] {
		c.fault = "it refers to itself without end"
		return 0
	}
	c.busy[s] = true
	n := 1
	for _, next := range sameValue(s) {
		if next != nil && c.fault == "" {
			n = min(n+c.measure(next), maxSchemaFanOut+1)
		}
	}
	delete(c.busy, s)
	c.fanOut[s] = n
	return n
}

// sameValue lists the subschemas that apply to the value itself; some are nil.
func sameValue(s *jsonschema.Schema) []*jsonschema.Schema {
	list := slices.Concat([]*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else}, s.AllOf, s.AnyOf, s.OneOf)
	for _, name := range sortedKeys(s.DependentSchemas) {
		list = append(list, s.DependentSchemas[name])
	}
	for _, name := range sortedKeys(s.Dependencies) {
		if d, ok := s.Dependencies[name].(*jsonschema.Schema); ok {
			list = append(list, d)
		}
	}
	return list
}

// partsOfValue lists the subschemas that apply to properties, names and items
// of the value; some are nil.
func partsOfValue(s *jsonschema.Schema) []*jsonschema.Schema {
	list := slices.Concat([]*jsonschema.Schema{
		s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema,
	}, s.PrefixItems)
	for _, name := range sortedKeys(s.Properties) {
		list = append(list, s.Properties[name])
	}
	for _, p := range s.PatternProperties {
		list = append(list, p)
	}
	for _, v := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		switch v := v.(type) {
		case *jsonschema.Schema:
			list = append(list, v)
		case []*jsonschema.Schema:
			list = append(list, v...)
		}
	}
	return list
}
