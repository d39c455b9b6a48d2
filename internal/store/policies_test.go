package store_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
)

// bySize expects a millisecond for each byte of n, of which nothing tells nothing.
type bySize struct{}

func (bySize) Expect(q order.Question) (time.Duration, order.Missing) {
	if len(q.Values) == 0 || q.Values[0] == 0 {
		return 0, order.MissingUnknown
	}
	return time.Duration(q.Values[0]) * time.Millisecond, ""
}

// openPredicting is open with a predictor; it returns how often that knew nothing.
func openPredicting(t *testing.T) (*store.Store, *pgtest.DB, *atomic.Int32) {
	t.Helper()
	_, db := open(t)
	unknown := &atomic.Int32{}
	s, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 8, Predictor: bySize{}, Unpredicted: func() { unknown.Add(1) }})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s, db, unknown
}

func setPolicy(t *testing.T, s *store.Store, p *store.Plan, callable string, policy order.Policy) {
	t.Helper()
	signals, err := s.SetPolicy(t.Context(), store.CallablePolicy{Namespace: p.Template.Namespace, Callable: callable, Policy: policy,
		Features: []string{"size:n"}, ChangedBy: "ana"}, "why")
	require.NoError(t, err)
	require.Equal(t, []signal.Signal{{Topic: signal.TopicControl}}, signals)
	_, err = s.Callables(t.Context()) // as a daemon does after the signal
	require.NoError(t, err)
}

// TestPoliciesOrderTheirLines: each policy puts the same tasks in its order, and the signals
// lead a worker to them.
func TestPoliciesOrderTheirLines(t *testing.T) {
	t.Parallel()
	long, short := []byte(`{"n": "01234567890123456789012345678901234567890123456789"}`), []byte(`{"n": 1}`)
	for policy, want := range map[order.Policy][]int{
		order.Priority:         {1, 0, 2, 3},
		order.FIFO:             {0, 1, 2, 3},
		order.ShortestExpected: {2, 0, 1, 3},
		order.DeadlineAware:    {3, 0, 1, 2},
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			s, _, unknown := openPredicting(t)
			p := plan(t, s, oneStepYAML)
			if policy != order.Priority {
				setPolicy(t, s, p, "only", policy)
			}
			_, err := s.Callables(t.Context())
			require.NoError(t, err)
			tasks := []store.NewTask{newTask(p), newTask(p), newTask(p), newTask(p)}
			tasks[0].Context, tasks[1].Context, tasks[2].Context, tasks[3].Context = long, long, short, []byte(`{}`)
			tasks[1].Priority = 10
			tasks[3].DeadlineIn = time.Hour
			_, err = s.CreateTasks(t.Context(), tasks)
			require.NoError(t, err)
			receiveLanes(s, store.CreateSignals(tasks))
			claimed, _, err := s.Claim(t.Context(), store.ClaimRequest{Callables: p.Callables, Limit: 10, Lease: time.Minute}, false)
			require.NoError(t, err)
			var got []int
			for _, c := range claimed {
				for i := range tasks {
					if tasks[i].UUID == c.TaskUUID {
						got = append(got, i)
					}
				}
			}
			require.Equal(t, want, got)
			require.Equal(t, policy == order.ShortestExpected || policy == order.DeadlineAware, unknown.Load() > 0)
		})
	}
}

// TestAPolicyHoldsForLaterSteps: for those that follow, are tried again, or are settled.
func TestAPolicyHoldsForLaterSteps(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, retriedYAML)
	for _, step := range p.Steps {
		setPolicy(t, s, p, step.Handler.Callable, order.FIFO)
	}
	task, _ := createUrgent(t, s, p)
	lane := func() int { return db.QueryInt(t, `select lane from tasker.board where task_uuid = $1`, task) }
	fifo := int(order.FIFO.Lane(order.Step{}))
	require.Equal(t, fifo, lane())
	_, err := s.Reprioritise(t.Context(), task, -50, by("op", "why"))
	require.NoError(t, err)
	require.Equal(t, fifo, lane(), "a priority says nothing here")
	commit := func() {
		taken, err := s.TakeReported(t.Context(), 10, true)
		require.NoError(t, err)
		_, err = taken.Commit(t.Context(), uuid.Nil, decide(t, taken.Tasks))
		require.NoError(t, err)
	}
	report(t, s, fail(claim(t, s, p, 1)[0], true, "again"))
	commit()
	require.Equal(t, fifo, lane(), "its retry")
	db.Exec(t, `update tasker.board set due_at = now() where state = 1`)
	_, err = s.PromoteDue(t.Context(), store.UpTo(10))
	require.NoError(t, err)
	report(t, s, succeed(claim(t, s, p, 1)[0], `1`))
	commit()
	require.Equal(t, fifo, lane(), "the next step")
}

