package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/client/pgclient"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/plainqueue"
	"github.com/tasker-go/tasker/test/fleet"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow/template"
)

// outageTemplates have one step each; "remote" is run by a session.
var outageTemplates = []string{"plain", "again", "limited", "remote", "tick"}

// registerOutages registers the handlers of TestWorkIsFoundAfterOutages.
func registerOutages(w *worker.Worker) error {
	failed := []error{
		worker.Handle(w, "outage.plain", func(*worker.StepContext, struct{}) (bool, error) { return true, nil }),
		worker.Handle(w, "outage.limited", func(*worker.StepContext, struct{}) (bool, error) { return true, nil }),
		worker.Handle(w, "outage.tick", func(*worker.StepContext, struct{}) (bool, error) { return true, nil }),
		worker.Handle(w, "outage.again", func(ctx *worker.StepContext, _ struct{}) (bool, error) {
			if ctx.Attempt() == 1 {
				return false, worker.Retryable(errors.New("later"), againAfter)
			}
			return true, nil
		}),
	}
	for _, name := range outageTemplates {
		t, _, err := template.Parse(name, fmt.Appendf(nil, `{"name": %q, "namespace_name": "outage", "version": "1.0.0", "steps": [
			{"name": "only", "handler": {"callable": "outage.%s"}, "retry": {"max_attempts": 3, "backoff": "fixed", "backoff_base_ms": 1}}]}`, name, name))
		failed = append(failed, err, w.RegisterTemplate(t))
	}
	return errors.Join(failed...)
}

const (
	// againAfter is when the second attempt of "again" is due, within each outage.
	againAfter = 3 * time.Second
	// leasesGrace is orchestration.leases.grace_ms of these fleets.
	leasesGrace = time.Second
)

// outageWork is a kind of work that becomes possible during an outage: one lone task, and no
// signal says so.
type outageWork struct {
	name string
	// prepare makes what has to exist before the outage.
	prepare func(f *outageFleet)
	// arm makes the work possible, in a transaction during the outage.
	arm func(f *outageFleet, tx pgx.Tx) error
	// begun is the time at which it was begun, as a query of one value.
	begun string
	late  time.Duration // for which it is left alone on purpose
}

// attempt is when an attempt of a task was claimed.
func attempt(n int) string {
	return fmt.Sprintf(`select max(claimed_at) from (select claimed_at from tasker.board where task_uuid = $1 and state in (3, 4) and attempt >= %[1]d
		union all select claimed_at from tasker.step_attempts where task_uuid = $1 and attempt >= %[1]d) c`, n)
}

// create arms a task of a template.
func create(name string) func(f *outageFleet, tx pgx.Tx) error {
	return func(f *outageFleet, tx pgx.Tx) error { return f.create(tx, "outage", name, `{}`) }
}

var outageWorks = []outageWork{
	{name: "first step", arm: create("plain"), begun: attempt(1)},
	{name: "limited step", arm: create("limited"), begun: attempt(1)},
	{name: "session", arm: create("remote"), begun: attempt(1)},
	{name: "queue", arm: func(f *outageFleet, tx pgx.Tx) error {
		return f.create(tx, "lone", plainqueue.Template, `{"payload": 1, "tags": []}`)
	}, begun: attempt(1)},
	{name: "retry", prepare: func(f *outageFleet) {
		require.NoError(f.t, pgx.BeginFunc(f.t.Context(), f.conn, func(tx pgx.Tx) error { return f.create(tx, "outage", "again", `{}`) }))
		f.until(`select count(*) > 0 from tasker.step_attempts where task_uuid = $1`, f.task) // on a busy machine there may be two
	}, begun: attempt(2)},
	{name: "lease end", arm: func(f *outageFleet, tx pgx.Tx) error {
		if err := create("plain")(f, tx); err != nil {
			return err
		}
		_, err := tx.Exec(f.t.Context(), `update tasker.board set state = 3, attempt = 1, token = nextval('tasker.claim_token'), worker = gen_random_uuid(),
			claimed_at = clock_timestamp(), lease_until = clock_timestamp() + interval '1 ms' where task_uuid = $1`, f.task)
		return err
	}, begun: attempt(2), late: leasesGrace},
	{name: "message", prepare: func(f *outageFleet) {
		require.NoError(f.t, pgx.BeginFunc(f.t.Context(), f.conn, func(tx pgx.Tx) error {
			return f.create(tx, "outage", "plain", `{}`, func(r *client.TaskRequest) { r.DelaySeconds = new(3600.0) })
		}))
	}, arm: func(f *outageFleet, tx pgx.Tx) error { // as a step writes it that waited for the task and was called off
		_, err := tx.Exec(f.t.Context(), `insert into tasker.task_messages (task_uuid, kind) values ($1, 2)`, f.task)
		return err
	}, begun: `select completed_at from tasker.v_tasks where task_uuid = $1`},
	{name: "schedule", arm: func(f *outageFleet, tx pgx.Tx) error {
		f.task = ""
		_, err := tx.Exec(f.t.Context(), `update tasker.schedules set next_run_at = clock_timestamp()`)
		return err
	}, begun: `select max(requested_at) from tasker.v_tasks where name = 'tick' and requested_at > $2 and $1 = ''`},
}

