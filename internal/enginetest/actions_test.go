package enginetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// operated has two branches: fragile, which fails permanently while broken is set, and
// first → slow; last needs both.
const operated = `
name: operated
namespace_name: test
version: 1.0.0
steps:
  - {name: fragile, handler: {callable: op.fragile}}
  - {name: first, handler: {callable: op.ok}}
  - {name: slow, dependencies: [first], handler: {callable: op.slow}}
  - {name: last, dependencies: [fragile, slow], handler: {callable: op.echo}}
`

// operators controls the handlers of operated.
type operators struct {
	broken  atomic.Bool
	release chan struct{} // closed: slow ends
	running chan struct{} // receives when slow has begun
	ended   chan error    // why slow ended
	runs    atomic.Int32  // of slow
}

func newOperators(broken bool) *operators {
	o := &operators{release: make(chan struct{}), running: make(chan struct{}, 10), ended: make(chan error, 10)}
	o.broken.Store(broken)
	return o
}

func (o *operators) register(w *worker.Worker) error {
	tmpl, _, err := template.Parse("operated.yaml", []byte(operated))
	if err != nil {
		return err
	}
	return errors.Join(w.RegisterTemplate(tmpl),
		w.Register("op.ok", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return "ok", nil })),
		w.Register("op.fragile", worker.HandlerFunc(func(*worker.StepContext) (any, error) {
			if o.broken.Load() {
				return nil, worker.Permanent(errors.New("broken"))
			}
			return "mended", nil
		})),
		w.Register("op.slow", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			o.runs.Add(1)
			o.running <- struct{}{}
			select {
			case <-o.release:
				return "slow", nil
			case <-ctx.Done():
				o.ended <- context.Cause(ctx)
				return nil, context.Cause(ctx)
			}
		})),
		w.Register("op.echo", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			return ctx.DependencyResult("fragile")
		})))
}

func start(t *testing.T, o *operators, options ...enginetest.Option) *enginetest.Engine {
	options = append(options, func(c *orchestration.Config, _ *worker.Config) { c.DeadLetters = true })
	return enginetest.Start(t, o.register, options...)
}

func step(t *testing.T, task uuid.UUID, name string) *uuid.UUID {
	t.Helper()
	for no, n := range []string{"fragile", "first", "slow", "last"} {
		if n == name {
			id := store.StepUUID(task, no)
			return &id
		}
	}
	t.Fatalf("no step %s", name)
	return nil
}

func by(kind orchestration.ActionKind, on *uuid.UUID) orchestration.Action {
	return orchestration.Action{Kind: kind, Step: on, Actor: "ana", Reason: "because"}
}

// TestResetWhileAnotherStepRuns: the failed branch is reset while slow runs as the only
// step in hand. Slow gets its own row, and its report counts.
func TestResetWhileAnotherStepRuns(t *testing.T) {
	t.Parallel()
	o := newOperators(true)
	e := start(t, o)
	task := e.Submit("test", "operated", `{}`)
	<-o.running
	e.Until(task, func(got *store.Task) bool { return got.Steps[0].State == workflow.StepError })
	o.broken.Store(false)
	require.NoError(t, e.Orchestrator.Act(t.Context(), task, by(orchestration.ActionResetForRetry, step(t, task, "fragile"))))
	e.Until(task, func(got *store.Task) bool { return got.Steps[0].State == workflow.StepComplete })
	close(o.release)
	ended := e.Await(task)
	require.Equal(t, workflow.TaskComplete, ended.State)
	require.JSONEq(t, `"mended"`, string(ended.Steps[3].Result))
	require.EqualValues(t, 1, o.runs.Load(), "the running step was not run again")
}

