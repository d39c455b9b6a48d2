package enginetest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

const editedYAML = `
name: edited
namespace_name: edits
version: 1.0.0
input_schema: {type: object, required: [n], properties: {n: {type: integer}}}
steps:
  - {name: start, handler: {callable: seen}}
  - {name: left, dependencies: [start], handler: {callable: seen}}
  - {name: right, dependencies: [start], handler: {callable: held}}
  - {name: end, dependencies: [left, right], handler: {callable: seen}}
`

// edits is an engine whose handlers return the n of their input; negative ones are
// permanent errors.
type edits struct {
	*enginetest.Engine
	running chan struct{} // receives when right has begun with "wait" in its context
	release chan struct{}
}

func newEdits(t *testing.T) *edits {
	t.Helper()
	e := &edits{running: make(chan struct{}, 10), release: make(chan struct{})}
	type input struct {
		N    int
		Wait bool
	}
	seen := worker.Typed(func(_ *worker.StepContext, in input) (int, error) {
		if in.N < 0 {
			return 0, worker.Permanent(errors.New("negative number"))
		}
		return in.N, nil
	})
	e.Engine = enginetest.Start(t, func(w *worker.Worker) error {
		tmpl, _, err := template.Parse("edited.yaml", []byte(editedYAML))
		return errors.Join(err, w.RegisterTemplate(tmpl), w.Register("seen", seen),
			w.Register("held", worker.Typed(func(c *worker.StepContext, in input) (int, error) {
				if in.Wait {
					e.running <- struct{}{}
					select {
					case <-e.release:
					case <-c.Done():
						return 0, c.Err()
					}
				}
				return in.N, nil
			})))
	})
	return e
}

// again runs a step again.
func again(task uuid.UUID, no int, edit *orchestration.ContextEdit) orchestration.Action {
	id := store.StepUUID(task, no)
	a := by(orchestration.ActionRunAgain, &id)
	a.Edit = edit
	return a
}

func patched(patch string) *orchestration.ContextEdit {
	return &orchestration.ContextEdit{Patch: json.RawMessage(patch)}
}

func replaced(context string) *orchestration.ContextEdit {
	return &orchestration.ContextEdit{Context: json.RawMessage(context)}
}

// The steps that run again get the new input, of any size; those before them keep their
// results. The history has both.
func TestAStepRunsAgainWithEditedInput(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 2000)
	for name, tt := range map[string]struct {
		before string
		edit   *orchestration.ContextEdit
		after  string
	}{
		"patched":       {`{"n":1,"keep":12345678901234567890,"drop":true}`, patched(`{"n":2,"drop":null}`), `{"n":2,"keep":12345678901234567890}`},
		"replaced":      {`{"n":1,"keep":1}`, replaced(`{"n":2}`), `{"n":2}`},
		"growing":       {`{"n":1}`, patched(`{"n":2,"x":"` + large + `"}`), `{"n":2,"x":"` + large + `"}`},
		"shrinking":     {`{"n":1,"x":"` + large + `"}`, patched(`{"n":2,"x":null}`), `{"n":2}`},
		"staying large": {`{"n":1,"x":"` + large + `"}`, patched(`{"n":2}`), `{"n":2,"x":"` + large + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEdits(t)
			before := e.Run("edits", "edited", tt.before)
			require.Equal(t, workflow.TaskComplete, before.State)
			require.NoError(t, e.Orchestrator.Act(t.Context(), before.UUID, again(before.UUID, 1, tt.edit)))
			task := e.Await(before.UUID)
			require.Equal(t, workflow.TaskComplete, task.State)
			require.JSONEq(t, tt.after, string(task.Context))
			require.Equal(t, map[string]string{"start": "1", "left": "2", "right": "1", "end": "2"}, enginetest.Results(task))
			require.True(t, e.DB.QueryBool(t, `select metadata->>'action' = 'run_again' and actor = 'ana' and reason = 'because'
				and metadata->'context'->'before' = $2::jsonb and metadata->'context'->'after' = $3::jsonb
				from tasker.task_events where task_uuid = $1 and metadata ? 'context'`, task.UUID, tt.before, tt.after))
			history, err := e.Store.Timeline(t.Context(), task.UUID)
			require.NoError(t, err)
			edited := 0
			for _, event := range history.Events {
				if event.ContextEdited {
					edited++
					require.JSONEq(t, tt.before, string(event.ContextBefore))
					require.JSONEq(t, tt.after, string(event.ContextAfter))
				}
			}
			require.Equal(t, 1, edited)

			// Its identity is that of its creation.
			_, err = e.Orchestrator.Create(t.Context(), orchestration.Request{Namespace: "edits", Name: "edited", Version: "1.0.0", Context: json.RawMessage(tt.before)})
			require.ErrorAs(t, err, new(*orchestration.DuplicateError))
			require.NotEqual(t, task.UUID, e.Submit("edits", "edited", tt.after))
		})
	}
}

