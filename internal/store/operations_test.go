package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
)

func TestSweepIsTakenOncePerInterval(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	one, two := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	take := func(holder uuid.UUID, now bool) bool {
		t.Helper()
		taken, err := s.TakeSweep(t.Context(), "liveness", holder, time.Hour, time.Minute, now)
		require.NoError(t, err)
		return taken
	}
	require.True(t, take(one, false))
	require.False(t, take(two, false))
	require.False(t, take(two, true), "another holder runs it")
	require.NoError(t, s.EndSweep(t.Context(), "liveness", two, 1))
	require.False(t, take(two, true), "only the holder ends it")
	require.NoError(t, s.EndSweep(t.Context(), "liveness", one, map[string]int{"stale": 2}))
	require.False(t, take(two, false), "it is not due yet")
	states, err := s.Sweeps(t.Context())
	require.NoError(t, err)
	require.Len(t, states, 1)
	require.False(t, states[0].Running)
	require.NotNil(t, states[0].FinishedAt)
	require.JSONEq(t, `{"stale":2}`, string(states[0].Result))
	require.True(t, take(two, true), "requested now")
	db.Exec(t, `update tasker.sweeps set next_at = now() - interval '1 s'`)
	require.False(t, take(one, false), "the lease holds")
	db.Exec(t, `update tasker.sweeps set lease_until = now() - interval '1 s'`)
	require.True(t, take(one, false), "its lease has ended")
	states, err = s.Sweeps(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, states[0].Runs)
	require.True(t, states[0].Running)
	require.Equal(t, one, states[0].Holder)
}

func TestOneOfManyTakesTheSweep(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	taken := make(chan bool, 20)
	for range cap(taken) {
		go func() {
			ok, err := s.TakeSweep(t.Context(), "retention", uuid.Must(uuid.NewV7()), time.Hour, time.Hour, false)
			taken <- ok && err == nil
		}()
	}
	winners := 0
	for range cap(taken) {
		if <-taken {
			winners++
		}
	}
	require.Equal(t, 1, winners)
}

var fleetLimits = store.LivenessLimits{Stale: 30 * time.Second, Dead: 2 * time.Minute, Batch: 100}

func TestWorkersFadeAndRecover(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	d := store.Daemon{UUID: uuid.Must(uuid.NewV7()), ID: "w", Namespaces: []string{"shapes"}, Tags: []string{"gpu"}}
	beat := func() error {
		_, err := s.WorkerHeartbeat(t.Context(), d, nil, time.Minute)
		return err
	}
	status := func() store.WorkerStatus {
		t.Helper()
		list, err := s.Workers(t.Context(), store.WorkerFilter{Namespace: "shapes"})
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, []string{"gpu"}, list[0].Tags)
		return list[0].Status
	}
	ago := func(age string) { db.Exec(t, `update tasker.workers set heartbeat_at = now() - $1::interval`, age) }
	sweep := func(dry bool) store.Liveness {
		t.Helper()
		found, err := s.SweepLiveness(t.Context(), fleetLimits, dry)
		require.NoError(t, err)
		return found
	}
	require.NoError(t, beat())
	require.Equal(t, store.Liveness{}, sweep(false))
	require.Equal(t, store.WorkerActive, status())

	ago("40 s")
	require.Len(t, sweep(true).Stale, 1)
	require.Equal(t, store.WorkerActive, status(), "a dry run changes nothing")
	found := sweep(false)
	require.Len(t, found.Stale, 1)
	require.Equal(t, "w", found.Stale[0].ID)
	require.InDelta(t, 40, found.Stale[0].HeartbeatAge.Seconds(), 5)
	require.Equal(t, store.WorkerStale, status())
	require.Empty(t, sweep(false).Stale, "once")
	require.NoError(t, beat())
	require.Equal(t, store.WorkerActive, status(), "a heartbeat sets the status itself")

	ago("40 s")
	sweep(false)
	db.Exec(t, `update tasker.workers set heartbeat_at = now()`) // as a daemon of a version without statuses
	require.Len(t, sweep(false).Recovered, 1)
	require.Equal(t, store.WorkerActive, status())

	ago("3 minutes")
	require.Len(t, sweep(false).Dead, 1)
	require.Equal(t, store.WorkerDead, status())
	require.ErrorIs(t, beat(), store.ErrWorkerDead)
	require.Equal(t, store.WorkerDead, status(), "a dead worker is not revived")
	d.UUID = uuid.Must(uuid.NewV7())
	require.NoError(t, beat(), "it registers as a new worker")
	dead, err := s.Workers(t.Context(), store.WorkerFilter{Status: store.WorkerDead})
	require.NoError(t, err)
	require.Len(t, dead, 1)

	require.NoError(t, s.Stopped(t.Context(), d.UUID))
	ago("3 minutes")
	require.Empty(t, sweep(false).Dead, "a worker that signed off is not dead")
	running, err := s.Workers(t.Context(), store.WorkerFilter{Running: true, Status: store.WorkerActive})
	require.NoError(t, err)
	require.Empty(t, running)
}

