// Package faults causes faults on a rig, one at a time, and lifts them.
//
// What may not enter: which fault strikes when (schedule).
package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/test/chaos/internal/rig"
	"github.com/tasker-go/tasker/test/chaos/internal/schedule"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// Strike is a fault at work, by the clock of the machine.
type Strike struct {
	schedule.Fault
	Began, Ended time.Time
}

// bound is the longest time of a fault beyond its duration: an orderly stop takes its
// time while the database is unavailable.
const bound = 3 * time.Minute

// Run causes a fault, lets it last, and lifts it. The error says that the suite itself
// failed; the rig is repaired in any case.
func Run(ctx context.Context, r *rig.Rig, f schedule.Fault) (Strike, error) {
	ctx, cancel := context.WithTimeout(ctx, f.For+bound)
	defer cancel()
	if slices.Contains(schedule.Brokers(), f.Kind) && r.Broker == nil {
		return Strike{Fault: f}, fmt.Errorf("%v: the event source has no broker", f)
	}
	if f.Kind.OfServer() {
		release, err := r.TakeServer(ctx)
		if err != nil {
			return Strike{Fault: f}, fmt.Errorf("%v: %w", f, err)
		}
		defer release()
	}
	if f.Kind.OfBroker() {
		release, err := r.Broker.Take(ctx)
		if err != nil {
			return Strike{Fault: f}, fmt.Errorf("%v: %w", f, err)
		}
		defer release()
	}
	daemons := r.ByName(f.Targets)
	for _, d := range daemons {
		release, err := d.Take(ctx)
		if err != nil {
			return Strike{Fault: f}, fmt.Errorf("%v: %w", f, err)
		}
		defer release()
	}
	s := Strike{Fault: f, Began: time.Now()}
	err := strike(ctx, r, f, daemons)
	s.Ended = time.Now()
	if err != nil {
		return s, fmt.Errorf("%v: %w", f, err)
	}
	return s, nil
}

func strike(ctx context.Context, r *rig.Rig, f schedule.Fault, daemons []*rig.Daemon) error {
	switch f.Kind {
	case schedule.Kill:
		return during(ctx, f.For, daemons, func(d *rig.Daemon) error { d.Kill(); return nil }, (*rig.Daemon).Start)
	case schedule.Freeze:
		return during(ctx, f.For, daemons, (*rig.Daemon).Freeze, (*rig.Daemon).Thaw)
	case schedule.FreezeHolding:
		return during(ctx, f.For, daemons, freezeHolding(ctx, r), (*rig.Daemon).Thaw)
	case schedule.Cut:
		return during(ctx, f.For, daemons, func(d *rig.Daemon) error {
			for _, l := range d.LinksBut(f.Seed) {
				l.Cut()
			}
			return nil
		}, healed(ctx))
	case schedule.Slow:
		return during(ctx, f.For, daemons, onLinks(func(l *rig.Link) error { return l.Slow(f.Delay) }), healed(ctx))
	case schedule.HalfOpen:
		return during(ctx, f.For, daemons, onLinks((*rig.Link).HalfOpen), healed(ctx))
	case schedule.Deafen:
		return during(ctx, f.For, daemons, func(d *rig.Daemon) error { return d.Ears.HalfOpen() }, healed(ctx))
	case schedule.RestartServer:
		return r.Server().RestartImmediate(ctx)
	case schedule.StopServer:
		if err := r.Server().StopImmediate(ctx); err != nil {
			return err
		}
		return errors.Join(lifecycle.Pause(ctx, f.For), r.Server().Restart(ctx))
	case schedule.TerminateBackends:
		return terminate(ctx, r, f)
	case schedule.Roll:
		return roll(ctx, f, daemons)
	case schedule.Promote:
		return r.Promote(ctx)
	case schedule.FillWAL:
		return r.FillWAL(ctx, f.For)
	case schedule.KillBroker:
		return r.Broker.Kill(ctx, f.For)
	case schedule.WipeBroker:
		return r.Broker.Wipe(ctx, f.Seed%2 == 0)
	case schedule.FreezeBroker:
		return r.Broker.Freeze(ctx, f.For)
	case schedule.StarveBroker:
		return r.Broker.Starve(ctx, f.For)
	case schedule.FillBroker:
		return r.Broker.Fill(ctx, f.For)
	case schedule.PartBroker:
		return during(ctx, f.For, daemons, func(d *rig.Daemon) error { return part(d.Ears, f.Seed) }, healed(ctx))
	case schedule.SlowBroker:
		return during(ctx, f.For, daemons, func(d *rig.Daemon) error { return d.Ears.Slow(f.Delay) }, healed(ctx))
	}
	return fmt.Errorf("invalid fault %q", f.Kind)
}

