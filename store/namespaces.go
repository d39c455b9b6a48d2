package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tasker-go/tasker/signal"
)

// NamespaceState is a namespace for operators.
type NamespaceState struct {
	ID                    int32
	Name                  string
	CreatedAt             time.Time
	PausedAt              *time.Time // nil: not paused
	PausedBy, PauseReason *string
	PausedCallables       []PausedCallable // by name
}

// PausedCallable is one of which an operator has paused the claims.
type PausedCallable struct {
	Callable              string
	PausedAt              time.Time
	PausedBy, PauseReason *string
}

// Namespaces lists the namespaces by name, 10,000 at most.
func (s *Store) Namespaces(ctx context.Context) (list []NamespaceState, err error) {
	err = s.repeatable(ctx, "namespaces", "list the namespaces", func(ctx context.Context, db *conn) error {
		list = nil
		places := map[int32]int{}
		b := &pgx.Batch{}
		b.Queue(`select namespace_id, name, created_at, paused_at, paused_by, pause_reason
			from tasker.namespaces order by name limit 10000`).Query(func(rows pgx.Rows) error {
			var n NamespaceState
			_, err := pgx.ForEachRow(rows, []any{&n.ID, &n.Name, &n.CreatedAt, &n.PausedAt, &n.PausedBy, &n.PauseReason}, func() error {
				places[n.ID] = len(list)
				list = append(list, n)
				return nil
			})
			return err
		})
		b.Queue(listPausedCallables).Query(func(rows pgx.Rows) error {
			var id int32
			var c PausedCallable
			_, err := pgx.ForEachRow(rows, []any{&id, &c.Callable, &c.PausedAt, &c.PausedBy, &c.PauseReason}, func() error {
				if at, listed := places[id]; listed {
					list[at].PausedCallables = append(list[at].PausedCallables, c)
				}
				return nil
			})
			return err
		})
		return db.SendBatch(ctx, b).Close()
	})
	return list, err
}

// listPausedCallables lists each name once: methods and resolvers are paused together.
// Index: callables_paused.
const listPausedCallables = `
select distinct on (namespace_id, callable) namespace_id, callable, paused_at, paused_by, pause_reason
from tasker.callables where paused_at is not null order by namespace_id, callable, paused_at limit 10000`

// Pause pauses or resumes claims.
type Pause struct {
	Namespace     string
	Callable      string // of the namespace, with all methods and resolvers; empty: all
	Actor, Reason string
}

// An operator's action is recorded with the change: $2 is the actor, $3 the reason.
// Index: the unique name, callables_named.
const (
	pauseNamespace = `
with changed as (
    update tasker.namespaces set paused_at = coalesce(paused_at, clock_timestamp()), paused_by = $2, pause_reason = $3
    where name = $1 returning name
)` + recordPause + `'pause_namespace'` + recordNamespace
	resumeNamespace = `
with changed as (
    update tasker.namespaces set paused_at = null, paused_by = null, pause_reason = null
    where name = $1 returning name
)` + recordPause + `'resume_namespace'` + recordNamespace
	pauseCallable = `
with changed as (
    update tasker.callables c set paused_at = coalesce(c.paused_at, clock_timestamp()), paused_by = $2, pause_reason = $3` + ofNamespace +
		recordPause + `'pause_callable'` + recordCallable
	resumeCallable = `
with changed as (
    update tasker.callables c set paused_at = null, paused_by = null, pause_reason = null` + ofNamespace +
		recordPause + `'resume_callable'` + recordCallable
	ofNamespace = `
    from tasker.namespaces n where n.name = $1 and c.namespace_id = n.namespace_id and c.callable = $4
    returning n.name, c.callable
)`
	recordPause = `
insert into tasker.operator_actions (actor, reason, action, target, matched, changed, dry_run)
select $2::text, $3::text, `
	recordNamespace = `, jsonb_build_object('namespace', name), 1, 1, false from changed`
	recordCallable  = `, jsonb_build_object('namespace', name, 'callable', callable), 1, 1, false from (select distinct * from changed) c`
)

