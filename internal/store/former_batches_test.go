package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// splittingYAML has the numbers 0 to 2; its batches follow.
const splittingYAML = `
name: splitting
namespace_name: flows
version: 1.0.0
steps:
  - {name: split, type: batchable, handler: {callable: split}}
  - name: part
    type: batch_worker
    dependencies: [split]
    handler: {callable: part}
    retry: {max_attempts: 2, backoff: none}
    batch_config: {batch_size: 10, parallelism: 4, cursor_field: id, worker_template: part, failure_strategy: isolate}
    publishes_events: [{name: part.done, schema: {}}]
  - {name: sum, type: deferred_convergence, dependencies: [part], handler: {callable: sum}}
`

const (
	split     = 0
	part      = 1
	firstPart = 3
)

// parts is the result of a step that makes batches of a worker, one for each id.
func parts(worker string, ids ...string) string {
	cursors := make([]string, len(ids))
	for i, id := range ids {
		cursors[i] = fmt.Sprintf(`{"batch_id":%q,"start_cursor":%d,"end_cursor":%d,"batch_size":1}`, id, i, i+1)
	}
	return fmt.Sprintf(`{"batch_processing_outcome":{"type":"create_batches","worker_template_name":%q,"worker_count":%d,"total_items":%d,"cursor_configs":[%s]}}`,
		worker, len(ids), len(ids), strings.Join(cursors, ","))
}

// splitting is a task that makes batches, again and again.
type splitting struct {
	testing.TB
	store *store.Store
	db    *pgtest.DB
	plan  *store.Plan
	task  uuid.UUID
}

func newSplitting(t testing.TB) *splitting {
	t.Helper()
	return newSplittingLike(t, splittingYAML)
}

func newSplittingLike(t testing.TB, yaml string) *splitting {
	t.Helper()
	s, db := open(t)
	p := plan(t, s, yaml)
	return &splitting{TB: t, store: s, db: db, plan: p, task: create(t, s, p, 1)[0]}
}

// makes lets the first step create batches, and claims those on the board, by number.
func (s *splitting) makes(ids ...string) map[int]store.Claimed {
	s.Helper()
	claimed := claim(s, s.store, s.plan, 100)
	require.Len(s, claimed, 1)
	require.Equal(s, split, claimed[0].Step)
	s.reports(succeed(claimed[0], parts("part", ids...)))
	return s.claims()
}

func (s *splitting) claims() map[int]store.Claimed {
	s.Helper()
	byNumber := map[int]store.Claimed{}
	for _, c := range claim(s, s.store, s.plan, 100) {
		byNumber[c.Step] = c
	}
	return byNumber
}

// reports reports and applies; all reports must be accepted.
func (s *splitting) reports(list ...store.Report) {
	s.Helper()
	require.NotContains(s, report(s, s.store, list...), false)
	applyAll(s, s.store)
	noViolations(s, s.store)
}

func (s *splitting) act(kind string, step int, in workflow.Input) {
	s.Helper()
	act(s, s.store, s.task, kind, step, onSteps, in)
	noViolations(s, s.store)
}

func (s *splitting) again() {
	s.Helper()
	s.act(workflow.ActionRunAgain, split, workflow.Operation{Action: workflow.ActionRunAgain, Step: split})
}

// againBesideReports applies reports together with an action that runs the step again.
func (s *splitting) againBesideReports() {
	s.Helper()
	taken, err := s.store.TakeTasks(s.Context(), []uuid.UUID{s.task}, onSteps)
	require.NoError(s, err)
	x := &taken.Tasks[0]
	both := change(s, x, append(inputsOf(x), workflow.Operation{Action: workflow.ActionRunAgain, Step: split})...)
	both.Action = &store.Performed{Kind: workflow.ActionRunAgain, Step: split, Reason: "why"}
	_, err = taken.Commit(s.Context(), uuid.Nil, []store.Change{both})
	require.NoError(s, err)
	noViolations(s, s.store)
}

