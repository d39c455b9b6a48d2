package workflow

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// The limits of PostgreSQL's jsonb, reduced where they depend on the server's settings.
const (
	// MaxStorableNesting is how many arrays and objects may be inside each other.
	MaxStorableNesting = 1000
	maxMagnitude       = 309     // digits before the decimal point: what a float64 can hold
	maxScale           = 16383   // digits after it
	maxWrittenExponent = 100_000 // also of zeros, which jsonb reads like any number
)

// CheckStorable validates every JSON document that is stored: the contexts and results of
// tasks, checkpoints, events, decisions, templates. Its error says why jsonb would reject
// the document, or why readers of it would fail: not UTF-8 (json.Marshal passes through what
// a value encodes itself), a NUL character, half a surrogate pair, a number out of range,
// nested too deeply. The caller must know that the document is JSON; it terminates for any
// input.
func CheckStorable(doc []byte) error {
	if !utf8.Valid(doc) {
		return errors.New("it is not UTF-8 text")
	}
	return scanDocument(doc)
}

// CheckNumber is CheckStorable for a number.
func CheckNumber(number string) error { return scanNumber([]byte(number)) }

// scanDocument walks over a valid document token by token.
func scanDocument(doc []byte) error {
	depth := 0
	for i := 0; i < len(doc); {
		switch c := doc[i]; {
		case c == '{' || c == '[':
			if depth++; depth > MaxStorableNesting {
				return fmt.Errorf("it is nested more than %d levels deep", MaxStorableNesting)
			}
			i++
		case c == '}' || c == ']':
			depth--
			i++
		case c == '"':
			n, err := scanString(doc[i:])
			if err != nil {
				return err
			}
			i += n
		case c == '-' || c >= '0' && c <= '9':
			n := numberLength(doc[i:])
			if err := scanNumber(doc[i : i+n]); err != nil {
				return err
			}
			i += n
		default:
			i++
		}
	}
	return nil
}

// scanString checks the string literal at the beginning of s and returns its
// length.
func scanString(s []byte) (int, error) {
	for i := 1; i < len(s); {
		switch s[i] {
		case '"':
			return i + 1, nil
		case '\\':
			if i+1 >= len(s) || s[i+1] != 'u' {
				i += 2
				continue
			}
			n, err := scanEscape(s[i:])
			if err != nil {
				return 0, err
			}
			i += n
		default:
			i++
		}
	}
	return 0, errors.New("a string does not end")
}

// scanEscape checks a \uXXXX escape, with the second one of a pair.
func scanEscape(s []byte) (int, error) {
	unit := codeUnit(s)
	switch {
	case unit == 0:
		return 0, errors.New("a text in it contains the character NUL (\\u0000)")
	case unit >= 0xdc00 && unit <= 0xdfff:
		return 0, fmt.Errorf("a text in it contains half a surrogate pair (\\u%04x)", unit)
	case unit >= 0xd800 && unit <= 0xdbff:
		if second := codeUnit(s[6:]); second < 0xdc00 || second > 0xdfff {
			return 0, fmt.Errorf("a text in it contains half a surrogate pair (\\u%04x)", unit)
		}
		return 12, nil
	}
	return 6, nil
}

// codeUnit reads a \uXXXX escape; -1 when there is none.
func codeUnit(s []byte) int64 {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return -1
	}
	unit, err := strconv.ParseInt(string(s[2:6]), 16, 32)
	if err != nil {
		return -1
	}
	return unit
}

func numberLength(s []byte) int {
	n := 0
	for n < len(s) {
		c := s[n]
		if (c < '0' || c > '9') && c != '+' && c != '-' && c != '.' && c != 'e' && c != 'E' {
			break
		}
		n++
	}
	return n
}

// scanNumber checks the range of a valid JSON number.
func scanNumber(s []byte) error {
	magnitude, scale, ok := extent(s)
	if !ok || magnitude > maxMagnitude || scale > maxScale {
		return fmt.Errorf("the number %.40s is out of range", s)
	}
	if magnitude == maxMagnitude {
		if _, err := strconv.ParseFloat(string(s), 64); err != nil {
			return fmt.Errorf("the number %.40s is out of range", s)
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
