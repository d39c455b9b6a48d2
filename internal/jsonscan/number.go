package jsonscan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Decode reads one JSON value as encoding/json does, except that every number is a json.Number
// in the spelling of Number.
func Decode(data []byte) (any, error) {
	var v any
	if err := Unmarshal(data, &v); err != nil {
		return nil, err
	}
	return Respell(v), nil
}

// Unmarshal is json.Unmarshal, except that a number in an interface is a json.Number: as a
// float64 it would lose digits.
func Unmarshal(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	err := d.Decode(into)
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		err = errors.New("text after the JSON value")
	}
	// A text that is no document is reported in the words of json.Unmarshal.
	var document json.RawMessage
	return cmp.Or(json.Unmarshal(data, &document), err)
}

// Respell puts the numbers of a decoded JSON value in the spelling of Number, in place, and
// returns the value.
func Respell(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = Respell(e)
		}
	case []any:
		for i, e := range v {
			v[i] = Respell(e)
		}
	case json.Number:
		return Number(v)
	}
	return v
}

// Number respells a JSON number: an integer that fits 64 bits in plain digits, anything else
// as the nearest float, or with all its digits where no float carries it. A number nearest to
// zero is zero: with its exponent written out it would be endless.
func Number(n json.Number) json.Number {
	text := n.String()
	if !strings.ContainsAny(text, ".eE") {
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			return json.Number(strconv.FormatInt(i, 10))
		}
		if u, err := strconv.ParseUint(text, 10, 64); err == nil {
			return json.Number(strconv.FormatUint(u, 10))
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return n // beyond a float64: kept as written
	}
	if d := decimalOf([]byte(text)); f != 0 && !d.carriedBy(f) && CheckNumber(text) == nil {
		return json.Number(d.append(nil))
	}
	return Float(f)
}

// Float spells a finite float. Whole numbers below 2^64 keep a ".0", so
// that they do not turn into integers on the way through a database.
func Float(f float64) json.Number {
	if f == 0 {
		return "0.0" // not "-0.0", which a numeric column cannot hold
	}
	if f == math.Trunc(f) && math.Abs(f) < 1<<64 {
		return json.Number(strconv.FormatFloat(f, 'f', 1, 64))
	}
	return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
}

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
	// Half-way between two numbers of n digits, rounding picks the even one and the shortest
	// form may be the other: 2⁻²⁴ ends in …0625, and is 5.960464477539063e-08.
	return d.equal(strconv.AppendFloat(nil, f, 'e', n-1, 64)) || d.equal(strconv.AppendFloat(nil, f, 'e', -1, 64))
}

// maxExact is the largest integer of which every double up to it is the only one near.
const maxExact = 1<<53 - 1

// Exact reports whether a double, the one nearest to a valid JSON number, yields the number
// again. Beyond the integers that all doubles have it is so only in the shortest form, which
// programs write: 9007199254740993 and 2⁶⁰ are not exact, 1e22 is.
func Exact(number string, f float64) bool {
	d := decimalOf([]byte(number))
	if math.Abs(f) > maxExact {
		return d.equal(strconv.AppendFloat(nil, f, 'e', -1, 64))
	}
	return d.carriedBy(f)
}

func (d decimal) equal(text []byte) bool {
	again := decimalOf(text)
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
