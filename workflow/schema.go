package workflow

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxSchemaViolations bounds what Validate reports.
const maxSchemaViolations = 20

// InputSchema is the compiled input_schema of a template. It is immutable and
// safe for concurrent use; the nil *InputSchema accepts every context.
type InputSchema struct{ schema *jsonschema.Schema }

// SchemaViolation is one way in which a context breaks the schema. It contains what is
// expected, never what was sent.
type SchemaViolation struct {
	Path    string `json:"path"` // JSON pointer into the context; "" is the context itself
	Message string `json:"message"`
}

// CompileInputSchema prepares the input_schema of a template for use; nil
// without an error when it has none. The schema is read as draft 2020-12
// unless it says otherwise; "format" is not enforced and nothing outside the
// schema is ever loaded. A template from ParseTemplate always compiles.
func CompileInputSchema(t *Template) (*InputSchema, error) {
	if len(t.InputSchema) == 0 {
		return nil, nil
	}
	value, err := decodeValue(t.InputSchema)
	if err != nil {
		return nil, fmt.Errorf("input_schema of template %s/%s:%s is not JSON: %w", t.Namespace, t.Name, t.Version, err)
	}
	if value == nil {
		return nil, nil
	}
	schema, faults := compileSchema(value)
	if len(faults) > 0 {
		return nil, fmt.Errorf("input_schema of template %s/%s:%s is invalid at %q: %s", t.Namespace, t.Name, t.Version, jsonPointer(faults[0].pointer), faults[0].message)
	}
	return &InputSchema{schema: schema}, nil
}

// Validate checks a task context: a value as encoding/json decodes it, or
// anything that encoding/json can encode. It returns nil when the context fits
// and otherwise up to 20 violations, ordered by path.
func (s *InputSchema) Validate(context any) []SchemaViolation {
	if s == nil {
		return nil
	}
	context, err := jsonValue(context)
	if err != nil {
		return []SchemaViolation{{Message: "is not a JSON value: " + cleanMessage(err.Error())}}
	}
	err = s.schema.Validate(context)
	if err == nil {
		return nil
	}
	var failed *jsonschema.ValidationError
	if !errors.As(err, &failed) {
		return []SchemaViolation{{Message: "cannot be checked: " + cleanMessage(err.Error())}}
	}
	found := collectViolations(failed)
	slices.SortFunc(found, func(a, b SchemaViolation) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	found = slices.Compact(found)
	return found[:min(len(found), maxSchemaViolations)]
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
	v, err := decodeValue(data)
	if err == nil && !isJSONValue(v, 0) {
		err = errors.New("it is nested too deeply or has a number beyond all bounds")
	}
	return v, err
}

// maxContextDepth is far above what the API accepts.
const maxContextDepth = 1_000

// isJSONValue reports whether the validator can use the value unchanged. A number such as
// 1e999999 would make it build a number of a million digits.
func isJSONValue(v any, depth int) bool {
	if depth > maxContextDepth {
		return false
	}
	switch v := v.(type) {
	case nil, bool, string, int, int32, int64, uint64:
		return true
	case float64:
		return !math.IsInf(v, 0) && !math.IsNaN(v)
	case json.Number:
		f, err := v.Float64()
		return err == nil && CheckNumber(v.String()) == nil && (f != 0 || !strings.ContainsAny(v.String(), "eE"))
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

// jsonPointer joins the parts of a pointer as RFC 6901 does.
func jsonPointer(parts []string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var b strings.Builder
	for _, part := range parts {
		b.WriteByte('/')
		b.WriteString(escape.Replace(part))
	}
	return b.String()
}
