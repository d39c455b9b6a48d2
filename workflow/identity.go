package workflow

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/internal/span"
)

// Identity is the hash that makes two submissions the same task: half of a SHA-256. It is
// kept for every task, mostly for ever; with 128 bits the odds of a collision among 10¹²
// tasks are 1 to 10¹⁴.
type Identity [sha256.Size / 2]byte

// ContextIdentity is the identity of a task without an idempotency key: the namespace, the
// name (not the version) and the canonical context.
func ContextIdentity(namespace, name string, context json.RawMessage) (Identity, error) {
	canonical, err := jsonscan.Canonical(context)
	if err != nil {
		return Identity{}, fmt.Errorf("canonicalise the context: %w", err)
	}
	return identity("context", namespace, name, canonical), nil
}

// KeyIdentity is the identity of a task with an idempotency key.
func KeyIdentity(namespace, name, key string) Identity {
	return identity("key", namespace, name, key)
}

// OwnIdentity is the identity of a task without duplicates. It lets a repeated attempt to
// create the same task find the result of the first one.
func OwnIdentity(namespace, name string, task [16]byte) Identity {
	return identity("task", namespace, name, task[:])
}

// identity hashes its parts with their lengths, so that no two lists of parts collide by
// moving text from one part to the next.
func identity[T string | []byte](kind, namespace, name string, last T) Identity {
	var room [256]byte
	b := room[:0]
	for _, part := range [...]string{kind, namespace, name} {
		b = append(strconv.AppendInt(b, int64(len(part)), 10), ':')
		b = append(b, part...)
	}
	b = append(strconv.AppendInt(b, int64(len(last)), 10), ':')
	hash := sha256.Sum256(append(b, last...))
	return Identity(hash[:])
}

// IdentityStrategy says what makes two submissions without an idempotency key the same task.
// A given key always decides.
type IdentityStrategy string

// The identity strategies; the empty string means IdentityStrict.
const (
	IdentityStrict         IdentityStrategy = "strict"          // the same context is the same task
	IdentityCallerProvided IdentityStrategy = "caller_provided" // the sender has to give an idempotency key
	IdentityAlwaysUnique   IdentityStrategy = "always_unique"   // every submission is a task of its own
)

// Calendar names a unit of the calendar.
type Calendar string

// The calendar units at whose ends an identity may be used again. A week begins
// on Monday.
const (
	CalendarHour Calendar = "hour"
	CalendarDay  Calendar = "day"
	CalendarWeek Calendar = "week"
)

// IdentityPolicy is the template's policy for duplicates. Durations are kept as written,
// such as 90m, 24h or 7d.
type IdentityPolicy struct {
	Strategy IdentityStrategy `json:"strategy,omitempty"`
	// Window is how long duplicates are refused, from the creation of the task;
	// empty: for ever, unless there is a Calendar.
	Window string `json:"window,omitempty"`
	// Calendar ends the window with the hour, day or week, by the clocks of TimeZone.
	Calendar Calendar `json:"calendar,omitempty"`
	TimeZone string   `json:"time_zone,omitempty"` // of the IANA database; empty: UTC
	// KeyLifetime replaces both for identities of idempotency keys.
	KeyLifetime string `json:"key_lifetime,omitempty"`
}

// IdentityEnd is the end of an identity. The zero value is for ever.
type IdentityEnd struct {
	After    time.Duration // from the creation; 0: see Calendar
	Calendar Calendar      // empty: for ever
	TimeZone string        // never empty with a Calendar
}

// StrategyOrStrict is the strategy in force; a nil policy is strict.
func (p *IdentityPolicy) StrategyOrStrict() IdentityStrategy {
	if p == nil || p.Strategy == "" {
		return IdentityStrict
	}
	return p.Strategy
}

// End returns the end of an identity: of an idempotency key (keyed), or of a context. A nil
// policy is for ever.
func (p *IdentityPolicy) End(keyed bool) IdentityEnd {
	switch {
	case p == nil:
		return IdentityEnd{}
	case keyed && p.KeyLifetime != "":
		return IdentityEnd{After: windowOf(p.KeyLifetime)}
	case p.Window != "":
		return IdentityEnd{After: windowOf(p.Window)}
	case p.Calendar != "":
		end := IdentityEnd{Calendar: p.Calendar, TimeZone: p.TimeZone}
		if end.TimeZone == "" {
			end.TimeZone = "UTC"
		}
		return end
	}
	return IdentityEnd{}
}

// windowOf parses a text that was checked when the template was read.
func windowOf(text string) time.Duration {
	d, _ := span.ParseWindow(text)
	return d
}
