package config

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/tasker-go/tasker/internal/redact"
)

// masked stands in for a secret wherever a value is shown.
const masked = redact.Mask

// The patterns of what may be shown in part.
var (
	connectionURL   = regexp.MustCompile(`^(postgres(ql)?|rediss?|amqps?|tcp|memcached?|unix|https?)://`)
	connectionWords = regexp.MustCompile(`^\s*(host|hostaddr|port|dbname|user)\s*=`)
)

// shown renders the value of a key for people, masked as the key demands.
func shown(k *Key, value any) string {
	s, isString := value.(string)
	switch {
	case k.Type == typeTables: // what stands in them may be secret
		tables, _ := value.([]map[string]any)
		return fmt.Sprintf("[%d tables]", len(tables))
	case !k.Secret && isString:
		return quote(redact.Text(s))
	case !k.Secret:
		return redact.Text(literal(value))
	case !isString:
		return masked
	case s == "":
		return `""`
	case k.connection && (isConnection(s) || strings.Contains(s, "${")):
		return quote(redact.Text(s))
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

// Reveal returns the whole connection string, for the one place that connects, without the line
// end that a file of a secret may have.
func (d DSN) Reveal() string { return strings.TrimSpace(string(d)) }

// masked returns the connection string without its password, and only asterisks for what
// does not look like a connection string.
func (d DSN) masked() string {
	if d == "" || isConnection(string(d)) {
		return redact.Text(string(d))
	}
	return masked
}

// Format implements fmt.Formatter with the masked form, for every verb.
func (d DSN) Format(f fmt.State, verb rune) { format(f, verb, "config.DSN", d.masked()) }

// MarshalText implements encoding.TextMarshaler with the masked form.
func (d DSN) MarshalText() ([]byte, error) { return []byte(d.masked()), nil }

// Secret is a text that is never shown. Formatting, logging and marshalling mask it; only
// Reveal gives it.
type Secret string

// Reveal returns the secret, for the one place that uses it.
func (s Secret) Reveal() string { return string(s) }

// masked returns asterisks, and nothing for an empty secret.
func (s Secret) masked() string {
	if s == "" {
		return ""
	}
	return masked
}

// Format implements fmt.Formatter with the masked form, for every verb.
func (s Secret) Format(f fmt.State, verb rune) { format(f, verb, "config.Secret", s.masked()) }

// MarshalText implements encoding.TextMarshaler with the masked form.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.masked()), nil }

// format writes what is shown instead of a value of a type, as verb and flags ask for.
func format(f fmt.State, verb rune, typeName, shown string) {
	if verb == 'v' && f.Flag('#') {
		_, _ = fmt.Fprintf(f, "%s(%q)", typeName, shown)
		return
	}
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), shown)
}
