package workertest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// TB is the part of testing.TB that the kit uses.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Step is the step that Run executes. Its zero value is the first attempt of a step "step"
// with the context {}.
//
// Values of type any are encoded as JSON; a json.RawMessage is JSON already.
type Step struct {
	Name                         string // default "step"
	Namespace, TaskName, Version string // default "tests", "task", "1.0.0"
	Kind                         workflow.StepKind
	Input                        any            // the task's context; default {}
	Results                      map[string]any // of the steps that it depends on, by name
	// BatchResults are those of the batches of worker steps that it depends on.
	BatchResults map[string][]any
	Config       map[string]any // handler.initialization
	Method       string         // handler.method
	Attempt      int            // default 1
	MaxAttempts  int            // default 3, or Attempt if that is more
	NotRetryable bool           // the template allows one attempt
	Timeout      time.Duration  // default: that of workers. Whole seconds
	Checkpoint   *Checkpoint    // saved by an earlier execution
	Batch        *Batch         // the step is a batch
	Publishes    []workflow.EventPublication
	Now          time.Time // when the task was created and claimed; default: now
	Priority     int
	TaskUUID     uuid.UUID // default: a random one, and the same as CorrelationID
}

// Checkpoint is saved progress: see worker.StepContext.Checkpoint.
type Checkpoint struct {
	Cursor      any
	Items       int64
	Accumulated any // nil: none
}

// Batch is the work of a batch: a range, or a list of items.
type Batch struct {
	ID              string // default "001"
	Start, End      any    // End is exclusive
	Size            int64
	NoOp            bool
	Items           []any
	CursorField     string
	FailureStrategy string // default workflow.FailFast; workflow.IsolateFailed for isolating items
}

const (
	callable = "workertest.handler"
	earlier  = "workertest.dependency"
)

// encode returns the JSON of a value.
func encode(value any) (json.RawMessage, error) {
	if raw, ok := value.(json.RawMessage); ok && !json.Valid(raw) {
		return nil, fmt.Errorf("invalid JSON %.64q", raw)
	}
	return json.Marshal(value)
}

// template returns the template around the step: it follows the steps whose results it has.
func (s *Step) template() *workflow.Template {
	t := &workflow.Template{Namespace: cmp.Or(s.Namespace, "tests"), Name: cmp.Or(s.TaskName, "task"), Version: cmp.Or(s.Version, "1.0.0")}
	for _, name := range slices.Sorted(maps.Keys(s.Results)) {
		t.Steps = append(t.Steps, workflow.StepTemplate{Name: name, Kind: workflow.KindStandard, Handler: workflow.HandlerReference{Callable: earlier}})
	}
	for _, name := range slices.Sorted(maps.Keys(s.BatchResults)) {
		t.Steps = append(t.Steps, workflow.StepTemplate{Name: name, Kind: workflow.KindBatchWorker, Handler: workflow.HandlerReference{Callable: earlier}})
	}
	own := workflow.StepTemplate{Name: cmp.Or(s.Name, "step"), Kind: cmp.Or(s.Kind, workflow.KindStandard),
		Handler:        workflow.HandlerReference{Callable: callable, Method: s.Method, Initialization: s.Config},
		Retry:          workflow.RetryPolicy{Retryable: !s.NotRetryable, MaxAttempts: cmp.Or(s.MaxAttempts, max(s.Attempt, 3))},
		TimeoutSeconds: int(s.Timeout / time.Second)}
	for i := range t.Steps {
		own.Dependencies = append(own.Dependencies, t.Steps[i].Name)
	}
	if b := s.Batch; b != nil {
		own.Kind = workflow.KindBatchWorker
		own.Batch = &workflow.BatchSettings{CursorField: b.CursorField, FailureStrategy: b.FailureStrategy}
	}
	own.PublishesEvents = slices.Clone(s.Publishes)
	for i := range own.PublishesEvents { // what the file's reader sets
		e := &own.PublishesEvents[i]
		e.Condition, e.DeliveryMode = cmp.Or(e.Condition, "success"), cmp.Or(e.DeliveryMode, "durable")
	}
	t.Steps = append(t.Steps, own)
	return t
}

