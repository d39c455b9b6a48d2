package store_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/execution"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

const pairYAML = `
name: pair
namespace_name: pairs
version: 2.0.0
on_failure: block
steps:
  - name: first
    handler: {callable: first}
    retry: {retryable: true, max_attempts: 2, backoff: fixed, backoff_base_ms: 3600000}
  - name: second
    dependencies: [first]
    handler: {callable: second}
`

func fail(c store.Claimed, retryable bool, message string) store.Report {
	return store.Report{ClaimKey: key(c), Error: json.RawMessage(fmt.Sprintf(`{"message":%q}`, message)), Retryable: retryable, RetryAfter: -1}
}

func cancel(t testing.TB, s *store.Store, id uuid.UUID, reason string) {
	t.Helper()
	taken, err := s.TakeTask(t.Context(), id)
	require.NoError(t, err)
	decided := change(t, &taken.Tasks[0], workflow.Operation{Action: workflow.ActionCancel, Reason: reason})
	decided.Actor = "operator"
	_, err = taken.Commit(t.Context(), uuid.Nil, []store.Change{decided})
	require.NoError(t, err)
}

// change runs the rules over a task.
func change(t testing.TB, task *store.TakenTask, in ...workflow.Input) store.Change {
	t.Helper()
	progress, effects, err := workflow.Advance(task.Plan.Plan, task.State, task.Progress, rules, in...)
	require.NoError(t, err)
	return store.Change{Task: task, Progress: progress, Effects: effects, Actor: "test"}
}

func read(t testing.TB, s *store.Store, id uuid.UUID) *store.Task {
	t.Helper()
	task, err := s.Task(t.Context(), id)
	require.NoError(t, err)
	return task
}

