package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/worker/internal/engine"
	"github.com/tasker-go/tasker/workflow"
)

// IsolationConfig bounds the items that handlers of batches isolate
// (worker.isolated_items).
type IsolationConfig struct {
	// MaxItems bounds the items of one batch.
	MaxItems int
	// MaxItemBytes bounds the JSON of an item.
	MaxItemBytes int
	// MaxBytes bounds the JSON of all items of a batch with their errors. Each checkpoint
	// of the batch writes all of it.
	MaxBytes int
}

// maxIsolatedMessage bounds the stored reason for isolating an item, in bytes.
const maxIsolatedMessage = 1 << 10

// isolatedItem is an item in its stored form.
type isolatedItem struct {
	Item  json.RawMessage `json:"item"`
	Error engine.Failure  `json:"error"`
}

// isolation holds the items that a batch has isolated so far.
type isolation struct {
	mu       sync.Mutex
	limits   IsolationConfig
	items    []json.RawMessage // encoded
	places   map[string]int    // by the JSON of the item
	bytes    int
	refused  error // of the first item that could not be stored; the batch must not succeed
	refusals prometheus.Counter
}

// Isolate records an item of a batch that could not be processed, and why. The batch
// continues with the others and succeeds; the items are stored with that success, shown
// to operators, and can be replayed. It is for batches whose template says
// failure_strategy: isolate.
//
// item tells a replay what to process: any value with a JSON form, such as a key or a
// row. The marks of why (Retryable, Permanent, WithCode) and the beginning of its text
// are stored. An item isolated twice counts once, with the later reason. Items that an
// attempt has isolated and not saved with a checkpoint are dropped when it fails, since
// the next attempt processes them again; a checkpoint, or a yield, saves the items
// isolated before it.
//
// The error is permanent, and the batch should end with it: the step is not such a batch,
// the item has no JSON form, or a bound of IsolationConfig is exceeded. A batch that
// ignores the error fails at its end, because the item would be lost.
func (c *StepContext) Isolate(item any, why error) error {
	b, ok := c.Batch()
	switch {
	case !ok:
		return Permanent(fmt.Errorf("isolate an item: step %q is not a batch", c.StepName()))
	case c.step.FailureStrategy() != workflow.IsolateFailed:
		return Permanent(engine.Errorf(engine.TypeNotIsolated, "isolate an item: template %s/%s:%s gives step %q the failure_strategy %s, which isolates nothing",
			c.Namespace(), c.TaskName(), c.Version(), c.step.Name, c.step.FailureStrategy()))
	case why == nil:
		return Permanent(errors.New("isolate an item: want a reason"))
	}
	if err := c.isolating.add(item, why); err != nil {
		return fmt.Errorf("isolate an item of batch %s: %w", b.ID, err)
	}
	return nil
}

func (i *isolation) add(item any, why error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	key, doc, err := i.encode(item, why)
	if err == nil {
		err = i.keep(key, doc)
	}
	if err != nil {
		i.refusals.Inc()
		err = Permanent(engine.WithType(err, engine.TypeNotIsolated))
		if i.refused == nil {
			i.refused = err
		}
	}
	return err
}

func (i *isolation) encode(item any, why error) (key string, doc json.RawMessage, err error) {
	named, err := engine.Encode(item, i.limits.MaxItemBytes)
	if err != nil {
		return "", nil, fmt.Errorf("it cannot be stored: %w", err)
	}
	f := engine.FailureOf(why)
	f.Message, f.Context = engine.Text(f.Message, maxIsolatedMessage), nil
	doc, err = json.Marshal(isolatedItem{named, f})
	return canonical(named), doc, err
}

func (i *isolation) keep(key string, doc json.RawMessage) error {
	at, again := i.places[key]
	size := i.bytes + len(doc)
	if again {
		size -= len(i.items[at])
	}
	switch {
	case !again && len(i.items) >= i.limits.MaxItems:
		return fmt.Errorf("there are %d already, and no more may be (worker.isolated_items.max_items)", len(i.items))
	case size > i.limits.MaxBytes:
		return fmt.Errorf("with it they have %d bytes, more than %d (worker.isolated_items.max_total_bytes)", size, i.limits.MaxBytes)
	case again:
		i.items[at] = doc
	default:
		if i.places == nil {
			i.places = map[string]int{}
		}
		i.places[key] = len(i.items)
		i.items = append(i.items, doc)
	}
	i.bytes = size
	return nil
}

