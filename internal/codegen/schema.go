package codegen

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/internal/schema"
	"github.com/tasker-go/tasker/internal/wording"
)

// kind is what a value is in JSON.
type kind uint8

const (
	anything kind = iota
	null
	boolean
	integer
	number
	text
	list
	mapping // an object whose keys are data
	object  // an object with known keys
)

var kinds = map[string]kind{"null": null, "boolean": boolean, "integer": integer, "number": number, "string": text, "array": list, "object": object}

// shape is what a schema says about a value.
type shape struct {
	kind     kind
	nullable bool
	elem     *shape // of a list or a mapping
	values   []any  // all that are allowed
	decl     *decl  // of an object, and of texts of which some are allowed
	note     string // what its type does not say
	of       *shape // it is this one, or null, until that has been read
}

// settled is what the shape is, with null where one of those that stand for it allows that.
func (s *shape) settled() shape {
	if s.of == nil {
		return *s
	}
	out := s.of.settled()
	out.nullable = out.nullable || s.nullable
	return out
}

// null is the shape with null or without.
func (s *shape) null(allowed bool) *shape {
	out := *s
	out.nullable = allowed
	return &out
}

// decl is a type with a name.
type decl struct {
	Name   string
	About  string // continues "Name is"
	Fields []field
	shape  *shape // what the name stands for, unless it is an object
}

type field struct {
	Key, Name, About string
	Required         bool
	shape            *shape
}

// schemaTypes are the types of one schema.
type schemaTypes struct {
	step  string  // whose result it is; empty: the context
	root  *decl   // nil without a schema
	decls []*decl // each after those that it needs, but in cycles
}

// reader makes types of a schema.
type reader struct {
	language *language
	taken    names
	document any
	root     string             // a name that is taken for a type of this schema
	known    map[uintptr]*shape // by the identity of the schema
	busy     map[uintptr]bool   // schemas that are being read, from the object around
	links    []*shape           // those that stand for others
	decls    []*decl
}

// read makes the types of a schema, the root with a name that has been taken for it.
func (l *language) read(doc json.RawMessage, name, about string, taken names) (s schemaTypes, err error) {
	if len(doc) == 0 {
		return s, nil
	}
	document, err := jsonscan.Decode(doc)
	if err != nil || document == nil {
		return s, err
	}
	if _, _, faults := schema.Compile(document); len(faults) > 0 {
		return s, fmt.Errorf("invalid schema at %q: %s", schema.Pointer(faults[0].Pointer), faults[0].Message)
	}
	r := reader{language: l, taken: taken, document: document, root: name, known: map[uintptr]*shape{}, busy: map[uintptr]bool{}}
	root := r.shape(document, name)
	for _, s := range r.links {
		*s = s.settled()
	}
	if s.root = root.decl; s.root == nil || s.root.Name != name {
		s.root = &decl{Name: r.pick(name), shape: root}
		r.decls = append(r.decls, s.root)
	}
	s.root.About = wording.Line(about + described(document))
	s.decls = r.decls
	return s, nil
}

// described is the description of a schema, after a colon.
func described(v any) string {
	s, _ := v.(map[string]any)
	if about, _ := s["description"].(string); strings.TrimSpace(about) != "" {
		return ": " + strings.TrimSuffix(wording.Line(strings.Join(strings.Fields(about), " ")), ".")
	}
	return ""
}

// shape reads a schema, once: a type that it declares has the name. What contains itself
// and no object is anything.
func (r *reader) shape(v any, name string) *shape {
	s, ok := v.(map[string]any)
	if !ok {
		return &shape{}
	}
	id := reflect.ValueOf(s).Pointer()
	if known := r.known[id]; known != nil && !r.busy[id] {
		return known
	}
	if r.busy[id] {
		return &shape{note: "it contains itself"}
	}
	out := &shape{}
	r.known[id], r.busy[id] = out, true
	defer delete(r.busy, id)
	r.fill(out, s, name)
	return out
}