// shown is the batch that has a number now.
func (s *splitting) shown(no int) *store.Step {
	s.Helper()
	task := read(s, s.store, s.task)
	for i := range task.Steps {
		if task.Steps[i].No == no {
			return &task.Steps[i]
		}
	}
	s.Fatalf("there is no step %d", no)
	return nil
}

func (s *splitting) results() string {
	s.Helper()
	list, err := s.store.BatchResults(s.Context(), s.task, part, -1, 100)
	require.NoError(s, err)
	var texts []string
	for _, r := range list {
		texts = append(texts, fmt.Sprintf("%d %s %s %d", r.Step, r.Name, r.Result, r.Isolated))
	}
	return strings.Join(texts, ", ")
}

func (s *splitting) isolated() int {
	s.Helper()
	list, err := s.store.Isolated(s.Context(), s.task, store.IsolatedFilter{}, 0, 0, 100)
	require.NoError(s, err)
	return len(list)
}

// firstRun makes three batches: the first saves a checkpoint, isolates an item and
// succeeds, the second fails for good, the third succeeds.
func (s *splitting) firstRun() map[int]store.Claimed {
	s.Helper()
	run := s.makes("a", "b", "c")
	saveOne(s, s.store, run[3], `77`)
	saveOne(s, s.store, run[4], `78`)
	isolating := succeed(run[3], `"A"`)
	isolating.Isolated = json.RawMessage(`[{"item":1,"error":{"message":"m","error_type":"t","retryable":true}}]`)
	s.reports(isolating, fail(run[4], false, "broken"), succeed(run[5], `"C"`))
	require.Equal(s, `3 part_a "A" 1, 4 part_b  0, 5 part_c "C" 0`, s.results())
	s.reports(succeed(s.claims()[2], `3`))
	require.Equal(s, workflow.TaskComplete, read(s, s.store, s.task).State)
	require.Equal(s, 1, s.isolated())
	return run
}

