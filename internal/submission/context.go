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

// MaxDocumentBytes bounds a document where nothing else is configured: contexts, payloads and
// results alike, so that a step's result can be the context of another task.
const MaxDocumentBytes = 1 << 20

// Bounds are those of a document (common.documents). The zero value has MaxDocumentBytes and
// jsonscan.MaxStorableNesting, and no other bound.
type Bounds struct {
	Bytes int // 0: MaxDocumentBytes
	Depth int // arrays and objects inside each other; 0: jsonscan.MaxStorableNesting, which is the most
	Items int // keys or elements of each object or array; 0: any number
	Text  int // characters of each key and text; 0: any number
}

// CheckContext reports why a context is invalid: it must be a JSON object within the bounds
// that PostgreSQL can store.
func (b Bounds) CheckContext(context json.RawMessage) error {
	if t, ok := jsonscan.New(context).Next(); !ok || t.Kind != jsonscan.Object {
		return errors.New("context must be a JSON object")
	}
	return b.CheckValue("context", context)
}

// CheckContext is Bounds.CheckContext with the bounds of the zero value.
func CheckContext(context json.RawMessage) error { return Bounds{}.CheckContext(context) }

// CheckValue is Bounds.CheckValue with the bounds of the zero value.
func CheckValue(field string, value json.RawMessage) error { return Bounds{}.CheckValue(field, value) }

// CheckValue is CheckContext for any JSON value; field is its name in the error.
func (b Bounds) CheckValue(field string, value json.RawMessage) error {
	most, deepest := MaxDocumentBytes, jsonscan.MaxStorableNesting
	if b.Bytes > 0 {
		most = b.Bytes
	}
	if b.Depth > 0 {
		deepest = min(b.Depth, deepest)
	}
	switch {
	case len(value) > most:
		return fmt.Errorf("%s must have at most %d bytes", field, most)
	case !utf8.Valid(value):
		return fmt.Errorf("%s must be UTF-8 text", field)
	}
	c := reading{text: value, bounds: b, deepest: deepest}
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

// reading checks the tokens of a value one after another.
type reading struct {
	text    []byte
	bounds  Bounds
	deepest int
	open    [jsonscan.MaxStorableNesting]container
	depth   int
}

// container is an array or object whose end has not come yet.
type container struct {
	object bool
	items  int            // so far
	key    jsonscan.Token // of the latest member
}

// take returns what is wrong with the next token, to be said of its path.
func (c *reading) take(t jsonscan.Token) string {
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
	case c.depth >= c.deepest && (t.Kind == jsonscan.Array || t.Kind == jsonscan.Object):
		c.depth = 0 // the fault is the whole's
		return fmt.Sprintf(" must not be nested deeper than %d levels", c.deepest)
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
			return fmt.Sprintf(" must have at most %d characters", c.bounds.Text)
		}
		fallthrough
	case jsonscan.Integer, jsonscan.Decimal:
		if err := jsonscan.CheckToken(c.text, t); err != nil {
			return " " + err.Error()
		}
	}
	return ""
}

func (c *reading) count(around *container, what string) string {
	if around.items++; c.bounds.Items > 0 && around.items > c.bounds.Items {
		c.depth-- // the fault is the container's
		return fmt.Sprintf(" must have at most %d %s", c.bounds.Items, what)
	}
	return ""
}

func (c *reading) tooLong(t jsonscan.Token) bool {
	if c.bounds.Text == 0 || t.End-t.Start <= c.bounds.Text {
		return false
	}
	return utf8.RuneCount(jsonscan.Text(c.text, t)) > c.bounds.Text
}

// path names the place of the latest value.
func (c *reading) path(field string) string {
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
