package enginetest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// TestATaskThatCannotBeCancelledHoldsUpNoLeasesAndSchedules: the database rejects the end
// of a task whose step was called off. Schedules run all the same, and before them leases end.
func TestATaskThatCannotBeCancelledHoldsUpNoLeasesAndSchedules(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	id := w.Submit("waits", "over_blocked", `{}`)
	sub := w.untilWaiting(id, "sub").Waiting.TaskUUID
	w.DB.Exec(t, `create function refuse() returns trigger language plpgsql as $$
		begin
			if new.task_uuid <> (select min(t.task_uuid::text)::uuid from tasker.tasks t) and new.outcome = 5 then
				raise exception 'refused by the test' using errcode = 'check_violation';
			end if;
			return new;
		end $$`)
	w.DB.Exec(t, `create trigger refuse before insert on tasker.step_attempts for each row execute function refuse()`)
	require.NoError(t, w.Orchestrator.Cancel(t.Context(), id, "ana", "because"))
	w.untilRejected("stops", 1)

	made, err := w.Orchestrator.CreateSchedule(t.Context(), store.Schedule{Namespace: "waits", Name: "hourly", Template: "simple", Version: "1.0.0", Cron: "@every 1h"}, ana)
	require.NoError(t, err)
	w.DB.Exec(t, `update tasker.schedules set next_run_at = now() - interval '1 s'`)
	w.Bus.Publish(signal.Signal{Topic: signal.TopicDue})
	require.Eventually(t, func() bool {
		now, err := w.Store.Schedule(t.Context(), made.UUID)
		return err == nil && now.LastTask != nil
	}, patience, 5*time.Millisecond, "the schedule does not run")
	accept(t, w.DB)
	require.Equal(t, workflow.TaskCancelled, w.Await(*sub).State)
}

