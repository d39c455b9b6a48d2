package board

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// An identity belongs to a task from the commit of its creation. A concurrent creation
// with the same identity waits for the end of that transaction, which decides which of
// the two is the duplicate. Between daemons that takes milliseconds. But a handler, or a
// program of the user, may create a task early in a transaction that lasts minutes (see
// CreateTasksIn), and creations share transactions: one request with the same key would
// delay all others. So creations wait briefly, and then skip the tasks that have to wait
// longer.
const (
	// identityPatience is how long a creation waits for an identity.
	identityPatience = 250 * time.Millisecond
	// identityGlance bounds the wait while it searches for the task with the locked
	// identity.
	identityGlance = 50 * time.Millisecond
)

// identityHeld reports whether a creation has waited for an identity in vain.
// The server names the relation in the context of the error, in all languages.
func identityHeld(err error) bool {
	return pg.LockTimeout(err) && strings.Contains(pg.ServerError(err).Where, identities)
}

const identities = "task_identities"

// insertAround is insertTasks that skips locked identities: it halves the batch until
// each of their tasks is alone, and that is busy. It waits for other locks (a partition
// being created or dropped) without this bound.
func (s *Board) insertAround(ctx context.Context, db *pg.Conn, by *stmt.Statement, tasks []NewTask, chosen []bool, wait time.Duration) (AcceptedTasks, error) {
	accepted, err := s.insertTasks(ctx, db, by, tasks, chosen, wait, nothing)
	switch {
	case !pg.LockTimeout(err):
		return accepted, err
	case !identityHeld(err):
		return s.insertTasks(ctx, db, by, tasks, chosen, 0, nothing)
	}
	places := make([]int, 0, len(tasks))
	for i := range chosen {
		if chosen[i] {
			places = append(places, i)
		}
	}
	if len(places) == 1 {
		return AcceptedTasks{tasks[places[0]].UUID: {}}, nil
	}
	return s.insertHalves(ctx, db, by, tasks, places)
}

func (s *Board) insertHalves(ctx context.Context, db *pg.Conn, by *stmt.Statement, tasks []NewTask, places []int) (AcceptedTasks, error) {
	all := make(AcceptedTasks, len(places))
	for _, half := range [][]int{places[:len(places)/2], places[len(places)/2:]} {
		chosen := make([]bool, len(tasks))
		for _, i := range half {
			chosen[i] = true
		}
		accepted, err := s.insertAround(ctx, db, by, tasks, chosen, identityGlance)
		if err != nil {
			return nil, err
		}
		all.add(accepted)
	}
	return all, nil
}

// AcceptedTasks are the tasks of a statement that exist now; the zero value is a busy one,
// which must be retried later. Refused ones do not exist.
type AcceptedTasks map[uuid.UUID]Acceptance

// Acceptance is the answer to one task of a creation.
type Acceptance struct {
	RequestedAt time.Time
	RefusedFor  time.Duration // see CreatedTask
	Throttled   bool
	Limited     bool // its template has limits; without RequestedAt they have not judged it, unless it is refused or debounced
	// Debounced is the task that it is a part of; Nil: it is not debounced.
	Debounced uuid.UUID
}

// Collect reads the rows of a creation.
func (a AcceptedTasks) Collect(rows pgx.Rows) error {
	type row struct {
		TaskUUID    uuid.UUID
		RequestedAt *time.Time
		Refused     *int64 `sql:"refused_ms"`
	}
	return stmt.Rows(func(r *row) {
		if r.Refused != nil {
			a[r.TaskUUID] = Acceptance{RefusedFor: time.Duration(max(*r.Refused, 0)) * time.Millisecond, Limited: *r.Refused < 0}
			return
		}
		a[r.TaskUUID] = Acceptance{RequestedAt: *r.RequestedAt}
	})(rows)
}

// create executes a creation.
func (a AcceptedTasks) create(ctx context.Context, db stmt.Querier, c stmt.Call) error {
	rows, err := db.Query(ctx, c.SQL, c.Args...)
	if err != nil {
		return err
	}
	return a.Collect(rows)
}

func (a AcceptedTasks) add(more AcceptedTasks) {
	for id, at := range more {
		a[id] = at
	}
}

// taskOfIdentity finds the task that has an identity while that counts.
// Index: the primary key.
var taskOfIdentity = pg.Compile(`
select task_uuid from tasker.task_identities where identity = @identity and expires_at > statement_timestamp()`)

