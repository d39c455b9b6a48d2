package board

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// keepsOrder: the callable of the step is not in order of priority, or its key is ordered.
const keepsOrder = `coalesce(` + limitedCallableOf + ` = any (@ordered::int[]) or s.callable < 0 and exists (
            select from tasker.limit_keys k join tasker.limits l on l.callable_id = k.callable_id where k.line = -s.callable and l.ordered), false)`

// reprioritise moves a task's waiting steps to the end of the lane of another priority:
// claims read lanes from a mark on. Aged steps keep their place, and those of callables that
// are not in order of priority. In the line of a key it is the same, without a signal:
// workers look at limited steps that wait by themselves.
// Index: the primary key.
var reprioritise = pg.Compile(`
with held as materialized (
    select task_uuid, queue, task_state from tasker.board where task_uuid = @task and slot = 0 for update
), moved as (
    update tasker.board s
    set priority = case when s.slot = 0 then @priority::smallint else s.priority end,
        lane = case when s.state = {no_step} or ` + keepsOrder + ` or s.state = {claimable} and s.lane = {aged_lane} then s.lane when h.task_state = {task_pending} then @lane::smallint else @started_lane::smallint end,
        seq = case when s.state = {claimable} and not (` + keepsOrder + `) and s.lane <> {aged_lane} then nextval('tasker.step_seq') else s.seq end
    from held h where s.task_uuid = h.task_uuid
    returning s.state, s.callable, s.lane
), recorded as (
    insert into tasker.task_events (task_uuid, at, from_state, to_state, actor, reason, metadata)
    select task_uuid, clock_timestamp(), task_state, task_state, @actor, @reason, jsonb_build_object('action', 'reprioritise', 'priority', @priority::smallint)
    from held
)
select n.name as namespace, coalesce(m.callable, 0) as callable, coalesce(m.lane, 0) as lane
from held h join tasker.namespaces n on n.namespace_id = h.queue left join moved m on m.state = {claimable} and m.callable > 0`)

// Reprioritise changes the priority of a live task and returns the signals to publish,
// unless the store sends them itself. The error wraps ErrTaskEnded or ErrNotFound.
func (s *Board) Reprioritise(ctx context.Context, task uuid.UUID, priority int, by *pg.ActionRecord) ([]signal.Signal, error) {
	signals, err := s.adjust(ctx, "reprioritise", by, func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		lanes, err := stmt.All[NamedLane](ctx, tx, reprioritise.With(pg.Args{"task": task, "priority": priority, "ordered": s.registry.Ordered(),
			"lane": order.Priority.Lane(order.Step{Priority: priority}), "started_lane": order.Priority.Lane(begun(priority)), "actor": by.Actor, "reason": by.Reason}))
		if err == nil && len(lanes) == 0 {
			err = pgx.ErrNoRows
		}
		topics := SignalSet{}
		for _, l := range lanes {
			if l.callable > 0 {
				topics.addLane(l.Namespace, l.laneKey)
			}
		}
		return topics.Signals(), err
	})
	if errors.Is(err, pg.ErrNotFound) {
		err = s.WhyNotAlive(ctx, task)
	}
	return signals, err
}

// releaseLease ends the lease of a running step now. It reports the loss itself, as
// expireLeases does: a lease that merely ends now would be extended by the next heartbeat
// of its worker if that precedes the look at due work.
// Index: the primary key.
var releaseLease = pg.Compile(`
with released as (
    update tasker.board
    set state = {reported}, seq = nextval('tasker.step_seq'), lease_until = null, reported_at = clock_timestamp(), outcome = {lease_lost}, retryable = true
    where task_uuid = @task and slot in (0, @step::int + 1) and step_no = @step and state = {in_progress}
    returning task_uuid
), recorded as (
    insert into tasker.task_events (task_uuid, at, from_state, to_state, actor, reason, metadata)
    select b.task_uuid, clock_timestamp(), b.task_state, b.task_state, @actor, @reason, jsonb_build_object('action', 'release_lease', 'step', @step::int)
    from released r join tasker.board b on b.task_uuid = r.task_uuid and b.slot = 0
)
select 'reported' from released`)

// ReleaseLease takes a running step from its worker. The error wraps ErrNotFound if the
// step is not running.
func (s *Board) ReleaseLease(ctx context.Context, task uuid.UUID, step int, by *pg.ActionRecord) ([]signal.Signal, error) {
	return s.adjust(ctx, "release the lease", by, func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		_, err := stmt.One[string](ctx, tx, releaseLease.With(pg.Args{"task": task, "step": step, "actor": by.Actor, "reason": by.Reason}))
		return ReportSignals(), err
	})
}

