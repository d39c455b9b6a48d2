package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"
)

// ProducerConfig describes a [Producer]. A zero field means its default.
type ProducerConfig struct {
	// BatchTasks is how many tasks one request has at most; default 500, no more
	// than MaxBatchTasks.
	BatchTasks int
	// BatchBytes is the size of JSON at which a batch is full, and the bound of one task;
	// default 4 MiB. A body has less than twice that, so keep it at four times the
	// server's web.max_body_bytes or less.
	BatchBytes int
	// InFlight bounds the concurrent requests; default 4, as many as an orchestrator
	// reads. The transport of Config.HTTP should keep as many idle connections to a host;
	// that of net/http keeps 2.
	InFlight int
	// Linger is how long the first task of a batch waits for others while a sender is
	// free; default 5 ms, negative: not at all. While all are busy, batches fill anyway.
	Linger time.Duration
}

func (cfg ProducerConfig) withDefaults() ProducerConfig {
	if cfg.BatchTasks <= 0 {
		cfg.BatchTasks = 500
	}
	if cfg.BatchBytes <= 0 {
		cfg.BatchBytes = 4 << 20
	}
	if cfg.InFlight <= 0 {
		cfg.InFlight = 4
	}
	if cfg.Linger == 0 {
		cfg.Linger = 5 * time.Millisecond
	}
	cfg.BatchTasks, cfg.Linger = min(cfg.BatchTasks, MaxBatchTasks), max(cfg.Linger, 0)
	return cfg
}

var (
	// ErrNotSent says that a task has not reached the server, so it may be added again.
	ErrNotSent = errors.New("the task was not sent")
	// ErrProducerClosed is the error of a [Producer] that is closed.
	ErrProducerClosed = errors.New("the producer is closed")
)

// TaskOutcome is the outcome of a task of a [Producer]: a UUID or an error.
type TaskOutcome struct {
	TaskUUID string
	Existing bool // the task existed already, which the request allows
	// Err is an [*Error] if the server rejected the task. It wraps [ErrNotSent] if the
	// task has not reached the server; after another error of the network the task may
	// exist.
	Err error
}

// Producer creates many tasks with several batches in flight. It is safe for concurrent
// use, and must be closed.
//
// It holds at most InFlight + 1 batches: [Producer.Add] blocks while these are full. A
// server that rejects tasks temporarily (429, or 503 for back-pressure) slows the whole
// producer: no request is sent for the time of Retry-After, and then the tasks are sent
// again, without limit. Otherwise requests are retried by the rules of
// [Client.CreateTasks]: with an unknown outcome only if each task of the batch has an
// idempotency key, so give every task one. A batch that is rejected as a whole for its
// content is divided, so that only the invalid tasks fail. Tasks of different batches are
// created in any order.
type Producer struct {
	client *Client
	cfg    ProducerConfig
	ctx    context.Context // its life
	cancel context.CancelCauseFunc

	tasks   chan producedTask           // to the collector; unbuffered, so that none is lost there
	flushes chan chan []<-chan struct{} // requests the ends of all batches
	batches chan *producedBatch         // from it to the senders
	closing chan struct{}
	close   sync.Once
	owned   conc.WaitGroup // collector and senders

	mu     sync.Mutex
	resume time.Time    // no request is sent before
	lost   atomic.Int64 // tasks given up when ctx ended
}

// producedTask is a task on its way.
type producedTask struct {
	body  json.RawMessage
	keyed bool
	done  func(TaskOutcome)
}

// producedBatch becomes one request.
type producedBatch struct {
	tasks []producedTask
	bytes int
	due   bool          // send it although it is not full
	ended chan struct{} // closed after the callbacks of all tasks
}

