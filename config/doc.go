// Package config turns TOML files and environment variables into one checked,
// typed value per daemon.
//
// Every key has exactly one annotation, a [Key] in the keys_*.go tables: its
// type, default, allowed values, meaning, and the variable that overrides it.
// Checking, [Explain], [Loaded.Show], [Generate] and [ReferenceMarkdown] are
// all drawn from it, so they cannot disagree. To add a key, add its annotation
// and a field in the struct of its table; tests fail until both exist.
//
// [Load] reads the layers, reports everything that is wrong at once with file,
// line and column, and never shows a secret. A condition on one value belongs
// to its annotation, a condition between keys to rules.go.
//
// The package decides nothing about how the values are used, opens no
// connection, and imports nothing of this module but deploymode. Client
// profiles of the command line are not read here.
package config
