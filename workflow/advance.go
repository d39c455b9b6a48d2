package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tasker-go/tasker/internal/enum"
)

// AttemptOutcome is how one execution of a step ended. The numbers are stored.
type AttemptOutcome int16

// The outcomes of an attempt.
const (
	OutcomeSuccess   AttemptOutcome = iota + 1 // the handler returned a result
	OutcomeFailed                              // the handler failed; it runs again
	OutcomeError                               // the handler failed for good
	OutcomeLeaseLost                           // the worker vanished; the step runs again
	OutcomeCancelled                           // the task was cancelled while it ran
)

var outcomeNames = enum.Names[AttemptOutcome]{
	OutcomeSuccess: "success", OutcomeFailed: "failed", OutcomeError: "error",
	OutcomeLeaseLost: "lease_lost", OutcomeCancelled: "cancelled",
}

// String is the snake_case name used in JSON and metrics.
func (o AttemptOutcome) String() string { return outcomeNames.Name(o) }

// Reasons that Advance gives for a step that failed for good.
const (
	ReasonPermanent  = "permanent"            // the handler said so, or the step is not retryable
	ReasonExhausted  = "max_retries_exceeded" // no attempts left
	ReasonWorkerLost = "worker_lost"          // the last attempt ended with a lost lease
	ReasonPoison     = "poison"               // too many attempts ended with a lost lease
)

// Rules are the configured limits that Advance applies.
type Rules struct {
	Backoff BackoffDefaults
	// MaxCrashes is how many attempts of one step may end with a lost lease
	// before it is given up as poison; at least 1.
	MaxCrashes int
	Creation
	// BatchesAt is for replaying the records: it returns the number that the first of
	// count batches of a batch_worker got at the time. nil: the numbers are chosen.
	BatchesAt func(worker, count int) (first int, err error)
}

// Creation is the part of Rules for steps that create others, and for batches. A success
// depends on no other rules.
type Creation struct {
	// MaxDecisionSteps bounds the steps that one decision names,
	// MaxDecisionDepth the decisions on one way through the template, MaxBatches
	// the batches of one step; 0: no bound but those of the plan.
	MaxDecisionSteps int `json:"max_decision_steps"`
	MaxDecisionDepth int `json:"max_decision_depth"`
	MaxBatches       int `json:"max_batches"`
	// RefuseDecisions and RefuseBatches fail a step whose result asks for steps.
	RefuseDecisions bool `json:"refuse_decisions"`
	RefuseBatches   bool `json:"refuse_batches"`
	// MaxParallelBatches bounds how many batches of one step are on the board at
	// once, together with the template's parallelism; 0: only that.
	MaxParallelBatches int `json:"max_parallel_batches"`
}

// Input is an event of a task: Created, Reported, LeaseLost or an Operation. Advance only
// reads it and keeps none.
type Input interface{ input() }

// Created starts the task. StartIn delays the first steps.
type Created struct{ StartIn time.Duration }

// Reported is a result whose token store has already checked.
type Reported struct {
	Step    int
	Attempt int // the number of this execution, 1 for the first
	Success bool
	// Retryable is the handler's classification of its failure.
	Retryable bool
	// RetryAfter is the delay the handler asked for; negative for none.
	RetryAfter time.Duration
	// Seed makes the jitter of a computed delay.
	Seed uint64
	// Result is needed of a step that creates others (StepKind.Unfolds).
	Result json.RawMessage
}

// LeaseLost says that the worker of a running step vanished, and that it counts as an attempt: the step
// is blamed for it, or may not be executed twice. Final: it has been lost too often without being blamed.
type LeaseLost struct {
	Step, Attempt int
	Final         bool
}

func (Created) input()   {}
func (Reported) input()  {}
func (LeaseLost) input() {}
func (Operation) input() {}

// PutStep puts a step on the board for the first time.
type PutStep struct {
	Step  int
	DueIn time.Duration // 0: claimable at once
}

// RetryStep leaves a reported step on the board for another attempt.
type RetryStep struct {
	Step    int
	DueIn   time.Duration // 0: claimable at once
	Outcome AttemptOutcome
}

// EndStep takes a reported step off the board.
type EndStep struct {
	Step    int
	Outcome AttemptOutcome
	Reason  string // why a step failed for good; else empty
}

