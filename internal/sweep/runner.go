package sweep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// Errors of RunNow.
var (
	// ErrUnknown: there is no sweep of that name here.
	ErrUnknown = errors.New("unknown sweep")
	// ErrRunning: another replica is running the sweep.
	ErrRunning = errors.New("the sweep is running already")
)

// Leases assign sweeps to the replicas of a fleet; *store.Store does.
type Leases interface {
	// TakeSweep takes a sweep whose interval has passed, or with now any sweep that is
	// not running; taken is false when it is not available.
	TakeSweep(ctx context.Context, name string, holder uuid.UUID, interval, lease time.Duration, now bool) (taken bool, err error)
	// EndSweep releases the lease and records the result of the run.
	EndSweep(ctx context.Context, name string, holder uuid.UUID, result any) error
}

// RunnerConfig describes a [Runner]. Leases and Holder are required.
type RunnerConfig struct {
	Leases Leases
	// Holder is this process.
	Holder uuid.UUID
	// Jitter is the largest random share of an interval, 0 to 1, that is added to the
	// wait of a replica, so that replicas do not come all at once; default 0.1, negative
	// for none.
	Jitter  float64
	Logger  *zap.Logger        // default none
	Metrics *telemetry.Metrics // default none
}

// Runner runs sweeps until it is stopped. It implements lifecycle.Service and is safe for
// concurrent use.
type Runner struct {
	sweepers []*sweeper
	group    *lifecycle.Group
}

// NewRunner returns a runner of jobs that is not started. It returns an error when a job
// is incomplete or a name occurs twice.
func NewRunner(cfg RunnerConfig, jobs ...Job) (*Runner, error) {
	if cfg.Jitter == 0 {
		cfg.Jitter = 0.1
	}
	cfg.Jitter = min(max(cfg.Jitter, 0), 1)
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	cfg.Metrics = cfg.Metrics.OrDiscard()
	r := &Runner{}
	loops := make([]*lifecycle.Loop, 0, len(jobs))
	for _, j := range jobs {
		if j.Name == "" || j.Run == nil || j.Interval <= 0 || j.Lease <= 0 {
			return nil, fmt.Errorf("sweep %q: name, interval, lease and function are required", j.Name)
		}
		if r.sweeper(j.Name) != nil {
			return nil, fmt.Errorf("duplicate sweep %q", j.Name)
		}
		s := newSweeper(cfg, j)
		r.sweepers, loops = append(r.sweepers, s), append(loops, s.loop)
	}
	r.group = lifecycle.NewGroup("sweeps", loops...)
	return r, nil
}

// Name implements lifecycle.Service.
func (r *Runner) Name() string { return r.group.Name() }

// Start implements lifecycle.Service. The first look at each sweep comes within seconds.
func (r *Runner) Start(ctx context.Context) error { return r.group.Start(ctx) }

// Stop implements lifecycle.Service. It cancels a running sweep and releases its lease.
func (r *Runner) Stop(ctx context.Context) error { return r.group.Stop(ctx) }

// Sweeps returns the names of the sweeps in their configured order.
func (r *Runner) Sweeps() []string {
	names := make([]string, len(r.sweepers))
	for i, s := range r.sweepers {
		names[i] = s.job.Name
	}
	return names
}

// RunNow runs a sweep at once, due or not, and whether or not the runner has been
// started. A dry run takes no lease and leaves no trace in the database; it waits only
// for a run in this process. Any other run takes the lease, and the next run of the fleet
// is then one interval away. A sweep that is dry by configuration stays dry.
//
// The error is the error of the run, whose record holds what was done before, or wraps
// ErrUnknown or ErrRunning.
func (r *Runner) RunNow(ctx context.Context, name string, dry bool) (Run, error) {
	s := r.sweeper(name)
	if s == nil {
		return Run{}, fmt.Errorf("%w: %q", ErrUnknown, name)
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return Run{}, fmt.Errorf("%w in this process: %w", ErrRunning, ctx.Err())
	}
	defer func() { <-s.turn }()
	if dry || s.job.DryRun {
		ctx, cancel := context.WithTimeout(ctx, s.job.Lease)
		defer cancel()
		return s.run(ctx, true)
	}
	run, taken, err := s.once(ctx, true)
	if err == nil && !taken {
		err = fmt.Errorf("%w: %s", ErrRunning, name)
	}
	return run, err
}

func (r *Runner) sweeper(name string) *sweeper {
	for _, s := range r.sweepers {
		if s.job.Name == name {
			return s
		}
	}
	return nil
}
