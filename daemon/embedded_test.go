package daemon

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow/template"
)

// loadBare loads a configuration without a database.
func loadBare(t *testing.T, more string) *config.Loaded {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tasker.toml")
	require.NoError(t, os.WriteFile(file, []byte(webOnly+more), 0o600))
	loaded, err := config.Load(config.Options{Path: file, LookupEnv: func(string) (string, bool) { return "", false }})
	require.NoError(t, err)
	require.ErrorContains(t, loaded.Refused(), "no database is configured")
	return loaded
}

// program is an engine within a program that has a pool.
type program struct {
	t            *testing.T
	orchestrator *Orchestrator
	held         chan struct{}   // receives when a handler has begun its transaction
	let          context.Context // handlers end their transactions after it
}

func embed(t *testing.T, let context.Context, loaded *config.Loaded, pool *pgxpool.Pool) *program {
	t.Helper()
	p := &program{t: t, held: make(chan struct{}, 1), let: let}
	o, w, err := NewEmbedded(t.Context(), loaded, p.register, zap.NewNop(), WithPool(pool))
	require.NoError(t, err)
	p.orchestrator = o
	require.NoError(t, o.Start(t.Context()))
	stop := func(service interface{ Stop(context.Context) error }) {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(t, service.Stop(ctx))
	}
	t.Cleanup(func() { stop(o) })
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(func() { stop(w) })
	return p
}

func (p *program) register(w *worker.Worker) error {
	for _, name := range []string{"session", "hold", "plain"} {
		template, _, err := template.Parse(name, []byte("name: "+name+"\nnamespace_name: none\nversion: 1.0.0\nsteps:\n  - {name: s, handler: {callable: "+name+"}}\n"))
		require.NoError(p.t, err)
		require.NoError(p.t, w.RegisterTemplate(template))
	}
	require.NoError(p.t, worker.HandleTx(w, "session", func(ctx *worker.StepContext, tx store.Tx, _ any) (name string, err error) {
		return name, tx.QueryRow(ctx, `select current_setting('application_name')`).Scan(&name)
	}))
	require.NoError(p.t, worker.HandleTx(w, "hold", func(ctx *worker.StepContext, _ store.Tx, _ any) (string, error) {
		p.held <- struct{}{}
		select {
		case <-p.let.Done():
			return "let go", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}))
	return worker.Handle(w, "plain", func(*worker.StepContext, any) (string, error) { return "done", nil })
}

// create creates a task and, where wait is not "", waits for its end.
func (p *program) create(name, wait string) string {
	p.t.Helper()
	r := request(p.t, "POST", "http://"+p.orchestrator.Addr().String()+"/v1/tasks?include=results&wait="+wait,
		`{"name":"`+name+`","namespace":"none","version":"1.0.0","context":{},"initiator":"i","source_system":"s","reason":"r"}`)
	require.Less(p.t, r.status, 300, r.body)
	return r.body
}

// TestEmbeddedOnAPool: all connections are made as the pool's. Its configuration leads
// nowhere and has a wrong password: BeforeConnect sets the right one, and DialFunc the
// address. Handlers' transactions are on the pool.
func TestEmbeddedOnAPool(t *testing.T) {
	t.Parallel()
	for _, source := range []string{sourceNotify, sourceWAL, sourceRelay} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			cfg, err := pgxpool.ParseConfig(db.TCPDSN)
			require.NoError(t, err)
			c := cfg.ConnConfig
			password, address := c.Password, net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
			c.Password, c.Port = "not it", 1
			c.RuntimeParams["application_name"] = "shop"
			c.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}
			c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // of the program's own statements
			cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
				c.Password = password
				return nil
			}
			var connected atomic.Int64
			if source == sourceNotify {
				cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
					connected.Add(1)
					_, err := c.Exec(ctx, `set shop.session = 'ours'`)
					return err
				}
			}
			cfg.PrepareConn = func(_ context.Context, c *pgx.Conn) (bool, error) { // the engine uses it only for handlers
				return strings.HasPrefix(c.Config().RuntimeParams["application_name"], "shop"), nil
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			p := embed(t, t.Context(), loadBare(t, "[common.signals]\nevent_source = \""+source+"\"\n"), pool)
			require.Contains(t, p.create("session", "25s"), `"shop"`)
			pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
				names := db.QueryString(t, `select string_agg(distinct application_name, ' ' order by application_name) from pg_stat_activity where datname = current_database()`)
				want := map[string][]string{
					sourceNotify: {"tasker-orchestrator-listener"}, sourceWAL: {"tasker-orchestrator-listener"},
					sourceRelay: {"tasker-orchestrator-listener", "tasker-orchestrator-relay", "tasker-orchestrator-relay-wal"},
				}[source]
				for _, name := range append(want, "shop", "tasker-orchestrator", "tasker-worker") {
					if !strings.Contains(" "+names+" ", " "+name+" ") {
						return false, name + " is not among " + names
					}
				}
				return true, ""
			})
			if source == sourceNotify {
				require.GreaterOrEqual(t, connected.Load(), int64(5), "the migration, the listener, both stores and the pool")
			}
		})
	}
}

// TestEmbeddedGoesOnWhileAHandlerHoldsTheOnlyConnection of the program's pool.
func TestEmbeddedGoesOnWhileAHandlerHoldsTheOnlyConnection(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(pgtest.New(t).DSN)
	require.NoError(t, err)
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	let, letGo := context.WithCancel(t.Context()) // which ends before the worker is stopped
	p := embed(t, let, loadBare(t, ""), pool)
	p.create("hold", "")
	<-p.held
	require.EqualValues(t, 1, pool.Stat().AcquiredConns())
	require.Contains(t, p.create("plain", "25s"), `"status":"complete"`)
	letGo()
	require.Contains(t, p.create("session", "25s"), `"status":"complete"`, "the connection is released")
}

func TestWhatAPoolIsRefusedFor(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig("postgresql://localhost/nowhere")
	require.NoError(t, err)
	bare, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	defer bare.Close()
	refused := func(loaded *config.Loaded, pool *pgxpool.Pool) error {
		_, _, err := NewEmbedded(t.Context(), loaded, nil, zap.NewNop(), WithPool(pool))
		return err
	}
	require.ErrorContains(t, refused(loadBare(t, ""), nil), "invalid pool nil")
	require.ErrorContains(t, refused(loadBare(t, "[common.database]\nlistener_url = \"postgresql://localhost/tasker\"\n"), bare), "invalid common.database.listener_url")
	require.ErrorContains(t, refused(loadBare(t, "[common.queues]\nbackend = \"rabbitmq\"\n[common.signals]\nevent_source = \"wal\"\n"), bare), "rabbitmq", "other rejections still apply")

	db := pgtest.New(t)
	for _, source := range []string{sourceWAL, sourceRelay} {
		cfg, err := pgxpool.ParseConfig(db.DSN)
		require.NoError(t, err)
		cfg.AfterConnect = func(context.Context, *pgx.Conn) error { return nil }
		hooked, err := pgxpool.NewWithConfig(t.Context(), cfg)
		require.NoError(t, err)
		require.ErrorContains(t, refused(loadBare(t, "[common.signals]\nevent_source = \""+source+"\"\n"), hooked), "invalid pool with AfterConnect")
		hooked.Close()
	}
}