// TaskOfIdentity returns the task that has an identity, or ErrNotFound if there is none
// or its window is over. The task itself may have been deleted, as identities may outlive
// tasks.
func (s *Board) TaskOfIdentity(ctx context.Context, identity dedup.Identity) (uuid.UUID, error) {
	return pg.ReadOne[uuid.UUID](ctx, s.db, "task_of_identity", "look for the task", taskOfIdentity.With(pg.Args{"identity": identity[:]}))
}

// namedTasks finds tasks by their ids and their identities.
// Index: the primary keys.
var namedTasks = pg.Compile(`
select uuid_send(t.task_uuid) as named, n.name as namespace from tasker.tasks t join tasker.namespaces n on n.namespace_id = t.queue
where t.task_uuid = any (@tasks)
union all
select identity, '' from tasker.task_identities where identity = any (@identities::bytea[]) and expires_at > statement_timestamp()`)

// NamedTasks returns the namespaces of those of the tasks that exist, and an empty one for each
// of the identities that a task has, even one that has been deleted.
func (s *Board) NamedTasks(ctx context.Context, tasks []uuid.UUID, identities []dedup.Identity) (map[[16]byte]string, error) {
	hashes := make([][]byte, len(identities))
	for i := range identities {
		hashes[i] = identities[i][:]
	}
	type row struct {
		Named     []byte
		Namespace string
	}
	return pg.ReadMap(ctx, s.db, "named_tasks", "look for tasks", namedTasks.With(pg.Args{"tasks": tasks, "identities": hashes}),
		func(r *row) ([16]byte, string) { return [16]byte(r.Named), r.Namespace })
}

// takenIdentities returns those that tasks have.
// Index: the primary key.
var takenIdentities = pg.Compile(`
select identity from tasker.task_identities where identity = any (@identities::bytea[]) and expires_at > statement_timestamp()`)

// CreateTasksIn creates tasks within a transaction that its caller ends: they exist when
// it commits. All of it has been validated. The answer has one entry per task, in order.
//
// A duplicate is an answer, not an error; no statement fails because of it, so the
// transaction can continue. If another open transaction creates a task with the same
// identity, the call waits for its end, as any insert into a unique index does. Above
// read committed a duplicate created since the transaction's snapshot is a serialization
// failure. After an error of the server the transaction can only be rolled back.
//
// The identities of the created tasks stay locked until the caller commits, and creations
// of the same tasks elsewhere are answered as busy. So: create late, commit soon.
func CreateTasksIn(ctx context.Context, tx pg.Tx, how pg.Announce, tasks ...NewTask) ([]CreatedTask, error) {
	answers, err := createAsGuest(ctx, pg.GuestOf(tx), how, tasks)
	if err != nil {
		return nil, pg.Classify("create tasks in a transaction", err)
	}
	return answers, nil
}

func createAsGuest(ctx context.Context, g pg.Guest, how pg.Announce, tasks []NewTask) ([]CreatedTask, error) {
	chosen := DistinctIdentities(tasks)
	// Inserting a taken identity would lock it until the caller's commit, and block all
	// other requests for the same task.
	if err := passOver(ctx, g, tasks, chosen); err != nil {
		return nil, err
	}
	if err := checkDependencies(ctx, g, tasks, chosen); err != nil {
		return nil, err
	}
	statement := createTasksIn
	if len(tasks) > 0 && tasks[0].Quota != "" {
		statement = createNextIn
	}
	create, signals := creation(statement, tasks, chosen, nil)
	accepted := make(AcceptedTasks, len(tasks))
	if err := accepted.create(ctx, g, create); err != nil {
		return nil, err
	}
	answers := make([]CreatedTask, len(tasks))
	err := answersCreated(ctx, g, tasks, accepted, answers, func(left []NewTask) (AcceptedTasks, error) {
		again, more := creation(statement, left, DistinctIdentities(left), nil)
		signals = append(signals, more...)
		late := make(AcceptedTasks, len(left))
		err := late.create(ctx, g, again)
		accepted.add(late)
		return late, err
	})
	if err != nil {
		return nil, err
	}
	if len(accepted) == 0 {
		return answers, nil
	}
	for i := range tasks {
		chosen[i] = !accepted[tasks[i].UUID].RequestedAt.IsZero()
	}
	b := &pgx.Batch{}
	Relate(b, tasks, chosen)
	if err := g.ExecAll(ctx, b); err != nil {
		return nil, err
	}
	return answers, g.Announce(ctx, how, signals)
}

