package store

import (
	"context"
	"time"
)

const (
	// surveyRows is how many attempts one statement reads of a day that may be
	// dropped whole.
	surveyRows = 20_000
	// retainSteps is how many statements of that kind, batches of deletions or
	// dropped days one call of Retain makes at most; retainPreview how many a dry
	// run makes.
	retainSteps   = 10
	retainPreview = 50
	// keepDaemons is the least time for which an ended daemon is kept: a dead worker that
	// resumes must find itself dead.
	keepDaemons = time.Hour
)

// RetentionLimits are the times to keep data, by the database's clock.
type RetentionLimits struct {
	// TTL counts from the end of a task; 0 keeps tasks and daemons for ever. A task may
	// stay up to a day longer, because a day is dropped as a whole.
	TTL           time.Duration
	DeadLetterTTL time.Duration // from the closing of an entry; 0: for ever
	EventTTL      time.Duration // from the publishing of a domain event; 0: for ever
	Batch         int           // tasks, and other rows, deleted at once; at least 1
}

// actionsTTL is the time to keep operators' actions: as long as their possible targets.
func (l RetentionLimits) actionsTTL() time.Duration {
	if l.TTL <= 0 || l.DeadLetterTTL <= 0 {
		return 0
	}
	return max(l.TTL, l.DeadLetterTTL)
}

// Retained counts what was deleted.
type Retained struct {
	Days        []string // dropped whole, as YYYYMMDD
	EventDays   []string // of domain events, dropped whole
	Tasks       int      // deleted one by one
	Events      int      // domain events that had no day, deleted one by one
	Workers     int      // daemons, orchestrators too
	Identities  int
	Received    int // events from outside, expired or delivered
	DeadLetters int
	Actions     int
	Busy        int  // days in use; they are tried again
	More        bool // more to do at once
}

// Retain deletes expired data, a bounded amount per call. Whole days of the ledger are
// dropped if no task is alive, no dead letter is open and no task ended within the TTL;
// otherwise ended tasks are deleted in batches, never one that is on the board or has an
// open dead letter. A dry run counts, and covers only a part if More is true.
func (s *Store) Retain(ctx context.Context, l RetentionLimits, dry bool) (Retained, error) {
	r := retaining{store: s, limits: l, dry: dry, memory: &s.aging, steps: retainSteps}
	if dry {
		r.memory, r.steps = &aging{}, retainPreview
	}
	for _, part := range []func(context.Context) error{r.identities, r.received, r.daemons, r.deadLetters, r.actions, r.events, r.ledger} {
		if err := part(ctx); err != nil {
			return r.done, err
		}
	}
	return r.done, nil
}

// retaining is one call of Retain.
type retaining struct {
	store  *Store
	limits RetentionLimits
	dry    bool
	memory *aging
	steps  int // left
	done   Retained
}

// rows deletes, or counts, one batch of simple rows.
func (r *retaining) rows(ctx context.Context, what, remove, count string, args ...any) (n int, err error) {
	err = r.store.call(ctx, "retain_"+what, "remove old "+what, func(ctx context.Context, db *conn) error {
		if r.dry {
			return db.QueryRow(ctx, count, args...).Scan(&n)
		}
		tag, err := db.Exec(ctx, remove, args...)
		n = int(tag.RowsAffected())
		return err
	})
	r.done.More = r.done.More || n >= r.limits.Batch
	return n, err
}

func (r *retaining) identities(ctx context.Context) (err error) {
	r.done.Identities, err = r.rows(ctx, "identities", deleteIdentities, countIdentities, r.limits.Batch)
	return err
}

func (r *retaining) received(ctx context.Context) (err error) {
	r.done.Received, err = r.rows(ctx, "received_events", deleteReceived, countReceived, r.limits.Batch)
	return err
}

func (r *retaining) daemons(ctx context.Context) error {
	if r.limits.TTL <= 0 {
		return nil
	}
	query := deleteGone
	if r.dry {
		query = countGone
	}
	err := r.store.call(ctx, "retain_daemons", "remove ended daemons", func(ctx context.Context, db *conn) error {
		return db.QueryRow(ctx, query, max(r.limits.TTL, keepDaemons).Milliseconds(), r.limits.Batch).Scan(&r.done.Workers)
	})
	r.done.More = r.done.More || r.done.Workers >= r.limits.Batch
	return err
}

func (r *retaining) deadLetters(ctx context.Context) (err error) {
	if r.limits.DeadLetterTTL <= 0 {
		return nil
	}
	r.done.DeadLetters, err = r.store.PurgeDeadLetters(ctx, r.limits.DeadLetterTTL, r.limits.Batch, r.dry)
	r.done.More = r.done.More || r.done.DeadLetters >= r.limits.Batch
	return err
}

func (r *retaining) actions(ctx context.Context) (err error) {
	ttl := r.limits.actionsTTL()
	if ttl == 0 {
		return nil
	}
	r.done.Actions, err = r.rows(ctx, "actions", deleteActions, countActions, ttl.Milliseconds(), r.limits.Batch)
	return err
}
