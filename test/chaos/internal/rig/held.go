package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tasker-go/tasker/test/fleet"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// What sessions of daemons can hold while the server waits for their next statement:
// queries for these sessions, with the beginnings of their transactions.
const (
	// AnyTransaction is one that is open.
	AnyTransaction = `select pid, xact_start from pg_stat_activity
		where datname = current_database() and application_name = 'tasker-' || $1 and state = 'idle in transaction'
		  and state_change < clock_timestamp() - interval '20 ms'`
	// ApplySlot is one of the slots with which reports are applied.
	ApplySlot = AnyTransaction + ` and exists (select from pg_locks l where l.pid = pg_stat_activity.pid
		and locktype = 'advisory' and classid = 1952543595 and objid in (4294967294, 4294967295) and granted)`
)

// held is a session in the middle of a transaction.
type held struct {
	pid   int32
	begun time.Time
}

// ErrNothingHeld says that the daemons were not met in the middle of a transaction.
var ErrNothingHeld = errors.New("the daemons were not met in the middle of a transaction")

// FreezeHolding freezes daemons of one kind at a moment when the server waits for each of
// them in the middle of a transaction (AnyTransaction, ApplySlot). On ErrNothingHeld,
// when patience has passed or the server has become unavailable, they are frozen wherever
// they are.
func (r *Rig) FreezeHolding(ctx context.Context, daemons []*Daemon, what string, patience time.Duration) error {
	err := r.freezeHolding(ctx, daemons, what, patience)
	if !away(err) {
		return err
	}
	if err := each(daemons, (*Daemon).Freeze); err != nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNothingHeld, err)
}

// away reports whether the server ended or refused the connection: another fault has
// struck it.
func away(err error) bool {
	var refused *pgconn.ConnectError
	var told *pgconn.PgError
	var lost *net.OpError
	return errors.As(err, &refused) || errors.As(err, &lost) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.As(err, &told) && strings.HasPrefix(told.Code, "57P")
}

func (r *Rig) freezeHolding(ctx context.Context, daemons []*Daemon, what string, patience time.Duration) error {
	give := time.Now().Add(patience)
	return r.Do(ctx, func(db *pgx.Conn) error {
		for {
			before, err := holders(ctx, db, what, daemons[0].Kind)
			if err != nil {
				return err
			}
			if err := each(daemons, (*Daemon).Freeze); err != nil {
				return err
			}
			// A session that has waited this long waits for a frozen process.
			err = lifecycle.Pause(ctx, 2*waitsFor)
			now, lookErr := holders(ctx, db, what, daemons[0].Kind)
			if err = errors.Join(err, lookErr); err != nil {
				return errors.Join(err, each(daemons, (*Daemon).Thaw))
			}
			held := 0
			for h := range now {
				if !before[h] {
					held++
				}
			}
			switch {
			case held >= len(daemons):
				return nil
			case time.Now().After(give):
				return ErrNothingHeld
			}
			if err := errors.Join(each(daemons, (*Daemon).Thaw), lifecycle.Pause(ctx, waitsFor/2)); err != nil {
				return err
			}
		}
	})
}

// waitsFor is how long a session of AnyTransaction has waited for its client.
const waitsFor = 20 * time.Millisecond

func each(daemons []*Daemon, do func(*Daemon) error) error {
	var errs []error
	for _, d := range daemons {
		errs = append(errs, do(d))
	}
	return errors.Join(errs...)
}

func holders(ctx context.Context, db *pgx.Conn, what string, kind fleet.Kind) (map[held]bool, error) {
	rows, err := db.Query(ctx, what, string(kind))
	if err != nil {
		return nil, fmt.Errorf("look who holds a transaction: %w", err)
	}
	found := map[held]bool{}
	var h held
	_, err = pgx.ForEachRow(rows, []any{&h.pid, &h.begun}, func() error {
		found[h] = true
		return nil
	})
	return found, err
}