// outageFleet is the smallest fleet, over a line, for one kind of work in one mode.
type outageFleet struct {
	*running
	work outageWork
	mode string
	conn *pgx.Conn // past the line
	task string    // that the present outage is about
	n    int       // of tasks
	make *pgclient.Client
}

// create creates a task without a signal.
func (f *outageFleet) create(tx pgx.Tx, namespace, name, input string, change ...func(*client.TaskRequest)) error {
	f.n++
	r := client.TaskRequest{Name: name, Namespace: namespace, Context: json.RawMessage(input), IdempotencyKey: fmt.Sprintf("outage-%d", f.n),
		Initiator: "e2e", SourceSystem: "test", Reason: "outages"}
	for _, c := range change {
		c(&r)
	}
	created, err := f.make.CreateTaskTx(f.t.Context(), tx, r)
	f.task = created.TaskUUID.String()
	return err
}

// until waits for a query to be true, past the line.
func (f *outageFleet) until(query string, args ...any) {
	f.t.Helper()
	pgtest.Eventually(f.t, time.Minute, func() (bool, string) {
		var is bool
		err := f.conn.QueryRow(f.t.Context(), query, args...).Scan(&is)
		return is, fmt.Sprintf("%s in %s: %s: %v", f.work.name, f.mode, query, err)
	})
}

func newOutageFleet(t *testing.T, server *pgtest.Server, bin string, work outageWork, mode string, line *pgtest.Line) *outageFleet {
	db := server.NewMigrated(t, "outages", enginetest.Migrate)
	f := &outageFleet{running: newFleet(t, db), work: work, mode: mode, make: pgclient.New(pgclient.AnnounceNothing)}
	url := over(t, db, line)
	database := "[common.database]\nstatement_timeout_ms = 2000\n[common.database.pool]\nmin_connections = 0\nmax_connections = 5\n"
	for kind, config := range map[fleet.Kind]string{
		fleet.Orchestrator: fmt.Sprintf("[orchestration.leases]\ngrace_ms = %d\n", leasesGrace.Milliseconds()),
		fleet.Worker:       "[worker]\nnamespaces = [\"outage\"]\n",
	} {
		p, err := fleet.Start(fleet.Options{Kind: kind, BinDir: bin, WorkDir: f.dir, Name: string(kind), DatabaseURL: url, Mode: mode, EventSource: "notify",
			Config: database + config, Env: []string{asWorker + "=1"}})
		require.NoError(t, err)
		f.all = append(f.all, p)
	}
	slices.SortFunc(f.all, func(a, b *fleet.Process) int { return strings.Compare(string(a.Kind), string(b.Kind)) })
	f.clients = []*client.Client{client.New(client.Config{BaseURL: f.all[0].URL, Timeout: 30 * time.Second})}
	return f
}

// over is the DSN of a database over a line.
func over(t *testing.T, db *pgtest.DB, line *pgtest.Line) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(db.TCPDSN)
	require.NoError(t, err)
	url := strings.Replace(db.TCPDSN, fmt.Sprintf("%s:%d", cfg.Host, cfg.Port), line.Address(), 1)
	require.NotEqual(t, db.TCPDSN, url)
	return url
}

// connect connects past the line, anew after a restart of the server.
func (f *outageFleet) connect() {
	f.t.Helper()
	if f.conn != nil {
		_ = f.conn.Close(f.t.Context()) // the server may be gone
	}
	pgtest.Eventually(f.t, time.Minute, func() (bool, string) {
		conn, err := pgx.Connect(f.t.Context(), f.db.DSN)
		f.conn = conn
		return err == nil, fmt.Sprint(err)
	})
}

