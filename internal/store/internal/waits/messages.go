package waits

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/aside"
	"github.com/tasker-go/tasker/internal/enginestep"
	"github.com/tasker-go/tasker/internal/store/internal/board"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// takeMessages deletes messages of one kind in the transaction that processes them:
// without a commit they are there again. Those that another orchestrator is processing
// are skipped. Processing reads in later statements, so it sees all that the senders have
// committed. A message sent in the meantime is a row of its own and processed separately:
// none is lost, and senders do not wait.
// Index: the primary key, of a table that is empty most of the time.
var takeMessages = pg.Compile(`
with taken as materialized (
    select ctid as at ` + firstMessages + ` for update skip locked
)
delete from tasker.task_messages where ctid = any (array(select at from taken)) returning task_uuid`)

// firstMessages are the first messages of a kind.
var firstMessages = `from tasker.task_messages
    where kind = @kind and ` + pg.InRows("task_uuid") + ` order by task_uuid, message_id limit @limit`

// messageTasks are the tasks of the messages that takeMessages would take.
// Index: the primary key.
var messageTasks = pg.Compile(`select distinct task_uuid from (select task_uuid ` + firstMessages + `) m`)

// EndedTasks returns the tasks whose ends NotifyEnds would process.
func (s *Waits) EndedTasks(ctx context.Context, rows pg.Rows) ([]uuid.UUID, error) {
	return s.messageTasks(ctx, pg.MessageEnded, rows)
}

// DependentTasks returns the tasks whose dependencies WatchDependencies would look at.
func (s *Waits) DependentTasks(ctx context.Context, rows pg.Rows) ([]uuid.UUID, error) {
	return s.messageTasks(ctx, pg.MessageDependencies, rows)
}

func (s *Waits) messageTasks(ctx context.Context, kind int16, rows pg.Rows) ([]uuid.UUID, error) {
	return pg.ReadAll[uuid.UUID](ctx, s.db, "message_tasks", "list the tasks of messages",
		messageTasks.With(rows.Args().And(pg.Args{"kind": kind})))
}

// messagesOf takes messages of one kind; found counts them, and tasks are their tasks, in
// order, each once.
func messagesOf(ctx context.Context, tx pgx.Tx, kind int16, rows pg.Rows) (tasks pg.UUIDs, found int, err error) {
	tasks, err = stmt.All[[16]byte](ctx, tx, takeMessages.With(rows.Args().And(pg.Args{"kind": kind})))
	return pg.Distinct(tasks), len(tasks), err
}

// EndsNotified is the result of NotifyEnds.
type EndsNotified struct {
	Messages int
	// Left are tasks with steps that wait for results of plans that this program cannot read,
	// while a newer one may.
	Left     []uuid.UUID
	Why      error           // of one of these
	Steps    int             // whose tasks have ended
	Released int             // tasks whose dependencies are met
	Signals  []signal.Signal // to publish, unless the store sends them itself
}

// endedTask is how a task with dependents ended.
type endedTask struct {
	uuid   uuid.UUID
	state  workflow.TaskState // 0: it does not exist
	reason string
	plan   *registry.Plan
	// unreadable says why this program cannot read the plan, while a newer one may.
	unreadable error
}

// left is whether the step that the task is cannot be ended by this program.
func (e *endedTask) left() bool {
	return e.unreadable != nil && (e.state == workflow.TaskComplete || e.state == workflow.TaskResolvedManually)
}

// maxSubResults bounds the results of a sub-workflow passed to its step, in bytes; those
// that do not fit are named instead.
const maxSubResults = 1 << 20

