package jsonscan

import (
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds nested arrays and objects, like encoding/json does.
const maxDepth = 10_000

// Kind is the type of a token.
type Kind uint8

// The kinds of tokens. Commas and colons are checked and are no tokens.
const (
	Literal Kind = iota // null, true, false
	Integer             // a number without point and exponent
	Decimal             // any other number
	String
	Key    // of the object; its value follows
	Array  // [
	Object // {
	End    // ] or }, of the innermost open array or object
)

// Spelling says what a String or a Key has besides plain ASCII characters.
type Spelling uint8

// The bits of a Spelling.
const (
	Escaped Spelling = 1 << iota
	NotASCII
)

// Token is one token of a text. It is text[Start:End], for a String and a Key without the
// quotes. It has no more fields than the compiler keeps in registers.
type Token struct {
	Start, End int
	Kind       Kind
	Spelling   Spelling
}

// Scanner walks over the tokens of one JSON text and checks it on the way. It neither copies
// the text nor changes it, and allocates nothing up to a depth of 64.
type Scanner struct {
	text  []byte
	at    int // what is read next; after a fault, its place
	depth int
	want  expectation
	// inside holds a bit for each of the innermost open levels, the innermost last: 1 for
	// an object. outside holds those of the levels around them, 64 at a time.
	inside  uint64
	outside []uint64
}

// expectation is what the text may continue with.
type expectation uint8

const (
	wantValue  expectation = iota
	wantItem               // a value or the end of the array
	wantMember             // a key or the end of the object
	wantMore               // a comma, or the end of what is open
)

// New returns a scanner at the beginning of a text, which must be one value.
func New(text []byte) *Scanner { return &Scanner{text: text} }

// Next moves to the next token. It returns false after the last one and at the first fault;
// Err tells which.
func (s *Scanner) Next() (Token, bool) {
	c := s.peek()
	switch s.want {
	case wantMore:
		if c != ',' || s.depth == 0 {
			return s.end(c)
		}
		s.at++
		if c = s.peek(); s.inObject() {
			return s.key(c)
		}
	case wantMember:
		if c == '}' {
			return s.end(c)
		}
		return s.key(c)
	case wantItem:
		if c == ']' {
			return s.end(c)
		}
	}
	return s.value(c)
}

// Err returns why Next stopped before the end of the text, with the place; nil at the end.
func (s *Scanner) Err() error {
	switch {
	case s.at >= len(s.text) && s.want == wantMore && s.depth == 0:
		return nil
	case s.at >= len(s.text):
		return fmt.Errorf("read JSON: the text of %d bytes ends too early", len(s.text))
	case s.depth > maxDepth:
		return fmt.Errorf("read JSON: nested more than %d deep", maxDepth)
	}
	return fmt.Errorf("read JSON: %q does not belong at byte %d", s.text[s.at], s.at)
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *Scanner) peek() byte {
	if s.at < len(s.text) && s.text[s.at] > ' ' {
		return s.text[s.at]
	}
	return s.skip()
}

func (s *Scanner) skip() byte {
	for i := s.at; i < len(s.text); i++ {
		switch c := s.text[i]; c {
		case ' ', '\t', '\n', '\r':
		default:
			s.at = i
			return c
		}
	}
	s.at = len(s.text)
	return 0
}

// inObject reports whether the innermost open level is an object.
func (s *Scanner) inObject() bool { return s.inside&1 == 1 }

// begin opens an array or an object.
func (s *Scanner) begin(kind Kind, bit uint64, want expectation) (Token, bool) {
	if s.depth > 0 && s.depth%64 == 0 {
		s.outside = append(s.outside, s.inside)
	}
	s.inside = s.inside<<1 | bit
	s.depth++
	s.at++
	s.want = want
	return Token{Kind: kind, Start: s.at - 1, End: s.at}, s.depth <= maxDepth
}

// end closes the innermost array or object with c.
func (s *Scanner) end(c byte) (Token, bool) {
	if s.depth == 0 || s.inObject() && c != '}' || !s.inObject() && c != ']' {
		return Token{}, false
	}
	s.inside >>= 1
	if s.depth--; s.depth > 0 && s.depth%64 == 0 {
		last := len(s.outside) - 1
		s.inside, s.outside = s.outside[last], s.outside[:last]
	}
	s.at++
	s.want = wantMore
	return Token{Kind: End, Start: s.at - 1, End: s.at}, true
}

// key reads a key with its colon.
func (s *Scanner) key(c byte) (Token, bool) {
	if c != '"' {
		return Token{}, false
	}
	t, ok := s.quoted(Key)
	if !ok || s.peek() != ':' {
		return t, false
	}
	s.at++
	s.want = wantValue
	return t, true
}

func (s *Scanner) value(c byte) (Token, bool) {
	switch {
	case c == '"':
		return s.quoted(String)
	case c == '{':
		return s.begin(Object, 1, wantMember)
	case c == '[':
		return s.begin(Array, 0, wantItem)
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	}
	return Token{}, false
}

func (s *Scanner) literal(word string) (Token, bool) {
	start := s.at
	for i := range len(word) {
		if !s.take(word[i]) {
			return Token{}, false
		}
	}
	s.want = wantMore
	return Token{Kind: Literal, Start: start, End: s.at}, true
}

func (s *Scanner) number() (Token, bool) {
	t := Token{Kind: Integer, Start: s.at}
	s.take('-')
	if !s.take('0') && !s.digits() {
		return t, false
	}
	if s.take('.') {
		t.Kind = Decimal
		if !s.digits() {
			return t, false
		}
	}
	if s.take('e') || s.take('E') {
		t.Kind = Decimal
		if !s.take('+') {
			s.take('-')
		}
		if !s.digits() {
			return t, false
		}
	}
	t.End, s.want = s.at, wantMore
	return t, true
}

// take moves over c if it is next.
func (s *Scanner) take(c byte) bool {
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// digits moves over one digit or more.
func (s *Scanner) digits() bool {
	i := s.at
	for i < len(s.text) && s.text[i] >= '0' && s.text[i] <= '9' {
		i++
	}
	start := s.at
	s.at = i
	return i > start
}

// ends tells the bytes at which reading a string has more to do than to go on.
var ends = func() (t [256]bool) {
	for c := range byte(' ') {
		t[c] = true
	}
	t['"'], t['\\'] = true, true
	return t
}()

// quoted reads a string.
func (s *Scanner) quoted(kind Kind) (Token, bool) {
	text, start, spelling, bits := s.text, s.at+1, Spelling(0), byte(0)
	for i := start; i < len(text); i++ {
		c := text[i]
		bits |= c
		if !ends[c] {
			continue
		}
		switch c {
		case '"':
			s.at, s.want = i+1, wantMore
			if bits >= utf8.RuneSelf {
				spelling |= NotASCII
			}
			return Token{Start: start, End: i, Kind: kind, Spelling: spelling}, true
		case '\\':
			spelling, s.at = Escaped, i+1
			if !s.escape() {
				return Token{}, false
			}
			i = s.at - 1
		default:
			s.at = i
			return Token{}, false
		}
	}
	s.at = len(text)
	return Token{}, false
}

// escape moves over what follows a backslash.
func (s *Scanner) escape() bool {
	if s.at >= len(s.text) {
		return false
	}
	switch s.text[s.at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.at++
		return true
	case 'u':
		s.at++
		for range 4 {
			if s.at >= len(s.text) || hexValue(s.text[s.at]) < 0 {
				return false
			}
			s.at++
		}
		return true
	}
	return false
}

// unescape reads the valid escape that text begins with and returns its length: with the
// second one for a surrogate pair. Half a pair is returned as it is.
func unescape(text []byte) (r rune, size int) {
	switch c := text[1]; c {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
	default:
		return rune(c), 2
	}
	r = hexRune(text[2:])
	if utf16.IsSurrogate(r) && len(text) > 7 && text[6] == '\\' && text[7] == 'u' {
		if pair := utf16.DecodeRune(r, hexRune(text[8:])); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return r, 6
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
