package scenarios

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/test/chaos/internal/rig"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
)

// TestServicesShareANamespace: two services with different handlers, and one that will
// replace both, are restarted at random, also several at a time. No step fails for lack
// of a handler, and none is executed by a worker without it.
func TestServicesShareANamespace(t *testing.T) {
	const perRestart = 40
	r := startRig(t, rig.Options{Orchestrators: []string{"Hybrid", "EventDrivenOnly"}, Workers: []string{"Hybrid", "EventDrivenOnly", "PollingOnly"},
		Serves: map[string]string{"worker-a": workload.SortHandler, "worker-b": workload.PackHandler}})
	workers := r.ByName([]string{"worker-a", "worker-b", "worker-c"})
	var accepted []workload.Accepted
	for i := range 3 * kills(t) {
		accepted = append(accepted, submit(t, r, workload.AtOnce(fmt.Sprintf("shared-%d", i), perRestart, workload.Shared))...)
		victim := workers[rand.IntN(len(workers))]
		<-time.After(rand.N(300 * time.Millisecond))
		if rand.IntN(2) == 0 {
			victim.Kill()
		} else {
			require.NoError(t, victim.Stop(t.Context()))
		}
		<-time.After(rand.N(time.Second))
		restart(t, r, victim)
	}
	drain(t, r, time.Minute)

	require.Zero(t, number(t, r, `select count(*) from tasker.step_attempts where outcome = 2`), "attempts that failed")
	f := verify(t, r, accepted)
	by := map[string]int{}
	for _, x := range f.Executions {
		by[x.Step]++
	}
	t.Logf("%d tasks, %d restarts, executions by step: %v", len(accepted), 3*kills(t), by)
}
