package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// reprioritise moves a task's waiting steps to the end of the lane of another priority:
// claims read lanes from a mark on.
// Index: the primary key.
const reprioritise = `
with held as materialized (
    select task_uuid, queue, task_state from tasker.board where task_uuid = $1 and slot = 0 for update
), moved as (
    update tasker.board s
    set priority = case when s.slot = 0 then $2::smallint else s.priority end,
        lane = case when s.state = 0 then s.lane when h.task_state = 1 then $3::smallint else $4::smallint end,
        seq = case when s.state = 2 then nextval('tasker.step_seq') else s.seq end
    from held h where s.task_uuid = h.task_uuid
    returning s.state, s.callable, s.lane
), told as (
    insert into tasker.task_events (task_uuid, at, from_state, to_state, actor, reason, metadata)
    select task_uuid, clock_timestamp(), task_state, task_state, $5, $6, jsonb_build_object('action', 'reprioritise', 'priority', $2::smallint)
    from held
)
select n.name, coalesce(m.callable, 0), coalesce(m.lane, 0)
from held h join tasker.namespaces n on n.namespace_id = h.queue left join moved m on m.state = 2 and m.callable > 0`

// Reprioritise changes the priority of a live task and returns the signals to publish,
// unless the store sends them itself. The error wraps ErrTaskEnded or ErrNotFound.
func (s *Store) Reprioritise(ctx context.Context, task uuid.UUID, priority int, actor, reason string) ([]signal.Signal, error) {
	signals, err := s.adjust(ctx, "reprioritise", func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		rows, err := tx.Query(ctx, reprioritise, task, priority, Lane(priority, false), Lane(priority, true), actor, reason)
		if err != nil {
			return nil, err
		}
		var namespace string
		var lane laneKey
		topics := signalSet{}
		found, err := pgx.ForEachRow(rows, []any{&namespace, &lane.callable, &lane.lane}, func() error {
			if lane.callable > 0 {
				topics.addLane(namespace, lane)
			}
			return nil
		})
		if err == nil && found.RowsAffected() == 0 {
			err = pgx.ErrNoRows
		}
		return topics.signals(), err
	})
	if errors.Is(err, ErrNotFound) {
		err = s.WhyNotAlive(ctx, task)
	}
	return signals, err
}

// releaseLease ends the lease of a running step now. It reports the loss itself, as
// expireLeases does: a lease that merely ends now would be extended by the next heartbeat
// of its worker if that precedes the look at due work.
// Index: the primary key.
const releaseLease = `
with released as (
    update tasker.board
    set state = 4, seq = nextval('tasker.step_seq'), lease_until = null, reported_at = clock_timestamp(), outcome = 4, retryable = true
    where task_uuid = $1 and slot in (0, $2::int + 1) and step_no = $2 and state = 3
    returning task_uuid
), told as (
    insert into tasker.task_events (task_uuid, at, from_state, to_state, actor, reason, metadata)
    select b.task_uuid, clock_timestamp(), b.task_state, b.task_state, $3, $4, jsonb_build_object('action', 'release_lease', 'step', $2::int)
    from released r join tasker.board b on b.task_uuid = r.task_uuid and b.slot = 0
)
select 'reported' from released`

// ReleaseLease takes a running step from its worker. The error wraps ErrNotFound if the
// step is not running.
func (s *Store) ReleaseLease(ctx context.Context, task uuid.UUID, step int, actor, reason string) ([]signal.Signal, error) {
	return s.adjust(ctx, "release the lease", func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		var what string
		err := tx.QueryRow(ctx, releaseLease, task, step, actor, reason).Scan(&what)
		return ReportSignals(), err
	})
}

// adjust runs a change that returns a row; without one, the error wraps ErrNotFound.
func (s *Store) adjust(ctx context.Context, doing string, fn func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error)) ([]signal.Signal, error) {
	var signals []signal.Signal
	err := s.call(ctx, "adjust", doing, func(ctx context.Context, db *conn) error {
		err := s.inTxThenNotify(ctx, db, func(tx pgx.Tx) (sent []signal.Signal, err error) {
			signals, err = fn(ctx, tx)
			return signals, err
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotFound
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return signals, nil
}

// TaskSelection selects tasks by their properties; zero values select all.
type TaskSelection struct {
	Namespace, Name, Version    string
	States                      []workflow.TaskState // none: the live ones
	Tag                         string
	CreatedBefore, CreatedAfter *time.Time
}

// SelectTasks lists tasks of a selection, oldest first, limit at most. Live
// ones are read from the board, ended ones from the ledger.
func (s *Store) SelectTasks(ctx context.Context, sel TaskSelection, limit int) ([]uuid.UUID, error) {
	live, ended := []int16{}, []int16{}
	for _, state := range sel.States {
		if state.Terminal() {
			ended = append(ended, int16(state))
		} else {
			live = append(live, int16(state))
		}
	}
	if len(sel.States) == 0 {
		for _, state := range workflow.TaskStates() {
			if !state.Terminal() {
				live = append(live, int16(state))
			}
		}
	}
	var parts []string
	if len(live) > 0 {
		parts = append(parts, `select b.task_uuid from tasker.board b join tasker.tasks t on t.task_uuid = b.task_uuid
			where b.slot = 0 and b.task_state = any ($1) and `+selectWhere)
	}
	if len(ended) > 0 {
		parts = append(parts, `select e.task_uuid from tasker.step_attempts e join tasker.tasks t on t.task_uuid = e.task_uuid
			where e.task_state = any ($2) and `+selectWhere)
	}
	query := fmt.Sprintf(`select task_uuid from (%s) f where $1::smallint[] is not null and $2::smallint[] is not null order by 1 limit $9`,
		strings.Join(parts, " union all "))
	var tasks []uuid.UUID
	err := s.repeatable(ctx, "select_tasks", "select tasks", func(ctx context.Context, db *conn) error {
		b := &pgx.Batch{}
		b.Queue(planForValues)
		b.Queue(query, live, ended, sel.Namespace, sel.Name, sel.Version, sel.Tag, sel.CreatedAfter, sel.CreatedBefore, limit).
			Query(func(rows pgx.Rows) (err error) {
				tasks, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
				return err
			})
		return db.SendBatch(ctx, b).Close()
	})
	return tasks, err
}

// selectWhere also bounds the UUIDs, which are ordered by time: this excludes the
// ledger's partitions of other days.
const selectWhere = `
    ($3 = '' or t.queue = (select namespace_id from tasker.namespaces where name = $3))
    and ($4 = '' or t.plan_id in (select plan_id from tasker.plans where name = $4))
    and ($5 = '' or t.plan_id in (select plan_id from tasker.plans where version = $5))
    and ($6 = '' or $6 = any (t.tags))
    and ($7::timestamptz is null or t.requested_at >= $7 and t.task_uuid >= tasker.uuid_floor($7 - interval '1 day'))
    and ($8::timestamptz is null or t.requested_at < $8 and t.task_uuid < tasker.uuid_floor($8 + interval '1 day'))`

// planForValues is for statements whose index depends on the filters that are set; the
// batch is one transaction.
const planForValues = `select set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_seqscan', 'on', true), set_config('enable_bitmapscan', 'on', true),
	set_config('enable_hashjoin', 'on', true), set_config('enable_mergejoin', 'on', true)`
