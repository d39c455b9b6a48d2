package config

import (
	"sync"
)

// Defaults are those of all keys, without the overlay of an environment, a file
// or a variable; there is no database. Parts that can be used without a daemon
// take their defaults from here, so that there is one place for them. They must
// not be changed.
func Defaults() (*Loaded, error) { return defaults() }

var defaults = sync.OnceValues(func() (*Loaded, error) {
	return Load(Options{bare: true, LookupEnv: func(string) (string, bool) { return "", false }})
})
