package measure

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/report"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
)

// dearest are the statements with the largest total time.
const dearest = `
select s.calls, s.total_exec_time, s.mean_exec_time, s.rows::float8 / s.calls, (s.shared_blks_hit + s.shared_blks_read)::float8 / s.calls,
       s.wal_bytes::float8 / s.calls, left(regexp_replace(regexp_replace(s.query, '--[^\n]*', '', 'g'), '\s+', ' ', 'g'), 90)
from pg_stat_statements s join pg_database d on d.oid = s.dbid
where d.datname = current_database() and s.calls > 0 order by s.total_exec_time desc limit 12`

// statements shows where the database spends its time under a steady load of
// plain tasks and of linear-4 and diamonds.
func (b *Bench) statements(ctx context.Context) error {
	server, err := b.Rig.Observed(ctx)
	if err != nil {
		return err
	}
	for _, l := range []struct {
		name string
		mix  []load.Workflow
	}{{"one-step", load.Plain}, {"linear-4 and diamond", load.Orchestrated}} {
		s, err := b.fleet(ctx, server, rig.FleetOptions{}, l.mix, 1, 1)
		if err != nil {
			return err
		}
		defer s.Close()
		samples, err := load.Keep(ctx, s, feedFor(l.mix), warmUp+b.Sizes.Steady)
		if err != nil {
			return err
		}
		rate := stats.Rate(samples, warmUp, warmUp+b.Sizes.Steady)
		t := b.Report.Table(fmt.Sprintf("Dearest statements, sustained %s at %s tasks/s", l.name, num(rate)),
			"calls", "ms", "ms per call", "rows per call", "buffers per call", "WAL bytes per call", "statement")
		s.Stop()
		if err := addStatements(ctx, s.Database, t); err != nil {
			return err
		}
	}
	return nil
}

func addStatements(ctx context.Context, d *rig.Database, t *report.Table) error {
	db, err := d.Connect(ctx)
	if err != nil {
		return err
	}
	defer rig.CloseConn(db)
	rows, err := db.Query(ctx, dearest)
	if err != nil {
		return fmt.Errorf("read the statements: %w", err)
	}
	var (
		calls                               int64
		total, mean, returned, buffers, wal float64
		text                                string
	)
	_, err = pgx.ForEachRow(rows, []any{&calls, &total, &mean, &returned, &buffers, &wal, &text}, func() error {
		t.Add(calls, num(total), num(mean), num(returned), num(buffers), num(wal), text)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the statements: %w", err)
	}
	return nil
}
