// Package approval has the handlers of the expense example: a decision and the branches
// that follow from it.
package approval

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/decision"
)

// Request is the context of the task.
type Request struct {
	Amount    float64 `json:"amount"`
	Requester string  `json:"requester"`
	Purpose   string  `json:"purpose"`
}

// Approval is the result of each branch.
type Approval struct {
	ApprovedBy string  `json:"approved_by"`
	Amount     float64 `json:"amount"`
}

// Final is the result of the join.
type Final struct {
	ApprovedBy []string `json:"approved_by"`
	Path       string   `json:"approval_path"` // auto, manager_only, dual_approval
}

// Register gives a worker the four handlers.
func Register(w *worker.Worker) error {
	return errors.Join(
		worker.Handle(w, "approval.validate", Validate),
		worker.Handle(w, "approval.route", Route),
		worker.Handle(w, "approval.approve", Approve),
		worker.Handle(w, "approval.finalize", Finalize),
	)
}

// Validate rejects invalid requests.
func Validate(_ *worker.StepContext, r Request) (Request, error) {
	if r.Amount <= 0 {
		return r, worker.WithCode(worker.Permanent(fmt.Errorf("an expense of %v cannot be approved", r.Amount)), "VALIDATION_ERROR")
	}
	return r, nil
}

// Route decides who must approve. Its thresholds are in the template, and repeated in the
// result for later reference.
func Route(ctx *worker.StepContext, r Request) (decision.Outcome, error) {
	limits := struct {
		ManagerFrom float64 `json:"manager_from"`
		FinanceFrom float64 `json:"finance_from"`
	}{1000, 5000}
	if settings, err := json.Marshal(ctx.Config()); err != nil || json.Unmarshal(settings, &limits) != nil {
		return decision.None(), worker.Permanent(errors.New("invalid thresholds in the template"))
	}
	var next decision.Outcome
	switch {
	case r.Amount < limits.ManagerFrom:
		next = decision.Create("auto_approve")
	case r.Amount < limits.FinanceFrom:
		next = decision.Create("manager_approval")
	default:
		next = decision.Create("manager_approval", "finance_review")
	}
	return next.With("amount", r.Amount).With("thresholds", limits), nil
}

// Approve approves; the approver is a setting, or the name of the step.
func Approve(ctx *worker.StepContext, r Request) (Approval, error) {
	by, _ := ctx.Config()["by"].(string)
	if by == "" {
		by = ctx.StepName()
	}
	return Approval{ApprovedBy: by, Amount: r.Amount}, nil
}

// Finalize collects the existing approvals.
func Finalize(ctx *worker.StepContext, _ Request) (Final, error) {
	var f Final
	results := ctx.DependencyResults()
	for _, raw := range results {
		var a Approval
		if err := json.Unmarshal(raw, &a); err != nil {
			return f, worker.Permanent(fmt.Errorf("read an approval: %w", err))
		}
		f.ApprovedBy = append(f.ApprovedBy, a.ApprovedBy)
	}
	slices.Sort(f.ApprovedBy)
	_, auto := results["auto_approve"]
	switch {
	case auto:
		f.Path = "auto"
	case len(results) > 1:
		f.Path = "dual_approval"
	default:
		f.Path = "manager_only"
	}
	return f, nil
}
