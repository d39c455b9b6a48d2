package enginetest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

const followedYAML = `
name: followed
namespace_name: test
version: 1.0.0
steps:
  - {name: a, handler: {callable: do}}
  - {name: b, dependencies: [a], handler: {callable: do}}
`

// followed runs an engine whose streams of transitions wait for signals alone.
func followed(t *testing.T) *enginetest.Engine {
	t.Helper()
	return enginetest.Start(t, func(w *worker.Worker) error {
		return errors.Join(enginetest.RegisterTemplates(w, followedYAML),
			w.Register("do", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return 1, nil })))
	}, func(o *orchestration.Config, _ *worker.Config) {
		o.FollowPoll, o.Orchestration.Poller.RelaxedInterval = time.Hour, time.Hour
	})
}

func follow(t *testing.T, o *orchestration.Orchestrator, scope store.Scope, id string) *orchestration.Following {
	t.Helper()
	f, err := o.Follow(t.Context(), scope, id)
	require.NoError(t, err)
	t.Cleanup(f.Close)
	return f
}

func receive(t *testing.T, f *orchestration.Following) orchestration.TransitionBatch {
	t.Helper()
	select {
	case b, open := <-f.Batches:
		require.True(t, open)
		return b
	case <-time.After(30 * time.Second):
		require.Fail(t, "no transitions")
	}
	return orchestration.TransitionBatch{}
}

// until receives up to the end of a task, in short, and the last place.
func until(t *testing.T, f *orchestration.Following, task uuid.UUID) (list []string, id string) {
	t.Helper()
	for {
		b := receive(t, f)
		if b.ID != "" {
			id = b.ID
		}
		for i := range b.List {
			x := &b.List[i]
			switch {
			case x.Task != task:
			case x.Step != nil:
				list = append(list, x.StepName+" "+x.Outcome.String())
			default:
				if list = append(list, x.To.String()); x.To.Terminal() {
					return list, id
				}
			}
		}
	}
}

// TestEveryReplicaTellsTransitions, wherever they were decided, by signal.
func TestEveryReplicaTellsTransitions(t *testing.T) {
	t.Parallel()
	e := followed(t)
	other := e.AnotherOrchestrator()
	all, there := follow(t, e.Orchestrator, store.Scope{}, ""), follow(t, other, store.Scope{}, "")
	require.NotEmpty(t, receive(t, all).ID)
	beside := follow(t, e.Orchestrator, store.Scope{}, "")
	receive(t, beside)
	task := e.Submit("test", "followed", `{}`)
	next := receive(t, beside)
	require.Equal(t, "first", string(next.Rendered.Text(func() []byte { return []byte("first") })))
	require.Equal(t, "first", string(next.Rendered.Text(func() []byte { return []byte("second") })), "it is encoded once for all clients")
	for _, f := range []*orchestration.Following{all, there} {
		list, id := until(t, f, task)
		require.Equal(t, []string{"pending", "a success", "b success", "complete"}, list)
		require.NotEmpty(t, id)
	}
}

// TestClientsGoOnAfterEachTransition: one that is cut off within a batch misses nothing, and gets
// nothing twice.
func TestClientsGoOnAfterEachTransition(t *testing.T) {
	t.Parallel()
	e := followed(t)
	f := follow(t, e.Orchestrator, store.Scope{}, "")
	receive(t, f)
	task := e.Submit("test", "followed", `{}`)
	told := func(list []store.Transition) (names []string) {
		for i := range list {
			names = append(names, fmt.Sprint(list[i].StepName, list[i].To))
		}
		return names
	}
	var all []string
	var places []string
	for len(all) < 4 {
		b := receive(t, f)
		all = append(all, told(b.List)...)
		for i := range b.List {
			places = append(places, b.Place(i))
		}
	}
	require.Equal(t, workflow.TaskComplete, e.Await(task).State)
	for i, place := range places {
		require.NotEmpty(t, place, "transition %d", i)
		again := follow(t, e.Orchestrator, store.Scope{}, place)
		var rest []string
		for len(rest) < len(all)-i-1 {
			b := receive(t, again)
			require.False(t, b.Reset)
			rest = append(rest, told(b.List)...)
		}
		require.Equal(t, all[i+1:], append([]string{}, rest...), "after transition %d", i)
	}
}

// TestNewTasksAreTold by a signal of their own: these do nothing for an hour.
func TestNewTasksAreTold(t *testing.T) {
	t.Parallel()
	e := followed(t)
	f := follow(t, e.Orchestrator, store.Scope{}, "")
	receive(t, f)
	began := time.Now()
	created, err := e.Orchestrator.Create(t.Context(), orchestration.Request{Namespace: "test", Name: "followed", Version: "1.0.0", Initiator: "test",
		Context: json.RawMessage(`{}`), StartIn: time.Hour})
	require.NoError(t, err)
	for b := receive(t, f); len(b.List) == 0 || b.List[0].Task != created.UUID; {
		b = receive(t, f)
	}
	require.Less(t, time.Since(began), 10*time.Second, "a scan has found it")
}