// TestAFailedTaskIsBroughtBack: it ends as error with a pending dead letter; the reset
// reopens it, and its end closes the dead letter.
func TestAFailedTaskIsBroughtBack(t *testing.T) {
	t.Parallel()
	o := newOperators(true)
	close(o.release)
	e := start(t, o)
	task := e.Submit("test", "operated", `{}`)
	require.Equal(t, workflow.TaskError, e.Await(task).State)
	letter, err := e.Store.DeadLetterOfTask(t.Context(), task)
	require.NoError(t, err)
	require.Equal(t, store.ResolutionPending, letter.Resolution)
	require.Equal(t, workflow.DeadLetterExhausted, letter.Reason)
	require.Equal(t, "permanent", letter.Detail)

	var notAllowed *orchestration.TransitionError
	require.ErrorAs(t, e.Orchestrator.Act(t.Context(), task, by(orchestration.ActionResetForRetry, step(t, task, "first"))), &notAllowed)
	require.Equal(t, workflow.TaskError, e.Read(task).State, "a rejected action reopens nothing")

	o.broken.Store(false)
	require.NoError(t, e.Orchestrator.Act(t.Context(), task, by(orchestration.ActionResetForRetry, step(t, task, "fragile"))))
	require.Equal(t, workflow.TaskComplete, e.Await(task).State)
	letter, err = e.Store.DeadLetterOfTask(t.Context(), task)
	require.NoError(t, err)
	require.Equal(t, store.ResolutionManuallyResolved, letter.Resolution, "it closed automatically")

	require.NoError(t, e.Orchestrator.Act(t.Context(), task, by(orchestration.ActionRunAgain, step(t, task, "first"))))
	again := e.Await(task)
	require.Equal(t, workflow.TaskComplete, again.State)
	require.EqualValues(t, 2, o.runs.Load(), "slow depends on first")
}

func TestAStepIsCompletedByHand(t *testing.T) {
	t.Parallel()
	o := newOperators(true)
	close(o.release)
	e := start(t, o)
	task := e.Submit("test", "operated", `{}`)
	require.Equal(t, workflow.TaskError, e.Await(task).State)
	complete := by(orchestration.ActionCompleteManually, step(t, task, "fragile"))
	require.ErrorContains(t, e.Orchestrator.Act(t.Context(), task, complete), "needs a result")
	complete.Result, complete.Metadata = json.RawMessage(`{"by":"hand"}`), json.RawMessage(`{"ticket":"X-1"}`)
	require.NoError(t, e.Orchestrator.Act(t.Context(), task, complete))
	ended := e.Await(task)
	require.Equal(t, workflow.TaskComplete, ended.State)
	require.JSONEq(t, `{"by":"hand"}`, string(ended.Steps[3].Result), "its child received the result")
	manual := ended.Steps[0].Manual
	require.NotNil(t, manual)
	require.Equal(t, []string{complete.Actor, complete.Reason}, []string{manual.Actor, manual.Reason})
	require.JSONEq(t, `{"ticket":"X-1"}`, string(manual.Metadata))
	require.Nil(t, ended.Steps[3].Manual, "a handler returned this one")

	o.broken.Store(false)
	require.NoError(t, e.Orchestrator.Act(t.Context(), task, by(orchestration.ActionRunAgain, step(t, task, "fragile"))))
	again := e.Await(task)
	require.JSONEq(t, `"mended"`, string(again.Steps[0].Result))
	require.Nil(t, again.Steps[0].Manual, "and the latest of this one")
}

// TestCancelEndsRunningHandlers: the handler's context ends at once, not with the next
// heartbeat.
func TestCancelEndsRunningHandlers(t *testing.T) {
	t.Parallel()
	o := newOperators(false)
	e := start(t, o, func(_ *orchestration.Config, c *worker.Config) {
		c.Lease, c.HeartbeatInterval = 10*time.Minute, 3*time.Minute
	})
	task := e.Submit("test", "operated", `{}`)
	<-o.running
	require.NoError(t, e.Orchestrator.Act(t.Context(), task, by(orchestration.ActionCancel, nil)))
	select {
	case why := <-o.ended:
		require.ErrorIs(t, why, worker.ErrLeaseLost)
	case <-time.After(60 * time.Second):
		t.Fatal("the handler's context has not ended")
	}
	require.Equal(t, workflow.TaskCancelled, e.Read(task).State)
	require.ErrorIs(t, e.Orchestrator.Act(t.Context(), task, by(orchestration.ActionCancel, nil)), store.ErrTaskEnded)
	require.ErrorIs(t, e.Orchestrator.Act(t.Context(), uuid.New(), by(orchestration.ActionCancel, nil)), store.ErrNotFound)
}

