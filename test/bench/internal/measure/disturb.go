package measure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/test/bench/internal/board"
	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/report"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
	"github.com/tasker-go/tasker/test/bench/peers"
)

// idleReaders is how many transactions idle at once.
const idleReaders = 8

// disturbance is an action on the database while it is busy.
type disturbance struct {
	key, label string
	// begin causes it; end lifts it. nil if the load itself is the disturbance.
	begin func(ctx context.Context, d *rig.Database) (end func(context.Context) error, err error)
	// burst is the factor of the load over the sustained rate.
	burst float64
}

func disturbances() []disturbance {
	return []disturbance{
		{key: "snapshot", label: "held snapshot", begin: holdSnapshot},
		{key: "burst", label: "2 × overload burst", burst: 2},
		{key: "readers", label: "idle-in-transaction readers", begin: idleInTransaction},
		{key: "autovacuum", label: "autovacuum off", begin: stopAutovacuum},
	}
}

func allDisturbances() []string {
	var keys []string
	for _, d := range disturbances() {
		keys = append(keys, d.key)
	}
	return keys
}

// holdSnapshot keeps a transaction open that has an id and a snapshot.
func holdSnapshot(ctx context.Context, d *rig.Database) (func(context.Context) error, error) {
	conn, err := d.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := board.Read(ctx, conn, true); err != nil {
		rig.CloseConn(conn)
		return nil, err
	}
	if _, err := conn.Exec(ctx, `select pg_current_xact_id()`); err != nil {
		rig.CloseConn(conn)
		return nil, fmt.Errorf("draw a transaction id: %w", err)
	}
	return func(context.Context) error { rig.CloseConn(conn); return nil }, nil
}

// idleInTransaction opens readers that have read and then idle; every second one keeps
// its snapshot.
func idleInTransaction(ctx context.Context, d *rig.Database) (func(context.Context) error, error) {
	var conns []*pgx.Conn
	end := func(context.Context) error {
		for _, c := range conns {
			rig.CloseConn(c)
		}
		return nil
	}
	for i := range idleReaders {
		conn, err := d.Connect(ctx)
		if err != nil {
			return nil, err
		}
		conns = append(conns, conn)
		if err := board.Read(ctx, conn, i%2 == 0); err != nil {
			_ = end(ctx)
			return nil, err
		}
	}
	return end, nil
}

func stopAutovacuum(ctx context.Context, d *rig.Database) (func(context.Context) error, error) {
	end := func(ctx context.Context) error {
		return d.Exec(ctx, `alter system reset autovacuum`, `select pg_reload_conf()`)
	}
	return end, d.Exec(ctx, `alter system set autovacuum = off`, `select pg_reload_conf()`)
}

// disturb measures the rate before, during and after disturbances.
func (b *Bench) disturb(ctx context.Context) error {
	t := b.Report.Table(fmt.Sprintf("Disturbances of %v, one-step tasks with creation going on", b.Sizes.Hold),
		"what", "system", "tasks/s before", "meanwhile", "last quarter", "last quarter ÷ before", "95 % again after s")
	for _, d := range disturbances() {
		if !slices.Contains(b.Sizes.Disturbances, d.key) {
			for _, f := range []string{".ratio", ".recovery_s"} {
				b.Report.Missing("disturb."+d.key+f, "not part of a short run")
			}
			continue
		}
		samples, err := b.disturbOurs(ctx, d, b.Sizes)
		if err != nil {
			return fmt.Errorf("%s: %w", d.label, err)
		}
		b.judge(t, "disturb."+d.key, d.label, "ours", samples, b.Sizes)
		if d.key == "snapshot" {
			if samples, err = b.disturbRiver(ctx, d, b.Sizes); err != nil {
				return fmt.Errorf("%s of River: %w", d.label, err)
			}
			b.judge(t, "peer.river-tuned.snapshot", d.label, "River tuned", samples, b.Sizes)
		}
	}
	return nil
}

