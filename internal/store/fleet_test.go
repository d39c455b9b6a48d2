package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

func TestFleetShowsWhoIsAlive(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	daemon := func(name string) store.Daemon {
		return store.Daemon{UUID: uuid.Must(uuid.NewV7()), ID: name, Hostname: "h", Version: "1", Mode: "hybrid"}
	}
	worker, gone, old, processor := daemon("w"), daemon("gone"), daemon("old"), daemon("p")
	worker.Namespaces = []string{"pairs", "shapes"}
	worker.Address, processor.Address = "h:8081", "h:8080"
	for _, d := range []store.Daemon{worker, gone, old} {
		lost, err := s.WorkerHeartbeat(t.Context(), d, nil, time.Minute)
		require.NoError(t, err)
		require.Empty(t, lost)
	}
	h, err := s.ProcessorHeartbeat(t.Context(), processor, time.Minute, true)
	require.NoError(t, err)
	require.Equal(t, time.Duration(-1), h.Next(), "nothing is on the board")
	require.NoError(t, s.Stopped(t.Context(), gone.UUID))
	db.Exec(t, `update tasker.workers set heartbeat_at = now() - interval '1 hour' where worker_id = 'old'`)

	fleet, err := s.Fleet(t.Context(), time.Minute)
	require.NoError(t, err)
	byID := map[string]store.Replica{}
	for _, r := range fleet {
		byID[r.ID] = r
	}
	require.Len(t, byID, 3)
	worker.Tags = []string{}
	require.Equal(t, worker, byID["w"].Daemon)
	require.Equal(t, "worker", byID["w"].Kind)
	require.False(t, byID["w"].Stopped)
	require.True(t, byID["gone"].Stopped)
	require.Equal(t, "orchestrator", byID["p"].Kind)
	require.Equal(t, "h:8080", byID["p"].Address)
	require.Empty(t, byID["gone"].Address, "it has no API")
	require.Less(t, byID["p"].HeartbeatAge, time.Minute)

	fleet, err = s.Fleet(t.Context(), 2*time.Hour)
	require.NoError(t, err)
	require.Len(t, fleet, 4)
	require.NoError(t, s.Stopped(t.Context(), processor.UUID))
	gone.Address, processor.Address = "h:1", "h:2"
	_, err = s.WorkerHeartbeat(t.Context(), gone, nil, time.Minute)
	require.NoError(t, err)
	_, err = s.ProcessorHeartbeat(t.Context(), processor, time.Minute, false)
	require.NoError(t, err)
	addresses := map[string]string{}
	fleet, err = s.Fleet(t.Context(), time.Minute)
	require.NoError(t, err)
	for _, r := range fleet {
		require.Equal(t, r.ID != "w", r.Stopped, "a heartbeat that comes late does not bring %s back", r.ID)
		addresses[r.ID] = r.Address
	}
	require.Equal(t, map[string]string{"w": "h:8081", "gone": "h:1", "p": "h:2"}, addresses, "heartbeats change them")
	workers, err := s.Workers(t.Context(), store.WorkerFilter{})
	require.NoError(t, err)
	for _, w := range workers {
		require.Equal(t, addresses[w.ID], w.Address)
	}
}

// TestDaysInTheDefaultPartitionHoldNothingUp: a day without a partition that has more
// rows than are moved under a lock.
func TestDaysInTheDefaultPartitionHoldNothingUp(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	db.Exec(t, `insert into tasker.tasks (task_uuid, correlation_id, plan_id, queue, priority, context)
		select (left(tasker.uuid_floor(now() + interval '9 days')::text, 18) || '-8000-' || lpad(i::text, 12, '0'))::uuid, gen_random_uuid(), 1, 1, 0, '{}'
		from generate_series(1, 10001) i`)
	require.Equal(t, 10_001, db.QueryInt(t, `select count(*) from tasker.tasks_default`))
	made, err := s.EnsurePartitions(t.Context(), 11)
	require.NoError(t, err)
	require.Equal(t, 8*4-1, made, "all but the day with rows in the default partition")
	made, err = s.EnsurePartitions(t.Context(), 11)
	require.NoError(t, err)
	require.Zero(t, made)
}
