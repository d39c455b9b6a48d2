package template

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tasker-go/tasker/internal/wording"
)

// reader reads one file. It never stops at a problem: a value that cannot be used is
// reported and read as absent.
type reader struct {
	file     string
	problems Problems
	seen     map[problemKey]bool
	omitted  Problem // stands for the problems beyond maxProblems
	excess   int
}

// problemKey identifies a problem. Content behind an alias is read once for every use of the
// alias, with another path, and is reported once.
type problemKey struct {
	at   position
	code string
	key  string // the last key of the path
}

func (r *reader) report(s string, at position, code, path, message string) {
	key := problemKey{at, code, path[strings.LastIndexByte(path, '.')+1:]}
	if r.seen[key] {
		return
	}
	p := Problem{File: r.file, Line: at.line, Column: at.column, Severity: s, Code: code, Path: path, Message: message}
	if len(r.problems) >= maxProblems {
		if r.excess++; r.excess == 1 || s == SeverityError {
			r.omitted = p
		}
		return
	}
	if r.seen == nil {
		r.seen = map[problemKey]bool{}
	}
	r.seen[key] = true
	r.problems = append(r.problems, p)
}

func (r *reader) errorf(at position, code, path, format string, args ...any) {
	r.report(SeverityError, at, code, path, fmt.Sprintf(format, args...))
}

func (r *reader) warnf(at position, code, path, format string, args ...any) {
	r.report(severityWarning, at, code, path, fmt.Sprintf(format, args...))
}

// finish returns the problems in reading order, and instead of those beyond the limit one
// with their worst severity.
func (r *reader) finish() Problems {
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if r.excess > 0 {
		r.omitted.Message += fmt.Sprintf(" (and %d more problems, which are not shown)", r.excess-1)
		r.problems = append(r.problems, r.omitted)
	}
	return r.problems
}

// mapping is one mapping with known keys. Reading a key makes it known; done reports the
// unread keys.
type mapping struct {
	value
	path  string
	known []string
	notes map[string]keyNote
}

// keyNote explains a key that is recognised but has no effect.
type keyNote struct{ code, why string }

func (m *mapping) join(key string) string {
	if m.path == "" {
		return key
	}
	return m.path + "." + key
}

// get returns the value of a key or of one of its aliases.
func (m *mapping) get(keys ...string) value {
	m.known = append(m.known, keys...)
	v := value{r: m.r, in: m, name: keys[0], key: m.pos}
	for _, key := range keys {
		f := m.field(key)
		switch {
		case f == nil:
		case f.value.kind == yamlNull:
			v.key = f.pos
		case v.node != nil && !v.empty() && !f.value.empty():
			m.r.errorf(f.pos, codeDuplicateKey, m.join(key), "%q and %q mean the same; keep one of them", keys[0], key)
		case v.node == nil || v.empty():
			v.node, v.key = f.value, f.pos
		}
	}
	return v
}

// require is get for required keys; a missing key is reported at the key if it is null, else
// at the mapping.
func (m *mapping) require(key string) value {
	v := m.get(key)
	if v.node == nil {
		v.atKey().wrong(codeRequired, "is required")
	}
	return v
}

// child is the mapping below a key; nil when it is absent.
func (m *mapping) child(key string) *mapping { return m.get(key).mapping() }

// nameIfAny is name for a key that may be missing; then it is "".
func (m *mapping) nameIfAny(key string, limit int) string {
	if m.get(key).node == nil {
		return ""
	}
	return m.name(key, limit)
}

// name is a required text of 1 to limit characters without control characters.
func (m *mapping) name(key string, limit int) string {
	v := m.require(key)
	text := v.text()
	switch length := utf8.RuneCountInString(text); {
	case !v.scalar():
	case strings.TrimSpace(text) == "":
		v.wrong(codeRequired, "is empty")
	case length > limit:
		v.wrong(codeRange, "has %d characters; up to %d are allowed", length, limit)
	case strings.ContainsFunc(text, unicode.IsControl):
		v.wrong(codeFormat, "may not contain line breaks or control characters")
	}
	return text
}

// optionalName is name of a key that may be absent.
func (m *mapping) optionalName(key string, limit int) string {
	if m.get(key).node == nil {
		return ""
	}
	return m.name(key, limit)
}

// note declares keys that are recognised and have no effect.
func (m *mapping) note(code, why string, keys ...string) {
	if m.notes == nil {
		m.notes = map[string]keyNote{}
	}
	for _, key := range keys {
		m.notes[key] = keyNote{code, why}
	}
}

