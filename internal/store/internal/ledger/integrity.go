package ledger

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/board"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// Violation is a place where the records of a task contradict the rules.
type Violation struct {
	TaskUUID uuid.UUID
	Problem  string
}

// IntegrityReport is the outcome of a check.
type IntegrityReport struct {
	Tasks      int // checked
	Attempts   int
	Violations []Violation // at most maxViolations
}

const (
	integrityPage = 500
	maxViolations = 1000
)

// CheckIntegrity replays the ledger of every task, page by page, through the rules and
// compares the result with progress, board rows and end. It can run beside the daemons:
// each page is one snapshot.
func (s *Ledger) CheckIntegrity(ctx context.Context, rules workflow.Rules) (IntegrityReport, error) {
	var report IntegrityReport
	after := uuid.Nil
	for {
		page, last, err := s.checkPage(ctx, rules, auditPage.With(pg.Args{"after": after, "limit": integrityPage}))
		if err != nil {
			return report, err
		}
		report.add(page)
		if page.Tasks < integrityPage || len(report.Violations) >= maxViolations {
			return report, nil
		}
		after = last
	}
}

// CheckTask is CheckIntegrity for one task; ErrNotFound if it does not exist.
func (s *Ledger) CheckTask(ctx context.Context, rules workflow.Rules, task uuid.UUID) (IntegrityReport, error) {
	report, _, err := s.checkPage(ctx, rules, auditTask.With(pg.Args{"task": task}))
	if err == nil && report.Tasks == 0 {
		err = fmt.Errorf("check the task: %w", pg.ErrNotFound)
	}
	return report, err
}

func (r *IntegrityReport) add(page IntegrityReport) {
	r.Tasks, r.Attempts = r.Tasks+page.Tasks, r.Attempts+page.Attempts
	r.Violations = append(r.Violations, page.Violations...)
	r.Violations = r.Violations[:min(len(r.Violations), maxViolations)]
}

// audited is everything on record about a task.
type audited struct {
	task     uuid.UUID      `sql:"task_uuid"`
	plan     *registry.Plan `sql:"-"`
	planID   int32
	live     *int16
	final    *int16
	progress []byte
	inline   bool                // the task's row carries a step
	astray   bool                // the board has another context than the ledger
	stranded bool                // it waits for others, and no message will release it
	orphaned bool                // its step does not wait for it
	board    map[int]auditedStep `sql:"-"`
	attempts []auditedAttempt    `sql:"-"`
	actions  []auditedAction     `sql:"-"`
	groups   []auditedGroup      `sql:"-"` // in the order of creation
}

type auditedStep struct {
	attempt int
	unlined bool // it is in the line of a key without waiting there, or the key is not there
}

type auditedAttempt struct {
	step     int `sql:"step_no"`
	attempt  int
	outcome  workflow.AttemptOutcome
	reason   *string
	at       time.Time `sql:"applied_at"`
	result   []byte    // of a step that creates others
	decision string    // attempts with one were applied together
}

// auditedGroup is batches created together, including those that the task no longer has.
type auditedGroup struct {
	worker int `sql:"template_no"`
	first  int `sql:"first_no"`
	count  int
}

// auditedAction is an action of an operator or a sweep.
type auditedAction struct {
	kind   string `sql:"action"`
	step   *int
	reason *string
	at     time.Time
	result []byte `sql:"-"` // that an operator gave for a step that creates others
	// reports is the number of reports applied together with it.
	reports int
}