// A cancel names the worker that holds what it cancels, and nobody where no worker does: others
// send no heartbeat.
func TestACancelWakesOnlyWhomItConcerns(t *testing.T) {
	t.Parallel()
	o := newOperators(false)
	seldom := func(c *worker.Config) { c.Lease, c.HeartbeatInterval = 10*time.Minute, 3*time.Minute }
	e := start(t, o, func(_ *orchestration.Config, c *worker.Config) { seldom(c) })
	e.AnotherWorker(o.register, seldom)
	task := e.Submit("test", "operated", `{}`)
	<-o.running
	heard, err := e.Bus.Connect(t.Context(), []signal.Topic{signal.TopicControl})
	require.NoError(t, err)
	defer func() { _ = heard.Close(context.Background()) }()
	begin := ""
	beats := func() int {
		return e.DB.QueryInt(t, `select count(*) from tasker.workers where heartbeat_at > $1::text::timestamptz`, begin)
	}
	rounds, inAnHour := 0, time.Now().Add(time.Hour)
	pgtest.Eventually(t, patience, func() (bool, string) { // a worker that has just started may have one to send
		if begin == "" || beats() > 0 {
			begin = e.DB.QueryString(t, `select clock_timestamp()::text`)
		}
		for i := range 20 {
			later, err := e.Orchestrator.Create(t.Context(), orchestration.Request{Namespace: "test", Name: "operated", Version: "1.0.0",
				Context: fmt.Appendf(nil, `{"n":%d, "round": %d}`, i, rounds), Initiator: "test", StartAt: &inAnHour})
			require.NoError(t, err)
			require.NoError(t, e.Orchestrator.Act(t.Context(), later.UUID, by(orchestration.ActionCancel, nil)))
		}
		rounds++
		quiet := e.DB.QueryBool(t, `select clock_timestamp() > $1::text::timestamptz + interval '1 s'`, begin)
		return quiet && beats() == 0, "cancels of steps that have not run make workers send heartbeats"
	})

	holder := e.DB.QueryString(t, `select worker::text from tasker.board where task_uuid = $1 and state = 3`, task)
	require.NoError(t, e.Orchestrator.Act(t.Context(), task, by(orchestration.ActionCancel, nil)))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first, err := heard.Receive(ctx)
	require.NoError(t, err)
	workers, _ := first.Revokes()
	require.Equal(t, []string{holder}, workers, "%+v is the first signal", first)
	require.ErrorIs(t, <-o.ended, worker.ErrLeaseLost)
	require.Equal(t, 1, beats(), "the other worker sends none")
}

func TestALeaseIsReleased(t *testing.T) {
	t.Parallel()
	o := newOperators(false)
	e := start(t, o)
	task := e.Submit("test", "operated", `{}`)
	<-o.running
	require.NoError(t, e.Orchestrator.Act(t.Context(), task, by(orchestration.ActionReleaseLease, step(t, task, "slow"))))
	<-o.running // it runs a second time
	close(o.release)
	require.Equal(t, workflow.TaskComplete, e.Await(task).State)
	var notAllowed *orchestration.TransitionError
	require.ErrorAs(t, e.Orchestrator.Act(t.Context(), task, by(orchestration.ActionReleaseLease, step(t, task, "slow"))), &notAllowed)
}

