package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// createUrgent creates a task of a priority that no task had before.
func createUrgent(t *testing.T, s *store.Store, p *store.Plan) (uuid.UUID, []signal.Signal) {
	t.Helper()
	urgent := newTask(p)
	urgent.Priority = 50
	_, err := s.CreateTasks(t.Context(), []store.NewTask{urgent})
	require.NoError(t, err)
	return urgent.UUID, store.CreateSignals([]store.NewTask{urgent})
}

// TestASignalTellsOfALaneThatIsNew: a worker that finds enough in known lanes still takes
// urgent steps first.
func TestASignalTellsOfALaneThatIsNew(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, oneStepYAML)
	next := func() uuid.UUID {
		claimed, _, err := s.Claim(t.Context(), store.ClaimRequest{Callables: p.Callables, Limit: 1, Lease: time.Minute}, false)
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		return claimed[0].TaskUUID
	}
	create(t, s, p, 10)
	claim(t, s, p, 1) // and learns the callable
	first, sent := createUrgent(t, s, p)
	require.NotEqual(t, first, next(), "a scan from the marks cannot see the lane")
	for _, odd := range []string{"", "1", ".", "x.100", "1.x", "1.-2", "1.402", "1.99999", "99999999999.100", "1.100.2"} {
		s.HearLanes(signal.Signal{Topic: sent[0].Topic, Payload: odd})
	}
	s.HearLanes(signal.Signal{Topic: signal.TopicDue, Payload: sent[0].Payload})
	require.NotEqual(t, first, next())
	receiveLanes(s, sent)
	require.Equal(t, first, next())
	second, _ := createUrgent(t, s, p)
	require.Equal(t, second, next(), "the lane is known now")
	next()
}

// laneBy is the lane of a step by its priority alone.
func laneBy(priority int, begun bool) int16 {
	return order.Priority.Lane(order.Step{Priority: priority, Begun: begun})
}

// TestALaneIsLookedIntoUntilItIsEmpty, and again after a signal.
func TestALaneIsLookedIntoUntilItIsEmpty(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	s.LanesCoolAtOnce()
	p := plan(t, s, oneStepYAML)
	fast := func(limit int) int {
		claimed, _, err := s.Claim(t.Context(), store.ClaimRequest{Callables: p.Callables, Limit: limit, Lease: time.Minute}, false)
		require.NoError(t, err)
		return len(claimed)
	}
	createUnsignalled(t, s, p, 3)
	sent := store.CreateSignals([]store.NewTask{newTask(p)})
	receiveLanes(s, sent)
	require.Zero(t, fast(5), "the callable is not known yet")
	known, err := s.Callables(t.Context())
	require.NoError(t, err)
	require.Equal(t, known, s.KnownCallables())
	require.Zero(t, fast(5), "no signal named it")
	receiveLanes(s, sent)
	require.Equal(t, 1, fast(1))
	require.Equal(t, 2, fast(2), "there was no room for more")
	require.Zero(t, fast(5))
	createUnsignalled(t, s, p, 2)
	require.Zero(t, fast(5), "it is empty as far as known")
	urgent, more := createUrgent(t, s, p)
	s.HearLanes(signal.Signal{Topic: sent[0].Topic, Payload: sent[0].Payload + "," + more[0].Payload})
	claimed, _, err := s.Claim(t.Context(), store.ClaimRequest{Callables: p.Callables, Limit: 5, Lease: time.Minute}, false)
	require.NoError(t, err)
	require.Len(t, claimed, 3)
	require.Equal(t, urgent, claimed[0].TaskUUID)
}

// TestALaneStaysWarm: steps that follow soon are found before their signal.
func TestALaneStaysWarm(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, oneStepYAML)
	create(t, s, p, 1)
	for range 3 {
		claimed, _, err := s.Claim(t.Context(), store.ClaimRequest{Callables: p.Callables, Limit: 5, Lease: time.Minute}, false)
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		createUnsignalled(t, s, p, 1)
	}
}

// TestWhateverPutsAStepInLineTellsItsLane: its callable and its priority.
func TestWhateverPutsAStepInLineTellsItsLane(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, retriedYAML)
	lane := func(step, priority int, started bool) signal.Signal {
		return signal.Signal{Topic: signal.WorkerTopic("shapes"), Payload: laneOf(p, step, priority, started)}
	}
	require.Equal(t, []signal.Signal{lane(0, 0, false)}, store.CreateSignals([]store.NewTask{newTask(p)}))
	task, sent := createUrgent(t, s, p)
	require.Equal(t, []signal.Signal{lane(0, 50, false)}, sent)
	both := []store.NewTask{newTask(p), newTask(p)}
	both[0].Priority = 50
	require.Equal(t, []signal.Signal{{Topic: sent[0].Topic, Payload: laneOf(p, 0, 50, false) + "," + laneOf(p, 0, 0, false)}}, store.CreateSignals(both))
	many := make([]store.NewTask, 100)
	for i := range many {
		many[i] = newTask(p)
		many[i].Priority = i
	}
	require.Equal(t, []signal.Signal{{Topic: sent[0].Topic}}, store.CreateSignals(many), "too many to name")

	commit := func() []signal.Signal {
		taken, err := s.TakeReported(t.Context(), 10, true)
		require.NoError(t, err)
		done, err := taken.Commit(t.Context(), uuid.Nil, decide(t, taken.Tasks))
		require.NoError(t, err)
		return done.Signals
	}
	report(t, s, fail(claim(t, s, p, 1)[0], true, "again"))
	require.Equal(t, []signal.Signal{{Topic: signal.TopicDue}}, commit())
	db.Exec(t, `update tasker.board set due_at = now() where state = 1`)
	promoted, err := s.PromoteDue(t.Context(), store.UpTo(10))
	require.NoError(t, err)
	require.Equal(t, []signal.Signal{lane(0, 50, true)}, promoted.Signals, "its backoff is over")

	report(t, s, succeed(claim(t, s, p, 1)[0], `1`))
	require.Equal(t, []signal.Signal{lane(1, 50, true)}, commit(), "the next step")

	claimed, _, _ := claimAhead(t, s, p, uuid.New(), 2, 1, true)
	require.Len(t, claimed, 1)
	db.Exec(t, `delete from tasker.begun_claims`)
	db.Exec(t, `update tasker.board set lease_until = now() - interval '1 s' where state = 3`)
	expired, err := s.ExpireLeases(t.Context(), store.UpTo(10), 10)
	require.NoError(t, err)
	require.Equal(t, []signal.Signal{lane(1, 50, true)}, expired.Signals, "it had not begun")

	sent, err = s.Reprioritise(t.Context(), task, 0, by("op", "why"))
	require.NoError(t, err)
	require.Equal(t, []signal.Signal{lane(1, 0, true)}, sent)
	sent, err = s.Reprioritise(t.Context(), task, 50, by("op", "why"))
	require.NoError(t, err)
	require.Equal(t, []signal.Signal{lane(1, 50, true)}, sent)
	require.Equal(t, int(laneBy(50, true)), db.QueryInt(t, `select lane from tasker.board where task_uuid = $1`, task))
	require.Equal(t, workflow.TaskStepsInProcess, read(t, s, task).State)
}

func laneOf(p *store.Plan, step, priority int, started bool) string {
	return fmt.Sprintf("%d.%d", p.Callables[step], laneBy(priority, started))
}
