package store

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
)

// Many tasks are created with COPY: it writes many rows with one WAL record and needs no
// lookup for duplicates before each. A duplicate fails it as a whole; then the statement
// that skips duplicates follows, and is used for the next creations.
const (
	// copiedFrom is from how many tasks on that pays for the round trips.
	copiedFrom = 100
	// copyPause is the number of creations without COPY after a failed one.
	copyPause = 16
)

// copyable reports whether new tasks can be copied: there are many, and all need only
// rows of their own.
func copyable(tasks []NewTask, chosen []bool) bool {
	n := 0
	for i := range tasks {
		t := &tasks[i]
		switch {
		case !chosen[i]:
		case t.Parent != nil || len(t.DependsOn) > 0 || t.IdentityEnd.Calendar != "" || !t.StartAt.IsZero():
			return false
		default:
			n++
		}
	}
	return n >= copiedFrom
}

// insertMany creates the chosen tasks the faster way.
func (s *Store) insertMany(ctx context.Context, db *conn, tasks []NewTask, chosen []bool) (acceptedTasks, error) {
	switch {
	case !copyable(tasks, chosen):
	case s.copyPause.Load() > 0: // an approximate count is enough
		s.copyPause.Add(-1)
	default:
		accepted, err := s.copyTasks(ctx, db, tasks, chosen)
		if pg := serverError(err); err == nil || !LockTimeout(err) && (pg == nil || pg.Code != uniqueViolation) {
			return accepted, err
		}
		s.copyPause.Store(copyPause)
	}
	return s.insertAround(ctx, db, tasks, chosen, identityPatience)
}

// copyTasks creates all of the chosen tasks or none: the error is a unique violation if
// one has the identity, or the UUID, of an existing task. Times count from the beginning
// of the transaction, which is its own.
func (s *Store) copyTasks(ctx context.Context, db *conn, tasks []NewTask, chosen []bool) (acceptedTasks, error) {
	c, err := columnsOf(tasks, chosen)
	if err != nil {
		return nil, err
	}
	accepted := make(acceptedTasks, len(c.ids))
	err = s.inTxThenNotify(ctx, db, func(tx pgx.Tx) ([]signal.Signal, error) {
		var now time.Time
		err := tx.QueryRow(ctx, `select set_config('lock_timeout', $1, true), clock_timestamp()`,
			strconv.FormatInt(identityPatience.Milliseconds(), 10)).Scan(nil, &now)
		if err != nil {
			return nil, err
		}
		// Identities first, in order: a concurrent creation of one of them waits here, or
		// makes this wait.
		for _, rows := range []func(context.Context, pgx.Tx, time.Time) error{c.copyIdentities, c.copyLedger, c.copyBoard} {
			if err := rows(ctx, tx, now); err != nil {
				return nil, err
			}
		}
		for _, id := range c.ids {
			accepted[id] = now
		}
		return c.topics.signals(), nil
	})
	return accepted, err
}

func (c *newTaskColumns) copyIdentities(ctx context.Context, tx pgx.Tx, now time.Time) error {
	order := make([]int, 0, len(c.ids))
	for i := range c.ids {
		if c.identities[i] != nil {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(c.identities[a], c.identities[b]) })
	if len(order) == 0 {
		return nil
	}
	rows := newCopyRows("task_identities (identity, task_uuid, expires_at)", len(order)*100)
	for _, i := range order {
		rows.begin()
		rows.bytes(c.identities[i])
		rows.uuid(&c.ids[i])
		if c.windows[i] > 0 {
			rows.time(now, c.windows[i])
		} else {
			rows.int8(math.MaxInt64) // infinity
		}
	}
	return rows.send(ctx, tx)
}

func (c *newTaskColumns) copyLedger(ctx context.Context, tx pgx.Tx, now time.Time) error {
	rows := newCopyRows(`tasks (task_uuid, requested_at, start_at, correlation_id, parent_correlation_id, plan_id, queue, priority, initiator, source_system, reason,
		tags, idempotency_key, context, deadline)`, len(c.ids)*300)
	for i := range c.ids {
		rows.begin()
		rows.uuid(&c.ids[i])
		rows.time(now, 0)
		rows.later(now, c.starts[i])
		rows.uuid(c.correlations[i])
		rows.uuid(c.parents[i])
		rows.int4(c.plans[i])
		rows.int4(c.queues[i])
		rows.int2(c.priorities[i])
		rows.text(c.initiators[i])
		rows.text(c.systems[i])
		rows.text(c.reasons[i])
		rows.list(c.tags[i])
		rows.text(c.keys[i])
		rows.json(c.contexts[i])
		rows.later(now, c.deadlines[i])
	}
	return rows.send(ctx, tx)
}

// copyBoard copies the tasks and the steps with rows of their own. Sequence numbers are
// drawn last: the sooner they become visible after that, the better.
func (c *newTaskColumns) copyBoard(ctx context.Context, tx pgx.Tx, now time.Time) error {
	seqs, err := c.drawNumbers(ctx, tx)
	if err != nil {
		return err
	}
	rows := newCopyRows(`board (task_uuid, slot, step_no, queue, callable, lane, tags, last_attempt, state, seq, due_at, enqueued_at,
		task_state, plan_id, priority, progress, requested_at, correlation_id, parent_correlation_id, context, deadline, watched)`, len(c.ids)*400)
	// line writes the queue columns of a step: its state, its number, and since or from
	// when.
	line := func(due int64) {
		rows.int2(int16(2 - min(due, 1)))
		rows.int8(seqs[0])
		seqs = seqs[1:]
		if rows.later(now, due); due > 0 {
			rows.null()
		} else {
			rows.time(now, 0)
		}
	}
	for i := range c.ids {
		rows.begin()
		rows.uuid(&c.ids[i])
		rows.int2(0)
		if c.steps[i] == nil {
			rows.null()
		} else {
			rows.int2(*c.steps[i])
		}
		rows.int4(c.queues[i])
		rows.int4(c.callables[i])
		rows.int2(c.lanes[i])
		rows.list(c.stepTags[i])
		rows.ifTrue(c.lasts[i])
		if c.steps[i] != nil {
			line(c.dues[i])
		} else {
			rows.int2(0)
			rows.int8(0)
			rows.nulls(2)
		}
		rows.int2(1)
		rows.int4(c.plans[i])
		rows.int2(c.priorities[i])
		rows.bytes(c.progresses[i])
		rows.time(now, 0)
		rows.uuid(c.correlations[i])
		rows.uuid(c.parents[i])
		if len(c.contexts[i]) <= maxInlineContext {
			rows.json(c.contexts[i])
		} else {
			rows.null()
		}
		rows.later(now, c.deadlines[i])
		rows.ifTrue(i < len(c.watched) && c.watched[i] != nil)
	}
	for i, p := 0, &c.put; i < len(p.tasks); i++ {
		rows.begin()
		rows.uuid(&p.tasks[i])
		rows.int2(p.steps[i] + 1)
		rows.int2(p.steps[i])
		rows.int4(p.queues[i])
		rows.int4(p.callables[i])
		rows.int2(p.lanes[i])
		rows.list(p.tags[i])
		rows.ifTrue(p.lasts[i])
		line(p.dues[i])
		rows.nulls(10)
	}
	return rows.send(ctx, tx)
}

func (c *newTaskColumns) drawNumbers(ctx context.Context, tx pgx.Tx) ([]int64, error) {
	n := len(c.put.tasks)
	for _, step := range c.steps {
		if step != nil {
			n++
		}
	}
	rows, err := tx.Query(ctx, `select nextval('tasker.step_seq') from generate_series(1, $1::int)`, n)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}