// TestABatchShowsNothingOfThoseThatHadItsNumber: not their results, errors, attempts,
// items and checkpoints, and their history keeps naming them.
func TestABatchShowsNothingOfThoseThatHadItsNumber(t *testing.T) {
	t.Parallel()
	s := newSplitting(t)
	s.firstRun()
	before := s.shown(3).UUID
	require.Equal(t, store.StepUUID(s.task, 3), before)

	s.again()
	require.Empty(t, read(t, s.store, s.task).Batches)
	require.Zero(t, s.isolated(), "they are processed again")
	require.Empty(t, s.results())
	require.Zero(t, s.db.QueryInt(t, `select count(*) from tasker.v_isolated_items`))

	run := s.makes("x", "y")
	require.Len(t, run, 2)
	for no, name := range map[int]string{3: "part_x", 4: "part_y"} {
		shown := s.shown(no)
		require.Equal(t, store.BatchUUID(s.task, no, 1), shown.UUID)
		require.NotEqual(t, store.StepUUID(s.task, no), shown.UUID, "it is another step")
		c := run[no]
		require.Equal(t, shown.UUID, c.StepUUID(), "its worker has the same")
		require.Equal(t, name, shown.Name)
		require.Equal(t, workflow.StepInProgress, shown.State)
		require.Equal(t, 1, shown.Attempts)
		require.Nil(t, shown.Result)
		require.Nil(t, shown.Error)
		require.Nil(t, shown.LastFailureAt)
		require.Nil(t, shown.CompletedAt)
		require.Nil(t, shown.Checkpoint)
		require.Nil(t, run[no].Checkpoint)
		attempts, err := s.store.Attempts(t.Context(), s.task, no)
		require.NoError(t, err)
		require.Empty(t, attempts)
	}
	require.Equal(t, "3 part_x  0, 4 part_y  0", s.results())
	require.Zero(t, s.isolated())
	require.Equal(t, 2, s.db.QueryInt(t, `select count(*) from tasker.v_workflow_steps where task_uuid = $1 and step_no >= 3 and checkpoint is null
		and step_uuid = tasker.step_uuid($1, step_no, 1)`, s.task))

	s.reports(fail(run[3], false, "no"), succeed(run[4], `"Y"`))
	require.Equal(t, `3 part_x  0, 4 part_y "Y" 0`, s.results(), "the result of the first run is none of the second")
	s.reports(succeed(s.claims()[2], `1`))
	shown := s.shown(3)
	require.JSONEq(t, `{"message":"no"}`, string(shown.Error))
	require.Nil(t, shown.Result)
	attempts, err := s.store.Attempts(t.Context(), s.task, 3)
	require.NoError(t, err)
	require.Len(t, attempts, 1)

	tl, err := s.store.Timeline(t.Context(), s.task)
	require.NoError(t, err)
	named := map[string]string{}
	for _, a := range tl.Attempts {
		if a.Step >= firstPart {
			named[a.Batch] = fmt.Sprint(a.Step, " ", a.Run, " ", a.Outcome)
		}
	}
	require.Equal(t, map[string]string{"part_a": "3 0 success", "part_b": "4 0 error", "part_c": "5 0 success", "part_x": "3 1 error", "part_y": "4 1 success"}, named)
	require.Equal(t, "part_a 0 success, part_c 0 success, part_y 1 success", s.db.QueryString(t,
		`select string_agg(concat_ws(' ', step_name, run, 'success'), ', ' order by position) from tasker.domain_events where name = 'part.done' and outcome = 1`))
	require.Equal(t, 5, s.db.QueryInt(t, `select count(distinct (step_uuid)) from tasker.v_step_result_audit where task_uuid = $1 and step_no >= 3`, s.task))
	require.Equal(t, 5, s.db.QueryInt(t, `select count(distinct (step_uuid)) from tasker.v_step_transitions where task_uuid = $1 and step_no >= 3`, s.task))
	require.Equal(t, 3, s.db.QueryInt(t, `select count(distinct (message->'metadata'->>'step_uuid')) from tasker.v_domain_events where name = 'part.done'`))
	page, err := s.store.Events(t.Context(), store.EventFilter{Task: s.task, Pattern: "part.done", Limit: 10})
	require.NoError(t, err)
	last := page.Events[len(page.Events)-1]
	require.Equal(t, []any{"part_y", 4, 1}, []any{last.StepName, last.Step, last.Run})
}

// TestABatchGoesOnFromNobodysCheckpoint: a batch that failed before its first claim is
// reset, and the earlier batch with its number had a checkpoint.
func TestABatchGoesOnFromNobodysCheckpoint(t *testing.T) {
	t.Parallel()
	s := newSplitting(t)
	s.firstRun()
	s.again()
	claimed := claim(t, s.store, s.plan, 100)
	s.reports(succeed(claimed[0], parts("part", "x", "y")))
	act(t, s.store, s.task, workflow.ActionFail, -1, store.Taking{}, workflow.Operation{Action: workflow.ActionFail, Reason: "stale"})
	for no := 3; no < 5; no++ {
		s.act(workflow.ActionReset, no, workflow.Operation{Action: workflow.ActionReset, Step: no})
	}
	for no, c := range s.claims() {
		require.Nil(t, c.Checkpoint, no)
	}
}

// TestADeadLetterTellsOfTheBatchThatFailed, not of the earlier one with its number.
func TestADeadLetterTellsOfTheBatchThatFailed(t *testing.T) {
	t.Parallel()
	s := newSplittingLike(t, strings.Replace(splittingYAML, "max_attempts: 2", "max_attempts: 1", 1))
	s.firstRun()
	s.again()
	require.Len(t, s.makes("v", "w"), 2) // both lose their workers
	s.db.Exec(t, `update tasker.board set lease_until = now() - interval '1 s' where lease_until is not null`)
	_, err := s.store.ExpireLeases(t.Context(), store.UpTo(10), 10)
	require.NoError(t, err)
	applyAll(t, s.store)
	letter, err := s.store.DeadLetterOfTask(t.Context(), s.task)
	require.NoError(t, err)
	require.Contains(t, string(letter.Snapshot), `"part_w"`)
	require.NotContains(t, string(letter.Snapshot), "broken", "part_b had the number of part_w, and failed of that")
}