// NotifyEnds notifies the dependents of ended tasks: the steps that they are, and the tasks
// that depend on them. The keys of the rows are the ended tasks. The messages of those that it
// must leave stay.
func (s *Waits) NotifyEnds(ctx context.Context, rows pg.Rows) (EndsNotified, error) {
	return pg.Change(ctx, s.db, "notify_ends", "notify dependents of ended tasks", func(ctx context.Context, tx pgx.Tx) (done EndsNotified, _ []signal.Signal, err error) {
		ids, found, err := messagesOf(ctx, tx, pg.MessageEnded, rows)
		if err != nil || found == 0 {
			return done, nil, err
		}
		done.Messages = found
		topics := board.SignalSet{}
		ended, err := s.endsOf(ctx, tx, ids, topics)
		if err != nil {
			return done, nil, err
		}
		// Dependent tasks come before steps: that is the order of locks.
		if done.Released, err = resolveDependencies(ctx, tx, ended, nil, topics); err != nil {
			return done, nil, err
		}
		if err = s.endSubTasks(ctx, tx, ended, &done); err != nil {
			return done, nil, err
		}
		if done.Steps > 0 {
			topics.Add(signal.TopicOrchestration)
		}
		done.Signals = topics.Signals()
		return done, done.Signals, nil
	})
}

// NotifyEndApart notifies the dependents of one ended task for which the database rejects NotifyEnds, over parts of
// them. rejected is called for each task that is rejected on its own; the error is a rejection of the step that the ended
// task is, or as usual. The message stays: NotifyEnds takes it once nothing is rejected.
func (s *Waits) NotifyEndApart(ctx context.Context, task uuid.UUID, rejected func(dependent uuid.UUID, why error)) (done EndsNotified, err error) {
	const flow, doing = "notify_ends", "notify dependents of an ended task"
	only := pg.UUIDs{task}
	waiting, err := pg.ReadAll[dependency](ctx, s.db, flow, doing, dependentsOf.With(pg.Args{"ended": only, "limit": maxDependents}))
	if err != nil {
		return done, err
	}
	notify := func(some func(ctx context.Context, tx pgx.Tx, ended []endedTask, topics board.SignalSet) error) error {
		var signals []signal.Signal
		err := s.db.Transaction(ctx, flow, doing, func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
			topics := board.SignalSet{}
			ended, err := s.endsOf(ctx, tx, only, topics)
			if err == nil && len(ended) > 0 {
				err = some(ctx, tx, ended, topics)
			}
			signals = topics.Signals()
			return signals, err
		})
		if err == nil {
			done.Signals = append(done.Signals, signals...)
		}
		return err
	}
	err = aside.Apart(waiting, pg.Rejected, func(part []dependency) error {
		released := 0
		err := notify(func(ctx context.Context, tx pgx.Tx, ended []endedTask, topics board.SignalSet) (err error) {
			released, err = resolveDependencies(ctx, tx, ended, part, topics)
			return err
		})
		done.Released += released
		return err
	}, func(d dependency, why error) { rejected(d.TaskUUID, why) })
	if err != nil {
		return done, err
	}
	err = notify(func(ctx context.Context, tx pgx.Tx, ended []endedTask, topics board.SignalSet) error {
		err := s.endSubTasks(ctx, tx, ended, &done)
		if done.Steps > 0 {
			topics.Add(signal.TopicOrchestration)
		}
		return err
	})
	return done, err
}

// howTasksEnded reads the ends of tasks, and which of them are alive.
// Index: the primary keys.
var (
	howTasksEnded = pg.Compile(`
select i.id as task_uuid, coalesce(a.task_state, 0) as state, coalesce(a.task_reason, '') as reason, coalesce(t.plan_id, 0) as plan_id, exists (
       select from tasker.board b where b.task_uuid = any (array[i.id]) and b.slot = 0) as alive
from unnest(@tasks::uuid[]) i(id)
left join lateral (select plan_id from tasker.tasks where task_uuid = i.id limit 1) t on true
left join lateral (select task_state, task_reason from tasker.step_attempts where task_uuid = i.id and task_state is not null limit 1) a on true`)
	awaitTasks = pg.Compile(`
update tasker.board b set awaited = true from tasker.namespaces n
where b.task_uuid = any (@tasks::uuid[]) and b.slot = 0 and n.namespace_id = b.queue
returning b.task_uuid, b.state = {claimable} as claimable, b.callable, b.lane, n.name as namespace`)
)

