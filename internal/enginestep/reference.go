package enginestep

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tasker-go/tasker/internal/wording"
)

// A reference is a text that refers to a value of the task: $.context.a.b, $.steps.NAME.a of
// a direct dependency, $.task.uuid. A text that begins with $$. is itself without the first
// $.
const (
	referencePrefix = "$."
	escapedPrefix   = "$$."
)

// taskReferences are the names allowed after $.task.
var taskReferences = []string{"uuid", "correlation_id", "namespace", "name", "version", "priority"}

// IsReference reports whether a text is a reference to a value of the task.
func IsReference(text string) bool { return strings.HasPrefix(text, referencePrefix) }

// CheckReference validates a reference; parents are the steps whose results are available.
func CheckReference(text string, parents []string) error {
	parts := strings.Split(strings.TrimPrefix(text, referencePrefix), ".")
	if slices.Contains(parts, "") {
		return fmt.Errorf("%.64q has an empty part", text)
	}
	switch parts[0] {
	case "context":
		return nil
	case "task":
		if len(parts) != 2 || !slices.Contains(taskReferences, parts[1]) {
			return fmt.Errorf("%.64q is not known; $.task has %s", text, strings.Join(taskReferences, ", "))
		}
		return nil
	case "steps":
		if len(parts) < 2 {
			return fmt.Errorf("%.64q names no step", text)
		}
		if !slices.Contains(parents, parts[1]) {
			return fmt.Errorf("%.64q is of a step that this one does not depend on", text)
		}
		return nil
	}
	return fmt.Errorf("%.64q begins with none of $.context, $.steps and $.task", text)
}

// Scope holds the values that references resolve to.
type Scope struct {
	Context json.RawMessage
	Steps   map[string]json.RawMessage // results of the direct dependencies that have one, by name
	Task    map[string]any             // see taskReferences
}

// value resolves a reference.
func (s *Scope) value(text string) (any, error) {
	parts := strings.Split(strings.TrimPrefix(text, referencePrefix), ".")
	at, rest := any(nil), parts[1:]
	switch parts[0] {
	case "context":
		v, err := decoded(s.Context)
		if err != nil {
			return nil, fmt.Errorf("read the context: %w", err)
		}
		at = v
	case "task":
		at = s.Task
	case "steps":
		result, there := s.Steps[parts[1]]
		if !there {
			return nil, fmt.Errorf("%s: step %q has no result", wording.Clip(text, 128), wording.Clip(parts[1], 64))
		}
		v, err := decoded(result)
		if err != nil {
			return nil, fmt.Errorf("read the result of step %.64q: %w", parts[1], err)
		}
		at, rest = v, parts[2:]
	}
	for i, part := range rest {
		next, there := member(at, part)
		if !there {
			return nil, fmt.Errorf("%s: there is no %.128q", text, wording.Clip(strings.Join(parts[:len(parts)-len(rest)+i+1], "."), 128))
		}
		at = next
	}
	return at, nil
}

func member(of any, name string) (any, bool) {
	switch of := of.(type) {
	case map[string]any:
		v, there := of[name]
		return v, there
	case []any:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(of) {
			return of[i], true
		}
	}
	return nil, false
}

// expand replaces the references in a decoded JSON value.
func (s *Scope) expand(v any) (any, error) {
	switch v := v.(type) {
	case string:
		switch {
		case IsReference(v):
			return s.value(v)
		case strings.HasPrefix(v, escapedPrefix):
			return v[1:], nil
		}
	case []any:
		list := make([]any, len(v))
		for i := range v {
			x, err := s.expand(v[i])
			if err != nil {
				return nil, err
			}
			list[i] = x
		}
		return list, nil
	case map[string]any:
		object := make(map[string]any, len(v))
		for name, x := range v {
			expanded, err := s.expand(x)
			if err != nil {
				return nil, err
			}
			object[name] = expanded
		}
		return object, nil
	}
	return v, nil
}

// text resolves a setting that is a text; the referenced value may be a number.
func (s *Scope) text(setting string) (string, error) {
	v, err := s.expand(setting)
	if err != nil {
		return "", err
	}
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case int:
		return strconv.Itoa(v), nil
	}
	return "", fmt.Errorf("%s is %s, and a text is needed", wording.Clip(setting, 128), jsonTypeName(v))
}

// decoded is a JSON value with its numbers as they are written.
func decoded(raw json.RawMessage) (v any, err error) {
	if len(raw) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return v, d.Decode(&v)
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
