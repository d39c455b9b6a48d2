package config

import (
	"fmt"
	"log/slog"
)

// Secret is a string that must not be shown: a key or a token. Formatting,
// logging and marshalling give Masked; only Reveal gives the value.
type Secret string

// Reveal returns the value, for the one place that needs it.
func (s Secret) Reveal() string { return string(s) }

// String returns Masked, or nothing for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return Masked
}

// GoString implements fmt.GoStringer with the masked form.
func (s Secret) GoString() string { return fmt.Sprintf("config.Secret(%q)", s.String()) }

// MarshalText implements encoding.TextMarshaler with the masked form.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue implements slog.LogValuer with the masked form.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// DSN is a connection string. Formatting, logging and marshalling hide its
// password; only Reveal gives all of it.
type DSN string

// Reveal returns the whole connection string, for the one place that connects.
func (d DSN) Reveal() string { return string(d) }

// String returns the connection string without its password, and Masked for
// what does not look like a connection string.
func (d DSN) String() string {
	if d == "" || isConnection(string(d)) {
		return Redact(string(d))
	}
	return Masked
}

// GoString implements fmt.GoStringer with the masked form.
func (d DSN) GoString() string { return fmt.Sprintf("config.DSN(%q)", d.String()) }

// MarshalText implements encoding.TextMarshaler with the masked form.
func (d DSN) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// LogValue implements slog.LogValuer with the masked form.
func (d DSN) LogValue() slog.Value { return slog.StringValue(d.String()) }
