package orchestration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/admission"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

const (
	// maxBulk bounds the tasks that one bulk action examines.
	maxBulk = 10_000
	// bulkBatch is how many of them share a transaction.
	bulkBatch = 100
	// bulkShown bounds the tasks that an answer names.
	bulkShown = 100
)

// TaskSelection selects tasks by their properties; all that are set must hold, and
// at least one must be set.
type TaskSelection = store.TaskSelection

// Bulk requests an action on many tasks.
type Bulk struct {
	Select TaskSelection
	Action Action
	Limit  int // 1–maxBulk; 0: maxBulk
	DryRun bool
}

// target is the selection as it is recorded, with the names of the API.
func (b *Bulk) target() any {
	states := make([]string, len(b.Select.States))
	for i, state := range b.Select.States {
		states[i] = state.String()
	}
	return struct {
		TaskSelection
		States   []string `json:"states,omitempty"`
		StepName string   `json:"step_name,omitempty"`
	}{b.Select, states, b.Action.StepName}
}

// BulkResult is the outcome of a Bulk.
type BulkResult struct {
	Matched int // tasks that the selection found, up to the limit
	Changed int // in a dry run: would be tried
	Skipped int // state did not allow it, ended meanwhile, or rejected by the database
	Tasks   []uuid.UUID
	DryRun  bool
}

// ActOnMany applies an action to all tasks of a selection, oldest first, in
// transactions of a hundred, or of one (release_lease, reprioritise). A task that the database
// rejects does not affect the others.
// After an error the result holds what was done nevertheless; a repeated call continues
// there, since changed tasks are not selected a second time, or reject the action.
func (o *Orchestrator) ActOnMany(ctx context.Context, b Bulk) (BulkResult, error) {
	result := BulkResult{DryRun: b.DryRun}
	tasks, err := o.selected(ctx, &b)
	if err != nil {
		return result, err
	}
	result.Matched = len(tasks)
	result.Tasks = tasks[:min(len(tasks), bulkShown)]
	if b.DryRun {
		result.Changed = len(tasks)
		return result, nil
	}
	b.Action.recordedAs(b.target(), len(tasks))
	for batch := range slices.Chunk(tasks, bulkBatch) {
		done, failure := o.actApart(ctx, batch, b.Action)
		result.Changed += len(done.changed)
		result.Skipped += len(batch) - len(done.changed)
		if failure != nil && err == nil {
			err = fmt.Errorf("%s in bulk: %w", b.Action.Kind, failure)
		}
		if failure != nil && !refused(ctx, failure) {
			return result, err
		}
	}
	if result.Changed == 0 {
		err = errors.Join(err, o.store.RecordAction(ctx, b.Action.record.OperatorAction))
	}
	return result, err
}

func (o *Orchestrator) selected(ctx context.Context, b *Bulk) ([]uuid.UUID, error) {
	b.Action.bounded(o.cfg.Documents)
	if err := b.Action.check(); err != nil {
		return nil, err
	}
	limit, err := limited(b.Limit, maxBulk)
	sel := b.Select
	switch {
	case err != nil:
		return nil, err
	case b.Action.Step != nil:
		return nil, invalid("a bulk action names its step by step_name")
	case b.Action.Edit != nil:
		return nil, invalid("the context of a task is changed for one task at a time")
	case sel.Namespace == "" && sel.Name == "" && sel.Version == "" && len(sel.States) == 0 && sel.Tag == "" &&
		sel.CreatedBefore == nil && sel.CreatedAfter == nil:
		return nil, invalid("a bulk action needs a filter")
	}
	tasks, err := o.store.SelectTasks(ctx, sel, limit)
	if err != nil {
		return nil, fmt.Errorf("select tasks: %w", err)
	}
	return tasks, nil
}

// limited is the limit of a request, whose 0 means most.
func limited(limit, most int) (int, error) {
	if limit < 0 || limit > most {
		return 0, invalid("limit must be between 1 and %d", most)
	}
	return cmp.Or(limit, most), nil
}

// Pause stops claims of steps of a namespace, or of a callable. Running steps
// continue; new ones wait.
func (o *Orchestrator) Pause(ctx context.Context, p store.Pause) error {
	if err := checkActor(p.Actor, p.Reason); err != nil {
		return err
	}
	return o.store.Pause(ctx, p)
}