// endsOf reads how tasks ended. A task that an operator has reopened since is waited for
// again; if it has ended once more, another message says so.
func (s *Waits) endsOf(ctx context.Context, tx pgx.Tx, ids pg.UUIDs, topics board.SignalSet) ([]endedTask, error) {
	type row struct {
		TaskUUID uuid.UUID
		State    workflow.TaskState
		Reason   string
		PlanID   int32
		Alive    bool
	}
	var ended []endedTask
	var plans []int32
	var back pg.UUIDs
	err := stmt.Each(ctx, tx, howTasksEnded.With(pg.Args{"tasks": ids}), func(r *row) {
		if r.Alive {
			back = append(back, r.TaskUUID)
			return
		}
		ended, plans = append(ended, endedTask{uuid: r.TaskUUID, state: r.State, reason: r.Reason}), append(plans, r.PlanID)
	})
	if err != nil {
		return nil, err
	}
	read, err := s.registry.PlansOn(ctx, tx, plans)
	if err != nil {
		return nil, err
	}
	for i := range ended {
		if plans[i] == 0 {
			continue
		}
		if ended[i].plan, err = read.Of(plans[i]); !errors.Is(err, pg.ErrNotFound) {
			ended[i].unreadable = err
		}
	}
	return ended, awaitAll(ctx, tx, back, topics)
}

// lastResults are those of the final steps of tasks.
// Index: the primary key.
var lastResults = pg.Compile(`
select k.task_uuid, k.step_no, a.result
from ` + stmt.List[board.StepKey]("k") + `
cross join lateral (
    select result from tasker.step_attempts
    where task_uuid = k.task_uuid and step_no = k.step_no and outcome = {success} order by token desc limit 1) a`)

// lockWaiting locks waiting steps in the global order.
// Index: board_awaits.
var lockWaiting = pg.Compile(`select awaits from tasker.board where awaits = any (@awaits::text[]) order by task_uuid, slot for update`)

// endSubTasks ends the steps that the tasks are.
func (s *Waits) endSubTasks(ctx context.Context, tx pgx.Tx, ended []endedTask, done *EndsNotified) error {
	awaits := pg.Column(ended, (*endedTask).awaited)
	waiting, err := stmt.All[string](ctx, tx, lockWaiting.With(pg.Args{"awaits": awaits}))
	if err != nil || len(waiting) == 0 {
		return err
	}
	some := slices.DeleteFunc(slices.Clone(ended), func(e endedTask) bool { return !slices.Contains(waiting, e.awaited()) })
	var left pg.UUIDs
	for i := range some {
		if some[i].left() {
			left, done.Why = append(left, some[i].uuid), some[i].unreadable
		}
	}
	if len(left) > 0 {
		done.Messages -= len(left)
		done.Left = pg.Column(left, func(id *[16]byte) uuid.UUID { return *id })
		some = slices.DeleteFunc(some, func(e endedTask) bool { return e.left() })
		if _, err := pg.Run(ctx, tx, board.SendMessages.With(pg.Args{"tasks": left, "kind": pg.MessageEnded})); err != nil {
			return err
		}
	}
	results, err := resultsOf(ctx, tx, some)
	if err != nil {
		return err
	}
	ends := make([]enginestep.End, len(some))
	for i := range some {
		if ends[i], err = some[i].asStep(results[some[i].uuid]); err != nil {
			return err
		}
	}
	done.Steps, err = reportEnds(ctx, tx, pg.Column(some, (*endedTask).awaited), ends)
	return err
}

// awaited is what the step that the task is awaits.
func (e *endedTask) awaited() string { return board.AwaitsTask + e.uuid.String() }