// TestWaitForATaskThatRunsAgain: neither an earlier end nor a late signal of it counts as
// the end.
func TestWaitForATaskThatRunsAgain(t *testing.T) {
	t.Parallel()
	o := newOperators(false)
	e := start(t, o)
	task := e.Submit("test", "operated", `{}`)
	<-o.running
	o.release <- struct{}{}
	require.Equal(t, workflow.TaskComplete, e.Await(task).State)
	require.NoError(t, e.Orchestrator.Act(t.Context(), task, by(orchestration.ActionRunAgain, step(t, task, "slow"))))
	<-o.running
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // ends are looked up each second
	defer cancel()
	var late sync.WaitGroup
	late.Go(func() {
		for ctx.Err() == nil {
			e.Bus.Publish(signal.Signal{Topic: signal.TopicTasks, Payload: task.String()})
			<-time.After(100 * time.Millisecond) // takes time: signals all through the wait
		}
	})
	ended, err := e.Orchestrator.Wait(ctx, task)
	require.NoError(t, err)
	require.False(t, ended, "it runs")
	late.Wait()
	close(o.release)
	require.Equal(t, workflow.TaskComplete, e.Await(task).State)
}

func TestActionsInBulk(t *testing.T) {
	t.Parallel()
	o := newOperators(true)
	close(o.release)
	e := start(t, o)
	var tasks []uuid.UUID
	for i := range 5 {
		tasks = append(tasks, e.Submit("test", "operated", `{"n":`+string(rune('0'+i))+`}`))
	}
	for _, task := range tasks {
		require.Equal(t, workflow.TaskError, e.Await(task).State)
	}
	o.broken.Store(false)
	bulk := orchestration.Bulk{DryRun: true, Limit: 4,
		Select: orchestration.TaskSelection{Namespace: "test", Name: "operated", States: []workflow.TaskState{workflow.TaskError}},
		Action: orchestration.Action{Kind: orchestration.ActionResetForRetry, StepName: "fragile", Actor: "ana", Reason: "mended"}}
	result, err := e.Orchestrator.ActOnMany(t.Context(), bulk)
	require.NoError(t, err)
	require.Equal(t, orchestration.BulkResult{Matched: 4, Changed: 4, Tasks: tasks[:4], DryRun: true}, result)
	require.Equal(t, workflow.TaskError, e.Read(tasks[0]).State, "a dry run changes nothing")

	bulk.DryRun, bulk.Limit = false, 0
	result, err = e.Orchestrator.ActOnMany(t.Context(), bulk)
	require.NoError(t, err)
	require.Equal(t, 5, result.Changed)
	for _, task := range tasks {
		require.Equal(t, workflow.TaskComplete, e.Await(task).State)
	}
	require.JSONEq(t, `{"namespace": "test", "name": "operated", "states": ["error"], "step_name": "fragile"}`,
		e.DB.QueryString(t, `select target::text from tasker.operator_actions where action = 'reset_for_retry'`))
	_, err = e.Orchestrator.ActOnMany(t.Context(), orchestration.Bulk{Action: bulk.Action})
	require.ErrorContains(t, err, "filter")
}

// TestATaskThatTheDatabaseRejectsDoesNotAffectABulkAction: of more tasks than share a
// transaction the oldest is rejected. The others are changed, under one record.
func TestATaskThatTheDatabaseRejectsDoesNotAffectABulkAction(t *testing.T) {
	t.Parallel()
	const tasks = 150
	e, _, _ := startChained(t)
	ids := make([]uuid.UUID, tasks)
	for i := range ids {
		ids[i] = e.Submit("test", "single", fmt.Sprintf(`{"n":%d}`, i))
	}
	e.DB.Exec(t, `create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused by the test' using errcode = 'check_violation'; end $$`)
	e.DB.Exec(t, fmt.Sprintf(`create trigger refuse before insert on tasker.step_attempts for each row when (new.task_uuid = '%s') execute function refuse()`, ids[0]))
	done, err := e.Orchestrator.ActOnMany(t.Context(), orchestration.Bulk{Select: orchestration.TaskSelection{Namespace: "test"},
		Action: orchestration.Action{Kind: orchestration.ActionCancel, Actor: "ana", Reason: "why"}})
	require.ErrorContains(t, err, "refused by the test")
	require.Equal(t, []int{tasks, tasks - 1, 1}, []int{done.Matched, done.Changed, done.Skipped})
	require.Equal(t, "ana cancel 150 149", e.DB.QueryString(t, `select string_agg(concat_ws(' ', actor, action, matched, changed), ', ') from tasker.operator_actions where action = 'cancel'`))
}

