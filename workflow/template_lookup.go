package workflow

import (
	"slices"
	"strconv"
	"strings"
)

// plain is the node as a free-form value in canonical form (template_value.go).
func (r *templateReader) plain(n *yamlNode, path string) any {
	switch n.kind {
	case yamlBool:
		return strings.EqualFold(n.text, "true")
	case yamlInt, yamlFloat:
		if n.number == "" {
			r.errorf(n.pos, CodeType, path, "%s is not a number that JSON can carry", n.text)
			return nil
		}
		return n.number
	case yamlString:
		return n.text
	case yamlList:
		list := make([]any, len(n.items))
		for i, item := range n.items {
			list[i] = r.plain(item, path)
		}
		return list
	case yamlMap:
		object := make(map[string]any, len(n.fields))
		for _, f := range n.fields {
			object[f.key] = r.plain(f.value, path)
		}
		return object
	}
	return nil
}

// at finds the node of a JSON pointer given as its parts, or its deepest existing ancestor.
func (n *yamlNode) at(pointer []string) *yamlNode {
	for _, part := range pointer {
		var next *yamlNode
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

// hasField reports whether a mapping has one of the keys.
func (n *yamlNode) hasField(keys ...string) bool {
	return slices.ContainsFunc(n.fields, func(f yamlField) bool { return slices.Contains(keys, f.key) })
}
