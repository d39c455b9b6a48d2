package waits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/enginestep"
	"github.com/tasker-go/tasker/internal/store/internal/board"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// EngineStep is a step that the engine is about to begin.
type EngineStep struct {
	TaskUUID      uuid.UUID
	Step          *workflow.PlanStep
	Plan          *registry.Plan
	Attempt       int // 1 for the first
	Priority      int
	CorrelationID uuid.UUID
	Trace         []byte // of its task, see board.NewTask
	// Depth is the number of the task's ancestors; of KindTask only.
	Depth int
	// Scope resolves the step's references. Context and results are set if it has any
	// (workflow.StepTemplate.Refers).
	Scope enginestep.Scope

	slot int16
}

// Key names the attempt.
func (e *EngineStep) Key() board.ClaimKey {
	return board.ClaimKey{TaskUUID: e.TaskUUID, Slot: int(e.slot), Step: e.Step.No, Token: int64(e.Attempt)}
}

// Beginner decides how steps begin.
type Beginner struct {
	// Begin returns what a step waits for. Its error ends the step, with a text for
	// users.
	Begin func(*EngineStep) (enginestep.Beginning, error)
	// Task builds the task of a sub-workflow; plan is nil if no template has its name.
	// Its error ends the step too, unless it wraps ErrNotYet: then the step is left as it is.
	Task func(step *EngineStep, sub *enginestep.SubTask, plan *registry.Plan) (board.NewTask, error)
}

// ErrNotYet says that it is not known yet whether a step can begin.
var ErrNotYet = errors.New("the step cannot begin yet")

// Begun is the result of BeginSteps.
type Begun struct {
	Steps   int             // begun, or ended at once
	Refused int             // steps that wait, because a quota rejects their tasks
	Left    []uuid.UUID     // tasks whose plans this program cannot read, while a newer one may
	Why     error           // of one of these
	Tasks   []board.NewTask // of sub-workflows
	Signals []signal.Signal // to publish, unless the store sends them itself
}

// firstForEngine are the first steps for the engine to begin.
var firstForEngine = `from tasker.board
    where state = {claimable} and callable = {by_engine} and ` + pg.InRows("task_uuid") + ` order by lane, seq limit @limit`

// engineTasks are the tasks of the steps that engineSteps would take.
// Index: board_claimable.
var engineTasks = pg.Compile(`select distinct task_uuid from (select task_uuid ` + firstForEngine + `) e`)

// Steps for the engine to begin. A locked one is about to begin, or to leave the board.
// Index: board_claimable, then the primary key.
var engineSteps = pg.Compile(`
with picked as materialized (
    select ctid as at ` + firstForEngine + ` for update skip locked
)
select s.task_uuid, s.slot, s.step_no, s.attempt, b.plan_id, b.priority, coalesce(b.correlation_id, s.task_uuid) as correlation_id, b.trace
from tasker.board s
cross join lateral (select plan_id, priority, correlation_id, trace from tasker.board where task_uuid = s.task_uuid and slot = 0 limit 1) b
where s.ctid = any (array(select at from picked))
order by s.task_uuid, s.slot`)

// EngineTasks returns the tasks of the steps that BeginSteps would take.
func (s *Waits) EngineTasks(ctx context.Context, rows pg.Rows) ([]uuid.UUID, error) {
	return pg.ReadAll[uuid.UUID](ctx, s.db, "engine_tasks", "list the tasks of the engine's steps", engineTasks.With(rows.Args()))
}

// BeginSteps begins steps that the engine runs, in one transaction of a bounded number of
// statements: waits are armed, earlier events are consumed, tasks are created. Steps that cannot
// begin are reported as failed; those with unreadable plans are left as they are. The keys of the
// rows are tasks.
func (s *Waits) BeginSteps(ctx context.Context, rows pg.Rows, how Beginner) (Begun, error) {
	var begun Begun
	err := s.db.Transaction(ctx, "begin_steps", "begin the engine's steps", func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		b := beginning{store: s, tx: tx, how: how, topics: board.SignalSet{}}
		err := b.run(ctx, rows)
		begun = Begun{Steps: len(b.steps) - count(b.notYet), Refused: len(b.refused), Left: b.left, Why: b.why, Tasks: b.tasks, Signals: b.topics.Signals()}
		return begun.Signals, err
	})
	return begun, err
}

