package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
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
	slots, outcomes := make([]int16, items), make([]*int16, items)
	texts, flags, dues, times := make([]*string, items), make([]*bool, items), make([]int64, items), make([]*string, items)
	rows, err := db.Pool(t).Query(t.Context(), `select test_id(i), test_id(i + 1), 'e' || i, 'k' || i from generate_series($1::int, $1::int + 10 * $2::int) i where i % 10 = 0 limit $2`, first, items)
	require.NoError(t, err)
	var task, other uuid.UUID
	var wait, event string
	_, err = pgx.ForEachRow(rows, []any{(*[16]byte)(&task), (*[16]byte)(&other), &wait, &event}, func() error {
		tasks, others, awaits, kept = append(tasks, task), append(others, other), append(awaits, wait), append(kept, event)
		return nil
	})
	require.NoError(t, err)
	require.Len(t, tasks, items)
	one, result := int16(1), `{}`
	for i := range slots {
		slots[i], outcomes[i], texts[i] = 9, &one, &result
	}
	ids := make([]uuid.UUID, items)
	for i := range ids {
		ids[i] = tasks[i]
	}
	nulls, kinds, numbers := make([]*string, items), make([]int16, items), make([]int64, items)
	return []hotStatement{
		{"engineSteps", engineSteps, []any{items}, items, items},
		{"armSteps", armSteps, []any{tasks, slots, outcomes, flags, texts, nulls, nulls, nulls, dues, times}, items, items},
		{"reportWaits", reportWaits, []any{awaits, outcomes, flags, texts, nulls}, items, items},
		{"receiveEvent", receiveEvent, []any{1, "n", awaits[0], nil, awaits[0], "s" + awaits[0], `{}`, int64(1000)}, 1, 1},
		{"receivedBefore", receivedBefore, []any{1, strings.TrimPrefix(awaits[0], "e")}, 1, 1},
		{"keptEvents", keptEvents, []any{kept}, items, 0},
		{"eventsToBring", eventsToBring, []any{items}, items, items},
		{"bringEvents", bringEvents, []any{tasks, awaits, int64(1000)}, items, 0},
		{"markBrought", markBrought, []any{tasks, make([]int32, items), tasks}, items, 0},
		{"dropBrought", dropBrought, []any{tasks}, items, items},
		{"takeMessages", takeMessages, []any{messageEnded, items}, items, items},
		{"dropStopMessages", dropStopMessages, []any{kinds, tasks, numbers}, items, 0},
		{"lockWaiting", lockWaiting, []any{awaits}, items, items},
		{"howTasksEnded", howTasksEnded, []any{tasks}, items, items},
		{"awaitTasks", awaitTasks, []any{tasks}, items, items},
		{"lastResults", lastResults, []any{tasks, slots}, items, 0},
		{"dependentsOf", dependentsOf, []any{others, items}, items, items},
		{"dependenciesMet", dependenciesMet, []any{tasks, others}, items, items},
		{"sendFailed", sendFailed, []any{tasks}, items, 0},
		{"releaseTasks", releaseTasks, []any{tasks}, items, 0},
		{"strandedTasks", strandedTasks, []any{uuid.Nil, uuid.Nil, items}, items, 1},
		{"openDependencies", openDependencies, []any{tasks}, items, items},
		{"missingTasks", missingTasks, []any{tasks}, items, 0},
		{"approval", approvals + `where s.awaits = $1`, []any{awaits[0]}, 1, 1},
	}
}
