package scenarios

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/chaos/internal/ledger"
	"github.com/tasker-go/tasker/test/chaos/internal/rig"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
)

// envKills is how often a busy worker is killed; once when empty.
const envKills = "CHAOS_KILLS"

// defaultLease is worker.lease_seconds.
const defaultLease = 10 * time.Second

// TestStepsOfAKilledWorkerRunAgainWithinTheLease, with the default leases of workers. A
// worker that is not killed runs a handler of two minutes, twelve leases, once.
func TestStepsOfAKilledWorkerRunAgainWithinTheLease(t *testing.T) {
	kills := kills(t)
	r := startRig(t, rig.Options{DefaultLeases: true, Permits: 10, Orchestrators: []string{"Hybrid"}, Workers: []string{"Hybrid", "Hybrid", "Hybrid"}})

	var accepted []workload.Accepted
	victims := r.ByName([]string{"worker-a", "worker-b", "worker-c"})
	if kills > 1 { // it takes two minutes
		accepted = submit(t, r, workload.AtOnce("endless", 1, workload.Endless))
		healthy := nameOf(awaitExecution(t, r, 1).Instance)
		victims = slices.DeleteFunc(victims, func(w *rig.Daemon) bool { return w.Name == healthy })
	}
	died := map[string]time.Time{} // by the instance
	for i := range kills {
		accepted = append(accepted, submit(t, r, workload.AtOnce(fmt.Sprintf("lengthy-%d", i), 30, workload.Lengthy))...)
		var victim *rig.Daemon
		var instance string
		pgtest.Eventually(t, 20*time.Second, func() (bool, string) {
			victim = busiest(t, r, victims)[0]
			instance = running(t, r, victim.Name, died, func(*ledger.Execution) bool { return true })
			return instance != "", victim.Name + " runs nothing"
		})
		id := workerID(t, victim)
		died[instance] = time.Now()
		victim.Kill()
		pgtest.Eventually(t, 2*defaultLease, func() (bool, string) {
			n := number(t, r, `select count(*) from tasker.board b join tasker.workers w on w.worker_uuid = b.worker where w.worker_id = $1`, id)
			return n == 0, fmt.Sprintf("%d steps are still those of the dead %s", n, victim.Name)
		})
		restart(t, r, victim)
	}
	drain(t, r, 3*time.Minute)

	f := verify(t, r, accepted)
	var took []time.Duration
	for _, x := range f.Executions {
		if killed := died[x.Instance]; x.Outcome == "" && !killed.IsZero() {
			took = append(took, again(f.Executions, x).Sub(killed))
		}
	}
	require.NotEmpty(t, took, "the dead workers held claims")
	slices.Sort(took)
	t.Logf("%d handlers ran again %v to %v (median %v) after %d kills; the lease is %v", len(took), took[0].Round(time.Millisecond),
		took[len(took)-1].Round(time.Millisecond), took[len(took)/2].Round(time.Millisecond), kills, defaultLease)
	require.LessOrEqual(t, took[len(took)-1], defaultLease+3*time.Second) // for busy machines
	for _, x := range f.Executions {
		if kills > 1 && x.Task == accepted[0].Task {
			require.Equal(t, 1, x.Attempt, "the handler of two minutes")
		}
	}
}

// TestHandlersOutliveAnOutageThatIsLongerThanTheLease: the leases of all handlers end
// while the database is unavailable, and none is lost.
func TestHandlersOutliveAnOutageThatIsLongerThanTheLease(t *testing.T) {
	r := startRig(t, rig.Options{DefaultLeases: true, Orchestrators: []string{"Hybrid", "Hybrid"}, Workers: []string{"Hybrid", "Hybrid"}})
	accepted := submit(t, r, workload.AtOnce("outlasting", 20, workload.Outlasting))
	pgtest.Eventually(t, 20*time.Second, func() (bool, string) {
		list, err := ledger.Read(r.Ledger())
		require.NoError(t, err)
		return len(list) == len(accepted), fmt.Sprintf("%d handlers run", len(list))
	})
	release, err := r.TakeServer(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.Server().StopImmediate(t.Context()))
	<-time.After(defaultLease + 2*time.Second)
	require.NoError(t, r.Server().Restart(t.Context()))
	release()
	drain(t, r, time.Minute)
	for _, x := range verify(t, r, accepted).Executions {
		require.Equal(t, 1, x.Attempt, "of task %s", x.Task)
		require.Equal(t, ledger.Succeeded, x.Outcome)
	}
}

func restart(t *testing.T, r *rig.Rig, d *rig.Daemon) {
	t.Helper()
	require.NoError(t, d.Start())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, r.WaitReady(ctx))
}

