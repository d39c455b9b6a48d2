package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker/internal/engine"
)

// Checkpoint saves the progress of the handler, which then continues. A later execution
// of the step, after a failure, a crash or a hand-over to another worker, finds the
// latest checkpoint (HasCheckpoint, CheckpointAs, AccumulatedAs).
//
// cursor is the position to continue from, of any type with a JSON form; it should only
// move forward and name one position. itemsProcessed counts from the first execution.
// accumulated is a summary of the results so far; nil clears an earlier one.
//
// The call waits for the database, CheckpointConfig.SaveTimeout at most, and extends the
// lease. Work since the checkpoint may be repeated. The errors:
//
//   - ErrLeaseLost: the claim is lost and the context has ended. Stop.
//   - a *CheckpointError: cursor or accumulated cannot be stored. Nothing was sent.
//     It is marked Permanent, because another execution would produce the same.
//   - that of an earlier Isolate: the next execution would begin behind the item.
//   - ErrUnavailable: the database did not answer in time. The checkpoint
//     may have been saved nevertheless; the handler may continue.
//
// A handler that works in a transaction cannot save checkpoints, nor yield.
//
// While the worker shuts down (ErrShutdown) checkpoints are still saved.
func (c *StepContext) Checkpoint(cursor any, itemsProcessed int64, accumulated any) error {
	if c.x.InTx() {
		return errNoCheckpoint
	}
	c.saving.Lock() // calls of one handler are serialized
	defer c.saving.Unlock()
	point, err := c.encode(&yieldError{cursor: cursor, items: itemsProcessed, accumulated: accumulated})
	if err != nil {
		return err
	}
	at, err := c.x.Save(point)
	switch {
	case store.OfContent(err):
		return c.refused(&CheckpointError{Part: "content", err: err})
	case err != nil:
		return fmt.Errorf("save a checkpoint: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resumed, c.latest = true, &engine.Checkpoint{Cursor: point.Cursor, Items: point.Items, Timestamp: at, Accumulated: point.Accumulated}
	return nil
}

// encode makes the checkpoint for the database, with the items that the batch has
// isolated. There is none behind an item that could not be isolated.
func (c *StepContext) encode(y *yieldError) (*store.Checkpoint, error) {
	if err := c.isolating.unstored(); err != nil {
		return nil, err
	}
	point, err := y.encode(c.x.Key, c.run.cfg.Checkpoint)
	if err != nil {
		return nil, c.refused(err)
	}
	point.Isolated, _ = c.isolating.encoded()
	return &point, nil
}

// refused counts a checkpoint that cannot be stored, and makes it a failure.
func (c *StepContext) refused(err error) error {
	reason := "not_storable"
	var what *CheckpointError
	if errors.As(err, &what) && what.Size > 0 {
		reason = "too_large"
	}
	c.run.cfg.Metrics.CheckpointsRefused.WithLabelValues(reason).Inc()
	return Permanent(err)
}

// errNoCheckpoint rejects checkpoints that would outlive a rolled-back transaction, or
// roll back the work that they describe.
var errNoCheckpoint = Permanent(engine.Errorf(engine.TypeCheckpointNotStored,
	"a handler that works in a transaction cannot save checkpoints: its writes and its progress are committed together at its end"))

// Yield is what a handler returns to end this execution and be called again from the
// beginning, with the checkpoint available:
//
//	return nil, worker.Yield(next, processed, sums)
//
// The arguments are those of StepContext.Checkpoint. The step stays in progress under the
// same claim: no attempt is used, its time limit starts anew, and other steps that wait
// for the worker run first. If no other step needs the permit, the step continues at
// once. If it waits longer than a second for a permit, or the worker is shutting down,
// the step is handed back and continues where it is claimed next.
//
// While the database is unavailable the checkpoint is kept and retried. If it is rejected
// because the claim is lost, the execution has ended, and the next claimant continues
// from the latest saved checkpoint. A checkpoint that cannot be stored is a permanent
// failure of type CheckpointNotStorable.
func Yield(cursor any, itemsProcessed int64, accumulated any) error {
	return &yieldError{cursor: cursor, items: itemsProcessed, accumulated: accumulated}
}

// yieldError is a checkpoint returned by a handler.
type yieldError struct {
	cursor, accumulated any
	items               int64
}

func (e *yieldError) Error() string {
	return fmt.Sprintf("the handler yields after %d items", e.items)
}

// yielded returns the checkpoint in an error; nil if it is a failure. A mark around a
// yield makes it a failure.
func yielded(err error) *yieldError {
	var y *yieldError
	if marked, _ := engine.Marked(err); marked || !errors.As(err, &y) {
		return nil
	}
	return y
}

// CheckpointError says which part of a checkpoint cannot be stored.
type CheckpointError struct {
	Part  string // as in the record: cursor, items_processed or accumulated_results
	Size  int    // in bytes of JSON if it is too large; else 0
	Limit int    // of Part, in bytes
	err   error
}

func (e *CheckpointError) Error() string {
	return fmt.Sprintf("store the checkpoint's %s: %v", e.Part, e.err)
}
func (e *CheckpointError) Unwrap() error { return e.err }

// ErrorType returns the error_type of the failure.
func (e *CheckpointError) ErrorType() string { return engine.TypeCheckpointNotStored }

// encode checks a checkpoint and encodes it for the database.
func (e *yieldError) encode(key store.ClaimKey, limits CheckpointConfig) (store.Checkpoint, error) {
	c := store.Checkpoint{ClaimKey: key, Items: e.items}
	if e.items < 0 {
		return c, &CheckpointError{Part: "items_processed", err: fmt.Errorf("%d is negative", e.items)}
	}
	var err error
	if c.Cursor, err = encodePart("cursor", e.cursor, limits.MaxCursorBytes); err != nil {
		return c, err
	}
	if c.Accumulated, err = encodePart("accumulated_results", e.accumulated, limits.MaxAccumulatedBytes); err != nil {
		return c, err
	}
	if string(c.Accumulated) == "null" {
		c.Accumulated = nil
	}
	return c, nil
}

func encodePart(part string, value any, limit int) (json.RawMessage, error) {
	doc, err := json.Marshal(value)
	if err != nil {
		return nil, &CheckpointError{Part: part, Limit: limit, err: fmt.Errorf("it has no JSON form: %w", err)}
	}
	if len(doc) > limit {
		return nil, &CheckpointError{Part: part, Size: len(doc), Limit: limit,
			err: fmt.Errorf("it has %d bytes, more than %d; keep large data elsewhere and a reference to it here", len(doc), limit)}
	}
	if err := engine.CheckStorable(doc, 0); err != nil {
		return nil, &CheckpointError{Part: part, Limit: limit, err: err}
	}
	return doc, nil
}

// saved returns the latest checkpoint, from the claim or saved by this execution since;
// nil without one. An unreadable one, which only another program can have written, counts
// as none.
func (c *StepContext) saved() *engine.Checkpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.resumed && c.x.Claim.Checkpoint != nil {
		p := &engine.Checkpoint{}
		if json.Unmarshal(c.x.Claim.Checkpoint, p) == nil {
			c.latest = p
		}
	}
	c.resumed = true
	return c.latest
}

// progress is saved without a checkpoint as the zero value.
func (c *StepContext) progress() (p engine.Checkpoint) {
	if latest := c.saved(); latest != nil {
		p = *latest
	}
	return p
}

// HasCheckpoint reports whether there is saved progress.
func (c *StepContext) HasCheckpoint() bool { return c.saved() != nil }

// CheckpointCursor returns the cursor of the latest checkpoint as JSON; nil without a
// checkpoint. CheckpointAs is the typed form.
func (c *StepContext) CheckpointCursor() json.RawMessage { return c.progress().Cursor }

// CheckpointItemsProcessed returns the number of items processed at the latest
// checkpoint; 0 without one.
func (c *StepContext) CheckpointItemsProcessed() int64 { return c.progress().Items }

// CheckpointTime returns when the latest checkpoint was saved, by the clock of the
// database; the zero time without one.
func (c *StepContext) CheckpointTime() time.Time { return c.progress().Timestamp }

// AccumulatedResults returns the accumulated results of the latest checkpoint as JSON;
// nil without any. AccumulatedAs is the typed form.
func (c *StepContext) AccumulatedResults() json.RawMessage { return c.progress().Accumulated }

// CheckpointAs decodes the cursor of the latest checkpoint. Without a checkpoint it
// returns the zero value, with which the first execution starts; HasCheckpoint
// distinguishes the two.
func CheckpointAs[T any](c *StepContext) (T, error) {
	return decodeProgress[T](c.CheckpointCursor(), "cursor")
}

// AccumulatedAs decodes the accumulated results of the latest checkpoint; the zero value
// without any.
func AccumulatedAs[T any](c *StepContext) (T, error) {
	return decodeProgress[T](c.AccumulatedResults(), "accumulated results")
}

func decodeProgress[T any](raw json.RawMessage, part string) (T, error) {
	var v T
	if raw == nil {
		return v, nil
	}
	if err := jsonscan.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("decode the %s of the checkpoint: %w", part, err)
	}
	return v, nil
}