// TestALateReportOfAFormerBatchIsRefused: its number has a new batch, which runs, and the
// late report changes nothing.
func TestALateReportOfAFormerBatchIsRefused(t *testing.T) {
	t.Parallel()
	s := newSplitting(t)
	late := s.makes("a", "b")[3]
	saveOne(t, s.store, late, `1`)
	s.again()
	fresh := s.makes("x", "y")[3]
	require.Equal(t, late.Key().Slot, fresh.Key().Slot)
	require.Greater(t, fresh.Token, fresh.Batch.Since)
	require.Less(t, late.Token, fresh.Batch.Since)

	r := succeed(late, `"late"`)
	r.Isolated = json.RawMessage(`[{"item":1,"error":{}}]`)
	require.Equal(t, []bool{false}, report(t, s.store, r))
	require.Equal(t, []bool{false}, report(t, s.store, fail(late, false, "late")))
	require.False(t, save(t, s.store, point(late, `9`, 9))[0].Saved)
	queues, err := s.store.HandBack(t.Context(), []store.ClaimKey{late.Key()})
	require.NoError(t, err)
	require.Empty(t, queues)
	require.NoError(t, s.store.ReleaseLeases(t.Context(), []store.ClaimKey{late.Key()}))
	require.Equal(t, 1, s.db.QueryInt(t, `select count(*) from tasker.board where token = $1 and lease_until > now() and checkpoint is null and outcome is null`, fresh.Token))
	require.Zero(t, s.db.QueryInt(t, `select count(*) from tasker.batches where isolated is not null`))
	s.reports(succeed(fresh, `"X"`))
	require.Equal(t, `3 part_x "X" 0, 4 part_y  0`, s.results())
}

// TestTheLargestBatchesRunAnyNumberOfTimes: a run reuses the numbers of the run before
// it, so the task's progress does not grow with the runs.
func TestTheLargestBatchesRunAnyNumberOfTimes(t *testing.T) {
	t.Parallel()
	s := newSplitting(t)
	most := 1_000
	if pgtest.FullSize() {
		most = 10_000 // room for three runs of them
	}
	ids := make([]string, most)
	for i := range ids {
		ids[i] = fmt.Sprintf("%05d", i)
	}
	for run, count := range []int{most, most / 2, most, most, 3, most} {
		began := time.Now()
		batches := s.makes(ids[:count]...)
		require.Len(t, batches, min(count, 4), "as many as its parallelism")
		task := read(t, s.store, s.task)
		require.Len(t, task.Progress.Steps, firstPart+most, "run %d", run)
		require.Len(t, task.Batches, count)
		require.Equal(t, firstPart, task.Progress.Groups[0].First)
		require.Len(t, task.Progress.Encode(), 2+6*(firstPart+most)+10)
		require.Equal(t, run, batches[firstPart].Batch.Run)
		s.again()
		t.Logf("run %d with %d batches: %v", run, count, time.Since(began))
	}
	require.Equal(t, 4*most+most/2+3, s.db.QueryInt(t, `select count(*) from tasker.former_batches`))
	require.Zero(t, s.db.QueryInt(t, `select count(*) from tasker.batches`))
}