// judge derives the figures of a disturbance and adds its row.
func (b *Bench) judge(t *report.Table, key, label, system string, samples []stats.Sample, z Sizes) {
	begin, end := warmUp+z.Before, warmUp+z.Before+z.Hold
	before := stats.Rate(samples, warmUp, begin)
	meanwhile, last := stats.Rate(samples, begin, end), stats.Rate(samples, end-z.Hold/4, end)
	recovered := fmt.Sprintf("not within %v", z.After)
	// If it never recovered, the watched time is the known minimum.
	took, ok := stats.Recovery(samples, end, time.Second, 0.95*before)
	if ok {
		recovered = sec(took)
		b.Report.Set(key+".recovery_s", took.Seconds())
	} else {
		b.Report.Missing(key+".recovery_s", recovered)
		if z.After >= 10*time.Second {
			b.Report.Set(key+".recovery_s", z.After.Seconds())
		}
	}
	b.Report.Set(key+".ratio", last/before)
	t.Add(label, system, num(before), num(meanwhile), num(last), num(last/before), recovered)
}

func (b *Bench) disturbOurs(ctx context.Context, d disturbance, z Sizes) ([]stats.Sample, error) {
	feed := feedFor(load.Plain)
	if d.burst > 0 {
		rate, err := b.sustainedPlain(ctx)
		if err != nil {
			return nil, err
		}
		feed.Rate = func(at time.Duration) float64 {
			if at >= warmUp+z.Before && at < warmUp+z.Before+z.Hold {
				return d.burst * rate
			}
			return 0
		}
	}
	s, err := b.fleet(ctx, b.Rig.Stock(), rig.FleetOptions{}, load.Plain, 1, 1)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return b.disturbed(ctx, s, s.Database, d, feed, z)
}

func (b *Bench) disturbRiver(ctx context.Context, d disturbance, z Sizes) ([]stats.Sample, error) {
	o, err := b.other(ctx, b.Rig.Stock(), "river-tuned")
	if err != nil {
		return nil, err
	}
	defer o.Close()
	if err := o.Start(b.Self, peers.Pace{}); err != nil {
		return nil, err
	}
	river := d
	river.begin = holdOther
	return b.disturbed(ctx, o, o.Database, river, feedFor(load.Plain), z)
}

// holdOther holds a snapshot of a database that has none of our tables.
func holdOther(ctx context.Context, d *rig.Database) (func(context.Context) error, error) {
	conn, err := d.Connect(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range []string{`begin isolation level repeatable read`, `select pg_current_xact_id(), count(*) from pg_class`} {
		if _, err := conn.Exec(ctx, s); err != nil {
			rig.CloseConn(conn)
			return nil, fmt.Errorf("hold a snapshot: %w", err)
		}
	}
	return func(context.Context) error { rig.CloseConn(conn); return nil }, nil
}

// disturbed keeps a system busy and disturbs it for a while.
func (b *Bench) disturbed(ctx context.Context, s load.System, db *rig.Database, d disturbance, feed load.Feed, z Sizes) ([]stats.Sample, error) {
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { done <- d.cause(ctx, db, warmUp+z.Before, z.Hold) }()
	samples, err := load.Keep(ctx, s, feed, warmUp+z.Before+z.Hold+z.After)
	cancel()
	if e := <-done; e != nil && err == nil {
		err = e
	}
	return samples, err
}

// cause waits, begins, waits and ends the disturbance.
func (d *disturbance) cause(ctx context.Context, db *rig.Database, after, lasting time.Duration) error {
	if d.begin == nil {
		return nil
	}
	if err := wait(ctx, after); err != nil {
		return err
	}
	end, err := d.begin(ctx, db)
	if err != nil {
		return err
	}
	err = wait(ctx, lasting)
	endCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if e := end(endCtx); e != nil {
		return e
	}
	return err
}
