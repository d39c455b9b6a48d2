package enginetest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// startRelaxed runs an engine whose listeners are proven, so that its pollers look
// rarely. No heartbeat of the orchestrator looks for missed work.
func startRelaxed(t *testing.T, register func(*worker.Worker) error, readiness, others time.Duration) *enginetest.Engine {
	t.Helper()
	e := enginetest.Start(t, register, func(o *orchestration.Config, w *worker.Config) {
		o.HeartbeatInterval = time.Hour
		for _, system := range []*coordinator.Config{&o.Orchestration, &o.Readiness, &w.Events} {
			system.Subscription.HealthCheckInterval = 20 * time.Millisecond
			system.Poller.RelaxedInterval, system.Poller.Jitter = others, 0
		}
		o.Readiness.Poller.RelaxedInterval = readiness
	})
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		for name, h := range systems(e) {
			if h.Pace != deploymode.PaceRelaxed {
				return false, name + " is not relaxed"
			}
		}
		return true, ""
	})
	return e
}

func systems(e *enginetest.Engine) map[string]coordinator.Health {
	all := e.Orchestrator.Health()
	if events := e.Worker.Health().Events; events != nil {
		all["worker"] = *events
	}
	return all
}

// missed is the work that only a poll has found, by system.
func missed(e *enginetest.Engine) map[string]uint64 {
	counts := map[string]uint64{}
	for name, h := range systems(e) {
		counts[name] = h.Missed
	}
	return counts
}

// TestWhatOnlyAPollFindsToBeDueIsMissed: for all due work of the readiness system,
// without a signal and without a timer.
func TestWhatOnlyAPollFindsToBeDueIsMissed(t *testing.T) {
	t.Parallel()
	type neglected struct {
		prepare func(e *enginetest.Engine, try int)
		neglect string
		left    string // how much of it is left
	}
	for name, c := range map[string]neglected{
		"a due step": {func(e *enginetest.Engine, try int) {
			id := e.Submit("test", "later", fmt.Sprintf(`{"try":%d}`, try))
			e.Until(id, func(task *store.Task) bool { return task.State == workflow.TaskWaitingForRetry })
		}, `update tasker.board set due_at = clock_timestamp() where state = 1`, `select count(*) from tasker.board where state = 1`},
		"a lease": {func(e *enginetest.Engine, try int) {
			if try == 1 {
				require.NoError(t, e.Worker.Stop(t.Context()))
			}
			e.DB.Exec(t, `with gone as (delete from tasker.board returning task_uuid) delete from tasker.tasks where task_uuid in (select task_uuid from gone)`)
			e.Submit("test", "later", fmt.Sprintf(`{"try":%d}`, try))
			plan, err := e.Store.PlanNamed(t.Context(), "test", "later", "1.0.0")
			require.NoError(t, err)
			claimed, _, err := e.Store.Claim(t.Context(), store.ClaimRequest{Worker: uuid.Max, Callables: plan.Callables, Limit: 1, Lease: time.Hour}, true)
			require.NoError(t, err)
			require.Len(t, claimed, 1)
		}, `update tasker.board set lease_until = clock_timestamp() where state = 3`, `select count(*) from tasker.board where state = 3`},
		"a schedule": {func(e *enginetest.Engine, try int) {
			if try > 1 {
				return
			}
			_, err := e.Orchestrator.CreateSchedule(t.Context(), store.Schedule{Namespace: "test", Name: "hourly", Template: "later", Version: "1.0.0", Cron: "@every 1h"}, ana)
			require.NoError(t, err)
		}, `update tasker.schedules set next_run_at = clock_timestamp()`, `select count(*) from tasker.schedules where next_run_at <= clock_timestamp()`},
		"a message about a task": {func(*enginetest.Engine, int) {}, `insert into tasker.task_messages (task_uuid, kind) values (gen_random_uuid(), 1)`,
			`select count(*) from tasker.task_messages`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := startRelaxed(t, later, 3*time.Second, time.Hour) // a poll of the others sets a timer for what is due
			readiness := func() coordinator.Health { return e.Orchestrator.Health()["task_readiness"] }
			// With a listener that is late at that moment no work counts as missed.
			for try := 1; readiness().Missed == 0; try++ {
				require.LessOrEqual(t, try, 20, "%+v", readiness())
				c.prepare(e, try)
				polled := readiness().Poller.Cycles
				pgtest.Eventually(t, 30*time.Second, func() (bool, string) { return readiness().Poller.Cycles > polled, "no poll comes" })
				require.Zero(t, readiness().Missed)
				require.EqualValues(t, 1, e.DB.Exec(t, c.neglect))
				pgtest.Eventually(t, 30*time.Second, func() (bool, string) { return e.DB.QueryInt(t, c.left) == 0, fmt.Sprintf("%+v", readiness()) })
				cycles := readiness().Poller.Cycles
				pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
					return readiness().Missed > 0 || readiness().Poller.Cycles > cycles, "no poll ends"
				})
			}
			require.EqualValues(t, 1, readiness().Missed)
		})
	}
}

// later registers a template whose step succeeds at its second attempt, an hour
// after the first.
func later(w *worker.Worker) error {
	tmpl, _, err := template.Parse("later.yaml", []byte(
		"name: later\nnamespace_name: test\nversion: 1.0.0\nsteps:\n  - {name: a, handler: {callable: test.later}, retry: {max_attempts: 3}}\n"))
	if err != nil {
		return err
	}
	return errors.Join(w.RegisterTemplate(tmpl), w.Register("test.later", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
		if ctx.Attempt() == 1 {
			return nil, worker.Retryable(errors.New("not yet"), time.Hour)
		}
		return 1, nil
	})))
}

// TestWhatItsTimerFindsIsNotMissed: for any poll interval, a healthy engine misses
// nothing. The timer finds due work, signals all other.
func TestWhatItsTimerFindsIsNotMissed(t *testing.T) {
	t.Parallel()
	e := startRelaxed(t, handlers(nil), 250*time.Millisecond, 250*time.Millisecond)
	byTimer := func() uint64 { return e.Orchestrator.Health()["task_readiness"].Found[telemetry.ByTimer] }
	for i := 0; i < 10 || byTimer() == 0; i++ { // a look for another reason may come first on a busy machine
		require.Less(t, i, 100, "the timer found no due work")
		id := e.Submit("test", "flaky", fmt.Sprintf(`{"n":%d}`, i))
		require.Equal(t, workflow.TaskComplete, e.Await(id).State)
	}
	require.Equal(t, map[string]uint64{"orchestration": 0, "task_readiness": 0, "worker": 0}, missed(e))
}