// TestBatchesLeftByTheVersionBefore: it dropped them in place and gave new ones numbers
// behind all others. Its statements still work, and its leftovers do no harm.
func TestBatchesLeftByTheVersionBefore(t *testing.T) {
	t.Parallel()
	s := newSplitting(t)
	appends := rules
	before := func(in ...workflow.Input) { // decides as it did
		taken, err := s.store.TakeTasks(t.Context(), []uuid.UUID{s.task}, onSteps)
		require.NoError(t, err)
		x := &taken.Tasks[0]
		appends.BatchesAt = func(int, int) (int, error) { return len(x.Progress.Steps), nil }
		for _, r := range x.Reported {
			in = append(in, workflow.Reported{Step: r.Step, Attempt: r.Attempt, Success: true, Result: r.Result})
		}
		progress, effects, err := workflow.Advance(x.Plan.Plan, x.State, x.Progress, appends, in...)
		require.NoError(t, err)
		c := store.Change{Task: x, Progress: progress, Effects: effects, Actor: "test"}
		if again, acts := in[0].(workflow.Operation); acts {
			c.Action = &store.Performed{Kind: workflow.ActionRunAgain, Step: again.Step, Reason: "why"}
		}
		_, err = taken.Commit(t.Context(), uuid.Nil, []store.Change{c})
		require.NoError(t, err)
		s.db.Exec(t, `with gone as (delete from tasker.former_batches returning *)
			insert into tasker.batches (task_uuid, step_no, template_no, first_no, name, cursor, no_op, run, since, created_at, isolated)
			select task_uuid, step_no, template_no, first_no, name, cursor, no_op, run, since, created_at, isolated from gone`)
		noViolations(t, s.store)
	}
	makes := func(ids ...string) {
		c := claim(t, s.store, s.plan, 1)[0]
		require.Equal(t, []bool{true}, report(t, s.store, succeed(c, parts("part", ids...))))
		before()
	}
	makes("a", "b") // 3 and 4
	before(workflow.Operation{Action: workflow.ActionRunAgain, Step: split})
	makes("c", "d", "e") // 5 to 7
	before(workflow.Operation{Action: workflow.ActionRunAgain, Step: split})
	s.db.Exec(t, `update tasker.batches set since = 0`) // from before the migration
	require.Len(t, read(t, s.store, s.task).Progress.Steps, 8)
	noViolations(t, s.store)

	run := s.makes("x", "y", "z", "u") // 3 to 6
	require.Equal(t, []string{"part_x", "part_u"}, []string{run[3].Batch.Name, run[6].Batch.Name})
	require.Equal(t, 4, s.db.QueryInt(t, `select count(*) from tasker.batches`), "the others have gone")
	require.Equal(t, 5, s.db.QueryInt(t, `select count(*) from tasker.former_batches`))
	require.Equal(t, "3 part_x  0, 4 part_y  0, 5 part_z  0, 6 part_u  0", s.results())
	require.Equal(t, store.BatchUUID(s.task, 6, 1), s.shown(6).UUID)

	s.db.Exec(t, `insert into tasker.batches (task_uuid, step_no, template_no, first_no, name, cursor, no_op) select $1, 100, 1, 100, 'part_old', '{}', false`, s.task)
	require.Equal(t, 1, s.db.QueryInt(t, `select count(*) from tasker.batches where step_no = 100 and run = 0 and since > $1`, run[3].Batch.Since))
}

// TestARunThatMakesNoBatches has none, also where the one before had some.
func TestARunThatMakesNoBatches(t *testing.T) {
	t.Parallel()
	s := newSplitting(t)
	s.firstRun()
	s.again()
	claimed := claim(t, s.store, s.plan, 10)
	s.reports(succeed(claimed[0], `{"batch_processing_outcome":{"type":"no_batches"}}`))
	require.Equal(t, workflow.TaskComplete, read(t, s.store, s.task).State)
	require.Empty(t, s.results())
	require.Zero(t, s.isolated())
}

// TestBatchesThatAnActionForgetsBesideTheReportOfTheirMaker were never there, and
// the records replay.
func TestBatchesThatAnActionForgetsBesideTheReportOfTheirMaker(t *testing.T) {
	t.Parallel()
	s := newSplitting(t)
	c := claim(t, s.store, s.plan, 1)[0]
	require.Equal(t, []bool{true}, report(t, s.store, succeed(c, parts("part", "a", "b"))))
	s.againBesideReports()
	require.Zero(t, s.db.QueryInt(t, `select count(*) from tasker.batches`))
	require.Equal(t, "3 4", s.db.QueryString(t, `select string_agg(step_no::text, ' ' order by step_no) from tasker.former_batches`))

	run := s.makes("x")
	require.Equal(t, "part_x", run[3].Batch.Name)
	require.Equal(t, 1, run[3].Batch.Run)
}