func (r *reader) fill(out *shape, s map[string]any, name string) {
	if to, ok := s["$ref"].(string); ok {
		target, name := r.resolve(to)
		r.link(out, target, r.language.typeName(name))
		return
	}
	if parts, ok := s["allOf"].([]any); ok {
		if _, own := s["properties"]; !own && len(parts) == 1 {
			r.link(out, parts[0], name)
			return
		}
		s = r.merged(s, maxMerged)
	}
	if r.choice(out, s, name) {
		return
	}
	if values, ok := allowed(s); ok {
		r.enumeration(out, values, name)
		return
	}
	types, nullable := typesOf(s)
	if out.nullable = nullable; len(types) != 1 {
		out.note = strings.Join(types, " or ")
		return
	}
	switch out.kind = kinds[types[0]]; out.kind {
	case text:
		format, _ := s["format"].(string)
		out.note = wording.Line(format)
	case list:
		out.elem = r.shape(s["items"], name+"Item")
	case object:
		r.object(out, s, name)
	}
}

// link lets a shape be another one, which may be read only in part.
func (r *reader) link(out *shape, v any, name string) {
	out.of = r.shape(v, name)
	r.links = append(r.links, out)
}

func (r *reader) resolve(ref string) (target any, name string) {
	pointer, local := strings.CutPrefix(ref, "#")
	path, err := url.PathUnescape(pointer)
	if !local || err != nil {
		return nil, ""
	}
	target = r.document
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for _, part := range strings.Split(path, "/")[1:] {
		inside, _ := target.(map[string]any)
		name = unescape.Replace(part)
		target = inside[name]
	}
	return target, name
}

// maxMerged bounds how deep allOf is followed.
const maxMerged = 16

// merged is an object with what all schemas of its allOf say; the first that says
// something counts.
func (r *reader) merged(s map[string]any, depth int) map[string]any {
	parts, ok := s["allOf"].([]any)
	if !ok || depth == 0 {
		return s
	}
	out := maps.Clone(s)
	delete(out, "allOf")
	properties, required := map[string]any{}, []any{}
	for _, part := range slices.Concat([]any{out}, parts) {
		p, _ := part.(map[string]any)
		if ref, ok := p["$ref"].(string); ok {
			target, _ := r.resolve(ref)
			p, _ = target.(map[string]any)
		}
		p = r.merged(p, depth-1)
		more, _ := p["properties"].(map[string]any)
		keep(properties, more)
		names, _ := p["required"].([]any)
		required = append(required, names...)
		keep(out, p)
	}
	if len(properties)+len(required) > 0 {
		out["properties"], out["required"] = properties, required
	}
	return out
}

// keep adds what is not there yet.
func keep(to, from map[string]any) {
	for key, value := range from {
		if _, there := to[key]; !there {
			to[key] = value
		}
	}
}

// choice reads anyOf and oneOf: a schema or null is that schema, others are anything. It
// leaves those alone that only restrict known properties.
func (r *reader) choice(out *shape, s map[string]any, name string) bool {
	for _, key := range []string{"anyOf", "oneOf"} {
		options, ok := s[key].([]any)
		if _, own := s["properties"]; own || !ok {
			continue
		}
		rest := slices.DeleteFunc(slices.Clone(options), func(v any) bool {
			o, _ := v.(map[string]any)
			return o["type"] == "null"
		})
		if len(rest) == 1 {
			out.nullable = len(options) > 1
			r.link(out, rest[0], name)
		} else {
			out.note = key + " of several schemas"
		}
		return true
	}
	return false
}

// allowed are the values of enum or const.
func allowed(s map[string]any) (values []any, ok bool) {
	if values, ok = s["enum"].([]any); ok {
		return values, true
	}
	value, ok := s["const"]
	return []any{value}, ok
}