func TestClaimsOfTheDeadAreReleased(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	create(t, s, p, 3)
	dead, alive := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	hold := func(worker uuid.UUID, n int) []store.Claimed {
		claimed, _, err := s.Claim(t.Context(), store.ClaimRequest{Worker: worker, Callables: p.Callables, Limit: n, Lease: time.Hour}, true)
		require.NoError(t, err)
		require.Len(t, claimed, n)
		_, err = s.WorkerHeartbeat(t.Context(), store.Daemon{UUID: worker, ID: "w"}, nil, time.Hour)
		require.NoError(t, err)
		return claimed
	}
	lost := hold(dead, 2)
	kept := hold(alive, 1)
	db.Exec(t, `update tasker.workers set heartbeat_at = now() - interval '1 hour' where worker_uuid = $1`, dead)
	found, err := s.SweepLiveness(t.Context(), fleetLimits, true)
	require.NoError(t, err)
	require.Equal(t, 2, found.Released)
	found, err = s.SweepLiveness(t.Context(), fleetLimits, false)
	require.NoError(t, err)
	require.Equal(t, 2, found.Released)
	require.Equal(t, []signal.Signal{{Topic: signal.TopicDue}}, found.Signals)

	_, err = s.WorkerHeartbeat(t.Context(), store.Daemon{UUID: dead, ID: "w"}, []store.ClaimKey{key(lost[0])}, time.Hour)
	require.ErrorIs(t, err, store.ErrWorkerDead)
	expired, err := s.ExpireLeases(t.Context(), store.UpTo(10), 10)
	require.NoError(t, err)
	require.Equal(t, 2, expired.Spared, "its heartbeat has extended nothing")
	require.Equal(t, []bool{true}, report(t, s, succeed(kept[0], `1`)))
	require.Equal(t, []bool{false, false}, report(t, s, succeed(lost[0], `1`), succeed(lost[1], `1`)))
	applyAll(t, s)
	noViolations(t, s)
	found, err = s.SweepLiveness(t.Context(), fleetLimits, false)
	require.NoError(t, err)
	require.Equal(t, store.Liveness{}, found)
}

func TestPausedNamespaceIsNotClaimed(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	require.ErrorIs(t, s.Pause(t.Context(), store.Pause{Namespace: "nowhere", Actor: "ana", Reason: "why"}), store.ErrNotFound)
	_, err := s.Resume(t.Context(), store.Pause{Namespace: "nowhere", Actor: "ana", Reason: "why"})
	require.ErrorIs(t, err, store.ErrNotFound)
	create(t, s, p, 2)
	running := claim(t, s, p, 1)[0]
	require.NoError(t, s.Pause(t.Context(), store.Pause{Namespace: "shapes", Actor: "ana", Reason: "a flood"}))
	list, err := s.Namespaces(t.Context())
	require.NoError(t, err)
	require.Equal(t, "ana", *list[0].PausedBy)
	require.Equal(t, "a flood", *list[0].PauseReason)
	require.NotNil(t, list[0].PausedAt)
	require.Empty(t, claim(t, s, p, 10))
	require.Equal(t, []bool{true}, report(t, s, succeed(running, `1`)), "the running step continues")
	applyAll(t, s)
	require.Empty(t, claim(t, s, p, 10))
	overdue, err := s.OverdueSignals(t.Context(), 0)
	require.NoError(t, err)
	require.Empty(t, overdue, "no signal for it")
	signals, err := s.Resume(t.Context(), store.Pause{Namespace: "shapes", Actor: "ana", Reason: "over"})
	require.NoError(t, err)
	require.Equal(t, []signal.Signal{{Topic: signal.WorkerTopic("shapes")}}, signals)
	require.Len(t, claim(t, s, p, 10), 3)

	actions := recordedActions(t, db)
	require.Len(t, actions, 2)
	require.Equal(t, "resume_namespace", actions[0].Action)
	require.Equal(t, `{"namespace": "shapes"}`, actions[0].Target)
}

