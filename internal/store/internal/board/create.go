package board

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// NewTask is a task to create; all of it has been validated.
type NewTask struct {
	UUID                uuid.UUID // version 7
	Plan                *registry.Plan
	Context             json.RawMessage
	Priority            int // priorities.Min–MaxPriority
	CorrelationID       uuid.UUID
	ParentCorrelationID *uuid.UUID
	Initiator           string
	SourceSystem        string
	Reason              string
	Tags                []string
	StepTags            []string // that a worker must have besides those of the first step, if that is the only one
	IdempotencyKey      string
	Identity            *dedup.Identity   // nil: never a duplicate
	IdentityEnd         dedup.IdentityEnd // until when duplicates are rejected
	// StartIn delays the first steps. StartAt delays them until an instant and takes
	// precedence if it is not zero: the database's clock decides.
	StartIn    time.Duration
	StartAt    time.Time
	DeadlineIn time.Duration // by which it should have begun; 0: none
	// Retry overrides the retries of its steps; nil: by the plan.
	Retry *workflow.RetryOverride
	// Parent is the step that the task is, and waits for its end; nil: none.
	Parent *ParentStep
	// DependsOn are tasks that have to end before this one begins; they exist.
	DependsOn []uuid.UUID
	// Reaches says of which namespaces these may be, beside its own; nil: of all. Others do not exist.
	Reaches func(namespace string) bool
	// Lenient lets it begin regardless of their outcome; else their failure cancels it.
	Lenient bool
	// Watched: a client already waits for its end, see Store.Watch.
	Watched bool
	// Trace is its place in a trace, see tracing.Row; nil: none.
	Trace []byte
	// Limited: it is subject to the quota of its namespace and the limits of its template.
	Limited bool
	// Quota is the kind of tasks that the engine creates, which quotas may apply to, one of
	// registry.QuotaKinds. Empty: no quota rejects the task, unless it is Limited.
	Quota string

	start *workflow.Start // see Begin; nil: not called
	lanes lanes           // of first steps
}

// ParentStep names the step that a task is.
type ParentStep struct {
	Task  uuid.UUID
	Step  int
	Depth int // of the new task: the number of its ancestors
}

// CreatedTask answers one NewTask: the created task, or the one that already has its
// identity.
type CreatedTask struct {
	UUID        uuid.UUID
	RequestedAt time.Time // by the database's clock; zero for a duplicate
	Duplicate   bool
	// State is that of the existing task, of a Duplicate; Running says that a worker has its only
	// step.
	State   workflow.TaskState
	Running bool
	// Busy: an open transaction is creating a task with the same identity. Nothing was
	// created; the caller must retry.
	Busy bool
	// RefusedFor: the quota of the namespace is used up, or the throttle of the template
	// (Throttled). Nothing was created; places may be free after this time. 0: not refused.
	RefusedFor time.Duration
	Throttled  bool
	// Debounced: the task waits for more submissions. Without RequestedAt it was waiting
	// already, and this one has become a part of it.
	Debounced bool
}

// Bounds of what the board's row of a task carries along; see docs/inside/data-model.md.
const (
	// maxInlineContext bounds the context, in bytes of JSON text. A larger one
	// is fetched from the ledger with each claim.
	maxInlineContext = 512
	inlineContext    = "512" // the same, in statements
	// maxInlineResult bounds the result that a step leaves in the row for the
	// next one, in bytes as stored.
	maxInlineResult = "1024"
)

// createTasks inserts identities, ledger rows, board rows and first steps in one
// statement. The later parts skip a task whose identity is taken; an identity whose
// window has passed goes to the new task. A task that begins with one step has it in its
// own row, other steps follow in rows of their own. Times count from the statement and
// not from the beginning of the transaction, which may be the caller's and old.
// patience is how long identities are waited for, see identityPatience; null leaves that
// unchanged.
// Index: the primary keys.
var createTasks = pg.Compile(creating)

// createTasksIn is createTasks for transactions of others, whose roles may lack the right
// to see whether clients follow transitions, or quotas and limits, which do not concern them.
var createTasksIn = pg.Compile(strings.NewReplacer("{followed}", "(select tasker.is_followed())", refusal, "null::bigint").Replace(creating))