func TestTaskIsReadAsItWasCreated(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, pairYAML)
	full := newTask(p)
	parent := uuid.Must(uuid.NewV7())
	full.Context, full.Priority, full.Tags = json.RawMessage(`{"snow":"☃","n":1.50}`), -7, []string{"a b", "c,d", `e"f\`}
	full.ParentCorrelationID, full.SourceSystem, full.Reason, full.StartIn = &parent, "shop", "because", time.Hour
	bare := newTask(p)
	bare.Context, bare.Initiator = json.RawMessage(`null`), ""
	_, err := s.CreateTasks(t.Context(), []store.NewTask{full, bare})
	require.NoError(t, err)

	got := read(t, s, full.UUID)
	require.Equal(t, workflow.TaskPending, got.State)
	require.Equal(t, p.ID, got.Plan.ID)
	require.JSONEq(t, string(full.Context), string(got.Context))
	require.Equal(t, full.Tags, got.Tags)
	require.Equal(t, -7, got.Priority)
	require.Equal(t, full.CorrelationID, got.CorrelationID)
	require.Equal(t, &parent, got.ParentCorrelationID)
	require.Equal(t, []string{"test", "shop", "because"}, []string{*got.Initiator, *got.SourceSystem, *got.Reason})
	require.NotNil(t, got.StartAt)
	require.Equal(t, time.Hour, got.StartAt.Sub(got.RequestedAt))
	require.Nil(t, got.CompletedAt)
	require.Nil(t, got.FinalReason)
	first := got.Steps[0]
	require.Equal(t, workflow.StepPending, first.State, "its start is delayed")
	require.False(t, first.Ready)
	require.Equal(t, store.StepUUID(full.UUID, 0), first.UUID)
	require.Equal(t, db.QueryString(t, `select tasker.step_uuid($1, 0)::text`, full.UUID), first.UUID.String())

	got = read(t, s, bare.UUID)
	require.JSONEq(t, `null`, string(got.Context))
	require.Nil(t, got.Initiator)
	require.Nil(t, got.SourceSystem)
	require.Nil(t, got.Tags)
	require.Nil(t, got.StartAt)
	require.Equal(t, execution.Counts{Total: 2, Pending: 2, Ready: 1}, got.Counts())

	_, err = s.Task(t.Context(), uuid.Must(uuid.NewV7()))
	require.ErrorIs(t, err, store.ErrNotFound)
}

func TestStepIsSeenOnItsWay(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, pairYAML)
	id := create(t, s, p, 1)[0]
	step := func() store.Step { return read(t, s, id).Steps[0] }
	enqueued := step()
	require.Equal(t, workflow.StepEnqueued, enqueued.State)
	require.Nil(t, enqueued.LastAttemptAt)

	c := claim(t, s, p, 1)[0]
	require.Equal(t, workflow.StepInProgress, step().State)
	require.Equal(t, 1, step().Attempts)
	require.True(t, c.ClaimedAt.Equal(*step().LastAttemptAt))
	require.Equal(t, enqueued.CreatedAt, step().CreatedAt)

	report(t, s, fail(c, true, "one"))
	require.Equal(t, workflow.StepEnqueuedAsErrorForOrchestration, step().State)
	require.JSONEq(t, `{"message":"one"}`, string(step().Error), "a reported error is shown before it is applied")
	applyAll(t, s)
	waiting := step()
	require.Equal(t, workflow.StepWaitingForRetry, waiting.State)
	require.NotNil(t, waiting.NextRetryAt)
	require.NotNil(t, waiting.LastFailureAt)
	require.Equal(t, enqueued.CreatedAt, waiting.CreatedAt, "it was first enqueued before its first attempt")
	require.JSONEq(t, `{"message":"one"}`, string(waiting.Error))

	db.Exec(t, `update tasker.board set due_at = now() - interval '1 s' where state = 1`)
	promoted, err := s.PromoteDue(t.Context(), store.UpTo(10))
	require.NoError(t, err)
	require.Equal(t, 1, promoted.Steps)
	require.Equal(t, workflow.StepEnqueued, step().State)
	require.JSONEq(t, `{"message":"one"}`, string(step().Error))
	report(t, s, succeed(claim(t, s, p, 1)[0], `"done"`))
	require.Equal(t, workflow.StepEnqueuedForOrchestration, step().State)
	applyAll(t, s)
	done := step()
	require.Equal(t, workflow.StepComplete, done.State)
	require.JSONEq(t, `"done"`, string(done.Result))
	require.NotNil(t, done.CompletedAt)
	require.Equal(t, 2, done.Attempts)
	second := read(t, s, id).Steps[1]
	require.Equal(t, 1, second.ParentsDone)
	require.True(t, second.CreatedAt.After(done.CreatedAt), "a later step is created later")

	results, err := s.StepResults(t.Context(), id, []int{0, 1, 77})
	require.NoError(t, err)
	require.Len(t, results, 1)
	require.JSONEq(t, `"done"`, string(results[0]))
	results, err = s.StepResults(t.Context(), id, nil)
	require.NoError(t, err)
	require.Empty(t, results)
}

func TestCancelKeepsTheErrorOfTheLastFailure(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, pairYAML)
	id := create(t, s, p, 1)[0]
	report(t, s, fail(claim(t, s, p, 1)[0], true, "one"))
	applyAll(t, s)
	db.Exec(t, `update tasker.board set due_at = now() - interval '1 s' where state = 1`)
	_, err := s.PromoteDue(t.Context(), store.UpTo(10))
	require.NoError(t, err)
	before := read(t, s, id).Steps[0]
	claim(t, s, p, 1)
	cancel(t, s, id, "enough")

	task := read(t, s, id)
	require.Equal(t, workflow.TaskCancelled, task.State)
	require.Equal(t, "enough", *task.FinalReason)
	require.Equal(t, execution.Counts{Total: 2, Cancelled: 2}, task.Counts())
	step := task.Steps[0]
	require.JSONEq(t, `{"message":"one"}`, string(step.Error))
	require.Equal(t, before.LastFailureAt, step.LastFailureAt)
	require.Nil(t, step.CompletedAt)
	noViolations(t, s)
}

// everyState makes one task in each state a stored task can have here.
func everyState(t *testing.T, s *store.Store, db *pgtest.DB, p *store.Plan) map[workflow.TaskState]uuid.UUID {
	ids := map[workflow.TaskState]uuid.UUID{}
	one := func(state workflow.TaskState, reports ...func(store.Claimed) store.Report) {
		ids[state] = create(t, s, p, 1)[0]
		for _, r := range reports {
			report(t, s, r(claim(t, s, p, 1)[0]))
			applyAll(t, s)
		}
	}
	good := func(c store.Claimed) store.Report { return succeed(c, `1`) }
	again := func(c store.Claimed) store.Report { return fail(c, true, "again") }
	never := func(c store.Claimed) store.Report { return fail(c, false, "never") }
	one(workflow.TaskWaitingForRetry, again)
	one(workflow.TaskBlockedByFailures, never)
	one(workflow.TaskComplete, good, good)
	one(workflow.TaskCancelled)
	cancel(t, s, ids[workflow.TaskCancelled], "")
	one(workflow.TaskStepsInProcess, good)
	failing := plan(t, s, diamondYAML)
	ids[workflow.TaskError] = create(t, s, failing, 1)[0]
	report(t, s, never(claim(t, s, failing, 1)[0]))
	applyAll(t, s)
	one(workflow.TaskPending)
	for state, id := range ids {
		require.Equal(t, state, read(t, s, id).State, "the task made to be %s", state)
	}
	require.Equal(t, len(ids), db.QueryInt(t, `select count(*) from tasker.tasks`))
	return ids
}

func TestTasksAreFilteredByEveryState(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	ids := everyState(t, s, db, plan(t, s, pairYAML))
	for _, state := range workflow.TaskStates() {
		page, err := s.Tasks(t.Context(), store.TaskFilter{States: []workflow.TaskState{state}, Limit: 10})
		require.NoError(t, err)
		id, made := ids[state]
		if !made {
			require.Empty(t, page.Tasks, state)
			require.Zero(t, page.Total, state)
			continue
		}
		require.Equal(t, 1, page.Total, state)
		require.Len(t, page.Tasks, 1, state)
		require.Equal(t, id, page.Tasks[0].UUID)
		require.Equal(t, state, page.Tasks[0].State)
		require.Equal(t, db.QueryString(t, `select state from tasker.v_tasks where task_uuid = $1`, id), state.String())
		for _, step := range page.Tasks[0].Steps {
			require.Nil(t, step.Result, "a list has no results")
		}
	}
	ends, err := s.TaskEnds(t.Context(), []uuid.UUID{ids[workflow.TaskComplete], ids[workflow.TaskError],
		ids[workflow.TaskCancelled], ids[workflow.TaskPending], uuid.Must(uuid.NewV7())})
	require.NoError(t, err)
	require.Equal(t, map[uuid.UUID]workflow.TaskState{ids[workflow.TaskComplete]: workflow.TaskComplete,
		ids[workflow.TaskError]: workflow.TaskError, ids[workflow.TaskCancelled]: workflow.TaskCancelled}, ends)
	ends, err = s.TaskEnds(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, ends)
	for state, id := range ids {
		watched, err := s.Watch(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, !state.Terminal(), watched, state)
	}
	watched, err := s.Watch(t.Context(), uuid.Must(uuid.NewV7()))
	require.NoError(t, err)
	require.False(t, watched)
	noViolations(t, s)
}

func TestTasksPagesNewestFirst(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	pairs, diamonds := plan(t, s, pairYAML), plan(t, s, diamondYAML)
	var newest []uuid.UUID
	for i := range 7 {
		task := newTask(pairs)
		task.SourceSystem = []string{"shop", "bank"}[i%2]
		task.Initiator = []string{"ann", "bob"}[i/4]
		_, err := s.CreateTasks(t.Context(), []store.NewTask{task})
		require.NoError(t, err)
		newest = append([]uuid.UUID{task.UUID}, newest...)
	}
	other := create(t, s, diamonds, 1)[0]
	list := func(f store.TaskFilter) (ids []uuid.UUID, total int) {
		page, err := s.Tasks(t.Context(), f)
		require.NoError(t, err)
		require.False(t, page.Estimated)
		for _, task := range page.Tasks {
			ids = append(ids, task.UUID)
		}
		return ids, page.Total
	}
	ids, total := list(store.TaskFilter{Limit: 100})
	require.Equal(t, append([]uuid.UUID{other}, newest...), ids)
	require.Equal(t, 8, total)
	var paged []uuid.UUID
	for offset := 0; offset < 9; offset += 3 {
		ids, total := list(store.TaskFilter{Namespace: "pairs", Limit: 3, Offset: offset})
		require.Equal(t, 7, total, "the count does not depend on the page")
		paged = append(paged, ids...)
	}
	require.Equal(t, newest, paged)
	for _, c := range []struct {
		name   string
		filter store.TaskFilter
		want   int
	}{
		{"name", store.TaskFilter{Name: "pair"}, 7},
		{"name of another namespace", store.TaskFilter{Namespace: "shapes", Name: "pair"}, 0},
		{"unknown namespace", store.TaskFilter{Namespace: "nowhere"}, 0},
		{"source", store.TaskFilter{SourceSystem: "shop"}, 4},
		{"initiator", store.TaskFilter{Initiator: "bob"}, 3},
		{"both", store.TaskFilter{Initiator: "bob", SourceSystem: "shop"}, 2},
		{"all of them", store.TaskFilter{Namespace: "pairs", Name: "pair", States: []workflow.TaskState{workflow.TaskPending}, Initiator: "ann", SourceSystem: "bank"}, 2},
		{"not SQL", store.TaskFilter{Initiator: `' or true --`}, 0},
	} {
		c.filter.Limit = 100
		ids, total := list(c.filter)
		require.Len(t, ids, c.want, c.name)
		require.Equal(t, c.want, total, c.name)
	}
	ids, total = list(store.TaskFilter{Limit: 10, Offset: 100})
	require.Empty(t, ids)
	require.Equal(t, 8, total)
}

