package stmt

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Constants are the words that a statement may write in braces, {claimable}, with their
// SQL.
type Constants map[string]string

// Args are the arguments of a statement by name. A list of rows (see List) is a slice of
// structs under the name of the list.
type Args map[string]any

// And returns the arguments together with more.
func (a Args) And(more Args) Args {
	all := make(Args, len(a)+len(more))
	for _, args := range []Args{a, more} {
		for name, value := range args {
			all[name] = value
		}
	}
	return all
}

// Statement is a compiled statement. It is immutable, and safe for concurrent use.
type Statement struct {
	sql   string
	names []string // of the arguments; the place is the number, less one
	lists map[string]*list
}

// token matches what must not be looked into (quoted text, comments), and names.
var token = regexp.MustCompile(`'(?:[^']|'')*'|"[^"]*"|--[^\n]*|/\*(?s:.*?)\*/|\{[a-z0-9_]+\}|@[a-z][a-z0-9_.]*`)

// New compiles a statement of the program. Arguments are written @name, constants {name};
// it panics if a constant does not exist.
func New(text string, constants Constants) *Statement {
	s := &Statement{lists: map[string]*list{}}
	numbers := map[string]string{}
	s.sql = token.ReplaceAllStringFunc(text, func(found string) string {
		switch name := strings.Trim(found, "@{}"); found[0] {
		case '@':
			if numbers[name] == "" {
				numbers[name] = "$" + strconv.Itoa(s.argument(name))
			}
			return numbers[name]
		case '{':
			if _, known := constants[name]; !known {
				wrong("unknown constant %s in the statement %s", found, text)
			}
			return constants[name]
		}
		return found
	})
	return s
}

// argument adds an argument and returns its number.
func (s *Statement) argument(name string) int {
	if of, column, isListed := strings.Cut(name, "."); isListed {
		if s.lists[of] == nil {
			s.lists[of] = &list{}
		}
		s.lists[of].columns = append(s.lists[of].columns, listed{len(s.names), column})
	}
	s.names = append(s.names, name)
	return len(s.names)
}

// String is the statement as sent.
func (s *Statement) String() string { return s.sql }

// With returns the statement with its arguments. It panics unless they are exactly those
// that it names. Slices of rows must not change until the call has been sent.
func (s *Statement) With(args Args) Call {
	values := make([]any, len(s.names))
	given := 0
	for name, value := range args {
		given += s.set(values, name, value)
	}
	if given < len(s.names) {
		wrong("want the arguments %v, got %v, for the statement %s", s.names, args, s.sql)
	}
	return Call{SQL: s.sql, Args: values}
}

// set puts an argument, or the columns of a list, in place; it returns their number.
func (s *Statement) set(values []any, name string, value any) int {
	if of := s.lists[name]; of != nil {
		of.put(values, value)
		return len(of.columns)
	}
	for at := range s.names {
		if s.names[at] == name {
			values[at] = value
			return 1
		}
	}
	wrong("unknown argument %q for the statement %s", name, s.sql)
	return 0
}

// wrong reports a mistake of the program.
func wrong(format string, args ...any) {
	panic(fmt.Sprintf(format, args...)) //nolint:forbidigo // the call and its statement contradict each other
}

// Call is a statement with its arguments.
type Call struct {
	SQL  string
	Args []any
}

// Queue adds the call to a batch.
func (c Call) Queue(b *pgx.Batch) *pgx.QueuedQuery { return b.Queue(c.SQL, c.Args...) }
