package enginetest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/inproc"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/poller"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// In a fork the steps have their own rows, in a row each is in its task's.
const (
	forked = `
name: decided
namespace_name: test
version: 1.0.0
steps:
  - {name: start, handler: {callable: a}, retry: {retryable: true, max_attempts: 3}}
  - {name: left, dependencies: [start], handler: {callable: a}}
  - {name: right, dependencies: [start], handler: {callable: a}}
  - {name: end, dependencies: [left, right], handler: {callable: a}}
`
	inARow = `
name: decided
namespace_name: test
version: 1.0.0
steps:
  - {name: start, handler: {callable: a}, retry: {retryable: true, max_attempts: 3}}
  - {name: middle, dependencies: [start], handler: {callable: a}}
  - {name: end, dependencies: [middle], handler: {callable: a}}
`
)

// unapplied is a task whose orchestrator acts, and applies nothing before it is started.
type unapplied struct {
	t     *testing.T
	db    *pgtest.DB
	store *store.Store
	o     *orchestration.Orchestrator
	rules workflow.Rules
	plan  *store.Plan
	task  uuid.UUID
}

func newUnapplied(t *testing.T, source string) *unapplied {
	t.Helper()
	u := &unapplied{t: t, rules: workflow.Rules{MaxCrashes: 3, Backoff: workflow.BackoffDefaults{
		Delays: []time.Duration{20 * time.Millisecond}, Multiplier: 1, Max: time.Second}}}
	u.store, u.db = enginetest.OpenStore(t)
	tmpl, _, err := template.Parse("decided.yaml", []byte(source))
	require.NoError(t, err)
	_, err = u.store.RegisterTemplates(t.Context(), store.Registrant{Environment: "test"}, []*workflow.Template{tmpl.Resolve("test")})
	require.NoError(t, err)
	u.plan, err = u.store.PlanNamed(t.Context(), "test", "decided", "1.0.0")
	require.NoError(t, err)
	bus := inproc.New()
	system := enginetest.Completed(t, coordinator.Config{SystemID: "test", Mode: deploymode.Hybrid, Listener: listener.New(listener.Config{Source: bus}),
		Poller: poller.Config{Interval: 50 * time.Millisecond, RelaxedInterval: time.Second}})
	c := enginetest.Configured(t)
	c.Store, c.Publisher, c.Rules, c.Orchestration, c.Readiness = u.store, bus, u.rules, system, system
	u.o, err = orchestration.New(c)
	require.NoError(t, err)
	created, err := u.store.CreateTasks(t.Context(), []store.NewTask{{UUID: uuid.Must(uuid.NewV7()), Plan: u.plan,
		Context: json.RawMessage(`{}`), CorrelationID: uuid.Must(uuid.NewV7()), Initiator: "test"}})
	require.NoError(t, err)
	u.task = created[0].UUID
	return u
}

// report claims and reports the claimable steps, as a worker does, and returns their
// number.
func (u *unapplied) report(success bool) int {
	u.t.Helper()
	claimed, _, err := u.store.Claim(u.t.Context(), store.ClaimRequest{Worker: uuid.Nil, Callables: u.plan.Callables, Limit: 10, Lease: time.Minute}, true)
	require.NoError(u.t, err)
	reports := make([]store.Report, len(claimed))
	for i, c := range claimed {
		reports[i] = store.Report{ClaimKey: c.Key(), Success: success, Retryable: true, Result: json.RawMessage(`"reported"`), RetryAfter: -1}
		if !success {
			reports[i].Result, reports[i].Error = nil, json.RawMessage(`{"message": "not yet"}`)
		}
	}
	accepted, err := u.store.Report(u.t.Context(), reports)
	require.NoError(u.t, err)
	require.NotContains(u.t, accepted, false)
	return len(claimed)
}

