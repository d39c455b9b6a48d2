package config

import (
	"fmt"
	"reflect"
	"sync"
	"time"
)

// Defaults are those of all keys, without the overlay of an environment, a file
// or a variable; there is no database. Parts that can be used without a daemon
// take their defaults from here, so that there is one place for them. They must
// not be changed.
func Defaults() (*Loaded, error) { return defaults() }

var defaults = sync.OnceValues(func() (*Loaded, error) {
	return Load(Options{bare: true, LookupEnv: func(string) (string, bool) { return "", false }})
})

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
