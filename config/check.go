package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tasker-go/tasker/deploymode"
)

// checker turns raw entries into values of their key's type and reports what
// does not fit.
type checker struct {
	schema   *schema
	lookup   lookupFunc
	findings *findings
}

// entry expands, converts and checks one entry in place. A failed entry is
// marked bad.
func (c *checker) entry(e *entry) {
	raw := e.value
	if !e.verbatim {
		expanded, err := c.expandAll(e, raw)
		if err != nil && e.key.Status == StatusActive {
			c.fail(e, fmt.Sprintf("%s: %v", e.key.Path, err))
		}
		if err != nil {
			e.value = ""
			return
		}
		e.value = expanded
	}
	if e.key.Type == TypeTables {
		c.tables(e)
		return
	}
	value, ok := convert(e.key, e.value, e.verbatim || len(e.env) > 0 || fromPlaceholder(raw))
	if !ok {
		c.fail(e, fmt.Sprintf("%s must be %s, not %s %s", e.key.Path, withArticle(string(e.key.Type)), withArticle(typeName(e.value)), shownIfScalar(e)))
		return
	}
	e.value = value
	if fits(e.key, value) {
		return
	}
	message := fmt.Sprintf("%s = %s must be %s", e.key.Path, shown(e.key, value), e.key.Rule())
	if e.key.Status == StatusActive {
		c.fail(e, message)
	} else { // it may be right elsewhere, and does no harm here
		c.findings.warn(e.problem(message + "; it has no effect: " + e.key.StatusText()))
	}
}

func (c *checker) fail(e *entry, message string) {
	if len(e.env) > 0 && e.layer != layerEnv {
		message += fmt.Sprintf(" (with $%s)", strings.Join(e.env, ", $"))
	}
	e.bad = true
	c.findings.fail(e.problem(message))
}

// shownIfScalar keeps tables and lists out of messages.
func shownIfScalar(e *entry) string {
	switch e.value.(type) {
	case string, int64, float64, bool:
		return "(" + shown(e.key, e.value) + ")"
	}
	return ""
}

func withArticle(noun string) string {
	noun = strings.TrimSpace(noun)
	if noun != "" && strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

func fromPlaceholder(raw any) bool {
	s, ok := raw.(string)
	return ok && strings.Contains(s, "${")
}

// expandAll replaces placeholders in strings and in lists of strings.
func (c *checker) expandAll(e *entry, value any) (any, error) {
	switch v := value.(type) {
	case string:
		s, used, err := expand(v, c.lookup)
		e.env = append(e.env, used...)
		return s, err
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			expanded, err := c.expandAll(e, item)
			if err != nil {
				return nil, err
			}
			out[i] = expanded
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			expanded, err := c.expandAll(e, v[name])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			out[name] = expanded
		}
		return out, nil
	case []map[string]any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = item
		}
		return c.expandAll(e, out)
	}
	return value, nil
}

// tables checks each element of an array of tables against its member keys.
func (c *checker) tables(e *entry) {
	list, ok := e.value.([]any)
	if !ok {
		c.fail(e, fmt.Sprintf("%s must be an array of tables, not %s", e.key.Path, withArticle(typeName(e.value))))
		return
	}
	out := make([]map[string]any, 0, len(list))
	for i, item := range list {
		path := fmt.Sprintf("%s[%d]", e.key.Path, i)
		table, ok := item.(map[string]any)
		if !ok {
			c.fail(e, fmt.Sprintf("%s must be a table, not %s", path, withArticle(typeName(item))))
			continue
		}
		out = append(out, c.element(e, path, table))
	}
	e.value = out
}

func (c *checker) element(parent *entry, path string, table map[string]any) map[string]any {
	out := make(map[string]any, len(table))
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if isDocs(name, table[name]) {
			continue
		}
		full := path + "." + name
		pos, placed := parent.at[full]
		if !placed {
			pos = parent.pos
		}
		k, known := c.schema.lookup(full)
		if !known {
			parent.bad = true
			p := Problem{File: pos.File, Line: pos.Line, Column: pos.Column, Key: full, Rule: "a known key", Message: "unknown key " + full}
			if near := c.schema.nearest(full); near != "" {
				p.Message += fmt.Sprintf("; did you mean %s?", near)
			}
			c.findings.fail(p)
			continue
		}
		member := *k
		member.Path = full
		e := &entry{key: &member, value: table[name], layer: parent.layer, pos: pos, verbatim: true}
		c.entry(e)
		parent.bad = parent.bad || e.bad
		out[name] = e.value
	}
	return out
}

// convert gives value the Go type of the key. Numbers and booleans written as
// text are accepted only where asText says the text came from a variable.
func convert(k *Key, value any, asText bool) (any, bool) {
	if s, isString := value.(string); isString && asText {
		if parsed, ok := parseText(k.Type, s); ok {
			return parsed, true
		}
	}
	switch k.Type {
	case TypeString:
		s, ok := value.(string)
		if canonical, isAlias := k.Aliases[s]; ok && isAlias {
			s = canonical
		}
		return s, ok
	case TypeMode:
		s, ok := value.(string)
		if mode, named := deploymode.Parse(s); named {
			s = string(mode)
		}
		return s, ok
	case TypeBool:
		b, ok := value.(bool)
		return b, ok
	case TypeInt:
		n, ok := value.(int64)
		return n, ok
	case TypeFloat:
		if n, isInt := value.(int64); isInt {
			return float64(n), true
		}
		x, ok := value.(float64)
		return x, ok
	case TypeStringList:
		return convertList[string](value)
	case TypeIntList:
		return convertList[int64](value)
	}
	return nil, false
}

func convertList[T any](value any) (any, bool) {
	switch list := value.(type) {
	case []T:
		return list, true
	case []any:
		out := make([]T, len(list))
		for i, item := range list {
			element, ok := item.(T)
			if !ok {
				return nil, false
			}
			out[i] = element
		}
		return out, true
	}
	return nil, false
}

// parseText reads numbers, booleans and comma-separated lists from text.
func parseText(t Type, s string) (any, bool) {
	s = strings.TrimSpace(s)
	switch t {
	case TypeInt:
		n, err := strconv.ParseInt(s, 10, 64)
		return n, err == nil
	case TypeFloat:
		x, err := strconv.ParseFloat(s, 64)
		return x, err == nil
	case TypeBool:
		b, err := strconv.ParseBool(s)
		return b, err == nil
	case TypeStringList:
		list := []string{}
		for part := range strings.SplitSeq(s, ",") {
			if part = strings.TrimSpace(part); part != "" {
				list = append(list, part)
			}
		}
		return list, true
	}
	return nil, false
}

// fits reports whether a converted value obeys the rule of its key.
func fits(k *Key, value any) bool {
	switch v := value.(type) {
	case int64:
		return !k.Bounded || float64(v) >= k.Min && float64(v) <= k.Max
	case float64:
		return !math.IsNaN(v) && !math.IsInf(v, 0) && (!k.Bounded || v >= k.Min && v <= k.Max)
	case string:
		return fitsText(k, v)
	case []string:
		for _, s := range v {
			if !fitsText(k, s) {
				return false
			}
		}
	case []int64:
		for _, n := range v {
			if k.Bounded && (float64(n) < k.Min || float64(n) > k.Max) {
				return false
			}
		}
		return len(v) > 0
	}
	return true
}

func fitsText(k *Key, s string) bool {
	if k.Type == TypeMode {
		_, ok := deploymode.Parse(s)
		return ok
	}
	if len(k.Enum) > 0 && !slices.Contains(k.Enum, s) {
		return false
	}
	return k.rule == nil || k.rule.ok(s)
}
