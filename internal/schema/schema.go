package schema

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/internal/wording"
)

// maxViolations bounds what Validate reports, and the faults of one schema.
const maxViolations = 20

// Schema is a compiled JSON Schema. It is immutable and safe for concurrent use; the nil
// *Schema accepts every value.
type Schema struct{ compiled *jsonschema.Schema }

// Violation is one way in which a value breaks the schema. It contains what is expected, never
// what was sent.
type Violation struct {
	Path    string `json:"path"` // JSON pointer into the value; "" is the value itself
	Message string `json:"message"`
}

// Fault is a fault of a schema and its place.
type Fault struct {
	Pointer []string // the parts of the JSON pointer to it
	Message string
}

// Read compiles a schema from its JSON text; without a text, or for null, it is nil. The
// schema is read as draft 2020-12 unless it says otherwise; "format" is not enforced and
// nothing outside the schema is ever loaded. The error names the first fault.
func Read(doc json.RawMessage) (*Schema, error) {
	if len(doc) == 0 {
		return nil, nil
	}
	value, err := jsonscan.Decode(doc)
	if err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	if value == nil {
		return nil, nil
	}
	s, _, faults := Compile(value)
	if len(faults) > 0 {
		return nil, fmt.Errorf("invalid schema at %q: %s", Pointer(faults[0].Pointer), faults[0].Message)
	}
	return s, nil
}

// Compile compiles a decoded schema, which it changes, or returns its faults. Two habits of
// hand-written schemas that the standard rejects are repaired because their meaning is clear:
// a keyword without a value (an empty description:) is dropped, and required: true at a
// property becomes an entry in the required list of the enclosing object; hoisted are the
// places of the latter.
func Compile(value any) (s *Schema, hoisted [][]string, faults []Fault) {
	var r relaxing
	r.relax(value, nil)
	compiled, faults := compileAny(value)
	if faults != nil {
		return nil, r.hoisted, faults
	}
	return &Schema{compiled: compiled}, r.hoisted, nil
}

// Validate checks a value as encoding/json decodes it, or anything that encoding/json can
// encode. It returns nil when the value fits and otherwise up to 20 violations, ordered by
// path.
func (s *Schema) Validate(value any) []Violation {
	if s == nil {
		return nil
	}
	value, err := jsonValue(value)
	if err != nil {
		return []Violation{{Message: "is not a JSON value: " + wording.Line(err.Error())}}
	}
	err = s.compiled.Validate(value)
	if err == nil {
		return nil
	}
	var failed *jsonschema.ValidationError
	if !errors.As(err, &failed) {
		return []Violation{{Message: "cannot be checked: " + wording.Line(err.Error())}}
	}
	found := collectViolations(failed)
	slices.SortFunc(found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	found = slices.Compact(found)
	return found[:min(len(found), maxViolations)]
}

// jsonValue makes sure that the value consists only of types that the validator knows; other
// Go values are converted through their JSON text.
func jsonValue(v any) (any, error) {
	if data, ok := v.(json.RawMessage); ok {
		return decodeBounded(data)
	}
	if isJSONValue(v, 0) {
		return v, nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return decodeBounded(data)
}

func decodeBounded(data []byte) (any, error) {
	v, err := jsonscan.Decode(data)
	if err == nil && !isJSONValue(v, 0) {
		err = errors.New("it is nested too deeply or has a number beyond all bounds")
	}
	return v, err
}

// maxDepth is far above what the API accepts.
const maxDepth = 1_000

// isJSONValue reports whether the validator can use the value unchanged. A number such as
// 1e999999 would make it build a number of a million digits.
func isJSONValue(v any, depth int) bool {
	if depth > maxDepth {
		return false
	}
	switch v := v.(type) {
	case nil, bool, string, int, int32, int64, uint64:
		return true
	case float64:
		return !math.IsInf(v, 0) && !math.IsNaN(v)
	case json.Number:
		f, err := v.Float64()
		return err == nil && jsonscan.CheckNumber(v.String()) == nil && (f != 0 || !strings.ContainsAny(v.String(), "eE"))
	case []any:
		for _, e := range v {
			if !isJSONValue(e, depth+1) {
				return false
			}
		}
		return true
	case map[string]any:
		for _, e := range v {
			if !isJSONValue(e, depth+1) {
				return false
			}
		}
		return true
	}
	return false
}

// Pointer joins the parts of a pointer as RFC 6901 does.
func Pointer(parts []string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var b strings.Builder
	for _, part := range parts {
		b.WriteByte('/')
		b.WriteString(escape.Replace(part))
	}
	return b.String()
}
