package schedules

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store/internal/board"
	"github.com/tasker-go/tasker/store/internal/pg"
	"github.com/tasker-go/tasker/store/internal/registry"
	"github.com/tasker-go/tasker/store/internal/stmt"
)

// DueSchedule is a due schedule, locked until the transaction ends.
type DueSchedule struct {
	Schedule
	// Plan is the current one of its template version; nil: none.
	Plan *registry.Plan
	// Broken says why the existing plan cannot be used.
	Broken error
	// Alive says that the task of its last run is alive. It is read only for schedules
	// whose policy depends on it.
	Alive bool
}

// Firing is the decision about a due schedule. The zero value leaves it unchanged.
type Firing struct {
	Tasks []board.NewTask // in the order of their runs; each with an identity
	// LastRun is the time that the last of the tasks is for.
	LastRun time.Time
	// NextRun is its next due time; zero: as before.
	NextRun time.Time
	// Error is stored as Schedule.LastError; empty: cleared.
	Error string
	// Pause pauses the schedule for this reason, because it cannot continue.
	Pause string
}

// Fired is the result of running due schedules.
type Fired struct {
	Schedules int
	// Accepted are the created tasks; the others exist already from the same run.
	Accepted map[uuid.UUID]time.Time
	Signals  []signal.Signal // to publish, unless the store sends them itself
}

// pausedByItself is the recorded actor for a schedule that could not continue.
const pausedByItself = "tasker"

var (
	// claimDueSchedules takes due schedules by the transaction's clock. Concurrent calls
	// skip them, and find them advanced later.
	// Index: schedules_due.
	claimDueSchedules = pg.Compile(`
with due as materialized (
    select * from tasker.schedules where paused_at is null and next_run_at <= now() and schedule_uuid <> all (@except::uuid[])
    order by next_run_at limit @limit for update skip locked
)` + describeDue)
	// claimSchedule takes one, due or not, and waits for its lock.
	// Index: the primary key.
	claimSchedule = pg.Compile(`
with due as materialized (select * from tasker.schedules where schedule_uuid = @schedule for update)` + describeDue)
	// advanceSchedules advances schedules. The task of a run is the one with its
	// identity: the new one, or that of the first try.
	// Index: the primary keys.
	advanceSchedules = pg.Compile(`
update tasker.schedules s
set next_run_at = coalesce(f.next_run_at, s.next_run_at), last_run_at = coalesce(f.last_run_at, s.last_run_at),
    last_task_uuid = coalesce((select i.task_uuid from tasker.task_identities i where i.identity = any (array[f.identity]) limit 1), s.last_task_uuid),
    last_error = f.error, paused_at = case when f.pause is null then s.paused_at else now() end,
    paused_by = case when f.pause is null then s.paused_by else '` + pausedByItself + `' end, pause_reason = coalesce(f.pause, s.pause_reason)
from ` + stmt.List[advance]("f") + `
where s.schedule_uuid = any (array[f.schedule_uuid])`)
)

// describeDue adds the inputs of the decision. The rows come from due, not from the
// table: the locked version may be younger than the snapshot.
// Index: the primary keys, plans_current, plan_uses_plan.
const describeDue = `
select ` + scheduleColumns + `, coalesce(p.plan_id, 0) as plan_id,
       s.overlap = {overlap_skip} and exists (select from tasker.board b where b.task_uuid = any (array[s.last_task_uuid]) and b.slot = 0) as alive
from due s
cross join lateral (select name from tasker.namespaces where namespace_id = s.namespace_id offset 0) n
left join lateral (
    select plan_id from tasker.plan_for_use(s.namespace_id, s.template, s.version)) p on true
order by s.next_run_at`

// advance is what a run changes of its schedule; zero values leave it unchanged, or clear
// the error.
type advance struct {
	ScheduleUUID uuid.UUID
	NextRunAt    time.Time `sql:",omitzero"`
	LastRunAt    time.Time `sql:",omitzero"`
	Identity     []byte    // of the task; nil: none was created
	Error        string    `sql:",omitzero"`
	Pause        string    `sql:",omitzero"`
}

// RunDueSchedules takes up to limit due schedules, except some, calls decide, creates
// their tasks and advances them, in one transaction of a fixed number of statements: a
// run is made once, or not yet. now is the database's clock. decide returns one answer
// per schedule, in order; it may be called again if the transaction is rolled back
// because of a conflict.
func (s *Calendar) RunDueSchedules(ctx context.Context, limit int, except []uuid.UUID, decide func(now time.Time, due []DueSchedule) []Firing) (Fired, error) {
	return s.runSchedules(ctx, "run_schedules", "run the due schedules", claimDueSchedules.With(pg.Args{"limit": limit, "except": pg.NonNil(except)}), nil,
		func(due []DueSchedule) ([]Firing, error) { return decide(due[0].ReadAt, due), nil })
}

