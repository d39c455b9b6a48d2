package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/fleet"
)

// throughPooler is how the documentation has daemons configured that work through PgBouncer; in
// session mode the listener works through it too.
const throughPooler = `
[common.database]
listener_url = %q
prepared_statements = false
`

func TestThroughPgBouncer(t *testing.T) {
	for _, way := range []struct {
		name, source string
		mode         pgtest.PoolMode
		size         int
	}{
		// Fewer connections than the daemons have: transactions of different clients really take
		// turns on a session.
		{"transactions", "", pgtest.PoolTransactions, 3},
		{"wal", "wal", pgtest.PoolTransactions, 3},
		{"sessions", "notify", pgtest.PoolSessions, 100}, // LISTEN works through it, replication does not (docs/operate/operations.md)
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			db, source := databaseFor(t, way.source), way.source
			pooler := pgtest.NewPooler(t, db.TCPDSN, way.mode, way.size)

			r := newFleet(t, db)
			listener := db.TCPDSN
			if way.mode == pgtest.PoolSessions {
				listener = pooler.DSN(db.Name)
			}
			cfg := fmt.Sprintf(throughPooler, listener)
			if way.mode == pgtest.PoolSessions {
				cfg += "migrate_on_start = false\n"
			}
			for i, kind := range []fleet.Kind{fleet.Orchestrator, fleet.Orchestrator, fleet.Worker, fleet.Worker} {
				o := fleet.Options{Kind: kind, BinDir: binDir, WorkDir: r.dir, Name: fmt.Sprintf("%s-%d", kind, i),
					DatabaseURL: pooler.DSN(db.Name), Mode: "EventDrivenOnly", EventSource: source, Config: cfg}
				if kind == fleet.Worker {
					o.Config += quick
				}
				p, err := fleet.Start(o)
				require.NoError(t, err)
				r.all = append(r.all, p)
				if kind == fleet.Orchestrator {
					r.clients = append(r.clients, client.New(client.Config{BaseURL: p.URL, Timeout: 30 * time.Second}))
				}
			}
			r.ready()
			direct := db.QueryInt(t, `select count(*) from pg_stat_activity where datname = current_database()
				and backend_type = 'client backend' and application_name not like '%listener%' and application_name not like '%-relay' and pid <> pg_backend_pid()`)
			require.LessOrEqual(t, direct, way.size, "only listeners and relays bypass the pooler")
			for _, id := range submit(t, r, 200, "pooled") {
				require.Equal(t, "complete", r.wait(id, time.Minute).Status)
			}
			for _, s := range scenarios {
				t.Run(s.name, func(t *testing.T) {
					r.t = t
					s.run(t, r)
				})
			}
			r.t = t
			r.clean()
		})
	}
}