func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv(envKills)
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// TestWhatNeverBeganIsNotLost: a killed worker has claimed more than it runs. Each of its
// steps is executed at most as often as its template allows, and those that may not be
// repeated are lost only if they were about to begin on a free permit: it cannot be known
// whether they did.
func TestWhatNeverBeganIsNotLost(t *testing.T) {
	const permits = 4
	r := startRig(t, rig.Options{Permits: permits, Orchestrators: []string{"Hybrid"}, Workers: []string{"Hybrid", "Hybrid"}})
	workers := r.ByName([]string{"worker-a", "worker-b"})
	died := map[string]time.Time{}
	var accepted []workload.Accepted
	// The loss of another step blames nobody, and the step runs again.
	once := func(x *ledger.Execution) bool {
		i := slices.IndexFunc(accepted, func(o workload.Accepted) bool { return o.Task == x.Task })
		return i >= 0 && (accepted[i].Flow.Name == workload.Limited[1].Name || accepted[i].Flow.Name == workload.Unrepeatable.Name)
	}
	for i := range kills(t) {
		for _, w := range workers {
			require.NoError(t, w.Freeze())
		}
		for n, flow := range []workload.Workflow{workload.Limited[1], workload.Limited[2], workload.Limited[3], workload.Unrepeatable} {
			accepted = append(accepted, submit(t, r, workload.AtOnce(fmt.Sprintf("limited-%d-%d", i, n), 300, flow))...)
		}
		for _, w := range workers {
			require.NoError(t, w.Thaw())
		}
		victim := workers[i%2]
		var instance string
		pgtest.Eventually(t, 20*time.Second, func() (bool, string) {
			// Frozen first: a step that runs then cannot end before the kill.
			require.NoError(t, victim.Freeze())
			if instance = running(t, r, victim.Name, died, once); instance == "" {
				require.NoError(t, victim.Thaw())
			}
			return instance != "", victim.Name + " runs nothing"
		})
		died[instance] = time.Now()
		victim.Kill()
		restart(t, r, victim)
		drain(t, r, time.Minute)
	}

	f := recorded(t, r, accepted)
	executions, began := map[uuid.UUID]int{}, map[int64]bool{}
	for _, x := range f.Executions {
		executions[x.Task]++
		began[x.Token] = true
	}
	for _, o := range accepted {
		most := 1
		for n, flow := range workload.Limited {
			if o.Flow.Name == flow.Name {
				most = n
			}
		}
		require.LessOrEqual(t, executions[o.Task], most, "%s %s", o.Flow.Name, o.Task)
	}
	lost, never := 0, 0
	for _, a := range f.Attempts {
		if a.Reason != "worker_lost" {
			continue
		}
		if lost++; !began[a.Token] {
			never++
		}
	}
	t.Logf("%d steps ended as worker_lost after %d kills; %d of them had written nothing", lost, kills(t), never)
	require.Positive(t, lost)
	// Steps that were about to begin on a free permit, not those claimed ahead.
	require.LessOrEqual(t, never, kills(t)*permits)
}

// TestLatencyWhileWorkersAreKilled: of two workers that share 600 tasks a second one is
// killed every ten seconds, and is back at once. Only what the dead one held waits, and for
// one lease.
func TestLatencyWhileWorkersAreKilled(t *testing.T) {
	const perSecond = 600
	over := time.Duration(kills(t)) * 10 * time.Second
	r := startRig(t, rig.Options{DefaultLeases: true, Orchestrators: []string{"Hybrid"}, Workers: []string{"Hybrid", "Hybrid"}})
	workers := r.ByName([]string{"worker-a", "worker-b"})
	ctx, cancel := context.WithTimeout(t.Context(), over+time.Minute)
	defer cancel()
	var accepted []workload.Accepted
	group, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	group.Go(func() (err error) {
		s := &workload.Submitter{URLs: r.Orchestrators}
		accepted, err = s.Run(ctx, start, workload.Steadily("brief", perSecond, over, workload.Brief))
		return err
	})
	for i := range kills(t) {
		<-time.After(time.Until(start.Add(time.Duration(i)*10*time.Second + 2*time.Second)))
		workers[i%2].Kill()
		restart(t, r, workers[i%2])
	}
	require.NoError(t, group.Wait())
	require.Zero(t, number(t, r, `select count(*) from tasker.v_tasks where state_since < now() - interval '15 s'`), "tasks that stand still")
	drain(t, r, time.Minute)

	const since = `extract(epoch from completed_at - requested_at) * 1000`
	half := number(t, r, `select percentile_disc(0.5) within group (order by `+since+`)::int from tasker.v_tasks`)
	p99 := number(t, r, `select percentile_disc(0.99) within group (order by `+since+`)::int from tasker.v_tasks`)
	most := number(t, r, `select max(`+since+`)::int from tasker.v_tasks`)
	t.Logf("%d tasks, %d kills: p50 %d ms, p99 %d ms, maximum %d ms", len(accepted), kills(t), half, p99, most)
	require.Less(t, p99, 12_000)
	for _, x := range verify(t, r, accepted).Executions {
		require.LessOrEqual(t, x.Attempt, 1+kills(t))
	}
}

// running is the start of a live worker in which such an execution runs now; "" if none does. It
// reads only the files of that start: reading the whole ledger takes longer than handlers
// run.
func running(t *testing.T, r *rig.Rig, name string, dead map[string]time.Time, of func(*ledger.Execution) bool) string {
	t.Helper()
	list, err := ledger.ReadOf(r.Ledger(), func(instance string) bool { return nameOf(instance) == name && dead[instance].IsZero() })
	require.NoError(t, err)
	for _, x := range list {
		if x.Outcome == "" && of(&x) {
			return x.Instance
		}
	}
	return ""
}

// again is when the step of an execution was executed next.
func again(list []ledger.Execution, before ledger.Execution) time.Time {
	var next ledger.Execution
	for _, x := range list {
		if x.Task == before.Task && x.Step == before.Step && x.Token > before.Token && (next.Token == 0 || x.Token < next.Token) {
			next = x
		}
	}
	return next.Start
}
