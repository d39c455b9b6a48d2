// Package domainevent says which names, keys and patterns domain events may have, and in which
// version they are published. Events themselves are those of workflow and worker/events.
//
// What may not enter: how events are stored and delivered.
package domainevent

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Version is the version of the form in which events are published.
const Version = "1.0"

// The bounds of the names and keys of events, in bytes.
const (
	MaxName = 255
	maxKey  = 512
)

// CheckName validates the name of an event.
func CheckName(name string) error {
	if strings.TrimSpace(name) == "" {
		return errors.New("it is empty")
	}
	return checkText(name, MaxName)
}

// CheckKey validates the key of an event. The empty key is valid: there is none.
func CheckKey(key string) error { return checkText(key, maxKey) }

func checkText(text string, limit int) error {
	switch {
	case len(text) > limit:
		return fmt.Errorf("it has %d bytes; up to %d are allowed", len(text), limit)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return errors.New("it may not contain line breaks or control characters")
	}
	return nil
}

// MaxPatterns bounds the patterns of one subscriber or consumer.
const MaxPatterns = 100

// CheckPattern validates a pattern for names of events: a name in which * matches any
// characters, including dots.
func CheckPattern(pattern string) error {
	if pattern == "" || len(pattern) > MaxName {
		return fmt.Errorf("the pattern %.64q must have 1 to %d bytes", pattern, MaxName)
	}
	if i := strings.IndexFunc(pattern, func(r rune) bool {
		return r != '*' && r != '.' && r != '_' && r != '-' && r != ':' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}); i >= 0 {
		return fmt.Errorf("the pattern %.64q has a character that names of events do not have; it is a name with * for any characters, such as payment.*", pattern)
	}
	return nil
}

// Matches reports whether the name of an event fits a pattern.
func Matches(pattern, name string) bool {
	head, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == name
	}
	if !strings.HasPrefix(name, head) {
		return false
	}
	name = name[len(head):]
	for {
		part, more, wild := strings.Cut(rest, "*")
		if !wild {
			return strings.HasSuffix(name, part)
		}
		at := strings.Index(name, part)
		if at < 0 {
			return false
		}
		name, rest = name[at+len(part):], more
	}
}