// asStep is how the step ends that the task is.
func (e *endedTask) asStep(results map[string]json.RawMessage) (enginestep.End, error) {
	switch e.state {
	case workflow.TaskComplete, workflow.TaskResolvedManually:
		document := map[string]any{"task_uuid": e.uuid, "status": e.state.String(), "results": results}
		if omitted := withinBounds(results); omitted != nil {
			document["omitted"] = omitted
		}
		return enginestep.Succeeded(document)
	case 0:
		return enginestep.Failed(enginestep.ErrorTypeSubTask, "the task "+e.uuid.String()+" does not exist any more", true), nil
	}
	message := "the task " + e.uuid.String() + " ended as " + e.state.String()
	if e.reason != "" {
		message += ": " + e.reason
	}
	return enginestep.Failed(enginestep.ErrorTypeSubTask, message, true), nil
}

// withinBounds removes results, the largest first, until the others fit; it returns their
// names.
func withinBounds(results map[string]json.RawMessage) (omitted []string) {
	size := 0
	for _, r := range results {
		size += len(r)
	}
	for size > maxSubResults {
		largest := ""
		for name, r := range results {
			if largest == "" || len(r) > len(results[largest]) || len(r) == len(results[largest]) && name < largest {
				largest = name
			}
		}
		size -= len(results[largest])
		omitted = append(omitted, largest)
		delete(results, largest)
	}
	return omitted
}

// resultsOf returns the results of final steps, by name.
func resultsOf(ctx context.Context, tx pgx.Tx, ended []endedTask) (map[uuid.UUID]map[string]json.RawMessage, error) {
	results := make(map[uuid.UUID]map[string]json.RawMessage, len(ended))
	plans := make(map[uuid.UUID]*registry.Plan, len(ended))
	var keys []board.StepKey
	for i := range ended {
		e := &ended[i]
		results[e.uuid], plans[e.uuid] = map[string]json.RawMessage{}, e.plan
		if e.plan == nil || e.state != workflow.TaskComplete && e.state != workflow.TaskResolvedManually {
			continue
		}
		for no := range e.plan.Steps {
			if step := &e.plan.Steps[no]; len(step.Children) == 0 && step.Kind != workflow.KindCompensation && step.Kind != workflow.KindBatchWorker {
				keys = append(keys, board.StepKey{TaskUUID: e.uuid, StepNo: no})
			}
		}
	}
	if keys == nil {
		return results, nil
	}
	type row struct {
		board.StepKey
		Result json.RawMessage
	}
	err := stmt.Each(ctx, tx, lastResults.With(pg.Args{"k": keys}), func(r *row) {
		if r.Result == nil {
			r.Result = json.RawMessage("null")
		}
		results[r.TaskUUID][plans[r.TaskUUID].Steps[r.StepNo].Name] = r.Result
	})
	return results, err
}

// Reasons for which the engine cancels tasks.
const (
	// reasonStepCalledOff: the step that runs the task was cancelled, or its time limit
	// passed.
	reasonStepCalledOff = "step_called_off"
	// reasonDependencyFailed: a task that this one depends on has failed.
	reasonDependencyFailed = "dependency_failed"
	// reasonBeyondLimit: a step of the task found no room under a limit, or made room.
	reasonBeyondLimit = "beyond_limit"
)

// Reason is why the task is cancelled, as recorded.
func (m *StopMessage) Reason() string {
	switch m.Kind {
	case pg.MessageFailed:
		return reasonDependencyFailed
	case pg.MessageBeyond:
		return reasonBeyondLimit
	}
	return reasonStepCalledOff
}

// StopMessage is the request to cancel a task.
type StopMessage struct {
	ID   int64     `sql:"message_id"`
	Task uuid.UUID `sql:"task_uuid"`
	Kind int16
}

// Index: the primary key.
var stopMessages = pg.Compile(`
select message_id, task_uuid, kind from tasker.task_messages
where kind = any (array[{stop}, {dependency_failed}, {beyond_limit}]) and ` + pg.InRows("task_uuid") + `
order by kind, task_uuid, message_id limit @limit`)

// StopMessages returns tasks to cancel, which are the keys of the rows. They stay until
// TakeStopMessages or DropStopMessages: other orchestrators may find them too.
func (s *Waits) StopMessages(ctx context.Context, rows pg.Rows) ([]StopMessage, error) {
	return pg.ReadAll[StopMessage](ctx, s.db, "stop_messages", "look for tasks to cancel", stopMessages.With(rows.Args()))
}