func TestAPausedCallableIsNotClaimed(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	callable := p.Steps[0].Handler.Callable
	pause := store.Pause{Namespace: "shapes", Callable: callable, Actor: "ana", Reason: "the bank is down"}
	for _, nowhere := range []store.Pause{{Namespace: "shapes", Callable: "nothing"}, {Namespace: "nowhere", Callable: callable}} {
		require.ErrorIs(t, s.Pause(t.Context(), nowhere), store.ErrNotFound)
		_, err := s.Resume(t.Context(), nowhere)
		require.ErrorIs(t, err, store.ErrNotFound)
	}
	create(t, s, p, 2)
	running := claim(t, s, p, 1)[0]
	require.NoError(t, s.Pause(t.Context(), pause))
	list, err := s.Namespaces(t.Context())
	require.NoError(t, err)
	require.Nil(t, list[0].PausedAt)
	require.Len(t, list[0].PausedCallables, 1)
	require.Equal(t, callable, list[0].PausedCallables[0].Callable)
	require.Equal(t, "the bank is down", *list[0].PausedCallables[0].PauseReason)
	require.Empty(t, claim(t, s, p, 10))
	require.Equal(t, []bool{true}, report(t, s, succeed(running, `1`)), "the running step continues")
	applyAll(t, s)
	require.Len(t, claim(t, s, p, 10), 2, "its successor has another callable")
	overdue, err := s.OverdueSignals(t.Context(), 0)
	require.NoError(t, err)
	require.Empty(t, overdue, "no signal for it")
	signals, err := s.Resume(t.Context(), pause)
	require.NoError(t, err)
	require.Equal(t, []signal.Signal{{Topic: signal.WorkerTopic("shapes")}}, signals)
	require.Len(t, claim(t, s, p, 10), 1)

	actions := recordedActions(t, db)
	require.Len(t, actions, 2)
	require.Equal(t, "resume_callable", actions[0].Action)
	require.JSONEq(t, fmt.Sprintf(`{"namespace": "shapes", "callable": %q}`, callable), actions[0].Target.(string))
}

func TestActionsAreRecorded(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	for i := range 3 {
		require.NoError(t, s.RecordAction(t.Context(), store.OperatorAction{Actor: "ana", Action: "cancel", Reason: "why",
			Target: map[string]int{"n": i}, Matched: i, Changed: 1, DryRun: i == 2}))
	}
	actions := recordedActions(t, db)
	require.Len(t, actions, 3)
	require.Equal(t, store.OperatorAction{Actor: "ana", Action: "cancel", Reason: "why", Target: `{"n": 2}`, Matched: 2, Changed: 1, DryRun: true}, actions[0])
	require.Zero(t, actions[2].Matched)
}

// by is the record of an operator's action to make.
func by(actor, reason string) *store.ActionRecord {
	return &store.ActionRecord{OperatorAction: store.OperatorAction{Actor: actor, Action: "change", Reason: reason, Matched: 9}}
}

// TestAnActionOfSeveralTransactionsHasOneRecord: each adds what it changed, and one that is
// rolled back adds nothing, be it the first.
func TestAnActionOfSeveralTransactionsHasOneRecord(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	record := by("ana", "why")
	change := func(release bool) {
		id := create(t, s, plan(t, s, loneYAML), 1)[0]
		taken, err := s.TakeTasks(t.Context(), []uuid.UUID{id}, store.Taking{})
		require.NoError(t, err)
		require.NoError(t, taken.Record(t.Context(), record, 2))
		if release {
			taken.Release()
			return
		}
		_, err = taken.Commit(t.Context(), uuid.New(), nil)
		require.NoError(t, err)
	}
	for _, release := range []bool{true, false, true, false} {
		change(release)
	}
	_, err := s.Reprioritise(t.Context(), create(t, s, plan(t, s, loneYAML), 1)[0], 5, record)
	require.NoError(t, err)
	actions := recordedActions(t, db)
	require.Equal(t, []store.OperatorAction{{Actor: "ana", Action: "change", Reason: "why", Target: "{}", Matched: 9, Changed: 5}}, actions)
}

// recordedActions are the operators' actions on record, the newest first.
func recordedActions(t *testing.T, db *pgtest.DB) []store.OperatorAction {
	rows, err := db.Pool(t).Query(t.Context(), `select actor, action, reason, target::text, matched, changed, dry_run from tasker.operator_actions order by action_id desc`)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[store.OperatorAction])
	require.NoError(t, err)
	return list
}

func TestOverdueThingsAreSignalled(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	overdue := func() []signal.Signal {
		t.Helper()
		list, err := s.OverdueSignals(t.Context(), time.Minute)
		require.NoError(t, err)
		return list
	}
	create(t, s, p, 3)
	require.Empty(t, overdue(), "they are new")
	db.Exec(t, `update tasker.board set enqueued_at = now() - interval '2 minutes'`)
	require.Equal(t, []signal.Signal{{Topic: signal.WorkerTopic("shapes")}}, overdue())
	claimed := claim(t, s, p, 3)
	require.Empty(t, overdue())
	report(t, s, succeed(claimed[0], `1`))
	db.Exec(t, `update tasker.board set reported_at = now() - interval '2 minutes' where state = 4`)
	require.Equal(t, store.ReportSignals(), overdue())
	applyAll(t, s)
	db.Exec(t, `update tasker.board set lease_until = now() - interval '2 minutes' where state = 3`)
	require.Contains(t, overdue(), signal.Signal{Topic: signal.TopicDue})
}
