// Package settings has what the Config structs of the product's parts share: how fields that are
// left out get their defaults, and how a bound without sense is refused.
//
// What may not enter: the settings of any part, and their defaults, which are in config.
package settings

import (
	"fmt"
	"reflect"
	"time"
)

// Or returns c with the fields that it leaves out taken from defaults, those of
// structs in it one by one. A field is left out when it has its zero value.
func Or[T any](c, defaults T) T {
	fill(reflect.ValueOf(&c).Elem(), reflect.ValueOf(defaults))
	return c
}

func fill(v, defaults reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.Kind() == reflect.Struct:
			fill(f, defaults.Field(i))
		case f.IsZero() && f.CanSet():
			f.Set(defaults.Field(i))
		}
	}
}

// Positive refuses a bound that is left out or makes no sense: with "invalid
// name value: want more than 0".
func Positive[T int | int32 | int64 | float64 | time.Duration](name string, value T) error {
	if value > 0 {
		return nil
	}
	return fmt.Errorf("invalid %s %v: want more than 0", name, value)
}