// Input that a creation would reject is rejected, and so is an ambiguous edit; the task
// stays unchanged.
func TestAnEditIsCheckedLikeACreation(t *testing.T) {
	t.Parallel()
	e := newEdits(t)
	task := e.Run("edits", "edited", `{"n":1,"x":"`+strings.Repeat("x", 5000)+`"}`)
	id := store.StepUUID(task.UUID, 1)
	for message, a := range map[string]orchestration.Action{
		"context/n":                         again(task.UUID, 1, patched(`{"n":"two"}`)),
		"context: ":                         again(task.UUID, 1, replaced(`{}`)),
		"context must be a JSON object":     again(task.UUID, 1, replaced(`[]`)),
		"nested deeper than 100 levels":     again(task.UUID, 1, patched(`{"y":`+strings.Repeat("[", 100)+strings.Repeat("]", 100)+`}`)),
		"at most 1048576 bytes":             again(task.UUID, 1, patched(manyKeys(700))),
		"either a context or":               again(task.UUID, 1, &orchestration.ContextEdit{}),
		"cancel leaves the context":         {Kind: orchestration.ActionCancel, Actor: "a", Reason: "r", Edit: patched(`{}`)},
		"resolve_manually leaves":           {Kind: orchestration.ActionResolveManually, Step: &id, Actor: "a", Reason: "r", Edit: patched(`{}`)},
		"context_patch: context must be a ": again(task.UUID, 1, patched(`1`)),
	} {
		var invalid *orchestration.InvalidError
		err := e.Orchestrator.Act(t.Context(), task.UUID, a)
		require.ErrorAs(t, err, &invalid, message)
		require.ErrorContains(t, err, message)
		_, err = e.Orchestrator.Preview(t.Context(), task.UUID, a)
		require.ErrorContains(t, err, message)
	}
	_, err := e.Orchestrator.ActOnMany(t.Context(), orchestration.Bulk{Select: orchestration.TaskSelection{Namespace: "edits"},
		Action: orchestration.Action{Kind: orchestration.ActionRunAgain, StepName: "left", Actor: "a", Reason: "r", Edit: patched(`{}`)}})
	require.ErrorContains(t, err, "one task at a time")
	require.Equal(t, task, e.Await(task.UUID), "nothing has changed")

	// An edit without a change is not recorded.
	require.NoError(t, e.Orchestrator.Act(t.Context(), task.UUID, again(task.UUID, 1, patched(`{"n":1,"none":null}`))))
	require.Equal(t, workflow.TaskComplete, e.Await(task.UUID).State)
	require.Zero(t, e.DB.QueryInt(t, `select count(*) from tasker.task_events where metadata ? 'context'`))
}

// manyKeys is an object within all bounds but that of the whole with another one of the
// same size.
func manyKeys(count int) string {
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b, `,"k%d":"%s"`, i, strings.Repeat("k", 1490))
	}
	return "{" + b.String()[1:] + "}"
}

// A running step keeps its input; later ones get the new one.
func TestARunningStepKeepsItsInput(t *testing.T) {
	t.Parallel()
	e := newEdits(t)
	id := e.Submit("edits", "edited", `{"n":1,"wait":true}`)
	<-e.running
	e.Until(id, func(got *store.Task) bool { return got.Steps[1].State == workflow.StepComplete })
	require.NoError(t, e.Orchestrator.Act(t.Context(), id, again(id, 1, patched(`{"n":2}`))))
	e.Until(id, func(got *store.Task) bool {
		return got.Steps[1].State == workflow.StepComplete && string(got.Steps[1].Result) == "2"
	})
	close(e.release)
	require.Equal(t, map[string]string{"start": "1", "left": "2", "right": "1", "end": "2"}, enginetest.Results(e.Await(id)))
}

// A step that failed for its input is reset with another one.
func TestAFailedStepIsResetWithEditedInput(t *testing.T) {
	t.Parallel()
	e := newEdits(t)
	failed := e.Run("edits", "edited", `{"n":-1}`)
	require.Equal(t, workflow.TaskError, failed.State)
	a := again(failed.UUID, 0, patched(`{"n":4}`))
	a.Kind = orchestration.ActionResetForRetry
	require.NoError(t, e.Orchestrator.Act(t.Context(), failed.UUID, a))
	task := e.Await(failed.UUID)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.Equal(t, map[string]string{"start": "4", "left": "4", "right": "4", "end": "4"}, enginetest.Results(task))
}

// A replay is another task: the old one keeps its input.
func TestAReplayWithEditedInput(t *testing.T) {
	t.Parallel()
	e := newEdits(t)
	old := e.Run("edits", "edited", `{"n":1,"keep":true}`)
	r := orchestration.Replay{Actor: "ana", Reason: "because", Edit: patched(`{"n":5}`)}
	p, err := e.Orchestrator.PreviewReplay(t.Context(), old.UUID, r)
	require.NoError(t, err)
	require.JSONEq(t, `{"n":5,"keep":true}`, string(p.ContextAfter))
	require.Equal(t, 1, e.DB.QueryInt(t, `select count(*) from tasker.tasks`))
	created, err := e.Orchestrator.Replay(t.Context(), old.UUID, r)
	require.NoError(t, err)
	task := e.Await(created.UUID)
	require.JSONEq(t, `{"n":5,"keep":true}`, string(task.Context))
	require.JSONEq(t, `{"n":1,"keep":true}`, string(e.Await(old.UUID).Context))
	r.Edit = patched(`{"n":"five"}`)
	for _, refused := range []error{second(e.Orchestrator.Replay(t.Context(), old.UUID, r)), second(e.Orchestrator.PreviewReplay(t.Context(), old.UUID, r))} {
		require.ErrorAs(t, refused, new(*orchestration.InvalidError))
	}
}

