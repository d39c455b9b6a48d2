package config

import (
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// The rules for strings. They are constructors, not variables, so that the
// package keeps no state.

func notEmpty() *textRule {
	return &textRule{text: "a non-empty string", ok: func(s string) bool { return strings.TrimSpace(s) != "" }}
}

// matching compiles its pattern when the first value is checked: most calls
// only want the words.
func matching(text, pattern string) *textRule {
	compiled := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
	return &textRule{text: text, ok: func(s string) bool { return compiled().MatchString(s) }}
}

func queueName() *textRule {
	return matching("a queue name (letters, digits, _ and -, at most 48 bytes)", `^[A-Za-z_][A-Za-z0-9_-]{0,47}$`)
}

func namespaceName() *textRule {
	return matching("namespaces of letters, digits and _, at most 29 characters, not starting with a digit",
		`^[A-Za-z_][A-Za-z0-9_]{0,28}$`)
}

func headerName() *textRule {
	return matching("an HTTP header name", "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
}

// postgresDSN accepts a connection URI or the keyword form that libpq reads.
func postgresDSN(emptyToo bool) *textRule {
	rule := "a PostgreSQL connection URI (postgresql://…) or key=value string"
	if emptyToo {
		rule += ", or empty"
	}
	return &textRule{text: rule, connection: true, ok: func(s string) bool {
		if s == "" {
			return emptyToo
		}
		if scheme, _, ok := strings.Cut(s, "://"); ok {
			return (scheme == "postgresql" || scheme == "postgres") && parsesAsURL(s)
		}
		return strings.Contains(s, "=")
	}}
}

func urlOf(emptyToo bool, schemes ...string) *textRule {
	rule := "a URL with scheme " + strings.Join(schemes, ", ")
	if emptyToo {
		rule += ", or empty"
	}
	return &textRule{text: rule, connection: true, ok: func(s string) bool {
		if s == "" {
			return emptyToo
		}
		for _, scheme := range schemes {
			if strings.HasPrefix(s, scheme+"://") {
				return parsesAsURL(s)
			}
		}
		return false
	}}
}

func parsesAsURL(s string) bool {
	_, err := url.Parse(s)
	return err == nil
}

func hostPort() *textRule {
	return &textRule{text: "an address host:port", ok: func(s string) bool {
		_, port, err := net.SplitHostPort(s)
		if err != nil {
			return false
		}
		n, err := strconv.Atoi(port)
		return err == nil && n >= 0 && n <= 65535
	}}
}

func queueNamePattern() *textRule {
	return &textRule{text: "a string containing {namespace} and {name}", ok: func(s string) bool {
		return strings.Contains(s, "{namespace}") && strings.Contains(s, "{name}")
	}}
}
