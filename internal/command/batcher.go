package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sourcegraph/conc"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/telemetry"
)

// BatcherConfig describes a [Batcher].
type BatcherConfig struct {
	// Name is the label of the metrics.
	Name string
	// MaxBatch is how many items one flush gets at most, at least 1.
	MaxBatch int
	// MaxPending is how many items may wait for a flush, at least 1. Further callers
	// wait.
	MaxPending int
	// MaxInFlight is how many flushes run at once; default 1.
	MaxInFlight int
	// FlushTimeout bounds each flush; default 30 s.
	FlushTimeout time.Duration
	// Patience is how long a flush may take before another one begins beside it, so that one silent
	// connection holds up only the items that are on it; 0: others wait for its end.
	Patience time.Duration
	// Silent reports whether a flush that has taken so long waits for an answer, and does not pause before it
	// tries again; nil: it does. It is called under a lock and must not block.
	Silent  func() bool
	Logger  *zap.Logger        // default none
	Metrics *telemetry.Metrics // default none
}

// Batcher turns single items into batches that form by themselves: an item that
// arrives while nothing is in flight is flushed at once and alone, items that arrive
// meanwhile share the next flush. It is safe for concurrent use and needs no Start; no
// goroutine runs while nothing is pending.
type Batcher[T, R any] struct {
	cfg    BatcherConfig
	flush  func(ctx context.Context, items []T) ([]R, error)
	onDone func(answers []Answer[T, R])

	closing    chan struct{}
	entries    sync.Pool // of *entry[T, R]
	saturation prometheus.Gauge
	full       prometheus.Counter
	sizes      prometheus.Observer

	mu       sync.Mutex
	places   places
	pending  ring[brought[T, R]]
	large    ring[brought[T, R]] // behind those of pending, see SmallFirst
	size     func(item T) int    // nil: none is large
	from     int                 // bytes from which an item is large
	most     int                 // bytes of large items in a flush
	inFlight int
	late     int // of those in flight, that have taken longer than Patience
	stopped  bool
	idle     chan struct{} // closed when stopped and nothing is left
	group    conc.WaitGroup
	hard     context.Context
	cancel   context.CancelFunc
}

// Answer is the outcome of an item brought with Add.
type Answer[T, R any] struct {
	Item   T
	Result R
	Err    error
}

// brought is a pending item. caller waits for the result; nil for an item brought with
// Add.
type brought[T, R any] struct {
	item   T
	caller *entry[R]
}

// entry belongs to a caller, which owns it again once it has received from done; an
// abandoned entry is left to the garbage collector.
type entry[R any] struct {
	result R
	err    error
	state  atomic.Int32
	done   chan struct{} // of capacity 1, so that delivering never blocks
}

const (
	entryWaiting int32 = iota
	entryTaken         // part of a flush
	entryGivenUp       // its caller left before the flush
)

// BatchError lets a flush fail for single items: Errs holds one error or nil per item
// of the batch, in order. The results accompany it and may be nil where no item
// succeeded.
type BatchError struct{ Errs []error }

// Error implements error.
func (e *BatchError) Error() string {
	failed := 0
	for _, err := range e.Errs {
		if err != nil {
			failed++
		}
	}
	return fmt.Sprintf("%d of %d items failed: %v", failed, len(e.Errs), errors.Join(e.Errs...))
}

// Unwrap returns the errors of the items.
func (e *BatchError) Unwrap() []error { return e.Errs }

// ErrBatchShape says that a flush did not return one result per item.
var ErrBatchShape = errors.New("flush returned another number of results than it got items")

// NewBatcher returns a batcher that calls flush with 1 to MaxBatch items in order of
// arrival. flush returns one result per item; an error goes to every item unless it is
// a *BatchError. Its context has the deadline FlushTimeout and is independent of the
// callers' contexts: a caller that leaves does not cancel the others. items is valid
// only until flush returns.
func NewBatcher[T, R any](cfg BatcherConfig, flush func(ctx context.Context, items []T) ([]R, error)) *Batcher[T, R] {
	return NewAsyncBatcher(cfg, flush, nil)
}

// NewAsyncBatcher is NewBatcher with a callback for items brought with Add: onDone gets
// the items of one flush, each with its result or error, in order and in the goroutine
// of the flush. It must not block, and the answers are valid only until it returns.
func NewAsyncBatcher[T, R any](
	cfg BatcherConfig,
	flush func(ctx context.Context, items []T) ([]R, error),
	onDone func(answers []Answer[T, R]),
) *Batcher[T, R] {
	cfg.MaxBatch, cfg.MaxPending = max(cfg.MaxBatch, 1), max(cfg.MaxPending, 1)
	if cfg.MaxInFlight <= 0 {
		cfg.MaxInFlight = 1
	}
	if cfg.FlushTimeout <= 0 {
		cfg.FlushTimeout = 30 * time.Second
	}
	cfg.Logger = cmp.Or(cfg.Logger, zap.NewNop())
	if onDone == nil {
		onDone = func([]Answer[T, R]) {}
	}
	cfg.Metrics = cfg.Metrics.OrDiscard()
	b := &Batcher[T, R]{
		cfg:        cfg,
		flush:      flush,
		onDone:     onDone,
		places:     places{limit: cfg.MaxPending},
		closing:    make(chan struct{}),
		idle:       make(chan struct{}),
		saturation: cfg.Metrics.ChannelSaturation.WithLabelValues(cfg.Name),
		full:       cfg.Metrics.ChannelFull.WithLabelValues(cfg.Name),
		sizes:      cfg.Metrics.BatchSize.WithLabelValues(cfg.Name),
	}
	b.entries.New = func() any { return &entry[R]{done: make(chan struct{}, 1)} }
	b.hard, b.cancel = context.WithCancel(context.Background()) //nolint:gosec // Stop calls it
	cfg.Metrics.ChannelCapacity.WithLabelValues(cfg.Name).Set(float64(cfg.MaxPending))
	cfg.Metrics.Known("command", cfg.Name)
	return b
}