// RunSchedule is RunDueSchedules for one schedule, at any time and even if it is paused,
// and records the operator. If decide returns an error, nothing is changed. The error
// wraps that, or ErrNotFound if the schedule does not exist.
func (s *Calendar) RunSchedule(ctx context.Context, id uuid.UUID, by pg.OperatorAction, decide func(now time.Time, due *DueSchedule) (Firing, error)) (Fired, error) {
	fired, err := s.runSchedules(ctx, "run_schedule", "run the schedule", claimSchedule.With(pg.Args{"schedule": id}), &by,
		func(due []DueSchedule) ([]Firing, error) {
			f, err := decide(due[0].ReadAt, &due[0])
			return []Firing{f}, err
		})
	if err == nil && fired.Schedules == 0 {
		err = fmt.Errorf("run the schedule: %w", pg.ErrNotFound)
	}
	return fired, err
}

func (s *Calendar) runSchedules(ctx context.Context, flow, doing string, claim stmt.Call, by *pg.OperatorAction,
	decide func(due []DueSchedule) ([]Firing, error)) (fired Fired, err error) {
	err = s.db.Transaction(ctx, flow, doing, func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		fired = Fired{}
		due, err := s.takeSchedules(ctx, tx, claim)
		if err != nil || len(due) == 0 {
			return nil, err
		}
		firings, err := decide(due)
		if err != nil {
			return nil, err
		}
		if fired, err = s.fire(ctx, tx, due, firings); err == nil && by != nil {
			action := *by
			action.Target = map[string]any{"schedule_id": due[0].UUID, "namespace": due[0].Namespace, "name": due[0].Name}
			action.Matched, action.Changed = 1, len(fired.Accepted)
			err = pg.InsertAction(ctx, tx, action)
		}
		return fired.Signals, err
	})
	return fired, err
}

// takeSchedules locks schedules and reads their plans.
func (s *Calendar) takeSchedules(ctx context.Context, tx pgx.Tx, claim stmt.Call) (due []DueSchedule, err error) {
	type row struct {
		scheduleRow
		PlanID int32 // 0: the plan does not exist any more
		Alive  bool
	}
	var ids []int32
	err = stmt.Each(ctx, tx, claim, func(r *row) error {
		due, ids = append(due, DueSchedule{Schedule: r.schedule(), Alive: r.Alive}), append(ids, r.PlanID)
		return nil
	})
	if err != nil {
		return nil, err
	}
	plans, err := s.registry.PlansOn(ctx, tx, ids)
	for i, id := range ids {
		due[i].Plan, due[i].Broken = plans.Usable[id], plans.Broken[id]
	}
	return due, err
}

// fire creates the tasks and moves the schedules on.
func (s *Calendar) fire(ctx context.Context, tx pgx.Tx, due []DueSchedule, firings []Firing) (Fired, error) {
	if len(firings) != len(due) {
		return Fired{}, fmt.Errorf("decided about %d of %d schedules", len(firings), len(due))
	}
	fired := Fired{Schedules: len(due), Accepted: map[uuid.UUID]time.Time{}}
	var tasks []board.NewTask
	moved := make([]advance, len(due))
	for i := range firings {
		tasks = append(tasks, firings[i].Tasks...)
		moved[i] = firings[i].advance(due[i].UUID)
	}
	b := &pgx.Batch{}
	if len(tasks) > 0 {
		var create stmt.Call
		create, fired.Signals = board.Creation(tasks, board.DistinctIdentities(tasks), nil)
		create.Queue(b).Query(board.AcceptedTasks(fired.Accepted).Collect)
		board.Relate(b, tasks, nil)
	}
	advanceSchedules.With(pg.Args{"f": moved}).Queue(b)
	return fired, tx.SendBatch(ctx, b).Close()
}

func (f *Firing) advance(schedule uuid.UUID) advance {
	a := advance{ScheduleUUID: schedule, NextRunAt: f.NextRun, LastRunAt: f.LastRun, Error: f.Error, Pause: f.Pause}
	if n := len(f.Tasks); n > 0 && f.Tasks[n-1].Identity != nil {
		a.Identity = f.Tasks[n-1].Identity[:]
	}
	return a
}
