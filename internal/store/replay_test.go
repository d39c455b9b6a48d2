package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

const fanYAML = `
name: fan
namespace_name: flows
version: 1.0.0
steps:
  - {name: left, handler: {callable: left}, retry: {retryable: true, max_attempts: 2, backoff: none}}
  - {name: right, handler: {callable: right}, retry: {retryable: true, max_attempts: 2, backoff: none}}
`

// branchingSagaYAML is compensated while several of its steps run.
const branchingSagaYAML = `
name: branching_saga
namespace_name: flows
version: 1.0.0
steps:
  - {name: book, handler: {callable: book}, compensation: unbook}
  - {name: unbook, type: compensation, handler: {callable: unbook}}
  - {name: pay, depends_on: [book], handler: {callable: pay}, compensation: refund, retry: {max_attempts: 3, backoff: none}}
  - {name: refund, type: compensation, handler: {callable: refund}}
  - {name: send, depends_on: [book], handler: {callable: send}, compensation: recall}
  - {name: recall, type: compensation, handler: {callable: recall}}
  - {name: tell, depends_on: [book], handler: {callable: tell}}
`

// operated is a task on which workers and operators act in turn.
type operated struct {
	t     *testing.T
	ctx   context.Context
	store *store.Store
	db    *pgtest.DB
	plan  *store.Plan
	task  uuid.UUID
}

// report reports claimable steps, with an outcome chosen for each.
func (o *operated) report(t *rapid.T) {
	claimed, _, err := o.store.Claim(o.ctx, store.ClaimRequest{Worker: uuid.Nil, Callables: o.plan.Callables,
		Limit: rapid.IntRange(1, 3).Draw(t, "claims"), Lease: time.Minute}, true)
	require.NoError(t, err)
	if len(claimed) == 0 {
		t.Skip("no claimable step")
	}
	for _, c := range claimed {
		switch rapid.SampledFrom([]string{"success", "failure", "failure for good", "none", "lost"}).Draw(t, "report") {
		case "success":
			_, err = o.store.Report(o.ctx, []store.Report{succeed(c, o.result(t, c.Step, `1`))})
		case "failure":
			_, err = o.store.Report(o.ctx, []store.Report{fail(c, true, "no")})
		case "failure for good":
			_, err = o.store.Report(o.ctx, []store.Report{fail(c, false, "no")})
		case "lost":
			o.db.Exec(o.t, `update tasker.board set lease_until = now() - interval '1 s' where token = $1`, c.Token)
			_, err = o.store.ExpireLeases(o.ctx, store.UpTo(10), 10)
		}
		require.NoError(t, err)
	}
}

// result is that of a step: usually an ordinary one, of a batchable step some batches.
func (o *operated) result(t *rapid.T, no int, plain string) string {
	if no >= len(o.plan.Steps) || o.plan.Steps[no].Kind != workflow.KindBatchable {
		return plain
	}
	ids := []string{"a", "b", "c", "d"}[:rapid.IntRange(0, 4).Draw(t, "batches")]
	if len(ids) == 0 {
		return `{"batch_processing_outcome":{"type":"no_batches"}}`
	}
	return parts(o.plan.Steps[o.plan.Steps[no].Children[0]].Name, ids...)
}

// step is any step of the task, or of its plan.
func (o *operated) step(t *rapid.T, from int) int {
	task, err := o.store.Task(o.ctx, o.task)
	require.NoError(t, err)
	no := rapid.IntRange(from, max(len(o.plan.Steps), len(task.Progress.Steps))-1).Draw(t, "step")
	if no >= len(o.plan.Steps) && o.plan.Step(task.Progress, no) == nil {
		t.Skip("no step has the number")
	}
	return no
}

// apply applies the reports.
func (o *operated) apply(t *rapid.T) {
	taken, err := o.store.TakeReported(o.ctx, 100, true)
	require.NoError(t, err)
	defer taken.Release()
	var changes []store.Change
	for i := range taken.Tasks {
		x := &taken.Tasks[i]
		progress, effects, err := workflow.Advance(x.Plan.Plan, x.State, x.Progress, rules, inputsOf(x)...)
		require.NoError(t, err)
		changes = append(changes, store.Change{Task: x, Progress: progress, Effects: effects, Actor: "test"})
	}
	if len(changes) == 0 {
		t.Skip("no reports")
	}
	_, err = taken.Commit(o.ctx, uuid.Nil, changes)
	require.NoError(t, err)
}

