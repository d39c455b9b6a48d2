package operations

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

const (
	day = 24 * time.Hour
	// lookAgain is the longest pause before a walk over remaining rows is repeated.
	lookAgain = time.Hour
	// dropLockTimeout bounds how long a drop waits for the ledger, blocking all others
	// behind it. It is less than the server's deadlock_timeout (1 s), so that in a
	// deadlock the drop gives way.
	dropLockTimeout = "500ms"
	// defaultDay stands for the default partitions.
	defaultDay = "default"
)

// aging is retention's memory of the ledger's days, so that large ones are not read
// repeatedly. The zero value is empty; losing it costs reads. It is safe for concurrent
// use.
type aging struct {
	mu   sync.Mutex
	days map[string]walk
}

// walk is how far a day has been read. All times are the database's.
type walk struct {
	at      endKey
	began   time.Time     // at the beginning; zero: not yet
	piece   bool          // ended tasks are deleted in batches
	deleted int           // since it began
	latest  *time.Time    // end of a skipped attempt
	rest    time.Time     // until then the day is not read
	pause   time.Duration // after the previous walk
}

// endKey is a key of step_attempts.
type endKey struct {
	task  uuid.UUID
	step  int16
	token int64
}

func (a *aging) of(name string) walk {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.days[name]
}

func (a *aging) remember(name string, w walk) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.days == nil {
		a.days = map[string]walk{}
	}
	a.days[name] = w
}

// keep forgets days that are not in the list: they have been dropped.
func (a *aging) keep(list []ledgerDay) {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := make(map[string]walk, len(list))
	for i := range list {
		if w, known := a.days[list[i].name]; known {
			left[list[i].name] = w
		}
	}
	a.days = left
}

// ledgerDay is a day of the ledger, or the default partitions.
type ledgerDay struct {
	name    string
	lo, hi  uuid.UUID
	upto    uuid.UUID     // later tasks cannot have ended before the cutoff
	now     time.Time     // when it was read
	since   time.Duration `sql:",seconds"` // since its end; negative: not ended
	alive   bool          // tasks of it are on the board
	pending bool          // it has open dead letters
	stray   bool          // rows of it are in the default partitions
}

// ledger works on the days, oldest first, while steps are left.
func (r *retaining) ledger(ctx context.Context) error {
	if r.limits.TTL <= 0 {
		return nil
	}
	days, err := r.ledgerDays(ctx)
	if err != nil {
		return err
	}
	r.memory.keep(days)
	return each(ctx, days, func(d ledgerDay) error {
		w, look := r.begin(&d)
		if !look {
			return nil
		}
		err := r.walk(ctx, &d, &w)
		r.memory.remember(d.name, w)
		return err
	})
}

func (r *retaining) ledgerDays(ctx context.Context) (days []ledgerDay, err error) {
	err = r.store.db.Repeatable(ctx, "retain_days", "list the days of the ledger", func(ctx context.Context, db *pg.Conn) error {
		type rest struct {
			Now  time.Time
			Upto uuid.UUID
		}
		cutoff := pg.Args{"ttl_ms": r.limits.TTL.Milliseconds()}
		if days, err = stmt.All[ledgerDay](ctx, db, ledgerDays.With(cutoff)); err != nil {
			return err
		}
		left, err := stmt.One[rest](ctx, db, defaultDays.With(cutoff))
		days = append(days, ledgerDay{name: defaultDay, now: left.Now, upto: left.Upto})
		return err
	})
	return days, err
}

// over reports whether the whole day lies before the cutoff, and is so old that its
// partitions are not created again.
func (r *retaining) over(d *ledgerDay) bool {
	return d.name != defaultDay && d.since >= max(r.limits.TTL, day)
}

// late is how long a day must be kept because of its last end.
func (r *retaining) late(d *ledgerDay, w *walk) time.Duration {
	if w.latest == nil {
		return 0
	}
	return w.latest.Add(r.limits.TTL).Sub(d.now)
}

// begin returns whether to read a day, and where the walk continues. A day that is over
// is read, to be dropped whole. Its ended tasks are deleted in batches if something holds
// it for longer than a day, and so are those of the default partitions and, with a short
// TTL, of a day that is not over. A walk restarts if its purpose has changed.
func (r *retaining) begin(d *ledgerDay) (walk, bool) {
	w := r.memory.of(d.name)
	over := r.over(d)
	piece := !over || d.alive || d.pending || d.stray || r.late(d, &w) > day
	switch {
	case !over && d.name != defaultDay && r.limits.TTL >= day:
		return w, false // it will be soon
	case w.began.IsZero() || w.piece != piece:
		return walk{began: d.now, piece: piece, latest: w.latest}, true
	case d.now.Before(w.rest):
		return w, false
	case piece && !w.rest.IsZero():
		return walk{began: d.now, piece: true, latest: w.latest, pause: w.pause}, true
	default:
		w.rest = time.Time{}
		return w, true
	}
}

