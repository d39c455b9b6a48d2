package workertest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tasker-go/tasker/internal/enginestep"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/worker/internal/engine"
	"github.com/tasker-go/tasker/workflow"
)

// playing is a task that is played.
type playing struct {
	p        *player
	plan     *store.Plan
	task     store.NewTask
	state    workflow.TaskState
	reason   string
	progress *workflow.Progress
	steps    map[int]*stepping
	parent   *playing // of a task that is a step
	no       int      // that step
	depth    int
	created  time.Time
	moved    time.Time // latest
}

// stepping is a step of a task that is played.
type stepping struct {
	name     string
	batch    *store.Batch
	turn     int // changes whenever what was planned for the step is void
	attempt  int
	awaits   *enginestep.Beginning // of a step that waits; nil: it does not
	runs     int                   // executions of the handler in the latest attempt
	result   json.RawMessage
	failure  *Failure
	isolated []Isolated
	point    json.RawMessage // checkpoint
	sub      *playing
}

// begun creates a task.
func (p *player) begun(r *submission.Request, plan *store.Plan, parent *playing) (*playing, error) {
	r.Initiator, r.SourceSystem, r.Reason = "workertest", "workertest", "workertest"
	if err := r.Check(); err != nil {
		return nil, err
	}
	task, err := submission.Task(context.Background(), r, plan)
	if err != nil {
		return nil, err
	}
	t := &playing{p: p, plan: plan, task: task, state: workflow.TaskPending, progress: workflow.NewProgress(plan.Plan),
		steps: map[int]*stepping{}, parent: parent, created: p.now}
	for no := range plan.Steps {
		t.steps[no] = &stepping{name: plan.Steps[no].Name}
	}
	p.tasks = append(p.tasks, t)
	return t, t.advance(workflow.Created{StartIn: r.StartIn})
}

// advance applies an input and follows the effects.
func (t *playing) advance(in workflow.Input) error {
	progress, e, err := workflow.Advance(t.plan.Plan, t.state, t.progress, t.p.rules, in)
	if err != nil {
		return err
	}
	t.progress, t.state = progress, e.State
	for _, c := range e.Changes {
		t.reason = c.Reason
	}
	for i := range e.Batches {
		b := &e.Batches[i]
		t.steps[b.Step] = &stepping{name: b.Name, batch: &store.Batch{Template: b.Template, Name: b.Name, Cursor: b.Cursor, NoOp: b.NoOp, First: b.First}}
	}
	for _, r := range e.Retry {
		t.log(r.Step, r.Outcome)
		t.later(r.Step, r.DueIn)
	}
	for _, x := range e.End {
		t.log(x.Step, x.Outcome)
	}
	for _, put := range e.Put {
		t.later(put.Step, put.DueIn)
	}
	for _, no := range e.Remove {
		if err := t.remove(no); err != nil {
			return err
		}
	}
	t.moved = t.p.now
	if !e.Finished {
		return nil
	}
	return t.tell()
}

func (t *playing) log(no int, outcome workflow.AttemptOutcome) {
	s := t.steps[no]
	t.p.out.Attempts = append(t.p.out.Attempts, Attempt{Task: t.plan.Template.Name, Step: s.name, No: s.attempt, Executions: s.runs,
		Ended: t.p.now.Sub(t.p.begin), Outcome: outcome})
}

// later plans the next attempt of a step.
func (t *playing) later(no int, in time.Duration) {
	s := t.steps[no]
	s.turn++
	t.while(no, s, in, func() error {
		s.attempt++
		if t.plan.Step(t.progress, no).Kind.ByEngine() {
			return t.wait(no, s)
		}
		return t.run(no, s)
	})
}

// remove takes a step off, with the task that it is.
func (t *playing) remove(no int) error {
	s := t.steps[no]
	s.turn++
	s.awaits = nil
	return t.cancel(s, "the task that it is a step of was cancelled")
}

func (t *playing) cancel(s *stepping, reason string) error {
	if s.sub == nil || s.sub.state.Terminal() {
		return nil
	}
	s.sub.parent = nil
	return s.sub.advance(workflow.Operation{Action: workflow.ActionCancel, Step: -1, Reason: reason})
}

// inputs returns the results of the parents of a step by number.
func (t *playing) inputs(no int) map[int]json.RawMessage {
	results := map[int]json.RawMessage{}
	for _, parent := range t.plan.ParentsOf(t.progress, no) {
		if doc := t.steps[parent].result; doc != nil {
			results[parent] = doc
		}
	}
	return results
}

