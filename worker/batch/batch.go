// Package batch makes the results of batchable steps and collects the results of their
// batches.
//
//	cursors := batch.Split(total, 200, 5)
//	return batch.Create("process_rows", cursors, total).With("file", path), nil
//
// A batch reads its own part with StepContext.Batch. What may not enter: anything but
// results and arithmetic.
package batch

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// Cursor is the part of one batch. Start and End are any JSON; End is exclusive.
type Cursor struct {
	ID    string `json:"batch_id"`
	Start any    `json:"start_cursor"`
	End   any    `json:"end_cursor"`
	Size  int64  `json:"batch_size"`
}

// Split divides the items 0 to total−1 into the fewest parts of at most size items, or
// into maxParts larger parts if that would be more (0: no bound). The parts are
// contiguous and differ by one item at most.
func Split(total, size int64, maxParts int) []Cursor {
	if total <= 0 {
		return nil
	}
	size = max(size, 1)
	parts := (total-1)/size + 1
	if maxParts > 0 {
		parts = min(parts, int64(maxParts))
	}
	each, more := total/parts, total%parts
	cursors := make([]Cursor, parts)
	digits := max(3, len(strconv.FormatInt(parts, 10)))
	from := int64(0)
	for i := range parts {
		n := each
		if i < more {
			n++
		}
		cursors[i] = Cursor{ID: fmt.Sprintf("%0*d", digits, i+1), Start: from, End: from + n, Size: n}
		from += n
	}
	return cursors
}

// Outcome is the result of a batchable step. Its zero value is None.
type Outcome struct {
	worker  string
	cursors []Cursor
	total   int64
	fields  map[string]any
}

// Create creates one instance of the worker step per cursor. Without cursors it is None.
func Create(workerStep string, cursors []Cursor, totalItems int64) Outcome {
	return Outcome{worker: workerStep, cursors: cursors, total: totalItems}
}

// None says that there is nothing to do. If the template names the worker step
// (initialization: worker_template_name), one placeholder runs, so that the following
// steps run as usual.
func None() Outcome { return Outcome{} }

// With adds a field to the result, for the steps that depend on it.
func (o Outcome) With(key string, value any) Outcome {
	o.fields = maps.Clone(o.fields)
	if o.fields == nil {
		o.fields = map[string]any{}
	}
	o.fields[key] = value
	return o
}

// MarshalJSON implements json.Marshaler.
func (o Outcome) MarshalJSON() ([]byte, error) {
	outcome := map[string]any{"type": "no_batches"}
	if len(o.cursors) > 0 {
		outcome = map[string]any{"type": "create_batches", "worker_template_name": o.worker,
			"worker_count": len(o.cursors), "cursor_configs": o.cursors, "total_items": o.total}
	}
	return json.Marshal(o.With(workflow.BatchOutcomeKey, outcome).fields)
}

// Result is the result of one batch.
type Result[T any] struct {
	StepName, BatchID string
	Value             T
	Isolated          int // items that the handler could not process
}

// Isolated returns the number of items that the batches of a worker step have isolated
// (StepContext.Isolate).
func Isolated(ctx *worker.StepContext, workerStep string) (items int, err error) {
	list, err := ctx.BatchResults(workerStep)
	for _, b := range list {
		items += b.Isolated
	}
	return items, err
}

// Results decodes the results of a worker step's batches in the order of their creation:
// none if there was nothing to do. missing counts batches without a result (failed and
// tolerated, or resolved by hand).
func Results[T any](ctx *worker.StepContext, workerStep string) (results []Result[T], missing int, err error) {
	list, err := ctx.BatchResults(workerStep)
	if err != nil {
		return nil, 0, err
	}
	for _, b := range list {
		switch {
		case b.NoOp:
			continue
		case b.Result == nil:
			missing++
			continue
		}
		r := Result[T]{StepName: b.StepName, BatchID: b.BatchID, Isolated: b.Isolated}
		if err := jsonscan.Unmarshal(b.Result, &r.Value); err != nil {
			return nil, 0, fmt.Errorf("decode the result of %s: %w", b.StepName, err)
		}
		results = append(results, r)
	}
	return results, missing, nil
}
