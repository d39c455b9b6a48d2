package scenarios

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/chaos/internal/check"
	"github.com/tasker-go/tasker/chaos/internal/ledger"
	"github.com/tasker-go/tasker/chaos/internal/rig"
	"github.com/tasker-go/tasker/chaos/internal/workload"
	"github.com/tasker-go/tasker/internal/pgtest"
)

// EnvDiamonds is how many diamonds there are; 300 when empty.
const envDiamonds = "CHAOS_DIAMONDS"

// TestTheLeaseDecidesWhenWorkComesBack kills the only orchestrator and half of
// the workers in the middle of many diamonds. Everything completes, and the
// steps of the dead come back when their leases end, not when their workers
// are taken for dead.
func TestTheLeaseDecidesWhenWorkComesBack(t *testing.T) {
	n := 300
	if text := os.Getenv(envDiamonds); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	r := newRig(t, []string{"Hybrid"}, []string{"Hybrid", "Hybrid", "Hybrid", "Hybrid"})
	accepted := submit(t, r, workload.AtOnce("diamond", n, workload.Laboured))
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		done := number(t, r, `select count(*) from tasker.step_attempts`)
		return done >= n, fmt.Sprintf("%d steps have ended", done)
	})

	killed := time.Now()
	for _, d := range r.ByName([]string{"orchestrator-a", "worker-a", "worker-b"}) {
		d.Kill()
	}
	alive := number(t, r, `select count(*) from tasker.board where slot = 0`)
	require.Positive(t, alive, "it was in the middle")
	for _, d := range r.ByName([]string{"orchestrator-a"}) {
		require.NoError(t, d.Start())
	}
	drain(t, r, 50*time.Second)
	t.Logf("%d of %d diamonds were alive; the last one ended %v after the kill", alive, n, time.Since(killed).Round(time.Millisecond))

	f := verify(t, r, accepted)
	var took []time.Duration
	for _, a := range f.Attempts {
		if a.Outcome == check.LeaseLost {
			took = append(took, a.Reported.Sub(killed))
		}
	}
	require.NotEmpty(t, took, "the dead had something in hand")
	slices.Sort(took)
	t.Logf("%d steps were lost with their workers and in line again %v to %v (median %v) after the kill; the lease is %v",
		len(took), took[0].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), took[len(took)/2].Round(time.Millisecond), rig.Lease)
	// A lease was last extended at most one heartbeat before the kill.
	require.GreaterOrEqual(t, took[0], rig.Lease-2*rig.Heartbeat)
	require.LessOrEqual(t, took[len(took)-1], rig.Lease+2*time.Second)

	again := 0
	for _, x := range f.Executions {
		if x.Attempt > 1 && x.Outcome == ledger.Succeeded {
			again++
		}
	}
	require.Equal(t, len(f.Tasks)*4, len(f.Attempts)-len(took))
	t.Logf("%d steps ran again", again)
}
