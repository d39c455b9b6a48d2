package store_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

const chainYAML = `
name: chain
namespace_name: shapes
version: 1.0.0
steps:
  - name: one
    handler: {callable: one}
  - name: two
    dependencies: [one]
    handler: {callable: two}
  - name: three
    dependencies: [one, two]
    handler: {callable: three}
    tags: [gpu]
  - name: four
    dependencies: [one, three]
    handler: {callable: four}
  - name: five
    dependencies: [two, four]
    handler: {callable: five}
`

func taker(p *store.Plan, limit int, tags ...string) store.ClaimRequest {
	return store.ClaimRequest{Worker: uuid.Must(uuid.NewV7()), Callables: p.Callables, Tags: tags, Limit: limit, Lease: time.Minute}
}

// settlement is the success of a claim, decided as an orchestrator does.
func settlement(t require.TestingT, p *store.Plan, c *store.Claimed, result string) store.Settlement {
	progress, effects, err := workflow.Advance(p.Plan, c.Task.State, c.Task.Progress, rules,
		workflow.Reported{Step: c.Step, Attempt: c.Attempt, Success: true, RetryAfter: -1})
	require.NoError(t, err)
	return store.Settlement{Claim: c, Result: json.RawMessage(result), Plan: p, Progress: progress, Effects: effects}
}

// claimLone claims one step, the only one in hand of its task.
func claimLone(t testing.TB, s *store.Store, req store.ClaimRequest) *store.Claimed {
	t.Helper()
	claimed, _, err := s.Claim(t.Context(), req, true)
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	require.NotNil(t, claimed[0].Task)
	return &claimed[0]
}

func settle(t testing.TB, s *store.Store, req store.ClaimRequest, list ...store.Settlement) []store.Settled {
	t.Helper()
	answers, _, err := s.Settle(t.Context(), req, list)
	require.NoError(t, err)
	require.Len(t, answers, len(list))
	return answers
}

func requireIntegrity(t testing.TB, s *store.Store) {
	t.Helper()
	audit, err := s.CheckIntegrity(t.Context(), rules)
	require.NoError(t, err)
	require.Empty(t, audit.Violations)
}

func TestSettleRunsAChainToItsEnd(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, chainYAML)
	id := create(t, s, p, 1)[0]
	req := taker(p, 1, "gpu")

	one := claimLone(t, s, req)
	a := settle(t, s, req, settlement(t, p, one, `{"n": 1}`))[0]
	require.True(t, a.Accepted)
	two := a.Next
	require.NotNil(t, two)
	require.Equal(t, 1, two.Step)
	require.Equal(t, 1, two.Attempt)
	require.Greater(t, two.Token, one.Token)
	require.False(t, two.ClaimedAt.Before(one.ClaimedAt))
	require.Equal(t, one.Context, two.Context)
	require.Equal(t, map[int]json.RawMessage{0: json.RawMessage(`{"n": 1}`)}, two.ParentResults)
	require.False(t, settle(t, s, req, settlement(t, p, one, `0`))[0].Accepted, "a claim accepts one result")
	require.Equal(t, []bool{false}, report(t, s, succeed(*one, `0`)))

	for no := 1; no < 4; no++ {
		require.Equal(t, no, a.Next.Step)
		a = settle(t, s, req, settlement(t, p, a.Next, strconv.Itoa(no)))[0]
		require.True(t, a.Accepted)
		require.Equal(t, no < 3, a.Next != nil)
	}
	// The claim of the fourth step does not include the result of the second, so the last
	// step must be claimed.
	last := claimLone(t, s, req)
	require.Equal(t, map[int]json.RawMessage{1: json.RawMessage(`1`), 3: json.RawMessage(`3`)}, last.ParentResults)
	_, err := s.Watch(t.Context(), id)
	require.NoError(t, err)
	end := settle(t, s, req, settlement(t, p, last, `4`))[0]
	require.Equal(t, store.Settled{Accepted: true, Watched: true}, end)

	task, err := s.Task(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, workflow.TaskComplete, task.State)
	var inOrder, finals int
	require.NoError(t, db.Pool(t).QueryRow(t.Context(), `
		select count(*) filter (where enqueued_at <= claimed_at and claimed_at <= reported_at and reported_at <= applied_at and worker = $1),
		       count(*) filter (where task_state = 9 and task_progress is not null and step_no = 4)
		from tasker.step_attempts`, req.Worker).Scan(&inOrder, &finals))
	require.Equal(t, 5, inOrder)
	require.Equal(t, 1, finals)
	requireIntegrity(t, s)
}