// adjust runs and records an operator's change that returns a row; without one, the error
// wraps ErrNotFound.
func (s *Board) adjust(ctx context.Context, doing string, by *pg.ActionRecord, fn func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error)) ([]signal.Signal, error) {
	var signals []signal.Signal
	err := s.db.Transaction(ctx, "adjust", doing, func(ctx context.Context, tx pgx.Tx) (_ []signal.Signal, err error) {
		if signals, err = fn(ctx, tx); errors.Is(err, pgx.ErrNoRows) {
			err = pg.ErrNotFound
		}
		if err == nil {
			err = by.Add(ctx, tx, 1)
		}
		return signals, err
	})
	if err != nil {
		return nil, err
	}
	return signals, nil
}

// TaskSelection selects tasks by their properties; zero values select all.
type TaskSelection struct {
	Namespace     string               `json:"namespace,omitempty"`
	Name          string               `json:"name,omitempty"` // of the template
	Version       string               `json:"version,omitempty"`
	States        []workflow.TaskState `json:"states,omitempty"` // none: the live ones
	Tag           string               `json:"tag,omitempty"`
	CreatedBefore *time.Time           `json:"created_before,omitempty"`
	CreatedAfter  *time.Time           `json:"created_after,omitempty"`
}

// SelectTasks lists tasks of a selection, oldest first, limit at most. Live
// ones are read from the board, ended ones from the ledger.
func (s *Board) SelectTasks(ctx context.Context, sel TaskSelection, limit int) ([]uuid.UUID, error) {
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
	statement := selectTasks
	switch {
	case len(ended) == 0:
		statement = selectLive
	case len(live) == 0:
		statement = selectEnded
	}
	selection := statement.With(pg.Args{"live": live, "ended": ended, "namespace": sel.Namespace, "name": sel.Name, "version": sel.Version, "tag": sel.Tag,
		"after": sel.CreatedAfter, "before": sel.CreatedBefore, "limit": limit})
	var tasks []uuid.UUID
	err := s.db.Repeatable(ctx, "select_tasks", "select tasks", func(ctx context.Context, db *pg.Conn) error {
		b := &pgx.Batch{}
		b.Queue(pg.PlanForValues)
		selection.Queue(b).Query(stmt.Into(&tasks))
		return db.SendBatch(ctx, b).Close()
	})
	return tasks, err
}

// Selections of live tasks, ended ones and both; they have the same arguments.
var (
	selectLive  = pg.Compile(selected + liveSelected + selectedEnd)
	selectEnded = pg.Compile(selected + endedSelected + selectedEnd)
	selectTasks = pg.Compile(selected + liveSelected + ` union all ` + endedSelected + selectedEnd)
)

const (
	selected     = `select task_uuid from (`
	liveSelected = `select b.task_uuid from tasker.board b join tasker.tasks t on t.task_uuid = b.task_uuid
			where b.slot = 0 and b.task_state = any (@live) and ` + selectWhere
	endedSelected = `select e.task_uuid from tasker.step_attempts e join tasker.tasks t on t.task_uuid = e.task_uuid
			where e.task_state = any (@ended) and ` + selectWhere
	selectedEnd = `) f where @live::smallint[] is not null and @ended::smallint[] is not null order by 1 limit @limit`
)

// selectWhere also bounds the UUIDs, which are ordered by time: this excludes the
// ledger's partitions of other days.
const selectWhere = `
    (@namespace = '' or t.queue = (select namespace_id from tasker.namespaces where name = @namespace))
    and (@name = '' or t.plan_id in (select plan_id from tasker.plans where name = @name))
    and (@version = '' or t.plan_id in (select plan_id from tasker.plans where version = @version))
    and (@tag = '' or @tag = any (t.tags))
    and (@after::timestamptz is null or t.requested_at >= @after and t.task_uuid >= tasker.uuid_floor(@after - interval '1 day'))
    and (@before::timestamptz is null or t.requested_at < @before and t.task_uuid < tasker.uuid_floor(@before + interval '1 day'))`

// Index: the primary key.
var watchTask = pg.Compile(`update tasker.board set watched = true where task_uuid = @task and slot = 0`)

// Watch requests a signal on TopicTasks when the task ends. It returns false if there
// will be none: the task has ended already, or does not exist. Claims and applies that
// skip the locked row look again, see Claim and Taken.Skipped.
func (s *Board) Watch(ctx context.Context, id uuid.UUID) (alive bool, err error) {
	n, err := pg.Execute(ctx, s.db, "watch", "watch the task", watchTask.With(pg.Args{"task": id}))
	return n > 0, err
}
