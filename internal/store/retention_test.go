package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// ledger is a store whose ledger has past days.
type ledger struct {
	*store.Store
	t    *testing.T
	db   *pgtest.DB
	plan *store.Plan
	n    int
}

func newLedger(t *testing.T, daysAgo ...int) *ledger {
	t.Helper()
	s, db := open(t)
	for _, ago := range daysAgo {
		for _, table := range []string{"tasks", "step_attempts", "task_events"} {
			createDay(t, db, table, ago)
		}
	}
	return &ledger{Store: s, t: t, db: db, plan: plan(t, s, oneStepYAML)}
}

func dayName(ago int) string { return time.Now().UTC().AddDate(0, 0, -ago).Format("20060102") }

func createDay(t *testing.T, db *pgtest.DB, table string, ago int) {
	t.Helper()
	from, to := dayStart(ago), dayStart(ago-1)
	db.Exec(t, fmt.Sprintf(`create table tasker.%s_%s partition of tasker.%s for values from ('%s') to ('%s')`, table, dayName(ago), table,
		db.QueryString(t, `select tasker.uuid_floor($1)::text`, from), db.QueryString(t, `select tasker.uuid_floor($1)::text`, to)))
}

func dayStart(ago int) time.Time { return time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -ago) }

// ended makes tasks that were created at a moment and ended at another.
func (l *ledger) ended(n int, created, ended time.Time) (ids []uuid.UUID) {
	l.t.Helper()
	for range n {
		l.n++
		id := l.at(created)
		ids = append(ids, id)
		l.db.Exec(l.t, `insert into tasker.tasks (task_uuid, requested_at, plan_id, queue, priority, context) values ($1, $2, $3, $4, 0, '{}')`,
			id, created, l.plan.ID, l.plan.Queue)
		l.db.Exec(l.t, `insert into tasker.step_attempts (task_uuid, token, applied_at, step_no, attempt, outcome, task_state, task_progress)
			values ($1, 1, $2, 0, 1, 2, null, null), ($1, 2, $2, 0, 2, 1, 9, $3)`, id, ended, workflow.NewProgress(l.plan.Plan).Encode())
		l.db.Exec(l.t, `insert into tasker.task_events (task_uuid, at, from_state, to_state, actor) values ($1, $2, 4, 7, 'test')`, id, ended)
	}
	return ids
}

func (l *ledger) at(created time.Time) (id uuid.UUID) {
	id = uuid.Must(uuid.NewV7())
	ms := created.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	return id
}

// alive makes a task that was created at a moment and is on the board.
func (l *ledger) alive(created time.Time) uuid.UUID {
	l.t.Helper()
	id := l.at(created)
	_, err := l.CreateTasks(l.t.Context(), []store.NewTask{{UUID: id, Plan: l.plan, Context: json.RawMessage(`{}`), CorrelationID: id}})
	require.NoError(l.t, err)
	return id
}

// all calls Retain until nothing is left to do.
func (l *ledger) all(limits store.RetentionLimits, dry bool) (sum store.Retained) {
	l.t.Helper()
	for calls := 0; ; calls++ {
		require.Less(l.t, calls, 100)
		r, err := l.Retain(l.t.Context(), limits, dry)
		require.NoError(l.t, err)
		sum.Days = append(sum.Days, r.Days...)
		sum.Tasks, sum.Workers, sum.Identities = sum.Tasks+r.Tasks, sum.Workers+r.Workers, sum.Identities+r.Identities
		sum.DeadLetters, sum.Actions, sum.Busy = sum.DeadLetters+r.DeadLetters, sum.Actions+r.Actions, sum.Busy+r.Busy
		if !r.More {
			return sum
		}
	}
}

func (l *ledger) rows(table string) int {
	return l.db.QueryInt(l.t, `select count(*) from tasker.`+table)
}

func (l *ledger) has(id uuid.UUID) bool {
	return l.db.QueryBool(l.t, `select exists (select from tasker.tasks where task_uuid = $1) and exists (select from tasker.step_attempts where task_uuid = $1)`, id)
}

const week = 7 * 24 * time.Hour

