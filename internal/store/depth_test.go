package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

func TestQueueDepthIsCountedUpToItsLimitInEveryNamespace(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	busy := plan(t, s, diamondYAML)
	plan(t, s, strings.Replace(diamondYAML, "shapes", "idle", 1))
	other := plan(t, s, strings.Replace(diamondYAML, "shapes", "other", 1))
	create(t, s, busy, 5)
	create(t, s, other, 2)
	depth, err := s.QueueDepth(t.Context(), 100)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"shapes": 5, "idle": 0, "other": 2}, depth)
	claim(t, s, busy, 1)
	depth, err = s.QueueDepth(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"shapes": 3, "idle": 0, "other": 2}, depth, "claimed steps do not wait, and counting ends at the limit")
	s.Close()
	_, err = s.QueueDepth(t.Context(), 3)
	require.Error(t, err)
}

// A list must not compile cached plans again, and must not miss others.
func TestPlansTakesWhatTheCacheHas(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	known := plan(t, s, diamondYAML)
	db.Exec(t, `insert into tasker.plans (namespace_id, name, version, environment, content_hash, steps, callables, template, current)
		select namespace_id, name, '2.0.0', environment, sha256('x'), steps, callables, template || '{"version":"2.0.0"}', true from tasker.plans`)
	db.Exec(t, `update tasker.plans set deprecated_at = now() where version = '2.0.0'`)
	for range 2 {
		plans, err := s.Plans(t.Context(), "shapes")
		require.NoError(t, err)
		require.Len(t, plans, 2)
		require.Same(t, known, plans[0].Plan)
		require.Nil(t, plans[0].DeprecatedAt)
		require.NotNil(t, plans[1].DeprecatedAt)
		require.Equal(t, "2.0.0", plans[1].Template.Version)
		second, err := s.PlanByID(t.Context(), plans[1].ID)
		require.NoError(t, err)
		require.Same(t, second, plans[1].Plan, "read plans are cached")
	}
	fresh, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 2})
	require.NoError(t, err)
	t.Cleanup(fresh.Close)
	plans, err := fresh.Plans(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, plans, 2, "an empty cache")

	none, err := s.Plans(t.Context(), "elsewhere")
	require.NoError(t, err)
	require.Empty(t, none)
}
