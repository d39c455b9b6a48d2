package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// decode fills the typed parts from the checked values.
func (l *Loaded) decode() error {
	for path, part := range map[string]any{"common": &l.Common, "orchestration": &l.Orchestration, "worker": &l.Worker} {
		if err := l.fillTable(path, reflect.ValueOf(part).Elem()); err != nil {
			return err
		}
	}
	return nil
}

// fillTable sets the fields of a table whose keys have a value.
func (l *Loaded) fillTable(path string, table reflect.Value) error {
	for i := range table.NumField() {
		field, at := table.Type().Field(i), path
		if name, ok := field.Tag.Lookup("toml"); ok {
			at = joinPath(path, name)
		}
		if field.Type.Kind() == reflect.Struct {
			if err := l.fillTable(at, table.Field(i)); err != nil {
				return err
			}
			continue
		}
		e, ok := l.entries[at]
		if !ok {
			continue
		}
		value := inUnit(e.value, field.Type, unitOf(at))
		if !value.CanConvert(field.Type) {
			return fmt.Errorf("decode %s: %s does not hold %T", at, field.Type, e.value)
		}
		table.Field(i).Set(value.Convert(field.Type))
	}
	return nil
}

// inUnit turns the number of a key, or its list of numbers, into durations
// where its field holds durations.
func inUnit(value any, field reflect.Type, unit time.Duration) reflect.Value {
	switch v := value.(type) {
	case int64:
		if field == reflect.TypeFor[time.Duration]() {
			return reflect.ValueOf(time.Duration(v) * unit)
		}
	case float64:
		if field == reflect.TypeFor[time.Duration]() {
			return reflect.ValueOf(time.Duration(v * float64(unit)))
		}
	case []int64:
		list := make([]time.Duration, len(v))
		for i, n := range v {
			list[i] = time.Duration(n) * unit
		}
		return reflect.ValueOf(list)
	}
	return reflect.ValueOf(value)
}

// unitOf is the unit that the name of a key ends with; 0 where it has none.
func unitOf(path string) time.Duration {
	switch path[strings.LastIndexByte(path, '_')+1:] {
	case "ms":
		return time.Millisecond
	case "seconds":
		return time.Second
	case "minutes":
		return time.Minute
	case "hours":
		return time.Hour
	case "days":
		return 24 * time.Hour
	}
	return 0
}
