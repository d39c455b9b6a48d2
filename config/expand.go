package config

import (
	"fmt"
	"strings"
)

// Placeholders are replaced inside string values, after merging, so that only
// values in effect need their variables:
//
//	${NAME}           the variable; an unset one is an error
//	${NAME:-default}  the default when the variable is unset or empty
//	$${               a literal "${"
//
// A default ends at the first "}" and is taken as it is.

// lookupFunc reads an environment variable, as os.LookupEnv does.
type lookupFunc func(string) (string, bool)

// expand replaces the placeholders of s and names the variables whose values
// were used. It fails on the first placeholder that cannot be replaced; the
// error names the variable and never a value.
func expand(s string, lookup lookupFunc) (expanded string, used []string, err error) {
	var b strings.Builder
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			b.WriteString(s)
			return b.String(), used, nil
		}
		if i > 0 && s[i-1] == '$' {
			b.WriteString(s[:i-1])
			b.WriteString("${")
			s = s[i+2:]
			continue
		}
		b.WriteString(s[:i])
		body, rest, closed := strings.Cut(s[i+2:], "}")
		if !closed {
			return "", used, fmt.Errorf("a placeholder ${ is not closed by }")
		}
		name, def, hasDefault := strings.Cut(body, ":-")
		if !isVariableName(name) {
			return "", used, fmt.Errorf("a placeholder must be ${NAME} or ${NAME:-default}; write $${ for a literal ${")
		}
		value, set := lookup(name)
		switch {
		case set && (value != "" || !hasDefault):
			used = append(used, name)
			b.WriteString(value)
		case hasDefault:
			b.WriteString(def)
		default:
			return "", used, fmt.Errorf("environment variable %s is not set and ${%s} has no default", name, name)
		}
		s = rest
	}
}

func isVariableName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && !(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z') && !(i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return s != ""
}
