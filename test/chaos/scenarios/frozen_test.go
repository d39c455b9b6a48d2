package scenarios

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/test/chaos/internal/rig"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
)

// standstill is the longest time without a result that was applied, from a
// moment until everything was done, in ms.
const standstill = `
select coalesce(max(extract(epoch from at - before) * 1000), 0)::int
from (select at, lag(at) over (order by at) as before
      from (select applied_at as at from tasker.step_attempts union all select $1) a) g
where at > $1`

// TestTheFrozenDoNotStopTheFleet freezes two of three orchestrators while each holds an
// apply slot and the rows that it took; and two of three workers while each holds the
// tasks that it settles.
func TestTheFrozenDoNotStopTheFleet(t *testing.T) {
	for name, c := range map[string]struct {
		o      rig.Options
		frozen []string
		what   string
	}{
		"orchestrators":         {rig.Options{OnlyReport: true}, []string{"orchestrator-a", "orchestrator-b"}, rig.ApplySlot},
		"orchestrators, pooled": {rig.Options{OnlyReport: true, Pooled: true}, []string{"orchestrator-a", "orchestrator-b"}, rig.ApplySlot},
		"workers":               {rig.Options{}, []string{"worker-a", "worker-b"}, rig.AnyTransaction},
		"workers, pooled":       {rig.Options{Pooled: true}, []string{"worker-a", "worker-b"}, rig.AnyTransaction},
	} {
		t.Run(name, func(t *testing.T) {
			if c.o.Pooled {
				needs.Tool(t, needs.PgBouncer)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			c.o.Dir, c.o.BinDir = t.TempDir(), binDir
			c.o.Orchestrators, c.o.Workers = []string{"Hybrid", "Hybrid", "Hybrid"}, []string{"Hybrid", "Hybrid", "Hybrid"}
			r, err := rig.Start(ctx, c.o)
			t.Cleanup(func() { require.NoError(t, r.Close()) })
			require.NoError(t, err)
			frozen := r.ByName(c.frozen)
			accepted, since, left := freezeAmidst(ctx, t, r, frozen, c.what)
			drain(t, r, time.Minute)
			longest := time.Duration(number(t, r, standstill, since)) * time.Millisecond
			t.Logf("%d tasks were alive; the fleet stood still for %v at most", left, longest)
			require.Less(t, longest, 6*time.Second)
			for _, d := range frozen {
				require.NoError(t, d.Thaw())
			}
			verify(t, r, accepted)
		})
	}
}

// freezeAmidst freezes daemons in a transaction while there is more work, and returns
// when, and how many tasks were alive then. On a busy machine the tasks may end before
// both are met; then it creates more.
func freezeAmidst(ctx context.Context, t *testing.T, r *rig.Rig, daemons []*rig.Daemon, what string) (accepted []workload.Accepted, since time.Time, left int) {
	t.Helper()
	const tries, patience = 20, 3 * time.Second // for as long as there is work to meet them at
	for try := 1; ; try++ {
		accepted = append(accepted, submit(t, r, workload.AtOnce(fmt.Sprintf("diamond-%d", try), 1200, workload.Laboured))...)
		err := r.FreezeHolding(ctx, daemons, what, patience)
		if err == nil {
			require.NoError(t, r.Do(ctx, func(db *pgx.Conn) error { return db.QueryRow(ctx, `select clock_timestamp()`).Scan(&since) }))
			if left = number(t, r, `select count(*) from tasker.board where slot = 0`); left > 10 {
				return accepted, since, left
			}
		} else if !errors.Is(err, rig.ErrNothingHeld) {
			require.NoError(t, err)
		}
		require.Less(t, try, tries, "the daemons were not met in the middle of a transaction")
		for _, d := range daemons {
			require.NoError(t, d.Thaw())
		}
	}
}
