package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// TestWaitStatementsStayOnTheirIndexes checks the plans of the statements that begin and
// end waits, on large tables.
func TestWaitStatementsStayOnTheirIndexes(t *testing.T) {
	if testing.Short() {
		t.Skip("fills large tables")
	}
	db := openPlans(t)
	small := fixture{finished: 100, waiting: 200}
	small.fill(t, db)
	small.fillWaits(t, db)
	old := newExplainer(t, db.DSN, "force_generic_plan")
	for _, c := range small.waitStatements(t, db, 1) {
		old.execute(t, c)
	}
	big := fixture{from: small.finished + small.waiting, finished: 20_000, waiting: 60_000, grown: true}
	big.fill(t, db)
	big.fillWaits(t, db)
	check := func(t *testing.T, e *explainer, items int) {
		for _, c := range big.waitStatements(t, db, items) {
			t.Run(fmt.Sprintf("%s/%d", c.name, items), func(t *testing.T) { e.check(t, c) })
		}
	}
	t.Run("planned when small", func(t *testing.T) { check(t, old, 50) })
	db.Exec(t, `analyze`)
	t.Run("generic", func(t *testing.T) { check(t, newExplainer(t, db.DSN, "force_generic_plan"), 50) })
}

// fillWaits gives every tenth living task a waiting step and one to begin, a kept event
// and a delivered one, and a dependency.
func (f fixture) fillWaits(t *testing.T, db *pgtest.DB) {
	first, last := f.from+f.finished+1, f.from+f.finished+f.waiting
	db.Exec(t, `insert into tasker.board (task_uuid, slot, step_no, queue, lane, state, seq, attempt, token, claimed_at, wait, awaits)
		select test_id(i), 9, 8, 0, 200, 1, nextval('tasker.step_seq'), 1, nextval('tasker.claim_token'), now(), '{"kind":"wait_for_event"}', 'e' || i
		from generate_series($1::int, $2::int) i where i % 10 = 0`, first, last)
	db.Exec(t, `insert into tasker.board (task_uuid, slot, step_no, queue, lane, state, seq, enqueued_at)
		select test_id(i), 10, 9, 0, 200, 2, nextval('tasker.step_seq'), now() from generate_series($1::int, $2::int) i where i % 10 = 0`, first, last)
	db.Exec(t, `insert into tasker.received_events (namespace_id, name, key, awaits, sender_id, expires_at, delivered)
		select 1, 'n', i::text, 'k' || i, i::text, now() + interval '1 hour', i % 2 from generate_series($1::int, $2::int) i`, first, last)
	db.Exec(t, `insert into tasker.task_dependencies (task_uuid, depends_on, lenient)
		select test_id(i), test_id(i + 1), false from generate_series($1::int, $2::int) i where i % 10 = 0`, first, last)
	db.Exec(t, `insert into tasker.domain_events (event_uuid, position, task_uuid, correlation_id, fired_at, namespace_id, step_no, attempt, outcome, name, version, fired_by, payload, key)
		select test_id(i), i, test_id(i), test_id(i), now(), 1, 0, 1, 1, 'a.b', '1.0', 'x', '{}', i::text from generate_series($1::int, $2::int) i`, first, last)
	db.Exec(t, `insert into tasker.event_deliveries (event_uuid) select test_id(i) from generate_series($1::int, $2::int) i where i % 10 = 0`, first, last)
	db.Exec(t, `insert into tasker.task_messages (task_uuid, kind) select test_id(i), 1 from generate_series($1::int, $2::int) i where i % 10 = 0`, first, last)
}

func (f fixture) waitStatements(t *testing.T, db *pgtest.DB, items int) []hotStatement {
	first := f.from + f.finished + 1
	var tasks, others uuids
	var awaits, kept []string
	type row struct {
		Task, Other uuid.UUID
		Wait, Event string
	}
	rows, err := db.Pool(t).Query(t.Context(), `select test_id(i) as task, test_id(i + 1) as other, 'e' || i as wait, 'k' || i as event
		from generate_series($1::int, $1::int + 10 * $2::int) i where i % 10 = 0 limit $2`, first, items)
	require.NoError(t, err)
	var armed []armedStep
	var ends []endedWait
	var keys []stepKey
	var waiting []dependency
	var brought []broughtEvent
	var events []awaitedEvent
	end := waitEnd{Outcome: workflow.OutcomeSuccess, Result: []byte(`{}`)}
	require.NoError(t, stmt.Rows(func(r *row) error {
		tasks, others, awaits, kept = append(tasks, r.Task), append(others, r.Other), append(awaits, r.Wait), append(kept, r.Event)
		armed, ends = append(armed, armedStep{rowKey: rowKey{r.Task, 9}, waitEnd: end}), append(ends, endedWait{r.Wait, end})
		keys, waiting = append(keys, stepKey{r.Task, 9}), append(waiting, dependency{r.Task, r.Other})
		brought, events = append(brought, broughtEvent{EventUUID: r.Task, TaskUUID: r.Task}), append(events, awaitedEvent{r.Task, r.Wait})
		return nil
	})(rows))
	require.Len(t, tasks, items)
	stops := make([]StopMessage, items)
	for i := range stops {
		stops[i].Task = tasks[i]
	}
	return []hotStatement{
		{"engineSteps", engineSteps.With(args{"limit": items}), items, items},
		{"armSteps", armSteps.With(args{"r": armed}), items, items},
		{"reportWaits", reportWaits.With(args{"r": ends}), items, items},
		{"receiveEvent", receiveEvent.With(args{"namespace_id": 1, "name": "n", "key": awaits[0], "task": nil, "awaits": awaits[0], "sender": "s" + awaits[0], "payload": `{}`, "keep_ms": int64(1000)}), 1, 1},
		{"receivedBefore", receivedBefore.With(args{"namespace_id": 1, "sender": strings.TrimPrefix(awaits[0], "e")}), 1, 1},
		{"keptEvents", keptEvents.With(args{"awaits": kept}), items, 0},
		{"eventsToBring", eventsToBring.With(args{"limit": items}), items, items},
		{"bringEvents", bringEvents.With(args{"b": events, "keep_ms": int64(1000)}), items, 0},
		{"markBrought", markBrought.With(args{"b": brought}), items, 0},
		{"dropBrought", dropBrought.With(args{"events": tasks}), items, items},
		{"takeMessages", takeMessages.With(args{"kind": messageEnded, "limit": items}), items, items},
		{"dropStopMessages", dropStopMessages.With(args{"d": stops}), items, 0},
		{"lockWaiting", lockWaiting.With(args{"awaits": awaits}), items, items},
		{"howTasksEnded", howTasksEnded.With(args{"tasks": tasks}), items, items},
		{"awaitTasks", awaitTasks.With(args{"tasks": tasks}), items, items},
		{"lastResults", lastResults.With(args{"k": keys}), items, 0},
		{"dependentsOf", dependentsOf.With(args{"ended": others, "limit": items}), items, items},
		{"dependenciesMet", dependenciesMet.With(args{"m": waiting}), items, items},
		{"sendFailed", sendFailed.With(args{"tasks": tasks}), items, 0},
		{"releaseTasks", releaseTasks.With(args{"tasks": tasks}), items, 0},
		{"strandedTasks", strandedTasks.With(args{"task": uuid.Nil, "depends_on": uuid.Nil, "limit": items}), items, 1},
		{"openDependencies", openDependencies.With(args{"tasks": tasks}), items, items},
		{"missingTasks", missingTasks.With(args{"tasks": tasks}), items, 0},
		{"approval", readApproval.With(args{"awaits": awaits[0]}), 1, 1},
	}
}