// NewProducer returns a producer that lives until it is closed, or until ctx ends: then
// it gives up requests under way, and reports unsent tasks as such.
func NewProducer(ctx context.Context, c *Client, cfg ProducerConfig) *Producer {
	p := &Producer{client: c, cfg: cfg.withDefaults(), tasks: make(chan producedTask), flushes: make(chan chan []<-chan struct{}),
		batches: make(chan *producedBatch), closing: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	p.own(p.collect)
	for range p.cfg.InFlight {
		p.own(p.deliver)
	}
	return p
}

// own runs a goroutine of the producer. If it panics, in a function passed to Add, the
// producer ends, and Close panics.
func (p *Producer) own(run func()) {
	p.owned.Go(func() {
		returned := false
		defer func() {
			if !returned {
				p.cancel(errors.New("a function passed to Add has panicked"))
			}
		}()
		run()
		returned = true
	})
}

// Add adds a task, and waits for room until ctx ends. An error means that the task was
// not added; it is [ErrProducerClosed] after Close. Otherwise done is called once with
// the outcome: on goroutines of the producer, concurrently, and before Flush or Close
// return. It must not call the producer, and blocks one of InFlight senders while it
// runs.
func (p *Producer) Add(ctx context.Context, r TaskRequest, done func(TaskOutcome)) error {
	body, err := json.Marshal(&r)
	switch {
	case err != nil:
		return fmt.Errorf("encode the task: %w", err)
	case len(body) > p.cfg.BatchBytes:
		return fmt.Errorf("invalid task of %d bytes: want at most %d", len(body), p.cfg.BatchBytes)
	}
	select {
	case <-p.closing:
		return ErrProducerClosed
	default:
	}
	select {
	case p.tasks <- producedTask{body: body, keyed: r.IdempotencyKey != "", done: done}:
		return nil
	case <-p.closing:
		return ErrProducerClosed
	case <-p.ctx.Done():
		return fmt.Errorf("add a task: %w", context.Cause(p.ctx))
	case <-ctx.Done():
		return fmt.Errorf("add a task: %w", context.Cause(ctx))
	}
}

// Flush sends the tasks added before, in full batches or not, and waits for their
// outcomes. An error means that ctx or the producer ended first.
func (p *Producer) Flush(ctx context.Context) error {
	answer := make(chan []<-chan struct{}, 1)
	select {
	case p.flushes <- answer:
	case <-p.closing:
		return ErrProducerClosed
	case <-p.ctx.Done():
		return fmt.Errorf("flush the producer: %w", context.Cause(p.ctx))
	}
	for _, ended := range <-answer {
		select {
		case <-ended:
		case <-p.ctx.Done():
			return fmt.Errorf("flush the producer: %w", context.Cause(p.ctx))
		case <-ctx.Done():
			return fmt.Errorf("flush the producer: %w", context.Cause(ctx))
		}
	}
	return nil
}

// Close accepts no more tasks, sends the added ones and waits for their outcomes. If ctx
// ends first it ends the producer like the end of the producer's context. The error
// counts only the tasks given up by that; other errors go to the functions passed to Add.
// A second call does the same.
func (p *Producer) Close(ctx context.Context) error {
	p.close.Do(func() { close(p.closing) })
	stop := context.AfterFunc(ctx, func() { p.cancel(context.Cause(ctx)) })
	defer stop()
	p.owned.Wait()
	if lost := p.lost.Load(); lost > 0 {
		return fmt.Errorf("close the producer: %d tasks were given up: %w", lost, context.Cause(p.ctx))
	}
	p.cancel(ErrProducerClosed)
	return nil
}

// collect fills batches and hands them to senders, one after another.
func (p *Producer) collect() {
	defer close(p.batches)
	linger := time.NewTimer(p.cfg.Linger)
	defer linger.Stop()
	var ends []<-chan struct{} // of batches handed over; ended ones are dropped
	b, closing, closed := newProducedBatch(), p.closing, false
	for !closed || len(b.tasks) > 0 {
		in, out := p.tasks, p.batches
		full := len(b.tasks) >= p.cfg.BatchTasks || b.bytes >= p.cfg.BatchBytes
		if full || closed {
			in = nil
		}
		if !full && !b.due {
			out = nil
		}
		select {
		case t := <-in:
			if len(b.tasks) == 0 {
				linger.Reset(p.cfg.Linger)
			}
			b.tasks, b.bytes = append(b.tasks, t), b.bytes+len(t.body)+1
		case out <- b:
			ends = append(slices.DeleteFunc(ends, hasCome), b.ended)
			b = newProducedBatch()
			linger.Stop()
		case <-linger.C:
			b.due = len(b.tasks) > 0
		case answer := <-p.flushes:
			b.due = len(b.tasks) > 0
			all := slices.Clone(ends)
			if b.due {
				all = append(all, b.ended)
			}
			answer <- all
		case <-closing:
			closing, closed, b.due = nil, true, true
		case <-p.ctx.Done():
			p.fail(b.tasks, notSent(context.Cause(p.ctx)))
			close(b.ended)
			return
		}
	}
}

func newProducedBatch() *producedBatch { return &producedBatch{ended: make(chan struct{})} }

func hasCome(end <-chan struct{}) bool {
	select {
	case <-end:
		return true
	default:
		return false
	}
}
