package workflow

import (
	"fmt"
	"math"
	"unicode/utf16"
	"unicode/utf8"
)

// maxJSONDepth bounds nested arrays and objects, like encoding/json does.
const maxJSONDepth = 10_000

// jsonNode is one value, or one key, of a JSON text. The nodes of a text are in its order:
// the contents of an array or object follow it, a key is followed by its value.
type jsonNode struct {
	// start and end bound the text of the node, of a string without its
	// quotes. Strings that are not plain are bounded in the scanner's decoded.
	start, end int32
	next       int32 // the first node after this one and all it holds
	kind       jsonKind
	plain      bool // of a string: valid UTF-8 without escapes
}

type jsonKind uint8

const (
	jsonLiteral jsonKind = iota // null, true, false
	jsonInteger                 // a number without point and exponent
	jsonDecimal                 // any other number
	jsonString                  // also a key
	jsonArray
	jsonObject
)

// jsonScanner checks a JSON text and finds its nodes.
type jsonScanner struct {
	src     []byte
	at      int
	depth   int
	nodes   []jsonNode
	decoded []byte // the strings that are not plain, one after the other
}

// document finds the nodes of the text, which must be one value.
func (s *jsonScanner) document() error {
	if len(s.src) > math.MaxInt32 {
		return fmt.Errorf("read JSON: %d bytes are too many", len(s.src))
	}
	s.nodes = make([]jsonNode, 0, len(s.src)/8+8)
	if ok := s.value(); ok {
		s.space()
		if s.at == len(s.src) {
			return nil
		}
	}
	if s.at >= len(s.src) {
		return fmt.Errorf("read JSON: the text of %d bytes ends too early", len(s.src))
	}
	if s.depth > maxJSONDepth {
		return fmt.Errorf("read JSON: nested more than %d deep", maxJSONDepth)
	}
	return fmt.Errorf("read JSON: %q does not belong at byte %d", s.src[s.at], s.at)
}

// value moves over one value. It and its helpers return false, and stay where the error
// was found, if the text is not JSON.
func (s *jsonScanner) value() bool {
	s.space()
	if s.at >= len(s.src) {
		return false
	}
	switch c := s.src[s.at]; {
	case c == '"':
		return s.quoted()
	case c == '{':
		return s.object()
	case c == '[':
		return s.array()
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	}
	return false
}

func (s *jsonScanner) add(kind jsonKind, start, end int) {
	s.nodes = append(s.nodes, jsonNode{kind: kind, start: int32(start), end: int32(end), next: int32(len(s.nodes) + 1)})
}