// createNextIn is createTasksIn for tasks that quotas may apply to.
var createNextIn = pg.Compile(strings.NewReplacer("{followed}", "(select tasker.is_followed())",
	refusal, "case when i.quota is not null then tasker.take_place_as(i.quota, i.queue, i.identity) end").Replace(creating))

// refusal is for how many milliseconds the new task i is refused; null: not; -1: its
// template has limits (see createLimited). Without quotas and limits
// it is one look into an empty table for the whole statement. All quotas are
// locked before the first identity, in the order of the namespaces.
const refusal = `case when i.queue = any (array(select namespace_id from tasker.governed)) then
        case when i.limited then tasker.refuse(i.queue, i.plan_id, i.identity)
             when i.quota is not null then tasker.take_place_as(i.quota, i.queue, i.identity) end end`

var creating = `
with patience as materialized (
    select set_config('lock_timeout', coalesce(@patience::text, current_setting('lock_timeout')), true)
), input as (
    select i.*, ` + refusal + ` as refused_ms from patience, ` + stmt.List[newTaskRow]("i") + `
), identified as (
    insert into tasker.task_identities as t (identity, task_uuid, expires_at)
    select identity, task_uuid, case
        when window_ms > 0 then statement_timestamp() + window_ms * interval '1 ms'
        when calendar is not null
        then ` + untilBorder + `statement_timestamp()` + ofCalendar + `
        else 'infinity' end
    from input where identity is not null and refused_ms is null order by identity
    on conflict (identity) do update set task_uuid = excluded.task_uuid, expires_at = excluded.expires_at
    where t.expires_at <= statement_timestamp() and t.task_uuid <> excluded.task_uuid -- as left by a first try whose answer was lost
    returning task_uuid
), accepted as (
    select *, context::jsonb as context_json, case when not_before > statement_timestamp() then not_before end as start_at
    from input i where refused_ms is null and (identity is null or exists (select from identified d where d.task_uuid = i.task_uuid))
), recorded as (
    insert into tasker.tasks (task_uuid, requested_at, start_at, correlation_id, parent_correlation_id, plan_id, queue, priority,
                              initiator, source_system, reason, tags, idempotency_key, context, deadline)
    select task_uuid, statement_timestamp(), case when start_ms > 0 then statement_timestamp() + start_ms * interval '1 ms' else start_at end,
           correlation_id, parent_correlation_id,
           plan_id, queue, priority, initiator, source_system, reason, string_to_array(tags, {separator}), idempotency_key, context_json,
           case when deadline_ms > 0 then statement_timestamp() + deadline_ms * interval '1 ms' end
    from accepted where ` + recording(`task_uuid, queue, null, null, null, null, {task_pending}`) + `
), living as (
    insert into tasker.board (task_uuid, slot, plan_id, queue, task_state, priority, progress, requested_at, correlation_id,
                              parent_correlation_id, context, step_no, callable, lane, state, seq, due_at, enqueued_at, tags, deadline, last_attempt, watched, trace)
    select task_uuid, 0, plan_id, queue, {task_pending}, priority, progress, statement_timestamp(), correlation_id,
           parent_correlation_id, case when octet_length(context) <= ` + inlineContext + ` then context_json end, step_no, callable, lane,
           case when step_no is null then {no_step} when due_ms > 0 or start_at is not null then {scheduled} else {claimable} end,
           case when step_no is null then 0 else nextval('tasker.step_seq') end,
           case when step_no is null then null when due_ms > 0 then clock_timestamp() + due_ms * interval '1 ms' else start_at end,
           case when step_no is null or due_ms > 0 or start_at is not null then null else clock_timestamp() end, string_to_array(step_tags, {separator}),
           case when deadline_ms > 0 then statement_timestamp() + deadline_ms * interval '1 ms' end, nullif(last_attempt, false), watched, trace
    from accepted
), placed as (
    insert into tasker.board (task_uuid, slot, step_no, queue, callable, lane, state, seq, due_at, enqueued_at, tags, last_attempt)
    select a.task_uuid, s.step_no + 1, s.step_no, s.queue, s.callable, s.lane, case when s.due_ms > 0 or a.start_at is not null then {scheduled} else {claimable} end,
           nextval('tasker.step_seq'),
           case when s.due_ms > 0 then clock_timestamp() + s.due_ms * interval '1 ms' else a.start_at end,
           case when s.due_ms > 0 or a.start_at is not null then null else clock_timestamp() end, string_to_array(s.tags, {separator}),
           nullif(s.last_attempt, false)
    from ` + stmt.List[newStep]("s") + `
    join accepted a using (task_uuid)
), counted as (
    insert into tasker.task_counts (plan_id, at, state, count)
    select plan_id, date_trunc('minute', statement_timestamp()), {task_pending}, count(*) from accepted group by plan_id
)
select task_uuid, statement_timestamp() as requested_at, null::bigint as refused_ms from accepted
union all select task_uuid, null, refused_ms from input where refused_ms is not null`