// SmallFirst lets items of at least from bytes wait behind the smaller ones: a flush takes of them what fits into most
// bytes, and at least one. It must be called before the first item.
func (b *Batcher[T, R]) SmallFirst(size func(item T) int, from, most int) {
	b.size, b.from, b.most = size, from, most
}

// Do brings an item and waits for its result. When ctx ends first it returns the error
// of ctx; an item that is in no flush by then never will be, and the outcome of one
// that is in a flush is unknown to the caller.
func (b *Batcher[T, R]) Do(ctx context.Context, item T) (R, error) {
	var none R
	e, _ := b.entries.Get().(*entry[R])
	e.state.Store(entryWaiting)
	if err := b.bring(ctx, brought[T, R]{item, e}); err != nil {
		b.entries.Put(e)
		return none, err
	}
	select {
	case <-e.done:
	case <-ctx.Done():
		select {
		case <-e.done: // both are ready: the result matters
		default:
			e.state.CompareAndSwap(entryWaiting, entryGivenUp)
			return none, fmt.Errorf("waiting for a batch of %s: %w", b.cfg.Name, ctx.Err())
		}
	}
	result, err := e.result, e.err
	e.result, e.err = none, nil
	b.entries.Put(e)
	return result, err
}

// Add brings an item and returns as soon as there is a place for it; the result goes to
// onDone. An error means that the item was not accepted.
func (b *Batcher[T, R]) Add(ctx context.Context, item T) error {
	return b.bring(ctx, brought[T, R]{item: item})
}

// TryAdd is Add that does not wait: without a place for the item the error wraps ErrFull.
func (b *Batcher[T, R]) TryAdd(item T) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.stopped:
		return fmt.Errorf("bringing an item to %s: %w", b.cfg.Name, ErrStopped)
	case !b.places.tryTake():
		return fmt.Errorf("bringing an item to %s: %w", b.cfg.Name, ErrFull)
	}
	b.push(brought[T, R]{item: item})
	return nil
}

// AddAgain is Add for an item of a flush that has failed. It never waits, so that onDone may call
// it: while it runs no place becomes free. Such items may exceed MaxPending by those of a flush.
func (b *Batcher[T, R]) AddAgain(item T) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return fmt.Errorf("bringing an item to %s again: %w", b.cfg.Name, ErrStopped)
	}
	b.places.taken++
	b.push(brought[T, R]{item: item})
	return nil
}

// Pending returns how many items wait for a flush.
func (b *Batcher[T, R]) Pending() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting()
}

// Stop rejects further items and waits until the accepted ones are flushed. When ctx
// ends first it cancels the context of the flushes, so that the rest fails soon, and
// returns an error with the number of those items.
func (b *Batcher[T, R]) Stop(ctx context.Context) error {
	b.mu.Lock()
	if !b.stopped {
		b.stopped = true
		close(b.closing)
		b.closeIfIdle()
	}
	b.mu.Unlock()
	defer b.cancel()
	select {
	case <-b.idle:
		b.group.Wait()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopping %s: %d items waiting: %w", b.cfg.Name, b.Pending(), ctx.Err())
	}
}

func (b *Batcher[T, R]) bring(ctx context.Context, item brought[T, R]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return fmt.Errorf("bringing an item to %s: %w", b.cfg.Name, ErrStopped)
	}
	if wait := b.places.take(); wait != nil {
		b.full.Inc()
		if err := b.awaitPlace(ctx, wait); err != nil {
			return err
		}
	}
	b.push(item)
	return nil
}

// push requires the lock, and a place for the item.
func (b *Batcher[T, R]) push(item brought[T, R]) {
	if b.size != nil && b.size(item.item) >= b.from {
		b.large.push(item)
	} else {
		b.pending.push(item)
	}
	b.spawn()
}

// spawn requires the lock. It begins a flush, if one may.
func (b *Batcher[T, R]) spawn() {
	if b.inFlight < b.allowed() && b.waiting() > 0 {
		b.inFlight++
		b.group.Go(b.work)
	}
}

// waiting requires the lock.
func (b *Batcher[T, R]) waiting() int { return b.pending.len() + b.large.len() }

// allowed requires the lock.
func (b *Batcher[T, R]) allowed() int { return b.cfg.MaxInFlight + min(b.late, 1) }

// awaitPlace requires the lock, and releases it while it waits.
func (b *Batcher[T, R]) awaitPlace(ctx context.Context, wait *inLine) (err error) {
	b.mu.Unlock()
	select {
	case <-wait.called:
	case <-b.closing:
		err = fmt.Errorf("bringing an item to %s: %w", b.cfg.Name, ErrStopped)
	case <-ctx.Done():
		err = fmt.Errorf("bringing an item to %s, which is full: %w", b.cfg.Name, ctx.Err())
	}
	b.mu.Lock()
	if err != nil {
		b.places.leave(wait)
		b.closeIfIdle()
	}
	return err
}

// closeIfIdle requires the lock.
func (b *Batcher[T, R]) closeIfIdle() {
	// A place that is taken and not yet used belongs to a caller that got it before the
	// stop.
	if !b.stopped || b.inFlight > 0 || b.places.taken > 0 {
		return
	}
	select {
	case <-b.idle:
	default:
		close(b.idle)
	}
}
