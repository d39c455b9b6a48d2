package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// settleTaken reports successes, applies them, and claims what follows.
func settleTaken(t *testing.T, s *store.Store, req store.ClaimRequest, reports ...store.Report) (store.Committed, []bool) {
	t.Helper()
	taken, accepted, err := s.ReportAndTake(t.Context(), reports)
	require.NoError(t, err)
	var changes []store.Change
	for i := range taken.Tasks {
		task := &taken.Tasks[i]
		var in []workflow.Input
		for _, r := range task.Reported {
			in = append(in, workflow.Reported{Step: r.Step, Attempt: r.Attempt, Success: true, RetryAfter: -1})
		}
		progress, effects, err := workflow.Advance(task.Plan.Plan, task.State, task.Progress, rules, in...)
		require.NoError(t, err)
		changes = append(changes, store.Change{Task: task, Progress: progress, Effects: effects, Actor: "worker"})
	}
	done, err := taken.CommitFor(t.Context(), req.Worker, changes, &req)
	require.NoError(t, err)
	require.False(t, done.Unread)
	return done, accepted
}

// TestReportAndTakeRunsADiamond: following steps are claimed on creation, with the
// results of their parents, from this transaction or from the ledger.
func TestReportAndTakeRunsADiamond(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	id := create(t, s, p, 1)[0]
	req := taker(p, 5)
	begin := claimLone(t, s, req)

	done, accepted := settleTaken(t, s, req, succeed(*begin, `{"n": 1}`))
	require.Equal(t, []bool{true}, accepted)
	require.Empty(t, done.Signals, "no signals needed")
	sides := done.Claimed
	require.Len(t, sides, 2)
	for no, c := range sides {
		require.Equal(t, no+1, c.Step)
		require.Equal(t, c.Step+1, c.Slot)
		require.Equal(t, 1, c.Attempt)
		require.Greater(t, c.Token, begin.Token)
		require.Equal(t, begin.Context, c.Context)
		require.Equal(t, map[int]json.RawMessage{0: json.RawMessage(`{"n": 1}`)}, c.ParentResults)
		require.Nil(t, c.Task)
	}
	require.Equal(t, 2, db.QueryInt(t, `select count(*) from tasker.board where state = 3 and worker = $1 and lease_until > clock_timestamp() and slot > 0`, req.Worker))
	_, accepted = settleTaken(t, s, req, succeed(sides[0], `2`), succeed(*begin, `0`))
	require.Equal(t, []bool{true, false}, accepted, "a claim accepts one result")

	one := req
	one.Limit = 0
	done, _ = settleTaken(t, s, one, succeed(sides[1], `3`))
	require.Empty(t, done.Claimed, "no room")
	require.Equal(t, signal.WorkerTopic("shapes"), done.Signals[0].Topic)
	end := claimLone(t, s, req)
	require.Equal(t, map[int]json.RawMessage{1: json.RawMessage(`2`), 2: json.RawMessage(`3`)}, end.ParentResults)
	done, _ = settleTaken(t, s, req, succeed(*end, `4`))
	require.Equal(t, 1, done.Finished)
	task, err := s.Task(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, workflow.TaskComplete, task.State)
	requireIntegrity(t, s)
}

// TestReportAndTakeJoins: the last branch claims the join, for which the result of the
// other is in the ledger.
func TestReportAndTakeJoins(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, diamondYAML)
	create(t, s, p, 1)
	req := taker(p, 5)
	done, _ := settleTaken(t, s, req, succeed(*claimLone(t, s, req), `1`))
	sides := done.Claimed
	settleTaken(t, s, req, succeed(sides[0], `2`))
	done, _ = settleTaken(t, s, req, succeed(sides[1], `3`))
	require.Len(t, done.Claimed, 1)
	end := done.Claimed[0]
	require.Zero(t, end.Slot)
	require.NotNil(t, end.Task)
	require.Equal(t, map[int]json.RawMessage{1: json.RawMessage(`2`), 2: json.RawMessage(`3`)}, end.ParentResults)
	require.True(t, settle(t, s, taker(p, 1), settlement(t, p, &end, `4`))[0].Accepted, "it continues either way")
	requireIntegrity(t, s)
}

