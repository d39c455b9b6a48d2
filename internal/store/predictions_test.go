package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/predict"
	"github.com/tasker-go/tasker/internal/predict/outside"
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

// outsider answers by rows, by turns rightly and the wrong way round.
type outsider struct{ inverted atomic.Bool }

func (o *outsider) Expect(q order.Question) (time.Duration, order.Missing) {
	switch {
	case len(q.Values) == 0:
		return 0, order.MissingUnknown
	case o.inverted.Load():
		return time.Second / time.Duration(q.Values[0]), ""
	}
	return time.Duration(q.Values[0]) * time.Millisecond, ""
}

// TestThePredictorOutsideIsJudged like what was learned: it comes first, orders nothing while
// its answers are no good, and is followed again when they are.
func TestThePredictorOutsideIsJudged(t *testing.T) {
	t.Parallel()
	_, db := open(t)
	asked, reasons := &outsider{}, make(chan order.Missing, 100)
	s, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 4, Predictor: asked, NotFollowed: func(why order.Missing) { reasons <- why }})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	p := plan(t, s, oneStepYAML)
	_, err = s.SetPolicy(t.Context(), store.CallablePolicy{Namespace: p.Template.Namespace, Callable: p.Steps[0].Handler.Callable, Policy: order.ShortestExpected,
		Features: []string{"rows"}, ChangedBy: "ana"}, "why")
	require.NoError(t, err)
	worker, made, seen := uuid.Must(uuid.NewV7()), int64(0), map[uuid.UUID]int64{}
	refresh := func() {
		for range 2 {
			_, err := s.Callables(t.Context())
			require.NoError(t, err)
		}
	}
	refresh()
	work := func() store.Learned {
		d := store.Daemon{UUID: worker, ID: "w", Callables: p.Callables}
		for i := range 60 {
			rows := 1 + i*37%1000
			x, ok := s.SampleOf(p.Callables[0], p.Plan, &p.Steps[0], fmt.Appendf(nil, `{"rows": %d}`, rows), time.Duration(rows)*time.Millisecond)
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
	lane := func(body string) int {
		task := newTask(p)
		task.Context = []byte(body)
		_, err := s.CreateTasks(t.Context(), []store.NewTask{task})
		require.NoError(t, err)
		return db.QueryInt(t, `select lane from tasker.board where task_uuid = $1`, task.UUID)
	}
	short, long, fifo := `{"rows": 2}`, `{"rows": 700}`, int(order.FIFO.Lane(order.Step{}))
	require.Less(t, lane(short), lane(long), "nothing was learned")
	require.Equal(t, store.Learned{Samples: 60, Models: 1}, work())
	told := s.Foretell(p, []byte(long))[p.Steps[0].Name].Outside
	require.Equal(t, 700*time.Millisecond, told.Time)
	require.True(t, told.Trusted)
	require.InDelta(t, 1, told.Order, 0.01)
	require.Empty(t, reasons)

	asked.inverted.Store(true)
	require.Greater(t, lane(short), lane(long), "it is followed")
	done := work()
	require.Equal(t, 1, done.Outside)
	require.Zero(t, done.Distrusted, "what was learned is good")
	require.Equal(t, []int{fifo, fifo}, []int{lane(short), lane(long)})
	require.Equal(t, order.MissingDistrusted, <-reasons)
	require.Equal(t, order.MissingDistrusted, <-reasons)
	told = s.Foretell(p, []byte(long))[p.Steps[0].Name].Outside
	require.False(t, told.Trusted)
	require.Less(t, told.Order, -0.9)

	asked.inverted.Store(false)
	require.Zero(t, work().Outside)
	require.Less(t, lane(short), lane(long))
	require.Empty(t, reasons)
}

// TestCreationsDoNotWaitForThePredictor: it is killed in the middle, then hangs, and every
// creation goes on; learned times take its place, and each such step is counted.
func TestCreationsDoNotWaitForThePredictor(t *testing.T) {
	t.Parallel()
	_, db := open(t)
	var answered atomic.Int32
	serve := func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Steps []any }
		if json.NewDecoder(r.Body).Decode(&asked) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		answered.Add(1)
		_ = json.NewEncoder(w).Encode(map[string]any{"expected_ms": slices.Repeat([]int{20}, len(asked.Steps))})
	}
	hung, gone := make(chan struct{}), make(chan struct{})
	hang := func(http.ResponseWriter, *http.Request) {
		close(hung)
		<-gone
	}
	alive := httptest.NewServer(http.HandlerFunc(serve))
	t.Cleanup(alive.Close)
	hanging := httptest.NewServer(http.HandlerFunc(hang))
	t.Cleanup(hanging.Close)
	t.Cleanup(func() { close(gone) })
	run := func(url string) (create func(rows int), reasons *[]order.Missing) {
		c := outside.New(outside.Config{URL: url, Timeout: time.Minute, Batch: 10, Answers: 10})
		require.NoError(t, c.Start(t.Context()))
		t.Cleanup(func() { _ = c.Stop(context.WithoutCancel(t.Context())) })
		reasons = &[]order.Missing{}
		s, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 4, Predictor: c, NotFollowed: func(why order.Missing) { *reasons = append(*reasons, why) }})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		p := plan(t, s, oneStepYAML)
		_, err = s.SetPolicy(t.Context(), store.CallablePolicy{Namespace: p.Template.Namespace, Callable: p.Steps[0].Handler.Callable, Policy: order.ShortestExpected,
			Features: []string{"rows"}, ChangedBy: "ana"}, "why")
		require.NoError(t, err)
		_, err = s.Callables(t.Context())
		require.NoError(t, err)
		return func(rows int) {
			task := newTask(p)
			task.Context = fmt.Appendf(nil, `{"rows": %d}`, rows)
			_, err := s.CreateTasks(t.Context(), []store.NewTask{task})
			require.NoError(t, err)
		}, reasons
	}
	create, reasons := run(alive.URL)
	pgtest.Eventually(t, 10*time.Second, func() (bool, string) {
		before := len(*reasons)
		create(5)
		return len(*reasons) == before, "no answer yet"
	})
	alive.CloseClientConnections()
	alive.Close() // killed
	before := len(*reasons)
	pgtest.Eventually(t, 10*time.Second, func() (bool, string) {
		create(1000)
		return slices.Contains((*reasons)[before:], order.MissingFailed), fmt.Sprint((*reasons)[before:])
	})
	require.Equal(t, len(*reasons)-before, countOf((*reasons)[before:], order.MissingAsked)+countOf((*reasons)[before:], order.MissingFailed))

	create, reasons = run(hanging.URL)
	create(1)
	<-hung // and a request is waited for, for a minute
	began := time.Now()
	for i := range 50 {
		create(1 + i)
	}
	require.Less(t, time.Since(began), 30*time.Second)
	require.Len(t, *reasons, 51, "each of them is counted")
	require.Positive(t, answered.Load())
}

func countOf(list []order.Missing, why order.Missing) (n int) {
	for _, x := range list {
		if x == why {
			n++
		}
	}
	return n
}
