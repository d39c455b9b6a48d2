package store_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginestep"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

const parentYAML = `
name: parent
namespace_name: flows
version: 1.0.0
steps:
  - {name: sub, type: task, task: {name: one, version: 1.0.0, context: {}}}
  - {name: other, handler: {callable: other}}
`

// beginner begins steps by the rules; made is called within the transaction when a
// sub-workflow's task has been built and not yet created.
func beginner(made func(uuid.UUID)) store.Beginner {
	return store.Beginner{
		Begin: func(e *store.EngineStep) (enginestep.Beginning, error) {
			return enginestep.Begin(e.Plan.Template, e.Step, &e.Scope, e.Priority)
		},
		Task: func(_ *store.EngineStep, _ *enginestep.SubTask, p *store.Plan) (store.NewTask, error) {
			task := newTask(p)
			made(task.UUID)
			return task, nil
		},
	}
}

// endWith commits the effects of an input on a task.
func endWith(ctx context.Context, s *store.Store, task uuid.UUID, decide func(*store.TakenTask) (store.Change, error)) error {
	taken, err := s.TakeTask(ctx, task)
	if err != nil {
		return err
	}
	defer taken.Release()
	c, err := decide(&taken.Tasks[0])
	if err != nil {
		return err
	}
	_, err = taken.Commit(ctx, uuid.Nil, []store.Change{c})
	return err
}

// A task that is called off while its step begins as another task cancels that one too.
func TestAStepIsCalledOffWhileItBegins(t *testing.T) {
	t.Parallel()
	for name, decide := range map[string]func(*store.TakenTask) (store.Change, error){
		"cancel": func(task *store.TakenTask) (store.Change, error) {
			progress, effects, err := workflow.Advance(task.Plan.Plan, task.State, task.Progress, rules, workflow.Operation{Action: workflow.ActionCancel, Reason: "over"})
			return store.Change{Task: task, Progress: progress, Effects: effects, Actor: "operator"}, err
		},
		"quarantine": func(task *store.TakenTask) (store.Change, error) {
			return store.Change{Task: task, Quarantine: true, Actor: "test", Action: &store.Performed{Kind: "quarantine", Step: -1, Reason: "broken"},
				Effects: &workflow.Effects{State: workflow.TaskError, Finished: true, DeadLetter: &workflow.DeadLetter{Reason: workflow.DeadLetterExhausted, Step: -1}}}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, db := open(t)
			plan(t, s, oneStepYAML)
			parent := create(t, s, plan(t, s, parentYAML), 1)[0]
			ended := make(chan error, 1)
			var child uuid.UUID
			begun, err := s.BeginSteps(t.Context(), store.UpTo(10), beginner(func(made uuid.UUID) {
				child = made
				go func() { ended <- endWith(context.WithoutCancel(t.Context()), s, parent, decide) }()
				untilBlocked(t, db, 1) // it waits for the row of the step
			}))
			require.NoError(t, err)
			require.Len(t, begun.Tasks, 1)
			require.NoError(t, <-ended)
			require.True(t, read(t, s, parent).State.Terminal())
			messages, err := s.StopMessages(t.Context(), store.UpTo(10))
			require.NoError(t, err)
			require.Len(t, messages, 1, "the step's task continues independently")
			require.Equal(t, child, messages[0].Task)
			require.NoError(t, s.DropStopMessages(t.Context(), messages))
			require.Zero(t, db.QueryInt(t, `select count(*) from tasker.task_messages`))
		})
	}
}

// A task whose step was called off, and that no message cancels, is a violation; one that
// an operator has reopened is not.
func TestTasksThatGoOnByThemselvesAreFound(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	plan(t, s, oneStepYAML)
	parent := create(t, s, plan(t, s, parentYAML), 1)[0]
	var child uuid.UUID
	_, err := s.BeginSteps(t.Context(), store.UpTo(10), beginner(func(made uuid.UUID) { child = made }))
	require.NoError(t, err)
	noViolations(t, s)
	cancel(t, s, parent, "over")
	noViolations(t, s)
	db.Exec(t, `delete from tasker.task_messages`)
	report, err := s.CheckTask(t.Context(), rules, child)
	require.NoError(t, err)
	require.Equal(t, []store.Violation{{TaskUUID: child, Problem: "the task goes on although the step that it is has been called off"}}, report.Violations)

	cancel(t, s, child, "over")
	back, err := s.TakeTasks(t.Context(), []uuid.UUID{child}, store.Taking{Spread: true, Reopen: []int16{int16(workflow.TaskCancelled)}})
	require.NoError(t, err)
	again := change(t, &back.Tasks[0], workflow.Operation{Action: workflow.ActionRunAgain, Step: 0})
	again.Action = &store.Performed{Kind: workflow.ActionRunAgain, Step: 0, Reason: "again"}
	_, err = back.Commit(t.Context(), uuid.Nil, []store.Change{again})
	require.NoError(t, err)
	report, err = s.CheckTask(t.Context(), rules, child)
	require.NoError(t, err)
	for _, v := range report.Violations { // the cancels of this test are not recorded as actions
		require.NotContains(t, v.Problem, "goes on")
	}
}
