package store

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// writes collects the effects of many tasks, statement by statement.
type writes struct {
	gone        goneColumns
	moved       movedColumns
	put         stepColumns
	batches     batchColumns
	cleared     groupColumns // the groups of these batches
	former      groupColumns // groups that were forgotten
	retried     retryColumns
	events      eventColumns
	manual      manualColumns
	resumed     resumedColumns
	edited      editedColumns
	broken      brokenColumns
	letters     letterColumns
	publish     publishColumns
	claims      putClaims
	topics      signalSet
	watched     []string
	awaitedEnds uuids // ended tasks with dependents
	dues        []int64
	finished    int
}

// attemptColumns are ended attempts, with their rows.
type attemptColumns struct {
	tasks    uuids
	slots    []int16
	outcomes []*int16
	reasons  []*string
}

// goneColumns are rows that leave the board: ended steps, and the rows of finished tasks
// with their ends.
type goneColumns struct {
	attemptColumns
	states     []*int16 // of the task, if finished
	endReasons []*string
	progresses [][]byte
}

// movedColumns are the rows of tasks that continue. An outcome records the step that such
// a row carried; steps holds the next one.
type movedColumns struct {
	attemptColumns
	states     []int16
	progresses [][]byte
	steps      []*int16
	again      []bool // it is the same step once more
	heirs      []bool // its only parent is the step that it follows in the row
	lanes      []int16
	dues       []int64
	parents    []*string
	tags       []*string
	lasts      []bool
	callables  []int32
}

type retryColumns struct {
	attemptColumns
	dues  []int64
	lanes []int16
	lasts []bool
}

type eventColumns struct {
	tasks     uuids
	from      []int16
	to        []int16
	actors    []string
	reasons   []*string
	documents []*string // metadata
}

func (w *writes) add(c *Change) error {
	t, e := c.Task, c.Effects
	if c.Quarantine {
		return w.quarantine(c)
	}
	if t.Plan == nil {
		return fmt.Errorf("task %s has no plan", t.UUID)
	}
	for _, p := range e.Put {
		if step := t.Plan.Step(c.Progress, p.Step); !w.claims.wants(c, p, step) {
			w.due(p.DueIn, t, step)
		}
	}
	for _, r := range e.Retry {
		w.due(r.DueIn, t, t.Plan.Step(c.Progress, r.Step))
	}
	changes := e.Changes
	if c.Action != nil {
		if err := w.performed(c); err != nil {
			return err
		}
		changes = changes[min(1, len(changes)):] // the action is the first of them
	}
	for _, change := range changes {
		w.events.add(t.UUID, change, c.Actor)
	}
	w.letters.add(c)
	if w.publish.add(c); w.publish.keyed {
		w.message()
	}
	w.publish.signal(w.topics)
	w.regroup(c)
	if err := w.batches.add(t.UUID, e.Batches); err != nil {
		return err
	}
	switch {
	case e.Finished:
		w.finish(c)
	case t.Inline:
		return w.moveInline(c)
	default:
		w.moveSpread(c)
	}
	return nil
}

// finish removes everything of a task from the board.
func (w *writes) finish(c *Change) {
	t, e := c.Task, c.Effects
	outcome, reason := workflow.OutcomeCancelled, "" // of the task's own row; not recorded without an attempt
	if !t.Inline {
		w.endSpread(t, e)
	} else if len(e.End) > 0 {
		outcome, reason = e.End[0].Outcome, e.End[0].Reason
	}
	why := ""
	if n := len(e.Changes); n > 0 {
		why = e.Changes[n-1].Reason
	}
	w.gone.end(t.UUID, outcome, reason, e.State, why, c.Progress)
	w.finished++
	if t.Watched {
		w.watched = append(w.watched, t.UUID.String())
	}
	if t.Awaited {
		w.notifyDependents(t.UUID)
	}
}

// notifyDependents records that a task with dependents ended.
func (w *writes) notifyDependents(task uuid.UUID) {
	w.awaitedEnds = append(w.awaitedEnds, task)
	w.message()
}

// message requests a look at messages.
func (w *writes) message() {
	w.topics.add(signal.TopicDue)
	w.dues = append(w.dues, 1)
}