// TaskChange is a change of the task's state that gets a row of history.
type TaskChange struct {
	From, To TaskState
	Reason   string
}

// Effects are the changes that store must write, in one transaction.
type Effects struct {
	Put    []PutStep
	Retry  []RetryStep
	End    []EndStep
	Remove []int // steps taken off the board wherever they stand (cancel)
	// Changes holds the observable states that the task passed, in order.
	Changes  []TaskChange
	State    TaskState // the state of the task from now on
	Finished bool      // State is terminal
	// DeadLetter is the dead-letter entry to create; nil: none.
	DeadLetter *DeadLetter
	// Batches are the steps created at run time, to be stored. They come on the board
	// with Put, now or later.
	Batches []NewBatch
	// Decided lists the outcomes that were followed.
	Decided []Decided
}

// DeadLetter is the reason of a dead-letter entry.
type DeadLetter struct {
	Reason DeadLetterReason
	Detail string // the reason of the failed step, or of the action
	Step   int    // the step that failed; negative: none
}

// Advance decides what happens next. It returns the new progress and the
// effects, and does not change its arguments. It is deterministic and does
// no I/O. An error means that the caller broke the contract (an unknown step,
// an input for a step that is not on the board, an ended task), never that a
// workflow failed.
func Advance(plan *Plan, state TaskState, progress *Progress, rules Rules, inputs ...Input) (*Progress, *Effects, error) {
	if len(inputs) == 0 {
		return progress, &Effects{State: state, Finished: state.Terminal()}, nil
	}
	if err := TooLate(state, inputs[0]); err != nil {
		return nil, nil, fmt.Errorf("advance: %w", err)
	}
	if !progress.fits(plan) {
		return nil, nil, fmt.Errorf("advance: progress knows %d steps, the plan has %d", len(progress.Steps), len(plan.Steps))
	}
	d := newDecision(state, progress)
	a := advancing{plan: plan, rules: rules, progress: &d.progress, effects: &d.effects, letter: &d.letter}
	for _, in := range inputs {
		if err := a.apply(in); err != nil {
			return nil, nil, fmt.Errorf("advance: %w", err)
		}
	}
	a.deriveState()
	return a.progress, a.effects, nil
}

// decision is the result of Advance in one piece of memory: the usual task is small and the
// usual input has one consequence of each kind, so that a single allocation is enough.
// Larger results grow out of it.
type decision struct {
	progress Progress
	effects  Effects
	steps    [8]StepProgress
	put      [2]PutStep
	end      [1]EndStep
	changes  [1]TaskChange
	letter   DeadLetter
}

func newDecision(state TaskState, progress *Progress) *decision {
	d := new(decision)
	// Each part has an array of its own, so that appending to one cannot overwrite
	// another.
	d.progress.Steps = append(d.steps[:0], progress.Steps...)
	d.progress.Ending, d.progress.Retry = progress.Ending, progress.Retry
	if progress.Groups != nil {
		d.progress.Groups = slices.Clone(progress.Groups)
	}
	d.effects = Effects{Put: d.put[:0], End: d.end[:0], Changes: d.changes[:0], State: state}
	return d
}

type advancing struct {
	plan     *Plan
	rules    Rules
	progress *Progress
	effects  *Effects
	// moved says that something other than the creation has happened, so the
	// task is no longer pending.
	moved  bool
	ended  TaskState // the state in which an operator ended the task; 0: none
	reason string
	void   bool // all other events are void
	// forgotten are the groups that this decision has forgotten. It does not reuse their
	// numbers itself: in its effects a number means one step.
	forgotten []Group
	failed    DeadLetter  // the latest step that failed for good
	letter    *DeadLetter // room for the entry of the effects
}

func (a *advancing) apply(in Input) error {
	if a.ended != 0 || a.void {
		return nil // inputs that arrive together with a cancel are void
	}
	switch in := in.(type) {
	case Reported:
		return a.report(&in)
	case LeaseLost:
		return a.leaseLost(in)
	case Operation:
		return a.operate(&in)
	case Created:
		a.create(in)
		return nil
	}
	// Without its type: naming it would make every input escape to the heap.
	return errors.New("unknown input")
}

func (a *advancing) create(in Created) {
	for no := range a.plan.Steps {
		if a.progress.Steps[no].Status == StatusWaiting && a.progress.Steps[no].Remaining == 0 {
			a.put(no, in.StartIn)
		}
	}
}