// TestReportAndTakeWithoutADecision keeps the reports and notifies orchestrators.
func TestReportAndTakeWithoutADecision(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	create(t, s, p, 2)
	req := taker(p, 5)
	claimed, _, err := s.Claim(t.Context(), req, true)
	require.NoError(t, err)
	reports := []store.Report{succeed(claimed[0], `1`), succeed(claimed[1], `2`)}

	taken, accepted, err := s.ReportAndTake(t.Context(), reports)
	require.NoError(t, err)
	require.Equal(t, []bool{true, true}, accepted)
	taken.Release()
	require.Equal(t, 2, db.QueryInt(t, `select count(*) from tasker.board where state = 3`), "as without a report")

	taken, _, err = s.ReportAndTake(t.Context(), reports)
	require.NoError(t, err)
	require.Len(t, taken.Tasks, 2)
	done, err := taken.CommitFor(t.Context(), req.Worker, nil, &req)
	require.NoError(t, err)
	require.Equal(t, []signal.Signal{{Topic: signal.TopicOrchestration}}, done.Signals)
	require.Equal(t, []bool{false, false}, report(t, s, reports...))
	applyAll(t, s)
	require.Equal(t, 4, db.QueryInt(t, `select count(*) from tasker.board where state = 2`))

	taken, accepted, err = s.ReportAndTake(t.Context(), reports)
	require.NoError(t, err)
	require.Equal(t, []bool{false, false}, accepted)
	_, err = taken.Commit(t.Context(), uuid.Nil, nil)
	require.ErrorContains(t, err, "already been released", "rejected reports hold no locks")
	requireIntegrity(t, s)
}

// TestReportAndTakeWaitsForNobodyLong: behind a process that froze a worker reports
// in the ordinary way, which needs no lock on the task.
func TestReportAndTakeWaitsForNobodyLong(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	id := create(t, s, p, 1)[0]
	req := taker(p, 5)
	done, _ := settleTaken(t, s, req, succeed(*claimLone(t, s, req), `1`))
	release := lockRow(t, db, id, 0)
	begin := time.Now()
	_, accepted, err := s.ReportAndTake(t.Context(), []store.Report{succeed(done.Claimed[0], `2`)})
	require.ErrorContains(t, err, "lock timeout")
	require.GreaterOrEqual(t, time.Since(begin), 100*time.Millisecond)
	require.Equal(t, []bool{false}, accepted)
	require.Equal(t, []bool{true}, report(t, s, succeed(done.Claimed[0], `2`)))
	release()
	settleTaken(t, s, req, succeed(done.Claimed[1], `3`)) // with the other one's report
	require.Equal(t, 1, db.QueryInt(t, `select count(*) from tasker.board where state = 3 and step_no = 3`))
	requireIntegrity(t, s)
}

// TestReportAndTakeClaimsNothingOfAPausedNamespace: running steps end, and their
// successors wait.
func TestReportAndTakeClaimsNothingOfAPausedNamespace(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	create(t, s, p, 1)
	req := taker(p, 5)
	begin := claimLone(t, s, req)
	require.NoError(t, s.Pause(t.Context(), store.Pause{Namespace: "shapes", Actor: "ana", Reason: "a flood"}))
	done, accepted := settleTaken(t, s, req, succeed(*begin, `1`))
	require.Equal(t, []bool{true}, accepted)
	require.Empty(t, done.Claimed)
	require.Equal(t, 2, db.QueryInt(t, `select count(*) from tasker.board where state = 2 and attempt = 0 and token is null`))
	requireIntegrity(t, s)
}

// TestReportAndTakeBringsNoStaleResult: the next step does not get a rejected result of
// the same batch.
func TestReportAndTakeBringsNoStaleResult(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, diamondYAML)
	create(t, s, p, 1)
	req := taker(p, 5)
	done, _ := settleTaken(t, s, req, succeed(*claimLone(t, s, req), `1`))
	sides := done.Claimed
	require.NoError(t, s.ReleaseLeases(t.Context(), []store.ClaimKey{sides[0].Key()}))
	_, err := s.ExpireLeases(t.Context(), store.UpTo(10), 10)
	require.NoError(t, err)
	applyAll(t, s)
	again, _, err := s.Claim(t.Context(), req, true)
	require.NoError(t, err)
	require.Len(t, again, 1)
	require.Equal(t, []bool{true}, report(t, s, succeed(again[0], `"new"`)))

	done, accepted := settleTaken(t, s, req, succeed(sides[0], `"old"`), succeed(sides[1], `3`))
	require.Equal(t, []bool{false, true}, accepted)
	require.Len(t, done.Claimed, 1)
	require.Equal(t, map[int]json.RawMessage{1: json.RawMessage(`"new"`), 2: json.RawMessage(`3`)}, done.Claimed[0].ParentResults)
	requireIntegrity(t, s)
}
