package jsonscan

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// The limits of PostgreSQL's jsonb, reduced where they depend on the server's settings.
const (
	// MaxStorableNesting is how many arrays and objects may be inside each other.
	MaxStorableNesting = 100
	maxMagnitude       = 309     // digits before the decimal point: what a float64 can hold
	maxScale           = 16383   // digits after it
	maxWrittenExponent = 100_000 // also of zeros, which jsonb reads like any number
)

// CheckStorable validates every JSON document that is stored: the contexts and results of
// tasks, checkpoints, events, decisions, templates. Its error says why jsonb would reject
// the document, or why readers of it would fail: not JSON, not UTF-8 (json.Marshal passes
// through what a value encodes itself), a NUL character, half a surrogate pair, a number out
// of range, nested too deeply.
func CheckStorable(doc []byte) error {
	if !utf8.Valid(doc) {
		return errors.New("it is not UTF-8 text")
	}
	s := New(doc)
	for t, ok := s.Next(); ok; t, ok = s.Next() {
		if s.depth > MaxStorableNesting {
			return fmt.Errorf("it is nested more than %d levels deep", MaxStorableNesting)
		}
		if err := CheckToken(doc, t); err != nil {
			what := "text"
			if t.Kind == Integer || t.Kind == Decimal {
				what = "number"
			}
			return fmt.Errorf("a %s in it %w", what, err)
		}
	}
	return s.Err()
}

// CheckToken is the part of CheckStorable that concerns one token of a text, of which the
// error is said.
func CheckToken(text []byte, t Token) error {
	switch {
	case t.Kind == Integer || t.Kind == Decimal:
		return checkNumber(text[t.Start:t.End])
	case t.Spelling&Escaped != 0:
		return checkEscapes(text[t.Start:t.End])
	}
	return nil
}

// checkEscapes checks the characters that a string has as escapes.
func checkEscapes(text []byte) error {
	for i := 0; i < len(text); {
		r, size := rune(-1), 1
		if text[i] == '\\' {
			r, size = unescape(text[i:])
		}
		if r == 0 {
			return errors.New("contains the character NUL (\\u0000)")
		}
		if utf16.IsSurrogate(r) {
			return fmt.Errorf("contains half a surrogate pair (\\u%04x)", r)
		}
		i += size
	}
	return nil
}

// CheckNumber is CheckStorable for a number.
func CheckNumber(number string) error { return checkNumber([]byte(number)) }

// checkNumber checks the range of a valid JSON number.
func checkNumber(s []byte) error {
	magnitude, scale, ok := extent(s)
	if !ok || magnitude > maxMagnitude || scale > maxScale {
		return fmt.Errorf("is out of range: %.40s", s)
	}
	if magnitude == maxMagnitude {
		if _, err := strconv.ParseFloat(string(s), 64); err != nil {
			return fmt.Errorf("is out of range: %.40s", s)
		}
	}
	return nil
}

// extent returns the digits of a number before the decimal point (less than 1 below 0.1) and
// after it; false where its exponent is out of range.
func extent(s []byte) (magnitude, scale int, ok bool) {
	whole, fraction, leading := 0, 0, 0 // digits; leading zeros of the fraction
	significant, point := false, false
	i := 0
	for ; i < len(s) && s[i] != 'e' && s[i] != 'E'; i++ {
		switch c := s[i]; {
		case c == '.':
			point = true
		case c < '0' || c > '9': // the sign
		case point:
			fraction++
			if significant = significant || c != '0'; !significant {
				leading++
			}
		default:
			if significant = significant || c != '0'; significant {
				whole++
			}
		}
	}
	exponent := 0
	if i < len(s) {
		var err error
		if exponent, err = strconv.Atoi(string(s[i+1:])); err != nil || exponent > maxWrittenExponent || exponent < -maxWrittenExponent {
			return 0, 0, false
		}
	}
	scale = fraction - exponent
	if !significant {
		return 0, scale, true // zero in any spelling
	}
	if whole == 0 {
		return exponent - leading, scale, true
	}
	return whole + exponent, scale, true
}
