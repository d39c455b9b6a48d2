package command

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sourcegraph/conc"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// ErrStopped is returned for work brought after Stop or Drain.
var ErrStopped = errors.New("stopped: accepts no more work")

// Command is a unit of work.
type Command struct {
	// Name is the type of the command, for metrics and logs; it must come
	// from a small fixed set.
	Name string
	// Run does the work. Its context ends with the command's timeout and when Stop
	// runs out of time. The error is counted and logged; a caller that needs it must
	// carry it out of Run.
	Run func(ctx context.Context) error
	// Quiet leaves the error to the caller: it is counted but not logged. A panic is
	// logged all the same.
	Quiet bool
}

// Config describes a [Processor].
type Config struct {
	// Name is for logs and the label channel of the saturation metric.
	Name string
	// Buffer is how many commands may wait. Required: its default is in package
	// config.
	Buffer int
	// Workers is how many commands run at once; default 1.
	Workers int
	// Timeout bounds each command; default 1 minute.
	Timeout time.Duration
	Logger  *zap.Logger        // default none
	Metrics *telemetry.Metrics // default none
}

// Processor runs commands from a bounded queue. It implements
// lifecycle.Service and is safe for concurrent use. Commands may be submitted
// before Start; they wait.
type Processor struct {
	cfg        Config
	queue      chan Command
	closing    chan struct{}
	saturation prometheus.Gauge
	full       prometheus.Counter
	running    atomic.Int64

	mu      sync.Mutex
	started bool
	closed  bool
	senders sync.WaitGroup // callers inside Submit; waited for before queue is closed
	workers conc.WaitGroup
	done    chan struct{} // closed when the last worker has ended
	hard    context.Context
	cancel  context.CancelFunc
}

var _ lifecycle.Service = (*Processor)(nil)

// NewProcessor returns a processor that is not running yet.
func NewProcessor(cfg Config) *Processor {
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
	p := &Processor{
		cfg:        cfg,
		queue:      make(chan Command, max(cfg.Buffer, 0)),
		closing:    make(chan struct{}),
		done:       make(chan struct{}),
		saturation: cfg.Metrics.ChannelSaturation.WithLabelValues(cfg.Name),
		full:       cfg.Metrics.ChannelFull.WithLabelValues(cfg.Name),
	}
	p.hard, p.cancel = context.WithCancel(context.Background())
	cfg.Metrics.ChannelCapacity.WithLabelValues(cfg.Name).Set(float64(cfg.Buffer))
	return p
}

// Name implements lifecycle.Service.
func (p *Processor) Name() string { return p.cfg.Name }

// Start implements lifecycle.Service.
func (p *Processor) Start(ctx context.Context) error {
	if err := config.Positive("Buffer", p.cfg.Buffer); err != nil {
		return fmt.Errorf("configure the command processor %s: %w", p.cfg.Name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return lifecycle.ErrStopped
	}
	if p.started {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	p.begin()
	return nil
}

// begin requires the lock.
func (p *Processor) begin() {
	p.started = true
	var left atomic.Int64
	left.Store(int64(p.cfg.Workers))
	for range p.cfg.Workers {
		p.workers.Go(func() {
			for c := range p.queue {
				p.observe()
				p.run(c)
			}
			if left.Add(-1) == 0 {
				close(p.done)
			}
		})
	}
}

// Submit queues c. While the queue is full it waits until ctx ends. An error means that
// c was not accepted: ctx ended, or the processor is stopping.
func (p *Processor) Submit(ctx context.Context, c Command) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return fmt.Errorf("submitting %s to %s: %w", c.Name, p.cfg.Name, ErrStopped)
	}
	p.senders.Add(1)
	p.mu.Unlock()
	defer p.senders.Done()
	defer p.observe()
	select {
	case p.queue <- c:
		return nil
	default:
		p.full.Inc()
	}
	select {
	case p.queue <- c:
		return nil
	case <-p.closing:
		return fmt.Errorf("submitting %s to %s: %w", c.Name, p.cfg.Name, ErrStopped)
	case <-ctx.Done():
		return fmt.Errorf("submitting %s to %s, whose queue is full: %w", c.Name, p.cfg.Name, ctx.Err())
	}
}

// Drain rejects further commands and waits until the accepted ones have run. When ctx
// ends first it returns an error and the commands continue; Stop ends them.
func (p *Processor) Drain(ctx context.Context) error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.closing)
		p.senders.Wait() // short: closing releases every waiting sender
		close(p.queue)
		if !p.started {
			p.begin() // commands accepted before Start run all the same
		}
	}
	p.mu.Unlock()
	select {
	case <-p.done:
		p.workers.Wait()
		p.cancel()
		return nil
	case <-ctx.Done():
		waiting, running := p.Pending()
		return fmt.Errorf("draining %s: %d commands waiting, %d running: %w", p.cfg.Name, waiting, running, ctx.Err())
	}
}

// Stop implements lifecycle.Service: it drains and, when ctx ends first, cancels the
// contexts of the remaining commands.
func (p *Processor) Stop(ctx context.Context) error {
	err := p.Drain(ctx)
	p.cancel()
	return err
}

// Pending returns how many commands wait and how many run.
func (p *Processor) Pending() (waiting, running int) {
	return len(p.queue), int(p.running.Load())
}

// Saturation returns the share of the queue in use, 0 to 1.
func (p *Processor) Saturation() float64 { return float64(len(p.queue)) / float64(cap(p.queue)) }

func (p *Processor) observe() { p.saturation.Set(p.Saturation()) }

func (p *Processor) run(c Command) {
	p.running.Add(1)
	defer p.running.Add(-1)
	ctx, cancel := context.WithTimeout(p.hard, p.cfg.Timeout)
	defer cancel()
	begin := time.Now()
	err := lifecycle.Guard(func() error { return c.Run(ctx) })
	log := p.cfg.Logger
	var panicked *lifecycle.PanicError
	if c.Quiet && !errors.As(err, &panicked) {
		log = zap.NewNop()
	}
	record(p.cfg.Metrics, log, c.Name, time.Since(begin), err)
}

// record counts a unit of work and logs its failure.
func record(m *telemetry.Metrics, log *zap.Logger, name string, took time.Duration, err error) {
	outcome := telemetry.OutcomeOK
	var panicked *lifecycle.PanicError
	switch {
	case errors.As(err, &panicked):
		outcome = telemetry.OutcomePanic
		log.Error("command panicked", zap.String("command", name), zap.Error(err), lifecycle.StackField(err))
	case err != nil:
		outcome = telemetry.OutcomeError
		log.Warn("command failed", zap.String("command", name), zap.Duration("took", took), zap.Error(err))
	}
	m.CommandDuration.WithLabelValues(name).Observe(took.Seconds())
	m.Commands.WithLabelValues(name, outcome).Inc()
}