// TestSettleClaimsOnlyWhatTheTakerMay: steps not claimed at once are claimable by all.
func TestSettleClaimsOnlyWhatTheTakerMay(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, chainYAML)
	create(t, s, p, 3)
	for name, req := range map[string]store.ClaimRequest{
		"no permit":      taker(p, 0, "gpu"),
		"other callable": {Callables: []int32{p.Callables[0] + 1000}, Tags: []string{"gpu"}, Limit: 1, Lease: time.Minute},
	} {
		one := claimLone(t, s, taker(p, 1))
		answers, done, err := s.Settle(t.Context(), req, []store.Settlement{settlement(t, p, one, `1`)})
		require.NoError(t, err, name)
		require.Equal(t, []store.Settled{{Accepted: true}}, answers, name)
		require.Len(t, done.Signals, 1, name)
		two := claimLone(t, s, taker(p, 1))
		require.Equal(t, 1, two.Step, "steps of begun tasks come first")
		require.JSONEq(t, `1`, string(two.ParentResults[0]), name)
		require.True(t, settle(t, s, taker(p, 1), settlement(t, p, two, `2`))[0].Accepted, name)
		three := claimLone(t, s, taker(p, 1, "gpu"))
		require.Equal(t, 2, three.Step)
		four := settle(t, s, taker(p, 1), settlement(t, p, three, `3`))[0]
		five := settle(t, s, taker(p, 1), settlement(t, p, four.Next, `4`))[0]
		require.True(t, five.Accepted)
		last := claimLone(t, s, taker(p, 1))
		require.True(t, settle(t, s, taker(p, 1), settlement(t, p, last, `5`))[0].Accepted, name)
	}
	one := claimLone(t, s, taker(p, 1))
	two := settle(t, s, taker(p, 1), settlement(t, p, one, `1`))[0]
	require.NotNil(t, two.Next)
	three := settle(t, s, taker(p, 1), settlement(t, p, two.Next, `2`))[0]
	require.True(t, three.Accepted)
	require.Nil(t, three.Next, "its tags are not the taker's")
	requireIntegrity(t, s)
}

// TestSettleTakesNothingOfAPausedNamespace: running steps end, and their successors wait
// until the namespace is resumed.
func TestSettleTakesNothingOfAPausedNamespace(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p, other := plan(t, s, chainYAML), plan(t, s, strings.Replace(chainYAML, "namespace_name: shapes", "namespace_name: elsewhere", 1))
	paused, runs := create(t, s, p, 1)[0], create(t, s, other, 1)[0]
	req := taker(p, 2)
	req.Callables = slices.Concat(req.Callables, other.Callables)
	claimed, _, err := s.Claim(t.Context(), req, true)
	require.NoError(t, err)
	require.Len(t, claimed, 2)
	require.NoError(t, s.Pause(t.Context(), store.Pause{Namespace: "shapes", Actor: "ana", Reason: "a flood"}))

	var list []store.Settlement
	for i := range claimed {
		of := p
		if claimed[i].TaskUUID == runs {
			of = other
		}
		list = append(list, settlement(t, of, &claimed[i], `{"n": 1}`))
	}
	for i, a := range settle(t, s, req, list...) {
		require.True(t, a.Accepted, "the running step's result counts")
		require.Equal(t, claimed[i].TaskUUID == runs, a.Next != nil, "the other namespace continues")
	}
	require.Equal(t, 1, db.QueryInt(t, `select count(*) from tasker.board where task_uuid = $1 and state = 2 and step_no = 1
		and attempt = 0 and token is null and worker is null and lease_until is null`, paused))
	require.Empty(t, claim(t, s, p, 10))
	requireIntegrity(t, s)

	_, err = s.Resume(t.Context(), store.Pause{Namespace: "shapes", Actor: "ana", Reason: "over"})
	require.NoError(t, err)
	two := claimLone(t, s, taker(p, 1, "gpu"))
	require.Equal(t, 1, two.Step)
	require.JSONEq(t, `{"n": 1}`, string(two.ParentResults[0]))
	three := settle(t, s, taker(p, 1, "gpu"), settlement(t, p, two, `2`))[0]
	require.NotNil(t, three.Next, "and it settles again")
	requireIntegrity(t, s)
}