// dropStopMessages deletes messages one by one: there may be a newer one about the same
// task.
// Index: the primary key.
var dropStopMessages = pg.Compile(`
delete from tasker.task_messages m using ` + stmt.List[StopMessage]("d") + `
where m.kind = d.kind and m.task_uuid = any (array[d.task_uuid]) and m.message_id = d.message_id
returning m.task_uuid`)

// TakeStopMessages deletes messages about taken tasks in the transaction that cancels their tasks, and leaves
// out the tasks without one: another orchestrator has cancelled these, and an operator may
// have reopened them since.
func (s *Waits) TakeStopMessages(ctx context.Context, taken *board.Taken, messages []StopMessage) error {
	return taken.Keep(ctx, "take the messages about tasks to cancel", func(tasks pg.UUIDs) stmt.Call {
		of := slices.DeleteFunc(slices.Clone(messages), func(m StopMessage) bool { return !slices.Contains(tasks, [16]byte(m.Task)) })
		return dropStopMessages.With(pg.Args{"d": of})
	})
}

// DropStopMessages forgets messages whose tasks cannot be cancelled any more.
func (s *Waits) DropStopMessages(ctx context.Context, messages []StopMessage) error {
	_, err := pg.Execute(ctx, s.db, "drop_messages", "drop the messages about tasks to cancel", dropStopMessages.With(pg.Args{"d": messages}))
	return err
}

// The statements of dependencies between tasks.
// Index: the primary keys, task_dependencies_of.
var (
	dependentsOf = pg.Compile(`
select task_uuid, depends_on from tasker.task_dependencies where depends_on = any (@ended::uuid[]) limit @limit`)
	dependenciesMet = pg.Compile(`
delete from tasker.task_dependencies d using ` + stmt.List[dependency]("m") + `
where d.task_uuid = any (array[m.task_uuid]) and d.depends_on = m.depends_on
returning d.task_uuid, d.depends_on, d.lenient`)
	// releaseTasks lets tasks begin whose dependencies are met.
	releaseTasks = pg.Compile(`
update tasker.board b
set wait = null, seq = nextval('tasker.step_seq'),
    state = case when t.start_at > clock_timestamp() then {scheduled} else {claimable} end,
    due_at = case when t.start_at > clock_timestamp() then t.start_at end,
    enqueued_at = case when t.start_at > clock_timestamp() then null else clock_timestamp() end
from tasker.tasks t
where b.task_uuid = any (@tasks::uuid[]) and b.wait ->> 'kind' = 'tasks' and t.task_uuid = b.task_uuid
  and not exists (select from tasker.task_dependencies d where d.task_uuid = b.task_uuid)
returning b.task_uuid, b.state = {scheduled} or b.queue = {by_engine} as ours, b.callable, b.lane,
          coalesce((select name from tasker.namespaces where namespace_id = b.queue), '') as namespace`)
	dropDependencies = pg.Compile(`delete from tasker.task_dependencies where task_uuid = any (@tasks::uuid[])`)
	// sendFailed requests the cancellation of tasks that still wait: a task started by an
	// operator no longer depends on others.
	sendFailed = pg.Compile(`
insert into tasker.task_messages (task_uuid, kind)
select distinct task_uuid, {dependency_failed} from tasker.board where task_uuid = any (@tasks::uuid[]) and wait ->> 'kind' = 'tasks'`)
	openDependencies = pg.Compile(`select distinct depends_on from tasker.task_dependencies where task_uuid = any (@tasks::uuid[]) order by 1`)
)

// dependency is a task that waits for another one.
type dependency struct{ TaskUUID, DependsOn uuid.UUID }

// maxDependents bounds the dependencies that one transaction settles.
const maxDependents = 1000

