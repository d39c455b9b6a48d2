package template

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/tasker-go/tasker/internal/schema"
)

// schema reads a JSON Schema as a JSON text; nil when absent. One that cannot be compiled is
// reported with a severity: a warning if it rejects nothing. One that costs too much is an error.
func (v value) schema(severity string) json.RawMessage {
	raw := v.raw()
	if v.node != nil {
		v.checkSchema(severity)
	}
	return raw
}

func (v value) checkSchema(severity string) {
	if v.kind != yamlMap && v.kind != yamlBool {
		v.r.report(severity, v.pos, codeType, v.path(), v.path()+" has to be a JSON Schema, not "+v.kind.String())
		return
	}
	_, hoisted, faults := schema.Compile(v.plain())
	for _, pointer := range hoisted {
		v.r.warnf(v.at(pointer).pos, codeSchemaInvalid, v.path()+schema.Pointer(pointer),
			"a required: true or false at a property is read as an entry of the required list of its object")
	}
	for _, f := range faults {
		if f.Fatal {
			severity = SeverityError
		}
		v.r.report(severity, v.at(f.Pointer).pos, codeSchemaInvalid, v.path()+schema.Pointer(f.Pointer), v.path()+" is not a valid JSON Schema: "+f.Message)
	}
}

// requireObject warns of a schema that does not require an object: a context always is one,
// and a result should be.
func (v value) requireObject() {
	if v.node == nil || v.kind != yamlMap && v.kind != yamlBool {
		return // absent, or reported already
	}
	at := v.pos
	for _, f := range v.fields {
		switch f.key {
		case "$ref", "allOf", "anyOf", "oneOf", "$dynamicRef":
			return
		case "type":
			if f.value.text == "object" || slices.ContainsFunc(f.value.items, func(item *node) bool { return item.text == "object" }) {
				return
			}
			at = f.value.pos
		}
	}
	v.r.warnf(at, codeSchemaNotObject, v.path(), "%s does not say type: object", v.path())
}

// at finds the node of a JSON pointer given as its parts, or its deepest existing ancestor.
func (n *node) at(pointer []string) *node {
	for _, part := range pointer {
		var next *node
		switch n.kind {
		case yamlMap:
			if f := n.field(part); f != nil {
				next = f.value
			}
		case yamlList:
			if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(n.items) {
				next = n.items[i]
			}
		}
		if next == nil {
			return n
		}
		n = next
	}
	return n
}
