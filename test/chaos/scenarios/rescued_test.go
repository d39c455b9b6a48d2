package scenarios

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/chaos/internal/check"
	"github.com/tasker-go/tasker/test/chaos/internal/ledger"
	"github.com/tasker-go/tasker/test/chaos/internal/rig"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
)

// TestARescuedAttemptReportsLate: a worker is frozen until its lease has ended and
// another one runs the step. It resumes, its handler succeeds and reports while the new
// execution runs; then the new one fails. The old result is rejected and counted, and
// the task ends by the new execution, which has the number of the attempt that was lost: nobody is blamed.
func TestARescuedAttemptReportsLate(t *testing.T) {
	r := newRig(t, []string{"Hybrid"}, []string{"Hybrid", "Hybrid"})
	accepted := submit(t, r, workload.AtOnce("rescued", 1, workload.Gated))
	task := accepted[0].Task.String()
	old := awaitExecution(t, r, 1)

	frozen := r.ByName([]string{nameOf(old.Instance)})[0]
	require.NoError(t, frozen.Freeze())
	rescued := awaitAny(t, r, "has another token", func(x *ledger.Execution) bool { return x.Token != old.Token })
	require.Equal(t, old.Attempt, rescued.Attempt)
	require.NotEqual(t, old.Instance, rescued.Instance)
	require.Greater(t, rescued.Token, old.Token)

	require.NoError(t, frozen.Thaw())
	open(t, r, task, old.Token, workload.GateSucceed)
	pgtest.Eventually(t, 20*time.Second, func() (bool, string) {
		n := metric(t, frozen, "tasker_stale_results_total")
		return n == 1, fmt.Sprintf("%v late results are counted", n)
	})
	require.Equal(t, 1, number(t, r, `select count(*) from tasker.board where task_uuid = $1 and state = 3 and token = $2`, task, rescued.Token),
		"the late report does not affect the new attempt")

	open(t, r, task, rescued.Token, workload.GateFail)
	drain(t, r, 20*time.Second)
	f := verify(t, r, accepted)
	require.Equal(t, "error", f.Tasks[0].State)
	require.Len(t, f.Attempts, 2)
	require.Equal(t, []int{check.LeaseLost, check.Error}, []int{f.Attempts[0].Outcome, f.Attempts[1].Outcome})
	require.Equal(t, rescued.Token, f.Attempts[1].Token)
	for _, x := range f.Executions {
		if x.Token == old.Token {
			require.Equal(t, ledger.Succeeded, x.Outcome, "the old handler did succeed")
			require.Greater(t, x.End, f.Attempts[0].Reported, "after its lease")
			t.Logf("the old attempt succeeded %v after it was fenced", x.End.Sub(f.Attempts[0].Reported).Round(time.Millisecond))
		}
	}
}

// awaitExecution waits until an attempt has begun.
func awaitExecution(t *testing.T, r *rig.Rig, attempt int) ledger.Execution {
	t.Helper()
	return awaitAny(t, r, fmt.Sprintf("is attempt %d", attempt), func(x *ledger.Execution) bool { return x.Attempt == attempt })
}

// nameOf is the daemon of an instance.
func nameOf(instance string) string {
	name, _, _ := strings.Cut(instance, ".")
	return name
}

func open(t *testing.T, r *rig.Rig, task string, token int64, what string) {
	t.Helper()
	gate := workload.Gate(r.Gates(), task, token)
	require.NoError(t, os.WriteFile(gate+".new", []byte(what), 0o600))
	require.NoError(t, os.Rename(gate+".new", gate), "handlers see all of it or nothing")
}

// metric is the value of a counter without labels.
func metric(t *testing.T, d *rig.Daemon, name string) float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.URL()+"/metrics", nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			require.NoError(t, err)
			return n
		}
	}
	require.Fail(t, "no such metric", name)
	return 0
}