// Start is how a task begins: its first progress, and the steps to put on the board.
type Start struct {
	Progress *Progress
	Put      []PutStep
}

// NewStart returns how a task of the plan begins, as Advance does with Created. retry are
// retries of its own, or nil; startIn delays its first steps.
func NewStart(p *Plan, retry *RetryOverride, startIn time.Duration) *Start {
	s := new(struct { // in one piece of memory, see decision
		Start
		progress Progress
		steps    [8]StepProgress
		put      [2]PutStep
	})
	s.progress = Progress{Steps: firstSteps(p, s.steps[:0]), Retry: retry}
	effects := Effects{Put: s.put[:0]}
	a := advancing{plan: p, progress: &s.progress, effects: &effects}
	a.create(Created{StartIn: startIn})
	s.Start = Start{&s.progress, effects.Put}
	return &s.Start
}

func (a *advancing) put(no int, dueIn time.Duration) {
	a.progress.Steps[no].Status = StatusOnBoard
	if dueIn > 0 {
		a.progress.Steps[no].Status = StatusScheduled
	}
	a.effects.Put = append(a.effects.Put, PutStep{Step: no, DueIn: dueIn})
}

// onBoard returns the step if it can have a result.
func (a *advancing) onBoard(no int) (*StepProgress, *PlanStep, error) {
	if no < 0 || no >= len(a.progress.Steps) {
		return nil, nil, fmt.Errorf("step %d does not exist", no)
	}
	s := &a.progress.Steps[no]
	step := a.plan.Step(a.progress, no)
	if step == nil || !s.Status.onBoard() {
		return nil, nil, fmt.Errorf("step %d (%s) is not on the board", no, a.name(no))
	}
	return s, step, nil
}

// name is the name of a step for messages. The name of a batch ends with its number in the
// group, as its own name is not known here.
func (a *advancing) name(no int) string {
	step := a.plan.Step(a.progress, no)
	switch {
	case step == nil:
		return "unknown"
	case no < len(a.plan.Steps):
		return step.Name
	}
	g, _ := a.progress.Group(no)
	return fmt.Sprintf("%s, batch %d of %d", step.Name, no-g.First+1, g.Count)
}

func (a *advancing) report(in *Reported) error {
	a.moved = true
	s, step, err := a.onBoard(in.Step)
	if err != nil {
		return err
	}
	s.Attempts = saturate(in.Attempt)
	switch {
	case in.Success && step.Kind.Unfolds():
		a.reportUnfolding(in, s, step)
	case in.Success:
		s.Status = StatusComplete
		a.effects.End = append(a.effects.End, EndStep{Step: in.Step, Outcome: OutcomeSuccess})
		a.satisfied(step)
	default:
		if outcome, reason := step.failed(in.Attempt, a.progress.attemptsOf(step.StepTemplate), in.Retryable); outcome == OutcomeError {
			a.fail(s, in.Step, reason)
			break
		}
		delay := a.retryDelay(step.StepTemplate, in, in.Attempt-int(s.Crashes))
		a.again(s, RetryStep{Step: in.Step, DueIn: delay, Outcome: OutcomeFailed})
	}
	return nil
}

// reportUnfolding handles the success of a step whose result creates others. A result that
// asks for impossible steps is a failure: a retry would return the same.
func (a *advancing) reportUnfolding(in *Reported, s *StepProgress, step *PlanStep) {
	u, batches, err := a.outcome(step, in.Result)
	if err != nil {
		a.fail(s, in.Step, reasonInvalidOutcome+": "+err.Error())
		return
	}
	s.Status = StatusComplete
	a.effects.End = append(a.effects.End, EndStep{Step: in.Step, Outcome: OutcomeSuccess})
	a.unfold(u, batches)
}

func (a *advancing) leaseLost(in LeaseLost) error {
	a.moved = true
	s, step, err := a.onBoard(in.Step)
	if err != nil {
		return err
	}
	s.Attempts = saturate(in.Attempt)
	if s.Crashes < ^uint8(0) {
		s.Crashes++
	}
	switch {
	case in.Final || !step.Retry.Retryable || in.Attempt >= a.progress.attemptsOf(step.StepTemplate):
		a.fail(s, in.Step, ReasonWorkerLost)
	case int(s.Crashes) >= a.rules.MaxCrashes:
		a.fail(s, in.Step, ReasonPoison)
	default:
		a.again(s, RetryStep{Step: in.Step, Outcome: OutcomeLeaseLost})
	}
	return nil
}