// done reports the unread keys. Keys that start with "x-" or "." are ignored: they hold
// anchors and notes of other programs.
func (m *mapping) done() {
	for _, f := range m.fields {
		note, noted := m.notes[f.key]
		v := value{r: m.r, in: m, name: wording.Clip(f.key, 64), key: f.pos}.atKey()
		switch {
		case slices.Contains(m.known, f.key), strings.HasPrefix(f.key, "x-"), strings.HasPrefix(f.key, "."):
		case noted && f.value.kind == yamlNull:
		case noted:
			v.odd(note.code, "has no effect: %s", note.why)
		default:
			v.warnf(codeUnknownKey, "the unknown key %.64q is ignored%s", f.key, suggestion(f.key, m.known))
		}
	}
}

// suggestion is "; did you mean …" with the candidate nearest to the word, or "" when none is
// near.
func suggestion(word string, candidates []string) string {
	if best := wording.Nearest(word, candidates); best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return ""
}

// value is one value of the file and its place. The methods below read it as one type. They
// are liberal where the meaning is clear (a number for a text, "3" for a number) and report
// everything else; an absent or unusable value reads as the zero value.
type value struct {
	*node // nil: absent or null
	r     *reader
	in    *mapping // nil: name is the path
	name  string
	key   position // of its key, if it is absent of the mapping around it
}

// path is such as steps[2].retry; "" for the document.
func (v value) path() string {
	if v.in == nil {
		return v.name
	}
	return v.in.join(v.name)
}

// place is where the value stands, or would.
func (v value) place() position {
	if v.node == nil {
		return v.key
	}
	return v.pos
}

// atKey is a value to report problems of the key with, or of its absence.
func (v value) atKey() value {
	v.node = &node{pos: v.key}
	return v
}

func (v value) errorf(code, format string, args ...any) {
	v.r.errorf(v.pos, code, v.path(), format, args...)
}

func (v value) warnf(code, format string, args ...any) {
	v.r.warnf(v.pos, code, v.path(), format, args...)
}

// wrong reports an error whose message begins with the path, and odd a warning.
func (v value) wrong(code, format string, args ...any) {
	v.r.report(SeverityError, v.pos, code, v.path(), v.subject()+" "+fmt.Sprintf(format, args...))
}

func (v value) odd(code, format string, args ...any) {
	v.r.report(severityWarning, v.pos, code, v.path(), v.subject()+" "+fmt.Sprintf(format, args...))
}

func (v value) subject() string {
	return cmp.Or(v.path(), "the template")
}

// scalar reports whether the value is there and neither a mapping nor a list.
func (v value) scalar() bool { return v.node != nil && v.kind < yamlMap }

func (v value) mapping() *mapping {
	switch {
	case v.node == nil:
		return nil
	case v.kind != yamlMap:
		v.wrong(codeType, "has to be a mapping, not %s", v.kind)
		return nil
	}
	return &mapping{value: v, path: v.path(), known: make([]string, 0, 16)}
}

// text is the value as text; numbers and booleans are used as written, so that version: 1.10
// stays "1.10".
func (v value) text() string {
	if v.node == nil {
		return ""
	}
	if !v.scalar() {
		v.wrong(codeType, "has to be a text, not %s", v.kind)
		return ""
	}
	return v.node.text
}

// word is a text from a list.
func word[T ~string](v value, code string, allowed ...T) T {
	text := v.text()
	if !v.scalar() || slices.Contains(allowed, T(text)) {
		return T(text)
	}
	words := make([]string, len(allowed))
	for i := range allowed {
		words[i] = string(allowed[i])
	}
	v.wrong(code, "cannot be %.64q; it can be %s%s", text, alternatives(words), suggestion(text, words))
	return ""
}

