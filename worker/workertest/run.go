package workertest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/events"
	"github.com/tasker-go/tasker/worker/internal/engine"
	"github.com/tasker-go/tasker/workflow"
)

// Result is how one execution of a handler ended: with a result, a failure, or a yield.
type Result struct {
	// JSON is the result as it would be stored; nil after a failure or a yield.
	JSON json.RawMessage
	// Metadata is what worker.StepContext.SetMetadata has set, of a success; nil: nothing.
	Metadata json.RawMessage
	// Err is the error that the engine judged; nil after a success. It wraps the error of
	// the handler, unless the engine failed the step by itself.
	Err     error
	Failure *Failure // what would be stored of Err; nil after a success, a yield or worker.HandBack
	// Yielded: the handler returned worker.Yield. Checkpoint, as the Checkpoint of another
	// Step, continues from there.
	Yielded bool
	// Checkpoint is the latest one saved, by a yield too; nil without one.
	Checkpoint  *Checkpoint
	Checkpoints []Checkpoint     // all, in order
	Isolated    []Isolated       // items of a batch that succeeded
	Events      []events.Event   // that would be published
	Next        *worker.NextTask // of worker.Continue, with the fields of the task filled in
	// Progress is the fraction of the last call of StepContext.Progress, with its message.
	Progress        float64
	ProgressMessage string

	kind workflow.StepKind
}

// Failure is a failure as the engine stores it.
type Failure struct {
	Message   string
	Type      string          // error_type
	Code      string          // error_code; "" without one
	Details   json.RawMessage // of worker.WithDetails; nil: none
	Retryable bool
	// Final: the step has no further attempt.
	Final bool
	// RetryAfter is the delay that the handler requested; negative: the backoff decides.
	RetryAfter time.Duration
}

// Isolated is an item that a batch could not process.
type Isolated struct {
	Item    json.RawMessage
	Failure Failure
}

// timeToClose bounds the wait for checkpoints under way.
const timeToClose = 5 * time.Second

// Run runs a handler once for a step: worker.Typed makes one of a typed function. It fails
// the test if the step is impossible or the handler needs what a test without a database
// does not have: worker.HandleTx, worker.InTx, StepContext.CreateTask. A handler that
// ignores the end of its time limit is left running, as in a worker.
//
// Publishers and other settings of the worker come from configure, which may register
// anything but the handler.
func Run(t TB, h worker.Handler, s Step, configure ...func(*worker.Worker) error) Result {
	t.Helper()
	r, err := run(h, &s, configure)
	if err != nil {
		t.Fatalf("workertest: run step %q: %v", cmp.Or(s.Name, "step"), err)
	}
	return r
}

// newWorker returns a worker that is never started.
func newWorker(configure ...func(*worker.Worker) error) (*worker.Worker, error) {
	w, err := worker.New(worker.Config{DatabaseURL: "postgres://workertest.invalid", WorkerID: "workertest", Namespaces: []string{"tests"}})
	if err != nil {
		return nil, err
	}
	for _, f := range configure {
		if err := f(w); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func run(h worker.Handler, s *Step, configure []func(*worker.Worker) error) (r Result, err error) {
	if err := s.check(); err != nil {
		return r, err
	}
	w, err := newWorker(append(configure, func(w *worker.Worker) error { return w.Register(callable, h) })...)
	if err != nil {
		return r, err
	}
	plan, err := workflow.Compile(s.template())
	if err != nil {
		return r, err
	}
	b := newBoard()
	claim, err := s.claim(plan, b)
	if err != nil {
		return r, err
	}
	rehearsal := w.Host().Rehearse(b)
	defer func() { err = errors.Join(err, closeWithin(rehearsal)) }()
	played, err := rehearsal.Run(&store.Plan{Plan: plan, ID: 1}, claim)
	if err != nil {
		return r, err
	}
	step := &plan.Steps[claim.PlanStep()]
	return resultOf(&played, b, step, claim.Attempt)
}

func closeWithin(r *engine.Rehearsal) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeToClose)
	defer cancel()
	return r.Close(ctx)
}

