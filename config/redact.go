package config

import (
	"regexp"
	"strings"
)

// Masked stands in for a secret wherever a value is shown.
const Masked = "****"

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
	s = urlPassword.ReplaceAllString(s, "${1}:"+Masked+"@")
	return keywordPassword.ReplaceAllString(s, "${1}${2}"+Masked)
}

// shown renders the value of a key for people, masked as the key demands.
func shown(k *Key, value any) string {
	s, isString := value.(string)
	switch {
	case (k == nil || !k.Secret) && isString:
		return quote(Redact(s))
	case k == nil || !k.Secret:
		return Redact(literal(value))
	case !isString:
		return Masked
	case s == "":
		return `""`
	case k.rule != nil && k.rule.connection && (isConnection(s) || strings.Contains(s, "${")):
		return quote(Redact(s))
	}
	return quote(Masked)
}

// isConnection reports whether s is a connection string, of which everything
// but the password may be shown.
func isConnection(s string) bool {
	return connectionURL.MatchString(s) || connectionWords.MatchString(s)
}