// Resume ends a pause and notifies the workers.
func (o *Orchestrator) Resume(ctx context.Context, p store.Pause) error {
	if err := checkActor(p.Actor, p.Reason); err != nil {
		return err
	}
	signals, err := o.store.Resume(ctx, p)
	if err != nil {
		return err
	}
	o.publish(signals)
	return nil
}

// SetPolicy sets the order of the steps of a callable, or with no policy removes it, and
// notifies the fleet.
func (o *Orchestrator) SetPolicy(ctx context.Context, p store.CallablePolicy, reason string) error {
	if err := checkActor(p.ChangedBy, reason); err != nil {
		return err
	}
	signals, err := o.store.SetPolicy(ctx, p, reason)
	if err == nil {
		o.publish(signals)
	}
	return err
}

// SetQuota gives a namespace a quota, which also applies to some of store.QuotaKinds; see
// submission.QuotaError.
func (o *Orchestrator) SetQuota(ctx context.Context, namespace string, maxTasks int, appliesTo []string, why Why) (store.Quota, error) {
	if err := checkActor(why.Actor, why.Reason); err != nil {
		return store.Quota{}, err
	}
	return o.store.SetQuota(ctx, namespace, maxTasks, appliesTo, why.action("set_quota"))
}

// DeleteQuota removes the quota of a namespace.
func (o *Orchestrator) DeleteQuota(ctx context.Context, namespace string, why Why) (store.Quota, error) {
	if err := checkActor(why.Actor, why.Reason); err != nil {
		return store.Quota{}, err
	}
	return o.store.DeleteQuota(ctx, namespace, why.action("delete_quota"))
}

// SetSubmissionLimit sets how often tasks of a template are submitted, or without rules
// deletes that.
func (o *Orchestrator) SetSubmissionLimit(ctx context.Context, namespace, template string, rules admission.Rules, why Why) error {
	if err := checkActor(why.Actor, why.Reason); err != nil {
		return err
	}
	action := "set_submission_limit"
	if rules == (admission.Rules{}) {
		action = "delete_submission_limit"
	}
	return o.store.SetSubmissionLimit(ctx, namespace, template, rules, why.action(action))
}

// SetLimit sets the limit of a callable and notifies the workers; see store.SetLimit.
func (o *Orchestrator) SetLimit(ctx context.Context, l store.Limit, why Why) error {
	return o.limit(why, func() ([]signal.Signal, error) { return o.store.SetLimit(ctx, l, why.Actor, why.Reason) })
}

// DeleteLimit removes the limit of a callable and notifies the workers.
func (o *Orchestrator) DeleteLimit(ctx context.Context, namespace string, handler workflow.HandlerReference, why Why) error {
	return o.limit(why, func() ([]signal.Signal, error) {
		return o.store.DeleteLimit(ctx, namespace, handler, why.Actor, why.Reason)
	})
}

func (o *Orchestrator) limit(why Why, change func() ([]signal.Signal, error)) error {
	if err := checkActor(why.Actor, why.Reason); err != nil {
		return err
	}
	signals, err := change()
	o.publish(signals) // of what was changed before an error, too
	return err
}

// DeprecateTemplate excludes a template version from requests that name no version,
// or includes it again.
func (o *Orchestrator) DeprecateTemplate(ctx context.Context, namespace, name, version string, deprecated bool, why Why) error {
	if err := checkActor(why.Actor, why.Reason); err != nil {
		return err
	}
	action := why.action("deprecate_template")
	if !deprecated {
		action = why.action("undeprecate_template")
	}
	signals, err := o.store.DeprecateVersion(ctx, namespace, name, version, deprecated, action)
	if err != nil {
		return err
	}
	o.publish(signals)
	return nil
}

func checkActor(actor, reason string) error {
	var c submission.Checker
	answerable(&c, actor, reason)
	return c.Err()
}

// answerable checks the actor and reason that every operator's action records.
func answerable(c *submission.Checker, actor, reason string) {
	c.Text("actor", actor, MaxTextLength, true)
	c.Text("reason", reason, MaxReasonLength, true)
}
