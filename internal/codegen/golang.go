package codegen

import (
	"go/format"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"unicode"

	"github.com/tasker-go/tasker/workflow"
)

var golang = &language{
	ending: ".go", tests: "%s_test.go",
	field: goName, function: goName, typeName: goName,
	fits:   fitsTag,
	typeOf: goType,
	funcs: template.FuncMap{"fieldType": goFieldType, "tag": goTag, "go": strconv.Quote, "result": goResult, "consts": goConsts,
		"callables": callables, "uses": goUses},
	finish: format.Source,
}

// goUses reports whether a package of the SDK is needed besides worker.
func goUses(m *model, name string) bool {
	return slices.ContainsFunc(m.Handlers, func(h *handler) bool {
		listed := func(p parent) bool { return p.Batches && name == "batch" }
		return strings.HasPrefix(goResult(h), name+".") || slices.ContainsFunc(h.Parents, listed)
	})
}

// packageName is the name of a package for a template.
func packageName(name string) string {
	name = strings.ReplaceAll(snake(name), "_", "")
	if token.IsKeyword(name) || name == "main" || name == "worker" {
		name += "task"
	}
	return name
}

// fitsTag tells keys that encoding/json takes from a tag.
func fitsTag(key string) bool {
	for _, c := range key {
		if !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c) {
			return false
		}
	}
	return key != ""
}

func goTag(f field) string {
	key := f.Key
	switch {
	case !f.Required:
		key += ",omitzero"
	case key == "-":
		key += ","
	}
	return "`json:" + strconv.Quote(key) + "`"
}

func goType(s *shape) string {
	name := "any"
	switch s.kind {
	case list:
		return "[]" + goType(s.elem)
	case mapping:
		return "map[string]" + goType(s.elem)
	case boolean:
		name = "bool"
	case integer:
		name = "int64"
	case number:
		name = "float64"
	case text:
		name = "string"
	}
	if s.decl != nil {
		name = s.decl.Name
	}
	if s.nullable && name != "any" {
		return "*" + name
	}
	return name
}

// goFieldType lets what may be absent, and what contains the type itself, be a pointer.
func goFieldType(d *decl, f field) string {
	name, s := goType(f.shape), f.shape
	single := s.kind != anything && s.kind != null && s.kind != list && s.kind != mapping && !s.nullable
	if single && (!f.Required || s.kind == object && embeds(s.decl, d, map[*decl]bool{})) {
		return "*" + name
	}
	return name
}

// embeds reports whether a struct holds another one by value.
func embeds(d, other *decl, seen map[*decl]bool) bool {
	if d == other || seen[d] {
		return d == other
	}
	seen[d] = true
	for _, f := range d.Fields {
		if f.Required && f.shape.kind == object && !f.shape.nullable && embeds(f.shape.decl, other, seen) {
			return true
		}
	}
	return false
}

// goConst is a value of a type that lists its values.
type goConst struct{ Name, Value string }

func goConsts(m *model, d *decl) (all []goConst) {
	if d.shape == nil || d.shape.decl != nil || d.shape.kind != text || len(d.shape.values) < 2 {
		return nil
	}
	for _, v := range d.shape.values {
		value, _ := v.(string)
		all = append(all, goConst{m.taken.pick(d.Name + goName(value)), strconv.Quote(value)})
	}
	return all
}

// goResult is the type that a handler returns.
func goResult(h *handler) string {
	switch {
	case h.Kind == workflow.KindDecision:
		return "decision.Outcome"
	case h.Kind == workflow.KindBatchable:
		return "batch.Outcome"
	case h.Result == nil:
		return "any"
	}
	return h.Result.Name
}

// callable is a callable with its methods.
type callable struct {
	Callable string
	Handlers []*handler
	Plain    bool // it has the usual method only
}

func callables(handlers []*handler) (all []*callable) {
	known := map[string]*callable{}
	for _, h := range handlers {
		c := known[h.Callable]
		if c == nil {
			c = &callable{Callable: h.Callable, Plain: true}
			known[h.Callable] = c
			all = append(all, c)
		}
		c.Handlers = append(c.Handlers, h)
		c.Plain = c.Plain && h.Method == usualMethod
	}
	return all
}