func TestCountOfAListHasABound(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, pairYAML)
	insert := func(from, to int) {
		db.Exec(t, `with t as (insert into tasker.tasks (task_uuid, plan_id, queue, priority, context)
				select ('01900000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, $1, $2, 0, '{}'
				from generate_series($4::int, $5::int) i returning task_uuid)
			insert into tasker.step_attempts (task_uuid, step_no, token, attempt, outcome, task_state, task_progress)
			select task_uuid, -1, 0, 0, 5, 11, $3 from t`, p.ID, p.Queue, workflow.NewProgress(p.Plan).Encode(), from, to)
	}
	insert(1, store.ExactCount)
	page, err := s.Tasks(t.Context(), store.TaskFilter{States: []workflow.TaskState{workflow.TaskCancelled}, Limit: 2})
	require.NoError(t, err)
	require.Equal(t, store.ExactCount, page.Total)
	require.False(t, page.Estimated, "exactly as many as are counted")
	require.Len(t, page.Tasks, 2)
	insert(store.ExactCount+1, store.ExactCount+1)
	page, err = s.Tasks(t.Context(), store.TaskFilter{Limit: 1})
	require.NoError(t, err)
	require.GreaterOrEqual(t, page.Total, store.ExactCount)
	require.True(t, page.Estimated)
}