// run runs the handler of a step until it does not yield.
func (t *playing) run(no int, s *stepping) error {
	at := t.p.now
	claim := store.Claimed{TaskUUID: t.task.UUID, Step: no, Attempt: s.attempt, Token: int64(t.p.count), PlanID: t.plan.ID,
		Context: t.task.Context, CorrelationID: t.task.CorrelationID, ParentCorrelationID: t.task.ParentCorrelationID, Priority: t.task.Priority,
		RequestedAt: t.created, EnqueuedAt: at, ClaimedAt: at, ParentResults: t.inputs(no), Batch: s.batch}
	t.show()
	for s.runs = 1; s.runs <= maxYields; s.runs++ {
		claim.Checkpoint = s.point
		played, err := t.p.rehearsal.Run(t.plan, &claim)
		if err != nil {
			return err
		}
		if err := t.save(s, &played); err != nil {
			return err
		}
		if played.Kind != engine.Yielded {
			return t.report(no, s, &played)
		}
	}
	return fmt.Errorf("step %s has yielded %d times in one attempt", s.name, maxYields)
}

// show lets the board answer for this task.
func (t *playing) show() {
	b := t.p.board
	b.results, b.batches = map[int]json.RawMessage{}, map[int][]store.BatchResult{}
	for _, no := range slices.Sorted(maps.Keys(t.steps)) {
		s := t.steps[no]
		if s.batch == nil {
			b.results[no] = s.result
			continue
		}
		cursor := s.batch.Cursor
		cursor.Items = nil
		b.batches[s.batch.Template] = append(b.batches[s.batch.Template], store.BatchResult{Step: no, Name: s.name, Cursor: cursor,
			NoOp: s.batch.NoOp, Result: s.result, Isolated: len(s.isolated)})
	}
}

// save keeps the latest checkpoint of an execution.
func (t *playing) save(s *stepping, played *engine.Played) error {
	points := t.p.board.taken()
	if played.Point != nil {
		points = append(points, *played.Point)
	}
	if len(points) == 0 {
		return nil
	}
	p := &points[len(points)-1]
	doc, err := json.Marshal(engine.Checkpoint{Cursor: p.Cursor, Items: p.Items, Timestamp: t.p.now, Accumulated: p.Accumulated, Isolated: p.Isolated})
	s.point = doc
	return err
}

// report ends the attempt of a handler.
func (t *playing) report(no int, s *stepping, played *engine.Played) error {
	step := t.plan.Step(t.progress, no)
	r, err := resultOf(played, t.p.board, step, s.attempt)
	if err != nil {
		return fmt.Errorf("step %s: %w", s.name, err)
	}
	if r.Next != nil {
		t.p.out.Next = append(t.p.out.Next, *r.Next)
	}
	t.p.out.Events = append(t.p.out.Events, r.Events...)
	s.result, s.failure, s.isolated = r.JSON, r.Failure, r.Isolated
	return t.advance(workflow.Reported{Step: no, Attempt: s.attempt, Success: played.Report.Success, Retryable: played.Report.Retryable,
		RetryAfter: played.Report.RetryAfter, Result: r.JSON})
}

// ended ends the attempt of a step that the engine runs.
func (t *playing) ended(no int, end enginestep.End) error {
	s := t.steps[no]
	s.turn++
	s.awaits, s.result, s.failure = nil, end.Result, nil
	if end.Result == nil {
		var f engine.Failure
		if err := json.Unmarshal(end.Error, &f); err != nil {
			return fmt.Errorf("read the failure of step %s: %w", s.name, err)
		}
		failure := failureOf(&f)
		failure.RetryAfter = engine.NoDelay
		s.failure = &failure
	}
	return t.advance(workflow.Reported{Step: no, Attempt: s.attempt, Success: end.Result != nil, Retryable: end.Retryable,
		RetryAfter: engine.NoDelay, Result: end.Result})
}

// wait begins a step that the engine runs.
func (t *playing) wait(no int, s *stepping) error {
	step, tmpl := &t.plan.Steps[no], t.plan.Template
	scope := enginestep.Scope{Context: t.task.Context, Steps: map[string]json.RawMessage{}, Task: map[string]any{"uuid": t.task.UUID.String(),
		"correlation_id": t.task.CorrelationID.String(), "namespace": tmpl.Namespace, "name": tmpl.Name, "version": tmpl.Version, "priority": t.task.Priority}}
	for parent, doc := range t.inputs(no) {
		scope.Steps[t.plan.Steps[parent].Name] = doc
	}
	b, err := enginestep.Begin(tmpl, step, &scope, t.task.Priority)
	if err != nil {
		return t.ended(no, enginestep.Failed(enginestep.ErrorTypeCannotRun, err.Error(), false))
	}
	s.awaits = &b
	if e, ok := t.p.take(b.Event, b.Key); ok && b.Kind == workflow.KindWaitForEvent {
		return t.ended(no, t.p.result(&e))
	}
	t.due(no, s, &b)
	switch b.Kind {
	case workflow.KindApproval:
		t.decide(no, s, step)
	case workflow.KindTask:
		return t.begin(no, s, &b.Task)
	}
	return nil
}

