package transcode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/tasker-go/tasker/internal/jsonscan"
)

// A Struct has all numbers as doubles. A number is never changed on the way: what a double
// cannot carry, and what may have been another number before it was one, is an InexactError.

// InexactError says that a Struct cannot carry a number of a document.
type InexactError struct {
	Path   string // from the field on: context.order.lines[2].amount
	Number string
}

// Error implements error.
func (e *InexactError) Error() string {
	return fmt.Sprintf("invalid number %.64s in %s: want one that a double of google.protobuf.Struct carries exactly, "+
		"or a text of its digits", e.Number, e.Path)
}

// structOf converts a JSON object; nil: it is none, for which Struct has no form.
func structOf(path string, raw json.RawMessage) (*structpb.Struct, error) {
	if trimmed := bytes.TrimLeft(raw, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		return nil, err
	}
	return fieldsOf(path, object)
}

func fieldsOf(path string, object map[string]any) (*structpb.Struct, error) {
	fields := make(map[string]*structpb.Value, len(object))
	for key, value := range object {
		var err error
		if fields[key], err = dynamic(path+"."+key, value); err != nil {
			return nil, err
		}
	}
	return &structpb.Struct{Fields: fields}, nil
}

// dynamic converts any value of JSON.
func dynamic(path string, value any) (*structpb.Value, error) {
	switch v := value.(type) {
	case bool:
		return structpb.NewBoolValue(v), nil
	case string:
		return structpb.NewStringValue(v), nil
	case json.Number:
		f, err := v.Float64()
		if err != nil || !jsonscan.Exact(v.String(), f) {
			return nil, &InexactError{Path: path, Number: v.String()}
		}
		return structpb.NewNumberValue(f), nil
	case map[string]any:
		object, err := fieldsOf(path, v)
		return structpb.NewStructValue(object), err
	case []any:
		list := &structpb.ListValue{Values: make([]*structpb.Value, len(v))}
		for i := range v {
			var err error
			if list.Values[i], err = dynamic(path+"["+strconv.Itoa(i)+"]", v[i]); err != nil {
				return nil, err
			}
		}
		return structpb.NewListValue(list), nil
	}
	return structpb.NewNullValue(), nil
}

// Object is a Struct of an answer as JSON; "{}" for none. A value that JSON does not have is an
// error.
func Object(s *structpb.Struct) (json.RawMessage, error) {
	if s == nil {
		return json.RawMessage("{}"), nil
	}
	raw, err := protojson.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("invalid value in a Struct: %w", err)
	}
	return raw, nil
}

// maxInteger is the largest integer of which no other one is the same double.
const maxInteger = 1<<53 - 1

// Sent is [Object] for the Struct of a request, in the field of this name. An integer beyond
// 2⁵³−1 is an [*InexactError]: its last digits may have been others before it was a double.
func Sent(field string, s *structpb.Struct) (json.RawMessage, error) {
	if err := doubtful(field, structpb.NewStructValue(s)); err != nil {
		return nil, err
	}
	return Object(s)
}

func doubtful(path string, value *structpb.Value) error {
	switch v := value.GetKind().(type) {
	case *structpb.Value_NumberValue:
		if math.Abs(v.NumberValue) > maxInteger && !math.IsInf(v.NumberValue, 0) {
			return &InexactError{Path: path, Number: strconv.FormatFloat(v.NumberValue, 'f', 0, 64)}
		}
	case *structpb.Value_StructValue:
		for key, field := range v.StructValue.GetFields() {
			if err := doubtful(path+"."+key, field); err != nil {
				return err
			}
		}
	case *structpb.Value_ListValue:
		for i, element := range v.ListValue.GetValues() {
			if err := doubtful(path+"["+strconv.Itoa(i)+"]", element); err != nil {
				return err
			}
		}
	}
	return nil
}