func alternatives(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// booleans are the booleans of YAML 1.1.
var booleans = map[string]bool{"true": true, "yes": true, "on": true, "false": false, "no": false, "off": false}

// boolean reads true and false and, with a warning, their YAML 1.1 synonyms.
func (v value) boolean(absent bool) bool {
	if v.node == nil {
		return absent
	}
	said, known := booleans[strings.ToLower(v.node.text)]
	switch {
	case v.kind == yamlBool:
		return said
	case v.kind == yamlString && known:
		v.odd(codeType, "is read as %t; write %[1]t without quotes", said)
		return said
	}
	v.wrong(codeType, "has to be true or false, not %s", v.kind)
	return absent
}

// bounds of a whole number: outside min…max is an error, outside the narrower range of the
// documented format a warning.
type bounds struct{ min, max, low, high int64 }

// within are bounds without a narrower range.
func within(low, high int64) bounds { return bounds{low, high, low, high} }

// optional reads a whole number; nil when it is absent or unusable.
func (v value) optional(b bounds) *int {
	if v.node == nil {
		return nil
	}
	n, ok := v.wholeNumber()
	if !ok {
		v.wrong(codeType, "has to be a whole number, not %s", v.kind)
		return nil
	}
	if v.kind == yamlString {
		v.odd(codeType, "is a number in quotes; write it without")
	}
	switch {
	case n < b.min || n > b.max:
		v.wrong(codeRange, "is %d; it has to be from %d to %d", n, b.min, b.max)
		return nil
	case n < b.low || n > b.high:
		v.odd(codeRange, "is %d; the usual range is %d to %d", n, b.low, b.high)
	}
	number := int(n)
	return &number
}

// integer is optional for a number whose absence means 0.
func (v value) integer(b bounds) int {
	if n := v.optional(b); n != nil {
		return *n
	}
	return 0
}

// wholeNumber reads 3, 3.0 and "3".
func (n *node) wholeNumber() (int64, bool) {
	text := n.number.String()
	if n.kind == yamlString {
		text = strings.TrimSpace(n.text)
	} else if n.kind == yamlFloat {
		f, err := strconv.ParseFloat(text, 64)
		return int64(f), err == nil && f == math.Trunc(f) && math.Abs(f) <= 1<<53
	}
	v, err := strconv.ParseInt(text, 10, 64)
	return v, err == nil
}

// share reads a number from 0 to 1; nil when it is absent or unusable.
func (v value) share() *float64 {
	if v.node == nil {
		return nil
	}
	text := v.number.String()
	if v.kind == yamlString {
		text = v.node.text
	}
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || !v.scalar():
		v.wrong(codeType, "has to be a number, not %s", v.kind)
		return nil
	case !(f >= 0 && f <= 1):
		v.wrong(codeRange, "is %v; it has to be from 0 to 1", f)
		return nil
	}
	return &f
}

// object is a free-form mapping; nil when absent or empty.
func (v value) object() map[string]any {
	if v.node == nil {
		return nil
	}
	if v.kind != yamlMap {
		v.wrong(codeType, "has to be a mapping, not %s", v.kind)
		return nil
	}
	if len(v.fields) == 0 {
		return nil
	}
	object, _ := v.plain().(map[string]any)
	return object
}

// raw is a free-form value as a JSON text; nil when absent.
func (v value) raw() json.RawMessage {
	if v.node == nil {
		return nil
	}
	data, err := json.Marshal(v.plain())
	if err != nil {
		v.wrong(codeType, "has no JSON form: %s", wording.Line(err.Error()))
		return nil
	}
	return data
}

// plain is the value as encoding/json decodes it, with every number in the spelling of
// jsonscan.Number.
func (v value) plain() any {
	switch v.kind {
	case yamlBool:
		return strings.EqualFold(v.node.text, "true")
	case yamlInt, yamlFloat:
		if v.number == "" {
			v.errorf(codeType, "%s is not a number that JSON can carry", v.node.text)
			return nil
		}
		return v.number
	case yamlString:
		return v.node.text
	case yamlList:
		list := make([]any, len(v.items))
		for i, item := range v.items {
			list[i] = v.part(item).plain()
		}
		return list
	case yamlMap:
		object := make(map[string]any, len(v.fields))
		for _, f := range v.fields {
			object[f.key] = v.part(f.value).plain()
		}
		return object
	}
	return nil
}

// part is a node within a free-form value.
func (v value) part(n *node) value {
	v.node = n
	return v
}

// list returns the items of a list; a null item is left out.
func (v value) list() []value {
	if v.node == nil {
		return nil
	}
	if v.kind != yamlList {
		v.wrong(codeType, "has to be a list, not %s", v.kind)
		return nil
	}
	path, items := v.path(), make([]value, 0, len(v.items))
	for i, item := range v.items {
		if item.kind != yamlNull {
			items = append(items, value{node: item, r: v.r, name: fmt.Sprintf("%s[%d]", path, i), key: item.pos})
		}
	}
	return items
}

// texts is a list of texts; one text alone counts as a list of one.
func (v value) texts() []value {
	if v.scalar() {
		if strings.TrimSpace(v.node.text) == "" {
			return nil
		}
		v.odd(codeType, "is read as a list of one; write [%s]", wording.Clip(v.node.text, 64))
		return []value{v}
	}
	return slices.DeleteFunc(v.list(), func(item value) bool {
		if !item.scalar() {
			item.wrong(codeType, "has to be a text, not %s", item.kind)
		}
		return !item.scalar()
	})
}

// words are the texts of a list; nil when there are none.
func (v value) words() []string {
	var words []string
	for _, item := range v.texts() {
		words = append(words, item.node.text)
	}
	return words
}