// TestTasksAreReprioritisedOnce: of three tasks the database rejects the last. The others are
// changed and recorded once.
func TestTasksAreReprioritisedOnce(t *testing.T) {
	t.Parallel()
	e, _, _ := startChained(t)
	var last uuid.UUID
	for i := range 3 {
		last = e.Submit("test", "single", fmt.Sprintf(`{"n":%d}`, i))
	}
	e.DB.Exec(t, `create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused by the test' using errcode = 'check_violation'; end $$`)
	e.DB.Exec(t, fmt.Sprintf(`create trigger refuse before update on tasker.board for each row when (new.task_uuid = '%s') execute function refuse()`, last))
	priority := 7
	done, err := e.Orchestrator.ActOnMany(t.Context(), orchestration.Bulk{Select: orchestration.TaskSelection{Namespace: "test"},
		Action: orchestration.Action{Kind: orchestration.ActionReprioritise, Priority: &priority, Actor: "ana", Reason: "why"}})
	require.ErrorContains(t, err, "refused by the test")
	require.Equal(t, []int{3, 2, 1}, []int{done.Matched, done.Changed, done.Skipped})
	require.Equal(t, "3 2", e.DB.QueryString(t, `select concat_ws(' ', matched, changed) from tasker.operator_actions where action = 'reprioritise'`))
	require.Equal(t, 2, e.DB.QueryInt(t, `select count(*) from tasker.task_events where actor = 'ana'`))
}