func (u *unapplied) requireSound() {
	u.t.Helper()
	report, err := u.store.CheckTask(u.t.Context(), u.rules, u.task)
	require.NoError(u.t, err)
	require.Empty(u.t, report.Violations)
}

// finish starts the orchestrator and runs the remaining steps.
func (u *unapplied) finish() *store.Task {
	u.t.Helper()
	require.NoError(u.t, u.o.Start(u.t.Context()))
	u.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(u.t.Context()), 20*time.Second)
		defer cancel()
		require.NoError(u.t, u.o.Stop(ctx))
	})
	var task *store.Task
	require.Eventually(u.t, func() bool {
		u.report(true)
		var err error
		task, err = u.store.Task(u.t.Context(), u.task)
		require.NoError(u.t, err)
		return task.State == workflow.TaskComplete
	}, 30*time.Second, 5*time.Millisecond)
	return task
}

// TestActionsOnWhatAReportHasJustBrought: an unapplied report and an operator's action
// are one decision. Steps that the report creates and the action removes never exist.
func TestActionsOnWhatAReportHasJustBrought(t *testing.T) {
	t.Parallel()
	const board = `select coalesce(string_agg(step_no::text, ' ' order by step_no), '') from tasker.board where step_no is not null`
	const ledger = `select string_agg(concat(step_no, ' ', outcome), ', ' order by step_no, token) from tasker.step_attempts where step_no >= 0`
	for name, c := range map[string]struct {
		template      string
		succeeds      bool
		kind          orchestration.ActionKind
		step          int
		board, ledger string // its steps; the steps of attempts with their outcomes, 1 success and 2 failure
	}{
		"resolved, of several":      {forked, true, orchestration.ActionResolveManually, 1, "2", "0 1"},
		"completed, of several":     {forked, true, orchestration.ActionCompleteManually, 1, "2", "0 1, 1 1"},
		"run again, before several": {forked, true, orchestration.ActionRunAgain, 0, "0", "0 1"},
		"resolved":                  {inARow, true, orchestration.ActionResolveManually, 1, "2", "0 1"},
		"completed":                 {inARow, true, orchestration.ActionCompleteManually, 1, "2", "0 1, 1 1"},
		"run again":                 {inARow, true, orchestration.ActionRunAgain, 0, "0", "0 1"},
		"resolved, to be retried":   {inARow, false, orchestration.ActionResolveManually, 0, "1", "0 2"},
		"completed, to be retried":  {forked, false, orchestration.ActionCompleteManually, 0, "1 2", "0 2, 0 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUnapplied(t, c.template)
			require.Equal(t, 1, u.report(c.succeeds))
			require.Equal(t, 1, u.db.QueryInt(t, `select count(*) from tasker.board where outcome is not null`), "it is not applied")
			id := store.StepUUID(u.task, c.step)
			a := by(c.kind, &id)
			if c.kind == orchestration.ActionCompleteManually {
				a.Result = json.RawMessage(`"by hand"`)
			}
			require.NoError(t, u.o.Act(t.Context(), u.task, a))
			require.Equal(t, c.board, u.db.QueryString(t, board))
			require.Equal(t, c.ledger, u.db.QueryString(t, ledger))
			u.requireSound()

			ended := u.finish()
			for no, s := range ended.Steps {
				want := workflow.StepComplete
				if no == c.step && c.kind == orchestration.ActionResolveManually {
					want = workflow.StepResolvedManually
				}
				require.Equal(t, want, s.State, s.Name)
			}
			if a.Result != nil {
				require.JSONEq(t, string(a.Result), string(ended.Steps[c.step].Result))
			}
			u.requireSound()
			require.Zero(t, u.db.QueryInt(t, `select count(*) from tasker.board`))
		})
	}
}

