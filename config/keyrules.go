package config

import (
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tasker-go/tasker/internal/logroom"
)

// textRule is a named condition on a string, or on each string of a list.
type textRule struct {
	text string
	ok   func(string) bool
}

// matching compiles its pattern when the first value is checked: most calls
// only want the words.
func matching(text, pattern string) *textRule {
	compiled := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
	return &textRule{text: text, ok: func(s string) bool { return compiled().MatchString(s) }}
}

// ruleNamed is a condition that several keys share, by the name that their tags
// give it; nil for no name. "or empty" behind the name accepts no text as well.
func ruleNamed(name string) *textRule {
	name, emptyToo := strings.CutSuffix(name, " or empty")
	name, schemes, _ := strings.Cut(name, " ")
	var r *textRule
	switch name {
	case "nonempty":
		r = &textRule{text: "a non-empty string", ok: func(s string) bool { return strings.TrimSpace(s) != "" }}
	case "queue":
		r = matching("a queue name (letters, digits, _ and -, at most 48 bytes)", `^[A-Za-z_][A-Za-z0-9_-]{0,47}$`)
	case "namespace":
		r = matching("namespaces of letters, digits and _, at most 29 characters, not starting with a digit", `^[A-Za-z_][A-Za-z0-9_]{0,28}$`)
	case "namespaces":
		r = matching("namespaces of letters, digits and _, at most 29 characters, not starting with a digit, or * for all", `^(\*|[A-Za-z_][A-Za-z0-9_]{0,28})$`)
	case "header":
		r = matching("an HTTP header name", "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	case "environment":
		r = &textRule{text: environmentRule, ok: isEnvironmentName}
	case "address":
		r = &textRule{text: "an address host:port", ok: isAddress}
	case "postgres":
		r = &textRule{text: "a PostgreSQL connection URI (postgresql://…) or key=value string", ok: isPostgres}
	case "room=level":
		r = &textRule{text: "a room and its level such as worker=debug; rooms are " + strings.Join(logroom.Names, ", "), ok: func(s string) bool {
			_, _, err := logroom.Setting(s)
			return err == nil
		}}
	case "url":
		list := strings.Fields(schemes)
		r = &textRule{text: "a URL with scheme " + strings.Join(list, ", "), ok: func(s string) bool { return isURL(s, list) }}
	}
	if emptyToo {
		return &textRule{text: r.text + ", or empty", ok: func(s string) bool { return s == "" || r.ok(s) }}
	}
	return r
}

// isPostgres accepts a connection URI or the keyword form that libpq reads.
func isPostgres(s string) bool {
	if strings.Contains(s, "://") {
		return isURL(PostgresDSN(s), []string{"postgresql", "postgres"})
	}
	return strings.Contains(s, "=")
}

func isURL(s string, schemes []string) bool {
	s = strings.TrimSpace(s) // as DSN.Reveal
	scheme, _, ok := strings.Cut(s, "://")
	_, err := url.Parse(s)
	return ok && err == nil && slices.Contains(schemes, scheme)
}

func isAddress(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	n, err := strconv.Atoi(port)
	return err == nil && n >= 0 && n <= 65535
}
