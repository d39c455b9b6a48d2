package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tasker-go/tasker/internal/attemptlog"
	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker/internal/engine"
	"github.com/tasker-go/tasker/workflow"
)

// StepContext is the context of an execution and gives the handler access to its task and
// step. It ends when the step's time limit passes, when the claim is lost or when the
// worker ends by force; context.Cause distinguishes them (ErrTimeout, ErrLeaseLost,
// ErrShutdown).
//
// It is safe for concurrent use and may be passed as a context.Context. It must not be
// used after the handler has returned.
type StepContext struct {
	context.Context

	x    engine.Execution
	run  *runner
	plan *workflow.Plan
	step *workflow.PlanStep

	isolating *isolation // nil: items cannot be isolated
	own       ownEvents
	beside    atomic.Pointer[json.RawMessage] // metadata of a success
	foreign   foreignEvents
	listed    atomic.Bool // the handler has read the items of its batch
	saving    sync.Mutex  // held while a checkpoint is on its way
	published []publishable
	recorded  atomic.Pointer[func(accepted bool)]

	decode    sync.Once
	decoded   map[string]json.RawMessage
	decodeErr error
	name      sync.Once
	named     *zap.Logger
	mu        sync.Mutex
	fetched   map[int]json.RawMessage // results beyond the direct parents; nil: absent
	batches   map[int][]store.BatchResult
	resumed   bool               // latest has been set
	latest    *engine.Checkpoint // nil: there is none
}

// results reads the results of other steps.
type results interface {
	// StepResults returns those of completed steps by number.
	StepResults(ctx context.Context, task uuid.UUID, steps []int) (map[int]json.RawMessage, error)
	// BatchResults returns those of the batches of a worker step, page by page.
	BatchResults(ctx context.Context, task uuid.UUID, template, after, limit int) ([]store.BatchResult, error)
	// BatchableResult returns that of the step which made batches, without the list of
	// them.
	BatchableResult(ctx context.Context, task uuid.UUID, step int) (json.RawMessage, error)
}

// TaskUUID identifies the task.
func (c *StepContext) TaskUUID() uuid.UUID { return c.x.Claim.TaskUUID }

// StepUUID identifies the step; it is the same in every attempt. Batches that are created
// again are new steps.
func (c *StepContext) StepUUID() uuid.UUID { return c.x.Claim.StepUUID() }

// StepName is the name of the step in its template; a batch has its own, such
// as process_rows_001.
func (c *StepContext) StepName() string {
	if c.x.Claim.Batch != nil {
		return c.x.Claim.Batch.Name
	}
	return c.step.Name
}

// TaskName is the name of the task's template.
func (c *StepContext) TaskName() string { return c.plan.Template.Name }

// Namespace is the namespace of the task's template.
func (c *StepContext) Namespace() string { return c.plan.Template.Namespace }

// Version is the version of the task's template.
func (c *StepContext) Version() string { return c.plan.Template.Version }

// CorrelationID links the task with the request that caused it.
func (c *StepContext) CorrelationID() uuid.UUID { return c.x.Claim.CorrelationID }

// ParentCorrelationID is that of the task which caused this one; ok is false without one.
func (c *StepContext) ParentCorrelationID() (id uuid.UUID, ok bool) {
	if c.x.Claim.ParentCorrelationID == nil {
		return uuid.Nil, false
	}
	return *c.x.Claim.ParentCorrelationID, true
}

// Priority is that of the task: priorities.Min to priorities.Max, higher runs
// first.
func (c *StepContext) Priority() int { return c.x.Claim.Priority }

// RequestedAt is when the task was created, by the clock of the database.
func (c *StepContext) RequestedAt() time.Time { return c.x.Claim.RequestedAt }

// Attempt is the number of this attempt: 1 for the first. Executions that yield and
// continue are one attempt.
func (c *StepContext) Attempt() int { return c.x.Claim.Attempt }

// Token is the fence of the claim: unique, and greater than the tokens of all earlier
// claims of the step. A service that keeps the greatest token it has seen can reject
// requests of a worker that has lost its claim without knowing.
func (c *StepContext) Token() int64 { return c.x.Claim.Token }

// OnRecorded has fn called, once, when the success or failure of the execution is
// recorded; with false if it is not, because the claim is lost or its time limit has passed
// before: for handlers that confirm it to a process. It must be called before the handler
// returns; fn must not block. It is not called after a yield, a hand-back, or the failure of
// a claim that is already lost.
func (c *StepContext) OnRecorded(fn func(accepted bool)) { c.recorded.Store(&fn) }

// MaxAttempts is the number of attempts that the step may have, the first included.
func (c *StepContext) MaxAttempts() int {
	return workflow.AttemptsOf(c.step.StepTemplate, c.x.Claim.MaxAttempts)
}

// IsRetry reports whether an earlier attempt has failed or was lost.
func (c *StepContext) IsRetry() bool { return c.x.Claim.Attempt > 1 }

// IsLastAttempt reports whether a failure of this execution is final.
func (c *StepContext) IsLastAttempt() bool { return c.x.Claim.Attempt >= c.MaxAttempts() }

// IdempotencyKey is the same for every attempt of this step and differs between steps:
// pass it to calls that must not happen twice.
func (c *StepContext) IdempotencyKey() string { return c.StepUUID().String() }