// serve makes what the kinds of work need and runs the clients of sessions and queues until ctx ends.
func (f *outageFleet) serve(ctx context.Context, group *conc.WaitGroup) {
	f.t.Helper()
	f.connect()
	web := &http.Client{Timeout: 10 * time.Second}
	switch f.work.name {
	case "limited step":
		status, answer := send(f.t, http.MethodPut, f.all[0].URL+"/v1/namespaces/outage/limits/outage.limited", `{"max_running": 1, "actor": "e2e", "reason": "test"}`)
		require.Less(f.t, status, 300, answer)
	case "schedule":
		_, err := f.clients[0].CreateSchedule(f.t.Context(), client.ScheduleRequest{Name: "yearly", Namespace: "outage", Template: "tick", Version: "1.0.0",
			Cron: "0 0 1 1 *", CatchUp: "one"})
		require.NoError(f.t, err)
	case "session":
		group.Go(func() {
			for ctx.Err() == nil {
				f.session(ctx, web)
				_ = lifecycle.Pause(ctx, 100*time.Millisecond)
			}
		})
	case "queue":
		status, answer := send(f.t, http.MethodPost, f.all[0].URL+"/workers/v1/register", `{"workerId": "w", "queue": "lone"}`)
		require.Less(f.t, status, 300, answer)
		status, answer = send(f.t, http.MethodPost, f.all[0].URL+"/tasks/v1", `{"queue": "lone", "payload": 1}`) // makes the queue
		require.Less(f.t, status, 300, answer)
		group.Go(func() {
			for ctx.Err() == nil {
				_, _ = ask(ctx, web, f.all[0].URL+"/tasks/v1/claim?wait=5s", `{"workerId": "w", "limit": 100}`)
				_, _ = ask(ctx, web, f.all[0].URL+"/workers/v1/w/heartbeat", ``)
				_ = lifecycle.Pause(ctx, 100*time.Millisecond)
			}
		})
	}
}

// session opens a session and polls until it ends. It holds what it gets: that its step was
// claimed is enough.
func (f *outageFleet) session(ctx context.Context, web *http.Client) {
	answer, err := ask(ctx, web, f.all[1].URL+"/v1/sessions", `{"protocol": 1, "name": "e2e", "callables": [{"callable": "outage.remote"}], "permits": 100}`)
	var opened struct {
		ID string `json:"session_id"`
	}
	if err != nil || json.Unmarshal(answer, &opened) != nil {
		return
	}
	s := &session{url: f.all[1].URL + "/v1/sessions/" + opened.ID}
	for ctx.Err() == nil {
		if _, err := s.poll(ctx, web); err != nil {
			return
		}
		_ = lifecycle.Pause(ctx, 20*time.Millisecond) // an answer with what it has not acknowledged comes at once
	}
}

// ask sends a request whose failure is expected while something is away.
func ask(ctx context.Context, web *http.Client, url, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := web.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode > 299 {
		err = fmt.Errorf("%s: %s", res.Status, answer)
	}
	return answer, err
}

// outage is a fault of all fleets at once. It begins, calls arm for each fleet with a
// transaction that is committed before it ends, and ends.
type outage struct {
	name string
	run  func(t *testing.T, length time.Duration, fleets []*outageFleet)
}

// armAll arms each fleet in a transaction of its own.
func armAll(t *testing.T, fleets []*outageFleet) {
	t.Helper()
	for _, f := range fleets {
		require.NoError(t, pgx.BeginFunc(t.Context(), f.conn, func(tx pgx.Tx) error { return f.arm(tx) }), "%s in %s", f.work.name, f.mode)
	}
}

func (f *outageFleet) arm(tx pgx.Tx) error {
	if f.work.arm == nil {
		return nil
	}
	return f.work.arm(f, tx)
}

// TestWorkIsFoundAfterOutages: in every mode each kind of work, alone and without a signal, is
// begun soon after the end of each kind of outage, whatever the daemons remember from before
// or have met during it.
func TestWorkIsFoundAfterOutages(t *testing.T) {
	needs.All(t, "three minutes of outages")
	outagesOf(t, []string{"PollingOnly", "EventDrivenOnly", "Hybrid"}, outageWorks, map[string]time.Duration{
		"frozen": 10 * time.Second, "restarted": 25 * time.Second, "locked": 20 * time.Second, "black hole": 40 * time.Second})
}

// TestWorkIsFoundAfterAShortOutage is TestWorkIsFoundAfterOutages with one kind of work in
// each mode and shorter outages.
func TestWorkIsFoundAfterAShortOutage(t *testing.T) {
	t.Parallel()
	outagesOf(t, []string{"PollingOnly", "EventDrivenOnly"}, outageWorks[:1], map[string]time.Duration{
		"frozen": time.Second, "restarted": time.Second, "locked": 5 * time.Second, "black hole": 8 * time.Second})
}

