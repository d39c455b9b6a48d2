package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Free-form values of a template (metadata, initialization, schemas) are held
// as encoding/json holds them, except that every number is a json.Number in
// one canonical spelling. So integers beyond 2^53 stay exact, 1.0 stays
// distinct from 1, and a template that has been through a jsonb column has the
// same content hash as before.

// decodeValue reads one JSON value into its canonical form.
func decodeValue(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("text after the JSON value")
	}
	return canonicalValue(v), nil
}

// decodeObject reads a JSON object, or null, into its canonical form; nil
// stands for both null and the empty object.
func decodeObject(data json.RawMessage) (map[string]any, error) {
	if len(data) == 0 {
		return nil, nil
	}
	v, err := decodeValue(data)
	if err != nil || v == nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("a JSON object is needed, not %s", jsonTypeName(v))
	}
	if len(m) == 0 {
		return nil, nil
	}
	return m, nil
}

// canonicalRaw rewrites a JSON text: no spaces, sorted keys, canonical numbers.
// Null and the empty text become nil.
func canonicalRaw(data json.RawMessage) (json.RawMessage, error) {
	if len(data) == 0 {
		return nil, nil
	}
	v, err := decodeValue(data)
	if err != nil || v == nil {
		return nil, err
	}
	return json.Marshal(v)
}

// canonicalValue respells the numbers of a decoded JSON value in place.
func canonicalValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = canonicalValue(e)
		}
	case []any:
		for i, e := range v {
			v[i] = canonicalValue(e)
		}
	case json.Number:
		return canonicalNumber(v)
	}
	return v
}

// canonicalNumber respells a JSON number: an integer that fits 64 bits in plain digits,
// anything else as the nearest float, or with all its digits where no float carries it.
func canonicalNumber(n json.Number) json.Number {
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
	return decimalNumber(text, f)
}

// decimalNumber spells a JSON number with the nearest float f. A number nearest to zero is
// zero: with its exponent written out it would be endless.
func decimalNumber(text string, f float64) json.Number {
	if d := decimalOf([]byte(text)); f != 0 && !d.carriedBy(f) && CheckNumber(text) == nil {
		return json.Number(d.append(nil))
	}
	return floatNumber(f)
}

// floatNumber spells a finite float. Whole numbers below 2^64 keep a ".0", so
// that they do not turn into integers on the way through a database.
func floatNumber(f float64) json.Number {
	if f == 0 {
		return "0.0" // not "-0.0", which a numeric column cannot hold
	}
	if f == math.Trunc(f) && math.Abs(f) < 1<<64 {
		return json.Number(strconv.FormatFloat(f, 'f', 1, 64))
	}
	return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
}

// copyValue is a deep copy of a free-form value.
func copyValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return copyMap(v)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = copyValue(e)
		}
		return out
	}
	return v
}

func copyMap(m map[string]any) map[string]any {
	if m == nil {
		return nil
	}
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = copyValue(v)
	}
	return out
}

// sortedKeys gives map walks a stable order, so that findings are deterministic.
func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

// jsonTypeName names the JSON type of a decoded value, with its article.
func jsonTypeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	case json.Number, float64, float32, int, int32, int64, uint64:
		return "a number"
	}
	return "something else"
}
