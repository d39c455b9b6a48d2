package orchestration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/aside"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/workflow"
)

// Act applies an operator's action to one task and records actor and reason.
// The error is an *InvalidError for a malformed action and a *TransitionError
// for one that does not fit the state; it wraps store.ErrNotFound or
// store.ErrTaskEnded, or store.ErrUnavailable when the database is away.
func (o *Orchestrator) Act(ctx context.Context, task uuid.UUID, a Action) error {
	a.bounded(o.cfg.Documents)
	if err := a.check(); err != nil {
		return err
	}
	target := map[string]any{"task_uuid": task, "step_uuid": a.Step}
	if a.Edit != nil {
		target["context_edited"] = true
	}
	a.recordedAs(target, 1)
	return o.actOnOne(ctx, task, a)
}

// recordedAs has the action recorded, beside the histories of the tasks, for the operators
// and for retention, which must count from the reopening of a task.
func (a *Action) recordedAs(target any, matched int) {
	a.record = &store.ActionRecord{OperatorAction: store.OperatorAction{Actor: a.Actor, Action: string(a.Kind), Reason: a.Reason, Target: target, Matched: matched}}
}

func (o *Orchestrator) actOnOne(ctx context.Context, task uuid.UUID, a Action) error {
	done, err := o.act(ctx, []uuid.UUID{task}, a)
	if err != nil {
		return fmt.Errorf("%s: %w", a.Kind, err)
	}
	if refusal := done.refused[task]; refusal != nil {
		return refusal
	}
	if len(done.changed) == 0 {
		return fmt.Errorf("%s: %w", a.Kind, o.store.WhyNotAlive(ctx, task))
	}
	return nil
}

// acted is the outcome of an action on several tasks. Tasks in no list are not alive, or
// left out by Action.still.
type acted struct {
	changed  []uuid.UUID
	refused  map[uuid.UUID]error
	rejected map[uuid.UUID]error // by the database, see actApart; nil: the action was not tried apart
}

// act applies a, in one transaction, to the tasks that are alive or can be reopened
// and whose state allows it.
func (o *Orchestrator) act(ctx context.Context, tasks []uuid.UUID, a Action) (done acted, err error) {
	err = o.processor.Do(ctx, commandAct, func(ctx context.Context) (err error) {
		switch a.Kind {
		case ActionReleaseLease, ActionReprioritise:
			done, err = o.adjust(ctx, tasks, a)
		default:
			done, err = o.change(ctx, tasks, a)
		}
		return err
	})
	return done, err
}

// actApart is act, but a task that the database rejects does not affect the others. done has the
// rejected ones, and the error is that of the first.
func (o *Orchestrator) actApart(ctx context.Context, tasks []uuid.UUID, a Action) (done acted, err error) {
	done, err = o.act(ctx, tasks, a)
	if !refused(ctx, err) || done.rejected != nil {
		return done, err
	}
	o.log.Warn("the database rejected an action on tasks together; it is tried in halves", zap.Int("tasks", len(tasks)), zap.String("reason", a.Reason), zap.Error(err))
	done = acted{refused: map[uuid.UUID]error{}, rejected: map[uuid.UUID]error{}}
	var first error
	err = aside.Halves(tasks, err, func(err error) bool { return refused(ctx, err) }, func(part []uuid.UUID) error {
		some, err := o.act(ctx, part, a)
		if err == nil {
			done.changed = append(done.changed, some.changed...)
			maps.Copy(done.refused, some.refused)
		}
		return err
	}, func(task uuid.UUID, why error) {
		done.rejected[task], first = why, cmp.Or(first, why)
	})
	return done, cmp.Or(err, first)
}

// change is act for actions that the rules decide about.
func (o *Orchestrator) change(ctx context.Context, tasks []uuid.UUID, a Action) (acted, error) {
	done := acted{refused: map[uuid.UUID]error{}}
	for undone := 0; len(tasks) > 0; {
		refused := len(done.refused)
		changed, err := o.tryAct(ctx, tasks, a, &done)
		if store.Undone(err) && undone+1 < maxActTries {
			undone++
			continue
		}
		if err != nil {
			return done, err
		}
		if len(done.refused) == refused {
			done.changed = changed
			break
		}
		// Nothing is committed: a task whose action is rejected must not stay reopened.
		// Repeat without the rejected tasks.
		tasks = without(tasks, done.refused)
	}
	return done, nil
}

// maxActTries bounds how often an action is tried that PostgreSQL rolled back to
// resolve a deadlock.
const maxActTries = 3

