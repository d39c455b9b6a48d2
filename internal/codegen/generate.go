package codegen

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"

	"github.com/tasker-go/tasker/internal/wording"
	"github.com/tasker-go/tasker/workflow"
)

// Options say what is generated.
type Options struct {
	Language string // one of Languages
	Step     string // only what this step needs; empty: all
	Handlers string // the name of the handlers' file, if it is not the usual one
}

// File is a generated text and the name that it usually has.
type File struct {
	Name string
	Text []byte
}

// Files are what is generated of a template.
type Files struct{ Types, Handlers, Tests File }

// language is how types and names are written in one.
type language struct {
	ending, tests   string // of the files' names; the tests' with the handlers'
	field, function func(name string) string
	typeName        func(name string) string
	fits            func(key string) bool
	typeOf          func(*shape) string
	funcs           template.FuncMap
	finish          func(src []byte) ([]byte, error)
}

var languages = map[string]*language{"go": golang, "python": python, "typescript": typescript}

// Languages are the names of the languages.
func Languages() []string { return slices.Sorted(maps.Keys(languages)) }

//go:embed templates
var templates embed.FS

// Generate writes the types, the handlers and the tests of a template. The errors name an
// unknown language, a step without a handler, and a schema that is not valid.
func Generate(t *workflow.Template, o Options) (f Files, err error) {
	l := languages[o.Language]
	if l == nil {
		return f, fmt.Errorf("invalid language %q: want %s", o.Language, strings.Join(Languages(), ", "))
	}
	m, err := l.build(t, o.Step)
	if err != nil {
		return f, err
	}
	m.Handled = snake(t.Name) + "_handlers"
	if o.Handlers != "" {
		m.Handled = strings.TrimSuffix(o.Handlers, l.ending)
	}
	f.Types.Name, f.Handlers.Name, f.Tests.Name = m.Module+l.ending, m.Handled+l.ending, fmt.Sprintf(l.tests, m.Handled)
	for name, file := range map[string]*File{"types": &f.Types, "handlers": &f.Handlers, "tests": &f.Tests} {
		if file.Text, err = l.render(o.Language+"/"+name, m); err != nil {
			return f, fmt.Errorf("generate the %s of %s: %w", name, t.Name, err)
		}
	}
	return f, nil
}

func (l *language) render(name string, m *model) ([]byte, error) {
	text, err := templates.ReadFile("templates/" + name + ".tmpl")
	if err != nil {
		return nil, err
	}
	t, err := template.New(name).Funcs(template.FuncMap{"type": l.typeOf, "line": wording.Line, "quote": encoded, "sample": sampleText}).Funcs(l.funcs).Parse(string(text))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, m); err != nil {
		return nil, err
	}
	return l.finish(b.Bytes())
}

// encoded writes a value as JSON; Python and TypeScript read texts so as well.
func encoded(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // texts, and values that were decoded from JSON
	return strings.TrimSpace(b.String())
}

// Shape is what a field holds, or a name stands for.
func (f field) Shape() *shape { return f.shape }

// Shape is what the name stands for, nil for an object.
func (d *decl) Shape() *shape { return d.shape }

// sampleText is a value of a type as JSON; empty where a type contains itself for ever.
func sampleText(d *decl) string {
	value, ok := sample(d.whole(), map[*decl]bool{})
	if !ok {
		return ""
	}
	return encoded(value)
}

// whole is the shape of the name.
func (d *decl) whole() *shape {
	if d.shape != nil {
		return d.shape
	}
	return &shape{kind: object, decl: d}
}

// sample makes a value of a shape: each key, but those that lead back to a type.
func sample(s *shape, inside map[*decl]bool) (value any, ok bool) {
	if len(s.values) > 0 {
		return s.values[0], true
	}
	switch s.kind {
	case null:
		return nil, true
	case boolean:
		return true, true
	case integer:
		return 1, true
	case number:
		return 1.5, true
	case list:
		if item, ok := sample(s.elem, inside); ok {
			return []any{item}, true
		}
		return []any{}, true
	case mapping:
		if item, ok := sample(s.elem, inside); ok {
			return map[string]any{"key": item}, true
		}
		return map[string]any{}, true
	case object:
		return sampleObject(s, inside)
	}
	return "text", true
}

func sampleObject(s *shape, inside map[*decl]bool) (value any, ok bool) {
	if inside[s.decl] {
		return nil, s.nullable
	}
	inside[s.decl] = true
	defer delete(inside, s.decl)
	out := map[string]any{}
	for _, f := range s.decl.Fields {
		item, ok := sample(f.shape, inside)
		switch {
		case ok && (item != nil || f.Required):
			out[f.Key] = item
		case f.Required:
			return nil, s.nullable
		}
	}
	return out, true
}