// TestAClientContinuesWhereItWas, at another replica too; elsewhere it is told that it
// may have missed transitions.
func TestAClientContinuesWhereItWas(t *testing.T) {
	t.Parallel()
	e := followed(t)
	f := follow(t, e.Orchestrator, store.Scope{}, "")
	id := receive(t, f).ID
	f.Close()
	task := e.Submit("test", "followed", `{}`)
	e.Await(task)
	list, _ := until(t, follow(t, e.AnotherOrchestrator(), store.Scope{}, id), task)
	require.Equal(t, []string{"pending", "a success", "b success", "complete"}, list)
	for _, bad := range []string{"x", "a.b.c", uuid.NewString() + ".1.1:1:", id[:36] + ".1.0:0:0", id[:36] + ".1.5:4:"} {
		b := receive(t, follow(t, e.Orchestrator, store.Scope{}, bad))
		require.True(t, b.Reset, bad)
		require.Empty(t, b.List)
	}
	e.DB.Exec(t, `insert into tasker.transitions (task_uuid, queue, to_state) select gen_random_uuid(), 1, 1 from generate_series(1, 5001)`)
	b := receive(t, follow(t, e.Orchestrator, store.Scope{}, id))
	require.True(t, b.Overflow)
	require.Empty(t, b.List)
}

// TestCatchingUpGoesOn: a client that is cut off after each batch of what it has missed
// continues after it, at another replica too, and gets each transition once.
func TestCatchingUpGoesOn(t *testing.T) {
	t.Parallel()
	e := followed(t)
	replicas := []*orchestration.Orchestrator{e.Orchestrator, e.AnotherOrchestrator()}
	f := follow(t, e.Orchestrator, store.Scope{}, "")
	id := receive(t, f).ID
	f.Close()
	const missed, later = 950, 30
	insert := `insert into tasker.transitions (task_uuid, queue, to_state) select gen_random_uuid(), 1, 1 from generate_series(1, $1)`
	e.DB.Exec(t, insert, missed)
	var positions []int64
	for i := 0; len(positions) < missed+later; i++ {
		f := follow(t, replicas[i%2], store.Scope{}, id)
		b := receive(t, f)
		f.Close()
		require.False(t, b.Reset || b.Overflow)
		require.NotEmpty(t, b.List, "no progress after %d", len(positions))
		require.LessOrEqual(t, len(b.List), 100)
		for k := range b.List {
			positions = append(positions, b.List[k].Position)
		}
		if id = b.ID; i == 3 {
			e.DB.Exec(t, insert, later) // while it catches up
		}
	}
	require.IsIncreasing(t, positions)
	require.Len(t, positions, missed+later)
	for _, bad := range []string{".1:1:.x", ".1:1:", ".x.1", ".1:1:.1.1"} {
		require.True(t, receive(t, follow(t, e.Orchestrator, store.Scope{}, id+bad)).Reset, bad)
	}
}

// TestFollowersLearnOfLostTransitions: after a crash the tables are empty.
func TestFollowersLearnOfLostTransitions(t *testing.T) {
	t.Parallel()
	e := followed(t)
	f := follow(t, e.Orchestrator, store.Scope{}, "")
	id := receive(t, f).ID
	e.DB.Exec(t, `truncate tasker.followed, tasker.transitions`)
	require.True(t, receive(t, follow(t, e.Orchestrator, store.Scope{}, id)).Reset)
	b := receive(t, f)
	require.True(t, b.Reset)
	require.NotEmpty(t, b.ID)
	task := e.Submit("test", "followed", `{}`)
	list, _ := until(t, f, task)
	require.Len(t, list, 4)
}

// TestAFollowerThatDoesNotKeepUpIsCutOff, and others are not.
func TestAFollowerThatDoesNotKeepUpIsCutOff(t *testing.T) {
	t.Parallel()
	e := followed(t)
	slow, quick := follow(t, e.Orchestrator, store.Scope{}, ""), follow(t, e.Orchestrator, store.Scope{}, "")
	for i, cut := 0, false; !cut; i++ {
		full := len(slow.Batches) == cap(slow.Batches)
		list, _ := until(t, quick, e.Submit("test", "followed", fmt.Sprintf(`{"n":%d}`, i)))
		require.Len(t, list, 4)
		cut = full
	}
	require.NoError(t, quick.Refresh(t.Context())) // the quick one may have got the last batch first
	n := 0
	for range slow.Batches {
		n++
	}
	require.Equal(t, cap(slow.Batches), n)
	require.Empty(t, slow.ID())
}
