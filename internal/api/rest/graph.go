package rest

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/execution"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// graphRoutes show a task in one answer.
type graphRoutes struct{ *orchestratorAPI }

func (g *graphRoutes) add() {
	add(g.api, operation{tag: "tasks"}.at(http.MethodGet, "/v1/tasks/{uuid}/graph", "get-task-graph",
		"Show a task with its steps, what they depend on, and the tasks that they are, without contexts and results"), g.get)
}

func (g *graphRoutes) get(ctx context.Context, in *taskInput) (*client.TaskGraph, error) {
	graph, err := g.store.Graph(ctx, in.UUID)
	if err != nil {
		return nil, ofTask(in.UUID, err)
	}
	t := graph.Task
	w := &client.TaskGraph{TaskUUID: t.UUID.String(), Namespace: t.Plan.Template.Namespace, Name: t.Plan.Template.Name, Version: t.Plan.Template.Version,
		Status: execution.VisibleState(t.State, t.Counts()).String(), RequestedAt: client.Time{Time: t.RequestedAt}, CompletedAt: instant(t.CompletedAt),
		At: client.Time{Time: graph.At}, Steps: graphSteps(t), Children: each(graph.Children, graphChild), More: graph.MoreChildren}
	if t.FinalReason != nil {
		w.Reason = *t.FinalReason
	}
	if t.Parent != nil {
		w.Parent = &client.GraphParent{TaskUUID: t.Parent.Task.String(), StepNo: t.Parent.Step}
	}
	return w, nil
}

func graphChild(c *store.ChildTask) client.GraphChild {
	return client.GraphChild{TaskUUID: c.Task.String(), StepNo: c.Step, Namespace: c.Of, Name: c.Name, Status: c.State.String(), CompletedAt: instant(c.Ended)}
}

// graphSteps are the steps of a task and those of its template that do not exist, by number.
func graphSteps(t *store.Task) []client.GraphStep {
	list := make([]client.GraphStep, 0, max(len(t.Steps), len(t.Plan.Steps)))
	exist := t.Steps
	for no := range t.Plan.Steps {
		if len(exist) > 0 && exist[0].No == no {
			list, exist = append(list, graphStep(t, &exist[0])), exist[1:]
			continue
		}
		s := &t.Plan.Steps[no]
		list = append(list, client.GraphStep{No: no, StepUUID: store.StepUUID(t.UUID, no).String(), Name: s.Name, Type: string(s.Kind), Callable: s.Handler.Callable,
			State: "not_created", DependsOn: dependsOn(s), MaxAttempts: t.Progress.PolicyOf(s.StepTemplate).MaxAttempts})
	}
	for i := range exist {
		list = append(list, graphStep(t, &exist[i]))
	}
	return list
}

// dependsOn are the numbers of the steps that a step of the template depends on.
func dependsOn(s *workflow.PlanStep) []int {
	if s.Parents == nil {
		return []int{}
	}
	return s.Parents
}

func graphStep(t *store.Task, s *store.Step) client.GraphStep {
	of := t.Plan.Step(t.Progress, s.No)
	w := client.GraphStep{No: s.No, StepUUID: s.UUID.String(), Name: s.Name, Type: string(of.Kind), Callable: of.Handler.Callable, State: s.State.String(),
		DependsOn: dependsOn(of), Attempts: s.Attempts, MaxAttempts: retryPolicy(t, s).MaxAttempts, CreatedAt: instant(&s.CreatedAt), StartedAt: instant(s.LastAttemptAt),
		EndedAt: instant(s.ReportedAt), NextRetryAt: instant(nextRetry(s)), Waiting: waitingOf(s), Progress: progressOf(s)}
	if s.CompletedAt != nil {
		w.EndedAt = instant(s.CompletedAt)
	}
	if s.No >= len(t.Plan.Steps) {
		w.BatchOf = new(of.No)
	}
	if s.WorkerUUID != nil {
		w.WorkerUUID = s.WorkerUUID.String()
	}
	if s.Error != nil {
		var e storedError
		if json.Unmarshal(s.Error, &e) == nil {
			w.ErrorType, w.Error = e.Type, e.Message
		}
	}
	return w
}

// progressOf is how far a step says that it is; nil if it says nothing.
func progressOf(s *store.Step) *client.StepProgress {
	if s.Said == nil {
		return nil
	}
	return &client.StepProgress{Fraction: s.Said.Fraction, Message: s.Said.Message, At: client.Time{Time: s.Said.At}}
}