func TestSettleRefusesWithoutTheClaim(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, chainYAML)
	pool := db.Pool(t)
	for name, lose := range map[string]func(c *store.Claimed){
		"the lease has ended": func(c *store.Claimed) {
			require.NoError(t, s.ReleaseLeases(t.Context(), []store.ClaimKey{c.Key()}))
			expired, err := s.ExpireLeases(t.Context(), store.UpTo(10), 10)
			require.NoError(t, err)
			require.Equal(t, 1, expired.Lost)
		},
		"it was handed back": func(c *store.Claimed) {
			_, err := s.HandBack(t.Context(), []store.ClaimKey{c.Key()})
			require.NoError(t, err)
		},
		"it was reported": func(c *store.Claimed) {
			require.Equal(t, []bool{true}, report(t, s, succeed(*c, `1`)))
		},
		"the task stands elsewhere": func(c *store.Claimed) {
			_, err := pool.Exec(t.Context(), `update tasker.board set task_state = 4 where task_uuid = $1`, c.TaskUUID)
			require.NoError(t, err)
		},
		"the task was cancelled": func(c *store.Claimed) {
			taken, err := s.TakeTask(t.Context(), c.TaskUUID)
			require.NoError(t, err)
			task := &taken.Tasks[0]
			progress, effects, err := workflow.Advance(p.Plan, task.State, task.Progress, rules, workflow.Operation{Action: workflow.ActionCancel})
			require.NoError(t, err)
			_, err = taken.Commit(t.Context(), uuid.Nil, []store.Change{{Task: task, Progress: progress, Effects: effects}})
			require.NoError(t, err)
		},
	} {
		create(t, s, p, 1)
		one := claimLone(t, s, taker(p, 1))
		lose(one)
		before := boardText(t, pool)
		require.Equal(t, []store.Settled{{}}, settle(t, s, taker(p, 1), settlement(t, p, one, `1`)), name)
		require.Equal(t, before, boardText(t, pool), name)
		var settledRows int
		require.NoError(t, pool.QueryRow(t.Context(), `select count(*) from tasker.step_attempts where outcome = 1`).Scan(&settledRows))
		require.Zero(t, settledRows, name)
		_, err := pool.Exec(t.Context(), `delete from tasker.board`)
		require.NoError(t, err)
	}
}

// TestSettleLeavesWhatIsNotSimple to the ordinary way.
func TestSettleLeavesWhatIsNotSimple(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, diamondYAML)
	create(t, s, p, 1)
	begin := claimLone(t, s, taker(p, 1))
	require.False(t, settle(t, s, taker(p, 5), settlement(t, p, begin, `1`))[0].Accepted, "two steps follow")
	undecided := settlement(t, p, begin, `1`)
	undecided.Effects = nil
	require.False(t, settle(t, s, taker(p, 5), undecided)[0].Accepted)
	require.Equal(t, []bool{true}, report(t, s, succeed(*begin, `1`)))
	applyAll(t, s)

	sides, _, err := s.Claim(t.Context(), taker(p, 5), true)
	require.NoError(t, err)
	require.Len(t, sides, 2)
	require.True(t, sides[0].Task == nil && sides[1].Task == nil, "steps with rows of their own")
	require.Equal(t, []bool{true, true}, report(t, s, succeed(sides[0], `2`), succeed(sides[1], `3`)))
	applyAll(t, s)

	// The branches have joined in the task's row.
	end := claimLone(t, s, taker(p, 1))
	require.Len(t, end.ParentResults, 2)
	require.True(t, settle(t, s, taker(p, 1), settlement(t, p, end, `4`))[0].Accepted)
	requireIntegrity(t, s)
}

