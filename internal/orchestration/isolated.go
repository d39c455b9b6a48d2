package orchestration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// Bounds of a replay of isolated items, beside limits.MaxIsolatedReplay.
const (
	// maxItemsPerBatch and maxBytesPerBatch bound a batch of a replay, which travels
	// with its claim.
	maxItemsPerBatch = 1000
	maxBytesPerBatch = 256 << 10
	// maxReplayBytes bounds the items of one replay, which are a result too.
	maxReplayBytes = 4 << 20
)

// ReplayIsolated requests that isolated items of a task's batches be processed again.
type ReplayIsolated struct {
	// Worker is the name of the batch_worker step; empty where the task has
	// batches of one only.
	Worker    string
	Batch     string // the name of a batch; empty: all
	Retryable *bool  // as the handlers classified the failures; nil: both
	// Again includes items that an earlier replay has taken.
	Again         bool
	Limit         int // items, 1–limits.MaxIsolatedReplay; 0: that
	DryRun        bool
	Actor, Reason string // required
}

// ReplayedIsolated is the outcome of a ReplayIsolated.
type ReplayedIsolated struct {
	Task    uuid.UUID // the new task; nil where none was created
	Items   int       // taken, or in a dry run the number that would be
	Batches int
	DryRun  bool
	More    bool // there are more items than one replay takes
}

// ReplayIsolated creates a task of the same plan as an old one whose batches get
// exactly the isolated items. Steps that the old task completed before its batches
// count as done in the new one, with their results; the steps after the batches run.
// Items are marked with the new task in the same transaction, so that two replays
// never take the same items unless Again says so. The error is an *InvalidError where
// the replay is impossible.
func (o *Orchestrator) ReplayIsolated(ctx context.Context, task uuid.UUID, r ReplayIsolated) (ReplayedIsolated, error) {
	done := ReplayedIsolated{DryRun: r.DryRun}
	if err := checkActor(r.Actor, r.Reason); err != nil {
		return done, err
	}
	var err error
	if r.Limit, err = limited(r.Limit, limits.MaxIsolatedReplay); err != nil {
		return done, err
	}
	old, err := o.store.Task(ctx, task)
	if err != nil {
		return done, fmt.Errorf("replay isolated items: %w", err)
	}
	maker, err := o.redo(old, &r)
	if err != nil {
		return done, err
	}
	filter := store.IsolatedFilter{Worker: &maker.group.Template, Batch: r.Batch, Retryable: r.Retryable}
	if !r.Again {
		filter.Replayed = new(bool)
	}
	if r.DryRun {
		items, err := o.store.Isolated(ctx, task, filter, 0, 0, r.Limit+1)
		if err != nil {
			return done, fmt.Errorf("replay isolated items: %w", err)
		}
		cursors, used := inBatches(items[:min(len(items), r.Limit)], maker.size)
		done.Items, done.Batches, done.More = used, len(cursors), used < len(items)
		return done, nil
	}
	created, used, signals, err := o.store.ReplayIsolated(ctx, store.IsolatedReplay{Of: task, Filter: filter, Limit: r.Limit + 1,
		Processor: o.cfg.Daemon.UUID, Actor: r.Actor, Reason: r.Reason, Worker: maker.worker, Make: func(items []store.Isolated) (store.BegunTask, int, error) {
			begun, used, err := maker.task(items[:min(len(items), r.Limit)])
			done.Batches, done.More = maker.made, used < len(items)
			return begun, used, err
		}})
	if err != nil {
		return ReplayedIsolated{}, fmt.Errorf("replay isolated items: %w", err)
	}
	if done.Items = used; used == 0 {
		return done, nil
	}
	done.Task = created.UUID
	o.publish(signals)
	o.metrics.TasksCreated.WithLabelValues(o.metrics.Named("namespace", old.Plan.Template.Namespace)).Inc()
	o.scheduleLook()
	return done, nil
}

func invalid(format string, args ...any) error {
	return &InvalidError{Problems: []string{fmt.Sprintf(format, args...)}}
}