// Pause stops claims of a namespace's steps, or of those with a callable, and records it.
// Running steps continue, their successors wait. Pausing again changes actor and reason,
// not the time. The error wraps ErrNotFound if the name does not exist.
func (s *Store) Pause(ctx context.Context, p Pause) error {
	return s.call(ctx, "pause", "pause claims", func(ctx context.Context, db *conn) error {
		return p.change(ctx, db, pauseNamespace, pauseCallable)
	})
}

// Resume ends a pause, if any, and records it. A callable of a paused namespace stays
// paused with it. The signals are to publish, unless the store sends them itself. The
// error wraps ErrNotFound if the name does not exist.
func (s *Store) Resume(ctx context.Context, p Pause) (signals []signal.Signal, err error) {
	err = s.call(ctx, "resume", "resume claims", func(ctx context.Context, db *conn) error {
		return s.inTxThenNotify(ctx, db, func(tx pgx.Tx) ([]signal.Signal, error) {
			if err := p.change(ctx, tx, resumeNamespace, resumeCallable); err != nil {
				return nil, err
			}
			signals = []signal.Signal{{Topic: signal.WorkerTopic(p.Namespace)}}
			return signals, nil
		})
	})
	return signals, err
}

// change runs one of the two statements.
func (p *Pause) change(ctx context.Context, db execer, ofNamespace, ofCallable string) error {
	args := []any{p.Namespace, p.Actor, p.Reason}
	if p.Callable != "" {
		ofNamespace, args = ofCallable, append(args, p.Callable)
	}
	tag, err := db.Exec(ctx, ofNamespace, args...)
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrNotFound
	}
	return err
}

// execer is a connection or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// OperatorAction is an action of an operator, or a dry run of one.
type OperatorAction struct {
	ID               int64     // given by RecordAction
	At               time.Time // given by RecordAction
	Actor            string
	Action           string // such as cancel or pause_namespace
	Reason           string
	Target           any // the selection, written as JSON; a json.RawMessage when read
	Matched, Changed int // numbers of selected and changed items
	DryRun           bool
}

// RecordAction records an operator's action.
func (s *Store) RecordAction(ctx context.Context, a OperatorAction) error {
	return s.call(ctx, "record_action", "record the operator's action", func(ctx context.Context, db *conn) error {
		return insertAction(ctx, db, a)
	})
}

// insertAction is RecordAction on a connection or in a transaction.
func insertAction(ctx context.Context, db execer, a OperatorAction) error {
	target := []byte(`{}`)
	if a.Target != nil {
		var err error
		if target, err = json.Marshal(a.Target); err != nil {
			return fmt.Errorf("encode the target of the action: %w", err)
		}
	}
	_, err := db.Exec(ctx, `insert into tasker.operator_actions (actor, action, reason, target, matched, changed, dry_run)
		values ($1, $2, $3, $4, $5, $6, $7)`, a.Actor, a.Action, a.Reason, string(target), a.Matched, a.Changed, a.DryRun)
	return err
}

// OperatorActions lists up to limit actions, the newest first; before is the ID
// of the last one of the page before, 0 for the first page.
// Index: the primary key.
func (s *Store) OperatorActions(ctx context.Context, limit int, before int64) (list []OperatorAction, err error) {
	err = s.repeatable(ctx, "operator_actions", "list the operators' actions", func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, `select action_id, at, actor, action, reason, target, matched, changed, dry_run
			from tasker.operator_actions where action_id < coalesce(nullif($2::bigint, 0), 9223372036854775807)
			order by action_id desc limit $1`, limit, before)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a OperatorAction, err error) {
			var target json.RawMessage
			err = row.Scan(&a.ID, &a.At, &a.Actor, &a.Action, &a.Reason, &target, &a.Matched, &a.Changed, &a.DryRun)
			a.Target = target
			return a, err
		})
		return err
	})
	return list, err
}
