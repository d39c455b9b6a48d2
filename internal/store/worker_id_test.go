package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

func underID(id string) store.Daemon {
	return store.Daemon{UUID: uuid.New(), ID: id, Hostname: "node-7", Version: "test", Mode: "Hybrid", Namespaces: []string{"tests"}}
}

// TestASuccessorReleasesWhatADeadWorkerHeld: the claims of its predecessor, and no
// others, become lost leases; and the predecessor stays dead.
func TestASuccessorReleasesWhatADeadWorkerHeld(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, loneYAML)
	dead, other := underID("payments-0"), underID("payments-1")
	held := map[uuid.UUID][]store.Claimed{}
	for _, d := range []store.Daemon{dead, other} {
		_, err := s.WorkerHeartbeat(t.Context(), d, nil, time.Minute)
		require.NoError(t, err)
		create(t, s, p, 3)
		claimed, _, err := s.Claim(t.Context(), store.ClaimRequest{Worker: d.UUID, Callables: p.Callables, Limit: 3, Lease: time.Minute}, true)
		require.NoError(t, err)
		require.Len(t, claimed, 3)
		held[d.UUID] = claimed
	}

	next := underID("payments-0")
	taken, err := s.TakeWorkerID(t.Context(), next, nil, time.Millisecond)
	require.NoError(t, err)
	require.Len(t, taken.Others, 1, "it has not been watched yet")
	require.Equal(t, dead.UUID, taken.Others[0].UUID)
	require.Equal(t, "node-7", taken.Others[0].Hostname)
	taken, err = s.TakeWorkerID(t.Context(), next, []uuid.UUID{dead.UUID}, time.Hour)
	require.NoError(t, err)
	require.Len(t, taken.Others, 1, "its heartbeat is not old enough")

	pgtest.Eventually(t, patience, func() (bool, string) {
		taken, err = s.TakeWorkerID(t.Context(), next, []uuid.UUID{dead.UUID}, time.Millisecond)
		return err != nil || len(taken.Others) == 0, "its heartbeat does not get old"
	})
	require.NoError(t, err)
	require.Equal(t, 3, taken.Released)
	require.Equal(t, []signal.Signal{{Topic: signal.TopicDue}}, taken.Signals)
	_, err = s.WorkerHeartbeat(t.Context(), dead, nil, time.Minute)
	require.ErrorIs(t, err, store.ErrWorkerDead)

	expired, err := s.ExpireLeases(t.Context(), 100)
	require.NoError(t, err)
	require.Equal(t, 3, expired.Lost)
	lost, err := s.WorkerHeartbeat(t.Context(), other, []store.ClaimKey{key(held[other.UUID][0])}, time.Minute)
	require.NoError(t, err)
	require.Empty(t, lost)
	reported, err := s.TakeReported(t.Context(), 10, false)
	require.NoError(t, err)
	defer reported.Release()
	require.Len(t, reported.Tasks, 3)
	for _, task := range reported.Tasks {
		require.Equal(t, workflow.OutcomeLeaseLost, task.Reported[0].Outcome)
	}
}

// TestOneOfManySuccessorsTakesTheWorkerID: all have watched their predecessor die.
func TestOneOfManySuccessorsTakesTheWorkerID(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	dead := underID("payments-0")
	_, err := s.WorkerHeartbeat(t.Context(), dead, nil, time.Minute)
	require.NoError(t, err)
	pgtest.Eventually(t, patience, func() (bool, string) {
		taken, err := s.TakeWorkerID(t.Context(), underID("payments-0"), nil, time.Hour)
		require.NoError(t, err)
		return taken.Others[0].HeartbeatAge > 2*time.Millisecond, "its heartbeat does not get old"
	})

	var group sync.WaitGroup
	var mu sync.Mutex
	var first []uuid.UUID
	for range 8 {
		group.Go(func() {
			d := underID("payments-0")
			taken, err := s.TakeWorkerID(t.Context(), d, []uuid.UUID{dead.UUID}, 2*time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			} else if len(taken.Others) == 0 {
				first = append(first, d.UUID)
			}
		})
	}
	group.Wait()
	require.Len(t, first, 1)
	require.NoError(t, s.Stopped(t.Context(), first[0]))
	taken, err := s.TakeWorkerID(t.Context(), underID("payments-0"), nil, time.Hour)
	require.NoError(t, err)
	require.Empty(t, taken.Others, "a signed-off worker frees it")
}
