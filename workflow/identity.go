package workflow

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Identity is the hash that makes two submissions the same task.
type Identity [sha256.Size]byte

// ContextIdentity is the identity of a task that gives no idempotency key: the
// namespace, the name (not the version) and the canonical context.
func ContextIdentity(namespace, name string, context json.RawMessage) (Identity, error) {
	canonical, err := CanonicalJSON(context)
	if err != nil {
		return Identity{}, fmt.Errorf("canonicalise the context: %w", err)
	}
	return identity("context", namespace, name, string(canonical)), nil
}

// KeyIdentity is the identity of a task that gives an idempotency key.
func KeyIdentity(namespace, name, key string) Identity {
	return identity("key", namespace, name, key)
}

// identity hashes its parts with their lengths, so that no two lists of parts
// collide by moving text from one part to the next.
func identity(parts ...string) Identity {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return Identity(h.Sum(nil))
}

// CanonicalJSON writes a JSON value in the form of RFC 8785: no white space,
// object keys sorted by UTF-16 code units, shortest strings and numbers.
//
// It departs from the RFC in one place: an integer that a double cannot hold
// keeps its digits, because two payments that differ in the last digit of a
// large number are two payments.
func CanonicalJSON(value json.RawMessage) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	if d.More() {
		return nil, fmt.Errorf("read JSON: more than one value")
	}
	return appendCanonical(nil, v)
}

func appendCanonical(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case string:
		return appendString(b, v), nil
	case json.Number:
		return appendNumber(b, v)
	case []any:
		return appendArray(b, v)
	case map[string]any:
		return appendObject(b, v)
	default:
		return nil, fmt.Errorf("no JSON value: %T", v)
	}
}

func appendArray(b []byte, list []any) ([]byte, error) {
	var err error
	b = append(b, '[')
	for i, e := range list {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendCanonical(b, e); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func appendObject(b []byte, object map[string]any) ([]byte, error) {
	keys := make([]string, 0, len(object))
	for k := range object {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(x, y string) int {
		return slices.Compare(utf16.Encode([]rune(x)), utf16.Encode([]rune(y)))
	})
	var err error
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, k), ':')
		if b, err = appendCanonical(b, object[k]); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			_, size := utf8.DecodeRuneInString(s[i:])
			b = append(b, s[i:i+size]...)
			i += size
			continue
		}
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
		i++
	}
	return append(b, '"')
}

// maxSafeInteger is the largest integer up to which a double holds every one.
const maxSafeInteger = 1<<53 - 1

func exactAsDouble(n json.Number) bool {
	i, err := n.Int64()
	return err == nil && i <= maxSafeInteger && i >= -maxSafeInteger
}

// appendNumber follows ECMAScript's Number::toString, as RFC 8785 asks.
func appendNumber(b []byte, n json.Number) ([]byte, error) {
	text := n.String()
	if !strings.ContainsAny(text, ".eE") {
		if !exactAsDouble(n) {
			return append(b, text...), nil
		}
	}
	f, err := n.Float64()
	if err != nil || math.IsInf(f, 0) {
		return nil, fmt.Errorf("number %s is out of range", text)
	}
	if f == 0 {
		return append(b, '0'), nil
	}
	if abs := math.Abs(f); abs >= 1e21 || abs < 1e-6 {
		e := strconv.AppendFloat(nil, f, 'e', -1, 64)
		// Go writes at least two digits of exponent, ECMAScript as few as it takes.
		mantissa, exponent, _ := bytes.Cut(e, []byte("e"))
		sign, digits := exponent[0], bytes.TrimLeft(exponent[1:], "0")
		b = append(append(b, mantissa...), 'e', sign)
		return append(b, digits...), nil
	}
	return strconv.AppendFloat(b, f, 'f', -1, 64), nil
}
