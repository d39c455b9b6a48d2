package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Position is a place in a file; Line and Column start at 1, and 0 means
// unknown.
type Position struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// String renders file:line:column, leaving out what is unknown.
func (p Position) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Problem is one thing wrong, or worth a warning, in a configuration. Secrets
// never appear in any of its fields.
type Problem struct {
	// Position says where; File is the name of an environment variable (as
	// "$NAME") when the value came from there.
	Position
	// Key is the full path of the key, empty for a file that cannot be read.
	Key string `json:"key"`
	// Value is the offending value, masked where secret.
	Value string `json:"value"`
	// Rule is what the value must be, as in the reference.
	Rule string `json:"rule"`
	// Message is the whole finding as a sentence without the place.
	Message string `json:"message"`
}

// String renders the place and the message.
func (p Problem) String() string {
	if where := p.Position.String(); where != "" {
		return where + ": " + p.Message
	}
	return p.Message
}

// ValidationError holds every problem found in one load, in the order of
// files and lines.
type ValidationError struct {
	Problems []Problem
}

// Error lists all problems, one per line.
func (e *ValidationError) Error() string {
	var b strings.Builder
	if len(e.Problems) == 1 {
		return "invalid configuration: " + e.Problems[0].String()
	}
	fmt.Fprintf(&b, "invalid configuration: %d problems", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  ")
		b.WriteString(p.String())
	}
	return b.String()
}

// sorted orders by place, then key, so that reports are stable.
func sorted(problems []Problem) []Problem {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Key, b.Key),
		)
	})
	return problems
}

// findings collects problems and warnings while a configuration is loaded.
type findings struct {
	problems []Problem
	warnings []Problem
	idle     []Problem // set keys without effect
	refusals []Problem // what keeps a daemon from starting
}

func (f *findings) fail(p Problem) { f.problems = append(f.problems, p) }
func (f *findings) warn(p Problem) { f.warnings = append(f.warnings, p) }

// err is nil when there are no problems.
func (f *findings) err() error {
	if len(f.problems) == 0 {
		return nil
	}
	return &ValidationError{Problems: sorted(f.problems)}
}