func second[T any](_ T, err error) error { return err }

// A preview shows the effect of the action, and changes nothing.
func TestAPreviewIsWhatHappens(t *testing.T) {
	t.Parallel()
	for no, want := range []map[string]workflow.StepState{
		{"start": workflow.StepEnqueued, "left": workflow.StepPending, "right": workflow.StepPending, "end": workflow.StepPending},
		{"left": workflow.StepEnqueued, "end": workflow.StepPending},
		{"right": workflow.StepEnqueued, "end": workflow.StepPending},
		{"end": workflow.StepEnqueued},
	} {
		t.Run(fmt.Sprint(no), func(t *testing.T) {
			t.Parallel()
			e := newEdits(t)
			task := e.Run("edits", "edited", `{"n":1}`)
			require.NoError(t, e.Orchestrator.Pause(t.Context(), store.Pause{Namespace: "edits", Actor: "ana", Reason: "to look"}))
			a := again(task.UUID, no, patched(`{"n":2}`))
			p, err := e.Orchestrator.Preview(t.Context(), task.UUID, a)
			require.NoError(t, err)
			require.JSONEq(t, `{"n":1}`, string(p.ContextBefore))
			require.JSONEq(t, `{"n":2}`, string(p.ContextAfter))
			got := map[string]workflow.StepState{}
			for _, s := range p.Steps {
				got[task.StepName(s.Step)] = s.State
			}
			require.Equal(t, want, got)
			require.Equal(t, task, e.Await(task.UUID), "nothing has changed")
			require.Zero(t, e.DB.QueryInt(t, `select count(*) from tasker.board`))

			require.NoError(t, e.Orchestrator.Act(t.Context(), task.UUID, a))
			acted, err := e.Store.Task(t.Context(), task.UUID)
			require.NoError(t, err)
			for _, s := range acted.Steps {
				if state, changed := want[s.Name]; changed {
					require.Equal(t, state, s.State, s.Name)
				} else {
					require.Equal(t, workflow.StepComplete, s.State, s.Name)
				}
			}
			require.NoError(t, e.Orchestrator.Resume(t.Context(), store.Pause{Namespace: "edits", Actor: "ana", Reason: "looked"}))
			require.Equal(t, workflow.TaskComplete, e.Await(task.UUID).State)
		})
	}
	e := newEdits(t)
	failed := e.Run("edits", "edited", `{"n":-1}`)
	p, err := e.Orchestrator.Preview(t.Context(), failed.UUID, again(failed.UUID, 0, nil))
	require.NoError(t, err)
	require.Nil(t, p.ContextAfter)
	id := e.Submit("edits", "edited", `{"n":7,"wait":true}`)
	<-e.running
	p, err = e.Orchestrator.Preview(t.Context(), id, by(orchestration.ActionCancel, nil))
	require.NoError(t, err)
	require.Equal(t, workflow.TaskCancelled, p.Ended)
	_, err = e.Orchestrator.Preview(t.Context(), uuid.New(), by(orchestration.ActionCancel, nil))
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = e.Orchestrator.Preview(t.Context(), failed.UUID, by(orchestration.ActionCancel, nil))
	require.ErrorIs(t, err, store.ErrTaskEnded)
	_, err = e.Orchestrator.Preview(t.Context(), id, orchestration.Action{Kind: orchestration.ActionReprioritise, Priority: ptr(1), Actor: "a", Reason: "r"})
	require.ErrorContains(t, err, "no preview")
	close(e.release)
	require.Equal(t, workflow.TaskComplete, e.Await(id).State)
}

// The integrity check holds the copy on the board against the ledger.
func TestAContextAstrayIsFound(t *testing.T) {
	t.Parallel()
	e := newEdits(t)
	id := e.Submit("edits", "edited", `{"n":1,"wait":true}`)
	<-e.running
	e.DB.Exec(t, `update tasker.board set context = '{"n":9}' where task_uuid = $1 and slot = 0`, id)
	report, err := e.Store.CheckTask(t.Context(), e.Rules, id)
	require.NoError(t, err)
	require.Equal(t, []store.Violation{{TaskUUID: id, Problem: "the board has another context than the ledger"}}, report.Violations)
	e.DB.Exec(t, `update tasker.board b set context = t.context from tasker.tasks t where t.task_uuid = b.task_uuid and b.slot = 0`)
	close(e.release)
	require.Equal(t, workflow.TaskComplete, e.Await(id).State)
}