// TestWhatTheDatabaseRejectsHoldsUpNoOthers: the begin of a step, the end of a task that is a
// step, and a domain event that a step waits for are rejected for one task. Others of the same
// kind that come later go on, and the rejected ones once the database takes them.
func TestWhatTheDatabaseRejectsHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	const ofRefused = `exists (select from tasker.tasks where task_uuid = new.task_uuid and context ->> 'order' = 'refused')`
	for _, c := range []struct{ name, flow, template, context, table, when, stays string }{
		{"begin", "engine_steps", "paid", `{"order": %q}`, "tasker.board", `new.wait is not null and ` + ofRefused,
			`select exists (select from tasker.board where state = 2 and callable = 0)`},
		{"end", "ends", "parent", `{"n": 1, "order": %q}`, "tasker.board", `new.outcome is not null and new.step_no = 1 and ` + ofRefused,
			`select exists (select from tasker.task_messages)`},
		{"event", "events", "paid", `{"order": %q}`, "tasker.received_events", `new.key = 'refused'`,
			`select exists (select from tasker.event_deliveries)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := startWaiting(t)
			w.DB.Exec(t, `create function refuse() returns trigger language plpgsql as $$
				begin
					if `+c.when+` then raise exception 'refused by the test'; end if;
					return new;
				end $$`)
			w.DB.Exec(t, `create trigger refuse before insert or update on `+c.table+` for each row execute function refuse()`)
			submit := func(order string) uuid.UUID {
				id := w.Submit("waits", c.template, fmt.Sprintf(c.context, order))
				if c.name == "event" {
					w.untilWaiting(id, "paid")
					w.Submit("waits", "pays", fmt.Sprintf(`{"id": %q}`, order))
				}
				return id
			}
			refused := submit("refused")
			w.untilRejected(c.flow, 1)
			require.True(t, w.DB.QueryBool(t, c.stays))
			if another := submit("another"); c.name == "begin" {
				w.untilWaiting(another, "paid")
			} else {
				require.Equal(t, workflow.TaskComplete, w.Await(another).State)
			}
			require.False(t, w.Read(refused).State.Terminal())
			accept(t, w.DB)
			if c.name == "begin" {
				w.untilWaiting(refused, "paid")
				return
			}
			require.Equal(t, workflow.TaskComplete, w.Await(refused).State)
		})
	}
}

// TestWhatTheDatabaseRejectsDelaysNoDueSteps: while a task cannot be cancelled, looks at what
// else is due go on in between.
func TestWhatTheDatabaseRejectsDelaysNoDueSteps(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	id := w.Submit("waits", "unheard", `{}`)
	w.untilWaiting(id, "never")
	w.DB.Exec(t, `create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused by the test'; end $$`)
	w.DB.Exec(t, fmt.Sprintf(`create trigger refuse before insert on tasker.step_attempts for each row when (new.task_uuid = '%s') execute function refuse()`, id))
	w.DB.Exec(t, `insert into tasker.task_messages (task_uuid, kind) select task_uuid, 2 from tasker.tasks`)
	w.Bus.Publish(signal.Signal{Topic: signal.TopicDue})
	w.untilRejected("stops", 2)
	later, err := w.Orchestrator.Create(t.Context(), orchestration.Request{Namespace: "waits", Name: "simple", Version: "1.0.0", Context: []byte(`{}`),
		Initiator: "test", SourceSystem: "test", Reason: "test", StartIn: 10 * time.Millisecond})
	require.NoError(t, err)
	require.Equal(t, workflow.TaskComplete, w.Await(later.UUID).State)
	require.False(t, w.Read(id).State.Terminal())
	accept(t, w.DB)
	require.Equal(t, workflow.TaskCancelled, w.Await(id).State)
}

// TestTasksThatCannotBeCancelledHideNoOthers: as many as one look takes are rejected.
func TestTasksThatCannotBeCancelledHideNoOthers(t *testing.T) {
	t.Parallel()
	const many = 100
	w := startWaiting(t)
	refused := make([]uuid.UUID, many)
	for i := range refused {
		refused[i] = w.Submit("waits", "unheard", fmt.Sprintf(`{"n": %d}`, i))
	}
	another := w.Submit("waits", "unheard", `{}`)
	w.untilWaiting(another, "never")
	w.DB.Exec(t, `create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused by the test'; end $$`)
	w.DB.Exec(t, fmt.Sprintf(`create trigger refuse before insert on tasker.step_attempts for each row when (new.task_uuid <> '%s') execute function refuse()`, another))
	w.DB.Exec(t, `insert into tasker.task_messages (task_uuid, kind) select task_uuid, 2 from tasker.tasks order by task_uuid`)
	w.Bus.Publish(signal.Signal{Topic: signal.TopicDue})
	require.Equal(t, workflow.TaskCancelled, w.Await(another).State)
	require.False(t, w.Read(refused[0]).State.Terminal())
	accept(t, w.DB)
	require.Equal(t, workflow.TaskCancelled, w.Await(refused[0]).State)
}

// TestADependencyThatTheDatabaseRejectsHoldsUpNoOthers: what one task depends on cannot be
// marked. Another task, which depends on an ended one, begins.
func TestADependencyThatTheDatabaseRejectsHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	on, done := w.Submit("waits", "unheard", `{}`), w.Submit("waits", "simple", `{}`)
	w.untilWaiting(on, "never")
	require.Equal(t, workflow.TaskComplete, w.Await(done).State)
	w.DB.Exec(t, `create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused by the test'; end $$`)
	w.DB.Exec(t, `create trigger refuse before update on tasker.board for each row when (new.awaited) execute function refuse()`)
	refused := w.submitAfter("simple", "", on)
	require.Equal(t, workflow.TaskComplete, w.Await(w.submitAfter("simple", "", done)).State)
	require.Equal(t, 1, w.DB.QueryInt(t, `select count(*) from tasker.task_messages where task_uuid = $1`, refused))
	accept(t, w.DB)
	require.NoError(t, w.Orchestrator.Cancel(t.Context(), on, "ana", "why"))
	require.Equal(t, workflow.TaskCancelled, w.Await(refused).State)
}