func (s *Ledger) checkPage(ctx context.Context, rules workflow.Rules, which stmt.Call) (IntegrityReport, uuid.UUID, error) {
	var (
		report IntegrityReport
		tasks  []*audited
	)
	err := s.db.Repeatable(ctx, "integrity", "check the records", func(ctx context.Context, db *pg.Conn) error {
		tx, err := s.db.Begin(ctx, db, pg.ReadOnlySnapshot)
		if err != nil {
			return err
		}
		defer s.db.Rollback(tx)
		if tasks, err = readAudited(ctx, tx, which); err != nil {
			return err
		}
		read, err := s.registry.PlansOn(ctx, db, pg.Column(tasks, func(a **audited) int32 { return (*a).planID }))
		if err != nil {
			return err
		}
		for _, a := range tasks {
			if a.plan, err = read.Of(a.planID); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return report, uuid.Nil, err
	}
	last := uuid.Nil
	for _, a := range tasks {
		report.Tasks++
		report.Attempts += len(a.attempts)
		for _, problem := range a.check(rules) {
			report.Violations = append(report.Violations, Violation{a.task, problem})
		}
		last = a.task
	}
	return report, last, nil
}

// audit reads tasks with their ends.
func audit(where string) *stmt.Statement {
	return pg.Compile(`
select t.task_uuid, t.plan_id, b.task_state as live, e.task_state as final, coalesce(e.task_progress, b.progress) as progress,
       coalesce(b.state <> {no_step}, false) as inline, coalesce(b.context <> t.context, false) as astray,
       ` + board.StrandedTask + ` as stranded, ` + board.OrphanedTask + ` as orphaned
from (select task_uuid, plan_id, context, parent_task_uuid from tasker.tasks where ` + where + `) t
cross join lateral (select t.task_uuid, t.parent_task_uuid) h
left join tasker.board b on b.task_uuid = t.task_uuid and b.slot = 0
left join lateral (select task_state, task_progress from tasker.step_attempts
                   where task_uuid = t.task_uuid and task_state is not null limit 1) e on true
order by t.task_uuid`)
}

// Index: the primary keys.
var (
	auditPage  = audit(`task_uuid > @after order by task_uuid limit @limit`)
	auditTask  = audit(`task_uuid = @task`)
	auditSteps = pg.Compile(`
select task_uuid, step_no, attempt, callable < 0 and (state <> {claimable} or not exists (select from tasker.limit_keys where line = -callable)) as unlined
from tasker.board where task_uuid = any (@tasks) and step_no is not null`)
	auditActions = pg.Compile(`
select task_uuid, metadata->>'action' as action, (metadata->>'step')::int as step, coalesce((metadata->>'reports')::int, 0) as reports, reason, at
from tasker.task_events where task_uuid = any (@tasks) and metadata ? 'action' order by task_uuid, at, seq`)
	auditAttempts = pg.Compile(`
select task_uuid, step_no, attempt, outcome, reason, applied_at,
       case when outcome = {success} and result ?| array['` + workflow.DecisionOutcomeKey + `', '` + workflow.BatchOutcomeKey + `'] then result end as result,
       coalesce(decision::text, xmin::text) as decision
from tasker.step_attempts where task_uuid = any (@tasks) and step_no >= 0 order by task_uuid, applied_at, token`)
)

func readAudited(ctx context.Context, tx pgx.Tx, which stmt.Call) ([]*audited, error) {
	byID := map[uuid.UUID]*audited{}
	var ids []uuid.UUID
	var list []*audited
	err := stmt.Each(ctx, tx, which, func(row *audited) {
		a := *row
		a.board = map[int]auditedStep{}
		byID[a.task], ids, list = &a, append(ids, a.task), append(list, &a)
	})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	b := &pgx.Batch{}
	type stepRow struct {
		TaskUUID uuid.UUID
		StepNo   int
		auditedStep
	}
	type actionRow struct {
		TaskUUID uuid.UUID
		auditedAction
	}
	type attemptRow struct {
		TaskUUID uuid.UUID
		auditedAttempt
	}
	auditSteps.With(pg.Args{"tasks": ids}).Queue(b).Query(stmt.Rows(func(s *stepRow) {
		byID[s.TaskUUID].board[s.StepNo] = s.auditedStep
	}))
	auditActions.With(pg.Args{"tasks": ids}).Queue(b).Query(stmt.Rows(func(a *actionRow) {
		byID[a.TaskUUID].actions = append(byID[a.TaskUUID].actions, a.auditedAction)
	}))
	auditAttempts.With(pg.Args{"tasks": ids}).Queue(b).Query(stmt.Rows(func(a *attemptRow) {
		byID[a.TaskUUID].attempts = append(byID[a.TaskUUID].attempts, a.auditedAttempt)
	}))
	type groupRow struct {
		TaskUUID uuid.UUID
		auditedGroup
	}
	madeGroups.With(pg.Args{"tasks": ids}).Queue(b).Query(stmt.Rows(func(g *groupRow) {
		byID[g.TaskUUID].groups = append(byID[g.TaskUUID].groups, g.auditedGroup)
	}))
	return list, tx.SendBatch(ctx, b).Close()
}

// check replays one task and lists the differences.
func (a *audited) check(rules workflow.Rules) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if (a.live == nil) == (a.final == nil) {
		add("the task must be either on the board or ended")
		return problems
	}
	recorded, err := workflow.DecodeProgress(a.progress)
	if err != nil {
		add("%v", err)
		return problems
	}
	if a.final != nil && len(a.board) > 0 {
		add("the task has ended and still has %d steps on the board", len(a.board))
	}
	if a.inline && len(a.board) > 1 {
		add("the task's row carries a step beside %d others", len(a.board)-1)
	}
	for no, step := range a.board {
		if step.unlined {
			add("step %d is in the line of a key, where it cannot be claimed", no)
		}
	}
	if a.astray {
		add("the board has another context than the ledger")
	}
	if a.stranded {
		add("the task waits for others, and nothing will release it")
	}
	if a.orphaned && recorded.Ending == 0 && !a.reopened() {
		add("the task goes on although the step that it is has been called off")
	}
	if n := len(a.actions); n > 0 && a.actions[n-1].kind == "quarantine" {
		return problems // that its records contradict each other is why it is there
	}
	replayed, state, err := a.replay(rules, recorded.Retry)
	if err != nil {
		add("the ledger breaks the rules: %v", err)
		return problems
	}
	problems = append(problems, a.compare(recorded, replayed)...)
	if a.final != nil && workflow.TaskState(*a.final) != state {
		add("the task ended as %s, its ledger says %s", workflow.TaskState(*a.final), state)
	}
	return problems
}

// replay runs the recorded attempts and actions through the rules, in the
// order in which they were applied, with the retries that the task began with.
func (a *audited) replay(rules workflow.Rules, retry *workflow.RetryOverride) (*workflow.Progress, workflow.TaskState, error) {
	state := workflow.TaskPending
	progress := workflow.NewProgress(a.plan.Plan)
	progress.Retry = retry
	numbers := numbering{left: a.groups}
	rules.BatchesAt = numbers.next
	step := func(in ...workflow.Input) error {
		next, effects, err := workflow.Advance(a.plan.Plan, state, progress, rules, in...)
		if err = cmp.Or(numbers.err, err); err == nil {
			progress, state = next, effects.State
		}
		return err
	}
	if err := step(workflow.Created{}); err != nil {
		return nil, state, err
	}
	actions, byHand := a.actions, map[int][]byte{}
	var together reports
	for i, at := range a.attempts {
		for len(actions) > 0 && actions[0].at.Before(at.at) {
			if err := actions[0].replay(step, byHand, nil); err != nil {
				return nil, state, err
			}
			actions = actions[1:]
		}
		if at.manual() {
			byHand[at.step] = at.result // the action follows
		}
		if in, ok := at.input(); ok { // else cancelled while running: an action or the task's end shows it
			together = append(together, report{at.step, in})
		}
		rest := a.attempts[i+1:]
		switch {
		case len(actions) > 0 && actions[0].decidedWith(len(together), rest):
			if len(rest) > 0 && !actions[0].at.Before(rest[0].at) {
				continue
			}
			if err := actions[0].replay(step, byHand, together.inputs()); err != nil {
				return nil, state, err
			}
			actions = actions[1:]
		case len(rest) > 0 && rest[0].decision == at.decision || len(together) == 0:
			continue
		default:
			if err := step(together.inputs()...); err != nil {
				return nil, state, fmt.Errorf("attempt %d of step %d: %w", at.attempt, at.step, err)
			}
		}
		together = nil
	}
	for _, act := range actions {
		if err := act.replay(step, byHand, nil); err != nil {
			return nil, state, err
		}
	}
	if a.final != nil && workflow.TaskState(*a.final) == workflow.TaskCancelled && !state.Terminal() {
		if err := step(workflow.Operation{Action: workflow.ActionCancel}); err != nil { // by a version that recorded no action
			return nil, state, err
		}
	}
	return progress, state, nil
}

// input is the action as the rules' input; false if it does not affect what happens next.
func (act *auditedAction) input() (workflow.Input, bool) {
	step, reason := -1, ""
	if act.step != nil {
		step = *act.step
	}
	if act.reason != nil {
		reason = *act.reason
	}
	o := workflow.Operation{Action: act.kind, Step: step, Reason: reason, Result: act.result}
	return o, o.Decides()
}

// manual reports whether the result came with an action.
func (at *auditedAttempt) manual() bool { return at.reason != nil && *at.reason == board.ManualReason }

func (at auditedAttempt) input() (workflow.Input, bool) {
	if at.manual() {
		return nil, false
	}
	switch at.outcome {
	case workflow.OutcomeSuccess:
		return workflow.Reported{Step: at.step, Attempt: at.attempt, Success: true, Result: at.result}, true
	case workflow.OutcomeFailed:
		return workflow.Reported{Step: at.step, Attempt: at.attempt, Retryable: true, RetryAfter: -1}, true
	case workflow.OutcomeLeaseLost:
		if at.reason != nil && *at.reason == board.SparedReason { // it used no attempt
			return nil, false
		}
		return workflow.LeaseLost{Step: at.step, Attempt: at.attempt}, true
	case workflow.OutcomeError:
		if at.reason != nil && (*at.reason == workflow.ReasonWorkerLost || *at.reason == workflow.ReasonPoison) {
			return workflow.LeaseLost{Step: at.step, Attempt: at.attempt, Final: *at.reason == workflow.ReasonWorkerLost}, true
		}
		// Retryable on purpose: the recorded reason says whether it was permanent.
		permanent := at.reason == nil || *at.reason != workflow.ReasonExhausted
		return workflow.Reported{Step: at.step, Attempt: at.attempt, Retryable: !permanent, RetryAfter: -1}, true
	default:
		return nil, false
	}
}

// compare compares the recorded progress and the board with the replay. A delayed start
// and a retry without delay differ only in whether the step is scheduled, which the
// board's row shows.
func (a *audited) compare(recorded, replayed *workflow.Progress) (problems []string) {
	if len(recorded.Steps) != len(replayed.Steps) {
		return []string{fmt.Sprintf("%d steps on record, %d by the ledger", len(recorded.Steps), len(replayed.Steps))}
	}
	onBoard := func(s workflow.Status) bool { return s == workflow.StatusOnBoard || s == workflow.StatusScheduled }
	for no := range recorded.Steps {
		have, want := recorded.Steps[no], replayed.Steps[no]
		if onBoard(have.Status) && onBoard(want.Status) {
			have.Status = want.Status
		}
		if _, batch := recorded.Group(no); batch && !have.Status.Ended() && !want.Status.Ended() {
			want.Status = have.Status // the number on the board at once is configured
		}
		if have != want {
			problems = append(problems, fmt.Sprintf("step %d: %s on record, %s by the ledger", no, describe(have), describe(want)))
		}
		row, placed := a.board[no]
		if placed != onBoard(want.Status) {
			problems = append(problems, fmt.Sprintf("step %d: on the board: %t, by the ledger: %t", no, placed, onBoard(want.Status)))
		}
		if placed && row.attempt < int(want.Attempts) {
			problems = append(problems, fmt.Sprintf("step %d: attempt %d on the board, %d in the ledger", no, row.attempt, want.Attempts))
		}
	}
	if !slices.Equal(recorded.Groups, replayed.Groups) {
		problems = append(problems, fmt.Sprintf("batches %v on record, %v by the ledger", recorded.Groups, replayed.Groups))
	}
	sort.Strings(problems)
	return problems
}

func describe(s workflow.StepProgress) string {
	text, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// report is a recorded attempt as the rules' input.
type report struct {
	step int
	in   workflow.Input
}

// madeGroups are all groups of batches that tasks have had, in the order of creation.
// Index: the primary keys.
var madeGroups = pg.Compile(`
select task_uuid, template_no, first_no, count(*)::int as count from (
    select task_uuid, template_no, first_no, created_at, since from tasker.batches where task_uuid = any (@tasks)
    union all
    select task_uuid, template_no, first_no, created_at, since from tasker.former_batches where task_uuid = any (@tasks)) d
group by task_uuid, template_no, first_no, created_at order by task_uuid, min(since), first_no`)

// numbering gives the batches of a replay their recorded numbers: which ones are free
// depends on the version of the program that decided.
type numbering struct {
	left []auditedGroup
	err  error // the first; the rules would attribute it to a handler
}

// next is workflow.Rules.BatchesAt.
func (n *numbering) next(worker, count int) (first int, err error) {
	at := slices.IndexFunc(n.left, func(g auditedGroup) bool { return g.worker == worker })
	switch {
	case at < 0:
		err = fmt.Errorf("the %d batches of step %d are not on record", count, worker)
	case n.left[at].count != count:
		err = fmt.Errorf("%d batches of step %d are on record, %d by the ledger", n.left[at].count, worker, count)
	default:
		first = n.left[at].first
		n.left = slices.Concat(n.left[:at], n.left[at+1:])
	}
	n.err = cmp.Or(n.err, err)
	return first, err
}

// reports are those that were applied together.
type reports []report

// inputs are in the order of steps, in which they were read from the board.
func (r reports) inputs() []workflow.Input {
	slices.SortStableFunc(r, func(a, b report) int { return a.step - b.step })
	list := make([]workflow.Input, len(r))
	for i := range r {
		list[i] = r[i].in
	}
	return list
}

// decidedWith reports whether the action was applied together with the reports gathered
// so far, and those of rest that are older: no record of a task lies between an action
// and its reports.
func (act *auditedAction) decidedWith(gathered int, rest []auditedAttempt) bool {
	for i := range rest {
		if act.at.Before(rest[i].at) {
			break
		}
		if _, ok := rest[i].input(); ok {
			gathered++
		}
	}
	return act.reports > 0 && gathered > 0 && gathered <= act.reports
}

// replay repeats an action with the reports applied together with it; byHand are the
// results that came with actions.
func (act *auditedAction) replay(step func(...workflow.Input) error, byHand map[int][]byte, beside []workflow.Input) error {
	if act.step != nil {
		act.result = byHand[*act.step]
	}
	if in, decides := act.input(); decides {
		beside = append(beside, in)
	}
	if len(beside) == 0 {
		return nil
	}
	if err := step(beside...); err != nil {
		return fmt.Errorf("action %s: %w", act.kind, err)
	}
	return nil
}

// reopened reports whether an operator has reopened the task: it then continues
// independently of its step.
func (a *audited) reopened() bool {
	return slices.ContainsFunc(a.actions, func(act auditedAction) bool { return act.step != nil && *act.step >= 0 })
}
