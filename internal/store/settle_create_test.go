package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

func TestCreateAndClaim(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	chain, wide := plan(t, s, chainYAML), plan(t, s, `
name: wide
namespace_name: shapes
version: 1.0.0
steps:
  - {name: a, handler: {callable: a}}
  - {name: b, handler: {callable: b}}
`)
	tagged := plan(t, s, `
name: tagged
namespace_name: shapes
version: 1.0.0
steps:
  - {name: a, handler: {callable: a}, tags: [gpu]}
`)
	elsewhere := plan(t, s, `
name: elsewhere
namespace_name: other
version: 1.0.0
steps:
  - {name: a, handler: {callable: a}}
`)
	identity := dedup.KeyIdentity("shapes", "chain", "k")
	tasks := []store.NewTask{newTask(chain), newTask(wide), newTask(tagged), newTask(elsewhere), newTask(chain), newTask(chain), newTask(chain), newTask(chain)}
	tasks[4].StartIn = time.Hour
	tasks[5].Identity, tasks[6].Identity = &identity, &identity
	req := taker(chain, 2)
	created, claimed, err := s.CreateAndClaim(t.Context(), tasks, req)
	require.NoError(t, err)
	require.Len(t, created, len(tasks))
	for i := range created {
		require.Equal(t, i == 6, created[i].Duplicate, i)
	}
	require.Len(t, claimed, 2, "the limit")
	for i, c := range claimed {
		require.Contains(t, []uuid.UUID{tasks[0].UUID, tasks[5].UUID}, c.TaskUUID)
		require.Equal(t, 0, c.Step)
		require.Equal(t, 1, c.Attempt)
		require.Equal(t, json.RawMessage(`{"n":1}`), c.Context)
		require.False(t, c.ClaimedAt.Before(c.RequestedAt))
		require.True(t, settle(t, s, taker(chain, 0), settlement(t, chain, &claimed[i], `1`))[0].Accepted)
	}
	require.Equal(t, 7, db.QueryInt(t, `select count(*) from tasker.tasks`))

	// A duplicate of a task that runs is not claimed.
	again := newTask(chain)
	again.Identity = &identity
	created, claimed, err = s.CreateAndClaim(t.Context(), []store.NewTask{again}, req)
	require.NoError(t, err)
	require.Equal(t, []store.CreatedTask{{UUID: tasks[5].UUID, Duplicate: true, State: workflow.TaskStepsInProcess}}, created)
	require.Empty(t, claimed)
	requireIntegrity(t, s)
}

// TestATaskIsWatchedFromItsCreation: a client that waits from the creation on is notified
// however soon the task ends.
func TestATaskIsWatchedFromItsCreation(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	lone, fork := plan(t, s, loneYAML), plan(t, s, diamondYAML)
	tasks := []store.NewTask{newTask(lone), newTask(lone), newTask(fork)}
	tasks[1].Watched, tasks[2].Watched = true, true
	_, err := s.CreateTasks(t.Context(), tasks)
	require.NoError(t, err)
	req := taker(lone, 2)
	claimed, _, err := s.Claim(t.Context(), req, true)
	require.NoError(t, err)
	require.Len(t, claimed, 2)
	for i, a := range settle(t, s, req, settlement(t, lone, &claimed[0], `1`), settlement(t, lone, &claimed[1], `1`)) {
		require.Equal(t, claimed[i].TaskUUID == tasks[1].UUID, a.Watched)
	}
	taken, err := s.TakeTask(t.Context(), tasks[2].UUID)
	require.NoError(t, err)
	defer taken.Release()
	require.True(t, taken.Tasks[0].Watched)
}
