package config

import (
	"fmt"
	"regexp"
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

var (
	placeholders = regexp.MustCompile(`\$\$\{|\$\{[^}]*\}?`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// expand replaces the placeholders of s and names the variables whose values
// were used. It fails on the first placeholder that cannot be replaced; the
// error names the variable and never a value.
func expand(s string, lookup lookupFunc) (expanded string, used []string, err error) {
	expanded = placeholders.ReplaceAllStringFunc(s, func(found string) string {
		if found == "$${" || err != nil {
			return "${"
		}
		body, closed := strings.CutSuffix(found[len("${"):], "}")
		name, def, hasDefault := strings.Cut(body, ":-")
		value, set := lookup(name)
		switch {
		case !closed:
			err = fmt.Errorf("a placeholder ${ is not closed by }")
		case !variableName.MatchString(name):
			err = fmt.Errorf("a placeholder must be ${NAME} or ${NAME:-default}; write $${ for a literal ${")
		case set && (value != "" || !hasDefault):
			used = append(used, name)
			return value
		case !hasDefault:
			err = fmt.Errorf("environment variable %s is not set and ${%s} has no default", name, name)
		}
		return def
	})
	if err != nil {
		return "", used, err
	}
	return expanded, used, nil
}