// Config is the handler's configuration from the template (handler.initialization). It is
// shared by all executions: do not change it.
func (c *StepContext) Config() map[string]any { return c.step.Handler.Initialization }

// ConfigAs decodes the handler's configuration into a type. A template without
// initialization counts as an empty object.
func ConfigAs[T any](c *StepContext) (T, error) {
	var v T
	config := c.Config()
	if config == nil {
		config = map[string]any{}
	}
	doc, err := json.Marshal(config)
	if err == nil {
		err = jsonscan.Unmarshal(doc, &v)
	}
	if err != nil {
		return v, fmt.Errorf("decode the initialization of step %q: %w", c.step.Name, err)
	}
	return v, nil
}

// Logger carries the fields that identify the execution. What is logged with it is also kept with the
// attempt (worker.logs): GET /v1/tasks/{uuid}/logs and tasker-ctl task logs show it. Of an attempt
// the first and the last lines are kept, within a second; a handler never waits for it.
func (c *StepContext) Logger() *zap.Logger {
	c.name.Do(func() {
		c.named = c.x.Tee(c.run.cfg.Logger.With(
			zap.Stringer("correlation_id", c.CorrelationID()), zap.Stringer("task_uuid", c.TaskUUID()), zap.Stringer("step_uuid", c.StepUUID()),
			zap.String("namespace", c.Namespace()), zap.String("template", c.TaskName()), zap.String("step_name", c.StepName()),
			zap.Int("attempt", c.Attempt())))
	})
	return c.named
}

// KeepLine keeps a line with the attempt that was not written by Logger: such as one that another
// process has printed. at is when, by its clock; fields are a JSON object, or nil. Lines below
// worker.logs.level are not kept, and fields of hidden names not shown.
func (c *StepContext) KeepLine(at time.Time, level zapcore.Level, text string, fields json.RawMessage) {
	c.x.KeepLine(at, attemptlog.LevelOf(level), text, fields)
}

// Progress reports the handler's progress: a fraction, clamped to 0–1, and a message of
// at most 500 bytes. The latest is shown by the step and in the
// worker's health, and logged at debug level once per second at most, so frequent calls are cheap.
func (c *StepContext) Progress(fraction float64, message string) {
	if c.x.Say(fraction, message) {
		c.Logger().Debug("progress", zap.Float64("fraction", fraction), zap.String("progress", engine.Clip(message, engine.MaxProgress)))
	}
}

// maxMetadata bounds the metadata beside a result, as JSON in bytes.
const maxMetadata = 16 << 10

// SetMetadata sets what is stored beside the result of a success, for operators: it is
// shown as metadata.custom of the step's results and is no input of other steps. It has at
// most 16 KiB as JSON; the last call counts, and a failure or a yield drops it. The error,
// of metadata without a JSON form or too large, is permanent.
func (c *StepContext) SetMetadata(metadata map[string]any) error {
	doc, err := engine.Encode(metadata, maxMetadata)
	if err != nil {
		return Permanent(engine.WithType(fmt.Errorf("set the metadata of the result: %w", err), engine.TypeInvalidOutcome))
	}
	c.beside.Store(&doc)
	return nil
}

// Input returns the task's context as stored. Do not change it.
func (c *StepContext) Input() json.RawMessage { return c.x.Claim.Context }

// InputAs decodes the task's context.
func InputAs[T any](c *StepContext) (T, error) {
	var v T
	if err := decodeInto(c.x.Claim.Context, &v, false); err != nil {
		return v, fmt.Errorf("decode the task's context: %w", err)
	}
	return v, nil
}

// InputValue returns one field of the task's context as Go's JSON types; numbers are
// json.Number, because a float64 would change large ones. ok is false if the field does
// not exist. Field is the typed form.
func (c *StepContext) InputValue(key string) (value any, ok bool) {
	fields, err := c.fields()
	if err != nil {
		return nil, false
	}
	raw, ok := fields[key]
	if !ok {
		return nil, false
	}
	if err := jsonscan.Unmarshal(raw, &value); err != nil {
		return nil, false
	}
	return value, true
}

// Field decodes one field of the task's context. The error wraps ErrAbsent if the field
// does not exist.
func Field[T any](c *StepContext, key string) (T, error) {
	var v T
	fields, err := c.fields()
	if err != nil {
		return v, fmt.Errorf("read the field %q of the task's context: %w", key, err)
	}
	raw, ok := fields[key]
	if !ok {
		return v, fmt.Errorf("the field %q of the task's context is %w", key, ErrAbsent)
	}
	if err := jsonscan.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("decode the field %q of the task's context: %w", key, err)
	}
	return v, nil
}

// FieldOr is Field with a value for a field that does not exist or is null. A field of
// another type is still an error.
func FieldOr[T any](c *StepContext, key string, absent T) (T, error) {
	if fields, err := c.fields(); err == nil && string(fields[key]) == "null" {
		return absent, nil
	}
	v, err := Field[T](c, key)
	if errors.Is(err, ErrAbsent) {
		return absent, nil
	}
	return v, err
}

// fields splits the context into its fields, once per execution.
func (c *StepContext) fields() (map[string]json.RawMessage, error) {
	c.decode.Do(func() {
		if err := decodeInto(c.x.Claim.Context, &c.decoded, false); err != nil {
			c.decodeErr = fmt.Errorf("the task's context is not an object: %w", err)
		}
	})
	return c.decoded, c.decodeErr
}