// tryAct commits nothing when the rules reject the action for a task.
func (o *Orchestrator) tryAct(ctx context.Context, tasks []uuid.UUID, a Action, done *acted) (changed []uuid.UUID, err error) {
	taken, err := o.store.TakeTasks(ctx, tasks, a.taking())
	if err != nil {
		return nil, err
	}
	defer taken.Release()
	if a.still != nil {
		if err := a.still(ctx, taken); err != nil {
			return nil, err
		}
	}
	refusals := len(done.refused)
	changes := make([]store.Change, 0, len(taken.Tasks))
	for i := range taken.Tasks {
		c, err := o.actOne(ctx, &taken.Tasks[i], &a)
		if err != nil {
			done.refused[taken.Tasks[i].UUID] = err
			continue
		}
		changes, changed = append(changes, c), append(changed, taken.Tasks[i].UUID)
	}
	if len(changes) == 0 || len(done.refused) > refusals {
		return nil, nil
	}
	if err := taken.Record(ctx, a.record, len(changes)); err != nil {
		return nil, err
	}
	committed, err := taken.Commit(ctx, o.cfg.Daemon.UUID, changes)
	if err != nil {
		return nil, err
	}
	o.publish(committed.Signals)
	o.applied(changes, committed)
	o.revoked.tell(committed.Revoked) // else they would learn of it from their next heartbeats
	return changed, nil
}

func (o *Orchestrator) actOne(ctx context.Context, t *store.TakenTask, a *Action) (store.Change, error) {
	if err := errors.Join(t.Unreadable, t.Broken); err != nil {
		return store.Change{}, fmt.Errorf("read the records of the task: %w", err)
	}
	in, step, err := a.input(t)
	if err != nil {
		return store.Change{}, err
	}
	c, err := o.advanceThen(t, a.Actor, in)
	if err != nil {
		var notAllowed *TransitionError
		if errors.As(err, &notAllowed) {
			return store.Change{}, notAllowed
		}
		return store.Change{}, err
	}
	c.Action = &store.Performed{Kind: string(a.Kind), Step: step, Reason: a.Reason, Result: a.Result, Metadata: a.Metadata}
	return c, o.edit(ctx, t, a.Edit, c.Action)
}

// edit puts the new context of the task into the action; an unchanged context is
// no edit.
func (o *Orchestrator) edit(ctx context.Context, t *store.TakenTask, change *ContextEdit, p *store.Performed) error {
	if change == nil {
		return nil
	}
	edited, err := change.Apply(ctx, t.Context, t.Plan, o.schema, o.checker)
	if err != nil {
		return err
	}
	changes, _, err := submission.ContextChanges(t.Context, edited, 1)
	if err == nil && len(changes) > 0 {
		p.ContextBefore, p.Context = t.Context, edited
	}
	return err
}

// advanceThen applies the reports, then an action. Where the reports end the task,
// the action is refused and the reports are left to the next apply.
func (o *Orchestrator) advanceThen(t *store.TakenTask, actor string, in workflow.Input) (store.Change, error) {
	reported := inputs(t)
	if len(reported) > 0 {
		c, err := o.advance(t, actor, reported...)
		if err != nil {
			return c, err
		}
		if err := workflow.TooLate(c.Effects.State, in); err != nil {
			return c, err
		}
	}
	return o.advance(t, actor, append(reported, in)...)
}

// adjust changes when something happens, not what happens, in a transaction for each task.
func (o *Orchestrator) adjust(ctx context.Context, tasks []uuid.UUID, a Action) (done acted, err error) {
	done.refused, done.rejected = map[uuid.UUID]error{}, map[uuid.UUID]error{}
	for _, task := range tasks {
		var failure error
		if a.Kind == ActionReprioritise {
			failure = o.reprioritise(ctx, task, a)
		} else {
			failure = o.releaseLease(ctx, task, a)
		}
		var notAllowed *TransitionError
		switch {
		case failure == nil:
			done.changed = append(done.changed, task)
		case errors.As(failure, &notAllowed), errors.Is(failure, store.ErrNotFound), errors.Is(failure, store.ErrTaskEnded):
			done.refused[task] = failure
		case refused(ctx, failure):
			done.rejected[task], err = failure, cmp.Or(err, failure)
		default:
			return done, failure
		}
	}
	return done, err
}

func (o *Orchestrator) reprioritise(ctx context.Context, task uuid.UUID, a Action) error {
	signals, err := o.store.Reprioritise(ctx, task, *a.Priority, a.record)
	if err != nil {
		return err
	}
	o.publish(signals)
	return nil
}

