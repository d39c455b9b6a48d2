package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/fleet"
	"github.com/tasker-go/tasker/worker"
)

var (
	logBytes   = flag.Int("logs.bytes", 5_000_000, "bytes that one handler logs")
	logTalkers = flag.Int("logs.talkers", 30, "handlers that log ten lines a second beside it")
	logSilent  = flag.Int("logs.silent", 500, "tasks of handlers that log nothing, whose pace is measured")
	logSeen    = flag.Int("logs.seen", 40, "lines that are followed at least")
	logRounds  = flag.Int("logs.rounds", 1, "rounds with and without kept logs")
)

// logsEnv has the worker of the tests run talking handlers.
const logsEnv = "E2E_LOGS"

// talk is what a talking handler logs.
type talk struct {
	Lines   int   `json:"lines"`
	Bytes   int   `json:"bytes"`
	PauseMS int64 `json:"pause_ms"`
}

// registerTalk adds handlers that log, and one that does not.
func registerTalk(w *worker.Worker) error {
	if os.Getenv(logsEnv) == "" {
		return nil
	}
	return errors.Join(enginetest.RegisterTemplates(w, `
name: talking
namespace_name: talk
version: 1.0.0
steps:
  - {name: only, timeout_seconds: 600, handler: {callable: talk}, retry: {max_attempts: 5, backoff: fixed, backoff_base_ms: 1}}
`, `
name: silent
namespace_name: talk
version: 1.0.0
steps:
  - {name: only, handler: {callable: silent}}
`), w.Register("silent", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return 1, nil })),
		w.Register("talk", worker.HandlerFunc(func(c *worker.StepContext) (any, error) {
			of, err := worker.InputAs[talk](c)
			if err != nil {
				return nil, err
			}
			padding := strings.Repeat("x", of.Bytes)
			for n := range of.Lines {
				c.Logger().Info("line "+strconv.Itoa(n), zap.String("padding", padding))
				if err := lifecycle.Pause(c, time.Duration(of.PauseMS)*time.Millisecond); err != nil {
					return nil, err
				}
			}
			return of.Lines, nil
		})))
}

func (r *running) talks(name string, of talk) string {
	r.t.Helper()
	task := request(name, fmt.Sprintf(`{"lines": %d, "bytes": %d, "pause_ms": %d, "n": %d}`, of.Lines, of.Bytes, of.PauseMS, time.Now().UnixNano()))
	task.Namespace = "talk"
	made, err := r.clients[0].CreateTasks(r.t.Context(), []client.TaskRequest{task})
	require.NoError(r.t, err)
	require.Equal(r.t, 1, made.Created)
	return made.Results[0].TaskUUID
}

// A line of a worker that is killed is there, unless it is younger than a second; the next execution
// has a log of its own.
func TestTheLogOfAKilledWorker(t *testing.T) {
	t.Parallel()
	bin := binOfWorker(t)
	r := newFleet(t, enginetest.Migrated(t))
	r.start(fleet.Orchestrator, "Hybrid", "")
	config := quick + "max_concurrent_handlers = 40\n"
	first := r.startWorker(bin, config, logsEnv+"=1")
	r.ready()
	tasks := make([]string, 20)
	for i := range tasks {
		tasks[i] = r.talks("talking", talk{Lines: 1_000_000, Bytes: 100, PauseMS: 5})
	}
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		n := r.db.QueryInt(t, `select count(*) from (select task_uuid from tasker.attempt_logs group by 1 having sum(lines) > 300) l`)
		return n == len(tasks), fmt.Sprintf("%d tasks have lines", n)
	})
	killed := time.Now()
	first.Kill()
	lost, token := time.Duration(0), int64(0)
	for _, task := range tasks {
		page, err := r.clients[0].TaskLogs(t.Context(), task, client.LogOptions{Limit: 5_000})
		require.NoError(t, err)
		require.NotEmpty(t, page.Lines)
		for i, l := range page.Lines {
			require.EqualValues(t, i, l.Line, "no gap")
			require.Equal(t, "line "+strconv.Itoa(i), l.Text)
		}
		token = page.Lines[0].Token
		lost = max(lost, killed.Sub(page.Lines[len(page.Lines)-1].At))
	}
	t.Logf("the latest line of each killed handler is at most %v older than the kill", lost.Round(time.Millisecond))
	require.Less(t, lost, 5*time.Second, "on a machine under load; one second on a quiet one")
	r.startWorker(bin, config, logsEnv+"=1")
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		page, err := r.clients[0].TaskLogs(t.Context(), tasks[len(tasks)-1], client.LogOptions{Limit: 5_000})
		require.NoError(t, err)
		last := page.Lines[len(page.Lines)-1]
		return last.Token != token, fmt.Sprintf("the last line is of claim %d", last.Token)
	})
	for _, task := range tasks {
		_, err := r.clients[0].CancelTask(t.Context(), task, client.Why{})
		require.NoError(t, err)
		r.wait(task, time.Minute)
	}
	r.clean()
}