// part parts the two ends of a link: so that they learn of it, or without a word, in both
// directions or in one.
func part(l *rig.Link, seed uint64) error {
	switch seed % 4 {
	case 0:
		l.Cut()
		return nil
	case 1:
		return l.HalfOpen()
	case 2:
		return l.Mute()
	default:
		return l.Deafen()
	}
}

// during changes daemons for a while, and always undoes the change.
func during(ctx context.Context, d time.Duration, daemons []*rig.Daemon, do, undo func(*rig.Daemon) error) error {
	var errs []error
	for _, daemon := range daemons {
		errs = append(errs, do(daemon))
	}
	errs = append(errs, lifecycle.Pause(ctx, d))
	for _, daemon := range daemons {
		errs = append(errs, undo(daemon))
	}
	return errors.Join(errs...)
}

// freezeHolding does not wait long for an idle daemon.
func freezeHolding(ctx context.Context, r *rig.Rig) func(*rig.Daemon) error {
	return func(d *rig.Daemon) error {
		err := r.FreezeHolding(ctx, []*rig.Daemon{d}, rig.AnyTransaction, time.Second)
		if errors.Is(err, rig.ErrNothingHeld) {
			return nil // frozen nevertheless
		}
		return err
	}
}

func healed(ctx context.Context) func(*rig.Daemon) error {
	return func(d *rig.Daemon) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return onLinks(func(l *rig.Link) error { return l.Heal(ctx) })(d)
	}
}

// onLinks does something to all links of a daemon.
func onLinks(do func(*rig.Link) error) func(*rig.Daemon) error {
	return func(d *rig.Daemon) error {
		var errs []error
		for _, l := range d.Links() {
			errs = append(errs, do(l))
		}
		return errors.Join(errs...)
	}
}

// terminate ends some of the fleet's backends.
func terminate(ctx context.Context, r *rig.Rig, f schedule.Fault) error {
	return r.Do(ctx, func(db *pgx.Conn) error {
		rows, err := db.Query(ctx, `select pid from pg_stat_activity
			where datname = current_database() and application_name like 'tasker%' order by pid`)
		if err != nil {
			return err
		}
		pids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
		if err != nil {
			return err
		}
		rng := rand.New(rand.NewPCG(f.Seed, 0))
		rng.Shuffle(len(pids), func(i, j int) { pids[i], pids[j] = pids[j], pids[i] })
		n := int(f.Share*float64(len(pids)) + 1)
		_, err = db.Exec(ctx, `select pg_terminate_backend(pid) from unnest($1::int[]) pid`, pids[:min(n, len(pids))])
		return err
	})
}

// roll restarts daemons one by one, in order, in another mode.
func roll(ctx context.Context, f schedule.Fault, daemons []*rig.Daemon) error {
	var errs []error
	for _, d := range daemons {
		d.SetMode(f.Mode)
		// Its exit code does not matter: it may have to end without a word while the
		// database is unavailable.
		if err := d.Stop(ctx); err != nil && ctx.Err() != nil {
			errs = append(errs, err)
		}
		errs = append(errs, d.Start(), d.WaitReady(ctx))
	}
	return errors.Join(errs...)
}

// ParseKinds reads a list with commas.
func ParseKinds(text string) ([]schedule.Kind, error) {
	all := append(schedule.Kinds(), schedule.Particular()...)
	var kinds []schedule.Kind
	for name := range strings.SplitSeq(text, ",") {
		if !slices.Contains(all, schedule.Kind(name)) {
			return nil, fmt.Errorf("invalid fault %q: want one of %v", name, all)
		}
		kinds = append(kinds, schedule.Kind(name))
	}
	return kinds, nil
}
