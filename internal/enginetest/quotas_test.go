package enginetest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// alive counts the tasks of a namespace that have not ended.
const alive = `select count(*) from tasker.board b join tasker.namespaces n on n.namespace_id = b.queue where b.slot = 0 and n.name = $1`

func setQuota(t *testing.T, e *enginetest.Engine, namespace string, most int, kinds ...string) {
	t.Helper()
	_, err := e.Orchestrator.SetQuota(t.Context(), namespace, most, kinds, ana)
	require.NoError(t, err)
}

// Steps whose tasks a quota rejects wait, use no attempt, and begin once there are places; three orchestrators
// give no place twice.
func TestAQuotaAppliesToSubTasks(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	w.AnotherOrchestrator()
	w.AnotherOrchestrator()
	w.end()
	setQuota(t, w.Engine, "waits", 8, store.QuotaSubTasks)
	parents, created := make([]uuid.UUID, 8), make([]store.NewTask, 8)
	for i := range created {
		r := orchestration.Request{Namespace: "waits", Name: "over_blocked", Context: fmt.Appendf(nil, `{"no":%d}`, i), Initiator: "ana", SourceSystem: "test", Reason: "many"}
		var err error
		created[i], err = submission.Prepare(t.Context(), w.Store, &r)
		require.NoError(t, err)
		parents[i] = created[i].UUID
	}
	_, err := w.Store.CreateTasks(t.Context(), created) // together, and not as submissions
	require.NoError(t, err)
	w.Bus.Publish(signal.Signal{Topic: signal.TopicDue})
	pgtest.Eventually(t, patience, func() (bool, string) {
		n := w.DB.QueryInt(t, `select count(*) from tasker.board where state = 1 and due_at is not null`)
		return n == len(parents), fmt.Sprintf("%d steps wait", n)
	})
	require.Zero(t, w.DB.QueryInt(t, `select count(*) from tasker.tasks where parent_task_uuid is not null`))
	_, err = w.Orchestrator.Create(t.Context(), orchestration.Request{Namespace: "waits", Name: "over_blocked", Context: []byte("{}"), Initiator: "ana", SourceSystem: "test", Reason: "one more"})
	require.ErrorContains(t, err, "quota")

	setQuota(t, w.Engine, "waits", 10, store.QuotaSubTasks)
	most := 0
	pgtest.Eventually(t, patience, func() (bool, string) {
		now := w.DB.QueryInt(t, alive, "waits")
		most = max(most, now)
		return now == 0, "tasks are alive"
	})
	require.LessOrEqual(t, most, 10+2, "of the two others, each may have begun one at the same moment")
	for _, id := range parents {
		task := w.Read(id)
		require.Equal(t, workflow.TaskComplete, task.State)
		require.Equal(t, 1, task.Steps[0].Attempts)
	}
	require.Equal(t, len(parents), w.DB.QueryInt(t, `select count(*) from tasker.tasks where parent_task_uuid is not null`))
}

// A schedule whose run a quota rejects stays due; other schedules run.
func TestAQuotaAppliesToSchedules(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	one := s.keep("one", nil)
	setQuota(t, s.Engine, "test", 0, store.QuotaSchedules)
	at := time.Now().UTC().Truncate(time.Second)
	s.due(at, one.UUID)
	waits := s.until(one.UUID, func(now *store.Schedule) bool { return now.LastError != nil })
	require.Equal(t, "a run waits: the quota of the namespace is used up", *waits.LastError)
	require.Equal(t, at, waits.NextRunAt.UTC())
	require.Nil(t, waits.LastRunAt)
	require.Empty(t, s.runs("one"))
	require.GreaterOrEqual(t, testutil.ToFloat64(s.metrics.ScheduleRuns.WithLabelValues("refused")), 1.0)

	_, err := s.Orchestrator.RunSchedule(t.Context(), one.UUID, ana)
	require.NoError(t, err, "an operator may")

	setQuota(t, s.Engine, "test", 100, store.QuotaSchedules)
	ran := s.caughtUp(one.UUID)
	require.Nil(t, ran.LastError)
	require.Contains(t, s.runs("one"), at)
}

// A step whose next task a quota rejects runs again without using an attempt, and the task continues once there is a place.
func TestAQuotaAppliesToNextTasks(t *testing.T) {
	t.Parallel()
	metrics := telemetry.NewMetrics(prometheus.NewRegistry())
	e := chains(t, worker.Typed(hops), func(_ *orchestration.Config, c *worker.Config) { c.Metrics = metrics })
	setQuota(t, e, "chains", 1, store.QuotaNextTasks)
	id := e.Submit("chains", "hop", `{"left":1}`)
	pgtest.Eventually(t, patience, func() (bool, string) {
		return testutil.ToFloat64(metrics.RowsRejected.WithLabelValues("claims")) > 0, "the next task has a place"
	})
	require.Equal(t, 1, e.DB.QueryInt(t, `select count(*) from tasker.tasks`))
	setQuota(t, e, "chains", 2, store.QuotaNextTasks)
	task := e.Await(id)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.Equal(t, 1, task.Steps[0].Attempts)
	end, hops := last(t, e, id)
	require.Equal(t, workflow.TaskComplete, end.State)
	require.Equal(t, 1, hops)
}
