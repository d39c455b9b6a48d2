package rest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/submission"
)

// checked collects the problems of a request, so that all are reported at once. A missing
// field is 422, a value out of bounds 400.
type checked struct {
	names             *structure // of the body; nil: there is none
	given             fieldSet
	missing, problems []string
	who               *auth.Principal // nil: any
}

// has reports whether the body has a field with a value other than null.
func (c *checked) has(name string) bool {
	if c.names == nil {
		return false
	}
	no, known := c.names.byName[name]
	return known && c.given&(1<<no) != 0
}

// need records fields that are missing.
func (c *checked) need(names ...string) {
	for _, name := range names {
		if !c.has(name) {
			c.missing = append(c.missing, name)
		}
	}
}

func (c *checked) add(format string, args ...any) {
	if len(c.problems) < 20 {
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

// err is the answer to give, nil when all is well.
func (c *checked) err() error {
	switch {
	case c.missing != nil:
		return unprocessable("missing field: " + strings.Join(c.missing, ", "))
	case c.problems != nil:
		return badRequest(strings.Join(c.problems, "; "))
	}
	return nil
}

// required returns a text that must be there, 1 to limit characters long.
func (c *checked) required(name, value string, limit int) string {
	if !c.has(name) {
		c.missing = append(c.missing, name)
		return ""
	}
	return c.filled(name, value, limit)
}

// filled returns a text of 1 to limit characters.
func (c *checked) filled(name, value string, limit int) string {
	if strings.TrimSpace(value) == "" {
		c.add("%s must not be empty", name)
		return ""
	}
	return c.text(name, value, limit)
}

// text returns a text of at most limit characters that PostgreSQL can store.
func (c *checked) text(name, value string, limit int) string {
	switch {
	case len(value) > limit && utf8.RuneCountInString(value) > limit:
		c.add("%s must have at most %d characters", name, limit)
	case !utf8.ValidString(value) || strings.ContainsAny(value, "\x00\x1f"):
		c.add("%s must be text without the control characters NUL and US", name)
	}
	return value
}

// why returns the reason and the actor, which everything that changes a task
// must have.
func (c *checked) why(reason, actor string) (why, who string) {
	return c.required("reason", reason, orchestration.MaxReasonLength), c.acting("actor", actor)
}

// dryReason is the reason of a request that only shows what it would do and gives none.
const dryReason = "dry run"

// whyUnless is why for a request that may only show what it would do: then nothing changes,
// and no reason is needed.
func (c *checked) whyUnless(dry bool, reason, actor string) (why, who string) {
	if !dry || strings.TrimSpace(reason) != "" {
		return c.why(reason, actor)
	}
	return dryReason, c.acting("actor", actor)
}

// acting returns who acts, which a field must say unless the credentials do. Records name
// the principal beside another name, since clients may write there what they like.
func (c *checked) acting(name, actor string) string {
	known := c.who != nil && c.who.Method != auth.Anonymous
	if !known || c.has(name) {
		actor = c.required(name, actor, orchestration.MaxTextLength)
	}
	return c.signed(actor)
}

// signed adds the principal to a name. Parentheses are the principal's alone, so that no name, and
// no principal, looks like another one with its principal.
func (c *checked) signed(actor string) string {
	if c.who == nil || c.who.Method == auth.Anonymous {
		return actor
	}
	if strings.TrimSpace(actor) == "" || actor == c.who.Subject {
		return clip(plainName(c.who.Subject), orchestration.MaxTextLength-3)
	}
	subject := clip(plainName(c.who.Subject), orchestration.MaxTextLength/2-6)
	return clip(plainName(actor), orchestration.MaxTextLength/2-6) + " (" + subject + ")"
}

// plainName is a name without what sets off a principal.
func plainName(name string) string { return parentheses.Replace(name) }

var parentheses = strings.NewReplacer("(", "[", ")", "]")

// id reads a UUID that must be there.
func (c *checked) id(name, value string) (id uuid.UUID) {
	if c.need(name); !c.has(name) {
		return id
	}
	id, err := uuid.Parse(value)
	if err != nil {
		c.add("%s must be a UUID", name)
	}
	return id
}

// within returns a number from minimum to maximum, fallback where the body has none.
func (c *checked) within(name string, value, minimum, maximum, fallback int) int {
	if !c.has(name) {
		return fallback
	}
	return c.bounded(name, value, minimum, maximum)
}

// bounded returns a number from minimum to maximum.
func (c *checked) bounded(name string, value, minimum, maximum int) int {
	if value < minimum || value > maximum {
		c.add("%s must be between %d and %d", name, minimum, maximum)
	}
	return value
}

// value returns storable JSON: within the bounds of a context and without values that
// PostgreSQL cannot store. JSON null counts as absent.
func (c *checked) value(name string, raw json.RawMessage) json.RawMessage {
	if absent(raw) {
		return nil
	}
	if err := submission.CheckValue(name, raw); err != nil {
		c.add("%s", err)
	}
	return raw
}

// object is value for an object.
func (c *checked) object(name string, raw json.RawMessage) json.RawMessage {
	if absent(raw) {
		return nil
	}
	if raw[0] != '{' { // the decoder removes white space before a value
		c.add("%s must be a JSON object", name)
		return nil
	}
	return c.value(name, raw)
}

// absent reports whether a value is missing or null.
func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// only rejects a field that an action does not use: its sender expects another effect.
func (c *checked) only(name string, there bool, action string, actions ...string) {
	if there && !slices.Contains(actions, action) {
		c.add("%s is for %s only", name, strings.Join(actions, " and "))
	}
}