func TestTimelineHasEveryAttemptInOrder(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, pairYAML)
	id := create(t, s, p, 1)[0]
	report(t, s, fail(claim(t, s, p, 1)[0], true, "one"))
	applyAll(t, s)
	db.Exec(t, `update tasker.board set due_at = now() - interval '1 s' where state = 1`)
	_, err := s.PromoteDue(t.Context(), store.UpTo(10))
	require.NoError(t, err)
	report(t, s, succeed(claim(t, s, p, 1)[0], `1`))
	applyAll(t, s)
	claim(t, s, p, 1)
	tl, err := s.Timeline(t.Context(), id)
	require.NoError(t, err)
	require.Less(t, tl.Completed, 0.0, "it has not ended")
	require.Len(t, tl.Attempts, 2, "the running attempt is not in it")
	cancel(t, s, id, "enough")

	tl, err = s.Timeline(t.Context(), id)
	require.NoError(t, err)
	require.Positive(t, tl.Completed)
	var outcomes []string
	at := 0.0
	for _, a := range tl.Attempts {
		outcomes = append(outcomes, fmt.Sprintf("%d.%d %s", a.Step, a.Attempt, a.Outcome))
		times := []float64{at, a.Enqueued, a.Claimed, a.Reported, a.Applied}
		if a.Outcome == "cancelled" {
			require.Less(t, a.Reported, 0.0, "it never was reported")
			times = []float64{at, a.Enqueued, a.Claimed, a.Applied}
		}
		require.True(t, slices.IsSorted(times), "%v", times)
		at = a.Claimed
	}
	require.Equal(t, []string{"0.1 failed", "0.2 success", "1.1 cancelled"}, outcomes)
	var changes []string
	for _, e := range tl.Events {
		changes = append(changes, fmt.Sprintf("%s %s %s %s", e.From, e.To, e.Actor, e.Reason))
	}
	require.Equal(t, []string{"pending steps_in_process  ", "steps_in_process waiting_for_retry test ", "waiting_for_retry steps_in_process test ",
		"steps_in_process cancelled operator enough"}, changes)

	_, err = s.Timeline(t.Context(), uuid.Must(uuid.NewV7()))
	require.ErrorIs(t, err, store.ErrNotFound)
}