func (s *jsonScanner) space() {
	for s.at < len(s.src) {
		switch s.src[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// take moves over c if it is next.
func (s *jsonScanner) take(c byte) bool {
	if s.at < len(s.src) && s.src[s.at] == c {
		s.at++
		return true
	}
	return false
}

func (s *jsonScanner) literal(word string) bool {
	start := s.at
	for i := range len(word) {
		if !s.take(word[i]) {
			return false
		}
	}
	s.add(jsonLiteral, start, s.at)
	return true
}

func (s *jsonScanner) number() bool {
	start, kind := s.at, jsonInteger
	s.take('-')
	if !s.take('0') && !s.digits() {
		return false
	}
	if s.take('.') {
		kind = jsonDecimal
		if !s.digits() {
			return false
		}
	}
	if s.take('e') || s.take('E') {
		kind = jsonDecimal
		if !s.take('+') {
			s.take('-')
		}
		if !s.digits() {
			return false
		}
	}
	s.add(kind, start, s.at)
	return true
}

// digits moves over one digit or more.
func (s *jsonScanner) digits() bool {
	start := s.at
	for s.at < len(s.src) && s.src[s.at] >= '0' && s.src[s.at] <= '9' {
		s.at++
	}
	return s.at > start
}

func (s *jsonScanner) array() bool {
	no := s.open(jsonArray)
	if s.depth > maxJSONDepth {
		return false
	}
	if s.space(); s.take(']') {
		return s.closed(no)
	}
	for s.value() {
		if s.space(); s.take(']') {
			return s.closed(no)
		}
		if !s.take(',') {
			return false
		}
	}
	return false
}

func (s *jsonScanner) object() bool {
	no := s.open(jsonObject)
	if s.depth > maxJSONDepth {
		return false
	}
	if s.space(); s.take('}') {
		return s.closed(no)
	}
	for {
		if s.space(); s.at >= len(s.src) || s.src[s.at] != '"' || !s.quoted() {
			return false
		}
		if s.space(); !s.take(':') || !s.value() {
			return false
		}
		if s.space(); s.take('}') {
			return s.closed(no)
		}
		if !s.take(',') {
			return false
		}
	}
}

func (s *jsonScanner) open(kind jsonKind) (no int) {
	s.add(kind, s.at, s.at)
	s.at++
	s.depth++
	return len(s.nodes) - 1
}

func (s *jsonScanner) closed(no int) bool {
	s.depth--
	s.nodes[no].end, s.nodes[no].next = int32(s.at), int32(len(s.nodes))
	return true
}

// quoted moves over a string.
func (s *jsonScanner) quoted() bool {
	s.at++
	start, escaped, ascii := s.at, false, true
	for s.at < len(s.src) {
		switch c := s.src[s.at]; {
		case c == '"':
			s.addString(s.src[start:s.at], start, !escaped && (ascii || utf8.Valid(s.src[start:s.at])))
			s.at++
			return true
		case c < ' ':
			return false
		case c == '\\':
			escaped = true
			s.at++
			if !s.escape() {
				return false
			}
		default:
			ascii = ascii && c < utf8.RuneSelf
			s.at++
		}
	}
	return false
}

// escape moves over what follows a backslash.
func (s *jsonScanner) escape() bool {
	if s.at >= len(s.src) {
		return false
	}
	switch s.src[s.at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.at++
		return true
	case 'u':
		s.at++
		for range 4 {
			if s.at >= len(s.src) || hexValue(s.src[s.at]) < 0 {
				return false
			}
			s.at++
		}
		return true
	}
	return false
}

func (s *jsonScanner) addString(text []byte, start int, plain bool) {
	if plain {
		s.add(jsonString, start, start+len(text))
	} else {
		if s.decoded == nil { // with room for a few more
			s.decoded = make([]byte, 0, len(text)+(len(s.src)-start)/4)
		}
		from := len(s.decoded)
		s.decoded = appendUnescaped(s.decoded, text)
		s.add(jsonString, from, len(s.decoded))
	}
	s.nodes[len(s.nodes)-1].plain = plain
}

// text is the value of the node: a string without quotes and escapes, any other scalar as
// written.
func (n *jsonNode) text(s *jsonScanner) []byte {
	if n.kind == jsonString && !n.plain {
		return s.decoded[n.start:n.end]
	}
	return s.src[n.start:n.end]
}

// appendUnescaped appends a valid JSON string, given without its quotes, as UTF-8. Invalid
// characters become U+FFFD, as in encoding/json.
func appendUnescaped(b, text []byte) []byte {
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRune(text[i:])
			b = utf8.AppendRune(b, r)
			i += size
		case c != '\\':
			b = append(b, c)
			i++
		case text[i+1] == 'u':
			r := hexRune(text[i+2:])
			i += 6
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if i+1 < len(text) && text[i] == '\\' && text[i+1] == 'u' {
					low = hexRune(text[i+2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					i += 6
				}
			}
			b = utf8.AppendRune(b, r)
		default:
			b = append(b, unescaped(text[i+1]))
			i += 2
		}
	}
	return b
}

// unescaped is the character of a letter after a backslash.
func unescaped(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// hexRune reads four hexadecimal digits.
func hexRune(digits []byte) (r rune) {
	for _, c := range digits[:4] {
		r = r<<4 | hexValue(c)
	}
	return r
}

// hexValue is negative for a byte that is no hexadecimal digit.
func hexValue(c byte) rune {
	switch {
	case c >= '0' && c <= '9':
		return rune(c - '0')
	case c >= 'a' && c <= 'f':
		return rune(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return rune(c-'A') + 10
	}
	return -1
}