func count(set []bool) (n int) {
	for _, is := range set {
		if is {
			n++
		}
	}
	return n
}

// beginning is one transaction of BeginSteps.
type beginning struct {
	store   *Waits
	tx      pgx.Tx
	how     Beginner
	left    []uuid.UUID
	why     error
	steps   []EngineStep
	begun   []enginestep.Beginning // of each step
	ends    []*enginestep.End      // of steps that end at once
	waits   []board.Wait
	awaits  []string // empty: receives no event
	notYet  []bool   // steps that stay as they are, or are refused
	refused []board.RowKey
	tasks   []board.NewTask
	topics  board.SignalSet
}

func (b *beginning) run(ctx context.Context, rows pg.Rows) error {
	if err := b.pick(ctx, rows); err != nil || len(b.steps) == 0 {
		return err
	}
	if err := b.readInputs(ctx); err != nil {
		return err
	}
	n := len(b.steps)
	b.begun, b.ends = make([]enginestep.Beginning, n), make([]*enginestep.End, n)
	b.waits, b.awaits, b.notYet = make([]board.Wait, n), make([]string, n), make([]bool, n)
	for i := range b.steps {
		begun, err := b.how.Begin(&b.steps[i])
		if err != nil {
			b.fail(i, err)
			continue
		}
		b.begun[i] = begun
		b.describe(i)
	}
	if err := b.takeEvents(ctx); err != nil {
		return err
	}
	if err := b.createTasks(ctx); err != nil {
		return err
	}
	return b.arm(ctx)
}

func (b *beginning) pick(ctx context.Context, rows pg.Rows) error {
	type row struct {
		board.RowKey
		StepNo, Attempt int
		PlanID          int32
		Priority        int
		CorrelationID   uuid.UUID
		Trace           []byte
	}
	picked, err := stmt.All[row](ctx, b.tx, engineSteps.With(rows.Args()))
	if err != nil {
		return err
	}
	read, err := b.store.registry.PlansOn(ctx, b.tx, pg.Column(picked, func(r *row) int32 { return r.PlanID }))
	if err != nil {
		return err
	}
	for _, r := range picked {
		plan, err := read.Of(r.PlanID)
		if err != nil {
			b.left, b.why = append(b.left, r.TaskUUID), err
			continue
		}
		b.steps = append(b.steps, EngineStep{TaskUUID: r.TaskUUID, Step: &plan.Steps[r.StepNo], Plan: plan, Attempt: r.Attempt + 1,
			Priority: r.Priority, CorrelationID: r.CorrelationID, Trace: r.Trace, slot: r.Slot})
	}
	return nil
}

// readInputs reads what references may name.
func (b *beginning) readInputs(ctx context.Context) error {
	var refer, sub []int
	for i := range b.steps {
		e := &b.steps[i]
		t := e.Plan.Template
		e.Scope.Task = map[string]any{"uuid": e.TaskUUID.String(), "correlation_id": e.CorrelationID.String(), "namespace": t.Namespace,
			"name": t.Name, "version": t.Version, "priority": e.Priority}
		if enginestep.Refers(e.Step) {
			refer = append(refer, i)
		}
		if e.Step.Kind == workflow.KindTask {
			sub = append(sub, i)
		}
	}
	if err := b.readScopes(ctx, refer); err != nil {
		return err
	}
	return b.readDepths(ctx, sub)
}