// redo prepares a task that repeats an old one up to its batches.
func (o *Orchestrator) redo(old *store.Task, r *ReplayIsolated) (*redoing, error) {
	group, err := groupNamed(old, r.Worker)
	if err != nil {
		return nil, err
	}
	m := &redoing{old: old, group: group, replay: r, rules: o.cfg.Rules, worker: old.Plan.Steps[group.Template].Name, size: maxItemsPerBatch}
	if b := old.Plan.Steps[group.Template].Batch; b != nil && b.BatchSize > 0 {
		m.size = min(m.size, b.BatchSize)
	}
	m.operations, err = untilBatches(old.Plan.Plan, old.Progress, group)
	return m, err
}

// untilBatches returns the operations that bring a new task of the plan to the point at which
// an old one made a group of batches: steps completed in the old one, except the step that made the
// batches and its dependents, are done in the new one too, and do not run again. Operations
// that complete a step need its result; the last one completes the step that makes the
// batches.
func untilBatches(p *workflow.Plan, old *workflow.Progress, g *workflow.Group) ([]workflow.Operation, error) {
	below := make([]bool, len(p.Steps))
	var list []workflow.Operation
	for no := range p.Steps { // parents have smaller numbers
		step, status := &p.Steps[no], old.Steps[no].Status
		below[no] = no == g.Batchable || slices.ContainsFunc(step.Parents, func(parent int) bool { return below[parent] })
		switch {
		case below[no], status == workflow.StatusNotCreated, step.Kind == workflow.KindCompensation:
			continue
		case step.Compensation != "":
			return nil, invalid("the items cannot be replayed: step %s has a compensation, and what it did belongs to the old task: a new one must not undo it", step.Name)
		case status == workflow.StatusComplete && step.Kind != workflow.KindBatchable:
			list = append(list, workflow.Operation{Action: workflow.ActionComplete, Step: no})
		case status == workflow.StatusComplete, status == workflow.StatusResolved: // other batches are not repeated
			list = append(list, workflow.Operation{Action: workflow.ActionResolve, Step: no})
		default:
			return nil, invalid("the items cannot be replayed: step %s is %s; what does not follow the batches must be complete", step.Name, status)
		}
	}
	return append(list, workflow.Operation{Action: workflow.ActionComplete, Step: g.Batchable}), nil
}

// groupNamed finds the batches of a worker step; empty: the only ones.
func groupNamed(t *store.Task, worker string) (*workflow.Group, error) {
	var found *workflow.Group
	for i := range t.Progress.Groups {
		g := &t.Progress.Groups[i]
		switch {
		case worker != "" && t.StepName(g.Template) != worker:
		case found != nil:
			return nil, invalid("the task has batches of several workers: name one (worker_step)")
		default:
			found = g
		}
	}
	switch {
	case found != nil:
		return found, nil
	case worker != "":
		return nil, invalid("the task has no batches of a step %q", worker)
	}
	return nil, invalid("the task has no batches")
}

// redoing makes the task of a replay.
type redoing struct {
	old        *store.Task
	group      *workflow.Group
	replay     *ReplayIsolated
	rules      workflow.Rules
	worker     string
	size       int // items per batch, at most
	operations []workflow.Operation
	made       int // batches made
}

