package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker/internal/engine"
	"github.com/tasker-go/tasker/workflow"
)

// DependencyResult returns the result of a step this one depends on, directly or not, as
// its handler returned it. Results of direct parents came with the claim; others are read
// from the database on first use.
//
// The error wraps ErrUnknownStep if there is no such ancestor, and ErrAbsent if the
// ancestor has no result (it was resolved by hand, or never created).
func (c *StepContext) DependencyResult(name string) (json.RawMessage, error) {
	raw, known, err := c.resultNamed(name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the result of step %q: %w", name, err)
	case !known:
		return nil, fmt.Errorf("step %q of %s: %w", name, c.plan.Template.Name, ErrUnknownStep)
	case raw == nil:
		return nil, fmt.Errorf("the result of step %q is %w", name, ErrAbsent)
	}
	return raw, nil
}

// resultNamed returns the result of a step or a batch, nil without one; known is false if
// this step depends on none of the name.
func (c *StepContext) resultNamed(name string) (raw json.RawMessage, known bool, err error) {
	no, ok := c.plan.StepNumber(name)
	if !ok {
		return c.batchNamed(name)
	}
	parent, work := slices.Contains(c.step.Parents, no), c.x.Claim.Batch
	switch {
	case parent && work != nil && c.plan.Steps[no].Kind == workflow.KindBatchable:
		raw, err = c.run.shared.get(c, sharedKey{c.x.Claim.TaskUUID, no, work.First, work.Since}, c.run.board.BatchableResult)
	case parent:
		raw = c.x.Claim.ParentResults[no]
	case slices.Contains(ancestors(c.plan, c.step.No), no):
		raw, err = c.ancestor(no)
	default:
		return nil, false, nil
	}
	return raw, true, err
}

// DependencyResults returns the results of the direct parents that have one, by name.
// Those of batches, which may be many, are in BatchResults; a batch gets the result of
// the step that created it from DependencyResult, without the list of all batches.
func (c *StepContext) DependencyResults() map[string]json.RawMessage {
	results := make(map[string]json.RawMessage, len(c.step.Parents))
	for _, no := range c.step.Parents {
		if raw := c.x.Claim.ParentResults[no]; raw != nil {
			results[c.plan.Steps[no].Name] = raw
		}
	}
	return results
}

// ResultOf decodes the result of a step this one depends on. An object with the single
// key "result" is an envelope and unwrapped, unless T has such a field itself. The errors
// are those of DependencyResult.
func ResultOf[T any](c *StepContext, name string) (T, error) {
	var v T
	raw, err := c.DependencyResult(name)
	if err != nil {
		return v, err
	}
	if !hasResultField(reflect.TypeFor[T]()) {
		raw = unwrapped(raw)
	}
	if err := jsonscan.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("decode the result of step %q: %w", name, err)
	}
	return v, nil
}

// ancestor reads a result once.
func (c *StepContext) ancestor(no int) (json.RawMessage, error) {
	return readOnce(c, &c.fetched, no, func() (json.RawMessage, error) {
		results, err := c.run.board.StepResults(c, c.x.Claim.TaskUUID, []int{no})
		return results[no], err
	})
}

// readOnce returns the value of a key in a map of the context, which read fills; two
// goroutines of a handler may both read.
func readOnce[T any](c *StepContext, known *map[int]T, key int, read func() (T, error)) (value T, err error) {
	c.mu.Lock()
	value, ok := (*known)[key]
	c.mu.Unlock()
	if ok {
		return value, nil
	}
	if value, err = read(); err != nil {
		return value, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if *known == nil {
		*known = map[int]T{}
	}
	(*known)[key] = value
	return value, nil
}

const envelopeKey = "result"

// unwrapped returns the value in an envelope; other values unchanged.
func unwrapped(raw json.RawMessage) json.RawMessage {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || len(object) != 1 {
		return raw
	}
	if inner, ok := object[envelopeKey]; ok {
		return inner
	}
	return raw
}

// hasResultField reports whether a type is itself the envelope.
func hasResultField(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && f.IsExported() && !f.Anonymous {
			name = f.Name
		}
		if strings.EqualFold(name, envelopeKey) {
			return true
		}
	}
	return false
}

// Bounds of remembered results that many executions share.
const (
	maxSharedResults = 256
	maxSharedBytes   = 16 << 20
)

// sharedKey identifies the result of a batchable step for the batches that it created: a
// repeated step creates batches again under the same numbers.
type sharedKey struct {
	task        uuid.UUID
	step, first int
	since       int64
}

// sharedResults caches results of batchable steps, which all of their batches may read:
// hundreds of them in this process. The cache is bounded and cleared as a whole. It is
// safe for concurrent use.
type sharedResults struct {
	mu    sync.Mutex
	known map[sharedKey]json.RawMessage
	bytes int
}

// get returns a result, read once; two concurrent executions may both read it.
func (s *sharedResults) get(ctx context.Context, key sharedKey, read func(ctx context.Context, task uuid.UUID, step int) (json.RawMessage, error)) (json.RawMessage, error) {
	s.mu.Lock()
	raw, ok := s.known[key]
	s.mu.Unlock()
	if ok {
		return raw, nil
	}
	raw, err := read(ctx, key.task, key.step)
	if err != nil || len(raw) > maxSharedBytes/4 {
		return raw, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxSharedResults || s.bytes+len(raw) > maxSharedBytes {
		s.known, s.bytes = map[sharedKey]json.RawMessage{}, 0
	}
	s.known[key] = raw
	s.bytes += len(raw)
	return raw, nil
}

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

// BatchSteps names the worker steps that this step depends on, directly or not: those of
// BatchResults.
func (c *StepContext) BatchSteps() (names []string) {
	for _, no := range ancestors(c.plan, c.step.No) {
		if c.dependsOnBatches(no) {
			names = append(names, c.plan.Steps[no].Name)
		}
	}
	return names
}

// dependsOnBatches reports whether a step is a batch worker that this step depends on.
func (c *StepContext) dependsOnBatches(no int) bool {
	return c.plan.Steps[no].Kind == workflow.KindBatchWorker && slices.Contains(ancestors(c.plan, c.step.No), no)
}

// ancestors returns the numbers of all steps that step no depends on,
// directly or not, in ascending order.
func ancestors(p *workflow.Plan, no int) []int {
	seen := make([]bool, len(p.Steps))
	seen[no] = true
	var all []int
	for at := no; at >= 0; at-- { // parents always have smaller numbers
		if !seen[at] {
			continue
		}
		if at != no {
			all = append(all, at)
		}
		for _, parent := range p.Steps[at].Parents {
			seen[parent] = true
		}
	}
	slices.Reverse(all)
	return all
}

// batchResults reads the results once.
func (c *StepContext) batchResults(template int) ([]store.BatchResult, error) {
	return readOnce(c, &c.batches, template, func() (list []store.BatchResult, err error) {
		for after := -1; ; after = list[len(list)-1].Step {
			page, err := c.run.board.BatchResults(c, c.x.Claim.TaskUUID, template, after, batchPage)
			list = append(list, page...)
			if err != nil || len(page) < batchPage {
				return list, err
			}
		}
	})
}

// batchNamed returns the result of a batch by the name of its step; ok is false if no
// worker step that this one depends on has such a batch.
func (c *StepContext) batchNamed(name string) (result json.RawMessage, ok bool, err error) {
	for _, no := range ancestors(c.plan, c.step.No) {
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
