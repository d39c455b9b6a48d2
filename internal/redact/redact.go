// Package redact masks the passwords in texts for people.
//
// What may not enter: values that are known to be secret, which config never shows.
package redact

import "regexp"

// Mask stands in for a secret wherever a value is shown.
const Mask = "****"

// The patterns of what hides secrets.
var (
	// Greedy up to the last @: a password may itself contain one, or a space,
	// and masking too much is the safe mistake.
	urlPassword     = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://[^\s:/@?#]*):.*@`)
	keywordPassword = regexp.MustCompile(`(?i)((?:ssl)?password|passwd|pwd|token|secret|api_?key)(\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s&']+)`)
)

// Text masks the password of connection strings inside s: the password of
// a URL's user part, password-like query parameters, and password=… of the
// key=value form. Text without any is returned as it is.
func Text(s string) string {
	s = urlPassword.ReplaceAllString(s, "${1}:"+Mask+"@")
	return keywordPassword.ReplaceAllString(s, "${1}${2}"+Mask)
}
