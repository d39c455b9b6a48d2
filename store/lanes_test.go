package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
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

// TestASignalTellsOfALaneThatIsNew: a worker that finds enough where it looked
// before takes what is urgent first all the same.
func TestASignalTellsOfALaneThatIsNew(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, oneStepYAML)
	next := func() uuid.UUID {
		claimed, _, err := s.Claim(t.Context(), store.ClaimRequest{Queues: []int32{p.Queue}, Limit: 1, Lease: time.Minute}, false)
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		return claimed[0].TaskUUID
	}
	create(t, s, p, 10)
	claim(t, s, p, 1)
	first, told := createUrgent(t, s, p)
	require.NotEqual(t, first, next(), "a scan from the marks cannot see the lane")
	for _, odd := range []string{"", "1", ".", "x.100", "1.x", "1.-1", "1.99999", "99999999999.100", "1.100.2"} {
		s.HearLane(signal.Signal{Topic: told[0].Topic, Payload: odd})
	}
	s.HearLane(signal.Signal{Topic: signal.TopicDue, Payload: told[0].Payload})
	require.NotEqual(t, first, next())
	s.HearLane(told[0])
	require.Equal(t, first, next())
	second, _ := createUrgent(t, s, p)
	require.Equal(t, second, next(), "the lane is known now")
	next()
}

// TestALaneThatIsToldFirstHidesNoOther: where nothing is known, the lanes of the
// default priority are tried, and still are when another one is known.
func TestALaneThatIsToldFirstHidesNoOther(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, oneStepYAML)
	create(t, s, p, 1)
	urgent, told := createUrgent(t, s, p)
	s.HearLane(told[0])
	claimed, _, err := s.Claim(t.Context(), store.ClaimRequest{Queues: []int32{p.Queue}, Limit: 5, Lease: time.Minute}, false)
	require.NoError(t, err)
	require.Len(t, claimed, 2)
	require.Equal(t, urgent, claimed[0].TaskUUID)
}

// TestWhateverPutsAStepInLineTellsItsLane, if that is not one of the default
// priority.
func TestWhateverPutsAStepInLineTellsItsLane(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, retriedYAML)
	bare := signal.Signal{Topic: signal.WorkerTopic("shapes")}
	lane := func(started bool) signal.Signal {
		return signal.Signal{Topic: bare.Topic, Payload: laneOf(p, 50, started)}
	}
	require.Equal(t, []signal.Signal{bare}, store.CreateSignals([]store.NewTask{newTask(p)}))
	task, told := createUrgent(t, s, p)
	require.Equal(t, []signal.Signal{lane(false)}, told)
	both := []store.NewTask{newTask(p), newTask(p)}
	both[0].Priority = 50
	require.Equal(t, []signal.Signal{bare, lane(false)}, store.CreateSignals(both))

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
	promoted, err := s.PromoteDue(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, []signal.Signal{lane(true)}, promoted.Signals, "its backoff is over")

	report(t, s, succeed(claim(t, s, p, 1)[0], `1`))
	require.Equal(t, []signal.Signal{lane(true)}, commit(), "the next step")

	claimed, _, _ := claimAhead(t, s, p, uuid.New(), 2, 1, true)
	require.Len(t, claimed, 1)
	db.Exec(t, `delete from tasker.begun_claims`)
	db.Exec(t, `update tasker.board set lease_until = now() - interval '1 s' where state = 3`)
	expired, err := s.ExpireLeases(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, []signal.Signal{lane(true)}, expired.Signals, "it had not begun")

	told, err = s.Reprioritise(t.Context(), task, 0, "op", "why")
	require.NoError(t, err)
	require.Equal(t, []signal.Signal{bare}, told)
	told, err = s.Reprioritise(t.Context(), task, 50, "op", "why")
	require.NoError(t, err)
	require.Equal(t, []signal.Signal{lane(true)}, told)
	require.Equal(t, int(store.Lane(50, true)), db.QueryInt(t, `select lane from tasker.board where task_uuid = $1`, task))
	require.Equal(t, workflow.TaskStepsInProcess, read(t, s, task).State)
}

func laneOf(p *store.Plan, priority int, started bool) string {
	return fmt.Sprintf("%d.%d", p.Queue, store.Lane(priority, started))
}
