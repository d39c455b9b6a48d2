package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/fleet"
)

// measuring reports whether -remote.tasks asks for the sizes and bounds of docs/reference/protocol.md,
// on a machine that does nothing else. Otherwise both suit a busy one.
func measuring() bool { return *remoteTasks >= 5000 }

// counting is a fleet on a server that counts statements. Each worker daemon has a role of
// its own.
type counting struct{ *running }

func newCounting(t *testing.T, mode string) counting {
	db := pgtest.Private(t, map[string]string{"shared_preload_libraries": "pg_stat_statements"}).New(t)
	db.Exec(t, `create extension pg_stat_statements`)
	r := newFleet(t, db)
	r.start(fleet.Orchestrator, mode, "")
	return counting{r.ready()}
}

// oneStep registers the template one of a namespace.
func (c counting) oneStep(namespace, callable string) {
	c.t.Helper()
	_, err := c.clients[0].RegisterTemplate(c.t.Context(), client.TemplateSource{Actor: "test", Reason: "test", Source: fmt.Sprintf(
		`{"name": "one", "namespace_name": %q, "version": "1.0.0", "steps": [{"name": "only", "handler": {"callable": %q}}]}`, namespace, callable)})
	require.NoError(c.t, err)
}

// worker starts a worker daemon for one namespace, as the role of that name. No session is
// lost on a busy machine before its first poll.
func (c counting) worker(namespace, mode string) *fleet.Process {
	c.t.Helper()
	c.db.Exec(c.t, fmt.Sprintf(`create role %[1]s superuser login password '%[1]s'`, namespace))
	p, err := fleet.Start(fleet.Options{Kind: fleet.Worker, BinDir: binDir, WorkDir: c.dir, Name: namespace, DatabaseURL: as(c.t, c.db, namespace), Mode: mode,
		Config: "[worker]\nnamespaces = [\"" + namespace + "\"]\n[worker.mpsc_channels.handler_dispatch]\nmax_concurrent_handlers = 200\n[worker.sessions]\nreclaim_grace_ms = 60000\n"})
	require.NoError(c.t, err)
	c.all = append(c.all, p)
	return p
}

func (c counting) reset() { c.db.Exec(c.t, `select pg_stat_statements_reset()`) }

// calls returns the statements of a role since reset.
func (c counting) calls(role string) int {
	c.t.Helper()
	return c.db.QueryInt(c.t, `select coalesce(sum(calls), 0)::int from pg_stat_statements s join pg_roles r on r.oid = s.userid where r.rolname = $1`, role)
}

// present waits until a worker daemon has so many sessions.
func (c counting) present(p *fleet.Process, sessions int) {
	c.t.Helper()
	line := fmt.Sprintf("tasker_worker_sessions %d\n", sessions)
	pgtest.Eventually(c.t, 5*time.Minute, func() (bool, string) {
		return strings.Contains(get(c.t, p.URL+"/metrics"), line), "not all processes have sessions"
	})
}

// arrivals are how tasks come: so many at a time, in one request.
type arrivals struct {
	atATime int
	every   time.Duration
}

func (a arrivals) String() string {
	return fmt.Sprintf("%d per second, %d at a time", time.Duration(a.atATime)*time.Second/a.every, a.atATime)
}

// cost is what a worker daemon costs the server.
type cost struct {
	calls       float64 // per task
	connections int     // at most
}

func (c cost) String() string {
	return fmt.Sprintf("%.3f statements per task and %d connections", c.calls, c.connections)
}

// offer creates one-step tasks, waits for their ends, and returns what the worker daemon of
// their namespace cost.
func (c counting) offer(namespace string, tasks int, a arrivals) (of cost) {
	c.t.Helper()
	c.reset()
	tick := time.NewTicker(a.every) // takes time: the rate is what is offered
	defer tick.Stop()
	for from := 0; from < tasks; from += a.atATime {
		batch := make([]client.TaskRequest, min(a.atATime, tasks-from))
		for i := range batch {
			batch[i] = taskOf(namespace, "one", from+i)
		}
		<-tick.C
		_, err := c.clients[0].CreateTasks(c.t.Context(), batch)
		require.NoError(c.t, err)
		if from%20 == 0 {
			of.connections = max(of.connections, c.db.QueryInt(c.t, `select count(*) from pg_stat_activity where usename = $1`, namespace))
		}
	}
	pgtest.Eventually(c.t, 5*time.Minute, func() (bool, string) {
		n := c.db.QueryInt(c.t, `select count(*) from tasker.board where slot = 0`)
		return n == 0, fmt.Sprintf("%d live tasks", n)
	})
	of.calls = float64(c.calls(namespace)) / float64(tasks)
	return of
}

// TestProcessesCostOneWorker: Python processes with a session each, 200 of them where
// figures are wanted, cost the server the connections and the statements of one worker
// daemon whose handlers are in Go, at the same rate. Of tasks that come twenty at a time
// Go handlers end together and processes do not; that figure is printed, with a bound that
// one statement per end would exceed.
func TestProcessesCostOneWorker(t *testing.T) {
	needs.Tool(t, needs.Python)
	processes, tasks, bound := 12, 500, 3.0
	if measuring() {
		processes, tasks, bound = 200, 5000, 1.1
	}
	c := newCounting(t, "Hybrid")
	for namespace, callable := range map[string]string{"go": "arithmetic.square_product", "python": "load"} {
		c.oneStep(namespace, callable)
	}
	c.worker("go", "Hybrid")
	inPython := c.worker("python", "Hybrid")
	c.ready()
	for range processes {
		process(t, "PYTHONPATH=../../sdk/python/src", "python3", "testdata/load.py", inPython.URL, "1")
	}
	c.present(inPython, processes)
	for _, come := range []struct {
		arrivals
		bound float64
	}{{arrivals{1, 4 * time.Millisecond}, bound}, {arrivals{20, 40 * time.Millisecond}, 3}} {
		for _, namespace := range []string{"go", "python"} { // connections are opened, plans are read
			c.offer(namespace, 100, come.arrivals)
		}
		inGo, inProcesses := c.offer("go", tasks, come.arrivals), c.offer("python", tasks, come.arrivals)
		t.Logf("%d one-step tasks, %v: a worker daemon in Go %v; one with %d Python processes %v; ratio %.3f",
			tasks, come.arrivals, inGo, processes, inProcesses, inProcesses.calls/inGo.calls)
		// A pool opens one more where it happens to need it; processes would need one each.
		require.LessOrEqual(t, inProcesses.connections, inGo.connections+1)
		require.LessOrEqual(t, inProcesses.calls, come.bound*inGo.calls, "statements per task")
	}
	c.clean()
}
