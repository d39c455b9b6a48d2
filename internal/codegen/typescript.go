package codegen

import (
	"regexp"
	"slices"
	"strings"
	"text/template"
)

var typescript = &language{
	ending: ".ts", tests: "%s.test.ts",
	field: camel, function: camel, typeName: pascal,
	fits:   func(string) bool { return true },
	typeOf: typescriptType,
	funcs: template.FuncMap{"key": typescriptKey, "inherited": func(key string) bool { return slices.Contains(typescriptInherited, key) },
		"comment": func(text string) string { return strings.ReplaceAll(text, "*/", "* /") }},
	finish: func(src []byte) ([]byte, error) { return src, nil },
}

func typescriptType(s *shape) string {
	name := map[kind]string{anything: "unknown", null: "null", boolean: "boolean", integer: "number", number: "number", text: "string"}[s.kind]
	switch {
	case s.decl != nil:
		name = s.decl.Name
	case len(s.values) > 0 && s.kind != anything:
		var values []string
		for _, v := range s.values {
			values = append(values, encoded(v))
		}
		name = strings.Join(values, " | ")
	case s.kind == list:
		name = "Array<" + typescriptType(s.elem) + ">"
	case s.kind == mapping:
		name = "{ [key: string]: " + typescriptType(s.elem) + " }"
	}
	if s.nullable && name != "unknown" {
		return name + " | null"
	}
	return name
}

var plainKey = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`)

func typescriptKey(key string) string {
	if plainKey.MatchString(key) && key != "__proto__" {
		return key
	}
	return encoded(key)
}

// typescriptInherited are what all objects have, so that one without an optional field of such a
// name has a function there, which must be of the type of the field.
var typescriptInherited = []string{"constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf"}
