package worker

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tasker-go/tasker/worker/internal/engine"

	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// Batch is the part of the work that a step of type batch_worker does.
type Batch struct {
	ID string
	// Start and End are set by the batchable step; End is exclusive. RangeOf reads them
	// as numbers.
	Start, End json.RawMessage
	Size       int64 // items, as the batchable step counted them
	// NoOp says that the batchable step found nothing to do.
	NoOp            bool
	CursorField     string // what the cursors count, as in the template
	FailureStrategy string // also for items: workflow.FailFast etc.
	// HasItems says that the batch consists of a list of items (BatchItems); Start and
	// End are unset.
	HasItems bool
}

// Batch returns the part of the work that this step does; ok is false for a step that is
// not a batch.
func (c *StepContext) Batch() (b Batch, ok bool) {
	work := c.x.Claim.Batch
	if work == nil {
		return Batch{}, false
	}
	b = Batch{ID: work.Cursor.BatchID, Start: work.Cursor.Start, End: work.Cursor.End, Size: work.Cursor.BatchSize, NoOp: work.NoOp,
		HasItems: len(work.Cursor.Items) > 0}
	if s := c.step.Batch; s != nil {
		b.CursorField, b.FailureStrategy = s.CursorField, s.FailureStrategy
	}
	return b, true
}

// RangeOf returns the cursors of a batch as numbers, from included, to not. It returns an
// error if the step is not a batch or its cursors are not whole numbers.
func RangeOf(c *StepContext) (from, to int64, err error) {
	b, ok := c.Batch()
	if !ok {
		return 0, 0, fmt.Errorf("step %q is not a batch", c.StepName())
	}
	if b.HasItems {
		return 0, 0, Permanent(engine.Errorf(engine.TypeItemsNotRead, "batch %q has %d items and no range; read them with BatchItems or ItemsOf", b.ID, b.Size))
	}
	if err := json.Unmarshal(b.Start, &from); err != nil {
		return 0, 0, fmt.Errorf("invalid start of batch %q: want a whole number: %w", b.ID, err)
	}
	if err := json.Unmarshal(b.End, &to); err != nil {
		return 0, 0, fmt.Errorf("invalid end of batch %q: want a whole number: %w", b.ID, err)
	}
	return from, to, nil
}

// BatchResult is the result of one batch.
type BatchResult struct {
	StepName string
	BatchID  string
	NoOp     bool            // a placeholder without work
	Result   json.RawMessage // nil: it failed, or was resolved by hand
	Isolated int             // items that the handler could not process
}

// batchPage is the number of batch results read per query.
const batchPage = 1000

// BatchResults returns the results of a worker step's batches in the order of their
// creation; it is for the step that joins them. They are read from the database on first
// use. The error wraps ErrUnknownStep if the step does not depend on such a worker step.
func (c *StepContext) BatchResults(workerStep string) ([]BatchResult, error) {
	no, ok := c.plan.StepNumber(workerStep)
	if !ok || !c.dependsOnBatches(no) {
		return nil, fmt.Errorf("step %q of %s: %w", workerStep, c.plan.Template.Name, ErrUnknownStep)
	}
	list, err := c.batchResults(no)
	if err != nil {
		return nil, fmt.Errorf("read the results of the batches of step %q: %w", workerStep, err)
	}
	results := make([]BatchResult, len(list))
	for i, b := range list {
		results[i] = BatchResult{StepName: b.Name, BatchID: b.Cursor.BatchID, NoOp: b.NoOp, Result: b.Result, Isolated: b.Isolated}
	}
	return results, nil
}

// dependsOnBatches reports whether a step is a batch worker that this step depends on.
func (c *StepContext) dependsOnBatches(no int) bool {
	if c.plan.Steps[no].Kind != workflow.KindBatchWorker {
		return false
	}
	for _, above := range c.plan.Ancestors(c.step.No) {
		if above == no {
			return true
		}
	}
	return false
}

// batchResults reads the results once.
func (c *StepContext) batchResults(template int) ([]store.BatchResult, error) {
	c.mu.Lock()
	list, known := c.batches[template]
	c.mu.Unlock()
	if known {
		return list, nil
	}
	for after := -1; ; after = list[len(list)-1].Step {
		page, err := c.run.board.BatchResults(c, c.x.Claim.TaskUUID, template, after, batchPage)
		if err != nil {
			return nil, err
		}
		list = append(list, page...)
		if len(page) < batchPage {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.batches == nil {
		c.batches = map[int][]store.BatchResult{}
	}
	c.batches[template] = list
	return list, nil
}

// batchNamed returns the result of a batch by the name of its step; ok is false if no
// worker step that this one depends on has such a batch.
func (c *StepContext) batchNamed(name string) (result json.RawMessage, ok bool, err error) {
	for _, no := range c.plan.Ancestors(c.step.No) {
		if !c.dependsOnBatches(no) || !strings.HasPrefix(name, c.plan.Steps[no].Name+"_") {
			continue
		}
		list, err := c.batchResults(no)
		if err != nil {
			return nil, false, err
		}
		for i := range list {
			if list[i].Name == name {
				return list[i].Result, true, nil
			}
		}
	}
	return nil, false, nil
}
