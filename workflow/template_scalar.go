package workflow

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The methods below read the value of one key as one type. They are liberal where the
// meaning is clear (a number for a text, "3" for a number) and report everything else; an
// unusable value reads as absent.

// text is the value of a key as text; numbers and booleans are used as written, so that
// version: 1.10 stays "1.10".
func (m *mapping) text(keys ...string) string {
	n := m.get(keys...)
	if n == nil {
		return ""
	}
	return m.r.text(n, m.join(keys[0]))
}

func (r *templateReader) text(n *yamlNode, path string) string {
	if n.kind >= yamlMap {
		r.errorf(n.pos, CodeType, path, "%s has to be a text, not %s", path, n.kind)
		return ""
	}
	return n.text
}

// name is a required text of 1 to limit characters without control
// characters.
func (m *mapping) name(key string, limit int) string {
	n := m.require(key)
	if n == nil {
		return ""
	}
	path := m.join(key)
	text := m.r.text(n, path)
	switch length := utf8.RuneCountInString(text); {
	case n.kind >= yamlMap:
	case strings.TrimSpace(text) == "":
		m.r.errorf(n.pos, CodeRequired, path, "%s is empty", path)
	case length > limit:
		m.r.errorf(n.pos, CodeRange, path, "%s has %d characters; up to %d are allowed", path, length, limit)
	case strings.ContainsFunc(text, unicode.IsControl):
		m.r.errorf(n.pos, CodeFormat, path, "%s may not contain line breaks or control characters", path)
	}
	return text
}

// word is a text from a list; "" when absent.
func (m *mapping) word(key, code string, allowed ...string) string {
	n := m.get(key)
	if n == nil {
		return ""
	}
	path := m.join(key)
	text := m.r.text(n, path)
	if n.kind >= yamlMap {
		return ""
	}
	for _, a := range allowed {
		if a == text {
			return text
		}
	}
	m.r.errorf(n.pos, code, path, "%s cannot be %q; it can be %s%s", path, clip(text, 64), alternatives(allowed), suggestion(text, allowed))
	return ""
}

func alternatives(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// boolean reads true and false and, with a warning, their YAML 1.1 synonyms.
func (m *mapping) boolean(key string, absent bool) bool {
	n := m.get(key)
	if n == nil {
		return absent
	}
	switch word := strings.ToLower(n.text); {
	case n.kind == yamlBool:
		return word == "true"
	case n.kind == yamlString && (word == "true" || word == "yes" || word == "on"):
		m.r.warnf(n.pos, CodeType, m.join(key), "%s: read as true; write true without quotes", m.join(key))
		return true
	case n.kind == yamlString && (word == "false" || word == "no" || word == "off"):
		m.r.warnf(n.pos, CodeType, m.join(key), "%s: read as false; write false without quotes", m.join(key))
		return false
	}
	m.r.errorf(n.pos, CodeType, m.join(key), "%s has to be true or false, not %s", m.join(key), n.kind)
	return absent
}

// bounds of a whole number: outside min…max is an error, outside the narrower range of the
// documented format a warning.
type bounds struct{ min, max, low, high int64 }

// integer reads a whole number; false when it is absent or unusable.
func (m *mapping) integer(key string, b bounds) (int64, bool) {
	n := m.get(key)
	if n == nil {
		return 0, false
	}
	return m.r.integer(n, m.join(key), b)
}

func (r *templateReader) integer(n *yamlNode, path string, b bounds) (int64, bool) {
	v, ok := n.wholeNumber()
	if !ok {
		r.errorf(n.pos, CodeType, path, "%s has to be a whole number, not %s", path, n.kind)
		return 0, false
	}
	if n.kind == yamlString {
		r.warnf(n.pos, CodeType, path, "%s: write the number without quotes", path)
	}
	switch {
	case v < b.min || v > b.max:
		r.errorf(n.pos, CodeRange, path, "%s is %d; it has to be from %d to %d", path, v, b.min, b.max)
		return 0, false
	case v < b.low || v > b.high:
		r.warnf(n.pos, CodeRange, path, "%s is %d; the usual range is %d to %d", path, v, b.low, b.high)
	}
	return v, true
}

// share reads a number from 0 to 1; false when it is absent or unusable.
func (m *mapping) share(key string) (float64, bool) {
	n := m.get(key)
	if n == nil {
		return 0, false
	}
	path := m.join(key)
	text := n.number.String()
	if n.kind == yamlString {
		text = n.text
	}
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || n.kind >= yamlMap:
		m.r.errorf(n.pos, CodeType, path, "%s has to be a number, not %s", path, n.kind)
		return 0, false
	case !(v >= 0 && v <= 1):
		m.r.errorf(n.pos, CodeRange, path, "%s is %v; it has to be from 0 to 1", path, v)
		return 0, false
	}
	return v, true
}