func (m *redoing) task(items []store.Isolated) (store.BegunTask, int, error) {
	cursors, used := inBatches(items, m.size)
	m.made = len(cursors)
	results := map[int]json.RawMessage{}
	for i := range m.old.Steps {
		results[m.old.Steps[i].No] = m.old.Steps[i].Result
	}
	outcome, err := withCursors(results[m.group.Batchable], m.worker, cursors, used)
	if err != nil {
		return store.BegunTask{}, 0, err
	}
	results[m.group.Batchable] = outcome
	id, err := uuid.NewV7()
	if err != nil {
		return store.BegunTask{}, 0, fmt.Errorf("make a task id: %w", err)
	}
	request, err := replayed(m.old, Replay{Actor: m.replay.Actor, Reason: m.replay.Reason}, "")
	if err != nil {
		return store.BegunTask{}, 0, err
	}
	t := store.BegunTask{NewTask: store.NewTask{
		UUID: id, Plan: m.old.Plan, Context: request.Context, CorrelationID: id, ParentCorrelationID: request.ParentCorrelationID,
		Initiator: request.Initiator, SourceSystem: request.SourceSystem, Reason: request.Reason, Tags: request.Tags, Priority: m.old.Priority,
	}}
	inputs := []workflow.Input{workflow.Created{}}
	for _, op := range m.operations {
		done := store.Performed{Kind: op.Action, Step: op.Step, Reason: m.replay.Reason}
		if op.Action == workflow.ActionComplete {
			if op.Result = results[op.Step]; op.Result == nil {
				op.Result = json.RawMessage("null")
			}
			done.Result = op.Result
		}
		inputs, t.Done = append(inputs, op), append(t.Done, done)
	}
	fresh := workflow.NewProgress(m.old.Plan.Plan)
	fresh.Retry = m.old.Progress.Retry
	t.Progress, t.Effects, err = workflow.Advance(m.old.Plan.Plan, workflow.TaskPending, fresh, m.rules, inputs...)
	var wrong *workflow.InvalidOutcomeError
	var refused *workflow.NotAllowedError
	if errors.As(err, &wrong) || errors.As(err, &refused) {
		return t, 0, invalid("the items cannot be replayed: %s", err)
	}
	return t, used, err
}

// inBatches distributes items over batches, up to the bounds of one replay.
func inBatches(items []store.Isolated, size int) (cursors []workflow.CursorConfig, used int) {
	all, bytes := 0, 0
	for i := range items {
		n := len(items[i].Item)
		if all += n; all > maxReplayBytes && i > 0 {
			break
		}
		last := len(cursors) - 1
		if last < 0 || len(cursors[last].Items) == size || bytes+n > maxBytesPerBatch {
			null := json.RawMessage("null")
			cursors, bytes = append(cursors, workflow.CursorConfig{BatchID: fmt.Sprintf("%03d", len(cursors)+1), Start: null, End: null}), 0
			last++
		}
		c := &cursors[last]
		c.Items, c.BatchSize = append(c.Items, items[i].Item), c.BatchSize+1
		bytes += n
		used++
	}
	return cursors, used
}

// withCursors replaces the batches in the result of the step that made them.
func withCursors(result json.RawMessage, worker string, cursors []workflow.CursorConfig, items int) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(result, &fields); err != nil || fields == nil { // no object; its batches existed all the same
		fields = map[string]json.RawMessage{}
	}
	outcome, err := json.Marshal(map[string]any{"type": "create_batches", "worker_template_name": worker,
		"worker_count": len(cursors), "cursor_configs": cursors, "total_items": items})
	if err != nil {
		return nil, fmt.Errorf("encode the batches of the replay: %w", err)
	}
	fields[workflow.BatchOutcomeKey] = outcome
	return json.Marshal(fields)
}

// IsolatedQuery selects isolated items of a task's batches; zero values select all.
type IsolatedQuery struct {
	Worker              string // the name of the batch_worker step
	Batch               string // the name of a batch
	Retryable, Replayed *bool
	// AfterStep and AfterNo identify the last item of the previous page.
	AfterStep, AfterNo int
	Limit              int
}

// Isolated lists isolated items and their task, which has no results. The error wraps
// store.ErrNotFound, or is an *InvalidError.
func (o *Orchestrator) Isolated(ctx context.Context, task uuid.UUID, q IsolatedQuery) (*store.Task, []store.Isolated, error) {
	t, err := o.store.Task(ctx, task)
	if err != nil {
		return nil, nil, fmt.Errorf("list isolated items: %w", err)
	}
	f := store.IsolatedFilter{Batch: q.Batch, Retryable: q.Retryable, Replayed: q.Replayed}
	if q.Worker != "" {
		no, ok := t.Plan.StepNumber(q.Worker)
		if !ok {
			return nil, nil, invalid("the task has no step %q", q.Worker)
		}
		f.Worker = &no
	}
	items, err := o.store.Isolated(ctx, task, f, q.AfterStep, q.AfterNo, q.Limit)
	return t, items, err
}
