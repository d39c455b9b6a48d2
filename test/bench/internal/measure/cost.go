package measure

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/report"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/peers"
)

// expense is the cost of some work, per task.
type expense struct {
	counters
	postgresUS, orchestratorUS, workerUS float64
	usage
}

// creatingClients make tasks one per request.
const creatingClients = 64

// cost measures on a server that counts statements.
func (b *Bench) cost(ctx context.Context) error {
	t := b.Report.Table("Cost per task, creation included", "system", "work", "WAL kB", "rows inserted", "updated", "of these HOT", "deleted",
		"row versions left", "statements", "commits", "PostgreSQL CPU µs", "orchestrator CPU µs", "worker CPU µs", "peak MB", "goroutines")
	t.Notes = []string{"Measured on a server with pg_stat_statements, so its settings are not stock. Tasks are created in bulk, then drained.",
		"Row versions left are those that updates and deletes leave to the vacuum. Memory and goroutines: orchestrator, worker. One process counts as an orchestrator.",
		fmt.Sprintf("Created only: one task per request, %d clients, no worker. Commits are round trips that end a transaction.", creatingClients)}
	server, err := b.Rig.Observed(ctx)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		key, system, work string
		measure           func(context.Context, *rig.Cluster) (expense, error)
	}{
		{"cost.plain", "ours", "one-step", func(ctx context.Context, server *rig.Cluster) (expense, error) {
			return b.costOurs(ctx, server, load.Plain, b.Sizes.Cost)
		}},
		{"cost.orchestrated", "ours", "linear-4 and diamond", func(ctx context.Context, server *rig.Cluster) (expense, error) {
			return b.costOurs(ctx, server, load.Orchestrated, b.Sizes.Cost/4)
		}},
		{"cost.embedded", "ours, one process", "one-step", b.costOneProcess},
		{"cost.single", "ours", "created only", b.costCreation},
		{"peer.river-tuned.cost", "River tuned", "one job", b.costPeer},
	} {
		e, err := c.measure(ctx, server)
		if err != nil {
			return fmt.Errorf("cost of %s, %s: %w", c.system, c.work, err)
		}
		e.row(t, c.system, c.work)
		b.Report.Set(c.key+".wal_kb", e.wal/1000)
		b.Report.Set(c.key+".row_writes", e.inserted+e.updated+e.del)
		b.Report.Set(c.key+".dead_rows", e.updated+e.del)
		b.Report.Set(c.key+".statements", e.statements)
		b.Report.Set(c.key+".commits", e.commits)
	}
	b.Report.Set("cost.orchestrated.statements_per_step", b.Report.Figures["cost.orchestrated.statements"]/load.StepsPerTask(load.Orchestrated))
	return nil
}

func (e *expense) row(t *report.Table, system, work string) {
	memory := "–"
	if e.orchestratorMB > 0 {
		memory = strings.TrimSuffix(num(e.orchestratorMB)+" "+num(e.workerMB), " 0")
	}
	t.Add(system, work, num(e.wal/1000), num(e.inserted), num(e.updated), num(e.hot), num(e.del), num(e.updated+e.del), num(e.statements), num(e.commits),
		num(e.postgresUS), num(e.orchestratorUS), num(e.workerUS), memory, e.goroutines)
}

func (b *Bench) costOurs(ctx context.Context, server *rig.Cluster, mix []load.Workflow, n int) (e expense, err error) {
	s, err := b.fleet(ctx, server, rig.FleetOptions{}, mix, 1, 1)
	if err != nil {
		return e, err
	}
	defer s.Close()
	return spend(ctx, s, finishing(s, n))
}

func (b *Bench) costOneProcess(ctx context.Context, server *rig.Cluster) (e expense, err error) {
	s, err := b.oneProcess(ctx, server)
	if err != nil {
		return e, err
	}
	defer s.Close()
	return spend(ctx, s, finishing(s, b.Sizes.Cost))
}

// costCreation is the cost of a request that creates one task.
func (b *Bench) costCreation(ctx context.Context, server *rig.Cluster) (e expense, err error) {
	s, err := b.fleet(ctx, server, rig.FleetOptions{}, load.Plain, 1, 0)
	if err != nil {
		return e, err
	}
	defer s.Close()
	return spend(ctx, s, func(ctx context.Context) (int, error) {
		ctx, cancel := context.WithTimeout(ctx, b.Sizes.Create)
		defer cancel()
		took, err := s.creator.Singles(ctx, creatingClients)
		return len(took), err
	})
}

func (b *Bench) costPeer(ctx context.Context, server *rig.Cluster) (e expense, err error) {
	o, err := b.other(ctx, server, "river-tuned")
	if err != nil {
		return e, err
	}
	defer o.Close()
	if err := o.Start(b.Self, peers.Pace{}); err != nil {
		return e, err
	}
	return spend(ctx, o, finishing(o, b.Sizes.Cost))
}

// stoppable is a system on a database that can be stopped.
type stoppable interface {
	load.System
	Stop()
	Connect(ctx context.Context) (*pgx.Conn, error)
}

// finishing has a system, whose workers run, do n tasks.
func finishing(s load.System, n int) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		if err := s.Submit(ctx, n); err != nil {
			return 0, err
		}
		return n, load.Await(ctx, s, int64(n))
	}
}

// spend returns the cost of a system's work. Writes of the daemons' start are counted
// with the tasks; with many tasks they do not matter.
func spend(ctx context.Context, s measured, work func(context.Context) (tasks int, err error)) (e expense, err error) {
	db, err := s.Connect(ctx)
	if err != nil {
		return e, err
	}
	defer rig.CloseConn(db)
	var before, after counters
	if err := before.read(ctx, db); err != nil {
		return e, err
	}
	began, err := s.usage(ctx)
	if err != nil {
		return e, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	n, err := work(ctx)
	if err != nil {
		return e, err
	}
	if e.usage, err = s.usage(ctx); err != nil {
		return e, err
	}
	s.Stop() // the sessions must have reported their statistics
	if err := after.settle(ctx, db); err != nil {
		return e, err
	}
	tasks := float64(n)
	e.counters = after.since(before, tasks)
	micros := func(d time.Duration) float64 { return float64(d.Microseconds()) / tasks }
	e.postgresUS, e.orchestratorUS, e.workerUS = micros(e.postgres-began.postgres), micros(e.orchestrator-began.orchestrator), micros(e.worker-began.worker)
	return e, nil
}
