package config

import (
	"fmt"
	"regexp"
	"strings"
)

// locate finds where each key of a TOML document is written. The parser keeps
// no positions, and messages without them make people search, so this follows
// the tokens of the document a second time. It relies on the document having
// parsed: it only has to find its way through valid TOML and never judges it.
//
// The result maps dotted paths to places; elements of arrays of tables are
// "name[0]", "name[1]" and so on. On input that is not TOML it returns what it
// has found so far.
func locate(file, document string) map[string]Position {
	l := &locator{tokens: tokenize(file, document), at: map[string]Position{}, arrays: map[string]int{}}
	table := ""
	for len(l.tokens) > 0 {
		switch l.peek() {
		case "\n":
			l.take()
		case "[":
			table = l.header()
		default:
			l.keyValue(table)
		}
	}
	return l.at
}

// token is a string with its quotes, a run of letters that may stand in a key
// without quotes, the end of a line, or any other character.
type token struct {
	text string
	at   Position
}

// tokens also matches comments. Up to two quotes may stand right before the three
// that close a string of several lines.
var tokens = regexp.MustCompile(`(?s)"""(?:\\.|[^\\])*?"{3,5}|'''.*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|#[^\n]*|[\w-]+|[^ \t\r]`)

func tokenize(file, document string) (list []token) {
	line, lineStart, end := 1, 0, 0
	for {
		found := tokens.FindStringIndex(document[end:])
		if found == nil {
			return list
		}
		start := end + found[0]
		end += found[1]
		text := document[start:end]
		if text[0] != '#' {
			list = append(list, token{text, Position{File: file, Line: line, Column: start - lineStart + 1}})
		}
		if n := strings.Count(text, "\n"); n > 0 {
			line += n
			lineStart = start + strings.LastIndexByte(text, '\n') + 1
		}
	}
}

type locator struct {
	tokens []token
	at     map[string]Position
	arrays map[string]int // path of an array of tables → elements seen
}

// peek is the next token, "" at the end.
func (l *locator) peek() string {
	if len(l.tokens) == 0 {
		return ""
	}
	return l.tokens[0].text
}

// take moves over a token.
func (l *locator) take() token {
	t := l.tokens[0]
	l.tokens = l.tokens[1:]
	return t
}

// mark records a path the first time it is written.
func (l *locator) mark(path string, at Position) {
	if _, seen := l.at[path]; !seen {
		l.at[path] = at
	}
}

// header reads [table] or [[array]] and returns the path that the keys below
// it belong to.
func (l *locator) header() (path string) {
	where, array := l.take().at, l.peek() == "["
	if array {
		l.take()
	}
	for _, part := range l.dottedKey() {
		if n, isArray := l.arrays[path]; isArray { // stands for its latest element
			path = fmt.Sprintf("%s[%d]", path, n-1)
		}
		path = joinPath(path, part)
	}
	for l.peek() == "]" {
		l.take()
	}
	l.mark(path, where)
	if array {
		n := l.arrays[path]
		l.arrays[path] = n + 1
		path = fmt.Sprintf("%s[%d]", path, n)
		l.mark(path, where)
	}
	return path
}

// keyValue reads key = value below table, or moves over what is neither.
func (l *locator) keyValue(table string) {
	where, path := l.tokens[0].at, table
	parts := l.dottedKey()
	if len(parts) == 0 {
		l.take()
	}
	for _, part := range parts {
		path = joinPath(path, part)
		l.mark(path, where)
	}
	if l.peek() == "=" {
		l.take()
		l.value(path)
	}
}

// dottedKey reads a.b."c d"; escapes do not occur in key names.
func (l *locator) dottedKey() (parts []string) {
	for {
		text := l.peek()
		switch {
		case len(text) > 1 && strings.ContainsAny(text[:1], `"'`):
			parts = append(parts, text[1:len(text)-1])
		case text == "" || strings.ContainsAny(text[:1], "=[]{},.\n"):
			return parts
		default:
			parts = append(parts, text)
		}
		l.take()
		if l.peek() != "." {
			return parts
		}
		l.take()
	}
}

// value moves over one value; the keys of inline tables are recorded.
func (l *locator) value(path string) {
	switch l.peek() {
	case "":
	case "[":
		l.take()
		l.inside("]", func(i int) { l.value(fmt.Sprintf("%s[%d]", path, i)) })
	case "{":
		l.take()
		l.inside("}", func(int) { l.keyValue(path) })
	default: // a string, number, boolean or date
		l.take()
		for len(l.tokens) > 0 && !strings.ContainsAny(l.peek(), ",]}\n") {
			l.take()
		}
	}
}

// inside reads what stands between brackets, with commas.
func (l *locator) inside(closing string, element func(i int)) {
	for i := 0; len(l.tokens) > 0; {
		switch l.peek() {
		case closing:
			l.take()
			return
		case ",":
			l.take()
			i++
		case "\n":
			l.take()
		default:
			element(i)
		}
	}
}

func joinPath(table, name string) string {
	if table == "" {
		return name
	}
	return table + "." + name
}
