package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// TestAReleasedLeaseStaysReleased: the worker that holds the step sends a heartbeat every
// few seconds, also right after an operator took the step from it.
func TestAReleasedLeaseStaysReleased(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, loneYAML)
	id := create(t, s, p, 1)[0]
	c := claim(t, s, p, 1)[0]
	signals, err := s.ReleaseLease(t.Context(), id, 0, by("operator", "stuck"))
	require.NoError(t, err)
	require.Equal(t, []signal.Signal{{Topic: signal.TopicOrchestration}}, signals)
	lost, err := s.WorkerHeartbeat(t.Context(), store.Daemon{UUID: uuid.New()}, []store.ClaimKey{key(c)}, time.Minute)
	require.NoError(t, err)
	require.Equal(t, []int64{c.Token}, lost, "the worker learns it at once")
	taken, err := s.TakeReported(t.Context(), 10, false)
	require.NoError(t, err)
	defer taken.Release()
	require.Len(t, taken.Tasks, 1)
	require.Equal(t, workflow.OutcomeLeaseLost, taken.Tasks[0].Reported[0].Outcome)
	require.Equal(t, []bool{false}, report(t, s, succeed(c, `1`)), "its result is late")
	_, err = s.ReleaseLease(t.Context(), id, 0, by("operator", "again"))
	require.ErrorIs(t, err, store.ErrNotFound)
}