// TestSettledStepComesBackWhenItsWorkerDies: the answer of a settlement may be lost, and
// the claim with it.
func TestSettledStepComesBackWhenItsWorkerDies(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, chainYAML)
	create(t, s, p, 2)
	req := taker(p, 2)
	claimed, _, err := s.Claim(t.Context(), req, true)
	require.NoError(t, err)
	require.Len(t, claimed, 2)
	first := settlement(t, p, &claimed[0], `"a"`)
	answers := settle(t, s, req, first, settlement(t, p, &claimed[1], `"b"`), first)
	require.True(t, answers[0].Accepted && answers[1].Accepted)
	require.False(t, answers[2].Accepted, "the same claim twice")

	require.NoError(t, s.ReleaseLeases(t.Context(), []store.ClaimKey{answers[0].Next.Key()}))
	_, err = s.HandBack(t.Context(), []store.ClaimKey{answers[1].Next.Key()})
	require.NoError(t, err)
	expired, err := s.ExpireLeases(t.Context(), store.UpTo(10), 10)
	require.NoError(t, err)
	require.Equal(t, 1, expired.Lost)
	applyAll(t, s)
	again := claim(t, s, p, 5)
	require.Len(t, again, 2)
	for _, c := range again {
		require.Equal(t, 1, c.Step)
		want, attempt := `"a"`, 2
		if c.TaskUUID == claimed[1].TaskUUID {
			want, attempt = `"b"`, 1
		}
		require.Equal(t, want, string(c.ParentResults[0]))
		require.Equal(t, attempt, c.Attempt)
	}
	requireIntegrity(t, s)
}

// TestSettleEndsAndMovesTogether: both kinds in one transaction.
func TestSettleEndsAndMovesTogether(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, chainYAML)
	req := taker(p, 40, "gpu")
	create(t, s, p, 20)
	finished := 0
	for round := range 60 {
		claimed, _, err := s.Claim(t.Context(), taker(p, 1+round%7, "gpu"), true)
		require.NoError(t, err)
		list := make([]store.Settlement, len(claimed))
		for i := range claimed {
			list[i] = settlement(t, p, &claimed[i], `1`)
		}
		for len(list) > 0 {
			answers, done, err := s.Settle(t.Context(), req, list)
			require.NoError(t, err)
			finished += done.Finished
			var next []store.Settlement
			for _, a := range answers {
				require.True(t, a.Accepted)
				if a.Next != nil {
					next = append(next, settlement(t, p, a.Next, `1`))
				}
			}
			list = next
		}
	}
	require.Equal(t, 20, finished)
	requireIntegrity(t, s)
}

// boardText is the content of the board.
func boardText(t testing.TB, pool *pgxpool.Pool) (rows string) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), `select coalesce(string_agg(b::text, E'\n' order by task_uuid, slot), '') from tasker.board b`).Scan(&rows))
	return rows
}

// TestWhatAnActionChangesIsNotSettledOver: an operator changes the priority of a task while its step
// runs. The worker, whose claim has the old one, settles nothing; reported and taken, the next
// step waits in the lane of the new priority.
func TestWhatAnActionChangesIsNotSettledOver(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, chainYAML)
	id := create(t, s, p, 1)[0]
	other := create(t, s, p, 1)[0]
	req := taker(p, 1)
	claimed, _, err := s.Claim(t.Context(), taker(p, 2), true)
	require.NoError(t, err)
	require.Len(t, claimed, 2)
	_, err = s.Reprioritise(t.Context(), id, 50, by("operator", "urgent"))
	require.NoError(t, err)
	for i := range claimed {
		c := &claimed[i]
		answer := settle(t, s, store.ClaimRequest{Worker: req.Worker, Lease: req.Lease}, settlement(t, p, c, `1`))[0]
		require.Equal(t, c.TaskUUID == other, answer.Accepted)
		if c.TaskUUID == id {
			_, accepted := settleTaken(t, s, store.ClaimRequest{Worker: req.Worker, Lease: req.Lease}, succeed(*c, `1`))
			require.Equal(t, []bool{true}, accepted)
		}
	}
	require.Equal(t, 2, db.QueryInt(t, `select count(*) from tasker.board where step_no = 1`))
	require.True(t, db.QueryBool(t, `select (select lane from tasker.board where task_uuid = $1) < (select lane from tasker.board where task_uuid = $2)`, id, other),
		"the next step is not in the lane of the new priority")
}