// The end of the hour, day or week around an instant, by the clocks of a zone.
const (
	untilBorder = `(date_trunc(calendar, `
	ofCalendar  = ` at time zone time_zone) + ('1 ' || calendar)::interval) at time zone time_zone`
)

// CreateTasks creates many tasks in one transaction. The answer has one entry
// per task, in order. Duplicates change nothing.
func (s *Board) CreateTasks(ctx context.Context, tasks []NewTask) ([]CreatedTask, error) {
	answers := make([]CreatedTask, len(tasks))
	tries := 0
	err := s.db.Repeatable(ctx, "create", "create tasks", func(ctx context.Context, db *pg.Conn) error {
		tries++
		accepted, err := s.insertSubmissions(ctx, db, tasks, tries > 1)
		if err == nil {
			err = s.answerCreated(ctx, db, tasks, accepted, answers)
		}
		if err == nil && tries > 1 {
			err = answerLost(ctx, db, tasks, answers)
		}
		return err
	})
	return answers, err
}

// insertTasks creates the chosen tasks in one transaction by a statement, together with the
// statements of also. It waits for locked identities up to patience; 0: up to the limit of
// any statement.
func (s *Board) insertTasks(ctx context.Context, db *pg.Conn, by *stmt.Statement, tasks []NewTask, chosen []bool, wait time.Duration, also func(b *pgx.Batch)) (AcceptedTasks, error) {
	if err := checkDependencies(ctx, db, tasks, chosen); err != nil {
		return nil, err
	}
	patience := strconv.FormatInt(wait.Milliseconds(), 10)
	create, queues := creation(by, tasks, chosen, &patience)
	accepted := make(AcceptedTasks, len(tasks))
	err := s.db.Transact(ctx, db, s.db.WithTransitions(queues), func(b *pgx.Batch) {
		collect := accepted.Collect
		if by == createLimited {
			collect = accepted.collectJudged
		}
		create.Queue(b).Query(collect)
		Relate(b, tasks, chosen)
		also(b)
	})
	return accepted, err
}

// nothing adds no statement to a batch.
func nothing(*pgx.Batch) {}

// DistinctIdentities marks the first task of each identity: one statement may
// not insert the same identity twice.
func DistinctIdentities(tasks []NewTask) []bool {
	first := make([]bool, len(tasks))
	seen := make(map[dedup.Identity]bool, len(tasks))
	for i := range tasks {
		id := tasks[i].Identity
		if id == nil {
			first[i] = true
			continue
		}
		first[i] = !seen[*id]
		seen[*id] = true
	}
	return first
}

// identityHolders are the tasks that have identities, with how far they are. Its snapshot is
// younger than the creations: it sees a task whose transaction they have waited for.
// Index: the primary keys.
var identityHolders = pg.Compile(`
select i.identity, i.task_uuid, coalesce(t.requested_at, now()) as requested_at, t.task_uuid is null as gone,
       coalesce(tasker.task_standing(i.task_uuid), 0) as state, coalesce(b.state in ({in_progress}, {reported}), false) as running
from tasker.task_identities i
left join lateral (select task_uuid, requested_at from tasker.tasks where task_uuid = any (array[i.task_uuid]) limit 1) t on true
left join lateral (select state from tasker.board where task_uuid = any (array[i.task_uuid]) and slot = 0 limit 1) b on true
where i.identity = any (@identities)`)

// identityHolder is a row of identityHolders.
type identityHolder struct {
	Identity    []byte
	TaskUUID    uuid.UUID
	RequestedAt time.Time
	Gone        bool // deleted by the retention
	State       workflow.TaskState
	Running     bool
}