// resolveDependencies releases tasks that have waited for the ended ones, or requests
// their cancellation; only these, if there are any. Tasks beyond the limit are left to another message; tasks that come
// to depend on the ended ones in the meantime send their own.
func resolveDependencies(ctx context.Context, tx pgx.Tx, ended []endedTask, only []dependency, topics board.SignalSet) (released int, err error) {
	states := make(map[uuid.UUID]workflow.TaskState, len(ended))
	ids := make(pg.UUIDs, len(ended))
	for i := range ended {
		ids[i], states[ended[i].uuid] = ended[i].uuid, ended[i].state
	}
	waiting, err := dependents(ctx, tx, ids, only)
	if err != nil || len(waiting) == 0 {
		return 0, err
	}
	if len(waiting) >= maxDependents && only == nil {
		topics.Add(signal.TopicDue)
		if _, err := pg.Run(ctx, tx, board.SendMessages.With(pg.Args{"tasks": ids, "kind": pg.MessageEnded})); err != nil {
			return 0, err
		}
	}
	type row struct {
		dependency
		Lenient bool
	}
	var met, failed pg.UUIDs
	if err := stmt.Each(ctx, tx, dependenciesMet.With(pg.Args{"m": waiting}), func(r *row) {
		state := states[r.DependsOn]
		if r.Lenient || state == workflow.TaskComplete || state == workflow.TaskResolvedManually {
			met = append(met, r.TaskUUID)
		} else {
			failed = append(failed, r.TaskUUID)
		}
	}); err != nil {
		return 0, err
	}
	if failed != nil {
		if _, err := pg.Run(ctx, tx, dropDependencies.With(pg.Args{"tasks": failed})); err != nil {
			return 0, err
		}
		if _, err := pg.Run(ctx, tx, sendFailed.With(pg.Args{"tasks": failed})); err != nil {
			return 0, err
		}
		topics.Add(signal.TopicDue)
	}
	met = slices.DeleteFunc(met, func(id [16]byte) bool { return slices.Contains(failed, id) })
	if len(met) == 0 {
		return 0, nil
	}
	return release(ctx, tx, met, topics)
}

// dependents returns the tasks that wait for the ended ones, or those of only, each with one of those, and
// locked: every other transaction that changes what they wait for has ended.
func dependents(ctx context.Context, tx pgx.Tx, ended pg.UUIDs, only []dependency) (waiting []dependency, err error) {
	if waiting = only; only == nil {
		waiting, err = stmt.All[dependency](ctx, tx, dependentsOf.With(pg.Args{"ended": ended, "limit": maxDependents}))
	}
	if err != nil || len(waiting) == 0 {
		return nil, err
	}
	tasks := pg.Column(waiting, func(d *dependency) [16]byte { return d.TaskUUID })
	_, err = pg.Run(ctx, tx, board.LockTasks.With(pg.Args{"tasks": pg.Distinct(tasks)}))
	return waiting, err
}

// release lets locked tasks begin.
func release(ctx context.Context, tx pgx.Tx, tasks pg.UUIDs, topics board.SignalSet) (int, error) {
	type row struct {
		TaskUUID uuid.UUID
		Ours     bool // the engine begins it, or its time
		board.NamedLane
	}
	seen := map[uuid.UUID]bool{}
	err := stmt.Each(ctx, tx, releaseTasks.With(pg.Args{"tasks": tasks}), func(r *row) {
		if seen[r.TaskUUID] = true; r.Ours {
			topics.Add(signal.TopicDue)
			return
		}
		topics.AddNamed(&r.NamedLane)
	})
	return len(seen), err
}

// WatchDependencies looks at the dependencies of new tasks, which are the keys of the rows:
// live ones are marked to notify their dependents when they end, ended ones count at once.
func (s *Waits) WatchDependencies(ctx context.Context, rows pg.Rows) (found int, signals []signal.Signal, err error) {
	err = s.db.Transaction(ctx, "watch_dependencies", "look at what tasks depend on", func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		found, signals = 0, nil
		ids, n, err := messagesOf(ctx, tx, pg.MessageDependencies, rows)
		if err != nil || n == 0 {
			return nil, err
		}
		found = n
		on, err := stmt.All[[16]byte](ctx, tx, openDependencies.With(pg.Args{"tasks": ids}))
		if err != nil {
			return nil, err
		}
		topics := board.SignalSet{}
		err = awaitAll(ctx, tx, on, topics)
		signals = topics.Signals()
		return signals, err
	})
	return found, signals, err
}

