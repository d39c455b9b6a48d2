package workflow

import (
	"fmt"
	"slices"
	"strings"
)

// templateReader reads one file. It never stops at a problem: a value that
// cannot be used is reported and read as absent.
type templateReader struct {
	file     string
	advice   bool // report possible improvements too
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

func (r *templateReader) report(s Severity, at position, code, path, message string) {
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

func (r *templateReader) errorf(at position, code, path, format string, args ...any) {
	r.report(SeverityError, at, code, path, fmt.Sprintf(format, args...))
}

func (r *templateReader) warnf(at position, code, path, format string, args ...any) {
	r.report(SeverityWarning, at, code, path, fmt.Sprintf(format, args...))
}

// finish returns the problems in reading order, and instead of those beyond the limit one
// with their worst severity.
func (r *templateReader) finish() Problems {
	r.problems.sort()
	if r.excess > 0 {
		r.omitted.Message += fmt.Sprintf(" (and %d more problems, which are not shown)", r.excess-1)
		r.problems = append(r.problems, r.omitted)
	}
	return r.problems
}

// mapping is one mapping with known keys. Reading a key makes it known; done reports the
// unread keys.
type mapping struct {
	r     *templateReader
	node  *yamlNode
	path  string // of the mapping; "" for the document
	known []string
	notes map[string]keyNote
}

// keyNote explains a key that is recognised but has no effect.
type keyNote struct{ code, why string }

// mapping returns nil, after reporting it, when the node is not a mapping.
func (r *templateReader) mapping(n *yamlNode, path string) *mapping {
	if n.kind != yamlMap {
		r.errorf(n.pos, CodeType, path, "%s has to be a mapping, not %s", orDocument(path), n.kind)
		return nil
	}
	return &mapping{r: r, node: n, path: path, known: make([]string, 0, 16)}
}

func orDocument(path string) string {
	if path == "" {
		return "the template"
	}
	return path
}

func (m *mapping) join(key string) string {
	if m.path == "" {
		return key
	}
	return m.path + "." + key
}

// get returns the value of a key or of one of its aliases; nil when it is
// absent or null.
func (m *mapping) get(keys ...string) *yamlNode {
	m.known = append(m.known, keys...)
	var found *yamlNode
	for _, key := range keys {
		f := m.node.field(key)
		if f == nil || f.value.kind == yamlNull {
			continue
		}
		if found != nil && !isEmpty(found) && !isEmpty(f.value) {
			m.r.errorf(f.pos, CodeDuplicateKey, m.join(key), "%q and %q mean the same; keep one of them", keys[0], key)
			continue
		}
		if found == nil || isEmpty(found) {
			found = f.value
		}
	}
	return found
}

func isEmpty(n *yamlNode) bool {
	return (n.kind == yamlList && len(n.items) == 0) || (n.kind == yamlMap && len(n.fields) == 0)
}

// require is get for required keys; a missing key is reported at the key if it is null, else
// at the mapping.
func (m *mapping) require(key string) *yamlNode {
	n := m.get(key)
	if n == nil {
		m.r.errorf(m.position(key), CodeRequired, m.join(key), "%s is required", m.join(key))
	}
	return n
}

// position is where a key stands, or where the mapping starts.
func (m *mapping) position(key string) position {
	if f := m.node.field(key); f != nil {
		return f.pos
	}
	return m.node.pos
}

// child is the mapping below a key; nil when it is absent.
func (m *mapping) child(key string) *mapping {
	if n := m.get(key); n != nil {
		return m.r.mapping(n, m.join(key))
	}
	return nil
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
	for _, f := range m.node.fields {
		note, noted := m.notes[f.key]
		switch {
		case slices.Contains(m.known, f.key), strings.HasPrefix(f.key, "x-"), strings.HasPrefix(f.key, "."):
		case noted && f.value.kind == yamlNull:
		case noted:
			m.r.warnf(f.pos, note.code, m.join(f.key), "%s has no effect: %s", m.join(f.key), note.why)
		default:
			m.r.warnf(f.pos, CodeUnknownKey, m.join(clip(f.key, 64)), "the unknown key %q is ignored%s", clip(f.key, 64), suggestion(f.key, m.known))
		}
	}
}
