package sweep

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
)

const (
	// firstWithin bounds the time from the start of a replica to its first round.
	firstWithin = 5 * time.Second
	// giveBackTimeout bounds the end of a run, whose own context may be over.
	giveBackTimeout = 5 * time.Second
	// maxSilence is how much longer than planned a round may take.
	maxSilence = time.Minute
)

// sweeper is one job and the loop that runs it.
type sweeper struct {
	cfg  RunnerConfig
	job  Job
	loop *lifecycle.Loop
	turn chan struct{} // of capacity 1: held while this process runs the job

	failures int  // of consecutive rounds; of the loop only
	again    bool // the last run failed: do not wait for the interval; of the loop only

	mu     sync.Mutex
	health Health
}

func newSweeper(cfg RunnerConfig, job Job) *sweeper {
	cfg.Metrics.Known("sweep", job.Name)
	s := &sweeper{cfg: cfg, job: job, turn: make(chan struct{}, 1)}
	s.cfg.Logger = cfg.Logger.With(zap.String("sweep", job.Name))
	s.loop = lifecycle.NewLoop(lifecycle.LoopConfig{
		Name:       "sweep-" + job.Name,
		Run:        s.rounds,
		MaxSilence: 2*job.Interval + job.Lease + maxSilence,
		OnRestart:  cfg.Metrics.Restarted,
		Logger:     cfg.Logger,
	})
	return s
}

// rounds is the loop of rounds and waits.
func (s *sweeper) rounds(ctx context.Context) error {
	timer := time.NewTimer(time.Duration(rand.Float64() * float64(min(firstWithin, s.job.Interval))))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		s.loop.Beat()
		wait := s.round(ctx)
		s.loop.Beat()
		timer.Reset(wait)
	}
}

// round tries to run the sweep and returns the wait until the next try.
func (s *sweeper) round(ctx context.Context) time.Duration {
	if s.job.Wanted != nil && !s.job.Wanted() {
		s.reached()
		return s.later(s.job.Interval)
	}
	begin := time.Now()
	taken, err := s.tryOnce(ctx)
	s.watch(ctx)
	s.again = taken && err != nil
	if err != nil {
		s.failures++
		backoff := deploymode.Backoff{Base: time.Second, Max: s.job.Interval, Multiplier: 2, Jitter: 0.1}
		return backoff.Delay(s.failures-1, rand.Float64())
	}
	s.failures = 0
	if !taken {
		// Another replica runs it. Two looks per interval notice soon enough when it no
		// longer does.
		return s.later(s.job.Interval / 2)
	}
	// A long run must be followed by a pause.
	return max(s.later(s.job.Interval)-time.Since(begin), s.job.Interval/10)
}

// later is d with jitter. It is added, because a replica that comes too early for the
// interval does not get the lease.
func (s *sweeper) later(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 + s.cfg.Jitter*rand.Float64()))
}

// tryOnce is once for the loop, which does not wait for a run that an operator requested.
func (s *sweeper) tryOnce(ctx context.Context) (taken bool, err error) {
	select {
	case s.turn <- struct{}{}:
	default:
		return false, nil
	}
	defer func() { <-s.turn }()
	_, taken, err = s.once(ctx, s.again)
	return taken, err
}

// once takes the sweep, runs it and releases it.
func (s *sweeper) once(ctx context.Context, now bool) (run Run, taken bool, err error) {
	// Counted from before the lease begins, so that the run ends before the lease.
	leased, cancel := context.WithTimeout(ctx, s.job.Lease)
	defer cancel()
	err = lifecycle.Guard(func() (err error) {
		taken, err = s.cfg.Leases.TakeSweep(leased, s.job.Name, s.cfg.Holder, s.job.Interval, s.job.Lease, now)
		return err
	})
	if err != nil {
		err = fmt.Errorf("take the sweep %s: %w", s.job.Name, err)
		if ctx.Err() == nil {
			s.failed(err)
		}
		return Run{}, false, err
	}
	if !taken {
		s.reached()
		return Run{}, false, nil
	}
	run, err = s.run(leased, s.job.DryRun)
	s.giveBack(ctx, run)
	return run, true, err
}

// giveBack ends the lease. A lease that cannot be released expires.
func (s *sweeper) giveBack(ctx context.Context, run Run) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	err := lifecycle.Guard(func() error { return s.cfg.Leases.EndSweep(ctx, s.job.Name, s.cfg.Holder, run) })
	if err != nil {
		s.cfg.Logger.Warn("recording the end of a sweep failed; its lease will expire",
			zap.Error(err), lifecycle.StackField(err))
	}
}

// run calls the job and records the result.
func (s *sweeper) run(ctx context.Context, dry bool) (Run, error) {
	run := Run{Sweep: s.job.Name, DryRun: dry, Outcome: OutcomeOK}
	begin := time.Now()
	err := lifecycle.Guard(func() (err error) {
		run.Result, err = s.job.Run(ctx, dry)
		return err
	})
	took := time.Since(begin)
	run.TookMS = took.Milliseconds()
	if err != nil {
		err = fmt.Errorf("run the sweep %s: %w", s.job.Name, err)
		run.Outcome, run.Error = outcomeOf(ctx, err), err.Error()
	}
	s.record(begin, took, run, err)
	return run, err
}

func outcomeOf(ctx context.Context, err error) Outcome {
	var panicked *lifecycle.PanicError
	switch {
	case errors.As(err, &panicked):
		return OutcomePanic
	case errors.Is(ctx.Err(), context.Canceled):
		return OutcomeStopped
	default:
		return OutcomeError
	}
}

// watch sets the gauges of the job.
func (s *sweeper) watch(ctx context.Context) {
	if s.job.Watch == nil || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.job.Lease)
	defer cancel()
	err := lifecycle.Guard(func() error { return s.job.Watch(ctx) })
	if err != nil && ctx.Err() == nil {
		s.cfg.Logger.Debug("could not read the gauges of a sweep", zap.Error(err), lifecycle.StackField(err))
	}
}