// wholeNumber reads 3, 3.0 and "3".
func (n *yamlNode) wholeNumber() (int64, bool) {
	text := n.number.String()
	if n.kind == yamlString {
		text = strings.TrimSpace(n.text)
	} else if n.kind == yamlFloat {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
			return 0, false
		}
		return int64(f), true
	}
	v, err := strconv.ParseInt(text, 10, 64)
	return v, err == nil
}

// object is a free-form mapping; nil when absent or empty.
func (m *mapping) object(key string) map[string]any {
	n := m.get(key)
	if n == nil {
		return nil
	}
	if n.kind != yamlMap {
		m.r.errorf(n.pos, CodeType, m.join(key), "%s has to be a mapping, not %s", m.join(key), n.kind)
		return nil
	}
	if len(n.fields) == 0 {
		return nil
	}
	object, _ := m.r.plain(n, m.join(key)).(map[string]any)
	return object
}

// raw is a free-form value as a JSON text; nil when absent.
func (m *mapping) raw(key string) (json.RawMessage, *yamlNode) {
	n := m.get(key)
	if n == nil {
		return nil, nil
	}
	data, err := json.Marshal(m.r.plain(n, m.join(key)))
	if err != nil {
		m.r.errorf(n.pos, CodeType, m.join(key), "%s has no JSON form: %s", m.join(key), cleanMessage(err.Error()))
		return nil, nil
	}
	return data, n
}

// list returns the items of a list and their paths; a null item is left out.
func (m *mapping) list(keys ...string) []listItem {
	n := m.get(keys...)
	if n == nil {
		return nil
	}
	path := m.join(keys[0])
	if n.kind != yamlList {
		m.r.errorf(n.pos, CodeType, path, "%s has to be a list, not %s", path, n.kind)
		return nil
	}
	items := make([]listItem, 0, len(n.items))
	for i, item := range n.items {
		if item.kind != yamlNull {
			items = append(items, listItem{node: item, path: fmt.Sprintf("%s[%d]", path, i)})
		}
	}
	return items
}

type listItem struct {
	node *yamlNode
	path string
}

// texts is a list of texts; one text alone counts as a list of one.
func (m *mapping) texts(keys ...string) []string {
	items := m.textItems(keys...)
	if len(items) == 0 {
		return nil
	}
	out := make([]string, len(items))
	for i, item := range items {
		out[i] = item.node.text
	}
	return out
}

func (m *mapping) textItems(keys ...string) []listItem {
	if n := m.get(keys...); n != nil && n.kind < yamlMap {
		if strings.TrimSpace(n.text) == "" {
			return nil
		}
		m.r.warnf(n.pos, CodeType, m.join(keys[0]), "%s: read as a list of one; write [%s]", m.join(keys[0]), clip(n.text, 64))
		return []listItem{{node: n, path: m.join(keys[0])}}
	}
	var items []listItem
	for _, item := range m.list(keys...) {
		if item.node.kind >= yamlMap {
			m.r.errorf(item.node.pos, CodeType, item.path, "%s has to be a text, not %s", item.path, item.node.kind)
			continue
		}
		items = append(items, item)
	}
	return items
}