// keeps reports whether a task that ends identities like that keeps its own.
func (h *identityHolder) keeps(until workflow.IdentityUntil) bool {
	switch {
	case h.Gone:
		return false
	case until == workflow.UntilEnded:
		return !h.State.Terminal()
	case until == workflow.UntilSucceeded:
		return h.State != workflow.TaskComplete
	case until == workflow.UntilClaimed:
		return h.State <= workflow.TaskPending
	}
	return true
}

// releaseIdentities ends identities that their tasks do not keep any more. One that another
// transaction gives to a new task meanwhile stays with that.
// Index: the primary key.
var releaseIdentities = pg.Compile(`
update tasker.task_identities i set expires_at = '-infinity'
from ` + stmt.List[heldIdentity]("h") + `
where i.identity = any (array[h.identity]) and i.task_uuid = h.task_uuid
returning i.identity`)

// heldIdentity is an identity with the task that has it.
type heldIdentity struct {
	Identity []byte
	TaskUUID uuid.UUID
}

// answerCreated is answersCreated, and creates the tasks whose identities other tasks do not
// keep any more.
func (s *Board) answerCreated(ctx context.Context, db *pg.Conn, tasks []NewTask, accepted AcceptedTasks, answers []CreatedTask) error {
	return answersCreated(ctx, db, tasks, accepted, answers, func(left []NewTask) (AcceptedTasks, error) {
		return s.insertSubmissions(ctx, db, left, false)
	})
}

// answersCreated looks up the tasks that have the identities of those that were not accepted:
// one statement, only if there is a duplicate. Those with identities that are over are created by
// again.
func answersCreated(ctx context.Context, db stmt.Querier, tasks []NewTask, accepted AcceptedTasks, answers []CreatedTask,
	again func([]NewTask) (AcceptedTasks, error)) error {
	over, err := answerDuplicates(ctx, db, tasks, accepted, answers)
	if err != nil || len(over) == 0 {
		return err
	}
	left := make([]NewTask, len(over))
	for i, at := range over {
		left[i] = tasks[at]
	}
	more, err := again(left)
	if err != nil {
		return err
	}
	created := make([]CreatedTask, len(left))
	if _, err := answerDuplicates(ctx, db, left, more, created); err != nil {
		return err
	}
	for i, at := range over {
		answers[at] = created[i]
	}
	return nil
}

// answerDuplicates answers the tasks, and returns the indexes of those whose identities it has
// released.
func answerDuplicates(ctx context.Context, db stmt.Querier, tasks []NewTask, accepted AcceptedTasks, answers []CreatedTask) (over []int, err error) {
	var taken [][]byte
	for i := range tasks {
		a, ok := accepted[tasks[i].UUID]
		answers[i] = CreatedTask{UUID: tasks[i].UUID, RequestedAt: a.RequestedAt, Duplicate: !ok,
			Busy: ok && a == Acceptance{}, RefusedFor: a.RefusedFor, Throttled: a.Throttled}
		if a.Debounced != uuid.Nil {
			answers[i].UUID, answers[i].Debounced = a.Debounced, true
		}
		if answers[i].Duplicate {
			taken = append(taken, tasks[i].Identity[:])
		}
	}
	if taken == nil {
		return nil, nil
	}
	holders := make(map[dedup.Identity]identityHolder, len(taken))
	if err := stmt.Each(ctx, db, identityHolders.With(pg.Args{"identities": taken}), func(h *identityHolder) {
		holders[dedup.Identity(h.Identity)] = *h
	}); err != nil {
		return nil, err
	}
	var release []heldIdentity
	fresh := map[uuid.UUID]bool{} // created by this statement
	for id, a := range accepted {
		fresh[id] = !a.RequestedAt.IsZero()
	}
	refused := map[dedup.Identity]CreatedTask{} // or busy: no task has the identity
	for i := range answers {
		switch id := tasks[i].Identity; {
		case id == nil:
		case answers[i].Busy || answers[i].RefusedFor > 0:
			refused[*id] = answers[i]
		case answers[i].Duplicate:
			if first, again := refused[*id]; again {
				answers[i] = first
				continue
			}
			held, known := holders[*id]
			switch {
			case known && held.TaskUUID == tasks[i].UUID:
				// The holder is this very task, created by a first try whose answer was lost.
				answers[i] = CreatedTask{UUID: held.TaskUUID, RequestedAt: held.RequestedAt}
			case known && (fresh[held.TaskUUID] || held.keeps(tasks[i].IdentityEnd.Until)):
				answers[i] = CreatedTask{UUID: held.TaskUUID, Duplicate: true, State: held.State, Running: held.Running}
			default:
				over = append(over, i)
				release = append(release, heldIdentity{id[:], held.TaskUUID})
			}
		}
	}
	if len(over) > 0 {
		slices.SortFunc(release, func(a, b heldIdentity) int { return bytes.Compare(a.Identity, b.Identity) })
		err = stmt.Each(ctx, db, releaseIdentities.With(pg.Args{"h": release}), func(*[]byte) {})
	}
	return over, err
}