// enumeration is what allows some values only. Several texts have a type of their own.
func (r *reader) enumeration(out *shape, values []any, name string) {
	rest := slices.DeleteFunc(slices.Clone(values), func(v any) bool { return v == nil })
	if out.kind = null; len(rest) == 0 {
		return
	}
	out.kind, out.nullable, out.values = kindOf(rest[0]), len(rest) < len(values), rest
	for _, v := range rest[1:] {
		out.kind = both(out.kind, kindOf(v))
	}
	spelled, _ := json.Marshal(rest) // decoded from JSON
	note := wording.Line(strings.Trim(string(spelled), "[]"))
	switch {
	case len(rest) == 1:
		out.note = "always " + note
	case out.kind != text:
		out.note = "one of " + note
	default:
		out.decl = &decl{Name: r.pick(name), About: "one of " + note, shape: &shape{kind: text, values: rest}}
		r.decls = append(r.decls, out.decl)
	}
}

// kindOf is the kind of a value without parts, and anything for others.
func kindOf(v any) kind {
	switch v := v.(type) {
	case string:
		return text
	case bool:
		return boolean
	case json.Number:
		if _, err := v.Int64(); err == nil {
			return integer
		}
		return number
	}
	return anything
}

// both is the kind of values of which some have the one kind and some the other.
func both(a, b kind) kind {
	numbers := []kind{integer, number}
	switch {
	case a == b:
		return a
	case slices.Contains(numbers, a) && slices.Contains(numbers, b):
		return number
	}
	return anything
}

// typesOf are the types that a schema allows besides null; without the keyword, what the
// others speak of.
func typesOf(s map[string]any) (types []string, nullable bool) {
	switch t := s["type"].(type) {
	case string:
		return []string{t}, false
	case []any:
		for _, one := range t {
			if name, _ := one.(string); name == "null" && len(t) > 1 {
				nullable = true
			} else {
				types = append(types, name)
			}
		}
		return types, nullable
	}
	for _, key := range []string{"properties", "required", "additionalProperties", "patternProperties"} {
		if _, ok := s[key]; ok {
			return []string{"object"}, false
		}
	}
	if _, ok := s["items"]; ok {
		return []string{"array"}, false
	}
	return nil, false
}

// pick is the pick of all schemas; the first that wants the root's name gets it.
func (r *reader) pick(name string) string {
	if name == r.root {
		r.root = ""
		return name
	}
	return r.taken.pick(escaped(name))
}

// object reads an object: a declaration where keys are known, else a mapping.
func (r *reader) object(out *shape, s map[string]any, name string) {
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	keys := slices.Collect(maps.Keys(properties))
	for _, key := range required {
		if key, ok := key.(string); ok && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if len(keys) == 0 {
		out.kind, out.elem = mapping, r.shape(s["additionalProperties"], name+"Value")
		return
	}
	before := r.busy
	r.busy = map[uintptr]bool{} // a cycle through an object ends at its name
	defer func() { r.busy = before }()
	out.decl = &decl{Name: r.pick(name), About: "a part" + described(s)}
	if _, more := s["additionalProperties"].(map[string]any); more {
		out.decl.About += " (other keys are left out)"
	}
	fields := names{}
	for _, must := range []bool{true, false} {
		for _, key := range keys {
			if slices.Contains(required, any(key)) == must {
				r.field(out.decl, key, properties[key], must, fields)
			}
		}
	}
	r.decls = append(r.decls, out.decl)
}

func (r *reader) field(d *decl, key string, v any, required bool, taken names) {
	if !r.language.fits(key) {
		d.About += fmt.Sprintf(" (without the key %q)", wording.Line(key))
		return
	}
	f := field{Key: key, Required: required, Name: taken.pick(r.language.field(key)),
		shape: r.shape(v, d.Name+r.language.typeName(key)), About: strings.TrimPrefix(described(v), ": ")}
	d.Fields = append(d.Fields, f)
}

// Doc is what the field's name and type do not say.
func (f field) Doc() string {
	if f.About == "" || f.shape.note == "" {
		return f.About + f.shape.note
	}
	return f.About + " (" + f.shape.note + ")"
}