func (b *beginning) readScopes(ctx context.Context, of []int) error {
	if len(of) == 0 {
		return nil
	}
	keys := make([]board.RowKey, len(of))
	for i, at := range of {
		keys[i] = board.RowKey{TaskUUID: b.steps[at].TaskUUID, Slot: b.steps[at].slot}
	}
	return stmt.Each(ctx, b.tx, board.FetchInputs.With(pg.Args{"k": keys, "most": int64(math.MaxInt64), "all": int64(math.MaxInt64)}), func(in *board.ClaimInputs) {
		e := &b.steps[of[in.At-1]]
		e.Scope.Context = in.Context
		e.Scope.Steps = make(map[string]json.RawMessage, len(in.Inputs))
		for no, result := range in.Inputs {
			if no < len(e.Plan.Steps) {
				e.Scope.Steps[e.Plan.Steps[no].Name] = result
			}
		}
	})
}

var readDepths = pg.Compile(`select task_uuid, coalesce(depth, 0) as depth from tasker.tasks where task_uuid = any (@tasks::uuid[])`)

func (b *beginning) readDepths(ctx context.Context, of []int) error {
	if len(of) == 0 {
		return nil
	}
	tasks, place := make(pg.UUIDs, len(of)), make(map[uuid.UUID][]int, len(of))
	for i, at := range of {
		id := b.steps[at].TaskUUID
		tasks[i], place[id] = id, append(place[id], at)
	}
	type row struct {
		TaskUUID uuid.UUID
		Depth    int
	}
	return stmt.Each(ctx, b.tx, readDepths.With(pg.Args{"tasks": tasks}), func(r *row) {
		for _, at := range place[r.TaskUUID] {
			b.steps[at].Depth = r.Depth
		}
	})
}

// fail ends a step that cannot begin; a retry would fail too.
func (b *beginning) fail(i int, err error) {
	end := enginestep.Failed(enginestep.ErrorTypeCannotRun, err.Error(), false)
	b.ends[i], b.awaits[i] = &end, ""
}

// describe records what a step waits for, and its end when due.
func (b *beginning) describe(i int) {
	e, begun := &b.steps[i], &b.begun[i]
	w := &b.waits[i]
	w.Kind, w.Event, w.Key, w.Prompt = begun.Kind.String(), begun.Event, begun.Key, begun.Prompt
	if due := begun.Due; due.Result != nil {
		w.Outcome, w.Result = int16(workflow.OutcomeSuccess), due.Result
	} else if due.Error != nil {
		w.Outcome, w.Error, w.Retry = int16(workflow.OutcomeFailed), due.Error, due.Retryable
	}
	switch begun.Kind {
	case workflow.KindWaitForEvent:
		b.awaits[i] = eventAwaits(e.Plan.Template.Namespace, begun.Event, begun.Key, e.TaskUUID)
	case workflow.KindApproval:
		b.awaits[i] = board.AwaitsApproval + uuid.NewString() // random, so that it cannot be guessed
	}
}

// keptEvents are the oldest undelivered events, as many as steps wait for them.
// Index: received_events_kept.
var keptEvents = pg.Compile(`
select e.event_uuid, e.awaits, ` + eventResult + ` as result
from (select awaits, count(*)::int as n from unnest(@awaits::text[]) w(awaits) group by awaits) w
cross join lateral (
    select * from tasker.received_events
    where awaits = w.awaits collate "C" and delivered = 0 and expires_at > clock_timestamp() order by event_uuid limit w.n) e
order by e.awaits, e.event_uuid`)

// takeKept records their receivers.
// Index: the primary key.
var takeKept = pg.Compile(`
update tasker.received_events e set delivered = 1, taken_by = t.task_uuid
from ` + stmt.List[takenEvent]("t") + ` where e.event_uuid = any (array[t.event_uuid])`)

// takenEvent is an event and the task that gets it.
type takenEvent struct{ EventUUID, TaskUUID uuid.UUID }