// passOver removes the tasks whose identities are taken.
func passOver(ctx context.Context, g stmt.Querier, tasks []NewTask, chosen []bool) error {
	wanted := make([][]byte, 0, len(tasks))
	for i := range tasks {
		if chosen[i] && tasks[i].Identity != nil {
			wanted = append(wanted, tasks[i].Identity[:])
		}
	}
	taken := map[dedup.Identity]bool{}
	if err := stmt.Each(ctx, g, takenIdentities.With(pg.Args{"identities": wanted}), func(identity *[]byte) {
		taken[dedup.Identity(*identity)] = true
	}); err != nil {
		return err
	}
	for i := range tasks {
		chosen[i] = chosen[i] && (tasks[i].Identity == nil || !taken[*tasks[i].Identity])
	}
	return nil
}

// A task that waits for others is released by one of three: a message about it, a message
// about the end of the other one, or that task itself, which is alive and marked to
// notify dependents. Every transaction passes from one to the next, so this holds in each
// snapshot.
const (
	// heldTask is whether the task h waits for others.
	HeldTask = `exists (select from tasker.board b where b.task_uuid = h.task_uuid and b.wait ->> 'kind' = 'tasks')
      and not exists (select from tasker.task_messages m where m.kind = any (array[{dependencies}, {dependency_failed}]) and m.task_uuid = h.task_uuid)`
	// untoldEnd is whether no message will report the end of what d depends on.
	UntoldEnd = `not exists (select from tasker.board t where t.task_uuid = d.depends_on and t.slot = 0 and t.awaited)
      and not exists (select from tasker.task_messages m where m.kind = {ended} and m.task_uuid = d.depends_on)`
	// strandedTask is whether nothing will release the task h.
	StrandedTask = `(` + HeldTask + `
      and (not exists (select from tasker.task_dependencies d where d.task_uuid = h.task_uuid)
           or exists (select from tasker.task_dependencies d where d.task_uuid = h.task_uuid and ` + UntoldEnd + `)))`
	// orphanedTask is whether no step waits for the living task h, although it was not
	// called off.
	OrphanedTask = `(h.parent_task_uuid is not null
      and exists (select from tasker.board b where b.task_uuid = h.task_uuid and b.slot = 0)
      and not exists (select from tasker.board b where b.awaits = '` + AwaitsTask + `' || h.task_uuid::text)
      and not exists (select from tasker.task_messages m where m.kind = {stop} and m.task_uuid = h.task_uuid))`
)

func queueOf(p *registry.Plan, step *workflow.PlanStep) int32 {
	if step.Kind.ByEngine() {
		return pg.EngineQueue
	}
	return p.Queue
}

// SendMessages adds a message about each task, even if there is one already: that one may
// be under way without this fact.
var SendMessages = pg.Compile(`
insert into tasker.task_messages (task_uuid, kind) select task_uuid, @kind::smallint from unnest(@tasks::uuid[]) t(task_uuid)`)

// calledOff is the task that a step s was, where that was still waited for.
const calledOff = `case when s.state = {scheduled} then (s.wait ->> 'task_uuid')::uuid end`

// relateTasks adds the relations of tasks created in the same transaction. The first
// steps of a task with dependencies are held: they wait without a due time. Tasks that
// were not created are not found.
// Index: the primary keys.
var relateTasks = pg.Compile(`
with r as materialized (
    select * from ` + stmt.List[relation]("r") + `
), ledger as (
    update tasker.tasks t
    set parent_task_uuid = r.parent, parent_step_no = r.parent_step, depth = r.depth, depends_on = r.depends_on::uuid[]
    from r where t.task_uuid = any (array[r.task_uuid])
), living as (
    update tasker.board b
    set awaited = case when b.slot = 0 and r.parent is not null then true end,
        state = case when held and b.state > {no_step} then {scheduled} else b.state end, due_at = case when held then null else b.due_at end,
        enqueued_at = case when held then null else b.enqueued_at end,
        wait = case when held and b.state > {no_step} then '{"kind":"tasks"}'::jsonb end
    from r, lateral (select r.depends_on is not null as held) h
    where b.task_uuid = any (array[r.task_uuid])
    returning b.task_uuid, b.slot
), held as (
    insert into tasker.task_dependencies (task_uuid, depends_on, lenient)
    select r.task_uuid, d, r.lenient from r join living l on l.task_uuid = r.task_uuid and l.slot = 0
    cross join lateral (select distinct d from unnest(r.depends_on::uuid[]) u(d)) x
)
insert into tasker.task_messages (task_uuid, kind)
select r.task_uuid, {dependencies} from r join living l on l.task_uuid = r.task_uuid and l.slot = 0 where r.depends_on is not null`)

