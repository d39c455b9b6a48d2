// Package dedup says which submissions are the same task: the identities of tasks, and until
// when they reject duplicates under the policy of a template.
//
// What may not enter: where identities are kept and compared, which is the board.
package dedup

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/internal/span"
	"github.com/tasker-go/tasker/workflow"
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

// IdentityEnd is the end of an identity. The zero value is for ever.
type IdentityEnd struct {
	After    time.Duration     // from the creation; 0: see Calendar
	Calendar workflow.Calendar // empty: for ever
	TimeZone string            // never empty with a Calendar
	// Until ends it sooner, with an event of its task.
	Until workflow.IdentityUntil
}

// StrategyOf is the strategy in force; a nil policy is strict.
func StrategyOf(p *workflow.IdentityPolicy) workflow.IdentityStrategy {
	if p == nil || p.Strategy == "" {
		return workflow.IdentityStrict
	}
	return p.Strategy
}

// EndOf returns the end of an identity: of an idempotency key (keyed), or of a context. A nil
// policy is for ever.
func EndOf(p *workflow.IdentityPolicy, keyed bool) (end IdentityEnd) {
	if p == nil {
		return end
	}
	end.Until = p.Until
	switch {
	case keyed && p.KeyLifetime != "":
		end.After = windowOf(p.KeyLifetime)
	case p.Window != "":
		end.After = windowOf(p.Window)
	case p.Calendar != "":
		end.Calendar, end.TimeZone = p.Calendar, p.TimeZone
		if end.TimeZone == "" {
			end.TimeZone = "UTC"
		}
	}
	return end
}

// windowOf parses a text that was checked when the template was read.
func windowOf(text string) time.Duration {
	d, _ := span.ParseWindow(text)
	return d
}