// walk reads on to the end of the day, or as far as the steps go.
func (r *retaining) walk(ctx context.Context, d *ledgerDay, w *walk) error {
	for r.steps > 0 {
		r.steps--
		ended, err := r.step(ctx, d, w)
		if err != nil {
			return err
		}
		late := r.late(d, w)
		switch {
		case !w.piece && late > day:
			*w = walk{began: d.now, piece: true, latest: w.latest}
		case !w.piece && late > 0:
			w.rest = d.now.Add(late) // and continues from here
			return nil
		case ended && r.over(d) && !d.alive && !d.pending && !d.stray && late <= 0:
			return r.dropDay(ctx, d, w)
		case ended:
			r.rest(d, w)
			return nil
		}
	}
	r.done.More = true
	return nil
}

// rest ends a walk over a day that stays. The remaining rows are alive, young or kept;
// the less there was to do, the longer the pause. A day that still gets rows is read on
// from here, and anew after a while.
func (r *retaining) rest(d *ledgerDay, w *walk) {
	switch {
	case r.over(d):
		w.pause = min(max(2*w.pause, lookAgain), day)
		if w.deleted > 0 {
			w.pause = lookAgain
		}
		w.rest = d.now.Add(w.pause)
	case d.now.Sub(w.began) >= lookAgain:
		*w = walk{}
	}
}

// step reads the next piece of a day and deletes its expired tasks.
func (r *retaining) step(ctx context.Context, d *ledgerDay, w *walk) (ended bool, err error) {
	query, limit := readDayEnds, surveyRows
	if d.name == defaultDay {
		query = readDefaultEnds
	}
	if w.piece {
		limit = r.limits.Batch
	}
	from := w.at
	if from == (endKey{}) {
		from = endKey{task: d.lo, step: -2} // -1 is a task's end without an attempt
	}
	type piece struct {
		Read   int
		Latest *time.Time
		Old    []uuid.UUID
		endKey
	}
	var p piece
	err = r.store.db.Call(ctx, "retain_read", "read the ledger", func(ctx context.Context, db *pg.Conn) error {
		p, err = stmt.One[piece](ctx, db, query.With(pg.Args{"task": from.task, "step": from.step, "token": from.token,
			"upto": d.upto, "limit": limit, "ttl_ms": r.limits.TTL.Milliseconds()}))
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil {
		return false, err
	}
	if p.Read > 0 {
		w.at = p.endKey
	}
	if w.piece && len(p.Old) > 0 {
		if err := r.delete(ctx, p.Old, w); err != nil {
			return false, err
		}
	}
	if p.Latest != nil && (w.latest == nil || p.Latest.After(*w.latest)) {
		w.latest = p.Latest
	}
	return p.Read < limit, nil
}

func (r *retaining) delete(ctx context.Context, old []uuid.UUID, w *walk) error {
	var deleted int
	err := r.store.db.Call(ctx, "retain_delete", "delete ended tasks", func(ctx context.Context, db *pg.Conn) (err error) {
		deleted, err = r.store.deleteEnded(ctx, db, old, r.dry)
		return err
	})
	r.done.Tasks, w.deleted = r.done.Tasks+deleted, w.deleted+deleted
	return err
}

// deleteEnded deletes tasks that have ended, and returns how many it could delete. One that the
// database rejects does not affect the others.
func (s *Operations) deleteEnded(ctx context.Context, db *pg.Conn, old []uuid.UUID, dry bool) (deleted int, err error) {
	if dry {
		return stmt.One[int](ctx, db, countDeletable.With(pg.Args{"tasks": old}))
	}
	remove := func(part []uuid.UUID) error {
		n := 0
		err := s.db.InTx(ctx, db, func(tx pgx.Tx) error {
			ended, err := stmt.All[uuid.UUID](ctx, tx, lockEnds.With(pg.Args{"tasks": part}))
			if err == nil {
				n, err = stmt.One[int](ctx, tx, deleteTasks.With(pg.Args{"tasks": ended}))
			}
			return err
		})
		if err == nil {
			deleted += n
		}
		return err
	}
	err = pg.Apart(s.db, "retain_tasks", old, remove, uuid.UUID.String)
	return deleted, err
}

// dropDay drops a day of the ledger, or reads it again if something has changed.
func (r *retaining) dropDay(ctx context.Context, d *ledgerDay, w *walk) error {
	held, err := r.drop(ctx, "the ledger", d.name, &r.done.Days, func(ctx context.Context, db *pg.Conn) (bool, error) {
		return stmt.One[bool](ctx, db, dropDay.With(pg.Args{"day": d.name, "lo": d.lo, "hi": d.hi, "began": w.began, "patience": dropLockTimeout}))
	})
	if held {
		*w = walk{}
	}
	return err
}
