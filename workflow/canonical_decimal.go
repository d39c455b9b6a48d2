package workflow

import (
	"bytes"
	"math"
	"strconv"
)

const (
	// surelyCarried is how many significant digits every normal double carries.
	surelyCarried = 15
	// longestDouble is the number of digits of the longest double, written out in full.
	longestDouble  = 767
	smallestNormal = 0x1p-1022
)

// decimal is a number as it is written: 0.d₁d₂d₃… × 10^exponent, with neither
// leading nor trailing zeros; no digits are zero.
type decimal struct {
	negative bool
	digits   []byte
	exponent int64
}

// significant counts the digits of a valid JSON number from the first to the last
// that is not zero.
func significant(text []byte) (n int) {
	counted := 0
	for _, c := range text {
		switch {
		case c == 'e' || c == 'E':
			return n
		case c == '-' || c == '.' || c == '0' && counted == 0:
			continue
		}
		if counted++; c != '0' {
			n = counted
		}
	}
	return n
}

// decimalOf reads a valid JSON number with an exponent that storable documents may have.
func decimalOf(text []byte) (d decimal) {
	if text[0] == '-' {
		d.negative, text = true, text[1:]
	}
	if at := bytes.IndexAny(text, "eE"); at >= 0 {
		// Beyond 64 bits it is the nearest one that fits.
		d.exponent, _ = strconv.ParseInt(string(text[at+1:]), 10, 64)
		d.exponent = min(max(d.exponent, math.MinInt32), math.MaxInt32)
		text = text[:at]
	}
	whole, fraction, _ := bytes.Cut(text, []byte{'.'})
	digits := whole
	if len(fraction) > 0 {
		digits = append(append(make([]byte, 0, len(text)), whole...), fraction...)
	}
	d.exponent += int64(len(whole))
	d.digits = bytes.TrimLeft(digits, "0")
	d.exponent -= int64(len(digits) - len(d.digits))
	d.digits = bytes.TrimRight(d.digits, "0")
	return d
}

// carriedBy reports whether f, the double nearest to the number, yields the number again
// when written with as many digits. This holds for every number that a program wrote from a
// double, with 15 digits, 17, the shortest form or all digits.
func (d decimal) carriedBy(f float64) bool {
	n := len(d.digits)
	if f == 0 || n > longestDouble {
		return n == 0
	}
	again := decimalOf(strconv.AppendFloat(nil, f, 'e', n-1, 64))
	return again.exponent == d.exponent && bytes.Equal(again.digits, d.digits)
}

// append appends the number with all its digits, as d.ddde+n.
func (d decimal) append(b []byte) []byte {
	if d.negative {
		b = append(b, '-')
	}
	b = append(b, d.digits[0])
	if len(d.digits) > 1 {
		b = append(append(b, '.'), d.digits[1:]...)
	}
	b = append(b, 'e')
	if d.exponent > 0 {
		b = append(b, '+')
	}
	return strconv.AppendInt(b, d.exponent-1, 10)
}