// TestActionsOnTheStepInTheRow: an operator ends the only step of a task before its worker does.
// What follows may be anything: several steps, one that the engine runs, what a decision names.
func TestActionsOnTheStepInTheRow(t *testing.T) {
	t.Parallel()
	const waits = `
name: decided
namespace_name: test
version: 1.0.0
steps:
  - {name: start, handler: {callable: a}}
  - {name: pause, type: sleep, dependencies: [start], wait: {for: 20ms}}
  - {name: end, dependencies: [pause], handler: {callable: a}}
`
	const decides = `
name: decided
namespace_name: test
version: 1.0.0
steps:
  - {name: start, handler: {callable: a}}
  - {name: choose, type: decision, dependencies: [start], handler: {callable: a}}
  - {name: left, dependencies: [choose], handler: {callable: a}}
  - {name: right, dependencies: [choose], handler: {callable: a}}
`
	for name, c := range map[string]struct {
		template, result string // of a step that is completed by hand; "": it is resolved
		board            string
	}{
		"resolved before several":      {forked, "", "1 2"},
		"completed before several":     {forked, `"by hand"`, "1 2"},
		"resolved before one":          {inARow, "", "1"},
		"completed before one":         {inARow, `"by hand"`, "1"},
		"resolved before a wait":       {waits, "", "1"},
		"completed before a wait":      {waits, `"by hand"`, "1"},
		"a decision for several steps": {decides, `{"decision_point_outcome":{"type":"create_steps","step_names":["left","right"]}}`, "2 3"},
		"a decision for one step":      {decides, `{"decision_point_outcome":{"type":"create_steps","step_names":["left"]}}`, "2"},
	} {
		for _, claimed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", claimed ", claimed), func(t *testing.T) {
				t.Parallel()
				u, step := newUnapplied(t, c.template), 0
				if c.template == decides {
					id := store.StepUUID(u.task, 0)
					require.NoError(t, u.o.Act(t.Context(), u.task, by(orchestration.ActionResolveManually, &id)))
					step = 1
				}
				if claimed {
					list, _, err := u.store.Claim(t.Context(), store.ClaimRequest{Worker: uuid.New(), Callables: u.plan.Callables, Limit: 10, Lease: time.Minute}, true)
					require.NoError(t, err)
					require.Len(t, list, 1)
				}
				id := store.StepUUID(u.task, step)
				a := by(orchestration.ActionResolveManually, &id)
				if c.result != "" {
					a = by(orchestration.ActionCompleteManually, &id)
					a.Result = json.RawMessage(c.result)
				}
				require.NoError(t, u.o.Act(t.Context(), u.task, a))
				require.Equal(t, c.board, u.db.QueryString(t, `select coalesce(string_agg(step_no::text, ' ' order by step_no), '') from tasker.board where step_no is not null`))
				u.requireSound()
				u.finish()
				u.requireSound()
				require.Zero(t, u.db.QueryInt(t, `select count(*) from tasker.board`))
			})
		}
	}
}

// TestActionsThatAReportForbids: a reported step cannot be run again, and the report
// stays to be applied.
func TestActionsThatAReportForbids(t *testing.T) {
	t.Parallel()
	for name, template := range map[string]string{"forked": forked, "in a row": inARow} {
		for _, kind := range []orchestration.ActionKind{orchestration.ActionRunAgain, orchestration.ActionResetForRetry} {
			t.Run(fmt.Sprint(name, " ", kind), func(t *testing.T) {
				t.Parallel()
				u := newUnapplied(t, template)
				require.Equal(t, 1, u.report(true))
				id := store.StepUUID(u.task, 1)
				require.ErrorAs(t, u.o.Act(t.Context(), u.task, by(kind, &id)), new(*orchestration.TransitionError))
				require.Equal(t, "0", u.db.QueryString(t, `select string_agg(step_no::text, ' ') from tasker.board where outcome = 1`))
				u.requireSound()
				for _, s := range u.finish().Steps {
					require.Equal(t, workflow.StepComplete, s.State, s.Name)
				}
				u.requireSound()
			})
		}
	}
}
