package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/predict"
	"github.com/tasker-go/tasker/internal/store"
)

// TestTimesAreLearned from what workers tell with their heartbeats: then the steps expected
// to be short go first, and a model that is wrong orders nothing.
func TestTimesAreLearned(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	require.False(t, s.Predicts())
	_, ok := s.SampleOf(p.Callables[0], p.Plan, &p.Steps[0], []byte(`{}`), time.Second)
	require.False(t, ok, "no policy wants it")
	policy := store.CallablePolicy{Namespace: p.Template.Namespace, Callable: p.Steps[0].Handler.Callable, Policy: order.ShortestExpected,
		Features: []string{"rows"}, Class: "tenant", ChangedBy: "ana"}
	_, err := s.SetPolicy(t.Context(), policy, "why")
	require.NoError(t, err)
	list, err := s.Policies(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, []string{"rows"}, list[0].Features)
	require.Equal(t, "tenant", list[0].Class)
	refresh := func() {
		for range 2 { // models are read where a policy was known to want them
			_, err := s.Callables(t.Context())
			require.NoError(t, err)
		}
	}
	refresh()
	require.True(t, s.Predicts())

	worker, made, seen := uuid.Must(uuid.NewV7()), int64(0), map[uuid.UUID]int64{}
	// tell has a worker tell of executions that took a millisecond for each row, or the inverse.
	tell := func(took func(rows int) time.Duration) store.Learned {
		d := store.Daemon{UUID: worker, ID: "w", Callables: p.Callables}
		for i := range 60 {
			rows := 1 + i*37%1000
			x, ok := s.SampleOf(p.Callables[0], p.Plan, &p.Steps[0], fmt.Appendf(nil, `{"rows": %d, "tenant": "a"}`, rows), took(rows))
			require.True(t, ok)
			made++
			x.No = made
			d.Load.Samples = append(d.Load.Samples, x)
		}
		_, err := s.WorkerHeartbeat(t.Context(), d, nil, time.Minute)
		require.NoError(t, err)
		done, err := s.Learn(t.Context(), time.Minute, seen)
		require.NoError(t, err)
		refresh()
		return done
	}
	byRows := func(rows int) time.Duration { return time.Duration(rows) * time.Millisecond }
	require.Equal(t, store.Learned{Samples: 60, Models: 1}, tell(byRows))
	again, err := s.Learn(t.Context(), time.Minute, seen)
	require.NoError(t, err)
	require.Zero(t, again, "they are learned once")
	tell(byRows)
	told := s.Foretell(p, []byte(`{"rows": 500, "tenant": "a"}`))[p.Steps[0].Name]
	require.Equal(t, predict.ByRegression, told.Basis)
	require.InDelta(t, 0.5, told.Time.Seconds(), 0.1)
	require.True(t, told.Trusted)
	require.Greater(t, told.Order, 0.9)

	lanes := func() (lanes []int) {
		for _, rows := range []int{2, 700} {
			task := newTask(p)
			task.Context = fmt.Appendf(nil, `{"rows": %d, "tenant": "a"}`, rows)
			_, err := s.CreateTasks(t.Context(), []store.NewTask{task})
			require.NoError(t, err)
			lanes = append(lanes, db.QueryInt(t, `select lane from tasker.board where task_uuid = $1`, task.UUID))
		}
		return lanes
	}
	short, long := lanes()[0], lanes()[1]
	require.Less(t, short, long)

	inverse := func(rows int) time.Duration { return time.Second / time.Duration(rows) }
	done := tell(inverse)
	require.Equal(t, 1, done.Distrusted)
	fifo := int(order.FIFO.Lane(order.Step{}))
	require.Equal(t, []int{fifo, fifo}, lanes())
	for range 5 {
		done = tell(inverse) // which it learns
	}
	require.Zero(t, done.Distrusted)
	lane := lanes()
	require.Greater(t, lane[0], lane[1])

	// Another process reads what was learned, and a body of another version is nothing.
	other, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 2})
	require.NoError(t, err)
	t.Cleanup(other.Close)
	same, err := other.PlanByID(t.Context(), p.ID)
	require.NoError(t, err)
	for range 2 {
		_, err = other.Callables(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, predict.ByRegression, other.Foretell(same, []byte(`{"rows": 5}`))[p.Steps[0].Name].Basis)
	db.Exec(t, `update tasker.predictions set model = '{"version": 999}', changed_at = clock_timestamp()`)
	refresh()
	require.Equal(t, predict.Unknown, s.Foretell(p, []byte(`{"rows": 5}`))[p.Steps[0].Name].Basis)
	require.Equal(t, 60, tell(byRows).Samples, "it begins anew")
}
