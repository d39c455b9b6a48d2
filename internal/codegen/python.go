package codegen

import (
	"fmt"
	"slices"
	"strings"
	"text/template"
)

var python = &language{
	ending: ".py", tests: "test_%s.py",
	field: func(key string) string { return escaped(snake(key)) }, function: snake, typeName: pascal,
	fits:   func(string) bool { return true },
	typeOf: pythonType,
	funcs: template.FuncMap{"optional": pythonOptional, "read": pythonRead, "write": pythonWrite, "literal": pythonLiteral, "docstring": docstring,
		"maybe": func(s *shape) *shape { return s.null(true) }, "never": func(s *shape) *shape { return s.null(false) },
		"sampled": func(d *decl) string { value, _ := sample(d.whole(), map[*decl]bool{}); return pythonLiteral(value) }},
	finish: pythonImports,
}

func pythonType(s *shape) string {
	var name string
	switch {
	case s.decl != nil:
		name = s.decl.Name
	case len(s.values) > 0 && s.kind != anything && s.kind != number:
		var values []string
		for _, v := range s.values {
			values = append(values, pythonLiteral(v))
		}
		name = "Literal[" + strings.Join(values, ", ") + "]"
	default:
		name = map[kind]string{anything: "Any", null: "None", boolean: "bool", integer: "int", number: "float", text: "str"}[s.kind]
	}
	switch s.kind {
	case list:
		name = "List[" + pythonType(s.elem) + "]"
	case mapping:
		name = "Dict[str, " + pythonType(s.elem) + "]"
	}
	if s.nullable {
		return pythonOptional(name)
	}
	return name
}

func pythonOptional(name string) string {
	if name == "Any" || name == "None" || strings.HasPrefix(name, "Optional[") {
		return name
	}
	return "Optional[" + name + "]"
}

// pythonRead makes what stands for a shape of what JSON has.
func pythonRead(s *shape, from string) string {
	return convert(s, from, func(d *decl, x string) string { return d.Name + ".from_dict(" + x + ")" })
}

func pythonWrite(s *shape, from string) string {
	return convert(s, from, func(_ *decl, x string) string { return x + ".to_dict()" })
}

// convert writes an expression that converts the objects in a shape.
func convert(s *shape, x string, one func(d *decl, x string) string) string {
	out := x
	switch {
	case s.kind == object:
		out = one(s.decl, x)
	case s.kind == list && convert(s.elem, "item", one) != "item":
		out = "[" + convert(s.elem, "item", one) + " for item in " + x + "]"
	case s.kind == mapping && convert(s.elem, "item", one) != "item":
		out = "{key: " + convert(s.elem, "item", one) + " for key, item in " + x + ".items()}"
	}
	if s.nullable && out != x {
		return "None if " + x + " is None else " + out
	}
	return out
}

// pythonLiteral writes a JSON value in Python.
func pythonLiteral(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return map[bool]string{true: "True", false: "False"}[v]
	case []any:
		var items []string
		for _, item := range v {
			items = append(items, pythonLiteral(item))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case map[string]any:
		var items []string
		for key, item := range v {
			items = append(items, encoded(key)+": "+pythonLiteral(item))
		}
		slices.Sort(items)
		return "{" + strings.Join(items, ", ") + "}"
	}
	return encoded(v)
}

// docstring keeps a text, which more follows, inside the quotes of a docstring.
func docstring(text string) string {
	return strings.NewReplacer(`\`, `\\`, `"""`, `\"\"\"`).Replace(text)
}

// pythonNames are those of typing that the texts use.
var pythonNames = []string{"Any", "Dict", "List", "Literal", "Mapping", "Optional", "TypedDict"}

// pythonImports imports what is used, where the text has a mark.
func pythonImports(src []byte) ([]byte, error) {
	text := string(src)
	var used []string
	for _, name := range pythonNames {
		if strings.Contains(text, name+"[") || strings.Contains(text, name+"(") || name == "Any" && strings.Contains(text, name) {
			used = append(used, name)
		}
	}
	line := ""
	if len(used) > 0 {
		line = fmt.Sprintf("from typing import %s\n", strings.Join(used, ", "))
	}
	return []byte(strings.Replace(text, "# typing\n", line, 1)), nil
}
