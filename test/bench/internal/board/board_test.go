package board

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/workflow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func open(t *testing.T) *Board {
	t.Helper()
	db := pgtest.New(t)
	migrator, err := store.NewMigrator(db.DSN)
	require.NoError(t, err)
	_, err = migrator.Up(t.Context())
	require.NoError(t, err)
	b, err := Open(t.Context(), db.DSN)
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

// sound runs the product's integrity check on the tables.
func sound(t *testing.T, s *store.Store) {
	t.Helper()
	found, err := s.CheckIntegrity(t.Context(), workflow.Rules{MaxCrashes: 3})
	require.NoError(t, err)
	require.Empty(t, found.Violations)
}

// TestGeneratedTasksAreLikeCreatedOnes: it fails if a change of the tables breaks the
// benchmark's inserts.
func TestGeneratedTasksAreLikeCreatedOnes(t *testing.T) {
	t.Parallel()
	b := open(t)
	names := []string{"one", "two"}
	require.NoError(t, b.Register(t.Context(), names))
	require.NoError(t, b.GenerateFinished(t.Context(), names, 30))
	require.NoError(t, b.GenerateWaiting(t.Context(), names, 50))
	live, err := b.Live(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 50, live)

	s, err := b.Store(t.Context())
	require.NoError(t, err)
	sound(t, s)
	known, err := s.Callables(t.Context())
	require.NoError(t, err)
	callables := make([]int32, len(known))
	for i := range known {
		callables[i] = known[i].ID
	}
	queues, err := s.Queues(t.Context(), names)
	require.NoError(t, err)
	perQueue := map[int32]int{}
	claimed, _, err := s.Claim(t.Context(), store.ClaimRequest{Worker: uuid.New(), Callables: callables, Limit: 100, Lease: time.Minute}, true)
	require.NoError(t, err)
	for _, c := range claimed {
		perQueue[c.Queue]++
		require.JSONEq(t, `{"even_number": 2}`, string(c.Context))
		alive, err := b.Alive(t.Context(), c.TaskUUID.String())
		require.NoError(t, err)
		require.True(t, alive)
	}
	require.Equal(t, map[int32]int{queues["one"]: 25, queues["two"]: 25}, perQueue)
	span, err := b.WorkSpan(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, span, time.Duration(0))
}

func TestCreate(t *testing.T) {
	t.Parallel()
	b := open(t)
	require.NoError(t, b.Register(t.Context(), []string{load.Namespace}))
	require.NoError(t, b.Create(t.Context(), load.Diamond, 7))
	live, err := b.Live(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 7, live)
	_, _, err = b.Times(t.Context(), []string{uuid.NewString()})
	require.ErrorContains(t, err, "0 of 1 tasks are recorded")
}
