package command

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sourcegraph/conc"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/telemetry"
)

// CoalescerConfig describes a [Coalescer].
type CoalescerConfig struct {
	// Name is the label command of the metrics.
	Name string
	// Workers is how many keys run at once; default 1.
	Workers int
	// Timeout bounds each run; default 1 minute.
	Timeout time.Duration
	Logger  *zap.Logger        // default none
	Metrics *telemetry.Metrics // default none
}

// Coalescer runs a function for keys that are woken: at most one run at a time
// for a key, and one more after it where the key was woken meanwhile, so that
// every Wake is followed by a run that began after it. What waits is bounded
// by the number of different keys. No goroutine runs while nothing is awake.
// It is safe for concurrent use.
type Coalescer[K comparable] struct {
	cfg CoalescerConfig
	run func(ctx context.Context, key K) error

	mu      sync.Mutex
	keys    map[K]keyState
	ready   ring[K] // keys in the state queued, in the order of waking
	active  int
	stopped bool
	idle    chan struct{} // closed when stopped and nothing is left
	group   conc.WaitGroup
	hard    context.Context
	cancel  context.CancelFunc
}

type keyState uint8

const (
	queued  keyState = iota + 1 // waits in ready
	running                     // runs, and was not woken since
	again                       // runs, and was woken since
)

// NewCoalescer returns a coalescer that calls run. It needs no Start.
func NewCoalescer[K comparable](cfg CoalescerConfig, run func(ctx context.Context, key K) error) *Coalescer[K] {
	if cfg.Workers <= 0 {
		cfg.Workers = 1
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = time.Minute
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	cfg.Metrics = cfg.Metrics.OrDiscard()
	c := &Coalescer[K]{cfg: cfg, run: run, keys: map[K]keyState{}, idle: make(chan struct{})}
	c.hard, c.cancel = context.WithCancel(context.Background()) //nolint:gosec // Stop calls it
	return c
}

// Wake makes key run soon, or once more where it runs now. It never blocks.
// After Stop it does nothing: a wake is a hint.
func (c *Coalescer[K]) Wake(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	switch c.keys[key] {
	case running:
		c.keys[key] = again
	case queued, again: // the run to come covers this wake
	default:
		c.keys[key] = queued
		c.ready.push(key)
		if c.active < c.cfg.Workers {
			c.active++
			c.group.Go(c.work)
		}
	}
}

// Stop takes no more wakes and waits for the runs that were asked for. When
// ctx ends first their contexts end and an error says how many keys are left.
func (c *Coalescer[K]) Stop(ctx context.Context) error {
	c.mu.Lock()
	if !c.stopped {
		c.stopped = true
		if c.active == 0 {
			close(c.idle)
		}
	}
	c.mu.Unlock()
	defer c.cancel()
	select {
	case <-c.idle:
		c.group.Wait()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopping %s: %d keys left: %w", c.cfg.Name, c.Len(), ctx.Err())
	}
}

// Len returns how many keys are queued or running.
func (c *Coalescer[K]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.keys)
}

func (c *Coalescer[K]) work() {
	for {
		key, ok := c.next()
		if !ok {
			return
		}
		c.once(key)
		c.finished(key)
	}
}

func (c *Coalescer[K]) next() (key K, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, ok = c.ready.pop()
	if ok {
		c.keys[key] = running
		return key, true
	}
	c.active--
	if c.stopped && c.active == 0 {
		close(c.idle)
	}
	return key, false
}

func (c *Coalescer[K]) once(key K) {
	ctx, cancel := context.WithTimeout(c.hard, c.cfg.Timeout)
	defer cancel()
	begin := time.Now()
	err := lifecycle.Guard(func() error { return c.run(ctx, key) })
	record(c.cfg.Metrics, c.cfg.Logger, c.cfg.Name, time.Since(begin), err)
}

func (c *Coalescer[K]) finished(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys[key] == again {
		// To the back: a busy key must not keep the others waiting.
		c.keys[key] = queued
		c.ready.push(key)
		return
	}
	delete(c.keys, key)
}
