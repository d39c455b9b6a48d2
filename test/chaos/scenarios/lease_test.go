package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/chaos/internal/check"
	"github.com/tasker-go/tasker/test/chaos/internal/ledger"
	"github.com/tasker-go/tasker/test/chaos/internal/rig"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
)

// envDiamonds is the variable with the number of diamonds; 300 when empty.
const envDiamonds = "CHAOS_DIAMONDS"

// TestTheLeaseDecidesWhenWorkComesBack kills the only orchestrator and half of the
// workers amid many diamonds. Everything completes, and the steps of the dead workers run
// again when their leases end, not when the workers are considered dead.
func TestTheLeaseDecidesWhenWorkComesBack(t *testing.T) {
	n := 300
	if text := os.Getenv(envDiamonds); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	r := newRig(t, []string{"Hybrid"}, []string{"Hybrid", "Hybrid", "Hybrid", "Hybrid"})
	// They begin when all is there, so that permits are busy in the middle.
	workers := r.ByName([]string{"worker-a", "worker-b", "worker-c", "worker-d"})
	for _, w := range workers {
		require.NoError(t, w.Freeze())
	}
	accepted := submit(t, r, workload.AtOnce("diamond", n, workload.Laboured))
	for _, w := range workers {
		require.NoError(t, w.Thaw())
	}
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		done := number(t, r, `select count(*) from tasker.step_attempts`)
		return done >= n, fmt.Sprintf("%d steps have ended", done)
	})
	const some = 10 // between two waves of steps there may be none
	var half []*rig.Daemon
	pgtest.Eventually(t, 10*time.Second, func() (bool, string) {
		held := held(t, r, workers)
		half = byHeld(workers, held)[:2]
		return held[half[1]] >= some, fmt.Sprintf("the second of them holds %d steps", held[half[1]])
	})

	doomed := slices.Concat(half, r.ByName([]string{"orchestrator-a"}))
	killed := time.Now()
	for _, d := range doomed {
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
	require.NotEmpty(t, took, "the dead workers held claims")
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

// busiest sorts workers by how many steps they have in hand, the most first.
func busiest(t *testing.T, r *rig.Rig, workers []*rig.Daemon) []*rig.Daemon {
	t.Helper()
	return byHeld(workers, held(t, r, workers))
}

func byHeld(workers []*rig.Daemon, held map[*rig.Daemon]int) []*rig.Daemon {
	return slices.SortedFunc(slices.Values(workers), func(a, b *rig.Daemon) int { return held[b] - held[a] })
}

// held is how many steps each worker holds.
func held(t *testing.T, r *rig.Rig, workers []*rig.Daemon) map[*rig.Daemon]int {
	t.Helper()
	ids := make(map[*rig.Daemon]string, len(workers))
	for _, w := range workers {
		ids[w] = workerID(t, w)
	}
	byID := map[string]int{}
	require.NoError(t, r.Do(t.Context(), func(db *pgx.Conn) error {
		rows, err := db.Query(t.Context(), `select w.worker_id, count(*) from tasker.board b join tasker.workers w on w.worker_uuid = b.worker
			where b.lease_until is not null group by 1`)
		if err != nil {
			return err
		}
		var id string
		var n int
		_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error {
			byID[id] = n
			return nil
		})
		return err
	}))
	list := make(map[*rig.Daemon]int, len(workers))
	for w, id := range ids {
		list[w] = byID[id]
	}
	return list
}

func workerID(t *testing.T, w *rig.Daemon) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL()+"/health", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	var health struct {
		WorkerID string `json:"worker_id"`
	}
	require.NoError(t, json.NewDecoder(response.Body).Decode(&health))
	require.NotEmpty(t, health.WorkerID)
	return health.WorkerID
}
