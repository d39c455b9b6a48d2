package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/bench/internal/load"
	"github.com/tasker-go/tasker/bench/internal/report"
	"github.com/tasker-go/tasker/bench/internal/rig"
	"github.com/tasker-go/tasker/bench/peers"
	"github.com/tasker-go/tasker/internal/fleet"
)

// counters are what the database has counted about itself so far.
type counters struct {
	wal                         float64 // bytes
	inserted, updated, hot, del float64 // rows of all tables
	commits, statements         float64
}

// read reads the counters of a database; those of sessions that live may be
// late, so the daemons should have ended. What this program asks with this
// very statement is left out.
func (c *counters) read(ctx context.Context, db *pgx.Conn) error {
	const query = `/* bench counters */
		select pg_current_wal_insert_lsn() - '0/0'::pg_lsn,
		       (select sum(n_tup_ins) from pg_stat_user_tables), (select sum(n_tup_upd) from pg_stat_user_tables),
		       (select sum(n_tup_hot_upd) from pg_stat_user_tables), (select sum(n_tup_del) from pg_stat_user_tables),
		       (select xact_commit from pg_stat_database where datname = current_database()),
		       (select coalesce(sum(calls), 0) from pg_stat_statements s join pg_database d on d.oid = s.dbid
		        where datname = current_database() and query not like '%bench counters%')`
	if err := db.QueryRow(ctx, query).Scan(&c.wal, &c.inserted, &c.updated, &c.hot, &c.del, &c.commits, &c.statements); err != nil {
		return fmt.Errorf("read the counters of the database: %w", err)
	}
	return nil
}

// since is what has been counted since an earlier time, per task.
func (c counters) since(before counters, tasks float64) counters {
	return counters{
		wal: (c.wal - before.wal) / tasks, inserted: (c.inserted - before.inserted) / tasks, updated: (c.updated - before.updated) / tasks,
		hot: (c.hot - before.hot) / tasks, del: (c.del - before.del) / tasks,
		commits: (c.commits - before.commits) / tasks, statements: (c.statements - before.statements) / tasks,
	}
}

// processes are the times and the memory of what runs, so far.
type processes struct {
	postgres, orchestrator, worker time.Duration
	orchestratorMB, workerMB       float64
	goroutines                     string
}

func (p *processes) read(ctx context.Context, server *rig.Cluster, s *ours) (err error) {
	if p.postgres, err = rig.ServerCPU(server.PID()); err != nil || s == nil {
		return err
	}
	for _, d := range []struct {
		list []*fleet.Process
		cpu  *time.Duration
		mb   *float64
	}{{s.Orchestrators, &p.orchestrator, &p.orchestratorMB}, {s.Workers, &p.worker, &p.workerMB}} {
		metrics, err := rig.Scrape(ctx, d.list)
		if err != nil {
			return err
		}
		for _, process := range d.list {
			if *d.cpu, err = rig.CPU(process.PID()); err != nil {
				return err
			}
			if *d.mb, err = rig.PeakMB(process.PID()); err != nil {
				return err
			}
			if metrics.Has("go_goroutines") {
				p.goroutines += num(metrics.Sum("go_goroutines")) + " "
			}
		}
	}
	return nil
}

// expense is what a piece of work has cost, per task.
type expense struct {
	counters
	postgresUS, orchestratorUS, workerUS float64
	memory                               processes
}

// cost measures on a server that counts statements.
func (b *Bench) cost(ctx context.Context) error {
	t := b.Report.Table("Cost per task, creation included", "system", "work", "WAL kB", "rows inserted", "updated", "of these HOT", "deleted",
		"row versions left", "statements", "commits", "PostgreSQL CPU µs", "orchestrator CPU µs", "worker CPU µs", "peak MB", "goroutines")
	t.Notes = []string{"Measured on a server with pg_stat_statements, so its settings are not stock. Tasks are created in bulk, then drained.",
		"Row versions left are those that updates and deletes leave to the vacuum. Memory and goroutines: orchestrator, worker."}
	server, err := b.Rig.Observed(ctx)
	if err != nil {
		return err
	}
	plain, err := b.costOurs(ctx, server, load.Plain, b.Sizes.Cost)
	if err != nil {
		return err
	}
	plain.row(t, "ours", "one-step")
	b.Report.Set("cost.plain.wal_kb", plain.wal/1000)
	b.Report.Set("cost.plain.row_writes", plain.inserted+plain.updated+plain.del)
	b.Report.Set("cost.plain.statements", plain.statements)
	orchestrated, err := b.costOurs(ctx, server, load.Orchestrated, b.Sizes.Cost/4)
	if err != nil {
		return err
	}
	orchestrated.row(t, "ours", "linear-4 and diamond")
	b.Report.Set("cost.orchestrated.statements_per_step", orchestrated.statements/load.StepsPerTask(load.Orchestrated))
	river, err := b.costPeer(ctx, server, "river-tuned", b.Sizes.Cost)
	if err != nil {
		return err
	}
	river.row(t, "River tuned", "one job")
	b.Report.Set("peer.river-tuned.cost.wal_kb", river.wal/1000)
	b.Report.Set("peer.river-tuned.cost.row_writes", river.inserted+river.updated+river.del)
	b.Report.Set("peer.river-tuned.cost.statements", river.statements)
	return nil
}

