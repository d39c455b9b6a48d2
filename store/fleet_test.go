package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/store"
)

func TestFleetShowsWhoIsAlive(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	daemon := func(name string) store.Daemon {
		return store.Daemon{UUID: uuid.Must(uuid.NewV7()), ID: name, Hostname: "h", Version: "1", Mode: "hybrid"}
	}
	worker, gone, old, processor := daemon("w"), daemon("gone"), daemon("old"), daemon("p")
	worker.Namespaces = []string{"pairs", "shapes"}
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
	require.Less(t, byID["p"].HeartbeatAge, time.Minute)

	fleet, err = s.Fleet(t.Context(), 2*time.Hour)
	require.NoError(t, err)
	require.Len(t, fleet, 4)
	_, err = s.WorkerHeartbeat(t.Context(), gone, nil, time.Minute)
	require.NoError(t, err)
	fleet, err = s.Fleet(t.Context(), time.Minute)
	require.NoError(t, err)
	for _, r := range fleet {
		require.False(t, r.Stopped, "a heartbeat brings %s back", r.ID)
	}
}

func TestDaysInTheDefaultPartitionHoldNothingUp(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	// A day for which nobody made a partition in time.
	db.Exec(t, `insert into tasker.tasks (task_uuid, correlation_id, plan_id, queue, priority, context)
		select (left(tasker.uuid_floor(now() + interval '9 days')::text, 18) || '-8000-000000000001')::uuid, gen_random_uuid(), 1, 1, 0, '{}'`)
	require.Equal(t, 1, db.QueryInt(t, `select count(*) from tasker.tasks_default`))
	made, err := s.EnsurePartitions(t.Context(), 11)
	require.NoError(t, err)
	require.Equal(t, 5*4-1, made, "all but the one that has rows elsewhere")
	made, err = s.EnsurePartitions(t.Context(), 11)
	require.NoError(t, err)
	require.Zero(t, made)
}
