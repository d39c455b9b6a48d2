package jsonscan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// Canonical writes a JSON value in the form of RFC 8785: no white space, object keys sorted
// by UTF-16 code units, shortest strings and numbers. Of a key used twice the last value
// counts; values may be nested 10,000 deep. The error names the place of what is not JSON, or
// the number that is out of range.
//
// It departs from the RFC in one place: a number that a double cannot carry
// keeps its digits, because two payments that differ in the last digit of a
// long number are two payments.
func Canonical(value json.RawMessage) ([]byte, error) {
	c := canonicalizer{text: value}
	if err := c.read(); err != nil {
		return nil, err
	}
	// The output is hardly ever longer than the input.
	return c.value(make([]byte, 0, len(value)), 0)
}

// canonicalizer writes the nodes of a text. It builds no values: a node is a piece of the
// text, and only the order of the keys must be made.
type canonicalizer struct {
	text    []byte
	nodes   []node
	decoded []byte // the strings that are not plain, one after the other
	members []int  // the keys of the objects being written, innermost last
}

// node is one value, or one key, of a text. The nodes of a text are in its order: the
// contents of an array or object follow it, a key is followed by its value.
type node struct {
	// start and end bound the text of a scalar, of a string without its quotes. Strings
	// that are not plain are bounded in decoded.
	start, end int32
	next       int32 // the first node after this one and all it holds; of an open one, the node around it
	kind       Kind
	plain      bool // not a string with escapes or bytes that are no UTF-8
}

// read finds the nodes.
func (c *canonicalizer) read() error {
	if len(c.text) > math.MaxInt32 {
		return fmt.Errorf("read JSON: %d bytes are too many", len(c.text))
	}
	s, nodes, around := New(c.text), make([]node, 0, len(c.text)/8+8), int32(-1)
	for t, ok := s.Next(); ok; t, ok = s.Next() {
		switch t.Kind {
		case End:
			closed := &nodes[around]
			around, closed.next = closed.next, int32(len(nodes))
			continue
		case Array, Object:
			nodes = append(nodes, node{next: around, kind: t.Kind})
			around = int32(len(nodes) - 1)
			continue
		}
		start, end := int32(t.Start), int32(t.End)
		plain := t.Spelling == 0 || t.Spelling == NotASCII && utf8.Valid(c.text[start:end])
		if !plain {
			start, end = c.decode(c.text[start:end])
		}
		nodes = append(nodes, node{start: start, end: end, next: int32(len(nodes) + 1), kind: t.Kind, plain: plain})
	}
	c.nodes = nodes
	return s.Err()
}

// decode appends a string to decoded, without its escapes. Invalid characters become U+FFFD,
// as in encoding/json.
func (c *canonicalizer) decode(text []byte) (start, end int32) {
	if c.decoded == nil { // with room for a few more
		c.decoded = make([]byte, 0, len(text)+len(c.text)/4)
	}
	b := appendText(c.decoded, text)
	start, end, c.decoded = int32(len(c.decoded)), int32(len(b)), b
	return start, end
}

// Text is the text of a String or Key of a JSON text, without its escapes. Without any it is a
// part of the text.
func Text(text []byte, t Token) []byte {
	if t.Spelling&Escaped == 0 {
		return text[t.Start:t.End]
	}
	return appendText(nil, text[t.Start:t.End])
}

// appendText appends a string without its escapes.
func appendText(b, text []byte) []byte {
	for i := 0; i < len(text); {
		r, size := rune(text[i]), 1
		switch {
		case text[i] >= utf8.RuneSelf:
			r, size = utf8.DecodeRune(text[i:])
		case text[i] == '\\':
			r, size = unescape(text[i:])
		}
		b = utf8.AppendRune(b, r)
		i += size
	}
	return b
}

// of is the text of a node: a string without quotes and escapes, any other scalar as written.
func (c *canonicalizer) of(n *node) []byte {
	if n.plain {
		return c.text[n.start:n.end]
	}
	return c.decoded[n.start:n.end]
}

// value appends the node with this number.
func (c *canonicalizer) value(b []byte, no int) ([]byte, error) {
	n := &c.nodes[no]
	switch n.kind {
	case Object:
		return c.object(b, no)
	case Array:
		return c.array(b, no)
	case String:
		return c.string(b, n), nil
	case Integer:
		return appendInteger(b, c.of(n)), nil
	case Decimal:
		return appendDecimal(b, c.of(n))
	default:
		return append(b, c.of(n)...), nil
	}
}

func (c *canonicalizer) array(b []byte, no int) ([]byte, error) {
	var err error
	b = append(b, '[')
	for item := no + 1; item < int(c.nodes[no].next); item = int(c.nodes[item].next) {
		if item > no+1 {
			b = append(b, ',')
		}
		if b, err = c.value(b, item); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

// object appends the members in the order of their keys.
func (c *canonicalizer) object(b []byte, no int) ([]byte, error) {
	var err error
	from := len(c.members)
	for key := no + 1; key < int(c.nodes[no].next); key = int(c.nodes[key+1].next) {
		c.members = append(c.members, key)
	}
	end := len(c.members)
	slices.SortFunc(c.members[from:], func(x, y int) int {
		return cmp.Or(compareUTF16(c.key(x), c.key(y)), cmp.Compare(x, y))
	})
	b = append(b, '{')
	for i := from; i < end; i++ {
		key := c.members[i]
		if i+1 < end && bytes.Equal(c.key(key), c.key(c.members[i+1])) {
			continue // the same key again: the later one counts
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(c.string(b, &c.nodes[key]), ':')
		if b, err = c.value(b, key+1); err != nil {
			return nil, err
		}
	}
	c.members = c.members[:from]
	return append(b, '}'), nil
}

func (c *canonicalizer) key(no int) []byte { return c.of(&c.nodes[no]) }

func (c *canonicalizer) string(b []byte, n *node) []byte {
	text := c.of(n)
	if !n.plain {
		return appendEscaped(b, text)
	}
	return append(append(append(b, '"'), text...), '"')
}

// compareUTF16 orders UTF-8 texts by their UTF-16 code units, which differs
// from the order of the bytes only where one has a surrogate.
func compareUTF16(x, y []byte) int {
	i := 0
	for i < len(x) && i < len(y) && x[i] == y[i] {
		i++
	}
	if i == len(x) || i == len(y) {
		return cmp.Compare(len(x), len(y))
	}
	for i > 0 && !utf8.RuneStart(x[i]) {
		i--
	}
	a, _ := utf8.DecodeRune(x[i:])
	b, _ := utf8.DecodeRune(y[i:])
	return cmp.Or(cmp.Compare(firstUnit(a), firstUnit(b)), cmp.Compare(a, b))
}

func firstUnit(c rune) rune {
	if c > 0xffff {
		return 0xd800 + (c-0x10000)>>10
	}
	return c
}

func appendEscaped(b, text []byte) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= ' ':
			b = append(b, c)
		case c == '\b':
			b = append(b, '\\', 'b')
		case c == '\f':
			b = append(b, '\\', 'f')
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(b, '"')
}
