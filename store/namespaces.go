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

// NamespaceState is a namespace as operators see it.
type NamespaceState struct {
	ID                    int32
	Name                  string
	CreatedAt             time.Time
	PausedAt              *time.Time // nil: it is not paused
	PausedBy, PauseReason *string
}

// Namespaces lists the namespaces by name, 10,000 at most.
func (s *Store) Namespaces(ctx context.Context) (list []NamespaceState, err error) {
	err = s.repeatable(ctx, "namespaces", "list the namespaces", func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, `select namespace_id, name, created_at, paused_at, paused_by, pause_reason
			from tasker.namespaces order by name limit 10000`)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[NamespaceState])
		return err
	})
	return list, err
}

// Changes of a namespace, with the record of the operator's action.
// Index: the unique name.
const (
	pauseNamespace = `
with changed as (
    update tasker.namespaces set paused_at = coalesce(paused_at, clock_timestamp()), paused_by = $2, pause_reason = $3
    where name = $1 returning name
)` + recordNamespaceAction + `'pause_namespace'` + ofNamespace
	resumeNamespace = `
with changed as (
    update tasker.namespaces set paused_at = null, paused_by = null, pause_reason = null
    where name = $1 returning name
)` + recordNamespaceAction + `'resume_namespace'` + ofNamespace
	recordNamespaceAction = `
insert into tasker.operator_actions (actor, reason, action, target, matched, changed, dry_run)
select $2::text, $3::text, `
	ofNamespace = `, jsonb_build_object('namespace', name), 1, 1, false from changed`
)

// PauseNamespace stops claims of a namespace's steps, and records that. What
// runs goes on, and what it leads to waits. Pausing a paused one changes who and
// why, not since when. The error wraps ErrNotFound when there is none of that
// name.
func (s *Store) PauseNamespace(ctx context.Context, name, actor, reason string) error {
	return s.call(ctx, "pause_namespace", "pause the namespace", func(ctx context.Context, db *conn) error {
		tag, err := db.Exec(ctx, pauseNamespace, name, actor, reason)
		if err == nil && tag.RowsAffected() == 0 {
			err = ErrNotFound
		}
		return err
	})
}

// ResumeNamespace lets a namespace's steps be claimed again, and records that; it
// does no harm to one that is not paused. The signals are to publish, unless the store sends
// them itself. The error wraps ErrNotFound when there is none of that name.
func (s *Store) ResumeNamespace(ctx context.Context, name, actor, reason string) (signals []signal.Signal, err error) {
	err = s.call(ctx, "resume_namespace", "resume the namespace", func(ctx context.Context, db *conn) error {
		return s.inTxThenNotify(ctx, db, func(tx pgx.Tx) ([]signal.Signal, error) {
			tag, err := tx.Exec(ctx, resumeNamespace, name, actor, reason)
			if err != nil {
				return nil, err
			}
			if tag.RowsAffected() == 0 {
				return nil, ErrNotFound
			}
			signals = []signal.Signal{{Topic: signal.WorkerTopic(name)}}
			return signals, nil
		})
	})
	return signals, err
}

// OperatorAction is something that an operator did, or tried to see what it
// would do.
type OperatorAction struct {
	ID               int64     // given by RecordAction
	At               time.Time // given by RecordAction
	Actor            string
	Action           string // such as cancel or pause_namespace
	Reason           string
	Target           any // what it was aimed at, written as JSON; a json.RawMessage when it is read
	Matched, Changed int // how many it was aimed at and did something to
	DryRun           bool
}

// RecordAction writes down what an operator did.
func (s *Store) RecordAction(ctx context.Context, a OperatorAction) error {
	return s.call(ctx, "record_action", "record the operator's action", func(ctx context.Context, db *conn) error {
		return insertAction(ctx, db, a)
	})
}

// insertAction is RecordAction on a connection or in a transaction.
func insertAction(ctx context.Context, db interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, a OperatorAction) error {
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