func (o *Orchestrator) releaseLease(ctx context.Context, task uuid.UUID, a Action) error {
	t, err := o.store.Task(ctx, task)
	if err != nil {
		return err
	}
	for i := range t.Steps {
		s := &t.Steps[i]
		if a.Step != nil && s.UUID != *a.Step || a.Step == nil && s.Name != a.StepName {
			continue
		}
		signals, err := o.store.ReleaseLease(ctx, task, s.No, a.record)
		if errors.Is(err, store.ErrNotFound) {
			return &TransitionError{Action: string(a.Kind), Step: s.Name, From: s.State.String()}
		}
		if err == nil {
			o.reported(signals)
		}
		return err
	}
	return fmt.Errorf("the step: %w", store.ErrNotFound)
}

func without(tasks []uuid.UUID, refused map[uuid.UUID]error) []uuid.UUID {
	kept := make([]uuid.UUID, 0, len(tasks))
	for _, id := range tasks {
		if refused[id] == nil {
			kept = append(kept, id)
		}
	}
	return kept
}

// Cancel ends a live task and cancels everything under way for it. The caller
// vouches for actor and reason. The error wraps store.ErrTaskEnded or
// store.ErrNotFound.
func (o *Orchestrator) Cancel(ctx context.Context, task uuid.UUID, actor, reason string) error {
	return o.actOnOne(ctx, task, Action{Kind: ActionCancel, Actor: actor, Reason: reason})
}

// CancelOverdue ends tasks that still wait past their deadline, each with a dead-letter entry.
func (o *Orchestrator) CancelOverdue(ctx context.Context, tasks []uuid.UUID) (changed int, err error) {
	done, err := o.actApart(ctx, tasks, Action{Kind: ActionCancel, Actor: o.cfg.Daemon.ID, Reason: "deadline",
		deadLetter: workflow.DeadLetterStaleness, still: o.store.StillPastDeadline})
	return len(done.changed), err
}

// EndStale ends stale tasks as failed, creates dead-letter entries for them, or both, and
// returns how many it changed. Each reason has a transaction of its own.
func (o *Orchestrator) EndStale(ctx context.Context, stale []store.StaleTask, toError, deadLetters bool) (changed int, err error) {
	byReason := map[string][]store.StaleTask{}
	for _, s := range stale {
		byReason[s.Reason] = append(byReason[s.Reason], s)
	}
	var reason workflow.DeadLetterReason
	end := o.failStale
	if deadLetters {
		reason = workflow.DeadLetterStaleness
	}
	if !toError {
		end = o.openLetters
	}
	for why, tasks := range byReason {
		n, failure := end(ctx, tasks, why, reason)
		changed, err = changed+n, errors.Join(err, failure)
		if failure != nil && !refused(ctx, failure) {
			return changed, err
		}
	}
	if deadLetters {
		err = errors.Join(err, o.store.DescribeStale(ctx, stale))
	}
	return changed, err
}

// failStale ends tasks as failed, with dead-letter entries where letter is a reason.
func (o *Orchestrator) failStale(ctx context.Context, stale []store.StaleTask, why string, letter workflow.DeadLetterReason) (int, error) {
	tasks := make([]uuid.UUID, len(stale))
	for i := range stale {
		tasks[i] = stale[i].UUID
	}
	done, err := o.actApart(ctx, tasks, Action{Kind: ActionFail, Actor: o.cfg.Daemon.ID, Reason: why, deadLetter: letter,
		still: func(ctx context.Context, taken *store.Taken) error { return o.store.StillStale(ctx, taken, stale) }})
	for task, refusal := range done.refused {
		o.log.Warn("stale task left unchanged", zap.Stringer("task_uuid", task), zap.Error(refusal))
	}
	return len(done.changed), err
}

// openLetters creates dead-letter entries and leaves the tasks as they are. One that the
// database rejects does not affect the others.
func (o *Orchestrator) openLetters(ctx context.Context, tasks []store.StaleTask, why string, letter workflow.DeadLetterReason) (changed int, err error) {
	if letter == 0 {
		return 0, nil
	}
	for i := range tasks {
		_, opened, failure := o.store.OpenDeadLetter(ctx, tasks[i].UUID, letter, why, o.cfg.Daemon.ID, nil)
		if failure != nil && !errors.Is(failure, store.ErrNotFound) {
			if err = cmp.Or(err, failure); !refused(ctx, failure) {
				return changed, err
			}
		}
		if opened {
			changed++
			o.metrics.DLQEntriesCreated.WithLabelValues(letter.String()).Inc()
		}
	}
	return changed, err
}
