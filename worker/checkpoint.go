package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/store"
)

// Checkpoint saves how far the handler is and lets it go on. A later execution
// of the step, after a failure, a crash or a hand-over to another worker, finds
// the latest checkpoint (HasCheckpoint, CheckpointAs, AccumulatedAs).
//
// cursor is where to go on and may be of any type with a JSON form; it should
// only move forward and name one place. itemsProcessed counts from the first
// execution on. accumulated is a summary of what was found so far; nil keeps
// none, also where the checkpoint before had one.
//
// The call waits for the database, for CheckpointConfig.SaveTimeout at most, and
// extends the lease. What was done since the checkpoint may be done again. The
// errors:
//
//   - ErrLeaseLost: the step is no longer this worker's, and the context has
//     ended. Stop.
//   - a *CheckpointError: cursor or accumulated cannot be kept. Nothing was sent.
//     It is marked Permanent, because another execution would bring the same.
//   - store.ErrUnavailable: the database did not answer in time. The checkpoint
//     may have been saved all the same; the handler may go on.
//
// A handler that works in a transaction cannot save checkpoints, nor yield.
//
// While the worker shuts down (ErrShutdown) checkpoints are still saved.
func (c *StepContext) Checkpoint(cursor any, itemsProcessed int64, accumulated any) error {
	if c.saver == nil {
		return errors.New("save a checkpoint: the context does not belong to an execution")
	}
	if c.run != nil && c.run.tx != nil {
		return errNoCheckpoint
	}
	p := &yieldError{cursor: cursor, items: itemsProcessed, accumulated: accumulated}
	return c.saver.checkpoint(c, p)
}

// errNoCheckpoint refuses what would outlive a transaction that is rolled back,
// or roll back what it tells of.
var errNoCheckpoint = Permanent(typed(TypeCheckpointNotStored,
	"a handler that works in a transaction cannot save checkpoints: what it writes and how far it is are kept together, when it ends"))

// Yield is what a handler returns to end this execution and be called again
// from the top, with the checkpoint at hand:
//
//	return nil, worker.Yield(next, processed, sums)
//
// The arguments are those of StepContext.Checkpoint. The step stays in progress
// under the same claim: no attempt is used, its time limit begins anew, and
// other steps that wait for the worker come first. Where nobody else wants the
// permit it goes on at once. Where it waits longer than a second for a permit,
// or the worker is shutting down, the step is handed back, and goes on wherever
// it is claimed next.
//
// While the database is away the checkpoint is kept and tried again. Where it
// is refused because the claim is lost, the execution has ended, and somebody
// else goes on from the latest checkpoint that was saved. One that cannot be
// kept is a permanent failure of type TypeCheckpointNotStored.
func Yield(cursor any, itemsProcessed int64, accumulated any) error {
	return &yieldError{cursor: cursor, items: itemsProcessed, accumulated: accumulated}
}

// yieldError is a checkpoint as a handler gives it.
type yieldError struct {
	cursor, accumulated any
	items               int64
}

func (e *yieldError) Error() string {
	return fmt.Sprintf("the handler yields after %d items", e.items)
}

// yielded returns the checkpoint that an error stands for; nil when it is a
// failure. A mark around it makes it one.
func yielded(err error) *yieldError {
	var y *yieldError
	var verdict *verdictError
	if !errors.As(err, &y) || errors.As(err, &verdict) {
		return nil
	}
	return y
}

// CheckpointError says what of a checkpoint cannot be kept.
type CheckpointError struct {
	Part  string // as in the record: cursor, items_processed or accumulated_results
	Size  int    // in bytes of JSON, where that is what is wrong; else 0
	Limit int    // of Part, in bytes
	err   error
}

func (e *CheckpointError) Error() string {
	return fmt.Sprintf("the checkpoint's %s cannot be kept: %v", e.Part, e.err)
}
func (e *CheckpointError) Unwrap() error { return e.err }

