package config

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"
)

// masked stands in for a secret wherever a value is shown.
const masked = "****"

// The patterns of what hides secrets and of what may be shown in part.
var (
	// Greedy up to the last @: a password may itself contain one, or a space,
	// and masking too much is the safe mistake.
	urlPassword     = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://[^\s:/@?#]*):.*@`)
	keywordPassword = regexp.MustCompile(`(?i)((?:ssl)?password|passwd|pwd|token|secret|api_?key)(\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s&']+)`)
	connectionURL   = regexp.MustCompile(`^(postgres(ql)?|rediss?|amqps?|tcp|memcached?|unix|https?)://`)
	connectionWords = regexp.MustCompile(`^\s*(host|hostaddr|port|dbname|user)\s*=`)
)

// Redact masks the password of connection strings inside s: the password of
// a URL's user part, password-like query parameters, and password=… of the
// key=value form. Text without any is returned as it is.
func Redact(s string) string {
	s = urlPassword.ReplaceAllString(s, "${1}:"+masked+"@")
	return keywordPassword.ReplaceAllString(s, "${1}${2}"+masked)
}

// shown renders the value of a key for people, masked as the key demands.
func shown(k *Key, value any) string {
	s, isString := value.(string)
	switch {
	case k.Type == typeTables: // what stands in them may be secret
		tables, _ := value.([]map[string]any)
		return fmt.Sprintf("[%d tables]", len(tables))
	case !k.Secret && isString:
		return quote(Redact(s))
	case !k.Secret:
		return Redact(literal(value))
	case !isString:
		return masked
	case s == "":
		return `""`
	case k.connection && (isConnection(s) || strings.Contains(s, "${")):
		return quote(Redact(s))
	}
	return quote(masked)
}

// isConnection reports whether s is a connection string, of which everything
// but the password may be shown.
func isConnection(s string) bool {
	return connectionURL.MatchString(s) || connectionWords.MatchString(s)
}

// DSN is a connection string. Formatting, logging and marshalling hide its
// password; only Reveal gives all of it.
type DSN string

// Reveal returns the whole connection string, for the one place that connects.
func (d DSN) Reveal() string { return string(d) }

// String returns the connection string without its password, and masked for
// what does not look like a connection string.
func (d DSN) String() string {
	if d == "" || isConnection(string(d)) {
		return Redact(string(d))
	}
	return masked
}

// GoString implements fmt.GoStringer with the masked form.
func (d DSN) GoString() string { return fmt.Sprintf("config.DSN(%q)", d.String()) }

// MarshalText implements encoding.TextMarshaler with the masked form.
func (d DSN) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// LogValue implements slog.LogValuer with the masked form.
func (d DSN) LogValue() slog.Value { return slog.StringValue(d.String()) }

// Secret is a text that is never shown. Formatting, logging and marshalling mask it; only
// Reveal gives it.
type Secret string

// Reveal returns the secret, for the one place that uses it.
func (s Secret) Reveal() string { return string(s) }

// String returns asterisks, and nothing for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return masked
}

// GoString implements fmt.GoStringer with the masked form.
func (s Secret) GoString() string { return fmt.Sprintf("config.Secret(%q)", s.String()) }

// MarshalText implements encoding.TextMarshaler with the masked form.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue implements slog.LogValuer with the masked form.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