var weekLimits = store.RetentionLimits{TTL: week, DeadLetterTTL: 4 * week, Batch: 5}

func TestWholeDaysAreDropped(t *testing.T) {
	t.Parallel()
	l := newLedger(t, 20, 12, 5)
	l.ended(30, dayStart(20).Add(time.Hour), dayStart(20).Add(2*time.Hour))
	young := l.ended(3, dayStart(5), dayStart(5))
	require.Equal(t, []string{dayName(20), dayName(12)}, l.all(weekLimits, true).Days, "and the empty day")
	require.Equal(t, 33, l.rows("tasks"), "a dry run drops nothing")
	require.Equal(t, store.Retained{Days: []string{dayName(20), dayName(12)}}, l.all(weekLimits, false))
	require.Equal(t, []int{3, 6, 3}, []int{l.rows("tasks"), l.rows("step_attempts"), l.rows("task_events")})
	require.True(t, l.has(young[0]))
	require.Zero(t, l.db.QueryInt(t, `select count(*) from pg_class where relname like '%'||$1`, dayName(20)))
	require.Equal(t, store.Retained{}, l.all(weekLimits, false))
	require.Equal(t, store.Retained{}, l.all(store.RetentionLimits{Batch: 5}, false), "0 keeps everything")
}

func TestLateEndsKeepADay(t *testing.T) {
	t.Parallel()
	l := newLedger(t, 20, 10, 9)
	l.ended(12, dayStart(20), dayStart(20))
	late := l.ended(2, dayStart(20).Add(time.Hour), dayStart(3))
	l.ended(12, dayStart(10), dayStart(10))
	soon := time.Now().Add(-week + time.Hour)
	l.ended(1, dayStart(10).Add(time.Hour), soon)
	r := l.all(weekLimits, false)
	require.Equal(t, []string{dayName(9)}, r.Days)
	require.Equal(t, 12, r.Tasks, "of the day that stays for days, not of the one that can be dropped in an hour")
	require.True(t, l.has(late[0]))
	require.Equal(t, 2+13, l.rows("tasks"))
	l.db.Exec(t, `update tasker.step_attempts set applied_at = $1 where applied_at = $2`, dayStart(9), soon)
	require.Equal(t, store.Retained{}, l.all(weekLimits, false), "the day is not read again before its time")
}

func TestLivingTasksAndOpenDeadLettersKeepADay(t *testing.T) {
	t.Parallel()
	l := newLedger(t, 20, 15)
	living := l.alive(dayStart(20).Add(time.Minute))
	looked := l.ended(1, dayStart(15), dayStart(15))[0]
	entry, _, err := l.OpenDeadLetter(t.Context(), looked, workflow.DeadLetterManual, "odd", "ana", nil)
	require.NoError(t, err)
	l.ended(7, dayStart(20), dayStart(20))
	l.ended(7, dayStart(15), dayStart(15))
	require.Equal(t, 14, l.all(weekLimits, true).Tasks)
	require.Equal(t, store.Retained{Tasks: 14}, l.all(weekLimits, false))
	require.Equal(t, 2, l.rows("tasks"))
	require.True(t, l.has(looked))
	task, err := l.Task(t.Context(), living)
	require.NoError(t, err)
	require.Equal(t, workflow.TaskPending, task.State)

	closed := store.ResolutionCancelled
	_, err = l.UpdateDeadLetter(t.Context(), entry.UUID, store.DeadLetterUpdate{Resolution: &closed})
	require.NoError(t, err)
	require.Equal(t, []string{dayName(15)}, l.all(weekLimits, false).Days)
	_, err = l.DeadLetter(t.Context(), entry.UUID)
	require.NoError(t, err, "an entry outlives its task")
}

func TestDefaultPartitionIsEmptiedRowByRow(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.ended(12, dayStart(20), dayStart(20))
	young := l.ended(1, dayStart(20), dayStart(2))[0]
	living := l.alive(dayStart(20).Add(time.Hour))
	require.Equal(t, 14, l.rows("tasks_default"))
	require.Equal(t, store.Retained{Tasks: 12}, l.all(weekLimits, false))
	require.True(t, l.has(young))
	require.Equal(t, 2, l.rows("tasks"))
	require.Equal(t, []int{2, 1}, []int{l.rows("step_attempts"), l.rows("task_events")})
	_, err := l.Task(t.Context(), living)
	require.NoError(t, err)
}

