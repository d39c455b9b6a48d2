package config

import (
	"fmt"
	"strings"
)

// locate finds where each key of a TOML document is written. The parser keeps
// no positions, and messages without them make people search, so this scanner
// follows the document a second time. It relies on the document having parsed:
// it only has to find its way through valid TOML and never judges it.
//
// The result maps dotted paths to places; elements of arrays of tables are
// "name[0]", "name[1]" and so on. On input that is not TOML it returns what it
// has found so far.
func locate(file, document string) map[string]Position {
	s := &scanner{
		src: document, file: file, line: 1,
		at: map[string]Position{}, arrays: map[string]int{},
	}
	s.document()
	return s.at
}

type scanner struct {
	src       string
	file      string
	pos       int
	line      int
	lineStart int
	at        map[string]Position
	arrays    map[string]int // path of an array of tables → elements seen
}

func (s *scanner) done() bool { return s.pos >= len(s.src) }

func (s *scanner) peek(prefix string) bool { return strings.HasPrefix(s.src[s.pos:], prefix) }

// next moves over one byte and counts lines.
func (s *scanner) next() {
	if s.src[s.pos] == '\n' {
		s.line++
		s.lineStart = s.pos + 1
	}
	s.pos++
}

func (s *scanner) here() Position {
	return Position{File: s.file, Line: s.line, Column: s.pos - s.lineStart + 1}
}

// mark records a path the first time it is written.
func (s *scanner) mark(path string, p Position) {
	if _, seen := s.at[path]; !seen {
		s.at[path] = p
	}
}

func (s *scanner) document() {
	table := ""
	for {
		s.blank(true)
		if s.done() {
			return
		}
		start := s.pos
		if s.peek("[") {
			table = s.header()
		} else {
			s.keyValue(table)
		}
		if s.pos == start { // not TOML: give up rather than stand still
			return
		}
	}
}

// blank skips spaces and comments, and line ends when they are included.
func (s *scanner) blank(lineEnds bool) {
	for !s.done() {
		switch c := s.src[s.pos]; {
		case c == ' ' || c == '\t':
			s.next()
		case c == '#':
			for !s.done() && s.src[s.pos] != '\n' {
				s.next()
			}
		case lineEnds && (c == '\n' || c == '\r'):
			s.next()
		default:
			return
		}
	}
}

// header reads [table] or [[array]] and returns the path that the keys below
// it belong to.
func (s *scanner) header() string {
	where := s.here()
	array := s.peek("[[")
	for s.peek("[") {
		s.next()
	}
	parts := s.dottedKey()
	for s.peek("]") {
		s.next()
	}
	path := s.resolve(parts)
	if array {
		n := s.arrays[path]
		s.arrays[path] = n + 1
		s.mark(path, where)
		path = fmt.Sprintf("%s[%d]", path, n)
	}
	s.mark(path, where)
	return path
}

// resolve joins the parts of a header; a part that is an array of tables
// stands for its latest element.
func (s *scanner) resolve(parts []string) string {
	path := ""
	for i, part := range parts {
		path = joinPath(path, part)
		if n, isArray := s.arrays[path]; isArray && i < len(parts)-1 {
			path = fmt.Sprintf("%s[%d]", path, n-1)
		}
	}
	return path
}

// keyValue reads key = value below table.
func (s *scanner) keyValue(table string) {
	where := s.here()
	path := table
	for _, part := range s.dottedKey() {
		path = joinPath(path, part)
		s.mark(path, where)
	}
	s.blank(false)
	if !s.peek("=") {
		return
	}
	s.next()
	s.blank(false)
	s.value(path)
}

// dottedKey reads a.b."c d".
func (s *scanner) dottedKey() []string {
	var parts []string
	for {
		s.blank(false)
		switch {
		case s.done():
			return parts
		case s.peek(`"`), s.peek(`'`):
			parts = append(parts, s.quoted())
		default:
			start := s.pos
			for !s.done() && isBare(s.src[s.pos]) {
				s.next()
			}
			if s.pos == start {
				return parts
			}
			parts = append(parts, s.src[start:s.pos])
		}
		s.blank(false)
		if !s.peek(".") {
			return parts
		}
		s.next()
	}
}

func isBare(c byte) bool {
	return c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// value moves over one value; the keys of inline tables are recorded.
func (s *scanner) value(path string) {
	switch {
	case s.done():
	case s.peek(`"`), s.peek(`'`):
		s.quoted()
	case s.peek("["):
		s.next()
		s.elements(path)
	case s.peek("{"):
		s.next()
		s.inlineTable(path)
	default: // a number, boolean or date
		for !s.done() && !strings.ContainsRune(",]}#\n\r", rune(s.src[s.pos])) {
			s.next()
		}
	}
}

func (s *scanner) elements(path string) {
	for i := 0; ; {
		s.blank(true)
		if s.done() {
			return
		}
		start := s.pos
		switch s.src[s.pos] {
		case ']':
			s.next()
			return
		case ',':
			s.next()
			i++
		default:
			s.value(fmt.Sprintf("%s[%d]", path, i))
		}
		if s.pos == start {
			return
		}
	}
}

func (s *scanner) inlineTable(path string) {
	for {
		s.blank(true)
		if s.done() {
			return
		}
		start := s.pos
		switch s.src[s.pos] {
		case '}':
			s.next()
			return
		case ',':
			s.next()
		default:
			s.keyValue(path)
		}
		if s.pos == start {
			return
		}
	}
}

// quoted moves over a string of any of the four kinds and returns what stands
// between the quotes, escapes unresolved: they do not occur in key names.
func (s *scanner) quoted() string {
	quote := s.src[s.pos : s.pos+1]
	escapes := quote == `"`
	if s.peek(quote + quote + quote) {
		quote += quote + quote
	}
	for range len(quote) {
		s.next()
	}
	start := s.pos
	for !s.done() && !s.peek(quote) {
		if escapes && s.src[s.pos] == '\\' && s.pos+1 < len(s.src) {
			s.next()
		}
		s.next()
	}
	body := s.src[start:s.pos]
	for range len(quote) {
		if !s.done() {
			s.next()
		}
	}
	// Up to two quotes may stand right before the closing three.
	for len(quote) == 3 && !s.done() && s.src[s.pos] == quote[0] {
		s.next()
	}
	return body
}

func joinPath(table, name string) string {
	if table == "" {
		return name
	}
	return table + "." + name
}
