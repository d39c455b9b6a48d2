package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/fleet"
)

// statusOf signals a process for its status and returns the lines by part.
func statusOf(t *testing.T, p *fleet.Process, parts ...string) map[string]map[string]any {
	t.Helper()
	require.NoError(t, p.Signal(syscall.SIGUSR1))
	lines := map[string]map[string]any{}
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		for line := range strings.Lines(p.Log()) {
			var fields map[string]any
			if json.Unmarshal([]byte(line), &fields) != nil || fields["message"] != "status" {
				continue
			}
			part, ok := fields["part"].(string)
			require.True(t, ok, line)
			lines[part] = fields
		}
		for _, part := range parts {
			if lines[part] == nil {
				return false, "no line for " + part + " in\n" + p.Log()
			}
		}
		return true, ""
	})
	return lines
}

func TestStatusOnRequest(t *testing.T) {
	r := pair(t, "Hybrid", "")
	r.run("diamond", `{"even_number":6}`)
	o := statusOf(t, r.all[0], "process", "orchestrator", "pool", "signal sender", "event system orchestration",
		"event system task_readiness", "loop orchestrator-heartbeat", "loop partitions", "loop task-waiters")
	require.Equal(t, "Hybrid", o["event system orchestration"]["mode"])
	require.Contains(t, o["event system orchestration"], "listener")
	require.NotEmpty(t, o["event system orchestration"]["last_look"])
	require.Equal(t, "running", o["loop partitions"]["state"])
	require.Positive(t, o["process"]["goroutines"])

	var w map[string]map[string]any
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) { // a task may be complete before its worker has the answer to its last report
		w = statusOf(t, r.all[1], "process", "worker", "pool", "event system worker", "loop signal-statistics")
		return w["worker"]["reports_pending"] == 0.0, fmt.Sprint(w["worker"])
	})
	require.Zero(t, w["worker"]["permits_in_use"])
	require.Positive(t, w["worker"]["permits"])
	require.InDelta(t, 4, w["worker"]["succeeded"], 0)
}

func TestReloadChangesTheLevelOfTheLog(t *testing.T) {
	r := pair(t, "Hybrid", "")
	reload := func(p *fleet.Process, old, replacement, says string) {
		r.rewrite(p, old, replacement)
		require.NoError(t, p.Signal(syscall.SIGHUP))
		pgtest.Eventually(t, 30*time.Second, func() (bool, string) { return strings.Contains(p.Log(), says), p.Log() })
	}
	for _, p := range r.all {
		require.NotContains(t, p.Log(), `"level":"debug"`)
		reload(p, `log_format = "json"`, "log_format = \"json\"\nlog_level = \"debug\"", "reloaded the configuration")
		reload(p, "log_level", "log_depth", "the new configuration is not in force") // a mistake changes nothing
	}
	for _, p := range r.all {
		require.NoError(t, p.Signal(syscall.SIGTERM))
		<-p.Done()
		require.Zero(t, p.ExitCode())
		require.Contains(t, p.Log(), `"level":"debug"`, "each part that has stopped")
	}
}