func (a *advancing) again(s *StepProgress, r RetryStep) {
	s.Status = StatusOnBoard
	if r.DueIn > 0 {
		s.Status = StatusScheduled
	}
	a.effects.Retry = append(a.effects.Retry, r)
}

func (a *advancing) fail(s *StepProgress, no int, reason string) {
	s.Status = StatusError
	a.effects.End = append(a.effects.End, EndStep{Step: no, Outcome: OutcomeError, Reason: reason})
	a.reason = "step " + a.name(no) + ": " + reason
	a.failed = DeadLetter{Reason: deadLetterOf(reason), Detail: reason, Step: no}
}

// satisfied counts down the parents of a step's children. A batch is not a parent by
// itself: its group is, once it is settled.
func (a *advancing) satisfied(step *PlanStep) {
	if step.Kind == KindBatchWorker {
		return
	}
	a.release(step)
}

func (a *advancing) release(step *PlanStep) {
	for _, child := range step.Children {
		c := &a.progress.Steps[child]
		if c.Remaining > 0 {
			c.Remaining--
		}
		if c.Remaining == 0 && c.Status == StatusWaiting {
			a.put(child, 0)
		}
		if len(a.progress.Groups) > 0 && a.plan.Steps[child].Kind == KindBatchWorker {
			a.releaseBatches(child)
		}
	}
}

func saturate(n int) uint16 {
	return uint16(min(max(n, 0), int(^uint16(0)))) // #nosec G115 -- clamped
}

// deriveState derives the state of the task and records observable changes.
func (a *advancing) deriveState() {
	const done statusSet = 1<<StatusNotCreated | 1<<StatusComplete | 1<<StatusResolved | 1<<StatusTolerated
	if len(a.progress.Groups) > 0 && a.moved && a.ended == 0 {
		a.advanceGroups()
	}
	in := a.progress.statuses()
	switch {
	case !a.moved:
	case a.ended != 0:
		a.change(a.ended, a.reason)
	case in&^done == 0 && a.progress.Ending == 0:
		a.change(TaskComplete, "")
	case in.has(StatusOnBoard):
		a.change(TaskStepsInProcess, "")
	case in.has(StatusScheduled):
		a.change(TaskWaitingForRetry, a.reason)
	case a.compensate(in):
	case a.progress.Ending != 0:
		a.finishUndone()
	case in.has(StatusError):
		a.blocked()
	default:
		a.change(TaskWaitingForDependencies, "")
	}
	a.effects.Finished = a.effects.State.Terminal()
}

// blocked records that nothing can move and a step has failed.
func (a *advancing) blocked() {
	if a.failed.Reason == 0 { // it failed earlier; another branch has ended now
		a.failed = a.earlierFailure()
		a.reason = "step " + a.name(a.failed.Step) + ": failed"
	}
	if a.effects.State != TaskBlockedByFailures {
		*a.letter = a.failed
		a.effects.DeadLetter = a.letter
	}
	a.change(TaskBlockedByFailures, a.reason)
	if a.plan.Template.OnFailure != OnFailureBlock {
		a.change(TaskError, a.reason)
	}
}

// DetailFailed is the detail of a dead letter for a step that failed earlier: the ledger has
// the cause.
const DetailFailed = "failed"

// earlierFailure is the first failed step.
func (a *advancing) earlierFailure() DeadLetter {
	for no := range a.progress.Steps {
		if a.progress.Steps[no].Status == StatusError {
			return DeadLetter{Reason: DeadLetterExhausted, Detail: DetailFailed, Step: no}
		}
	}
	return DeadLetter{Reason: DeadLetterExhausted, Detail: DetailFailed, Step: -1} // not reached: blocked found one
}

func deadLetterOf(reason string) DeadLetterReason {
	if reason == ReasonWorkerLost || reason == ReasonPoison {
		return DeadLetterWorkerUnavailable
	}
	return DeadLetterExhausted
}

func (a *advancing) change(to TaskState, reason string) {
	if a.effects.State == to {
		return
	}
	a.effects.Changes = append(a.effects.Changes, TaskChange{From: a.effects.State, To: to, Reason: reason})
	a.effects.State = to
}
