package rest

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// analyticsRoutes summarise what the ledger holds. Their statements read tens of
// thousands of rows, so that the answers are cached.
type analyticsRoutes struct {
	*orchestratorAPI
	performances *answerCache[int, *client.Performance]
	bottlenecks  *answerCache[bottleneckKey, *client.Bottlenecks]
}

type bottleneckKey struct{ limit, executions int }

// bottleneckWindow is what bottlenecks are looked for in.
const bottleneckWindow = 24 * time.Hour

func newAnalytics(o *orchestratorAPI, age time.Duration) *analyticsRoutes {
	running := make(chan struct{}, 1)
	return &analyticsRoutes{orchestratorAPI: o,
		performances: newAnswerCache[int, *client.Performance]("performance", age, running, o.cfg.Telemetry),
		bottlenecks:  newAnswerCache[bottleneckKey, *client.Bottlenecks]("bottlenecks", age, running, o.cfg.Telemetry)}
}

func (r *analyticsRoutes) add() {
	op := operation{tag: "analytics"}
	add(r.api, op.at(http.MethodGet, "/v1/analytics/performance", "get-performance", "Summarise the tasks of the last hours"), r.performance)
	add(r.api, op.at(http.MethodGet, "/v1/analytics/bottlenecks", "get-bottlenecks", "Show the slowest steps and templates of the last day"), r.slowest)
}

func (r *analyticsRoutes) performance(ctx context.Context, in *struct {
	Hours number `query:"hours" within:"0,8760,24" doc:"How far back, 0 to 8760; 24 when absent, and 0 means 1"`
}) (*client.Performance, error) {
	hours := max(int(in.Hours), 1)
	return r.performances.get(ctx, hours, func() (*client.Performance, error) {
		p, err := r.store.Performance(ctx, time.Duration(hours)*time.Hour)
		return performanceOf(&p), err
	})
}

func performanceOf(p *store.Performance) *client.Performance {
	w := &client.Performance{
		TotalTasks: p.Total, ActiveTasks: p.Active, CompletedTasks: p.Completed, FailedTasks: p.Failed,
		CompletionRate: 100 * ratio(p.Completed, p.Total), ErrorRate: 100 * ratio(p.Failed, p.Total),
		AverageTaskDurationSeconds: p.TaskSeconds, AverageStepDurationSeconds: p.StepSeconds,
		TasksPerHour: p.Total, StepsPerHour: p.Steps, SystemHealthScore: 1,
		AnalysisPeriodStart: client.Time{Time: p.Since}, CalculatedAt: client.Time{Time: p.At},
	}
	if p.Failed > 0 {
		w.SystemHealthScore = ratio(p.Completed, p.Completed+p.Failed)
	}
	return w
}

func ratio(part, of int64) float64 {
	if of == 0 {
		return 0
	}
	return float64(part) / float64(of)
}

func (r *analyticsRoutes) slowest(ctx context.Context, in *struct {
	Limit      number `query:"limit" within:"1,100,10" doc:"How many of each, 1 to 100; 10 when absent"`
	Executions number `query:"min_executions" within:"0,1000000,5" doc:"Only what was executed so often; 5 when absent"`
}) (*client.Bottlenecks, error) {
	key := bottleneckKey{int(in.Limit), int(in.Executions)}
	return r.bottlenecks.get(ctx, key, func() (*client.Bottlenecks, error) {
		b, err := r.store.Bottlenecks(ctx, bottleneckWindow, key.limit, key.executions)
		if err != nil {
			return nil, err
		}
		return bottlenecksOf(&b, r.store.PoolStat()), nil
	})
}

