package submission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tasker-go/tasker/internal/jsonscan"
)

// Bounds of a context.
const (
	MaxContextBytes = 1 << 20
	MaxContextDepth = 10
	MaxContextItems = 1000 // keys or elements per container
	MaxStringLength = 10_000
)

// CheckContext reports why a context is invalid: it must be a JSON object within the bounds
// above that PostgreSQL can store.
func CheckContext(context json.RawMessage) error {
	if t, ok := jsonscan.New(context).Next(); !ok || t.Kind != jsonscan.Object {
		return errors.New("context must be a JSON object")
	}
	return CheckValue("context", context)
}

// CheckValue is CheckContext for any JSON value; field is its name in the error.
func CheckValue(field string, value json.RawMessage) error {
	switch {
	case len(value) > MaxContextBytes:
		return fmt.Errorf("%s must have at most %d bytes", field, MaxContextBytes)
	case !utf8.Valid(value):
		return fmt.Errorf("%s must be UTF-8 text", field)
	}
	c := bounds{text: value}
	s := jsonscan.New(value)
	for t, ok := s.Next(); ok; t, ok = s.Next() {
		if problem := c.take(t); problem != "" {
			return errors.New(c.path(field) + problem)
		}
	}
	if s.Err() == nil {
		return nil
	}
	if bytes.HasPrefix(value, []byte("{")) {
		return fmt.Errorf("%s must be a JSON object", field)
	}
	return fmt.Errorf("%s must be JSON", field)
}

// bounds checks the tokens of a value one after another.
type bounds struct {
	text  []byte
	open  [MaxContextDepth + 1]container
	depth int
}

// container is an array or object whose end has not come yet.
type container struct {
	object bool
	items  int            // so far
	key    jsonscan.Token // of the latest member
}

// take returns what is wrong with the next token, to be said of its path.
func (c *bounds) take(t jsonscan.Token) string {
	switch {
	case t.Kind == jsonscan.End:
		c.depth--
		return ""
	case t.Kind == jsonscan.Key:
		around := &c.open[c.depth-1]
		if jsonscan.CheckToken(c.text, t) != nil || c.tooLong(t) {
			return " has a key that cannot be stored"
		}
		around.key = t
		return c.count(around, "keys")
	case c.depth > MaxContextDepth:
		c.depth = 0 // the fault is the whole's
		return fmt.Sprintf(" must not be nested deeper than %d levels", MaxContextDepth)
	}
	if c.depth > 0 && !c.open[c.depth-1].object {
		if problem := c.count(&c.open[c.depth-1], "elements"); problem != "" {
			return problem
		}
	}
	switch t.Kind {
	case jsonscan.Array, jsonscan.Object:
		c.open[c.depth] = container{object: t.Kind == jsonscan.Object}
		c.depth++
	case jsonscan.String:
		if c.tooLong(t) {
			return fmt.Sprintf(" must have at most %d characters", MaxStringLength)
		}
		fallthrough
	case jsonscan.Integer, jsonscan.Decimal:
		if err := jsonscan.CheckToken(c.text, t); err != nil {
			return " " + err.Error()
		}
	}
	return ""
}

func (c *bounds) count(around *container, what string) string {
	if around.items++; around.items > MaxContextItems {
		c.depth-- // the fault is the container's
		return fmt.Sprintf(" must have at most %d %s", MaxContextItems, what)
	}
	return ""
}

func (c *bounds) tooLong(t jsonscan.Token) bool {
	if t.End-t.Start <= MaxStringLength {
		return false
	}
	return utf8.RuneCount(jsonscan.Text(c.text, t)) > MaxStringLength
}

// path names the place of the latest value.
func (c *bounds) path(field string) string {
	for _, around := range c.open[:c.depth] {
		switch {
		case !around.object:
			field = fmt.Sprintf("%s[%d]", field, around.items-1)
		case around.items > 0:
			field += "." + clip(string(jsonscan.Text(c.text, around.key)))
		}
	}
	return field
}

func clip(s string) string {
	if len(s) > 40 {
		return strings.ToValidUTF8(s[:40], "") + "…"
	}
	return s
}
