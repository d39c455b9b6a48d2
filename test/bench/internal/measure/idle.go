package measure

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/report"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/fleet"
)

// heartbeats are the statements by which daemons, listeners and pools show
// that they live; the end-to-end tests have the same list.
const heartbeats = `pg_notify|tasker\.workers|tasker\.processors|^-- ping|^;?$`

// settling is the time for daemons to become idle after their start.
const settling = 4 * time.Second

// idle watches idle fleets, one in each mode at the same time.
func (b *Bench) idle(ctx context.Context) error {
	t := b.Report.Table(fmt.Sprintf("Idle for %v, on a server that counts statements", b.Sizes.Idle),
		"mode", "daemon", "statements/s", "of these other than heartbeats", "CPU %", "peak MB")
	server, err := b.Rig.Observed(ctx)
	if err != nil {
		return err
	}
	modes := []string{"EventDrivenOnly", "Hybrid"}
	fleets := make([]*ours, len(modes))
	for i, mode := range modes {
		s, err := b.fleet(ctx, server, rig.FleetOptions{Mode: mode, Role: true}, load.Plain, 1, 1)
		if err != nil {
			return err
		}
		defer s.Close()
		s.board.Close() // its own sessions do not belong to the idle fleet
		s.board, fleets[i] = nil, s
	}
	if err := wait(ctx, settling); err != nil {
		return err
	}
	errs := make([]error, len(modes))
	rows := make([][]idleDaemon, len(modes))
	var wg sync.WaitGroup
	for i, s := range fleets {
		wg.Go(func() { rows[i], errs[i] = watchIdle(ctx, s, b.Sizes.Idle) })
	}
	wg.Wait()
	for i, mode := range modes {
		if errs[i] != nil {
			return fmt.Errorf("watch the fleet in %s: %w", mode, errs[i])
		}
		b.recordIdle(t, mode, rows[i])
	}
	return nil
}

// idleDaemon is the work of one idle daemon.
type idleDaemon struct {
	kind            fleet.Kind
	rate, cpu, peak float64
	other           int64
	texts           []string // of the other statements
}

func (b *Bench) recordIdle(t *report.Table, mode string, daemons []idleDaemon) {
	key := "idle." + strings.ToLower(mode) + "."
	others := 0.0
	for _, d := range daemons {
		b.Report.Set(key+string(d.kind)+".statements_rate", d.rate)
		b.Report.Set(key+string(d.kind)+".cpu_percent", d.cpu)
		others += float64(d.other)
		t.Add(mode, d.kind, num(d.rate), d.other, num(d.cpu), num(d.peak))
		for _, text := range d.texts {
			t.Notes = append(t.Notes, fmt.Sprintf("%s, %s: %s", mode, d.kind, text))
		}
	}
	b.Report.Set(key+"other_statements", others)
}

func watchIdle(ctx context.Context, s *ours, lasting time.Duration) ([]idleDaemon, error) {
	db, err := s.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer rig.CloseConn(db)
	daemons := []idleDaemon{{kind: fleet.Orchestrator}, {kind: fleet.Worker}}
	pids := []int{s.Orchestrators[0].PID(), s.Workers[0].PID()}
	var before [2]time.Duration
	if _, err := db.Exec(ctx, `select pg_stat_statements_reset(0, (select oid from pg_database where datname = current_database()), 0)`); err != nil {
		return nil, fmt.Errorf("begin to count statements: %w", err)
	}
	for i, pid := range pids {
		if before[i], err = rig.CPU(pid); err != nil {
			return nil, err
		}
	}
	begin := time.Now()
	if err := wait(ctx, lasting); err != nil {
		return nil, err
	}
	spent := time.Since(begin).Seconds()
	for i := range daemons {
		d := &daemons[i]
		now, err := rig.CPU(pids[i])
		if err != nil {
			return nil, err
		}
		d.cpu = (now - before[i]).Seconds() / spent * 100
		if d.peak, err = rig.PeakMB(pids[i]); err != nil {
			return nil, err
		}
		if err := d.count(ctx, db, rig.RoleOf(s.Database, d.kind), spent); err != nil {
			return nil, err
		}
	}
	return daemons, nil
}

// count reads the statements of a role.
func (d *idleDaemon) count(ctx context.Context, db *pgx.Conn, role string, spent float64) error {
	rows, err := db.Query(ctx, `
		select s.calls, s.query !~ $2, left(regexp_replace(s.query, '\s+', ' ', 'g'), 80)
		from pg_stat_statements s join pg_roles r on r.oid = s.userid join pg_database b on b.oid = s.dbid
		where r.rolname = $1 and b.datname = current_database()`, role, heartbeats)
	if err != nil {
		return fmt.Errorf("count the statements of %s: %w", role, err)
	}
	var (
		calls, total int64
		other        bool
		text         string
	)
	_, err = pgx.ForEachRow(rows, []any{&calls, &other, &text}, func() error {
		total += calls
		if other {
			d.other += calls
			d.texts = append(d.texts, fmt.Sprintf("%d × %s", calls, text))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("count the statements of %s: %w", role, err)
	}
	d.rate = float64(total) / spent
	return nil
}
