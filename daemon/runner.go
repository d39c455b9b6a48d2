package daemon

import (
	"context"
	"os"
	ossignal "os/signal"
	"syscall"
	"time"

	"github.com/sourcegraph/conc"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// overdueAfter is the extra time for a daemon that exceeds its stop time. Then the
// process ends: leases run out, and the supervisor need not kill it.
const overdueAfter = 5 * time.Second

// secondSignal is how long after the first signal another one is ignored: supervisors and
// terminals send the same request twice within moments (to the process and to its group),
// and forcing the end costs attempts.
const secondSignal = 2 * time.Second

// runner is one run of a daemon: start, signals, stop.
type runner struct {
	program Program
	opts    config.Options
	loaded  *config.Loaded // at the start
	log     *zap.Logger
	levels  *telemetry.Levels // of log
	status  *zap.Logger       // for logs at any level
	since   time.Time
	overdue time.Duration // overdueAfter
	ignore  time.Duration // secondSignal
	asked   time.Time     // when the first stop signal came; zero: none

	process process // nil until it runs
	signals signalled
	group   conc.WaitGroup // not awaited once the end is forced
}

// signalled are the signals that have arrived.
type signalled struct {
	stop   chan os.Signal // SIGTERM, SIGINT
	reload chan os.Signal // SIGHUP
	status chan os.Signal // SIGUSR1
}

// listen begins to receive the signals; the returned function ends that.
func listen() (s signalled, done func()) {
	s = signalled{stop: make(chan os.Signal, 2), reload: make(chan os.Signal, 1), status: make(chan os.Signal, 1)}
	ossignal.Notify(s.stop, syscall.SIGTERM, syscall.SIGINT)
	ossignal.Notify(s.reload, syscall.SIGHUP)
	notifyStatus(s.status)
	return s, func() {
		ossignal.Stop(s.stop)
		ossignal.Stop(s.reload)
		ossignal.Stop(s.status)
	}
}

// run runs the process and returns the exit code.
func (r *runner) run() int {
	memory := tuneMemory(os.Getenv)
	var done func()
	r.signals, done = listen()
	defer done()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if code, over := r.start(ctx, cancel); over {
		return code
	}
	code := r.serve(ctx, memory)
	return max(code, r.shutDown())
}

// begun is the result of starting.
type begun struct {
	process process
	err     error
}

// start makes the process and starts it, in a goroutine so that a signal can end the wait
// for a database. over means that the run has ended with code.
func (r *runner) start(ctx context.Context, cancel context.CancelFunc) (code int, over bool) {
	started := make(chan begun, 1)
	r.group.Go(func() {
		var b begun
		b.err = lifecycle.Guard(func() (err error) { // handlers are registered here
			if b.process, err = r.program.New(ctx, r.loaded, r.log); err != nil {
				return err
			}
			return b.process.Start(ctx)
		})
		started <- b
	})
	stopped := false
	for {
		select {
		case b := <-started:
			switch {
			case b.err == nil && stopped: // it was up a moment before
				r.process = b.process
				return r.shutDown(), true
			case b.err == nil:
				r.process = b.process
				return exitOK, false
			case stopped:
				r.log.Debug("gave up starting", zap.Error(b.err))
				return exitOK, true
			}
			r.log.Error("could not start", zap.Error(b.err), lifecycle.StackField(b.err))
			return exitFailure, true
		case s := <-r.signals.stop:
			if r.forces(s) {
				r.log.Warn("forced end while starting", zap.Stringer("signal", s))
				return exitFailure, true
			}
			if stopped {
				continue
			}
			r.log.Info("stopped while starting", zap.Stringer("signal", s))
			stopped = true
			cancel()
		case <-r.signals.status:
			r.logStatus()
		}
	}
}

// serve handles the signals until the process must end. Reloading may take a while, and
// must not delay the end.
func (r *runner) serve(ctx context.Context, memory *memory) (code int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	follow := time.NewTicker(memoryInterval)
	defer follow.Stop()
	reload, reloaded := r.signals.reload, make(chan struct{}, 1)
	for {
		select {
		case <-follow.C:
			memory.follow()
		case s := <-r.signals.stop:
			r.forces(s) // the first one never forces
			r.log.Info("stopping", zap.Stringer("signal", s))
			return exitOK
		case err := <-r.process.Failed():
			r.log.Error("the daemon gives up", zap.Error(err))
			return exitFailure
		case <-r.signals.status:
			r.logStatus()
		case <-reload:
			reload = nil // one at a time
			r.group.Go(func() {
				defer func() { reloaded <- struct{}{} }()
				if err := lifecycle.Guard(func() error { return r.reload(ctx) }); err != nil {
					r.log.Error("the new configuration is not in force", zap.Error(err), lifecycle.StackField(err))
				}
			})
		case <-reloaded:
			reload = r.signals.reload
		}
	}
}

// reload applies the settings that may change at run time. If the configuration is
// invalid, the old one stays.
func (r *runner) reload(ctx context.Context) error {
	next, _, err := load(r.opts)
	if err != nil {
		return err
	}
	warnOf(r.log, next)
	if err := r.levels.Configure(next.Common.Telemetry.LogLevel, next.Common.Telemetry.LogLevels); err != nil {
		return err
	}
	if err := r.process.reload(ctx, next); err != nil {
		return err
	}
	r.log.Info("reloaded the configuration")
	return nil
}

// forces records a stop signal and reports whether it ends the process at once: not the
// first one, nor one right after it.
func (r *runner) forces(s os.Signal) bool {
	if r.asked.IsZero() {
		r.asked = time.Now()
		return false
	}
	if time.Since(r.asked) < r.ignore {
		r.log.Info("a second signal this soon is ignored; a later one ends the process at once", zap.Stringer("signal", s))
		return false
	}
	return true
}

// shutDown stops the process. It is bounded by the stop time, by overdueAfter beyond it,
// and by a later signal.
func (r *runner) shutDown() int {
	limit := r.program.ShutdownTimeout(r.loaded)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	ended := make(chan error, 1)
	r.group.Go(func() { ended <- lifecycle.Guard(func() error { return r.process.Stop(ctx) }) })
	overdue := time.NewTimer(limit + r.overdue)
	defer overdue.Stop()
	for {
		select {
		case err := <-ended:
			r.group.Wait()
			if err := joined(err); err != nil {
				r.log.Error("stopped, but not in order", zap.Error(err), lifecycle.StackField(err))
				return exitFailure
			}
			r.log.Info("stopped", zap.Duration("after", time.Since(r.since).Round(time.Second)))
			return exitOK
		case s := <-r.signals.stop:
			first := r.asked.IsZero()
			if !r.forces(s) {
				if first { // the daemon had ended by itself
					r.log.Info("stopping already", zap.Stringer("signal", s))
				}
				continue
			}
			r.log.Warn("forced to end; leases of running steps will run out", zap.Stringer("signal", s))
			return exitFailure
		case <-r.signals.status:
			r.logStatus()
		case <-overdue.C:
			r.logStatus()
			r.log.Error("did not stop in time and is ended; leases of running steps will run out", zap.Duration("limit", limit))
			return exitFailure
		}
	}
}
