package corpus_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/examples/approval"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/decision"
	"github.com/tasker-go/tasker/workflow"
)

func approvals() handlers {
	return handlers{
		"ValidateRequestHandler":  worker.Typed(approval.Validate),
		"RoutingDecisionHandler":  worker.Typed(approval.Route),
		"AutoApproveHandler":      worker.Typed(approval.Approve),
		"ManagerApprovalHandler":  worker.Typed(approval.Approve),
		"FinanceReviewHandler":    worker.Typed(approval.Approve),
		"FinalizeApprovalHandler": worker.Typed(approval.Finalize),
	}
}

// Rows 38 to 43 of the behaviours: each amount takes its path, and no step of another
// branch is created.
func TestConditionalApproval(t *testing.T) {
	t.Parallel()
	e, template := start(t, "conditional_approval_rust.yaml", approvals(), nil)
	for _, c := range []struct {
		amount, path string
		branches     []string
	}{
		{"0.01", "auto", []string{"auto_approve"}}, {"500", "auto", []string{"auto_approve"}}, {"999.99", "auto", []string{"auto_approve"}},
		{"1000", "manager_only", []string{"manager_approval"}}, {"3000", "manager_only", []string{"manager_approval"}},
		{"4999.99", "manager_only", []string{"manager_approval"}},
		{"5000", "dual_approval", []string{"finance_review", "manager_approval"}}, {"7500", "dual_approval", []string{"finance_review", "manager_approval"}},
		{"10000", "dual_approval", []string{"finance_review", "manager_approval"}},
	} {
		task := run(e, template, `{"amount":%s,"requester":"r","purpose":"p"}`, c.amount)
		requireComplete(t, task)
		require.ElementsMatch(t, append([]string{"validate_request", "routing_decision", "finalize_approval"}, c.branches...), names(task), c.amount)
		final := step(t, task, "finalize_approval")
		require.Equal(t, c.path, decode[approval.Final](t, final.Result).Path, c.amount)
		require.Equal(t, 1, final.Attempts)
		require.Equal(t, len(c.branches), final.Parents)
		for _, branch := range c.branches { // row 47: after the decision, before the join
			b := step(t, task, branch)
			require.False(t, b.StartedAt.Before(*step(t, task, "routing_decision").ReportedAt))
			require.False(t, final.StartedAt.Before(*b.ReportedAt))
		}
	}
}

// Row 81: only steps that do not follow from the decision exist at the beginning.
func TestConditionalApprovalBeginsWithTwoSteps(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	h := approvals()
	h["ValidateRequestHandler"] = func(*worker.StepContext) (any, error) { <-hold; return nil, nil }
	e, template := start(t, "conditional_approval_rust.yaml", h, nil)
	id := e.SubmitVersion(template.Namespace, template.Name, template.Version, `{"amount":500}`)
	require.Equal(t, []string{"routing_decision", "validate_request"}, names(e.Read(id)))
	close(hold)
	require.Len(t, e.Await(id).Steps, 4)
}

// Rows 44 and 45, and invalid decisions.
func TestOutcomesOfDecisions(t *testing.T) {
	t.Parallel()
	h := approvals()
	h["RoutingDecisionHandler"] = func(ctx *worker.StepContext) (any, error) {
		result, err := worker.Field[json.RawMessage](ctx, "outcome")
		if errors.Is(err, worker.ErrAbsent) {
			return decision.None().With("reason", "not needed"), nil
		}
		return result, err
	}
	h["FinalizeApprovalHandler"] = func(ctx *worker.StepContext) (any, error) { return len(ctx.DependencyResults()), nil }
	e, template := start(t, "conditional_approval_rust.yaml", h, nil)

	none := run(e, template, `{"amount":1}`)
	requireComplete(t, none)
	require.Equal(t, []string{"finalize_approval", "routing_decision", "validate_request"}, names(none), "the decision alone satisfies the join")
	require.JSONEq(t, "0", string(step(t, none, "finalize_approval").Result))

	twice := run(e, template, `{"amount":1,"outcome":{"decision_point_outcome":{"type":"create_steps","step_names":["auto_approve","auto_approve"]}}}`)
	requireComplete(t, twice)
	require.Len(t, twice.Steps, 4, "a name given twice is one step")

	for outcome, problem := range map[string]string{
		`{"type":"create_steps","step_names":["validate_request"]}`: "does not depend on the decision",
		`{"type":"create_steps","step_names":["missing"]}`:          `has no step \"missing\"`,
		`{"type":"create_steps","step_names":[]}`:                   "names no step",
		`{"type":"perhaps"}`:                                        "the type is",
		`{"type":"create_steps","step_names":"auto_approve"}`:       "cannot be a string",
		`17`: "cannot be a number",
	} {
		bad := run(e, template, `{"amount":1,"outcome":{"decision_point_outcome":%s}}`, outcome)
		require.Equal(t, workflow.TaskError, bad.State, outcome)
		routing := step(t, bad, "routing_decision")
		require.Equal(t, workflow.StepError, routing.State, outcome)
		require.Equal(t, 1, routing.Attempts, "a retry would give the same result")
		require.NotNil(t, routing.Reason)
		quoted, err := json.Marshal(*routing.Reason)
		require.NoError(t, err)
		require.Contains(t, string(quoted), problem, outcome)
	}
	missing := run(e, template, `{"amount":1,"outcome":{"approved":true}}`)
	require.Contains(t, *step(t, missing, "routing_decision").Reason, "no decision_point_outcome")
}

// A result that requests steps is logged if the step may create none.
func TestOutcomeOfAPlainStep(t *testing.T) {
	t.Parallel()
	h := approvals()
	h["ValidateRequestHandler"] = func(*worker.StepContext) (any, error) { return decision.Create("auto_approve"), nil }
	e, template := start(t, "conditional_approval_rust.yaml", h, nil)
	task := run(e, template, `{"amount":1}`)
	require.Equal(t, workflow.TaskError, task.State)
	require.Contains(t, string(step(t, task, "validate_request").Error), "InvalidOutcome")
}