// awaitAll marks tasks to notify their dependents at their end; an ended one notifies at
// once. A claim skips a row while it is written, so its queue is signalled again.
func awaitAll(ctx context.Context, tx pgx.Tx, tasks pg.UUIDs, topics board.SignalSet) error {
	if len(tasks) == 0 {
		return nil
	}
	type row struct {
		TaskUUID  uuid.UUID
		Claimable bool
		board.NamedLane
	}
	alive := map[[16]byte]bool{}
	if err := stmt.Each(ctx, tx, awaitTasks.With(pg.Args{"tasks": tasks}), func(r *row) {
		if alive[r.TaskUUID] = true; r.Claimable {
			topics.AddNamed(&r.NamedLane)
		}
	}); err != nil {
		return err
	}
	gone := slices.DeleteFunc(slices.Clone(tasks), func(id [16]byte) bool { return alive[id] })
	if len(gone) == 0 {
		return nil
	}
	topics.Add(signal.TopicDue)
	_, err := pg.Run(ctx, tx, board.SendMessages.With(pg.Args{"tasks": gone, "kind": pg.MessageEnded}))
	return err
}

// strandedTasks reads dependencies, from a key on, and returns tasks that no message will
// release. A last row says how far it came.
// Index: the primary keys.
var strandedTasks = pg.Compile(`
with walked as materialized (
    select task_uuid, depends_on from tasker.task_dependencies
    where (task_uuid, depends_on) > (@task::uuid, @depends_on::uuid) order by task_uuid, depends_on limit @limit
)
(select distinct h.task_uuid, null::uuid as depends_on, 0 as walked
 from walked h cross join lateral (select h.depends_on offset 0) d where ` + board.HeldTask + ` and ` + board.UntoldEnd + `)
union all
(select task_uuid, depends_on, (select count(*) from walked)::int from walked order by task_uuid desc, depends_on desc limit 1)`)

// DependencyPlace is how far a look at dependencies came; the zero value is the
// beginning.
type DependencyPlace struct{ task, on uuid.UUID }

// Stranded are waiting tasks that no message would have released.
type Stranded struct {
	Tasks []uuid.UUID
	Next  DependencyPlace // where the next look continues; zero: this one reached the end
	// Signals are to publish, unless the store sends them itself.
	Signals []signal.Signal
}

// SweepDependencies checks up to limit dependencies from a place on, and repairs those
// that no message would release; dry only finds them.
func (s *Waits) SweepDependencies(ctx context.Context, from DependencyPlace, limit int, dry bool) (Stranded, error) {
	return pg.Change(ctx, s.db, "sweep_dependencies", "look for tasks that nothing will release", func(ctx context.Context, tx pgx.Tx) (found Stranded, _ []signal.Signal, err error) {
		type row struct {
			TaskUUID  uuid.UUID
			DependsOn *uuid.UUID // nil: the task is stranded
			Walked    int
		}
		var ids pg.UUIDs
		look := strandedTasks.With(pg.Args{"task": from.task, "depends_on": from.on, "limit": limit})
		if err := stmt.Each(ctx, tx, look, func(r *row) {
			switch {
			case r.DependsOn == nil:
				found.Tasks, ids = append(found.Tasks, r.TaskUUID), append(ids, r.TaskUUID)
			case r.Walked >= limit:
				found.Next = DependencyPlace{r.TaskUUID, *r.DependsOn}
			}
		}); err != nil || len(found.Tasks) == 0 || dry {
			return found, nil, err
		}
		found.Signals = []signal.Signal{{Topic: signal.TopicDue}}
		_, err = pg.Run(ctx, tx, board.SendMessages.With(pg.Args{"tasks": ids, "kind": pg.MessageDependencies}))
		return found, found.Signals, err
	})
}
