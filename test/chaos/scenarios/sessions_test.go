package scenarios

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/chaos/internal/ledger"
	"github.com/tasker-go/tasker/test/chaos/internal/rig"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
)

// TestProcessesOutliveTheirWorkers: a worker is killed, and the process that had a session
// with it goes on with its steps at the other one, each under a new token. Then a process is
// frozen until it has lost its session: its steps run again elsewhere, and what it has when
// it wakes changes nothing.
func TestProcessesOutliveTheirWorkers(t *testing.T) {
	r := startRig(t, rig.Options{Orchestrators: []string{"Hybrid"}, Workers: []string{"Hybrid", "Hybrid"}, Executors: 2})
	workers := r.ByName([]string{"worker-a", "worker-b"})
	accepted := submit(t, r, workload.AtOnce("kept", 20, workload.Lengthy))
	awaitAny(t, r, "runs", func(x *ledger.Execution) bool { return x.Outcome == "" })
	victim := busiest(t, r, workers)[0]
	victim.Kill()
	awaitAny(t, r, "went on", func(x *ledger.Execution) bool { return len(x.Adopted) > 0 })
	restart(t, r, victim)

	accepted = append(accepted, submit(t, r, workload.AtOnce("lost", 20, workload.Lengthy))...)
	running := awaitAny(t, r, "runs", func(x *ledger.Execution) bool { return x.Outcome == "" && time.Since(x.Start) < time.Second })
	frozen := r.ByName([]string{nameOf(running.Instance)})[0]
	require.NoError(t, frozen.Freeze())
	drain(t, r, time.Minute)
	require.NoError(t, frozen.Thaw())

	f := verify(t, r, accepted)
	kept, lost := 0, 0
	for _, x := range f.Executions {
		kept += len(x.Adopted)
	}
	for _, a := range f.Attempts {
		if a.ProcessLost {
			lost++
		}
	}
	t.Logf("%d executions went on at another worker, %d attempts ended with their process", kept, lost)
	require.Positive(t, kept)
	require.Positive(t, lost)
}

// awaitAny waits for an execution of which something is true.
func awaitAny(t *testing.T, r *rig.Rig, what string, of func(*ledger.Execution) bool) (found ledger.Execution) {
	t.Helper()
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		list, err := ledger.Read(r.Ledger())
		require.NoError(t, err)
		for i := range list {
			if of(&list[i]) {
				found = list[i]
				return true, ""
			}
		}
		return false, "no execution " + what
	})
	return found
}