// relation is how a new task relates to others.
type relation struct {
	TaskUUID   uuid.UUID
	Parent     *uuid.UUID
	ParentStep *int   `sql:",smallint"`
	Depth      *int   `sql:",smallint"`
	DependsOn  string `sql:",omitzero"` // see uuidArray
	Lenient    bool
}

// relations are those of new tasks; chosen excludes some, nil includes all.
func relations(tasks []NewTask, chosen []bool) (list []relation) {
	for i := range tasks {
		t := &tasks[i]
		left := chosen != nil && i < len(chosen) && !chosen[i]
		if left || t.Parent == nil && len(t.DependsOn) == 0 {
			continue
		}
		r := relation{TaskUUID: t.UUID, Lenient: t.Lenient}
		if p := t.Parent; p != nil {
			r.Parent, r.ParentStep, r.Depth = &p.Task, &p.Step, &p.Depth
		}
		if len(t.DependsOn) > 0 {
			r.DependsOn = uuidArray(t.DependsOn)
		}
		list = append(list, r)
	}
	return list
}

// uuidArray writes UUIDs as PostgreSQL does.
func uuidArray(list []uuid.UUID) string {
	b := []byte{'{'}
	for i, id := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, id.String()...)
	}
	return string(append(b, '}'))
}

// Relate adds the statement for relations of new tasks, if there are any.
func Relate(b *pgx.Batch, tasks []NewTask, chosen []bool) {
	queueList(b, relateTasks, "r", relations(tasks, chosen))
}

// UnknownTasksError says that new tasks depend on tasks that do not exist.
type UnknownTasksError struct{ Tasks []uuid.UUID }

// Error implements error.
func (e *UnknownTasksError) Error() string {
	return fmt.Sprintf("%d tasks to depend on do not exist, such as %s", len(e.Tasks), e.Tasks[0])
}

// missingTasks returns those that do not exist.
// Index: the primary key.
var missingTasks = pg.Compile(`
select id from unnest(@tasks::uuid[]) i(id) where not exists (select from tasker.tasks t where t.task_uuid = any (array[i.id])) limit 100`)

// dependencyQueues are the namespaces of tasks, null for those that do not exist.
// Index: the primary keys.
var dependencyQueues = pg.Compile(`
select i.id, n.name as namespace from unnest(@tasks::uuid[]) i(id)
left join lateral (select t.queue from tasker.tasks t where t.task_uuid = any (array[i.id]) limit 1) t on true
left join lateral (select name from tasker.namespaces where namespace_id = any (array[t.queue]) limit 1) n on true`)

// unreachable are the dependencies of new tasks that do not exist, or are of namespaces that the
// task which names them does not reach: nothing tells these from the others.
func unreachable(ctx context.Context, db stmt.Querier, tasks []NewTask, chosen []bool, on pg.UUIDs) (missing []uuid.UUID, err error) {
	type dependency struct {
		ID        uuid.UUID
		Namespace *string
	}
	queues := make(map[uuid.UUID]*string, len(on))
	err = stmt.Each(ctx, db, dependencyQueues.With(pg.Args{"tasks": on}), func(d *dependency) { queues[d.ID] = d.Namespace })
	for i := range tasks {
		for _, id := range tasks[i].DependsOn {
			of := queues[id]
			if chosen[i] && (of == nil || tasks[i].Reaches != nil && *of != tasks[i].Plan.Template.Namespace && !tasks[i].Reaches(*of)) {
				missing = append(missing, id)
			}
		}
	}
	return missing[:min(len(missing), mostMissing)], err
}

// mostMissing bounds the dependencies that an error names.
const mostMissing = 100

// checkDependencies checks that the dependencies of new tasks exist; without dependencies
// it runs no statement.
func checkDependencies(ctx context.Context, db stmt.Querier, tasks []NewTask, chosen []bool) error {
	var on pg.UUIDs
	for i := range tasks {
		if chosen[i] {
			for _, id := range tasks[i].DependsOn {
				on = append(on, id)
			}
		}
	}
	if on == nil {
		return nil
	}
	if slices.ContainsFunc(tasks, func(t NewTask) bool { return t.Reaches != nil && len(t.DependsOn) > 0 }) {
		missing, err := unreachable(ctx, db, tasks, chosen, on)
		if err == nil && len(missing) > 0 {
			err = &UnknownTasksError{missing}
		}
		return err
	}
	missing, err := stmt.All[uuid.UUID](ctx, db, missingTasks.With(pg.Args{"tasks": on}))
	if err == nil && len(missing) > 0 {
		err = &UnknownTasksError{missing}
	}
	return err
}
