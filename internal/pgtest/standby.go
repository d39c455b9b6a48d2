//go:build unix

package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/pgcluster"
)

// catchUpPause is the time between two checks of a standby's progress.
const catchUpPause = 20 * time.Millisecond

// Standby is a hot standby: a cluster that follows another one.
type Standby struct {
	*pgcluster.Cluster
	name string // for its primary
}

// StartStandby copies a running cluster into a new data directory and starts the copy as a
// hot standby, which follows the primary over its socket with a replication slot of its own.
// It uses the settings, the programs and the TempDir of the primary unless opts overrides
// them. The data directory must be empty: a standby is made anew, not resumed.
//
// Replication is asynchronous until [SetSynchronous]. The bounds and errors are those of
// [pgcluster.Start].
func StartStandby(ctx context.Context, primary *pgcluster.Cluster, opts pgcluster.Options) (*Standby, error) {
	own := opts.Settings
	opts.Settings = maps.Clone(primary.Options().Settings) // a standby needs at least most limits of its primary
	if opts.Settings == nil {
		opts.Settings = map[string]string{}
	}
	maps.Copy(opts.Settings, own)
	if opts.TempDir == "" {
		opts.TempDir = primary.Options().TempDir
	}
	if opts.Binaries == (pgcluster.Binaries{}) {
		opts.Binaries = primary.Binaries()
	}
	from, err := url.Parse(primary.SocketDSN(""))
	if err != nil {
		return nil, fmt.Errorf("read the primary's address: %w", err)
	}
	with, err := pgx.ParseConfig(primary.DSN(pgcluster.Superuser))
	if err != nil {
		return nil, fmt.Errorf("read the primary's password: %w", err)
	}
	opts.Password = with.Password // the roles are copied, too
	s := &Standby{name: "standby_" + strings.ToLower(rand.Text()[:8])}
	follow := from.Query()
	follow.Set("application_name", s.name)
	from.RawQuery = follow.Encode()
	opts.Fill = func(_ context.Context, dir string, run pgcluster.Run) error {
		return run("pg_basebackup", "-D", dir, "-d", from.String(), "--write-recovery-conf", "--wal-method=stream",
			"--checkpoint=fast", "--create-slot", "--slot="+s.name)
	}
	if s.Cluster, err = pgcluster.Start(ctx, opts); err != nil {
		return nil, err
	}
	// The copy includes the primary's synchronous standbys, of which this one will have none
	// when it is promoted.
	if err := execute(ctx, s.Cluster, `ALTER SYSTEM RESET synchronous_standby_names`, `SELECT pg_reload_conf()`); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

// Standby starts a standby of this server for a test, at whose end it stops.
func (s *Server) Standby(t testing.TB) *Standby {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	standby, err := StartStandby(ctx, s.Cluster, pgcluster.Options{Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := errors.Join(standby.StopImmediate(ctx), standby.Stop(ctx)); err != nil {
			t.Error(err)
		}
	})
	return standby
}

// SetSynchronous makes every commit on the primary wait until all these standbys have
// written it to disk, and returns when they have caught up; without any, commits do not
// wait. When a standby is down, commits wait until it is back or this is called again.
func SetSynchronous(ctx context.Context, primary *pgcluster.Cluster, standbys ...*Standby) error {
	names := make([]string, len(standbys))
	for i, s := range standbys {
		names[i] = s.name // letters, digits and _ only: it needs no quotes
	}
	wanted := ""
	if len(names) > 0 {
		wanted = fmt.Sprintf("FIRST %d (%s)", len(names), strings.Join(names, ", "))
	}
	if err := execute(ctx, primary, `ALTER SYSTEM SET synchronous_standby_names = '`+wanted+`'`, `SELECT pg_reload_conf()`); err != nil {
		return err
	}
	return until(ctx, primary, "wait for the standbys to be synchronous", func(conn *pgx.Conn) (bool, error) {
		const sql = `SELECT count(*) FROM pg_stat_replication WHERE application_name = ANY ($1) AND state = 'streaming' AND sync_state = 'sync'`
		var n int
		err := conn.QueryRow(ctx, sql, names).Scan(&n)
		return n == len(names), err
	})
}

// Promote ends the recovery: it returns when the server accepts writes. The former primary
// must be dead by then and stay so, or both accept writes. ctx bounds it.
func (s *Standby) Promote(ctx context.Context) error {
	// Without waiting there: the server's own limit is in seconds.
	if err := execute(ctx, s.Cluster, `SELECT pg_promote(false)`); err != nil {
		return err
	}
	return until(ctx, s.Cluster, "wait for the promotion", func(conn *pgx.Conn) (bool, error) {
		var recovering bool
		err := conn.QueryRow(ctx, `SELECT pg_is_in_recovery()`).Scan(&recovering)
		return !recovering, err
	})
}

// execute runs statements one by one over the socket, each a transaction.
func execute(ctx context.Context, c *pgcluster.Cluster, statements ...string) error {
	return connected(ctx, c, func(conn *pgx.Conn) error {
		for _, sql := range statements {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
}

// until repeats look until it returns true or an error, or ctx ends.
func until(ctx context.Context, c *pgcluster.Cluster, doing string, look func(conn *pgx.Conn) (bool, error)) error {
	return connected(ctx, c, func(conn *pgx.Conn) error {
		for {
			yes, err := look(conn)
			if err == nil && !yes {
				err = lifecycle.Pause(ctx, catchUpPause)
			}
			switch {
			case err != nil:
				return fmt.Errorf("%s: %w", doing, err)
			case yes:
				return nil
			}
		}
	})
}

func connected(ctx context.Context, c *pgcluster.Cluster, f func(conn *pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, c.SocketDSN(pgcluster.Superuser))
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL in %s: %w", c.DataDir(), err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return f(conn)
}

// FailoverDSN is the connection string of a database on several clusters, over loopback: it
// leads to the first that accepts writes. All must have the same password, as a primary and
// its standbys have.
func FailoverDSN(database string, clusters ...*pgcluster.Cluster) string {
	hosts := make([]string, len(clusters))
	for i, c := range clusters {
		hosts[i] = "127.0.0.1:" + strconv.Itoa(c.Port())
	}
	return strings.Replace(clusters[0].DSN(database), hosts[0], strings.Join(hosts, ","), 1) + "&target_session_attrs=read-write"
}
