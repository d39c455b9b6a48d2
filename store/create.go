package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// NewTask is a task to create; all of it has been validated.
type NewTask struct {
	UUID                uuid.UUID // version 7
	Plan                *Plan
	Context             json.RawMessage
	Priority            int // workflow.MinPriority–MaxPriority
	CorrelationID       uuid.UUID
	ParentCorrelationID *uuid.UUID
	Initiator           string
	SourceSystem        string
	Reason              string
	Tags                []string
	IdempotencyKey      string
	Identity            *workflow.Identity   // nil: never a duplicate
	IdentityEnd         workflow.IdentityEnd // until when duplicates are rejected
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
	// Lenient lets it begin regardless of their outcome; else their failure cancels it.
	Lenient bool
	// Watched: a client already waits for its end, see Store.Watch.
	Watched bool

	begun *workflow.Progress // of a BegunTask: its steps are put on the board later
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
	// Busy: an open transaction is creating a task with the same identity. Nothing was
	// created; the caller must retry.
	Busy bool
}

// Bounds of what the board's row of a task carries along; see docs/data-model.md.
const (
	// maxInlineSteps bounds the progress, which every version of the row
	// repeats: six bytes for each step.
	maxInlineSteps = 32
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
// not from the beginning of the transaction, which may be the caller's and old. $27 is
// how long identities are waited for, see identityPatience; null leaves that unchanged.
// The columns from $28 on are null, or end early, where few tasks have them: an identity
// until the hour, day or week ends, and an instant before which a task does not start.
// Index: the primary keys.
const createTasks = `
with patience as materialized (
    select set_config('lock_timeout', coalesce($27::text, current_setting('lock_timeout')), true)
), input as (
    select i.* from patience, unnest($1::uuid[], $2::int[], $3::int[], $4::smallint[], $5::text[], $6::uuid[], $7::uuid[], $8::text[],
                         $9::text[], $10::text[], $11::text[], $12::text[], $13::bytea[], $14::bigint[], $15::bigint[], $16::bytea[],
                         $17::smallint[], $18::smallint[], $19::bigint[], $20::text[], $26::bigint[],
                         $28::text[], $29::text[], $30::timestamptz[], $32::boolean[], $34::int[], $36::boolean[])
         i(task_uuid, plan_id, queue, priority, context, correlation_id, parent_correlation_id, initiator,
           source_system, reason, tags, idempotency_key, identity, window_ms, start_ms, progress,
           step_no, lane, due_ms, step_tags, deadline_ms, calendar, time_zone, not_before, last_attempt, callable, watched)
), identified as (
    insert into tasker.task_identities as t (identity, task_uuid, expires_at)
    select identity, task_uuid, case
        when window_ms > 0 then statement_timestamp() + window_ms * interval '1 ms'
        when calendar is not null
        then ` + untilBorder + `statement_timestamp()` + ofCalendar + `
        else 'infinity' end
    from input where identity is not null order by identity
    on conflict (identity) do update set task_uuid = excluded.task_uuid, expires_at = excluded.expires_at
    where t.expires_at <= statement_timestamp() and t.task_uuid <> excluded.task_uuid -- as left by a first try whose answer was lost
    returning task_uuid
), accepted as (
    select *, context::jsonb as context_json, case when not_before > statement_timestamp() then not_before end as start_at
    from input i where identity is null or exists (select from identified d where d.task_uuid = i.task_uuid)
), recorded as (
    insert into tasker.tasks (task_uuid, requested_at, start_at, correlation_id, parent_correlation_id, plan_id, queue, priority,
                              initiator, source_system, reason, tags, idempotency_key, context, deadline)
    select task_uuid, statement_timestamp(), case when start_ms > 0 then statement_timestamp() + start_ms * interval '1 ms' else start_at end,
           correlation_id, parent_correlation_id,
           plan_id, queue, priority, initiator, source_system, reason, string_to_array(tags, E'\x1f'), idempotency_key, context_json,
           case when deadline_ms > 0 then statement_timestamp() + deadline_ms * interval '1 ms' end
    from accepted
), living as (
    insert into tasker.board (task_uuid, slot, plan_id, queue, task_state, priority, progress, requested_at, correlation_id,
                              parent_correlation_id, context, step_no, callable, lane, state, seq, due_at, enqueued_at, tags, deadline, last_attempt, watched)
    select task_uuid, 0, plan_id, queue, 1, priority, progress, statement_timestamp(), correlation_id,
           parent_correlation_id, case when octet_length(context) <= ` + inlineContext + ` then context_json end, step_no, callable, lane,
           case when step_no is null then 0 when due_ms > 0 or start_at is not null then 1 else 2 end,
           case when step_no is null then 0 else nextval('tasker.step_seq') end,
           case when step_no is null then null when due_ms > 0 then clock_timestamp() + due_ms * interval '1 ms' else start_at end,
           case when step_no is null or due_ms > 0 or start_at is not null then null else clock_timestamp() end, string_to_array(step_tags, E'\x1f'),
           case when deadline_ms > 0 then statement_timestamp() + deadline_ms * interval '1 ms' end, nullif(last_attempt, false), watched
    from accepted
), placed as (
    insert into tasker.board (task_uuid, slot, step_no, queue, callable, lane, state, seq, due_at, enqueued_at, tags, last_attempt)
    select a.task_uuid, s.step_no + 1, s.step_no, s.queue, s.callable, s.lane, case when s.due_ms > 0 or a.start_at is not null then 1 else 2 end,
           nextval('tasker.step_seq'),
           case when s.due_ms > 0 then clock_timestamp() + s.due_ms * interval '1 ms' else a.start_at end,
           case when s.due_ms > 0 or a.start_at is not null then null else clock_timestamp() end, string_to_array(s.tags, E'\x1f'),
           nullif(s.last_attempt, false)
    from unnest($21::uuid[], $22::smallint[], $23::smallint[], $24::bigint[], $25::text[], $31::int[], $33::boolean[], $35::int[])
         s(task_uuid, step_no, lane, due_ms, tags, queue, last_attempt, callable)
    join accepted a using (task_uuid)
)
select task_uuid, statement_timestamp() from accepted`

// The end of the hour, day or week around an instant, by the clocks of a zone.
const (
	untilBorder = `(date_trunc(calendar, `
	ofCalendar  = ` at time zone time_zone) + ('1 ' || calendar)::interval) at time zone time_zone`
)

// CreateTasks creates many tasks in one transaction. The answer has one entry
// per task, in order. Duplicates change nothing.
func (s *Store) CreateTasks(ctx context.Context, tasks []NewTask) ([]CreatedTask, error) {
	answers := make([]CreatedTask, len(tasks))
	chosen := distinctIdentities(tasks)
	err := s.repeatable(ctx, "create", "create tasks", func(ctx context.Context, db *conn) error {
		accepted, err := s.insertMany(ctx, db, tasks, chosen)
		if err != nil {
			return err
		}
		return answerCreated(ctx, db, tasks, accepted, answers)
	})
	return answers, err
}

// insertTasks creates the chosen tasks in one transaction, together with the statements
// of also. It waits for locked identities up to patience; 0: up to the limit of any
// statement.
func (s *Store) insertTasks(ctx context.Context, db *conn, tasks []NewTask, chosen []bool, wait time.Duration, also func(b *pgx.Batch)) (acceptedTasks, error) {
	if err := checkDependencies(ctx, db, tasks, chosen); err != nil {
		return nil, err
	}
	patience := strconv.FormatInt(wait.Milliseconds(), 10)
	args, queues, err := createArguments(tasks, chosen, &patience)
	if err != nil {
		return nil, err
	}
	accepted := make(acceptedTasks, len(tasks))
	err = s.transact(ctx, db, queues, func(b *pgx.Batch) {
		b.Queue(createTasks, args...).Query(accepted.collect)
		relate(b, tasks, chosen)
		also(b)
	})
	return accepted, err
}

// distinctIdentities marks the first task of each identity: one statement may
// not insert the same identity twice.
func distinctIdentities(tasks []NewTask) []bool {
	first := make([]bool, len(tasks))
	seen := make(map[workflow.Identity]bool, len(tasks))
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

// answerCreated looks up the holders of the identities of tasks that were not accepted:
// one statement, only if there is a duplicate.
func answerCreated(ctx context.Context, db querier, tasks []NewTask, accepted acceptedTasks, answers []CreatedTask) error {
	var taken [][]byte
	for i := range tasks {
		requestedAt, ok := accepted[tasks[i].UUID]
		answers[i] = CreatedTask{UUID: tasks[i].UUID, RequestedAt: requestedAt, Duplicate: !ok, Busy: ok && requestedAt.IsZero()}
		if answers[i].Duplicate {
			taken = append(taken, tasks[i].Identity[:])
		}
	}
	if taken == nil {
		return nil
	}
	rows, err := db.Query(ctx, `select i.identity, i.task_uuid, coalesce(t.requested_at, now())
		from tasker.task_identities i left join tasker.tasks t using (task_uuid) where i.identity = any ($1)`, taken)
	if err != nil {
		return err
	}
	type taker struct {
		task uuid.UUID
		at   time.Time
	}
	holders := make(map[workflow.Identity]taker, len(taken))
	var identity []byte
	var holder taker
	_, err = pgx.ForEachRow(rows, []any{&identity, &holder.task, &holder.at}, func() error {
		holders[workflow.Identity(identity)] = holder
		return nil
	})
	for i := range answers {
		if answers[i].Duplicate {
			held := holders[*tasks[i].Identity]
			// The holder may be this very task, created by a first try whose
			// answer was lost.
			answers[i] = CreatedTask{UUID: held.task, Duplicate: true}
			if held.task == tasks[i].UUID {
				answers[i] = CreatedTask{UUID: held.task, RequestedAt: held.at}
			}
		}
	}
	return err
}

// begin computes the first progress and steps of a new task.
func (t *NewTask) begin() (*workflow.Progress, *workflow.Effects, error) {
	if t.begun != nil {
		return t.begun, &workflow.Effects{}, nil
	}
	progress := workflow.NewProgress(t.Plan.Plan)
	progress.Retry = t.Retry
	in := workflow.Created{StartIn: t.StartIn}
	if !t.StartAt.IsZero() {
		in.StartIn = 1 // scheduled; a separate column has the due time
	}
	return workflow.Advance(t.Plan.Plan, workflow.TaskPending, progress, workflow.Rules{}, in)
}

// startsLater reports whether the first steps may have to wait.
func (t *NewTask) startsLater() bool { return t.StartIn > 0 || !t.StartAt.IsZero() }

// startsIn is the delay of the first steps of a task that was requested then, by
// the database's clock.
func (t *NewTask) startsIn(requestedAt time.Time) time.Duration {
	if t.StartAt.IsZero() {
		return t.StartIn
	}
	return t.StartAt.Sub(requestedAt)
}

// AsCreated is the task in its first moment: what Task would read before any change. Its
// context is the one sent, not yet in the database's form.
func (t *NewTask) AsCreated(requestedAt time.Time) (*Task, error) {
	progress, effects, err := t.begin()
	if err != nil {
		return nil, fmt.Errorf("show the new task: %w", err)
	}
	task := &Task{
		UUID: t.UUID, Plan: t.Plan, State: workflow.TaskPending, Priority: t.Priority, Context: t.Context,
		CorrelationID: t.CorrelationID, ParentCorrelationID: t.ParentCorrelationID,
		Initiator: text(t.Initiator), SourceSystem: text(t.SourceSystem), Reason: text(t.Reason), Tags: t.Tags,
		RequestedAt: requestedAt, UpdatedAt: requestedAt, Progress: progress, DependsOn: t.DependsOn,
	}
	startIn := t.startsIn(requestedAt)
	due := requestedAt.Add(startIn)
	if startIn > 0 {
		task.StartAt = &due
	}
	r := taskReader{task: task, board: map[int]boardRow{}}
	for _, p := range effects.Put {
		if len(t.DependsOn) > 0 {
			r.board[p.Step] = boardRow{state: 1, wait: &wait{Kind: waitForTasks}}
		} else if startIn > 0 {
			r.board[p.Step] = boardRow{state: 1, dueAt: &due}
		} else {
			r.board[p.Step] = boardRow{state: 2, enqueuedAt: &requestedAt}
		}
	}
	r.build()
	return task, nil
}

// createArguments are the parameters of createTasks.
func createArguments(tasks []NewTask, chosen []bool, patience *string) (args []any, queues []signal.Signal, err error) {
	c, err := columnsOf(tasks, chosen)
	if err != nil {
		return nil, nil, err
	}
	return append(c.arguments(), patience, []*string(c.calendars), []*string(c.zones), []*time.Time(c.notBefore), c.put.queues, c.lasts, c.put.lasts, c.callables, c.put.callables, []*bool(c.watched)), c.topics.signals(), nil
}

// sparse is a column with few values: nil, null in SQL, without any, and no longer than
// up to the last one.
type sparse[T any] []*T

func (s *sparse[T]) set(row int, value T) {
	*s = append(*s, make([]*T, row+1-len(*s))...)
	(*s)[row] = &value
}

// newTaskColumns are new tasks, column by column, and their first steps in rows of their
// own.
type newTaskColumns struct {
	ids                                      uuids
	correlations, parents                    []*[16]byte
	plans, queues, callables                 []int32
	priorities, lanes                        []int16
	steps                                    []*int16
	contexts                                 []string
	initiators, systems, reasons, tags, keys []*string
	stepTags                                 []*string
	lasts                                    []bool
	identities, progresses                   [][]byte
	windows, starts, dues, deadlines         []int64
	calendars, zones                         sparse[string]
	notBefore                                sparse[time.Time]
	watched                                  sparse[bool]
	put                                      stepColumns
	topics                                   signalSet
}

// columnsOf returns the columns of the chosen tasks.
func columnsOf(tasks []NewTask, chosen []bool) (*newTaskColumns, error) {
	c := &newTaskColumns{topics: signalSet{}}
	for i := range tasks {
		if chosen[i] {
			if err := c.add(&tasks[i]); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

func (c *newTaskColumns) add(t *NewTask) error {
	progress, effects, err := t.begin()
	if err != nil {
		return err
	}
	c.ids, c.parents = append(c.ids, t.UUID), append(c.parents, (*[16]byte)(t.ParentCorrelationID))
	var correlation *[16]byte
	if t.CorrelationID != t.UUID {
		correlation = (*[16]byte)(&t.CorrelationID)
	}
	c.correlations = append(c.correlations, correlation)
	c.plans, c.queues = append(c.plans, t.Plan.ID), append(c.queues, t.Plan.Queue)
	c.priorities = append(c.priorities, int16(t.Priority)) // #nosec G115 -- validated
	c.contexts = append(c.contexts, string(t.Context))
	c.initiators, c.systems = append(c.initiators, text(t.Initiator)), append(c.systems, text(t.SourceSystem))
	c.reasons, c.tags = append(c.reasons, text(t.Reason)), append(c.tags, joined(t.Tags))
	c.keys = append(c.keys, text(t.IdempotencyKey))
	var identity []byte
	if t.Identity != nil {
		identity = t.Identity[:]
	}
	c.identities = append(c.identities, identity)
	if t.IdentityEnd.Calendar != "" {
		c.calendars.set(len(c.windows), string(t.IdentityEnd.Calendar))
		c.zones.set(len(c.windows), t.IdentityEnd.TimeZone)
	}
	if !t.StartAt.IsZero() {
		c.notBefore.set(len(c.windows), t.StartAt)
	}
	if t.Watched {
		c.watched.set(len(c.windows), true)
	}
	c.windows, c.starts = append(c.windows, millis(t.IdentityEnd.After)), append(c.starts, millis(t.StartIn))
	c.deadlines = append(c.deadlines, millis(t.DeadlineIn))
	c.progresses = append(c.progresses, progress.Encode())
	c.addSteps(t, progress, effects.Put)
	c.topics.addCreated(t)
	return nil
}

func (c *newTaskColumns) addSteps(t *NewTask, progress *workflow.Progress, put []workflow.PutStep) {
	var step *int16
	var due int64
	var tags *string
	var last bool
	var callable int32
	lane := Lane(t.Priority, false)
	if !t.StartAt.IsZero() {
		for i := range put {
			put[i].DueIn = 0
		}
	}
	if len(put) == 1 && inlines(t.Plan, nil, put[0].Step) {
		no := int16(put[0].Step) // #nosec G115 -- at most maxInlineSteps
		step, due, tags = &no, millis(put[0].DueIn), joined(t.Plan.Steps[no].Tags)
		last, callable = t.Plan.LastAttempt(progress, put[0].Step), t.Plan.Callables[no]
	} else {
		for _, p := range put {
			c.put.add(t.UUID, t.Plan, progress, p, lane)
		}
	}
	c.steps, c.lanes, c.dues, c.stepTags = append(c.steps, step), append(c.lanes, lane), append(c.dues, due), append(c.stepTags, tags)
	c.lasts, c.callables = append(c.lasts, last), append(c.callables, callable)
}

// inlines reports whether the task's row may carry its only step. Not if steps were
// created at run time (a new task, nil, has none), and not if the engine runs the step:
// that step has another queue.
func inlines(p *Plan, progress *workflow.Progress, step int) bool {
	return len(p.Steps) <= maxInlineSteps && (progress == nil || len(progress.Groups) == 0) && !p.Steps[step].Kind.ByEngine()
}

func (c *newTaskColumns) arguments() []any {
	return []any{c.ids, c.plans, c.queues, c.priorities, c.contexts, c.correlations, c.parents, c.initiators, c.systems, c.reasons,
		c.tags, c.keys, c.identities, c.windows, c.starts, c.progresses, c.steps, c.lanes, c.dues, c.stepTags,
		c.put.tasks, c.put.steps, c.put.lanes, c.put.dues, c.put.tags, c.deadlines}
}

// stepColumns are steps with rows of their own, column by column.
type stepColumns struct {
	tasks     uuids
	queues    []int32
	callables []int32
	steps     []int16
	lanes     []int16
	dues      []int64
	parents   []string
	tags      []*string
	batches   []bool // created at run time, with a recorded batch
	lasts     []bool // see workflow.Plan.LastAttempt
}

// add notes a step.
func (c *stepColumns) add(task uuid.UUID, plan *Plan, progress *workflow.Progress, put workflow.PutStep, lane int16) {
	step := plan.Step(progress, put.Step)
	c.tasks, c.queues, c.callables = append(c.tasks, task), append(c.queues, queueOf(plan, step)), append(c.callables, plan.callableOf(step))
	c.steps, c.lanes = append(c.steps, int16(put.Step)), append(c.lanes, lane) // #nosec G115 -- at most MaxSteps
	c.dues = append(c.dues, millis(put.DueIn))
	c.parents = append(c.parents, arrayLiteral(plan.ParentsOf(progress, put.Step)))
	c.tags = append(c.tags, joined(step.Tags))
	c.batches, c.lasts = append(c.batches, put.Step >= len(plan.Steps)), append(c.lasts, plan.LastAttempt(progress, put.Step))
}

// arrayLiteral writes numbers as PostgreSQL does: {1,2}. Arrays of arrays cannot be
// parameters, so inner ones are sent as text.
func arrayLiteral(list []int) string {
	b := []byte{'{'}
	for i, n := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return string(append(b, '}'))
}

// joined packs a list of strings; the separator cannot be part of a tag.
func joined(list []string) *string {
	if len(list) == 0 {
		return nil
	}
	s := strings.Join(list, "\x1f")
	return &s
}

func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// millis rounds up, so that nothing is due early.
func millis(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
