package orchestration

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/store"
)

const (
	// MaxBulk bounds the tasks that one bulk action looks at.
	MaxBulk = 10_000
	// bulkBatch is how many of them share a transaction.
	bulkBatch = 100
	// bulkShown bounds the tasks that an answer names.
	bulkShown = 100
)

// TaskSelection names tasks by what they are; what is set must all hold, and
// something must be set.
type TaskSelection = store.TaskSelection

// Bulk asks for an action on many tasks.
type Bulk struct {
	Select TaskSelection
	Action Action
	Limit  int // 1–MaxBulk; 0: MaxBulk
	DryRun bool
}

// BulkResult is what became of it.
type BulkResult struct {
	Matched int // tasks that the selection found, up to the limit
	Changed int // in a dry run: that would be tried
	Skipped int // whose state did not allow it, or that ended meanwhile
	Tasks   []uuid.UUID
	DryRun  bool
}

// ActOnMany does an action to all tasks of a selection, oldest first, in
// transactions of a hundred. An error ends it in the middle; the result tells
// how far it came, and asking again goes on from there, since what was changed
// is not selected, or refuses, a second time.
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
	for len(tasks) > 0 {
		batch := tasks[:min(len(tasks), bulkBatch)]
		tasks = tasks[len(batch):]
		done, err := o.act(ctx, batch, b.Action)
		result.Changed += len(done.changed)
		if err != nil {
			return result, errors.Join(fmt.Errorf("%s in bulk: %w", b.Action.Kind, err), o.recordBulk(ctx, &b, result))
		}
		result.Skipped += len(batch) - len(done.changed)
	}
	return result, o.recordBulk(ctx, &b, result)
}

func (o *Orchestrator) selected(ctx context.Context, b *Bulk) ([]uuid.UUID, error) {
	if err := b.Action.check(); err != nil {
		return nil, err
	}
	limit := b.Limit
	if limit == 0 {
		limit = MaxBulk
	}
	sel := b.Select
	switch {
	case limit < 1 || limit > MaxBulk:
		return nil, &InvalidError{Problems: []string{fmt.Sprintf("limit must be between 1 and %d", MaxBulk)}}
	case b.Action.Step != nil:
		return nil, &InvalidError{Problems: []string{"a bulk action names its step by step_name"}}
	case b.Action.Edit != nil:
		return nil, &InvalidError{Problems: []string{"the context of a task is changed for one task at a time"}}
	case sel.Namespace == "" && sel.Name == "" && sel.Version == "" && len(sel.States) == 0 && sel.Tag == "" &&
		sel.CreatedBefore == nil && sel.CreatedAfter == nil:
		return nil, &InvalidError{Problems: []string{"a bulk action needs a filter"}}
	}
	tasks, err := o.store.SelectTasks(ctx, sel, limit)
	if err != nil {
		return nil, fmt.Errorf("select tasks: %w", err)
	}
	return tasks, nil
}

func (o *Orchestrator) recordBulk(ctx context.Context, b *Bulk, r BulkResult) error {
	return o.store.RecordAction(ctx, store.OperatorAction{
		Actor: b.Action.Actor, Action: string(b.Action.Kind), Reason: b.Action.Reason, Target: b.Select,
		Matched: r.Matched, Changed: r.Changed, DryRun: r.DryRun,
	})
}

// Pause keeps steps of a namespace, or those that call something, from being claimed.
// What runs goes on; what is created waits.
func (o *Orchestrator) Pause(ctx context.Context, p store.Pause) error {
	if err := checkActor(p.Actor, p.Reason); err != nil {
		return err
	}
	return o.store.Pause(ctx, p)
}

// Resume ends a pause and tells the workers.
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

// DeprecateTemplate keeps a template version from being chosen where a request
// names none, or lets it be chosen again.
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

// answerable demands what is recorded of everything an operator does.
func answerable(c *submission.Checker, actor, reason string) {
	c.Text("actor", actor, MaxTextLength, true)
	c.Text("reason", reason, MaxReasonLength, true)
}
