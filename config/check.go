package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tasker-go/tasker/deploymode"
)

// check expands, converts and checks one entry in place. A failed entry is
// marked bad.
func (v *values) check(e *entry) {
	if e.key.Type == typeTables {
		v.tables(e)
		return
	}
	if !e.verbatim && !v.expanded(e) {
		return
	}
	value, ok := convert(e.key, e.value, e.verbatim)
	if !ok {
		v.reject(e, fmt.Sprintf("%s must be %s, not %s %s", e.key.Path, withArticle(e.key.Type), withArticle(typeName(e.value)), shownIfScalar(e)))
		return
	}
	e.value = value
	if fits(e.key, value) {
		return
	}
	message := fmt.Sprintf("%s = %s must be %s", e.key.Path, shown(e.key, value), e.key.Rule)
	if e.key.Status == StatusActive {
		v.reject(e, message)
	} else { // it may be right elsewhere, and does no harm here
		v.findings.warn(e.problem(message + "; it has no effect: " + e.key.statusText()))
	}
}

// expanded replaces the placeholders of an entry; without all their variables it
// has no value.
func (v *values) expanded(e *entry) bool {
	value, err := v.expandAll(e, e.value)
	if err != nil {
		value = ""
		if e.key.Status == StatusActive {
			v.reject(e, fmt.Sprintf("%s: %v", e.key.Path, err))
		}
	}
	raw, _ := e.value.(string)
	e.value, e.verbatim = value, strings.Contains(raw, "${")
	return err == nil
}

func (v *values) reject(e *entry, message string) {
	if len(e.env) > 0 && e.layer != layerEnv {
		message += fmt.Sprintf(" (with $%s)", strings.Join(e.env, ", $"))
	}
	e.bad = true
	v.findings.fail(e.problem(message))
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

// expandAll replaces placeholders in strings and in lists of strings.
func (v *values) expandAll(e *entry, value any) (any, error) {
	switch raw := value.(type) {
	case string:
		s, used, err := expand(raw, v.lookup)
		e.env = append(e.env, used...)
		return s, err
	case []any:
		out := make([]any, len(raw))
		for i, item := range raw {
			expanded, err := v.expandAll(e, item)
			if err != nil {
				return nil, err
			}
			out[i] = expanded
		}
		return out, nil
	}
	return value, nil
}

// tables checks each element of an array of tables against its member keys.
func (v *values) tables(e *entry) {
	list, ok := e.value.([]map[string]any)
	if items, inline := e.value.([]any); inline {
		ok = true
		for i, item := range items {
			table, isTable := item.(map[string]any)
			if !isTable {
				v.reject(e, fmt.Sprintf("%s[%d] must be a table, not %s", e.key.Path, i, withArticle(typeName(item))))
			}
			list = append(list, table)
		}
	}
	if !ok {
		v.reject(e, fmt.Sprintf("%s must be an array of tables, not %s", e.key.Path, withArticle(typeName(e.value))))
		return
	}
	e.value = list
	for i, table := range list {
		v.element(e, fmt.Sprintf("%s[%d]", e.key.Path, i), table)
	}
}

func (v *values) element(array *entry, path string, table map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if IsDocs(name, table[name]) {
			continue
		}
		full := path + "." + name
		pos, placed := array.at[full]
		if !placed {
			pos = array.pos
		}
		k, known := theSchema().lookup(full)
		if !known {
			array.bad = true
			v.findings.fail(theSchema().unknown(full, pos))
			continue
		}
		member := *k
		member.Path = full
		e := &entry{key: &member, value: table[name], layer: array.layer, pos: pos}
		if v.expanded(e) {
			e.verbatim = true // a list may be written as text
			v.check(e)
			table[name] = e.value
		}
		array.bad, array.env = array.bad || e.bad, append(array.env, e.env...)
	}
}

// convert gives value the Go type of the key. Numbers and booleans written as
// text are accepted only where asText says the text came from a variable.
func convert(k *Key, value any, asText bool) (any, bool) {
	if s, isString := value.(string); isString && asText {
		if parsed, ok := parseText(k.Type, s); ok {
			return parsed, true
		}
	}
	switch v := value.(type) {
	case string:
		if word, ok := k.Aliases[v]; ok {
			v = word
		}
		if mode, ok := deploymode.Parse(v); ok && k.Type == typeMode {
			v = string(mode)
		}
		return v, k.Type == typeString || k.Type == typeMode
	case bool:
		return v, k.Type == typeBool
	case int64:
		if k.Type == typeFloat {
			return float64(v), true
		}
		return v, k.Type == typeInt
	case float64:
		return v, k.Type == typeFloat
	}
	switch k.Type {
	case typeStringList:
		return convertList[string](value)
	case typeIntList:
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
func parseText(t string, s string) (any, bool) {
	s = strings.TrimSpace(s)
	switch t {
	case typeInt:
		n, err := strconv.ParseInt(s, 10, 64)
		return n, err == nil
	case typeFloat:
		x, err := strconv.ParseFloat(s, 64)
		return x, err == nil
	case typeBool:
		b, err := strconv.ParseBool(s)
		return b, err == nil
	case typeStringList:
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
		return fits(k, float64(v))
	case float64: // not a number is in no bounds
		return !k.Bounded || v >= k.Min && v <= k.Max
	case string:
		return fitsText(k, v)
	case []string:
		return !slices.ContainsFunc(v, func(s string) bool { return !fitsText(k, s) })
	case []int64:
		return len(v) > 0 && !slices.ContainsFunc(v, func(n int64) bool { return !fits(k, n) })
	}
	return true
}

func fitsText(k *Key, s string) bool {
	if k.Type == typeMode {
		_, ok := deploymode.Parse(s)
		return ok
	}
	if len(k.Enum) > 0 && !slices.Contains(k.Enum, s) {
		return false
	}
	return k.rule == nil || k.rule.ok(s)
}