// TestAStepIsAskedForOnce: its row and its signal have the answer to one question, of a new
// task and of one that goes on.
func TestAStepIsAskedForOnce(t *testing.T) {
	t.Parallel()
	s, _, unknown := openPredicting(t)
	p := plan(t, s, retriedYAML)
	for _, step := range p.Steps {
		setPolicy(t, s, p, step.Handler.Callable, order.ShortestExpected)
	}
	task := newTask(p)
	task.Context = []byte(`{}`)
	_, err := s.CreateTasks(t.Context(), []store.NewTask{task})
	require.NoError(t, err)
	require.EqualValues(t, 1, unknown.Load())
	report(t, s, succeed(claim(t, s, p, 1)[0], `1`))
	taken, err := s.TakeReported(t.Context(), 10, true)
	require.NoError(t, err)
	_, err = taken.Commit(t.Context(), uuid.Nil, decide(t, taken.Tasks))
	require.NoError(t, err)
	require.EqualValues(t, 2, unknown.Load())
}

// TestPoliciesAreReadAndRecorded: by name, with any method; a heartbeat of an orchestrator
// reads them, and so does each full scan of a worker.
func TestPoliciesAreReadAndRecorded(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	_, err := s.SetPolicy(t.Context(), store.CallablePolicy{Namespace: "shapes", Callable: "none", Policy: order.FIFO, ChangedBy: "ana"}, "why")
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = s.SetPolicy(t.Context(), store.CallablePolicy{Namespace: "shapes", Callable: "left", ChangedBy: "ana"}, "why")
	require.ErrorIs(t, err, store.ErrNotFound, "it has none")
	setPolicy(t, s, p, "left", order.FIFO)
	setPolicy(t, s, p, "start", order.ShortestExpected)
	setPolicy(t, s, p, "left", order.DeadlineAware)
	list, err := s.Policies(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, []order.Policy{order.DeadlineAware, order.ShortestExpected}, []order.Policy{list[0].Policy, list[1].Policy})
	require.Equal(t, "ana", list[0].ChangedBy)
	require.Equal(t, 3, db.QueryInt(t, `select count(*) from tasker.operator_actions where action like 'set_policy_%' and actor = 'ana' and reason = 'why'
		and target ->> 'namespace' = 'shapes'`))

	another := func() (*store.Store, *store.Plan) {
		o, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 4})
		require.NoError(t, err)
		t.Cleanup(o.Close)
		same, err := o.PlanNamed(t.Context(), "shapes", "diamond", "1.0.0")
		require.NoError(t, err)
		require.False(t, same.Ordered())
		return o, same
	}
	orchestrator, ordered := another()
	_, err = orchestrator.ProcessorHeartbeat(t.Context(), store.Daemon{UUID: uuid.New(), ID: "o"}, time.Minute, true)
	require.NoError(t, err)
	require.True(t, ordered.Ordered())
	worker, ordered := another()
	claim(t, worker, ordered, 1)
	require.True(t, ordered.Ordered())

	setPolicy(t, s, p, "left", order.Priority)
	setPolicy(t, s, p, "start", "")
	require.False(t, p.Ordered())
	claim(t, worker, ordered, 1)
	require.False(t, ordered.Ordered())
	require.Equal(t, 2, db.QueryInt(t, `select count(*) from tasker.operator_actions where action in ('delete_policy', 'set_policy_priority')`))
}

// TestLoadsHaveWhatIsExpected: by the lanes of those of which it is known.
func TestLoadsHaveWhatIsExpected(t *testing.T) {
	t.Parallel()
	s, _, _ := openPredicting(t)
	p := plan(t, s, oneStepYAML)
	expected := func() time.Duration {
		t.Helper()
		loads, _, err := s.Loads(t.Context(), time.Minute, 100)
		require.NoError(t, err)
		require.Len(t, loads, 1)
		return loads[0].Expected
	}
	creating := func(size int) { // 2: nothing is known of it
		t.Helper()
		task := newTask(p)
		if task.Context = []byte("{}"); size > 2 {
			task.Context = fmt.Appendf(nil, `{"n":"%0*d"}`, size-8, 0)
		}
		_, err := s.CreateTasks(t.Context(), []store.NewTask{task})
		require.NoError(t, err)
	}
	creating(125)
	require.Zero(t, expected(), "its order does not say")
	setPolicy(t, s, p, "only", order.ShortestExpected)
	creating(250)
	setPolicy(t, s, p, "only", order.FIFO)
	require.Zero(t, expected())
	setPolicy(t, s, p, "only", order.ShortestExpected)
	creating(500)
	creating(500)
	creating(2)
	require.InDelta(t, (250+500+500)/3, expected().Milliseconds(), 100, "lanes are a factor of 1.41 apart")
}

// TestAgeingUnderAPolicy: each lane of such a line has a rank of its own.
func TestAgeingUnderAPolicy(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	setPolicy(t, s, p, "only", order.ShortestExpected)
	createOf(t, s, db, p, 0, 2, time.Hour)
	require.Empty(t, ageSteps(t, s, 10).Steps)
	db.Exec(t, `update tasker.board set lane = lane - 1, enqueued_at = now() where task_uuid = (select task_uuid from tasker.board limit 1)`)
	require.Equal(t, map[string]int{"flows": 1}, ageSteps(t, s, 10).Steps)
}