// act applies an operator's action together with the reports, if the rules allow it.
func (o *operated) act(t *rapid.T) {
	all := []int16{int16(workflow.TaskComplete), int16(workflow.TaskError), int16(workflow.TaskCancelled), int16(workflow.TaskResolvedManually)}
	failed := []int16{int16(workflow.TaskError)}
	kind := rapid.SampledFrom([]string{workflow.ActionCancel, workflow.ActionFail, workflow.ActionResolve, workflow.ActionReset,
		workflow.ActionComplete, workflow.ActionRunAgain, workflow.ActionRunAgain}).Draw(t, "action")
	performed := &store.Performed{Kind: kind, Step: -1, Reason: "why"}
	how := store.Taking{}
	switch kind {
	case workflow.ActionCancel, workflow.ActionFail:
	case workflow.ActionResolve:
		performed.Step = o.step(t, -1)
	default:
		performed.Step = o.step(t, 0)
	}
	if performed.Step >= 0 {
		how = store.Taking{Spread: true, Reopen: failed}
	}
	switch kind {
	case workflow.ActionRunAgain:
		how.Reopen = all
	case workflow.ActionComplete:
		performed.Result = json.RawMessage(o.result(t, performed.Step, `2`))
	}
	in := workflow.Operation{Action: kind, Step: performed.Step, Reason: "why", Result: performed.Result}
	taken, err := o.store.TakeTasks(o.ctx, []uuid.UUID{o.task}, how)
	require.NoError(t, err)
	defer taken.Release()
	if len(taken.Tasks) == 0 {
		t.Skip("it has ended")
	}
	x := &taken.Tasks[0]
	reported := inputsOf(x)
	if len(reported) > 0 {
		_, effects, err := workflow.Advance(x.Plan.Plan, x.State, x.Progress, rules, reported...)
		require.NoError(t, err)
		if workflow.TooLate(effects.State, in) != nil {
			t.Skip("it ends")
		}
	}
	progress, effects, err := workflow.Advance(x.Plan.Plan, x.State, x.Progress, rules, append(reported, in)...)
	if errors.As(err, new(*workflow.NotAllowedError)) {
		t.Skip("not allowed")
	}
	require.NoError(t, err)
	_, err = taken.Commit(o.ctx, uuid.Nil, []store.Change{{Task: x, Progress: progress, Effects: effects, Actor: "ana", Action: performed}})
	require.NoError(t, err)
}

// sound holds the records of the task against the rules.
func (o *operated) sound(t *rapid.T) {
	report, err := o.store.CheckTask(o.ctx, rules, o.task)
	require.NoError(t, err)
	if len(report.Violations) == 0 {
		return
	}
	t.Fatalf("%v\n%s", report.Violations, o.db.QueryString(o.t, `
		select string_agg(concat_ws(' ', at, what), E'\n' order by at, what) from (
			select applied_at as at, concat_ws(' ', 'attempt', attempt, 'of step', step_no, 'token', token, 'outcome', outcome, reason, 'xmin', xmin::text, 'ends', task_state) as what
			from tasker.step_attempts where task_uuid = $1
			union all select at, concat_ws(' ', 'from', from_state, 'to', to_state, actor, reason, metadata) from tasker.task_events where task_uuid = $1) h`, o.task))
}

// restore writes the ledger anew, as pg_restore does: the columns stay as they
// are, and xmin does not.
func restore(t testing.TB, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, `with gone as (delete from tasker.step_attempts returning *) insert into tasker.step_attempts select * from gone`)
}

// TestRecordsReplay: for any order of actions of workers and operators the replay of a
// task's records reaches its state.
func TestRecordsReplay(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	plans := make([]*store.Plan, 0, 5)
	for _, yaml := range []string{oneStepYAML, fanYAML, diamondYAML, retriedYAML, branchingSagaYAML} {
		plans = append(plans, plan(t, s, yaml))
	}
	rapid.Check(t, func(rt *rapid.T) {
		o := &operated{t: t, ctx: t.Context(), store: s, db: db, plan: rapid.SampledFrom(plans).Draw(rt, "plan")}
		// Deleted, not truncated: that makes every partition's files anew.
		db.Exec(t, `with b as (delete from tasker.board), a as (delete from tasker.step_attempts), e as (delete from tasker.task_events)
			delete from tasker.tasks`)
		o.task = create(t, s, o.plan, 1)[0]
		rt.Repeat(map[string]func(*rapid.T){"": o.sound, "report": o.report, "apply": o.apply, "apply again": o.apply, "act": o.act,
			"due": func(*rapid.T) { dueNow(t, s, db) }, "restore": func(*rapid.T) { restore(t, db) }})
	})
}

