package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sourcegraph/conc"
	"go.uber.org/zap"
)

// LoopConfig describes a [Loop]. Name and Run are required.
type LoopConfig struct {
	// Name is for logs, metrics and health; it must not vary per request.
	Name string
	// Run does the work until ctx ends. When it returns before that, or panics, it is
	// restarted after a delay.
	Run func(ctx context.Context) error
	// RestartBase and RestartMax bound the delay between restarts, which doubles with
	// each; defaults 100 ms and 30 s. A run that lasted longer than RestartMax resets it
	// to RestartBase.
	RestartBase, RestartMax time.Duration
	// MaxSilence is how long the loop may go without a call of Beat or Rest before it
	// counts as stuck; 0: never.
	MaxSilence time.Duration
	// OnRestart is called before each restart, for counting; its panics are recovered.
	OnRestart func(name string)
	Logger    *zap.Logger // default none
}

// Loop is a supervised function in a goroutine: it starts once, recovers from panics,
// restarts with a capped delay and for ever, stops with a deadline and reports its health.
// It implements Service and is safe for concurrent use.
type Loop struct {
	cfg LoopConfig

	mu       sync.Mutex
	state    LoopState
	restarts uint64
	lastErr  error
	lastBeat time.Time
	resting  bool
	cancel   context.CancelFunc
	done     chan struct{}
	group    conc.WaitGroup
}

// LoopState is the state of a loop.
type LoopState string

// The states of a loop.
const (
	LoopIdle       LoopState = "idle"       // not started yet
	LoopRunning    LoopState = "running"    // working or waiting for work
	LoopRestarting LoopState = "restarting" // it ended and waits for its restart
	LoopStopping   LoopState = "stopping"   // being stopped
	LoopStopped    LoopState = "stopped"
)

// LoopHealth is the health of a loop.
type LoopHealth struct {
	Name     string    `json:"name"`
	State    LoopState `json:"state"`
	Restarts uint64    `json:"restarts"`
	// Stuck: it runs, but has given no sign of life for MaxSilence.
	Stuck     bool   `json:"stuck"`
	LastError string `json:"last_error,omitempty"`
}

// Dead reports whether the loop should be working and is not.
func (h LoopHealth) Dead() bool { return h.State == LoopRestarting || h.Stuck }

// NewLoop returns a loop that is not started.
func NewLoop(cfg LoopConfig) *Loop {
	if cfg.RestartBase <= 0 {
		cfg.RestartBase = 100 * time.Millisecond
	}
	if cfg.RestartMax < cfg.RestartBase {
		cfg.RestartMax = max(30*time.Second, cfg.RestartBase)
	}
	cfg.Logger = cmp.Or(cfg.Logger, zap.NewNop())
	return &Loop{cfg: cfg, state: LoopIdle}
}

// Name implements Service.
func (l *Loop) Name() string { return l.cfg.Name }

// Start implements Service. The values of ctx reach Run, its end does not.
func (l *Loop) Start(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state {
	case LoopStopping, LoopStopped:
		return ErrStopped
	case LoopRunning, LoopRestarting:
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.done = make(chan struct{})
	l.state = LoopRunning
	l.lastBeat = time.Now()
	l.group.Go(func() { l.supervise(ctx) })
	return nil
}

// Stop implements Service: it ends the context of Run and waits for it.
func (l *Loop) Stop(ctx context.Context) error {
	l.mu.Lock()
	if l.state == LoopIdle {
		l.state = LoopStopped
	}
	if l.state == LoopStopped {
		l.mu.Unlock()
		return nil
	}
	l.state = LoopStopping
	l.cancel()
	done := l.done
	l.mu.Unlock()
	select {
	case <-done:
		l.group.Wait()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("loop %s is still running: %w", l.cfg.Name, ctx.Err())
	}
}

// Beat is the loop's sign of life; Run calls it in every iteration.
func (l *Loop) Beat() { l.beat(false) }

// Rest is Beat before waiting for work: until the next Beat the loop is not stuck, however
// long the wait. It is for a wait in a select, which any of its cases ends.
func (l *Loop) Rest() { l.beat(true) }

func (l *Loop) beat(resting bool) {
	now := time.Now()
	l.mu.Lock()
	l.lastBeat, l.resting = now, resting
	l.mu.Unlock()
}

// Health returns the present state.
func (l *Loop) Health() LoopHealth {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	h := LoopHealth{Name: l.cfg.Name, State: l.state, Restarts: l.restarts}
	h.Stuck = l.state == LoopRunning && l.cfg.MaxSilence > 0 && !l.resting && now.Sub(l.lastBeat) > l.cfg.MaxSilence
	if l.lastErr != nil {
		h.LastError = l.lastErr.Error()
	}
	return h
}

var (
	errReturned = errors.New("returned before it was stopped")
	errExited   = errors.New("ended its goroutine")
)

// run calls Run once and returns why it ended. It has a goroutine of its own, because
// runtime.Goexit ends the one that it is called in.
func (l *Loop) run(ctx context.Context) error {
	over := make(chan error, 1)
	l.group.Go(func() {
		err := errExited
		defer func() { over <- err }()
		if err = Guard(func() error { return l.cfg.Run(ctx) }); err == nil {
			err = errReturned
		}
	})
	return <-over
}

func (l *Loop) supervise(ctx context.Context) {
	defer l.ended()
	delay := l.cfg.RestartBase
	for {
		begin := time.Now()
		err := l.run(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begin) > l.cfg.RestartMax {
			delay = l.cfg.RestartBase
		}
		l.died(err, delay)
		if Pause(ctx, delay) != nil {
			return
		}
		l.revived()
		delay = min(2*delay, l.cfg.RestartMax)
	}
}

func (l *Loop) died(err error, delay time.Duration) {
	l.mu.Lock()
	if l.state == LoopRunning {
		l.state = LoopRestarting
	}
	l.restarts++
	l.lastErr = err
	l.mu.Unlock()
	l.cfg.Logger.Error("loop died and will be restarted",
		zap.String("loop", l.cfg.Name), zap.Duration("after", delay), zap.Error(err), StackField(err))
	if l.cfg.OnRestart == nil {
		return
	}
	if err := Guard(func() error { l.cfg.OnRestart(l.cfg.Name); return nil }); err != nil {
		l.cfg.Logger.Error("counting a restart panicked", zap.String("loop", l.cfg.Name), zap.Error(err), StackField(err))
	}
}

func (l *Loop) revived() {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == LoopRestarting {
		l.state = LoopRunning
	}
	l.lastBeat, l.resting = now, false
}

func (l *Loop) ended() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = LoopStopped
	l.cancel()
	close(l.done)
}
