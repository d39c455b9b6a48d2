package config

import "sync"

// Defaults is what a daemon runs with when nothing is set: no file, no
// variable. It has no database. Parts that can be used without a daemon take
// their defaults from here, so that there is one place for them. It must not
// be changed.
func Defaults() (*Loaded, error) { return defaults() }

var defaults = sync.OnceValues(func() (*Loaded, error) {
	return Load(Options{LookupEnv: func(string) (string, bool) { return "", false }})
})