// Handlers that log much cost neither memory, nor rows, nor others their pace, and their lines are seen
// soon.
func TestHandlersThatLogMuch(t *testing.T) {
	t.Parallel()
	bin := binOfWorker(t)
	r := newFleet(t, enginetest.Migrated(t))
	r.start(fleet.Orchestrator, "Hybrid", "")
	for round := range 2 * *logRounds {
		kept := round%2 == 1
		p := r.startWorker(bin, fmt.Sprintf("%smax_concurrent_handlers = %d\n[worker.logs]\nenabled = %t\n", quick, *logTalkers+50, kept), logsEnv+"=1")
		if round == 0 {
			r.ready()
		}
		talkers := make([]string, *logTalkers)
		for i := range talkers {
			talkers[i] = r.talks("talking", talk{Lines: 1_000_000, Bytes: 100, PauseMS: 100})
		}
		pgtest.Eventually(t, time.Minute, func() (bool, string) {
			n := r.db.QueryInt(t, `select count(*) from tasker.board where state = 3`)
			return n == len(talkers), fmt.Sprintf("%d handlers talk", n)
		})
		noisy := r.talks("talking", talk{Lines: *logBytes / 1_000, Bytes: 950})
		took := r.pace(*logSilent)
		require.Equal(t, "complete", r.wait(noisy, 5*time.Minute).Status)
		var seen []time.Duration
		if kept {
			for l, err := range r.clients[0].FollowTaskLogs(t.Context(), talkers[0], client.LogOptions{}) {
				require.NoError(t, err)
				if seen = append(seen, time.Since(l.At)); len(seen) >= *logSeen && time.Since(l.At) < time.Second {
					break
				}
			}
			r.bounded(noisy)
		}
		for _, task := range talkers {
			_, err := r.clients[0].CancelTask(t.Context(), task, client.Why{})
			require.NoError(t, err)
		}
		for _, task := range talkers {
			r.wait(task, time.Minute)
		}
		t.Logf("kept %t: %d silent tasks took %v; the worker had at most %d MB; %s", kept, *logSilent, took.Round(time.Millisecond), peak(t, p.PID())>>20, latency(seen))
		require.NoError(t, p.Stop(t.Context()))
	}
	r.clean()
}

// pace returns how long so many silent tasks take.
func (r *running) pace(tasks int) time.Duration {
	r.t.Helper()
	begun := time.Now()
	list := make([]client.TaskRequest, tasks)
	for i := range list {
		list[i] = request("silent", fmt.Sprintf(`{"n": %d, "at": %d}`, i, begun.UnixNano()))
		list[i].Namespace = "talk"
	}
	var last string
	for part := range slices.Chunk(list, 100) {
		made, err := r.clients[0].CreateTasks(r.t.Context(), part)
		require.NoError(r.t, err)
		last = made.Results[len(made.Results)-1].TaskUUID
	}
	r.wait(last, 5*time.Minute)
	pgtest.Eventually(r.t, 5*time.Minute, func() (bool, string) {
		n := r.db.QueryInt(r.t, `select count(*) from tasker.board b join tasker.tasks t using (task_uuid) join tasker.plans p on p.plan_id = t.plan_id where p.name = 'silent'`)
		return n == 0, fmt.Sprintf("%d silent tasks are left", n)
	})
	return time.Since(begun)
}

// bounded holds the log of a noisy task against what an attempt may keep.
func (r *running) bounded(noisy string) {
	r.t.Helper()
	page, err := r.clients[0].TaskLogs(r.t.Context(), noisy, client.LogOptions{Limit: 5_000})
	require.NoError(r.t, err)
	require.Zero(r.t, page.Lines[0].Line)
	last := page.Lines[len(page.Lines)-1]
	require.EqualValues(r.t, *logBytes/1_000-1, last.Line, "the last line is there")
	dropped := int64(0)
	for _, l := range page.Lines {
		dropped += l.DroppedBefore
	}
	require.EqualValues(r.t, *logBytes/1_000, int64(len(page.Lines))+dropped, "what is not kept is counted")
	rows := r.db.QueryInt(r.t, `select count(*) from tasker.attempt_logs where task_uuid = $1`, noisy)
	size := r.db.QueryInt(r.t, `select sum(octet_length(content))::int from tasker.attempt_logs where task_uuid = $1`, noisy)
	r.t.Logf("of %d bytes in %d lines %d lines are kept, in %d rows of %d bytes", *logBytes, *logBytes/1_000, len(page.Lines), rows, size)
	require.Less(r.t, rows, 100)
	require.Less(r.t, size, 2<<20)
	require.Zero(r.t, r.db.QueryInt(r.t, `select count(*) from tasker.attempt_logs l join tasker.tasks t using (task_uuid) join tasker.plans p on p.plan_id = t.plan_id where p.name = 'silent'`))
}

// latency describes how long lines took to be seen.
func latency(seen []time.Duration) string {
	if len(seen) == 0 {
		return "nothing was followed"
	}
	tail := slices.Sorted(slices.Values(seen[len(seen)/2:])) // those before had waited to be followed
	return fmt.Sprintf("lines were seen after %v (half), %v (99 %%)", tail[len(tail)/2].Round(time.Millisecond), tail[len(tail)*99/100].Round(time.Millisecond))
}