// check refuses what no template and no worker could have.
func (s *Step) check() error {
	switch {
	case s.Attempt < 0:
		return fmt.Errorf("invalid Attempt %d: want at least 1", s.Attempt)
	case s.Timeout%time.Second != 0 || s.Timeout < 0:
		return fmt.Errorf("invalid Timeout %v: want whole seconds", s.Timeout)
	case s.Kind.ByEngine():
		return fmt.Errorf("invalid Kind %s: the engine runs it, without a handler", s.Kind)
	case s.Kind == workflow.KindBatchWorker && s.Batch == nil:
		return fmt.Errorf("invalid Kind %s: want Batch", s.Kind)
	}
	return nil
}

// claim returns the claim of step no, the last of the plan, and keeps on the board what it reads.
func (s *Step) claim(plan *workflow.Plan, b *board) (*store.Claimed, error) {
	no, _ := plan.StepNumber(cmp.Or(s.Name, "step"))
	now := s.Now
	if now.IsZero() {
		now = time.Now()
	}
	c := &store.Claimed{TaskUUID: cmp.Or(s.TaskUUID, uuid.New()), Step: no, Attempt: cmp.Or(s.Attempt, 1), Token: 1, Priority: s.Priority,
		RequestedAt: now, EnqueuedAt: now, ClaimedAt: now, ParentResults: map[int]json.RawMessage{}}
	c.CorrelationID, b.now = c.TaskUUID, func() time.Time { return now }
	var err error
	if c.Context, err = encode(s.Input); err != nil {
		return nil, fmt.Errorf("encode Input: %w", err)
	}
	if s.Input == nil {
		c.Context = json.RawMessage(`{}`)
	}
	for name, value := range s.Results {
		at, _ := plan.StepNumber(name)
		if c.ParentResults[at], err = encode(value); err != nil {
			return nil, fmt.Errorf("encode the result of step %q: %w", name, err)
		}
	}
	if err := s.batches(plan, b); err != nil {
		return nil, err
	}
	if s.Checkpoint != nil {
		if c.Checkpoint, err = s.Checkpoint.encode(now); err != nil {
			return nil, err
		}
	}
	if s.Batch != nil {
		c.Batch, err = s.Batch.encode(no, cmp.Or(s.Name, "step"))
	}
	return c, err
}

func (s *Step) batches(plan *workflow.Plan, b *board) error {
	for name, list := range s.BatchResults {
		at, _ := plan.StepNumber(name)
		for i, value := range list {
			doc, err := encode(value)
			if err != nil {
				return fmt.Errorf("encode result %d of the batches of step %q: %w", i, name, err)
			}
			id := fmt.Sprintf("%03d", i+1)
			b.batches[at] = append(b.batches[at], store.BatchResult{Step: len(plan.Steps) + i, Name: name + "_" + id,
				Cursor: workflow.CursorConfig{BatchID: id}, Result: doc})
		}
	}
	return nil
}

func (b *Batch) encode(template int, name string) (*store.Batch, error) {
	c := workflow.CursorConfig{BatchID: cmp.Or(b.ID, "001"), BatchSize: b.Size}
	var err error
	if c.Start, err = encode(b.Start); err != nil {
		return nil, fmt.Errorf("encode the start of the batch: %w", err)
	}
	if c.End, err = encode(b.End); err != nil {
		return nil, fmt.Errorf("encode the end of the batch: %w", err)
	}
	for i, item := range b.Items {
		doc, err := encode(item)
		if err != nil {
			return nil, fmt.Errorf("encode item %d of the batch: %w", i, err)
		}
		c.Items = append(c.Items, doc)
	}
	return &store.Batch{Template: template, Name: name + "_" + c.BatchID, Cursor: c, NoOp: b.NoOp}, nil
}