// takeEvents gives waiting steps the events that arrived before them. While the keys are
// locked none can arrive in between.
func (b *beginning) takeEvents(ctx context.Context) error {
	waiting := map[string][]int{}
	var keys []string
	for i := range b.steps {
		if b.ends[i] == nil && b.begun[i].Kind == workflow.KindWaitForEvent {
			waiting[b.awaits[i]] = append(waiting[b.awaits[i]], i)
			keys = append(keys, b.awaits[i])
		}
	}
	if keys == nil {
		return nil
	}
	if _, err := pg.Run(ctx, b.tx, lockEventKeys.With(pg.Args{"keys": keys})); err != nil {
		return err
	}
	type row struct {
		EventUUID uuid.UUID
		Awaits    string
		Result    json.RawMessage
	}
	var taken []takenEvent
	err := stmt.Each(ctx, b.tx, keptEvents.With(pg.Args{"awaits": keys}), func(r *row) {
		at := waiting[r.Awaits][0]
		waiting[r.Awaits] = waiting[r.Awaits][1:]
		b.ends[at], b.awaits[at] = &enginestep.End{Result: r.Result}, ""
		taken = append(taken, takenEvent{r.EventUUID, b.steps[at].TaskUUID})
	})
	if err != nil || taken == nil {
		return err
	}
	_, err = pg.Run(ctx, b.tx, takeKept.With(pg.Args{"t": taken}))
	return err
}

// plansByName are the current plans of template versions, to create tasks of them.
// Index: those of registry.PlanForUse.
var plansByName = pg.Compile(`
select w.at, p.plan_id
from ` + stmt.OrderedList[versionName]("w") + `
cross join lateral (select namespace_id from tasker.namespaces where name = any (array[w.namespace]) limit 1) n
cross join lateral (
    select plan_id from ` + registry.PlanForUse("n.namespace_id", "w.name", "w.version") + `) p`)

// versionName names a template version; an empty version is the highest that is not deprecated.
type versionName struct{ Namespace, Name, Version string }

// createTasks makes the tasks that steps are.
func (b *beginning) createTasks(ctx context.Context) error {
	var of []int
	var names []versionName
	for i := range b.steps {
		if b.ends[i] == nil && b.begun[i].Kind == workflow.KindTask {
			sub := &b.begun[i].Task
			of, names = append(of, i), append(names, versionName{sub.Namespace, sub.Name, sub.Version})
		}
	}
	if of == nil {
		return nil
	}
	plans := make([]*registry.Plan, len(of))
	type row struct {
		At     int
		PlanID int32
	}
	found := make(map[int]int32, len(of))
	if err := stmt.Each(ctx, b.tx, plansByName.With(pg.Args{"w": names}), func(r *row) {
		found[r.At-1] = r.PlanID
	}); err != nil {
		return err
	}
	read, err := b.store.registry.PlansOn(ctx, b.tx, slices.Collect(maps.Values(found)))
	if err != nil {
		return err
	}
	for i, id := range found {
		if plans[i], err = read.Of(id); err != nil {
			return err
		}
	}
	for i, at := range of {
		e := &b.steps[at]
		task, err := b.how.Task(e, &b.begun[at].Task, plans[i])
		if b.notYet[at] = errors.Is(err, ErrNotYet); b.notYet[at] {
			continue
		}
		if err != nil {
			b.fail(at, err)
			continue
		}
		task.Parent = &board.ParentStep{Task: e.TaskUUID, Step: e.Step.No, Depth: e.Depth + 1}
		b.tasks = append(b.tasks, task)
		b.waits[at].TaskUUID = &task.UUID
		b.awaits[at] = board.AwaitsTask + task.UUID.String()
	}
	if len(b.tasks) == 0 {
		return nil
	}
	create, signals := board.Creation(b.tasks, board.DistinctIdentities(b.tasks), nil)
	accepted := make(board.AcceptedTasks, len(b.tasks))
	batch := &pgx.Batch{}
	create.Queue(batch).Query(accepted.Collect)
	board.Relate(batch, b.tasks, nil)
	if err := b.tx.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	b.refuse(of, accepted)
	if len(accepted) != len(b.tasks) {
		return fmt.Errorf("%d of %d tasks were created", len(accepted), len(b.tasks)) // they have no identities, so all must be
	}
	for _, s := range b.store.db.WithTransitions(signals) {
		b.topics.Add(s.Topic)
	}
	return nil
}