// moveInline continues a task whose only step has ended or runs again.
func (w *writes) moveInline(c *Change) error {
	t, e := c.Task, c.Effects
	m := &w.moved
	switch {
	case len(e.Retry) == 1 && len(e.Put)+len(e.End)+len(e.Remove) == 0:
		r := e.Retry[0]
		m.attempt(t.UUID, r.Outcome, "")
		m.step(c, workflow.PutStep{Step: r.Step, DueIn: r.DueIn})
		m.again[len(m.again)-1] = true
	case len(e.End) == 1 && len(e.Retry)+len(e.Remove) == 0:
		m.attempt(t.UUID, e.End[0].Outcome, e.End[0].Reason)
		if len(e.Put) == 1 && inlines(t.Plan, c.Progress, e.Put[0].Step) {
			m.step(c, e.Put[0])
			m.heirs[len(m.heirs)-1] = follows(c.parents(e.Put[0].Step), e.End[0])
			break
		}
		m.noStep()
		w.putRows(c)
	case len(e.Remove) == 1 && len(e.Put) == 1 && len(e.End)+len(e.Retry) == 0: // called off, to be undone
		m.attempt(t.UUID, workflow.OutcomeCancelled, "")
		m.step(c, e.Put[0])
	case len(e.Put) == 1 && len(e.Remove)+len(e.End)+len(e.Retry) == 0 && inlines(t.Plan, c.Progress, e.Put[0].Step): // it had no step
		m.add(t.UUID, 0, nil, "")
		m.step(c, e.Put[0])
	default:
		return fmt.Errorf("task %s has one step in hand; %d cannot end, %d be removed and %d be tried again at once",
			t.UUID, len(e.End), len(e.Remove), len(e.Retry))
	}
	m.task(e.State, c.Progress)
	return nil
}

// moveSpread continues a task whose steps have their own rows. If one new step remains,
// it moves into the task's row.
func (w *writes) moveSpread(c *Change) {
	t, e := c.Task, c.Effects
	w.endSpread(t, e)
	for _, r := range e.Retry {
		w.retried.add(t.UUID, r.Step+1, &r.Outcome, "")
		w.retried.dues, w.retried.lanes = append(w.retried.dues, millis(r.DueIn)), append(w.retried.lanes, Lane(t.Priority, true))
		w.retried.lasts = append(w.retried.lasts, t.Plan.LastAttempt(c.Progress, r.Step))
	}
	w.moved.add(t.UUID, 0, nil, "")
	if c.inOwnRow() {
		w.moved.step(c, e.Put[0])
	} else {
		w.moved.noStep()
		w.putRows(c)
	}
	w.moved.task(e.State, c.Progress)
}

func (w *writes) endSpread(t *TakenTask, e *workflow.Effects) {
	for _, x := range e.End {
		w.gone.step(t.UUID, x.Step, x.Outcome, x.Reason)
	}
	for _, no := range e.Remove {
		w.gone.step(t.UUID, no, workflow.OutcomeCancelled, "")
		if step := t.Plan.Step(t.Progress, no); step != nil && step.Kind == workflow.KindTask {
			w.message() // to that task
		}
	}
}

// inHand returns the number of steps on the board.
func inHand(p *workflow.Progress) (steps int) {
	for i := range p.Steps {
		if s := p.Steps[i].Status; s == workflow.StatusOnBoard || s == workflow.StatusScheduled {
			steps++
		}
	}
	return steps
}

func (w *writes) putRows(c *Change) {
	t := c.Task
	for _, p := range c.Effects.Put {
		w.put.add(t.UUID, t.Plan, c.Progress, p, Lane(t.Priority, true))
	}
}

func (w *writes) due(in time.Duration, t *TakenTask, step *workflow.PlanStep) {
	if in <= 0 && (step == nil || !step.Kind.ByEngine()) {
		w.topics.addLane(t.Plan.Template.Namespace, laneKey{t.Plan.callableOf(step), Lane(t.Priority, true)})
		return
	}
	w.dues = append(w.dues, max(int64(in), 1)) // the engine begins its own steps at once
	w.topics.add(signal.TopicDue)              // a new due time, for every timer
}