// TestAReportBesideAnActionThatForgetsItsBatch is published under its name.
func TestAReportBesideAnActionThatForgetsItsBatch(t *testing.T) {
	t.Parallel()
	s := newSplitting(t)
	run := s.makes("a", "b")
	require.Equal(t, []bool{true}, report(t, s.store, succeed(run[4], `"B"`)))
	s.againBesideReports()
	require.Equal(t, "part_b", s.db.QueryString(t, `select string_agg(step_name, ' ') from tasker.domain_events where name = 'part.done'`))
}

// TestRecordsOfBatchesAreComplete: otherwise the check reports it.
func TestRecordsOfBatchesAreComplete(t *testing.T) {
	t.Parallel()
	s := newSplitting(t)
	s.firstRun()
	s.again()
	problem := func() string {
		t.Helper()
		found, err := s.store.CheckTask(t.Context(), rules, s.task)
		require.NoError(t, err)
		require.Len(t, found.Violations, 1)
		return found.Violations[0].Problem
	}
	s.db.Exec(t, `delete from tasker.former_batches where step_no = 5`)
	require.Contains(t, problem(), "2 batches of step 1 are on record, 3 by the ledger")
	s.db.Exec(t, `delete from tasker.former_batches`)
	require.Contains(t, problem(), "the 3 batches of step 1 are not on record")
}

// TestFormerBatchesGoWithTheirTask: when retention deletes it.
func TestFormerBatchesGoWithTheirTask(t *testing.T) {
	t.Parallel()
	s := newSplitting(t)
	s.firstRun()
	s.again()
	require.Equal(t, 3, s.db.QueryInt(t, `select count(*) from tasker.former_batches`))
	cancel(t, s.store, s.task, "enough")
	_, err := s.store.Retain(t.Context(), store.RetentionLimits{TTL: time.Nanosecond, Batch: 100}, false)
	require.NoError(t, err)
	require.Zero(t, s.db.QueryInt(t, `select count(*) from tasker.tasks`))
	require.Zero(t, s.db.QueryInt(t, `select count(*) from tasker.former_batches`))
}

// TestRecordsOfSplittingTasksReplay: for any actions of workers and operators on a task
// with batches the replay of its records reaches its state.
func TestRecordsOfSplittingTasksReplay(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, strings.Replace(strings.Replace(splittingYAML, "name: splitting", "name: twice", 1), "  - {name: sum", `  - {name: other, type: batchable, handler: {callable: split}}
  - name: piece
    type: batch_worker
    dependencies: [other]
    handler: {callable: part}
    batch_config: {batch_size: 10, parallelism: 2, cursor_field: id, worker_template: piece, failure_strategy: fail_fast}
  - {name: sum`, 1))
	rapid.Check(t, func(rt *rapid.T) {
		// Deleted, not truncated: that makes every partition's files anew.
		db.Exec(t, `with b as (delete from tasker.board), a as (delete from tasker.step_attempts), e as (delete from tasker.task_events),
			c as (delete from tasker.batches), f as (delete from tasker.former_batches), d as (delete from tasker.dlq_entries)
			delete from tasker.tasks`)
		o := &operated{t: t, ctx: t.Context(), store: s, db: db, plan: p, task: create(t, s, p, 1)[0]}
		rt.Repeat(map[string]func(*rapid.T){"": o.sound, "report": o.report, "report again": o.report, "apply": o.apply, "apply again": o.apply, "act": o.act,
			"due": func(*rapid.T) { dueNow(t, s, db) }})
	})
}
