package rest_test

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/store"
)

const (
	performancePath = "/v1/analytics/performance"
	bottlenecksPath = "/v1/analytics/bottlenecks"
)

func TestAutoscaling(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.get("/v1/autoscaling/orders").golden(t, "autoscaling")
	require.Equal(t, 404, h.get("/v1/autoscaling/other").StatusCode)
}

func TestAnalytics(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.get(performancePath).golden(t, "performance")
	h.store.pool = store.PoolStat{Max: 10, Acquired: 9}
	h.get(bottlenecksPath).golden(t, "bottlenecks")
	require.Equal(t, 200, h.get(performancePath+"?hours=0").StatusCode)
	require.Equal(t, 200, h.get(performancePath+"?hours=48").StatusCode)
	require.Equal(t, 200, h.get(bottlenecksPath+"?limit=3&min_executions=0").StatusCode)
	require.Equal(t, []string{"performance 24h0m0s", "bottlenecks 24h0m0s 10 5", "performance 1h0m0s", "performance 48h0m0s", "bottlenecks 24h0m0s 3 0"},
		h.store.analysed, "nothing is cached without an age")
	for _, path := range []string{performancePath + "?hours=8761", performancePath + "?hours=-1", performancePath + "?hours=x",
		bottlenecksPath + "?limit=0", bottlenecksPath + "?limit=101", bottlenecksPath + "?min_executions=-1"} {
		h.get(path).refused(t, http.StatusBadRequest, "BAD_REQUEST")
	}
	h.store.fails(sqlError{})
	h.get(performancePath).refused(t, http.StatusInternalServerError, "DATABASE_ERROR")
}

func TestAnalyticsAreComputedOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(_ *rest.Config, o *rest.Orchestrator) { o.AnalyticsAge = time.Hour })
	h.store.fails(sqlError{})
	require.Equal(t, 500, h.get(performancePath).StatusCode)
	h.store.fails(nil)
	h.store.analysed = nil
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			var p client.Performance
			h.get(performancePath).into(t, &p)
			require.EqualValues(t, 8, p.TotalTasks)
		})
	}
	all.Wait()
	require.Equal(t, []string{"performance 24h0m0s"}, h.store.analysed)
	for hours := 1; hours <= 100; hours++ { // more answers than are kept
		require.Equal(t, 200, h.get(performancePath+"?hours="+strconv.Itoa(hours)).StatusCode)
	}
	require.Equal(t, 200, h.get(performancePath+"?hours=100").StatusCode)
	require.Len(t, h.store.analysed, 100)
}

// Of real tasks, alive and ended.
func TestAnalyticsOfRealTasks(t *testing.T) {
	t.Parallel()
	c, _, _ := realHouse(t)
	ctx := t.Context()
	for _, wish := range []string{"good", "good", "bad"} {
		task, err := c.CreateTask(ctx, mood(wish))
		require.NoError(t, err)
		_, err = c.Task(ctx, task.TaskUUID, 30*time.Second)
		require.NoError(t, err)
	}
	_, err := c.CreateTask(ctx, client.TaskRequest{Name: "waiting", Namespace: "shapes", Version: "1.0.0", Initiator: "i", SourceSystem: "s",
		Reason: "r", Context: []byte(`{"order":"o"}`)})
	require.NoError(t, err)
	p, err := c.Performance(ctx, 1)
	require.NoError(t, err)
	require.Equal(t, []int64{4, 1, 2, 1, 4, 5}, []int64{p.TotalTasks, p.ActiveTasks, p.CompletedTasks, p.FailedTasks, p.TasksPerHour, p.StepsPerHour})
	require.InDelta(t, 50, p.CompletionRate, 1e-9)
	require.InDelta(t, 25, p.ErrorRate, 1e-9)
	require.InDelta(t, 2./3, p.SystemHealthScore, 1e-9)
	require.Positive(t, p.AverageTaskDurationSeconds)
	require.Positive(t, p.AverageStepDurationSeconds)
	require.InDelta(t, 3600, p.CalculatedAt.Sub(p.AnalysisPeriodStart.Time).Seconds(), 1e-3)

	b, err := c.Bottlenecks(ctx, 10, 3)
	require.NoError(t, err)
	require.Len(t, b.SlowTasks, 1)
	require.Equal(t, "chain", b.SlowTasks[0].TaskName)
	require.EqualValues(t, 3, b.SlowTasks[0].ExecutionCount)
	require.InDelta(t, 5./3, b.SlowTasks[0].AverageStepCount, 1e-9)
	errors := map[string]int64{}
	for _, s := range b.SlowSteps {
		errors[s.StepName] = s.ErrorCount
		require.EqualValues(t, 3, s.ExecutionCount)
	}
	require.Equal(t, map[string]int64{"first": 0, "second": 1}, errors)
	got := b.ResourceUtilization.SystemHealth
	require.Equal(t, []int64{2, 1, 4, 5, 1}, []int64{got.CompleteTasks, got.ErrorTasks, got.TotalTasks, got.CompleteSteps, got.ErrorSteps})
	require.Len(t, b.Recommendations, 1, "one step fails too often")
}