// TestHalfCreatedDay: a day's partition could be created for some tables only, and rows
// of the others are in the default partition.
func TestHalfCreatedDay(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	createDay(t, l.db, "tasks", 20)
	l.ended(12, dayStart(20), dayStart(20))
	late := l.ended(1, dayStart(20), dayStart(2))[0]
	require.Equal(t, store.Retained{Tasks: 12}, l.all(weekLimits, false))
	require.True(t, l.has(late), "its end stands in the default partition")
}

func TestShortTTLDeletesRowByRow(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	now := time.Now()
	l.ended(12, now.Add(-3*time.Hour), now.Add(-2*time.Hour))
	young := l.ended(2, now.Add(-3*time.Hour), now.Add(-30*time.Minute))
	l.ended(2, now.Add(-10*time.Minute), now.Add(-9*time.Minute))
	limits := store.RetentionLimits{TTL: time.Hour, Batch: 5}
	require.Equal(t, store.Retained{Tasks: 12}, l.all(limits, false))
	require.True(t, l.has(young[0]))
	require.Equal(t, 4, l.rows("tasks"))
	more := l.ended(3, now.Add(-100*time.Minute), now.Add(-90*time.Minute))
	require.Equal(t, 3, l.all(limits, false).Tasks, "the walk continues with tasks ended since")
	require.False(t, l.has(more[0]))
	require.Positive(t, l.db.QueryInt(t, `select count(*) from pg_class where relname = 'tasks_'||$1`, dayName(0)), "today stays")
}

func TestRetainGivesWayToWhoeverUsesTheLedger(t *testing.T) {
	t.Parallel()
	l := newLedger(t, 20)
	l.ended(1, dayStart(20), dayStart(20))
	tx, err := l.db.Pool(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select from tasker.tasks limit 1`)
	require.NoError(t, err)
	require.Equal(t, store.Retained{Busy: 1}, l.all(weekLimits, false))
	require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context())))
	require.Equal(t, []string{dayName(20)}, l.all(weekLimits, false).Days)
}

// What cannot be dropped, such as a day that a view uses, holds up nothing else.
func TestADayThatCannotBeDroppedHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	l := newLedger(t, 20, 12)
	kept := l.ended(1, dayStart(20), dayStart(20))
	l.ended(1, dayStart(12), dayStart(12))
	for _, ago := range []int{20, 12} {
		createDay(t, l.db, "domain_events", ago)
	}
	l.db.Exec(t, fmt.Sprintf(`create view days as select task_uuid from tasker.tasks_%[1]s union all select event_uuid from tasker.domain_events_%[1]s`, dayName(20)))
	limits := weekLimits
	limits.EventTTL = week
	for _, want := range []store.Retained{{Days: []string{dayName(12)}, EventDays: []string{dayName(12)}}, {}} {
		gone, err := l.Retain(t.Context(), limits, false)
		require.ErrorContains(t, err, "drop a day of the ledger")
		require.ErrorContains(t, err, "drop a day of domain events")
		require.Equal(t, want, gone)
	}
	require.True(t, l.has(kept[0]))
	l.db.Exec(t, `drop view days`)
	gone, err := l.Retain(t.Context(), limits, false)
	require.NoError(t, err)
	require.Equal(t, store.Retained{Days: []string{dayName(20)}, EventDays: []string{dayName(20)}}, gone)
}

// TestTaskThatIsBroughtBackIsNotDeleted: a transaction that reopens a task locks its end.
func TestTaskThatIsBroughtBackIsNotDeleted(t *testing.T) {
	t.Parallel()
	l := newLedger(t, 20)
	l.alive(dayStart(20).Add(time.Hour)) // keeps the day
	back := l.ended(2, dayStart(20), dayStart(20))
	tx, err := l.db.Pool(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select from tasker.step_attempts where task_uuid = $1 and task_state is not null for update`, back[0])
	require.NoError(t, err)
	require.Equal(t, 1, l.all(weekLimits, false).Tasks)
	require.True(t, l.has(back[0]))
	require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context())))
}