func bottlenecksOf(b *store.Bottlenecks, pool store.PoolStat) *client.Bottlenecks {
	w := &client.Bottlenecks{ResourceUtilization: client.ResourceUtilization{
		DatabasePoolUtilization: ratio(int64(pool.Acquired), int64(pool.Max)), SystemHealth: healthCountsOf(b)}}
	w.SlowSteps = each(b.Steps, func(s *store.SlowWork) client.SlowStep {
		return client.SlowStep{NamespaceName: s.Namespace, TaskName: s.Task, Version: s.Version, StepName: s.Step,
			AverageDurationSeconds: s.Average, MaxDurationSeconds: s.Longest, ExecutionCount: s.Executions,
			ErrorCount: s.Errors, ErrorRate: ratio(s.Errors, s.Executions), LastExecutedAt: instant(s.LastAt)}
	})
	w.SlowTasks = each(b.Tasks, func(t *store.SlowWork) client.SlowTask {
		return client.SlowTask{NamespaceName: t.Namespace, TaskName: t.Task, Version: t.Version,
			AverageDurationSeconds: t.Average, MaxDurationSeconds: t.Longest, ExecutionCount: t.Executions, AverageStepCount: t.Steps,
			ErrorCount: t.Errors, ErrorRate: ratio(t.Errors, t.Executions), LastExecutedAt: instant(t.LastAt)}
	})
	w.Recommendations = recommendations(w)
	return w
}

// The values beyond which something is recommended.
const (
	manyErrors  = 0.2
	busyPool    = 0.8
	slowSeconds = 30
)

func recommendations(b *client.Bottlenecks) []string {
	list := []string{}
	for i := range b.SlowSteps {
		if s := &b.SlowSteps[i]; s.ErrorRate > manyErrors {
			list = append(list, fmt.Sprintf("Step %s of %s/%s fails in %.0f %% of its executions: look at its errors and retries",
				s.StepName, s.NamespaceName, s.TaskName, 100*s.ErrorRate))
		}
	}
	if len(b.SlowSteps) > 0 && b.SlowSteps[0].AverageDurationSeconds > slowSeconds {
		s := &b.SlowSteps[0]
		list = append(list, fmt.Sprintf("Step %s of %s/%s takes %.0f s on average: split it, or make its handler faster",
			s.StepName, s.NamespaceName, s.TaskName, s.AverageDurationSeconds))
	}
	if used := b.ResourceUtilization.DatabasePoolUtilization; used > busyPool {
		list = append(list, fmt.Sprintf("%.0f %% of the database connections are in use: raise common.database.pool.max_connections", 100*used))
	}
	return list
}

func healthCountsOf(b *store.Bottlenecks) client.SystemHealthCounts {
	task := func(s workflow.TaskState) int64 { return b.TaskStates[s.String()] }
	named := func(state string) int64 { return b.TaskStates[state] } // of states that no task rests in
	step := func(s workflow.StepState) int64 { return b.StepStates[s.String()] }
	w := client.SystemHealthCounts{
		PendingTasks: task(workflow.TaskPending), InitializingTasks: named("initializing"),
		EnqueuingStepsTasks: named("enqueuing_steps"), StepsInProcessTasks: task(workflow.TaskStepsInProcess),
		EvaluatingResultsTasks: named("evaluating_results"), WaitingForDependenciesTasks: task(workflow.TaskWaitingForDependencies),
		WaitingForRetryTasks: task(workflow.TaskWaitingForRetry), BlockedByFailuresTasks: task(workflow.TaskBlockedByFailures),
		CompleteTasks: task(workflow.TaskComplete), ErrorTasks: task(workflow.TaskError), CancelledTasks: task(workflow.TaskCancelled),
		ResolvedManuallyTasks: task(workflow.TaskResolvedManually),
		PendingSteps:          step(workflow.StepPending), EnqueuedSteps: step(workflow.StepEnqueued),
		InProgressSteps:                      step(workflow.StepInProgress),
		EnqueuedForOrchestrationSteps:        step(workflow.StepEnqueuedForOrchestration),
		EnqueuedAsErrorForOrchestrationSteps: step(workflow.StepEnqueuedAsErrorForOrchestration),
		WaitingForRetrySteps:                 step(workflow.StepWaitingForRetry), CompleteSteps: step(workflow.StepComplete),
		ErrorSteps: step(workflow.StepError), CancelledSteps: step(workflow.StepCancelled),
		ResolvedManuallySteps: step(workflow.StepResolvedManually),
	}
	for _, n := range b.TaskStates {
		w.TotalTasks += n
	}
	for _, n := range b.StepStates {
		w.TotalSteps += n
	}
	return w
}
