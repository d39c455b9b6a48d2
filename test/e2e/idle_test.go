package e2e

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/fleet"
)

// idleTime is long enough for a heartbeat of each daemon (10 s by default) and
// two probes of each listener.
const idleTime = 12 * time.Second

// heartbeats are the statements by which daemons and listeners show that they
// live, and the pool that its connections do; with one comes what policies lines have.
const heartbeats = `pg_notify|tasker\.workers|tasker\.processors|tasker\.policies|^-- ping|^;?$|` + sweeps + `|` + frontiers

// heartbeatsOver are heartbeats with those of an event source: probes in the WAL are written, read,
// and held back until they are visible.
func heartbeatsOver(source string) string {
	if source == "wal" || source == "relay" {
		return heartbeats + `|pg_logical_emit_message|pg_current_wal_flush_lsn|pg_snapshot_xmax`
	}
	return heartbeats
}

// frontiers are moved on machines so busy that an empty look takes long.
const frontiers = `last_value|pg_locks|\(queue, lane, floor\)|\(queue, above, below\)|array_agg\(namespace_id\)|` +
	`select seq from tasker\.board|select due_at from tasker\.board`

// sweeps are those that run more often than every few minutes.
const sweeps = `tasker\.sweeps|tasker\.queue_workers|deadline is not null|dlq_entries|with first as|task_dependencies|^begin|^commit|set_config`

// TestIdleCostsHeartbeatsOnly counts every statement of an idle fleet in EventDrivenOnly
// in pg_stat_statements: heartbeats, and the probes of listeners.
func TestIdleCostsHeartbeatsOnly(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for heartbeats")
	}
	server := pgtest.Private(t, map[string]string{"shared_preload_libraries": "pg_stat_statements"})
	db := server.New(t)
	db.Exec(t, `create extension pg_stat_statements`)
	r := newFleet(t, db)
	for _, kind := range []fleet.Kind{fleet.Orchestrator, fleet.Worker} {
		p, err := fleet.Start(fleet.Options{Kind: kind, BinDir: binDir, WorkDir: r.dir, Name: string(kind), DatabaseURL: db.DSN, Mode: "EventDrivenOnly"})
		require.NoError(t, err)
		r.all = append(r.all, p)
	}
	r.ready()
	// The rare sweeps run once at the start, and then not for minutes.
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		n := db.QueryInt(t, `select count(*) from tasker.sweeps where finished_at is not null`)
		return n >= 7, fmt.Sprintf("%d sweeps have been made", n)
	})
	// The start is over when a whole second has only heartbeats.
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		db.Exec(t, `select pg_stat_statements_reset()`)
		wait(t, time.Second)
		n := db.QueryInt(t, `select count(*) from pg_stat_statements s join pg_database d on d.oid = s.dbid
			where datname = current_database() and query !~ $1`, `pg_stat_statements|`+heartbeatsOver(os.Getenv(fleet.EnvSource)))
		return n == 0, "still starting"
	})
	// A look that a busy machine delays is followed by another one, so what is in each of six windows
	// counts: what is regular would be.
	strange := whileIdle(t, db)
	for window := 1; window < 6 && len(strange) > 0; window++ {
		again := whileIdle(t, db)
		strange = slices.DeleteFunc(strange, func(query string) bool { return !slices.Contains(again, query) })
	}
	require.Empty(t, strange, "an idle fleet sends only heartbeats")
}

// values stand in the text of a statement or not, as it was prepared.
var values = regexp.MustCompile(`\$?\b\d+\b|'[^']*'|\$\d+`)

// whileIdle lists the statements of a while that are no heartbeats.
func whileIdle(t *testing.T, db *pgtest.DB) (strange []string) {
	t.Helper()
	db.Exec(t, `select pg_stat_statements_reset()`)
	wait(t, idleTime)
	conn, err := pgx.Connect(t.Context(), db.DSN)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	rows, err := conn.Query(t.Context(), `select calls, query from pg_stat_statements s join pg_database d on d.oid = s.dbid
		where datname = current_database() and query not like '%pg_stat_statements%'`)
	require.NoError(t, err)
	var calls int64
	var query string
	total := int64(0)
	_, err = pgx.ForEachRow(rows, []any{&calls, &query}, func() error {
		total += calls
		t.Logf("%3d × %.90s", calls, strings.Join(strings.Fields(query), " "))
		if !regexp.MustCompile(heartbeatsOver(os.Getenv(fleet.EnvSource))).MatchString(query) {
			strange = append(strange, values.ReplaceAllString(query, "?"))
		}
		return nil
	})
	require.NoError(t, err)
	require.Positive(t, total, "heartbeats are seen")
	t.Logf("%d statements in %v from an orchestrator and a worker", total, idleTime)
	return strange
}

// wait lets time pass: time itself is tested here.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d) // takes time: the test observes this time
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}