// Begin computes how the task begins, by its Plan, Retry, StartIn and StartAt, which must
// not change any more. A creation does it for tasks for which it was not called.
func (t *NewTask) Begin() {
	startIn := t.StartIn
	if !t.StartAt.IsZero() {
		startIn = 1 // scheduled; a separate column has the due time
	}
	t.start = workflow.NewStart(t.Plan.Plan, t.Retry, startIn)
}

// Start returns how the task begins.
func (t *NewTask) Start() *workflow.Start {
	if t.start == nil {
		t.Begin()
	}
	return t.start
}

// startsLater reports whether the first steps may have to wait.
func (t *NewTask) startsLater() bool { return t.StartIn > 0 || !t.StartAt.IsZero() }

// StartsIn is the delay of the first steps of a task that was requested then, by
// the database's clock.
func (t *NewTask) StartsIn(requestedAt time.Time) time.Duration {
	if t.StartAt.IsZero() {
		return t.StartIn
	}
	return t.StartAt.Sub(requestedAt)
}

// Creation is createTasks with its arguments, and the signals for the new tasks.
func Creation(tasks []NewTask, chosen []bool, patience *string) (stmt.Call, []signal.Signal) {
	return creation(createTasks, tasks, chosen, patience)
}

func creation(create *stmt.Statement, tasks []NewTask, chosen []bool, patience *string) (stmt.Call, []signal.Signal) {
	c := creatingOf(tasks, chosen)
	args := pg.Args{"i": c.tasks, "s": c.steps, "patience": patience}
	if create == createLimited {
		args["i"] = c.judged()
	}
	return create.With(args), c.topics.Signals()
}

// newTaskRow is a new task to insert; the board's row carries its first step if it is the
// only one (StepNo not nil).
type newTaskRow struct {
	TaskUUID            uuid.UUID
	PlanID              int32
	Queue               int32
	Priority            int `sql:",smallint"`
	Context             string
	CorrelationID       *uuid.UUID // nil: the task's own
	ParentCorrelationID *uuid.UUID
	Initiator           string   `sql:",omitzero"`
	SourceSystem        string   `sql:",omitzero"`
	Reason              string   `sql:",omitzero"`
	Tags                []string `sql:",omitzero"`
	IdempotencyKey      string   `sql:",omitzero"`
	Identity            []byte
	Window              time.Duration `sql:"window_ms"`
	StartIn             time.Duration `sql:"start_ms"`
	Progress            []byte
	StepNo              *int `sql:",smallint"`
	Lane                int16
	DueIn               time.Duration `sql:"due_ms"`
	StepTags            []string      `sql:",omitzero"`
	DeadlineIn          time.Duration `sql:"deadline_ms"`
	Calendar            string        `sql:",omitzero"`
	TimeZone            string        `sql:",omitzero"`
	NotBefore           time.Time     `sql:",omitzero"`
	LastAttempt         bool
	Callable            int32
	Watched             bool `sql:",omitzero"`
	Trace               []byte
	Limited             bool     `sql:",omitzero"`
	Quota               string   `sql:",omitzero"`
	task                *NewTask `sql:"-"`
}

// newStep is a step with a row of its own.
type newStep struct {
	TaskUUID    uuid.UUID
	Queue       int32
	StepNo      int `sql:",smallint"`
	Lane        int16
	DueIn       time.Duration `sql:"due_ms"`
	Parents     []int
	Tags        []string `sql:",omitzero"`
	Batch       bool     // created at run time, with a recorded batch
	LastAttempt bool     // see workflow.Plan.LastAttempt
	Callable    int32
	task        *NewTask `sql:"-"` // nil: of a task that exists
}

