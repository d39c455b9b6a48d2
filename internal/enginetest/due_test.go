package enginetest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// TestATaskThatCannotBeCancelledHoldsUpNoLeasesAndSchedules: the database rejects the end
// of a task whose step was called off. Schedules run all the same, and before them leases end.
func TestATaskThatCannotBeCancelledHoldsUpNoLeasesAndSchedules(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	id := w.Submit("waits", "over_blocked", `{}`)
	sub := w.untilWaiting(id, "sub").Waiting.TaskUUID
	w.DB.Exec(t, `create function refuse() returns trigger language plpgsql as $$
		begin
			if new.task_uuid <> (select min(t.task_uuid::text)::uuid from tasker.tasks t) and new.outcome = 5 then
				raise exception 'refused by the test' using errcode = 'check_violation';
			end if;
			return new;
		end $$`)
	w.DB.Exec(t, `create trigger refuse before insert on tasker.step_attempts for each row execute function refuse()`)
	require.NoError(t, w.Orchestrator.Cancel(t.Context(), id, "ana", "because"))
	require.Eventually(t, func() bool { return w.Orchestrator.Health()["task_readiness"].ConsecutiveErrors > 0 }, patience, 2*time.Millisecond)

	made, err := w.Orchestrator.CreateSchedule(t.Context(), store.Schedule{Namespace: "waits", Name: "hourly", Template: "simple", Version: "1.0.0", Cron: "@every 1h"}, ana)
	require.NoError(t, err)
	w.DB.Exec(t, `update tasker.schedules set next_run_at = now() - interval '1 s'`)
	w.Bus.Publish(signal.Signal{Topic: signal.TopicDue})
	require.Eventually(t, func() bool {
		now, err := w.Store.Schedule(t.Context(), made.UUID)
		return err == nil && now.LastTask != nil
	}, patience, 5*time.Millisecond, "the schedule does not run")
	w.DB.Exec(t, `drop trigger refuse on tasker.step_attempts`)
	require.Equal(t, workflow.TaskCancelled, w.Await(*sub).State)
}