// refuse takes back the tasks that a quota has rejected.
func (b *beginning) refuse(of []int, accepted board.AcceptedTasks) {
	for _, at := range of {
		id := b.waits[at].TaskUUID
		if id == nil || accepted[*id].RefusedFor == 0 {
			continue
		}
		delete(accepted, *id)
		b.tasks = slices.DeleteFunc(b.tasks, func(t board.NewTask) bool { return t.UUID == *id })
		b.notYet[at], b.waits[at].TaskUUID, b.awaits[at] = true, nil, ""
		b.refused = append(b.refused, board.RowKey{TaskUUID: b.steps[at].TaskUUID, Slot: b.steps[at].slot})
		b.topics.Add(signal.TopicDue)
	}
}

// delaySteps lets steps whose tasks a quota has rejected begin later: after a second, or a tenth of the age of
// their task, up to a minute, so that many of them leave room for others.
// Index: the primary key.
var delaySteps = pg.Compile(`
update tasker.board s
set state = {scheduled}, enqueued_at = null,
    due_at = clock_timestamp() + (0.75 + random() / 2) * greatest(interval '1 second', least(interval '1 minute', (clock_timestamp() - b.requested_at) / 10))
from ` + stmt.HiddenList[board.RowKey]("r") + `
join tasker.board b on b.task_uuid = any (array[r.task_uuid]) and b.slot = 0
where s.task_uuid = any (array[r.task_uuid]) and s.slot = r.slot`)

// armSteps begins attempts: a step waits, or has ended at once.
// Index: the primary key.
var armSteps = pg.Compile(`
update tasker.board s
set attempt = s.attempt + 1, token = nextval('tasker.claim_token'), claimed_at = clock_timestamp(),
    seq = case when r.outcome is null then s.seq else nextval('tasker.step_seq') end,
    state = case when r.outcome is null then {scheduled} else {reported} end,
    due_at = case when r.outcome is not null then null
                  when r.due_until is not null then greatest(r.due_until, clock_timestamp())
                  when r.due_ms > 0 then clock_timestamp() + r.due_ms * interval '1 ms' end,
    reported_at = case when r.outcome is not null then clock_timestamp() end,
    outcome = r.outcome, retryable = r.retryable, result = r.result::jsonb, error = r.error::jsonb,
    wait = r.wait::jsonb, awaits = r.awaits
from ` + stmt.HiddenList[armedStep]("r") + `
where s.task_uuid = any (array[r.task_uuid]) and s.slot = r.slot`)

// armedStep is a step that begins to wait, or has ended at once.
type armedStep struct {
	board.RowKey
	waitEnd
	Wait     json.RawMessage
	Awaits   string        `sql:",omitzero"`
	DueIn    time.Duration `sql:"due_ms"`
	DueUntil time.Time     `sql:",omitzero"`
}

func (b *beginning) arm(ctx context.Context) (err error) {
	if len(b.refused) > 0 {
		if _, err := pg.Run(ctx, b.tx, delaySteps.With(pg.Args{"r": b.refused})); err != nil {
			return err
		}
	}
	rows := make([]armedStep, 0, len(b.steps))
	for i := range b.steps {
		if b.notYet[i] {
			continue
		}
		rows = append(rows, armedStep{})
		e, r, begun := &b.steps[i], &rows[len(rows)-1], &b.begun[i]
		r.RowKey, r.waitEnd = board.RowKey{TaskUUID: e.TaskUUID, Slot: e.slot}, waitEndOf(b.ends[i])
		if b.ends[i] != nil {
			b.topics.Add(signal.TopicOrchestration)
			continue
		}
		if r.Wait, err = json.Marshal(&b.waits[i]); err != nil {
			return fmt.Errorf("describe what step %d of task %s waits for: %w", e.Step.No, e.TaskUUID, err)
		}
		if r.Awaits, r.DueIn, r.DueUntil = b.awaits[i], begun.For, begun.Until; begun.For > 0 || !begun.Until.IsZero() {
			b.topics.Add(signal.TopicDue)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	_, err = pg.Run(ctx, b.tx, armSteps.With(pg.Args{"r": rows}))
	return err
}