// newRows are new tasks, and their first steps in rows of their own.
type newRows struct {
	tasks  []newTaskRow
	steps  []newStep
	topics SignalSet
}

// creatingOf returns the rows of the chosen tasks.
func creatingOf(tasks []NewTask, chosen []bool) *newRows {
	c := &newRows{topics: SignalSet{}, tasks: make([]newTaskRow, 0, len(tasks))}
	for i := range tasks {
		if chosen[i] {
			c.add(&tasks[i])
		}
	}
	// In one order, so that two creations never wait for each other's quotas and limits.
	slices.SortStableFunc(c.tasks, func(a, b newTaskRow) int {
		if a.PlanID == b.PlanID {
			return 0
		}
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.task.Plan.Template.Name, b.task.Plan.Template.Name))
	})
	return c
}

func (c *newRows) add(t *NewTask) {
	row := newTaskRow{TaskUUID: t.UUID, PlanID: t.Plan.ID, Queue: t.Plan.Queue, Priority: t.Priority, Context: string(t.Context),
		ParentCorrelationID: t.ParentCorrelationID, Initiator: t.Initiator, SourceSystem: t.SourceSystem, Reason: t.Reason, Tags: t.Tags,
		IdempotencyKey: t.IdempotencyKey, Window: t.IdentityEnd.After, StartIn: t.StartIn, Progress: t.Start().Progress.Encode(), Lane: order.Priority.Lane(order.Step{Priority: t.Priority}),
		DeadlineIn: t.DeadlineIn, Calendar: string(t.IdentityEnd.Calendar), NotBefore: t.StartAt, Watched: t.Watched, Trace: t.Trace, Limited: t.Limited, Quota: t.Quota, task: t}
	if t.CorrelationID != t.UUID {
		row.CorrelationID = &t.CorrelationID
	}
	if t.Identity != nil {
		row.Identity = t.Identity[:]
	}
	if row.Calendar != "" {
		row.TimeZone = t.IdentityEnd.TimeZone
	}
	c.addSteps(t, &row)
	c.tasks = append(c.tasks, row)
	c.topics.addCreated(t)
}

func (c *newRows) addSteps(t *NewTask, row *newTaskRow) {
	start, dueIn := t.Start(), t.StartIn
	if !t.StartAt.IsZero() {
		dueIn = 0
	}
	if no, only := t.onlyStep(); only {
		row.Lane = t.lane(no)
		row.StepNo, row.DueIn, row.StepTags = &start.Put[0].Step, dueIn, slices.Concat(t.Plan.Steps[no].Tags, t.StepTags)
		row.LastAttempt, row.Callable = t.Plan.LastAttempt(start.Progress, no), t.Plan.Callables[no]
		return
	}
	for _, p := range start.Put {
		p.DueIn = dueIn
		step := newStepOf(t.UUID, t.Plan, start.Progress, p, t.lane(p.Step))
		step.task = t
		c.steps = append(c.steps, step)
	}
}

// lane is that of a first step.
func (t *NewTask) lane(no int) int16 {
	return t.lanes.of(t.Plan, &t.Plan.Steps[no], order.Step{Priority: t.Priority, Deadline: t.DeadlineIn > 0, Left: t.DeadlineIn}, t.Context)
}

// onlyStep returns the first step that the task's row carries, if it is the only one.
func (t *NewTask) onlyStep() (no int, only bool) {
	put := t.Start().Put
	if len(put) != 1 || !registry.Inlines(t.Plan.Plan, nil, put[0].Step) {
		return 0, false
	}
	return put[0].Step, true
}

func newStepOf(task uuid.UUID, plan *registry.Plan, progress *workflow.Progress, put workflow.PutStep, lane int16) newStep {
	step := plan.Step(progress, put.Step)
	return newStep{TaskUUID: task, Queue: queueOf(plan, step), StepNo: put.Step, Lane: lane, DueIn: put.DueIn,
		Parents: plan.ParentsOf(progress, put.Step), Tags: step.Tags, Batch: put.Step >= len(plan.Steps),
		LastAttempt: plan.LastAttempt(progress, put.Step), Callable: plan.CallableOf(step)}
}
