package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Input returns the task's context as stored. Do not change it.
func (c *StepContext) Input() json.RawMessage { return c.x.Claim.Context }

// InputAs decodes the task's context.
func InputAs[T any](c *StepContext) (T, error) {
	var v T
	if err := decodeInto(c.x.Claim.Context, &v, false); err != nil {
		return v, fmt.Errorf("decode the task's context: %w", err)
	}
	return v, nil
}

// InputValue returns one field of the task's context as Go's JSON types; numbers are
// json.Number, because a float64 would change large ones. ok is false if the field does
// not exist. Field is the typed form.
func (c *StepContext) InputValue(key string) (value any, ok bool) {
	fields, err := c.fields()
	if err != nil {
		return nil, false
	}
	raw, ok := fields[key]
	if !ok {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, false
	}
	return value, true
}

// Field decodes one field of the task's context. The error wraps ErrAbsent if the field
// does not exist.
func Field[T any](c *StepContext, key string) (T, error) {
	var v T
	fields, err := c.fields()
	if err != nil {
		return v, fmt.Errorf("read the field %q of the task's context: %w", key, err)
	}
	raw, ok := fields[key]
	if !ok {
		return v, fmt.Errorf("the field %q of the task's context is %w", key, ErrAbsent)
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("decode the field %q of the task's context: %w", key, err)
	}
	return v, nil
}

// FieldOr is Field with a value for a field that does not exist or is null. A field of
// another type is still an error.
func FieldOr[T any](c *StepContext, key string, absent T) (T, error) {
	if fields, err := c.fields(); err == nil && string(fields[key]) == "null" {
		return absent, nil
	}
	v, err := Field[T](c, key)
	if errors.Is(err, ErrAbsent) {
		return absent, nil
	}
	return v, err
}

// fields splits the context into its fields, once per execution.
func (c *StepContext) fields() (map[string]json.RawMessage, error) {
	c.decode.Do(func() {
		if err := decodeInto(c.x.Claim.Context, &c.decoded, false); err != nil {
			c.decodeErr = fmt.Errorf("the task's context is not an object: %w", err)
		}
	})
	return c.decoded, c.decodeErr
}