// TestOrchestratorsThatActOnTheSameTasksChangeEachOnce: the records of three bulk actions at
// once say together what was changed.
func TestOrchestratorsThatActOnTheSameTasksChangeEachOnce(t *testing.T) {
	t.Parallel()
	const tasks = 150
	e, _, _ := startChained(t)
	for i := range tasks {
		e.Submit("test", "single", fmt.Sprintf(`{"n":%d}`, i))
	}
	held, err := e.DB.Pool(t).Begin(t.Context()) // until all three have selected the tasks
	require.NoError(t, err)
	_, err = held.Exec(t.Context(), `select from tasker.board for update`)
	require.NoError(t, err)
	var group sync.WaitGroup
	var changed atomic.Int64
	for _, o := range []*orchestration.Orchestrator{e.Orchestrator, e.AnotherOrchestrator(), e.AnotherOrchestrator()} {
		group.Go(func() {
			done, err := o.ActOnMany(t.Context(), orchestration.Bulk{Select: orchestration.TaskSelection{Namespace: "test"},
				Action: orchestration.Action{Kind: orchestration.ActionCancel, Actor: "ana", Reason: "why"}})
			changed.Add(int64(done.Changed))
			assert.NoError(t, err)
		})
	}
	pgtest.Eventually(t, patience, func() (bool, string) {
		n := e.DB.QueryInt(t, `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)
		return n >= 3, fmt.Sprintf("%d orchestrators wait for the tasks", n)
	})
	require.NoError(t, held.Rollback(t.Context()))
	group.Wait()
	require.EqualValues(t, tasks, changed.Load())
	require.Equal(t, "150 150", e.DB.QueryString(t, `select concat_ws(' ', (select sum(changed) from tasker.operator_actions where action = 'cancel'),
		(select count(*) from tasker.task_events where actor = 'ana'))`))
}

// TestAnActionAndItsRecordAreOne: what cannot be recorded is not done.
func TestAnActionAndItsRecordAreOne(t *testing.T) {
	t.Parallel()
	e, _, _ := startChained(t)
	task := e.Submit("test", "single", `{}`)
	e.DB.Exec(t, `create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused by the test'; end $$`)
	e.DB.Exec(t, `create trigger refuse before insert on tasker.operator_actions for each row execute function refuse()`)
	priority := 7
	for _, a := range []orchestration.Action{{Kind: orchestration.ActionCancel}, {Kind: orchestration.ActionReprioritise, Priority: &priority}} {
		a.Actor, a.Reason = "ana", "why"
		require.ErrorContains(t, e.Orchestrator.Act(t.Context(), task, a), "refused by the test")
	}
	require.Equal(t, "0 0", e.DB.QueryString(t, `select concat_ws(' ', (select max(priority) from tasker.board), (select count(*) from tasker.task_events where actor = 'ana'))`))
}

// TestADeadLetterThatCannotBeReplayedHoldsUpNoOthers: of three entries that are replayed
// together, the database rejects the task of the oldest.
func TestADeadLetterThatCannotBeReplayedHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	o := newOperators(true)
	close(o.release)
	e := start(t, o)
	for i := range 3 {
		require.Equal(t, workflow.TaskError, e.Await(e.Submit("test", "operated", fmt.Sprintf(`{"n":%d}`, i))).State)
	}
	o.broken.Store(false)
	e.DB.Exec(t, `create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused by the test'; end $$`)
	e.DB.Exec(t, `create trigger refuse before insert on tasker.tasks for each row when (new.context ->> 'n' = '0') execute function refuse()`)
	done, err := e.Orchestrator.ReplayDeadLetters(t.Context(), orchestration.ReplayMany{Actor: "ana", Reason: "mended"})
	require.ErrorContains(t, err, "refused by the test")
	require.Equal(t, []int{3, 2, 1}, []int{done.Matched, done.Changed, done.Skipped})
}

func TestADeadLetterIsReplayed(t *testing.T) {
	t.Parallel()
	o := newOperators(true)
	close(o.release)
	e := start(t, o)
	task := e.Submit("test", "operated", `{"n":1}`)
	require.Equal(t, workflow.TaskError, e.Await(task).State)
	o.broken.Store(false)
	many := orchestration.ReplayMany{Actor: "ana", Reason: "mended"}
	result, err := e.Orchestrator.ReplayDeadLetters(t.Context(), many)
	require.NoError(t, err)
	require.Equal(t, 1, result.Changed)
	letter, err := e.Store.DeadLetterOfTask(t.Context(), task)
	require.NoError(t, err)
	require.Equal(t, store.ResolutionManuallyResolved, letter.Resolution)
	require.NotNil(t, letter.ReplayedAs)
	replayed := e.Await(*letter.ReplayedAs)
	require.Equal(t, workflow.TaskComplete, replayed.State)
	require.JSONEq(t, `{"n":1}`, string(replayed.Context))
	require.Equal(t, e.Read(task).CorrelationID, *replayed.ParentCorrelationID)
	result, err = e.Orchestrator.ReplayDeadLetters(t.Context(), many)
	require.NoError(t, err)
	require.Zero(t, result.Matched, "it is not open any more")
}

// TestAReplayThatWasCutShortIsFinished: an orchestrator created the task and died before
// it closed the entry.
func TestAReplayThatWasCutShortIsFinished(t *testing.T) {
	t.Parallel()
	o := newOperators(true)
	close(o.release)
	e := start(t, o)
	for _, edited := range []bool{false, true} {
		task := e.Submit("test", "operated", fmt.Sprintf(`{"n":1,"edited":%t}`, edited))
		require.Equal(t, workflow.TaskError, e.Await(task).State)
		var letter store.DeadLetter
		require.Eventually(t, func() (found bool) {
			var err error
			letter, err = e.Store.DeadLetterOfTask(t.Context(), task)
			return err == nil
		}, patience, 10*time.Millisecond)
		first, err := e.Orchestrator.Create(t.Context(), orchestration.Request{Namespace: "test", Name: "operated", Version: "1.0.0",
			Context: e.Read(task).Context, IdempotencyKey: "replay/" + letter.UUID.String()})
		require.NoError(t, err)
		again := orchestration.Replay{Actor: "ana", Reason: "mended"}
		if edited {
			again.Edit = &submission.ContextEdit{Context: json.RawMessage(`{"n":2}`)}
		}
		replayed, err := e.Orchestrator.Replay(t.Context(), task, again)
		if edited {
			var duplicate *orchestration.DuplicateError
			require.ErrorAs(t, err, &duplicate, "the requested context is not that of the task")
			require.Equal(t, first.UUID, duplicate.Existing)
		} else {
			require.NoError(t, err)
			require.Equal(t, first.UUID, replayed.UUID)
		}
		letter, err = e.Store.DeadLetterOfTask(t.Context(), task)
		require.NoError(t, err)
		require.Equal(t, store.ResolutionManuallyResolved, letter.Resolution)
		require.Equal(t, first.UUID, *letter.ReplayedAs)
	}
}

// TestUnreadableRecordsGoIntoQuarantine: they end there, do not stop others, and are not
// found repeatedly.
func TestUnreadableRecordsGoIntoQuarantine(t *testing.T) {
	t.Parallel()
	o := newOperators(false)
	e := start(t, o)
	bad, good := e.Submit("test", "operated", `{"n":1}`), e.Submit("test", "operated", `{"n":2}`)
	<-o.running
	<-o.running
	e.DB.Exec(t, `update tasker.board set progress = '\x09' where task_uuid = $1 and slot = 0`, bad)
	close(o.release)
	require.Equal(t, workflow.TaskComplete, e.Await(good).State)
	require.Equal(t, workflow.TaskError, e.Await(bad).State)
	letter, err := e.Store.DeadLetterOfTask(t.Context(), bad)
	require.NoError(t, err)
	require.Equal(t, "records_contradict", letter.Detail)
}

// TestTasksOfNewerProgramsAreLeftToThem: an older orchestrator neither decides about a task whose progress it
// cannot read nor ends it; a program that can read it goes on.
func TestTasksOfNewerProgramsAreLeftToThem(t *testing.T) {
	t.Parallel()
	o, m := newOperators(false), telemetry.Discard()
	e := start(t, o, func(c *orchestration.Config, _ *worker.Config) { c.Metrics = m })
	newer, ours := e.Submit("test", "operated", `{"n":1}`), e.Submit("test", "operated", `{"n":2}`)
	<-o.running
	<-o.running
	known := e.DB.QueryInt(t, `select get_byte(progress, 0) from tasker.board where task_uuid = $1 and slot = 0`, newer)
	version := func(v int) {
		e.DB.Exec(t, `update tasker.board set progress = set_byte(progress, 0, $2) where task_uuid = $1 and slot = 0`, newer, v)
	}
	version(200)
	close(o.release)
	require.Equal(t, workflow.TaskComplete, e.Await(ours).State)
	pgtest.Eventually(t, patience, func() (bool, string) {
		return testutil.ToFloat64(m.RowsSetAside.WithLabelValues("apply")) == 1, "the task is not set aside"
	})
	version(known)
	require.Equal(t, workflow.TaskComplete, e.Await(newer).State)
}

func TestAPausedNamespaceIsNotClaimed(t *testing.T) {
	t.Parallel()
	o := newOperators(false)
	close(o.release)
	e := start(t, o)
	require.NoError(t, e.Orchestrator.Pause(t.Context(), store.Pause{Namespace: "test", Actor: "ana", Reason: "maintenance"}))
	task := e.Submit("test", "operated", `{}`)
	other := e.Submit("test", "operated", `{"n":2}`)
	require.NoError(t, e.Orchestrator.Act(t.Context(), other, orchestration.Action{Kind: orchestration.ActionReprioritise, Priority: ptr(50), Actor: "ana", Reason: "urgent"}))
	require.Equal(t, 50, e.Read(other).Priority)
	claimed, _, err := e.Store.Claim(t.Context(), store.ClaimRequest{Worker: uuid.Must(uuid.NewV7()), Limit: 10, Lease: time.Minute,
		Callables: []int32{int32(e.DB.QueryInt(t, `select distinct callable from tasker.board where state = 2`))}}, true)
	require.NoError(t, err)
	require.Empty(t, claimed, "a full scan finds nothing either")
	require.Zero(t, e.Read(task).Steps[0].Attempts)
	require.NoError(t, e.Orchestrator.Resume(t.Context(), store.Pause{Namespace: "test", Actor: "ana", Reason: "done"}))
	require.Equal(t, workflow.TaskComplete, e.Await(task).State)
	require.Equal(t, workflow.TaskComplete, e.Await(other).State)
}

func ptr[T any](v T) *T { return &v }