func TestRegistryAndRecordsHaveTheirTime(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for _, id := range []uuid.UUID{uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())} {
		d := store.Daemon{UUID: id, ID: "d"}
		_, err := l.WorkerHeartbeat(t.Context(), d, nil, time.Minute)
		require.NoError(t, err)
		_, err = l.ProcessorHeartbeat(t.Context(), d, time.Minute, false)
		require.NoError(t, err)
		require.NoError(t, l.RecordAction(t.Context(), store.OperatorAction{Actor: "a", Action: "cancel"}))
	}
	for _, key := range []string{"a", "b", "c"} {
		identity := dedup.KeyIdentity("flows", "one", key)
		n := newTask(l.plan)
		n.Identity = &identity
		if key != "c" {
			n.IdentityEnd.After = time.Hour
		}
		_, err := l.CreateTasks(t.Context(), []store.NewTask{n})
		require.NoError(t, err)
	}
	l.db.Exec(t, `update tasker.workers set heartbeat_at = now() - interval '8 days' where worker_uuid = (select worker_uuid from tasker.workers limit 1)`)
	l.db.Exec(t, `update tasker.processors set heartbeat_at = now() - interval '8 days'`)
	l.db.Exec(t, `update tasker.operator_actions set at = now() - interval '60 days' where action_id = 1`)
	l.db.Exec(t, `update tasker.task_identities set expires_at = now() where identity = (select identity from tasker.task_identities where expires_at < 'infinity' limit 1)`)
	want := store.Retained{Workers: 3, Identities: 1, Actions: 1}
	require.Equal(t, want, l.all(weekLimits, true))
	require.Equal(t, want, l.all(weekLimits, false))
	require.Equal(t, []int{1, 0, 1, 2}, []int{l.rows("workers"), l.rows("processors"), l.rows("operator_actions"), l.rows("task_identities")})
	require.Equal(t, store.Retained{}, l.all(weekLimits, false))
}

// TestOldEventsGo: whole days, read or not; and events without a day.
func TestOldEventsGo(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	plan(t, s, publishingYAML)
	for _, ago := range []int{12, 9, 7} {
		createDay(t, db, "domain_events", ago)
	}
	put := func(at time.Time) {
		db.Exec(t, `insert into tasker.domain_events (event_uuid, position, task_uuid, correlation_id, fired_at, namespace_id, step_no, attempt, outcome,
				name, version, fired_by, payload)
			select overlay(gen_random_uuid()::text placing left(tasker.uuid_floor($1)::text, 13) from 1 for 13)::uuid, nextval('tasker.event_position'),
				gen_random_uuid(), gen_random_uuid(), $1, 1, 0, 1, 1, 'a.b', '1.0', 'x', '{}'`, at)
	}
	for _, ago := range []int{12, 10, 9, 8, 7, 0} {
		put(dayStart(ago).Add(time.Minute))
	}
	left := func() int { return db.QueryInt(t, `select count(*)::int from tasker.domain_events`) }
	limits := store.RetentionLimits{EventTTL: week, Batch: 10}
	dry, err := s.Retain(t.Context(), limits, true)
	require.NoError(t, err)
	require.Equal(t, []string{dayName(12), dayName(9)}, dry.EventDays)
	require.Equal(t, 2, dry.Events)
	require.Equal(t, 6, left())
	gone, err := s.Retain(t.Context(), limits, false)
	require.NoError(t, err)
	require.Equal(t, []string{dayName(12), dayName(9)}, gone.EventDays)
	require.Equal(t, 2, gone.Events)
	require.Equal(t, 2, left(), "the day of a week ago is not over long enough")
	again, err := s.Retain(t.Context(), limits, false)
	require.NoError(t, err)
	require.Empty(t, again.EventDays)
	none, err := s.Retain(t.Context(), store.RetentionLimits{Batch: 10}, false)
	require.NoError(t, err)
	require.Empty(t, none.EventDays)
}
