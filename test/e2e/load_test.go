package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/fleet"
)

var remoteTasks = flag.Int("remote.tasks", 500, "one-step tasks for processes in other languages")

// TestProcessesUnderLoad runs one-step tasks in eight Python processes, and four steps in line
// one task at a time in Python and in TypeScript. It prints the rate, the CPU time of each part
// and the latency; what it asserts is that each step has one attempt.
func TestProcessesUnderLoad(t *testing.T) {
	needs.Tool(t, needs.Python, needs.Node, needs.TypeScript)
	r := newFleet(t, enginetest.Migrated(t))
	orchestrator := r.start(fleet.Orchestrator, "Hybrid", "")
	r.ready()
	register := func(namespace, name string, steps int) {
		list, before := []string{}, ""
		for n := range steps {
			list = append(list, fmt.Sprintf(`{"name": "step_%d", "dependencies": [%s], "handler": {"callable": "load"}}`, n, before))
			before = fmt.Sprintf("%q", fmt.Sprintf("step_%d", n))
		}
		_, err := r.clients[0].RegisterTemplate(t.Context(), client.TemplateSource{Actor: "test", Reason: "test", Source: fmt.Sprintf(
			`{"name": %q, "namespace_name": %q, "version": "1.0.0", "steps": [%s]}`, name, namespace, strings.Join(list, ","))})
		require.NoError(t, err)
	}
	register("python", "one", 1)
	register("python", "linear", 4)
	register("node", "linear", 4)
	worker := func(namespace string) *fleet.Process {
		return r.workerWith("[worker]\nnamespaces = [\"" + namespace + "\"]\n[worker.mpsc_channels.handler_dispatch]\nmax_concurrent_handlers = 128\n")
	}
	inPython, inNode := worker("python"), worker("node")
	r.ready()
	pids := []int{orchestrator.PID(), inPython.PID()}
	for range 8 {
		pids = append(pids, process(t, "PYTHONPATH=../../sdk/python/src", "python3", "testdata/load.py", inPython.URL, "16"))
	}
	process(t, "", "node", "testdata/load.mjs", filepath.Join(compiledSDK(t), "index.js"), inNode.URL, "16")
	for namespace, p := range map[string]*fleet.Process{"python": inPython, "node": inNode} {
		pgtest.Eventually(t, time.Minute, func() (bool, string) {
			return counted(get(t, p.URL+"/metrics"), "tasker_worker_sessions "), "no session"
		})
		took := make([]time.Duration, 40)
		for n := range took {
			begin := time.Now()
			doc, err := json.Marshal(taskOf(namespace, "linear", n))
			require.NoError(t, err)
			status, answer := send(t, http.MethodPost, orchestrator.URL+"/v1/tasks?wait=30s", string(doc))
			require.Less(t, status, 300, answer)
			require.Contains(t, answer, `"complete"`)
			took[n] = time.Since(begin)
		}
		slices.Sort(took)
		inside := r.db.QueryInt(t, fmt.Sprintf(`select (1e6 * percentile_cont(0.5) within group (order by extract(epoch from a.reported_at - t.requested_at)))::int
			from tasker.step_attempts a join tasker.tasks t using (task_uuid) join tasker.namespaces n on n.namespace_id = t.queue where n.name = '%s' and a.step_no = 3`, namespace))
		t.Logf("linear-4 with handlers in %s, seen by the client: p50 %v, p95 %v; from the request to the last end, by the database: p50 %v", namespace,
			took[len(took)/2], took[len(took)*95/100], time.Duration(inside)*time.Microsecond)
	}

	before := cpuTimes(t, pids)
	begin := time.Now()
	for from := 0; from < *remoteTasks; from += 500 {
		batch := make([]client.TaskRequest, min(500, *remoteTasks-from))
		for i := range batch {
			batch[i] = taskOf("python", "one", from+i)
		}
		_, err := r.clients[0].CreateTasks(t.Context(), batch)
		require.NoError(t, err)
	}
	pgtest.Eventually(t, 5*time.Minute, func() (bool, string) {
		n := r.db.QueryInt(t, `select count(*) from tasker.board where slot = 0`)
		return n == 0, fmt.Sprintf("%d live tasks", n)
	})
	elapsed := time.Since(begin)
	after := cpuTimes(t, pids)
	python := time.Duration(0)
	for i := 2; i < len(pids); i++ {
		python += after[i] - before[i]
	}
	t.Logf("%d one-step tasks in 8 Python processes: %.0f/s; CPU per task: orchestrator %v, worker daemon %v, Python %v", *remoteTasks,
		float64(*remoteTasks)/elapsed.Seconds(), (after[0]-before[0])/time.Duration(*remoteTasks), (after[1]-before[1])/time.Duration(*remoteTasks), python/time.Duration(*remoteTasks))
	r.clean()
	require.Equal(t, *remoteTasks+2*4*40, r.db.QueryInt(t, `select count(*) from tasker.step_attempts`), "one attempt each")
}

// cpuTimes returns what processes have used, by their tick of a hundredth of a second.
func cpuTimes(t *testing.T, pids []int) []time.Duration {
	t.Helper()
	times := make([]time.Duration, len(pids))
	for i, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		require.NoError(t, err)
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, field := range fields[11:13] {
			ticks, err := strconv.Atoi(field)
			require.NoError(t, err)
			times[i] += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return times
}