// ErrorType is what a failure over it is called.
func (e *CheckpointError) ErrorType() string { return TypeCheckpointNotStored }

// encode checks a checkpoint and gives it the form in which it is sent.
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
	if err := storable(doc, 0); err != nil {
		return nil, &CheckpointError{Part: part, Limit: limit, err: err}
	}
	return doc, nil
}

// checkpoint is progress as it is read.
type checkpoint struct {
	Cursor      json.RawMessage `json:"cursor"`
	Items       int64           `json:"items_processed"`
	Timestamp   time.Time       `json:"timestamp"`
	Accumulated json.RawMessage `json:"accumulated_results,omitempty"`
	// Isolated is what a batch had isolated by then.
	Isolated []json.RawMessage `json:"isolated_items,omitempty"`
}

// listOf are the entries of a list that was encoded here; nil: none.
func listOf(doc json.RawMessage) []json.RawMessage {
	if doc == nil {
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(doc, &list) != nil {
		return nil // it has been JSON before
	}
	return list
}

// progressOf is the checkpoint that came with a claim, nil when there is none.
// One that cannot be read, which only a foreign hand can have written, counts
// as none.
func progressOf(claim *store.Claimed) *checkpoint {
	if claim.Checkpoint == nil {
		return nil
	}
	p := &checkpoint{}
	if err := json.Unmarshal(claim.Checkpoint, p); err != nil {
		return nil
	}
	return p
}

// saved returns the latest checkpoint: the one that came with the claim, or the
// one that this execution has saved since.
func (c *StepContext) saved() *checkpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.resumed {
		c.resumed, c.latest = true, progressOf(c.claim)
	}
	return c.latest
}

// keeps reports whether there is a checkpoint that this execution knows of.
func (c *StepContext) keeps() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest != nil
}

func (c *StepContext) keep(p *checkpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resumed, c.latest = true, p
}

// HasCheckpoint reports whether there is progress to go on from.
func (c *StepContext) HasCheckpoint() bool { return c.saved() != nil }

// CheckpointCursor is the cursor of the latest checkpoint as JSON; nil when
// there is no checkpoint. CheckpointAs is the typed form.
func (c *StepContext) CheckpointCursor() json.RawMessage {
	if p := c.saved(); p != nil {
		return p.Cursor
	}
	return nil
}

// CheckpointItemsProcessed is how many items had been processed at the latest
// checkpoint; 0 when there is none.
func (c *StepContext) CheckpointItemsProcessed() int64 {
	if p := c.saved(); p != nil {
		return p.Items
	}
	return 0
}

// CheckpointTime is when the latest checkpoint was saved, by the clock of the
// database; the zero time when there is none.
func (c *StepContext) CheckpointTime() time.Time {
	if p := c.saved(); p != nil {
		return p.Timestamp
	}
	return time.Time{}
}

// AccumulatedResults is what the latest checkpoint has accumulated, as JSON; nil
// when there is nothing. AccumulatedAs is the typed form.
func (c *StepContext) AccumulatedResults() json.RawMessage {
	if p := c.saved(); p != nil {
		return p.Accumulated
	}
	return nil
}

// CheckpointAs decodes the cursor of the latest checkpoint. Without a checkpoint
// it is the zero value, with which the first execution begins; HasCheckpoint
// tells them apart.
func CheckpointAs[T any](c *StepContext) (T, error) {
	return decodeProgress[T](c.CheckpointCursor(), "cursor")
}

// AccumulatedAs decodes what the latest checkpoint has accumulated; the zero
// value when there is nothing.
func AccumulatedAs[T any](c *StepContext) (T, error) {
	return decodeProgress[T](c.AccumulatedResults(), "accumulated results")
}

func decodeProgress[T any](raw json.RawMessage, part string) (T, error) {
	var v T
	if raw == nil {
		return v, nil
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("decode the %s of the checkpoint: %w", part, err)
	}
	return v, nil
}
