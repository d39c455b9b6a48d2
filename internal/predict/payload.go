package predict

import (
	"encoding/json"
	"strings"
)

// MaxContext bounds the contexts that features are read from: reading them takes time where
// steps are put in line.
const MaxContext = 256 << 10

const maxClass = 64 // bytes of a class

// Values reads declared features from the context of a task. "order.total" is the number at
// that path, "count:order.items" how many elements the list or keys the object there has,
// and "size:document" how many bytes of JSON. What is not there, or is something else, is 0.
// It returns nil where the context is not available, or is too large to be read.
func Values(features []string, context []byte) []float64 {
	if len(features) == 0 || len(context) == 0 || len(context) > MaxContext {
		return nil
	}
	values := make([]float64, len(features))
	for i, f := range features {
		if path, ok := strings.CutPrefix(f, "count:"); ok {
			values[i] = count(at(context, path))
		} else if path, ok := strings.CutPrefix(f, "size:"); ok {
			values[i] = float64(len(at(context, path)))
		} else {
			_ = json.Unmarshal(at(context, f), &values[i]) // of what is no number: 0
		}
	}
	return values
}

// at returns the value at a path, nil if there is none.
func at(value json.RawMessage, path string) json.RawMessage {
	for key := range strings.SplitSeq(path, ".") {
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) != nil {
			return nil
		}
		value = object[key]
	}
	return value
}

func count(value json.RawMessage) float64 {
	var list []json.RawMessage
	if json.Unmarshal(value, &list) == nil {
		return float64(len(list))
	}
	var object map[string]json.RawMessage
	_ = json.Unmarshal(value, &object) // of what is neither: 0
	return float64(len(object))
}

// Class reads the class of a task, a text at a path of its context; "": it has none. What is
// longer than 64 bytes is none.
func Class(path string, context []byte) (class string) {
	if path == "" || len(context) == 0 || len(context) > MaxContext {
		return ""
	}
	_ = json.Unmarshal(at(context, path), &class) // of what is no text: none
	if len(class) > maxClass {
		return ""
	}
	return class
}
