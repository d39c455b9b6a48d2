package client

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// decode reads an answer and checks that no required field is missing: a field without
// omitempty must be present, and may be null only if Go has a nil for it.
func decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if missing := missingField(body, reflect.TypeOf(into).Elem(), ""); missing != "" {
		return fmt.Errorf("read the answer: the required field %s is missing", missing)
	}
	return nil
}

// missingField returns the path of the first required field that raw lacks.
func missingField(raw json.RawMessage, t reflect.Type, path string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if isNull(raw) || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return ""
	}
	switch t.Kind() {
	case reflect.Struct:
		return missingInStruct(raw, t, path)
	case reflect.Slice:
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			return ""
		}
		for i, element := range list {
			if missing := missingField(element, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); missing != "" {
				return missing
			}
		}
	case reflect.Map:
		var entries map[string]json.RawMessage
		if json.Unmarshal(raw, &entries) != nil {
			return ""
		}
		for key, entry := range entries {
			if missing := missingField(entry, t.Elem(), join(path, key)); missing != "" {
				return missing
			}
		}
	}
	return ""
}

func missingInStruct(raw json.RawMessage, t reflect.Type, path string) string {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return ""
	}
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		value, there := object[name]
		required := !strings.Contains(options, "omit")
		if required && (!there || isNull(value) && !nullable(field.Type)) {
			return join(path, name)
		}
		if there {
			if missing := missingField(value, field.Type, join(path, name)); missing != "" {
				return missing
			}
		}
	}
	return ""
}

func nullable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		return true
	}
	return false
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
