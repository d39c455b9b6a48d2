package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

// TestStepsThatNoWorkerCanRunAreSeen: a worker counts while it is alive, for its offer.
func TestStepsThatNoWorkerCanRunAreSeen(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	other := plan(t, s, strings.Replace(diamondYAML, "shapes", "elsewhere", 1))
	ids := create(t, s, p, 7)
	create(t, s, other, 2)
	start := p.Steps[0].Handler
	unserved := func(limit int) []store.Unserved {
		list, err := s.Unserved(t.Context(), time.Minute, limit)
		require.NoError(t, err)
		for i := range list {
			require.Positive(t, list[i].Waited)
			list[i].Waited = 0
		}
		return list
	}
	beat := func(id uuid.UUID, namespace string, callables []int32, handlers ...string) {
		_, err := s.WorkerHeartbeat(t.Context(), store.Daemon{UUID: id, ID: "w", Namespaces: []string{namespace}, Callables: callables, Handlers: handlers}, nil, time.Minute)
		require.NoError(t, err)
	}
	require.Equal(t, []store.Unserved{{Namespace: "shapes", Handler: start, Steps: 5, Handlers: []string{}},
		{Namespace: "elsewhere", Handler: start, Steps: 2, Handlers: []string{}}}, unserved(5))
	one, gone := uuid.New(), uuid.New()
	beat(one, "shapes", p.Callables[1:], "b", "a")
	beat(gone, "shapes", p.Callables, "c")
	require.Len(t, unserved(5), 1, "only those elsewhere")
	db.Exec(t, `update tasker.workers set heartbeat_at = now() - interval '2 min' where worker_uuid = $1`, gone)
	beat(one, "elsewhere", p.Callables[1:], "b", "a")
	require.Equal(t, []store.Unserved{{Namespace: "shapes", Handler: start, Steps: 7, Handlers: []string{}},
		{Namespace: "elsewhere", Handler: start, Steps: 2, Workers: true, Handlers: []string{"a", "b"}}}, unserved(100))
	beat(one, "shapes", p.Callables[1:], "b", "a")

	steps, err := s.UnservedSteps(t.Context(), ids[0], time.Minute)
	require.NoError(t, err)
	require.Equal(t, map[int]store.Unserved{0: {Namespace: "shapes", Handler: start, Steps: 1, Workers: true, Handlers: []string{"a", "b"}}}, steps)
	beat(one, "shapes", p.Callables, "start")
	steps, err = s.UnservedSteps(t.Context(), ids[0], time.Minute)
	require.NoError(t, err)
	require.Empty(t, steps)
	require.NoError(t, s.Stopped(t.Context(), one))
	steps, err = s.UnservedSteps(t.Context(), ids[0], time.Minute)
	require.NoError(t, err)
	require.Len(t, steps, 1, "it has signed off")
}
