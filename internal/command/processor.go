package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/settings"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// ErrStopped is returned for work brought after Stop or Drain.
var ErrStopped = errors.New("stopped: accepts no more work")

// ErrFull is returned for a command of a kind of which too many wait.
var ErrFull = errors.New("too many commands wait")

// Kind is a type of command with bounds of its own, so that commands of one kind never
// wait for those of another.
type Kind struct {
	// Name is for metrics and logs; it must come from a small fixed set.
	Name string
	// Workers is how many commands run at once, Buffer how many more may wait. Both
	// are required: their defaults are in package config.
	Workers, Buffer int
	// Quiet leaves errors to the caller: they are counted but not logged. A panic is
	// logged all the same.
	Quiet bool
}

// Config describes a [Processor].
type Config struct {
	// Name is for logs and the label channel of the saturation metric.
	Name  string
	Kinds []Kind
	// Timeout bounds each command; default 1 minute.
	Timeout time.Duration
	Logger  *zap.Logger        // default none
	Metrics *telemetry.Metrics // default none
}

// Processor runs commands within the bounds of their kinds, each in the goroutine of
// its caller. It implements lifecycle.Service, is safe for concurrent use and works
// from New on.
type Processor struct {
	cfg        Config
	kinds      map[string]*line
	closing    chan struct{}
	saturation prometheus.Gauge
	full       prometheus.Counter
	hard       context.Context // ends when Stop runs out of time
	cancel     context.CancelFunc

	mu     sync.Mutex
	closed bool
	active int           // turns that wait or run
	idle   chan struct{} // closed when closed and nothing is active
}

var _ lifecycle.Service = (*Processor)(nil)

// line is where commands of one kind wait and run.
type line struct {
	Kind
	places  chan struct{} // of capacity Workers + Buffer
	running chan struct{} // of capacity Workers
}

// NewProcessor returns a processor.
func NewProcessor(cfg Config) *Processor {
	if cfg.Timeout <= 0 {
		cfg.Timeout = time.Minute
	}
	cfg.Logger = cmp.Or(cfg.Logger, zap.NewNop())
	cfg.Metrics = cfg.Metrics.OrDiscard()
	p := &Processor{cfg: cfg, kinds: make(map[string]*line, len(cfg.Kinds)), closing: make(chan struct{}), idle: make(chan struct{}),
		saturation: cfg.Metrics.ChannelSaturation.WithLabelValues(cfg.Name), full: cfg.Metrics.ChannelFull.WithLabelValues(cfg.Name)}
	p.hard, p.cancel = context.WithCancel(context.Background())
	capacity := 0
	for _, k := range cfg.Kinds {
		cfg.Metrics.Known("command", k.Name)
		workers := max(k.Workers, 0)
		p.kinds[k.Name] = &line{Kind: k, places: make(chan struct{}, workers+max(k.Buffer, 0)), running: make(chan struct{}, workers)}
		capacity += k.Buffer
	}
	cfg.Metrics.ChannelCapacity.WithLabelValues(cfg.Name).Set(float64(capacity))
	return p
}

// Name implements lifecycle.Service.
func (p *Processor) Name() string { return p.cfg.Name }

// Start implements lifecycle.Service: it refuses a configuration without bounds.
func (p *Processor) Start(ctx context.Context) error {
	for _, k := range p.cfg.Kinds {
		if err := errors.Join(settings.Positive("Workers", k.Workers), settings.Positive("Buffer", k.Buffer)); err != nil {
			return fmt.Errorf("configure commands %s of %s: %w", k.Name, p.cfg.Name, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return lifecycle.ErrStopped
	}
	return ctx.Err()
}

// Turn is the right to run one command. Run must be called.
type Turn struct {
	p *Processor
	k *line
}

// Do waits for a turn of the kind and runs a command; see Take and Run.
func (p *Processor) Do(ctx context.Context, kind string, run func(ctx context.Context) error) error {
	turn, err := p.Take(ctx, kind)
	if err != nil {
		return err
	}
	return turn.Run(ctx, run)
}

// Take waits until a command of the kind may run. The error wraps ErrFull where too
// many wait already, ErrStopped where the processor is stopping, or is that of ctx.
func (p *Processor) Take(ctx context.Context, kind string) (*Turn, error) {
	k := p.kinds[kind]
	if k == nil {
		return nil, fmt.Errorf("run a command of %s: invalid kind %q", p.cfg.Name, kind)
	}
	if !p.begin() {
		return nil, fmt.Errorf("run %s: %w", kind, ErrStopped)
	}
	select {
	case k.places <- struct{}{}:
	default:
		p.full.Inc()
		p.end()
		return nil, fmt.Errorf("run %s: %w: %d", kind, ErrFull, k.Buffer)
	}
	p.observe()
	var err error
	select {
	case k.running <- struct{}{}:
		p.observe()
		return &Turn{p, k}, nil
	case <-p.closing:
		err = ErrStopped
	case <-ctx.Done():
		err = ctx.Err()
	}
	<-k.places
	p.observe()
	p.end()
	return nil, fmt.Errorf("wait to run %s: %w", kind, err)
}

// Run runs the command and gives the turn back. The context of the command ends with
// ctx, with the timeout, and when Stop runs out of time. A panic is an error.
func (t *Turn) Run(ctx context.Context, run func(ctx context.Context) error) error {
	defer t.p.end()
	defer func() { <-t.k.running; <-t.k.places; t.p.observe() }()
	ctx, cancel := context.WithTimeout(ctx, t.p.cfg.Timeout)
	defer cancel()
	defer context.AfterFunc(t.p.hard, cancel)()
	begin := time.Now()
	err := lifecycle.Guard(func() error { return run(ctx) })
	log := t.p.cfg.Logger
	var panicked *lifecycle.PanicError
	if t.k.Quiet && !errors.As(err, &panicked) {
		log = zap.NewNop()
	}
	record(t.p.cfg.Metrics, log, t.k.Name, time.Since(begin), err)
	return err
}

func (p *Processor) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.active++
	}
	return !p.closed
}

func (p *Processor) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active--; p.closed && p.active == 0 {
		close(p.idle)
	}
}

// Drain rejects further commands and those that wait, and waits until the running ones
// have ended. When ctx ends first it returns an error and the commands continue; Stop
// ends them.
func (p *Processor) Drain(ctx context.Context) error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.closing)
		if p.active == 0 {
			close(p.idle)
		}
	}
	p.mu.Unlock()
	select {
	case <-p.idle:
		p.cancel()
		return nil
	case <-ctx.Done():
		waiting, running := p.Pending()
		return fmt.Errorf("drain %s: %d commands wait, %d run: %w", p.cfg.Name, waiting, running, ctx.Err())
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
	for _, k := range p.kinds {
		running += len(k.running)
		waiting += max(len(k.places)-len(k.running), 0)
	}
	return waiting, running
}

// Saturation returns the share of the buffer in use, 0 to 1, of the kind that has the
// largest. A command that is about to run on a free worker does not count.
func (p *Processor) Saturation() (share float64) {
	for _, k := range p.kinds {
		waiting := max(len(k.places)-k.Workers, 0)
		share = max(share, float64(waiting)/float64(max(k.Buffer, 1)))
	}
	return min(share, 1)
}

func (p *Processor) observe() { p.saturation.Set(p.Saturation()) }

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
		log.Warn("command failed", zap.String("command", name), zap.Int64("duration_ms", took.Milliseconds()), zap.Error(err))
	}
	m.CommandDuration.WithLabelValues(name).Observe(took.Seconds())
	m.Commands.WithLabelValues(name, outcome).Inc()
}
