package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// EngineStep is a step that the engine is about to begin.
type EngineStep struct {
	TaskUUID      uuid.UUID
	Step          *workflow.PlanStep
	Plan          *Plan
	Attempt       int // 1 for the first
	Priority      int
	CorrelationID uuid.UUID
	// Depth is the number of the task's ancestors; of KindTask only.
	Depth int
	// Scope resolves the step's references. Context and results are set if it has any
	// (workflow.StepTemplate.Refers).
	Scope workflow.Scope

	slot int16
}

// Key names the attempt.
func (e *EngineStep) Key() ClaimKey {
	return ClaimKey{TaskUUID: e.TaskUUID, Slot: int(e.slot), Step: e.Step.No, Token: int64(e.Attempt)}
}

// Beginner decides how steps begin.
type Beginner struct {
	// Begin returns what a step waits for. Its error ends the step, with a text for
	// users.
	Begin func(*EngineStep) (workflow.Beginning, error)
	// Task builds the task of a sub-workflow; plan is nil if no template has its name.
	// Its error ends the step too.
	Task func(step *EngineStep, sub *workflow.SubTask, plan *Plan) (NewTask, error)
}

// Begun is the result of BeginSteps.
type Begun struct {
	Steps   int             // begun, or ended at once
	Tasks   []NewTask       // of sub-workflows
	Signals []signal.Signal // to publish, unless the store sends them itself
}

// Steps for the engine to begin. A locked one is about to begin, or to leave the board.
// Index: board_claimable, then the primary key.
const engineSteps = `
with picked as materialized (
    select ctid as at from tasker.board where state = 2 and callable = 0 order by lane, seq limit $1 for update skip locked
)
select s.task_uuid, s.slot, s.step_no, s.attempt, b.plan_id, b.priority, coalesce(b.correlation_id, s.task_uuid)
from tasker.board s
cross join lateral (select plan_id, priority, correlation_id from tasker.board where task_uuid = s.task_uuid and slot = 0 limit 1) b
where s.ctid = any (array(select at from picked))
order by s.task_uuid, s.slot`

// BeginSteps begins up to limit steps that the engine runs, in one transaction of a
// bounded number of statements: waits are armed, earlier events are consumed, tasks are
// created. Steps that cannot begin are reported as failed.
func (s *Store) BeginSteps(ctx context.Context, limit int, how Beginner) (Begun, error) {
	var begun Begun
	err := s.call(ctx, "begin_steps", "begin the engine's steps", func(ctx context.Context, db *conn) error {
		return s.inTxThenNotify(ctx, db, func(tx pgx.Tx) ([]signal.Signal, error) {
			b := beginning{store: s, tx: tx, how: how, topics: signalSet{}}
			err := b.run(ctx, limit)
			begun = Begun{Steps: len(b.steps), Tasks: b.tasks, Signals: b.topics.signals()}
			return begun.Signals, err
		})
	})
	return begun, err
}

// beginning is one transaction of BeginSteps.
type beginning struct {
	store  *Store
	tx     pgx.Tx
	how    Beginner
	steps  []EngineStep
	begun  []workflow.Beginning // of each step
	ends   []*workflow.StepEnd  // of steps that end at once
	waits  []wait
	awaits []string // empty: receives no event
	tasks  []NewTask
	topics signalSet
}