// resume restores the items of a checkpoint, whatever the bounds are now. Items that only
// another program can have written are dropped.
func (i *isolation) resume(kept json.RawMessage) {
	var list []json.RawMessage
	if kept == nil || json.Unmarshal(kept, &list) != nil {
		return
	}
	i.places = make(map[string]int, len(list))
	for _, doc := range list {
		var item struct {
			Item json.RawMessage `json:"item"`
		}
		if json.Unmarshal(doc, &item) == nil {
			i.places[canonical(item.Item)] = len(i.items)
			i.items, i.bytes = append(i.items, doc), i.bytes+len(doc)
		}
	}
}

// canonical is the same for the JSON of an item before and after it was in the database,
// which reorders keys.
func canonical(raw json.RawMessage) string {
	var v any
	if jsonscan.Unmarshal(raw, &v) == nil {
		if doc, err := json.Marshal(v); err == nil {
			return string(doc)
		}
	}
	return string(raw)
}

// encoded returns the items in the form in which they are sent, nil without any, and
// their number.
func (i *isolation) encoded() (doc json.RawMessage, items int) {
	if i == nil {
		return nil, 0
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.items) == 0 {
		return nil, 0
	}
	doc = append(make([]byte, 0, i.bytes+len(i.items)+2), '[')
	for n, item := range i.items {
		if n > 0 {
			doc = append(doc, ',')
		}
		doc = append(doc, item...)
	}
	return append(doc, ']'), len(i.items)
}

// mayIsolate prepares an execution of a batch for isolating items.
func (c *StepContext) mayIsolate() {
	if c.x.Claim.Batch == nil || c.step.FailureStrategy() != workflow.IsolateFailed {
		return
	}
	c.isolating = &isolation{limits: c.run.cfg.Isolation, refusals: c.run.cfg.Metrics.ItemsNotIsolated.WithLabelValues(c.run.cfg.Metrics.Named("namespace", c.Namespace()))}
	if p := c.saved(); p != nil {
		c.isolating.resume(p.Isolated)
	}
}

// unheeded returns why a batch must fail although its handler succeeded.
func (c *StepContext) unheeded() error {
	if c.x.Claim.Batch == nil {
		return nil
	}
	if len(c.x.Claim.Batch.Cursor.Items) > 0 && !c.listed.Load() {
		return Permanent(engine.Errorf(engine.TypeItemsNotRead, "batch %s has %d items, and the handler has not read them (BatchItems, ItemsOf)",
			c.StepName(), len(c.x.Claim.Batch.Cursor.Items)))
	}
	return c.isolating.unstored()
}

// unstored returns why an item could not be isolated, which then would be lost.
func (i *isolation) unstored() error {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.refused
}

// BatchItems returns the items of a batch; ok is false if the batch has cursors instead.
// Replays of isolated items create such batches, with the items as passed to Isolate, and
// so may a batchable step. A handler that isolates must read them: a batch whose items
// were not read fails.
func (c *StepContext) BatchItems() (items []json.RawMessage, ok bool) {
	work := c.x.Claim.Batch
	if work == nil || len(work.Cursor.Items) == 0 {
		return nil, false
	}
	c.listed.Store(true)
	return work.Cursor.Items, true
}

// ItemsOf decodes BatchItems. An item that is not of type T is a permanent error.
func ItemsOf[T any](c *StepContext) (items []T, ok bool, err error) {
	raw, ok := c.BatchItems()
	if !ok {
		return nil, false, nil
	}
	items = make([]T, len(raw))
	for i := range raw {
		if err := jsonscan.Unmarshal(raw[i], &items[i]); err != nil {
			return nil, true, Permanent(fmt.Errorf("decode item %d of batch %s: %w", i+1, c.StepName(), err))
		}
	}
	return items, true, nil
}