// errNoDatabase says what a handler needs that a test in memory does not have.
var errNoDatabase = errors.New("the handler needs a transaction (HandleTx, InTx, TypedTx or CreateTask), and workertest runs it without PostgreSQL: " +
	"test it with PlayOn")

func resultOf(p *engine.Played, b *board, step *workflow.PlanStep, attempt int) (Result, error) {
	r := Result{Err: p.Err, Next: p.Next, Events: p.Events, Progress: p.Fraction, ProgressMessage: p.Message, kind: step.Kind}
	if p.NoDatabase {
		return r, errNoDatabase
	}
	for _, point := range b.taken() {
		r.Checkpoints = append(r.Checkpoints, checkpointOf(&point))
	}
	switch p.Kind {
	case engine.Success:
		r.JSON, r.Metadata = p.Result, p.Metadata
	case engine.Failed:
		f := failureOf(p.Failure)
		f.Final = step.Outcome(attempt, workflow.AttemptsOf(step.StepTemplate, 0), false, f.Retryable) == workflow.OutcomeError
		r.Failure = &f
	case engine.Yielded:
		r.Yielded = true
		r.Checkpoints = append(r.Checkpoints, checkpointOf(p.Point))
	case engine.GivenUp:
		if b.handedBack() {
			break
		}
		fallthrough
	default:
		return r, fmt.Errorf("the execution was given up: %w", p.Err)
	}
	if n := len(r.Checkpoints); n > 0 {
		r.Checkpoint = &r.Checkpoints[n-1]
	}
	return r, r.isolated(p.Isolated)
}

func failureOf(f *engine.Failure) Failure {
	return Failure{Message: f.Message, Type: f.Type, Code: f.Code, Details: f.Context, Retryable: f.Retryable, RetryAfter: f.After}
}

func (r *Result) isolated(doc json.RawMessage) error {
	if doc == nil {
		return nil
	}
	var list []struct {
		Item  json.RawMessage
		Error engine.Failure
	}
	if err := json.Unmarshal(doc, &list); err != nil {
		return fmt.Errorf("read the isolated items: %w", err)
	}
	for i := range list {
		r.Isolated = append(r.Isolated, Isolated{list[i].Item, failureOf(&list[i].Error)})
	}
	return nil
}

// String is the JSON of the result, "yield", or the failure, for messages.
func (r Result) String() string {
	switch {
	case r.Yielded:
		return "yield"
	case r.Failure != nil:
		return r.Failure.Type + ": " + r.Failure.Message
	}
	return string(r.JSON)
}

// Decode decodes the result into a value. The error says how the execution ended, if it
// did not succeed.
func (r Result) Decode(into any) error {
	if r.JSON == nil {
		return fmt.Errorf("decode the result: there is none: %s", r)
	}
	return jsonscan.Unmarshal(r.JSON, into)
}

// Created returns the names of the steps that the result of a decision creates; for a step
// of KindBatchable the ids of the batches. The error says why the result asks for none.
func (r Result) Created() (names []string, err error) {
	var outcome struct {
		Decision *struct {
			Steps []string `json:"step_names"`
		} `json:"decision_point_outcome"`
		Batches *struct {
			Cursors []workflow.CursorConfig `json:"cursor_configs"`
		} `json:"batch_processing_outcome"`
	}
	if err := r.Decode(&outcome); err != nil {
		return nil, err
	}
	switch {
	case r.kind == workflow.KindDecision && outcome.Decision != nil:
		return outcome.Decision.Steps, nil
	case r.kind == workflow.KindBatchable && outcome.Batches != nil:
		for _, c := range outcome.Batches.Cursors {
			names = append(names, c.BatchID)
		}
		return names, nil
	}
	return nil, fmt.Errorf("read what the step creates: the result of a step of type %s has no outcome: %s", r.kind, r)
}
