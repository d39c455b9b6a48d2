package workflow

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// CanonicalJSON writes a JSON value in the form of RFC 8785: no white space,
// object keys sorted by UTF-16 code units, shortest strings and numbers. Of a
// key used twice the last value counts; values may be nested 10,000 deep.
//
// It departs from the RFC in one place: a number that a double cannot carry
// keeps its digits, because two payments that differ in the last digit of a
// long number are two payments.
func CanonicalJSON(value json.RawMessage) ([]byte, error) {
	c := canonicalizer{scanner: jsonScanner{src: value}}
	if err := c.scanner.document(); err != nil {
		return nil, err
	}
	// The output is hardly ever longer than the input.
	return c.value(make([]byte, 0, len(value)), 0)
}

// canonicalizer writes the nodes of a scanner. It builds no values: a node is a piece of
// the text, and only the order of the keys must be made.
type canonicalizer struct {
	scanner jsonScanner
	members []int // the keys of the objects being written, innermost last
}

// value appends the node with this number.
func (c *canonicalizer) value(b []byte, no int) ([]byte, error) {
	n := &c.scanner.nodes[no]
	switch n.kind {
	case jsonObject:
		return c.object(b, no)
	case jsonArray:
		return c.array(b, no)
	case jsonString:
		return c.string(b, n), nil
	case jsonInteger:
		return appendInteger(b, n.text(&c.scanner)), nil
	case jsonDecimal:
		return appendDecimal(b, n.text(&c.scanner))
	default:
		return append(b, n.text(&c.scanner)...), nil
	}
}

func (c *canonicalizer) array(b []byte, no int) ([]byte, error) {
	var err error
	nodes := c.scanner.nodes
	b = append(b, '[')
	for item := no + 1; item < int(nodes[no].next); item = int(nodes[item].next) {
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
	nodes, from := c.scanner.nodes, len(c.members)
	for key := no + 1; key < int(nodes[no].next); key = int(nodes[key+1].next) {
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
		b = append(c.string(b, &nodes[key]), ':')
		if b, err = c.value(b, key+1); err != nil {
			return nil, err
		}
	}
	c.members = c.members[:from]
	return append(b, '}'), nil
}

func (c *canonicalizer) key(no int) []byte { return c.scanner.nodes[no].text(&c.scanner) }

func (c *canonicalizer) string(b []byte, n *jsonNode) []byte {
	text := n.text(&c.scanner)
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

// appendInteger appends an integer; its digits are already the shortest form.
func appendInteger(b, text []byte) []byte {
	if string(text) == "-0" {
		text = text[1:]
	}
	return append(b, text...)
}

// appendDecimal follows ECMAScript's Number::toString, as RFC 8785 asks, where a
// double carries the number.
func appendDecimal(b, text []byte) ([]byte, error) {
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return nil, fmt.Errorf("number %s is out of range", text)
	}
	if n := significant(text); n > surelyCarried || n > 0 && math.Abs(f) < smallestNormal {
		if d := decimalOf(text); !d.carriedBy(f) {
			return d.append(b), nil
		}
	}
	if f == 0 {
		return append(b, '0'), nil
	}
	if abs := math.Abs(f); abs < 1e21 && abs >= 1e-6 {
		return strconv.AppendFloat(b, f, 'f', -1, 64), nil
	}
	b = strconv.AppendFloat(b, f, 'e', -1, 64)
	// Go writes at least two digits of exponent, ECMAScript only the necessary ones.
	if sign, zero := len(b)-3, len(b)-2; b[zero] == '0' && (b[sign] == '+' || b[sign] == '-') {
		b = append(b[:zero], b[zero+1])
	}
	return b, nil
}