func outagesOf(t *testing.T, modes []string, works []outageWork, lengths map[string]time.Duration) {
	bin := binOfWorker(t)
	orchestrator, err := filepath.Abs(filepath.Join(binDir, string(fleet.Orchestrator)))
	require.NoError(t, err)
	require.NoError(t, os.Symlink(orchestrator, filepath.Join(bin, string(fleet.Orchestrator))))

	// Of each daemon the server keeps the connections that died on the line, beside those that follow them.
	server := pgtest.Private(t, map[string]string{"max_connections": "1500"})
	line := pgtest.NewLine(t, server.DSN("postgres"))
	ctx, cancel := context.WithCancel(t.Context())
	var group conc.WaitGroup
	defer group.Wait()
	defer cancel()
	var fleets []*outageFleet
	for _, mode := range modes {
		for _, work := range works {
			fleets = append(fleets, newOutageFleet(t, server, bin, work, mode, line))
		}
	}
	for _, f := range fleets {
		ready, stop := context.WithTimeout(t.Context(), 3*time.Minute)
		for _, p := range f.all {
			require.NoError(t, p.WaitReady(ready))
		}
		stop()
		f.serve(ctx, &group)
	}
	slowest := map[string]time.Duration{}
	for _, o := range []outage{
		{name: "frozen", run: func(t *testing.T, length time.Duration, fleets []*outageFleet) {
			each := func(s syscall.Signal) {
				for _, f := range fleets {
					for _, p := range f.all {
						require.NoError(t, p.Signal(s))
					}
				}
			}
			each(syscall.SIGSTOP)
			defer each(syscall.SIGCONT)
			armAll(t, fleets)
			lasts(t, length)
		}},
		{name: "restarted", run: func(t *testing.T, length time.Duration, fleets []*outageFleet) {
			require.NoError(t, server.StopImmediate(t.Context()))
			line.Refuse()
			defer line.Accept(t)
			lasts(t, length)
			require.NoError(t, server.Restart(t.Context()))
			for _, f := range fleets {
				f.connect()
			}
			armAll(t, fleets)
		}},
		{name: "locked", run: func(t *testing.T, length time.Duration, fleets []*outageFleet) {
			var open []pgx.Tx
			for _, f := range fleets {
				tx, err := f.conn.Begin(t.Context())
				require.NoError(t, err)
				_, err = tx.Exec(t.Context(), `lock table tasker.board, tasker.schedules, tasker.task_messages in access exclusive mode`)
				require.NoError(t, err)
				open = append(open, tx)
			}
			lasts(t, length)
			for i, f := range fleets {
				require.NoError(t, f.arm(open[i]))
			}
			for _, tx := range open {
				require.NoError(t, tx.Commit(t.Context()))
			}
		}},
		{name: "black hole", run: func(t *testing.T, length time.Duration, fleets []*outageFleet) {
			line.Die()
			defer line.Revive()
			armAll(t, fleets)
			lasts(t, length)
		}},
	} {
		for _, f := range fleets {
			if f.work.prepare != nil {
				f.work.prepare(f)
			}
		}
		o.run(t, lengths[o.name], fleets)
		ended := time.Now()
		for _, f := range fleets {
			took := f.found(ended) - f.work.late
			slowest[f.mode] = max(slowest[f.mode], took)
			t.Logf("%-10s %-15s %-12s begun %5d ms after the outage", o.name, f.mode, f.work.name, took.Milliseconds())
		}
	}
	for mode, took := range slowest {
		t.Logf("slowest in %s: %v", mode, took)
		require.LessOrEqual(t, took, foundWithin[mode]+busy, mode)
	}
}

// foundWithin is the longest default interval of a poller, or where nothing polls that of an
// orchestrator's heartbeat, which looks for work without a signal: an outage without a lost
// connection has no catch-up.
var foundWithin = map[string]time.Duration{"PollingOnly": time.Second, "Hybrid": 5 * time.Second, "EventDrivenOnly": 10 * time.Second}

// busy is for a machine on which all fleets come back at once. What this guards against takes
// a minute and more.
const busy = 30 * time.Second

// lasts waits for the time of an outage.
func lasts(t *testing.T, length time.Duration) {
	t.Helper()
	require.NoError(t, lifecycle.Pause(t.Context(), length)) // takes time: the outage
}

// found waits until the work of the fleet has begun and returns how long after a moment of
// this machine that was, by the clock of the database on it.
func (f *outageFleet) found(ended time.Time) time.Duration {
	f.t.Helper()
	var begun *time.Time
	args := []any{f.task}
	if strings.Contains(f.work.begun, "$2") {
		args = append(args, ended.Add(-time.Minute))
	}
	pgtest.Eventually(f.t, 2*time.Minute, func() (bool, string) {
		err := f.conn.QueryRow(f.t.Context(), f.work.begun, args...).Scan(&begun)
		if err == nil && begun != nil {
			return true, ""
		}
		var open string
		_ = f.conn.QueryRow(f.t.Context(), `select count(*) || ' of ' || current_setting('max_connections') from pg_stat_activity`).Scan(&open)
		return false, fmt.Sprintf("%s in %s has not begun (%v), with %s connections", f.work.name, f.mode, err, open)
	})
	return max(begun.Sub(ended), 0)
}