func (w *writes) nextDue() time.Duration {
	if len(w.dues) == 0 {
		return -1
	}
	return time.Duration(slices.Min(w.dues))
}

func (w *writes) signals() []signal.Signal {
	list := w.topics.signals()
	for _, id := range w.watched {
		list = append(list, signal.Signal{Topic: signal.TopicTasks, Payload: id})
	}
	return list
}

// add records an attempt; without an outcome there was none.
func (c *attemptColumns) add(task uuid.UUID, slot int, outcome *workflow.AttemptOutcome, reason string) {
	c.tasks, c.slots = append(c.tasks, task), append(c.slots, int16(slot)) // #nosec G115 -- at most MaxSteps
	var number *int16
	if outcome != nil {
		n := int16(*outcome)
		number = &n
	}
	c.outcomes, c.reasons = append(c.outcomes, number), append(c.reasons, text(reason))
}

func (c *goneColumns) step(task uuid.UUID, step int, outcome workflow.AttemptOutcome, reason string) {
	c.add(task, step+1, &outcome, reason)
	c.states, c.endReasons, c.progresses = append(c.states, nil), append(c.endReasons, nil), append(c.progresses, nil)
}

func (c *goneColumns) end(task uuid.UUID, outcome workflow.AttemptOutcome, reason string, state workflow.TaskState, why string, p *workflow.Progress) {
	c.add(task, 0, &outcome, reason)
	number := int16(state)
	c.states, c.endReasons = append(c.states, &number), append(c.endReasons, text(why))
	c.progresses = append(c.progresses, p.Encode())
}

func (c *movedColumns) attempt(task uuid.UUID, outcome workflow.AttemptOutcome, reason string) {
	c.add(task, 0, &outcome, reason)
}

func (c *movedColumns) task(state workflow.TaskState, progress *workflow.Progress) {
	c.states, c.progresses = append(c.states, int16(state)), append(c.progresses, progress.Encode())
}

// follows reports whether all inputs of a step come from another one's result.
func follows(parents []int, ended workflow.EndStep) bool {
	return ended.Outcome == workflow.OutcomeSuccess && len(parents) == 1 && parents[0] == ended.Step
}

// parents are the steps whose results a step receives.
func (c *Change) parents(no int) []int { return c.Task.Plan.ParentsOf(c.Progress, no) }

func (c *movedColumns) step(change *Change, put workflow.PutStep) {
	t := change.Task
	step := &t.Plan.Steps[put.Step]
	no, parents := int16(put.Step), arrayLiteral(change.parents(put.Step)) // #nosec G115 -- at most maxInlineSteps
	c.steps, c.again, c.heirs = append(c.steps, &no), append(c.again, false), append(c.heirs, false)
	c.lanes = append(c.lanes, Lane(t.Priority, true))
	c.dues, c.parents, c.tags = append(c.dues, millis(put.DueIn)), append(c.parents, &parents), append(c.tags, joined(step.Tags))
	c.lasts, c.callables = append(c.lasts, t.Plan.LastAttempt(change.Progress, put.Step)), append(c.callables, t.Plan.callableOf(step))
}

func (c *movedColumns) noStep() {
	c.steps, c.again, c.heirs, c.lanes = append(c.steps, nil), append(c.again, false), append(c.heirs, false), append(c.lanes, 0)
	c.dues, c.parents, c.tags, c.lasts = append(c.dues, 0), append(c.parents, nil), append(c.tags, nil), append(c.lasts, false)
	c.callables = append(c.callables, 0)
}

// add records a change, except the ordinary path of a task from start to end, which the
// attempts show.
func (c *eventColumns) add(task uuid.UUID, change workflow.TaskChange, actor string) {
	if change.To == workflow.TaskComplete || change.From == workflow.TaskPending && change.To == workflow.TaskStepsInProcess {
		return
	}
	c.row(task, int16(change.From), int16(change.To), actor, change.Reason, nil)
}

func (c *eventColumns) row(task uuid.UUID, from, to int16, actor, reason string, document *string) {
	c.tasks, c.from, c.to = append(c.tasks, task), append(c.from, from), append(c.to, to)
	c.actors, c.reasons = append(c.actors, actor), append(c.reasons, text(reason))
	c.documents = append(c.documents, document)
}