func (e *expense) row(t *report.Table, system, work string) {
	memory := "–"
	if e.memory.workerMB > 0 {
		memory = num(e.memory.orchestratorMB) + " " + num(e.memory.workerMB)
	}
	t.Add(system, work, num(e.wal/1000), num(e.inserted), num(e.updated), num(e.hot), num(e.del), num(e.updated+e.del), num(e.statements), num(e.commits),
		num(e.postgresUS), num(e.orchestratorUS), num(e.workerUS), memory, e.memory.goroutines)
}

func (b *Bench) costOurs(ctx context.Context, server *rig.Cluster, mix []load.Workflow, n int) (e expense, err error) {
	s, err := b.fleet(ctx, server, rig.FleetOptions{}, mix, 1, 1)
	if err != nil {
		return e, err
	}
	defer s.Close()
	e, err = b.spend(ctx, server, s, s, n)
	if err != nil {
		return e, fmt.Errorf("cost of %d tasks: %w", n, err)
	}
	return e, nil
}

func (b *Bench) costPeer(ctx context.Context, server *rig.Cluster, name string, n int) (e expense, err error) {
	o, err := b.other(ctx, server, name)
	if err != nil {
		return e, err
	}
	defer o.Close()
	if err := o.Start(b.Self, peers.Pace{}); err != nil {
		return e, err
	}
	e, err = b.spend(ctx, server, o, nil, n)
	if err != nil {
		return e, fmt.Errorf("cost of %d jobs of %s: %w", n, name, err)
	}
	return e, nil
}

// stoppable is a system on a database that can be stopped.
type stoppable interface {
	load.System
	Stop()
	Connect(ctx context.Context) (*pgx.Conn, error)
}

// spend has the system, whose workers run, do n tasks, and tells what it cost.
func (b *Bench) spend(ctx context.Context, server *rig.Cluster, system stoppable, s *ours, n int) (e expense, err error) {
	db, err := system.Connect(ctx)
	if err != nil {
		return e, err
	}
	defer rig.CloseConn(db)
	var before, after counters
	var began, ended processes
	// What was written when the daemons started is counted with the tasks; so
	// many tasks make it disappear.
	if err := before.read(ctx, db); err != nil {
		return e, err
	}
	if err := began.read(ctx, server, s); err != nil {
		return e, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := system.Submit(ctx, n); err != nil {
		return e, err
	}
	if err := load.Await(ctx, system, int64(n)); err != nil {
		return e, err
	}
	if err := ended.read(ctx, server, s); err != nil {
		return e, err
	}
	if s != nil {
		s.board.Close() // its sessions, too, must have told what they did
		s.board = nil
	}
	system.Stop()
	if err := after.settle(ctx, db); err != nil {
		return e, err
	}
	tasks := float64(n)
	e.counters, e.memory = after.since(before, tasks), ended
	micros := func(d time.Duration) float64 { return float64(d.Microseconds()) / tasks }
	e.postgresUS, e.orchestratorUS, e.workerUS = micros(ended.postgres-began.postgres), micros(ended.orchestrator-began.orchestrator), micros(ended.worker-began.worker)
	return e, nil
}

// settle reads the counters until they stay as they are.
func (c *counters) settle(ctx context.Context, db *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for same := 0; same < 2; {
		last := *c
		if err := wait(ctx, 300*time.Millisecond); err != nil {
			return err
		}
		if err := c.read(ctx, db); err != nil {
			return err
		}
		if last.inserted == c.inserted && last.updated == c.updated && last.del == c.del {
			same++
		} else {
			same = 0
		}
	}
	return nil
}