// TestReopenedTasksReplay: reports of a task that were applied together are replayed
// together, however often the task is reopened.
func TestReopenedTasksReplay(t *testing.T) {
	t.Parallel()
	well := func(c store.Claimed) store.Report { return succeed(c, `1`) }
	again := func(c store.Claimed) store.Report { return fail(c, true, "not yet") }
	never := func(c store.Claimed) store.Report { return fail(c, false, "no") }
	for name, c := range map[string]struct {
		yaml    string
		reports []func(store.Claimed) store.Report // in the order of steps, applied together
		kind    string
	}{
		"one step, failed":                 {oneStepYAML, []func(store.Claimed) store.Report{never}, workflow.ActionReset},
		"one step, complete":               {oneStepYAML, []func(store.Claimed) store.Report{well}, workflow.ActionRunAgain},
		"both failed":                      {fanYAML, []func(store.Claimed) store.Report{never, never}, workflow.ActionReset},
		"both failed, run again":           {fanYAML, []func(store.Claimed) store.Report{never, never}, workflow.ActionRunAgain},
		"both complete":                    {fanYAML, []func(store.Claimed) store.Report{well, well}, workflow.ActionRunAgain},
		"the first failed":                 {fanYAML, []func(store.Claimed) store.Report{never, well}, workflow.ActionReset},
		"the second failed":                {fanYAML, []func(store.Claimed) store.Report{well, never}, workflow.ActionRunAgain},
		"one failed, one is retried":       {fanYAML, []func(store.Claimed) store.Report{never, again}, workflow.ActionReset},
		"a saga, of which a branch failed": {branchingSagaYAML, []func(store.Claimed) store.Report{well, never, well}, workflow.ActionRunAgain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, db := open(t)
			p := plan(t, s, c.yaml)
			id := create(t, s, p, 1)[0]
			sound := func() {
				t.Helper()
				noViolations(t, s)
				restore(t, db)
				noViolations(t, s)
			}
			run := func(reported func(store.Claimed) store.Report) {
				t.Helper()
				claimed := claim(t, s, p, 10)
				require.NotEmpty(t, claimed)
				for _, x := range claimed {
					require.Equal(t, []bool{true}, report(t, s, reported(x)))
				}
				applyAll(t, s)
				sound()
				dueNow(t, s, db)
			}
			if c.yaml == branchingSagaYAML {
				run(well) // the dependency of its branches
			}
			for range 3 {
				claimed := claim(t, s, p, 10)
				slices.SortFunc(claimed, func(a, b store.Claimed) int { return a.Step - b.Step })
				reports := make([]store.Report, len(claimed))
				for i, x := range claimed {
					reports[i] = c.reports[min(i, len(c.reports)-1)](x)
				}
				require.NotContains(t, report(t, s, reports...), false)
				applyAll(t, s)
				sound()
				for !read(t, s, id).State.Terminal() {
					dueNow(t, s, db)
					run(well)
				}
				step := 0
				for _, x := range read(t, s, id).Steps {
					if c.kind == workflow.ActionReset && x.State == workflow.StepError {
						step = x.No
					}
				}
				op := workflow.Operation{Action: c.kind, Step: step, Reason: "why"}
				in := op
				act(t, s, id, c.kind, step, onSteps, in)
				sound()
			}
			for !read(t, s, id).State.Terminal() {
				dueNow(t, s, db)
				run(well)
			}
		})
	}
}

// TestAttemptsOfBeforeReplay: attempts that were recorded before there was a
// column for the decision replay by the transaction that wrote them.
func TestAttemptsOfBeforeReplay(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	db.Exec(t, `alter table tasker.step_attempts alter column decision drop default`)
	p := plan(t, s, fanYAML)
	id := create(t, s, p, 1)[0]
	both := func() {
		t.Helper()
		claimed := claim(t, s, p, 10)
		require.Len(t, claimed, 2)
		require.NotContains(t, report(t, s, fail(claimed[0], false, "no"), fail(claimed[1], true, "not yet")), false)
		applyAll(t, s)
		noViolations(t, s)
	}
	both()
	require.Equal(t, 2, db.QueryInt(t, `select count(*) from tasker.step_attempts where decision is null`))
	db.Exec(t, `alter table tasker.step_attempts alter column decision set default pg_current_xact_id()`)
	dueNow(t, s, db)
	claimed := claim(t, s, p, 10)
	require.Len(t, claimed, 1)
	report(t, s, fail(claimed[0], false, "no"))
	applyAll(t, s)
	noViolations(t, s)
	for _, step := range []int{0, 1} {
		act(t, s, id, workflow.ActionRunAgain, step, onSteps, workflow.Operation{Action: workflow.ActionRunAgain, Step: step})
		noViolations(t, s)
	}
	both()
}
