package measure

import (
	"context"
	"errors"
	"time"

	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/fleet"
)

// usage is the CPU time and the memory used so far. A single process for everything
// counts as an orchestrator.
type usage struct {
	postgres, orchestrator, worker time.Duration
	orchestratorMB, workerMB       float64
	goroutines                     string
}

// cpu is the time of all.
func (u usage) cpu() time.Duration { return u.postgres + u.orchestrator + u.worker }

// measured is a system on a database that reports its usage, and can be stopped.
type measured interface {
	stoppable
	usage(ctx context.Context) (usage, error)
}

func (s *ours) usage(ctx context.Context) (u usage, err error) {
	if u.postgres, err = rig.ServerCPU(s.Cluster.PID()); err != nil {
		return u, err
	}
	for _, d := range []struct {
		list []*fleet.Process
		cpu  *time.Duration
		mb   *float64
	}{{s.Orchestrators, &u.orchestrator, &u.orchestratorMB}, {s.Workers, &u.worker, &u.workerMB}} {
		for _, process := range d.list {
			if err := u.add(ctx, process.PID(), []*fleet.Process{process}, d.cpu, d.mb); err != nil {
				return u, err
			}
		}
	}
	return u, nil
}

func (e *oneProcess) usage(ctx context.Context) (u usage, err error) {
	if u.postgres, err = rig.ServerCPU(e.Cluster.PID()); err != nil {
		return u, err
	}
	return u, u.add(ctx, e.PID(), e.Daemons[:1], &u.orchestrator, &u.orchestratorMB)
}

func (o *other) usage(context.Context) (u usage, err error) {
	u.postgres, err = rig.ServerCPU(o.Cluster.PID())
	var e error
	u.worker, e = rig.CPU(o.work.PID())
	return u, errors.Join(err, e)
}

// add adds the usage of a process that serves the metrics of daemons.
func (u *usage) add(ctx context.Context, pid int, daemons []*fleet.Process, cpu *time.Duration, mb *float64) error {
	spent, err := rig.CPU(pid)
	if err != nil {
		return err
	}
	peak, err := rig.PeakMB(pid)
	if err != nil {
		return err
	}
	metrics, err := rig.Scrape(ctx, daemons)
	if err != nil {
		return err
	}
	*cpu, *mb = *cpu+spent, max(*mb, peak)
	u.goroutines += num(metrics.Sum("go_goroutines")) + " "
	return nil
}