func (b *beginning) run(ctx context.Context, limit int) error {
	if err := b.pick(ctx, limit); err != nil || len(b.steps) == 0 {
		return err
	}
	if err := b.readInputs(ctx); err != nil {
		return err
	}
	n := len(b.steps)
	b.begun, b.ends = make([]workflow.Beginning, n), make([]*workflow.StepEnd, n)
	b.waits, b.awaits = make([]wait, n), make([]string, n)
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

func (b *beginning) pick(ctx context.Context, limit int) error {
	rows, err := b.tx.Query(ctx, engineSteps, limit)
	if err != nil {
		return err
	}
	var plans []int32
	var numbers []int
	var e EngineStep
	var plan int32
	var no, attempt int
	_, err = pgx.ForEachRow(rows, []any{(*[16]byte)(&e.TaskUUID), &e.slot, &no, &attempt, &plan, &e.Priority, (*[16]byte)(&e.CorrelationID)}, func() error {
		e.Attempt = attempt + 1
		b.steps, plans, numbers = append(b.steps, e), append(plans, plan), append(numbers, no)
		return nil
	})
	if err != nil {
		return err
	}
	read, err := b.store.plansOn(ctx, b.tx, plans)
	for i := range plans {
		if err != nil {
			return err
		}
		e := &b.steps[i]
		if e.Plan, err = read.of(plans[i]); err == nil {
			e.Step = &e.Plan.Steps[numbers[i]]
		}
	}
	return err
}

// readInputs reads what references may name.
func (b *beginning) readInputs(ctx context.Context) error {
	var refer, sub []int
	for i := range b.steps {
		e := &b.steps[i]
		t := e.Plan.Template
		e.Scope.Task = map[string]any{"uuid": e.TaskUUID.String(), "correlation_id": e.CorrelationID.String(), "namespace": t.Namespace,
			"name": t.Name, "version": t.Version, "priority": e.Priority}
		if e.Step.Refers() {
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
	tasks, slots := make(uuids, len(of)), make([]int16, len(of))
	for i, at := range of {
		tasks[i], slots[i] = b.steps[at].TaskUUID, b.steps[at].slot
	}
	rows, err := b.tx.Query(ctx, fetchInputs, tasks, slots)
	if err != nil {
		return err
	}
	var at int
	var document, results []byte
	_, err = pgx.ForEachRow(rows, []any{&at, &document, &results}, func() error {
		e := &b.steps[of[at-1]]
		e.Scope.Context = append(json.RawMessage(nil), document...)
		var byNumber map[int]json.RawMessage
		if results != nil {
			if err := json.Unmarshal(results, &byNumber); err != nil {
				return err
			}
		}
		e.Scope.Steps = make(map[string]json.RawMessage, len(byNumber))
		for no, result := range byNumber {
			if no < len(e.Plan.Steps) {
				e.Scope.Steps[e.Plan.Steps[no].Name] = result
			}
		}
		return nil
	})
	return err
}

func (b *beginning) readDepths(ctx context.Context, of []int) error {
	if len(of) == 0 {
		return nil
	}
	tasks, place := make(uuids, len(of)), make(map[uuid.UUID][]int, len(of))
	for i, at := range of {
		id := b.steps[at].TaskUUID
		tasks[i], place[id] = id, append(place[id], at)
	}
	rows, err := b.tx.Query(ctx, `select task_uuid, coalesce(depth, 0) from tasker.tasks where task_uuid = any ($1::uuid[])`, tasks)
	if err != nil {
		return err
	}
	var id uuid.UUID
	var depth int
	_, err = pgx.ForEachRow(rows, []any{(*[16]byte)(&id), &depth}, func() error {
		for _, at := range place[id] {
			b.steps[at].Depth = depth
		}
		return nil
	})
	return err
}

// fail ends a step that cannot begin; a retry would fail too.
func (b *beginning) fail(i int, err error) {
	end := workflow.Failed(workflow.ErrorTypeCannotRun, err.Error(), false)
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
		b.awaits[i] = awaitsApproval + uuid.NewString() // random, so that it cannot be guessed
	}
}

// keptEvents are the oldest undelivered events, as many as steps wait for them.
// Index: received_events_kept.
const keptEvents = `
select e.event_uuid, e.awaits, ` + eventResult + `
from (select awaits, count(*)::int as n from unnest($1::text[]) w(awaits) group by awaits) w
cross join lateral (
    select * from tasker.received_events
    where awaits = w.awaits collate "C" and delivered = 0 and expires_at > clock_timestamp() order by event_uuid limit w.n) e
order by e.awaits, e.event_uuid`

// takeKept records their receivers.
// Index: the primary key.
const takeKept = `
update tasker.received_events e set delivered = 1, taken_by = t.task_uuid
from unnest($1::uuid[], $2::uuid[]) t(event_uuid, task_uuid) where e.event_uuid = any (array[t.event_uuid])`

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
	if _, err := b.tx.Exec(ctx, lockEventKeys, keys); err != nil {
		return err
	}
	rows, err := b.tx.Query(ctx, keptEvents, keys)
	if err != nil {
		return err
	}
	var id uuid.UUID
	var key string
	var result []byte
	var events, takers uuids
	_, err = pgx.ForEachRow(rows, []any{(*[16]byte)(&id), &key, &result}, func() error {
		at := waiting[key][0]
		waiting[key] = waiting[key][1:]
		b.ends[at] = &workflow.StepEnd{Result: append(json.RawMessage(nil), result...)}
		b.awaits[at] = ""
		events, takers = append(events, id), append(takers, b.steps[at].TaskUUID)
		return nil
	})
	if err != nil || events == nil {
		return err
	}
	_, err = b.tx.Exec(ctx, takeKept, events, takers)
	return err
}

// plansByName are the current plans of template versions, to create tasks of them.
// Index: plans_current, plan_uses_plan.
const plansByName = `
select w.at, p.plan_id
from unnest($1::text[], $2::text[], $3::text[]) with ordinality w(namespace, name, version, at)
cross join lateral (select namespace_id from tasker.namespaces where name = any (array[w.namespace]) limit 1) n
cross join lateral (
    select plan_id from tasker.plan_for_use(n.namespace_id, w.name, w.version)) p`

// createTasks makes the tasks that steps are.
func (b *beginning) createTasks(ctx context.Context) error {
	var of []int
	var namespaces, names, versions []string
	for i := range b.steps {
		if b.ends[i] == nil && b.begun[i].Kind == workflow.KindTask {
			sub := &b.begun[i].Task
			of, namespaces = append(of, i), append(namespaces, sub.Namespace)
			names, versions = append(names, sub.Name), append(versions, sub.Version)
		}
	}
	if of == nil {
		return nil
	}
	plans := make([]*Plan, len(of))
	rows, err := b.tx.Query(ctx, plansByName, namespaces, names, versions)
	if err != nil {
		return err
	}
	found := make(map[int]int32, len(of))
	var at int
	var id int32
	if _, err := pgx.ForEachRow(rows, []any{&at, &id}, func() error { found[at-1] = id; return nil }); err != nil {
		return err
	}
	read, err := b.store.plansOn(ctx, b.tx, slices.Collect(maps.Values(found)))
	if err != nil {
		return err
	}
	for i, id := range found {
		if plans[i], err = read.of(id); err != nil {
			return err
		}
	}
	for i, at := range of {
		e := &b.steps[at]
		task, err := b.how.Task(e, &b.begun[at].Task, plans[i])
		if err != nil {
			b.fail(at, err)
			continue
		}
		task.Parent = &ParentStep{Task: e.TaskUUID, Step: e.Step.No, Depth: e.Depth + 1}
		b.tasks = append(b.tasks, task)
		b.waits[at].TaskUUID = &task.UUID
		b.awaits[at] = awaitsTask + task.UUID.String()
	}
	if len(b.tasks) == 0 {
		return nil
	}
	args, signals, err := createArguments(b.tasks, distinctIdentities(b.tasks), nil)
	if err != nil {
		return err
	}
	accepted := make(acceptedTasks, len(b.tasks))
	batch := &pgx.Batch{}
	batch.Queue(createTasks, args...).Query(accepted.collect)
	relate(batch, b.tasks, nil)
	if err := b.tx.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	if len(accepted) != len(b.tasks) {
		return fmt.Errorf("%d of %d tasks were created", len(accepted), len(b.tasks)) // they have no identities, so all must be
	}
	for _, s := range signals {
		b.topics.add(s.Topic)
	}
	return nil
}

// armSteps begins attempts: a step waits, or has ended at once.
// Index: the primary key.
const armSteps = `
update tasker.board s
set attempt = s.attempt + 1, token = nextval('tasker.claim_token'), claimed_at = clock_timestamp(),
    seq = case when r.outcome is null then s.seq else nextval('tasker.step_seq') end,
    state = case when r.outcome is null then 1 else 4 end,
    due_at = case when r.outcome is not null then null
                  when r.due_until is not null then greatest(r.due_until, clock_timestamp())
                  when r.due_ms > 0 then clock_timestamp() + r.due_ms * interval '1 ms' end,
    reported_at = case when r.outcome is not null then clock_timestamp() end,
    outcome = r.outcome, retryable = r.retryable, result = r.result::jsonb, error = r.error::jsonb,
    wait = r.wait::jsonb, awaits = r.awaits
from unnest((select $1::uuid[]), (select $2::smallint[]), (select $3::smallint[]), (select $4::boolean[]), (select $5::text[]), (select $6::text[]),
            (select $7::text[]), (select $8::text[]), (select $9::bigint[]), (select $10::timestamptz[]))
     r(task_uuid, slot, outcome, retryable, result, error, wait, awaits, due_ms, due_until)
where s.task_uuid = any (array[r.task_uuid]) and s.slot = r.slot`

func (b *beginning) arm(ctx context.Context) error {
	n := len(b.steps)
	tasks, slots := make(uuids, n), make([]int16, n)
	waits, awaits := make([]*string, n), make([]*string, n)
	dues, until := make([]int64, n), make([]*time.Time, n)
	var ends endColumns
	for i := range b.steps {
		tasks[i], slots[i] = b.steps[i].TaskUUID, b.steps[i].slot
		ends.add(b.ends[i])
		if b.ends[i] != nil {
			b.topics.add(signal.TopicOrchestration)
			continue
		}
		document, err := json.Marshal(&b.waits[i])
		if err != nil {
			return fmt.Errorf("describe what step %d of task %s waits for: %w", b.steps[i].Step.No, b.steps[i].TaskUUID, err)
		}
		text := string(document)
		waits[i] = &text
		if b.awaits[i] != "" {
			awaits[i] = &b.awaits[i]
		}
		dues[i] = millis(b.begun[i].For)
		if !b.begun[i].Until.IsZero() {
			until[i] = &b.begun[i].Until
		}
		if dues[i] > 0 || until[i] != nil {
			b.topics.add(signal.TopicDue)
		}
	}
	_, err := b.tx.Exec(ctx, armSteps, tasks, slots, ends.outcomes, ends.retryable, ends.results, ends.errors, waits, awaits, dues, until)
	return err
}