// due plans the end of a step whose time is over.
func (t *playing) due(no int, s *stepping, b *enginestep.Beginning) {
	in := b.For
	switch {
	case !b.Until.IsZero():
		in = b.Until.Sub(t.p.now)
	case b.For == 0:
		return
	}
	t.while(no, s, in, func() error {
		due := b.Due
		if b.Kind == workflow.KindSleep {
			var err error
			if due, err = enginestep.Succeeded(map[string]any{"until": t.p.now.UTC().Format("2006-01-02T15:04:05.999999-07:00")}); err != nil {
				return err
			}
		}
		return errors.Join(t.cancel(s, "its time is over"), t.ended(no, due))
	})
}

// while plans something for a step, unless it is void by then.
func (t *playing) while(no int, s *stepping, in time.Duration, do func() error) {
	turn := s.turn
	t.p.at(in, func() error {
		if s.turn != turn || t.steps[no] != s {
			return nil
		}
		return do()
	})
}

// decide plans the verdicts on an approval; the first one ends it.
func (t *playing) decide(no int, s *stepping, step *workflow.PlanStep) {
	for i := range t.p.task.Verdicts {
		v := &t.p.task.Verdicts[i]
		if v.Step != s.name {
			continue
		}
		t.while(no, s, v.After, func() error {
			d := enginestep.Decision{Approved: v.Approved, Actor: cmp.Or(v.Actor, "workertest"), Comment: v.Comment, DecidedAt: t.p.now}
			if v.Data != nil {
				doc, err := encode(v.Data)
				if err != nil {
					return fmt.Errorf("encode the data of a verdict: %w", err)
				}
				d.Data = doc
			}
			end, err := enginestep.Decide(step, d)
			if err != nil {
				return err
			}
			return t.ended(no, end)
		})
	}
}

// begin creates the task that a step is.
func (t *playing) begin(no int, s *stepping, sub *enginestep.SubTask) error {
	cannot := func(err error) error {
		return t.ended(no, enginestep.Failed(enginestep.ErrorTypeCannotRun, err.Error(), false))
	}
	plan := t.p.plan(sub.Namespace, sub.Name, sub.Version)
	if plan == nil {
		return fmt.Errorf("step %s runs a task of %s/%s:%s, which is not registered", s.name, sub.Namespace, sub.Name, sub.Version)
	}
	if t.depth >= t.p.depth {
		return cannot(fmt.Errorf("tasks are nested %d deep: want at most %d", t.depth, t.p.depth))
	}
	id := t.task.CorrelationID
	child, err := t.p.begun(&submission.Request{Namespace: sub.Namespace, Name: sub.Name, Version: sub.Version, Context: sub.Context,
		Priority: &sub.Priority, CorrelationID: &id, IdempotencyKey: fmt.Sprintf("%s/%d", s.name, s.attempt)}, plan, t)
	var invalid *submission.InvalidError
	switch {
	case errors.As(err, &invalid):
		return cannot(err)
	case err != nil:
		return err
	}
	child.no, child.depth, s.sub = no, t.depth+1, child
	return nil
}

// tell ends the step that the task is.
func (t *playing) tell() error {
	if t.parent == nil {
		return nil
	}
	if t.state != workflow.TaskComplete {
		message := "the task " + t.task.UUID.String() + " ended as " + t.state.String()
		if t.reason != "" {
			message += ": " + t.reason
		}
		return t.parent.ended(t.no, enginestep.Failed(enginestep.ErrorTypeSubTask, message, true))
	}
	results := map[string]json.RawMessage{}
	for no := range t.plan.Steps {
		step := &t.plan.Steps[no]
		if doc := t.steps[no].result; doc != nil && len(step.Children) == 0 && step.Kind != workflow.KindCompensation && step.Kind != workflow.KindBatchWorker {
			results[step.Name] = doc
		}
	}
	end, err := enginestep.Succeeded(map[string]any{"task_uuid": t.task.UUID, "status": t.state.String(), "results": results})
	if err != nil {
		return err
	}
	return t.parent.ended(t.no, end)
}

// outcome describes where the task stands.
func (p *player) outcome(t *playing, o *Outcome) {
	o.State, o.Reason = t.state, t.reason
	o.Took = t.moved.Sub(t.created)
	for no := range t.progress.Steps {
		g := &t.progress.Steps[no]
		s, step := t.steps[no], t.plan.Step(t.progress, no)
		if g.Status == workflow.StatusNotCreated || s == nil || step == nil {
			continue
		}
		out := StepOutcome{Name: s.name, State: store.EndedState(g.Status), Attempts: int(g.Attempts), Result: s.result, Failure: s.failure, Isolated: s.isolated}
		if f := s.failure; f != nil {
			f.Final = out.State == workflow.StepError
		}
		if g.Status == workflow.StatusOnBoard {
			out.State = workflow.StepInProgress
			o.Waiting = append(o.Waiting, s.name)
		}
		if s.sub != nil {
			out.Task = &Outcome{}
			p.outcome(s.sub, out.Task)
		}
		o.Steps = append(o.Steps, out)
	}
}
