package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/taskmaster"
	"github.com/tasker-go/tasker/worker"
)

// closeMoment is the least time for closing the pool.
const closeMoment = 500 * time.Millisecond

// loops are those of the daemon besides its engine.
func (s *shared) loops() []lifecycle.LoopHealth {
	list := []lifecycle.LoopHealth{s.counting.Health(), s.outages.Health()}
	for _, one := range s.signals.senders {
		list = append(list, one.Health())
	}
	if s.relay != nil {
		list = append(list, s.relay.Health().Loop)
	}
	for _, b := range s.bridges {
		list = append(list, b.Health())
	}
	return list
}

// alive reports whether all loops run, else which does not. A dead loop is restarted, so
// a daemon is unready in the meantime and recovers.
func alive(loops []lifecycle.LoopHealth) (ok bool, reason string) {
	for _, l := range loops {
		if l.Dead() {
			return false, "loop " + l.Name + " is not running"
		}
	}
	return true, ""
}

// supervised is the engine for the API, with the loops beside it.
type supervised struct {
	*orchestration.Orchestrator
	queues  *taskmaster.Service
	lending *lending // nil: there are no sessions
	beside  *shared
}

// supervised returns the engine as the API and the status see it.
func (d *Orchestrator) supervised() supervised {
	return supervised{d.engine, d.queues, d.lending, d.shared}
}

// SetMode implements rest.Status: waiting claims and the steps of sessions follow the mode of
// the engine.
func (s supervised) SetMode(ctx context.Context, mode deploymode.Mode) error {
	systems := []moded{s.queues}
	for _, system := range s.Systems() {
		systems = append(systems, system)
	}
	if s.lending != nil {
		systems = append(systems, s.lending.worker)
	}
	return setModes(ctx, mode, systems)
}

// moded has a mode that can be changed while it runs, see coordinator.EventSystem.
type moded interface {
	Mode() deploymode.Mode
	SetMode(ctx context.Context, mode deploymode.Mode) error
}

// setModes changes the mode of all systems, whatever their modes, or of none: after an error
// those that had changed get their former modes back, each within its own time limit.
func setModes(ctx context.Context, mode deploymode.Mode, systems []moded) (err error) {
	former := make([]deploymode.Mode, len(systems))
	for i, system := range systems {
		former[i] = system.Mode()
		if err = system.SetMode(ctx, mode); err == nil {
			continue
		}
		for k, changed := range systems[:i] {
			err = errors.Join(err, changed.SetMode(context.WithoutCancel(ctx), former[k]))
		}
		return err
	}
	return nil
}

// Health implements rest.Status.
func (s supervised) Health() map[string]coordinator.Health {
	list := s.Orchestrator.Health()
	list["queue_claims"] = s.queues.Health()
	return list
}

// Loops implements rest.Status.
func (s supervised) Loops() []lifecycle.LoopHealth {
	return append(s.Orchestrator.Loops(), s.beside.loops()...)
}

// Ready implements rest.Status.
func (s supervised) Ready() (ready bool, reason string) {
	if ready, reason := s.Orchestrator.Ready(); !ready {
		return ready, reason
	}
	return alive(s.beside.loops())
}

// supervisedWorker is the worker for the API.
type supervisedWorker struct {
	*worker.Worker
	daemon *Worker
}

// Health implements rest.Status.
func (s supervisedWorker) Health() map[string]coordinator.Health { return s.daemon.systems() }

// Loops implements rest.Status: the loops of the daemon, and those of the worker that
// should run and do not.
func (s supervisedWorker) Loops() []lifecycle.LoopHealth {
	list := s.daemon.loops()
	for _, name := range s.Worker.Health().DeadLoops {
		list = append(list, lifecycle.LoopHealth{Name: name, State: lifecycle.LoopRestarting})
	}
	return list
}

// Saturation implements rest.Status: the share of handlers in use.
func (s supervisedWorker) Saturation() float64 {
	h := s.Worker.Health()
	if h.Limit == 0 {
		return 0
	}
	return float64(h.Running) / float64(h.Limit)
}

// Ready implements rest.Status.
func (s supervisedWorker) Ready() (ready bool, reason string) {
	if ready, reason := s.Worker.Ready(); !ready {
		return ready, reason
	}
	return alive(s.daemon.loops())
}

// closeStore closes the pool. It waits at most until ctx ends, and a moment, for
// connections in use: the end of the process closes them.
func (s *shared) closeStore(ctx context.Context) error {
	closed := make(chan struct{})
	var group conc.WaitGroup // not awaited beyond ctx
	group.Go(func() {
		defer close(closed)
		s.store.Close()
	})
	moment := time.NewTimer(closeMoment)
	defer moment.Stop()
	select {
	case <-closed:
		return nil
	case <-moment.C:
	}
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("closing the pool: %d connections are in use: %w", s.store.PoolStat().Acquired, ctx.Err())
	}
}
