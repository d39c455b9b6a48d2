package waits

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store/internal/board"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/plantest"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestStatementsStayOnTheirIndexes checks the plans of the statements that begin and end
// waits.
func TestStatementsStayOnTheirIndexes(t *testing.T) {
	plantest.Grown(t, plantest.Fixture.FillWaits, statements)
}

func TestPlansMadeWithFewTemplatesHold(t *testing.T) {
	t.Run("waits", func(t *testing.T) { plantest.FewTemplates(t, plantest.Fixture.FillWaits, statements) })
	t.Run("approvals", func(t *testing.T) { plantest.FewTemplates(t, plantest.Fixture.FillWaits, approvalStatements) })
}

func statements(f plantest.Fixture, t *testing.T, db *pgtest.DB, items int) []plantest.Statement {
	first := f.From + f.Finished + 1
	var tasks, others pg.UUIDs
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
	var keys []board.StepKey
	var waiting []dependency
	var brought []broughtEvent
	var events []awaitedEvent
	end := waitEnd{Outcome: workflow.OutcomeSuccess, Result: []byte(`{}`)}
	require.NoError(t, stmt.Rows(func(r *row) {
		tasks, others, awaits, kept = append(tasks, r.Task), append(others, r.Other), append(awaits, r.Wait), append(kept, r.Event)
		armed, ends = append(armed, armedStep{RowKey: board.RowKey{TaskUUID: r.Task, Slot: 9}, waitEnd: end}), append(ends, endedWait{r.Wait, end})
		keys, waiting = append(keys, board.StepKey{TaskUUID: r.Task, StepNo: 9}), append(waiting, dependency{r.Task, r.Other})
		brought, events = append(brought, broughtEvent{EventUUID: r.Task, TaskUUID: r.Task}), append(events, awaitedEvent{r.Task, r.Wait})
	})(rows))
	require.Len(t, tasks, items)
	stops := make([]StopMessage, items)
	for i := range stops {
		stops[i].Task = tasks[i]
	}
	return []plantest.Statement{
		plantest.Of("engineSteps", engineSteps.With(pg.UpTo(items).Args()), items, items),
		plantest.Of("armSteps", armSteps.With(pg.Args{"r": armed}), items, items),
		plantest.Of("reportWaits", reportWaits.With(pg.Args{"r": ends}), items, items),
		plantest.Of("receiveEvent", receiveEvent.With(pg.Args{"namespace_id": 1, "name": "n", "key": awaits[0], "task": nil, "awaits": awaits[0], "sender": "s" + awaits[0], "payload": `{}`, "keep_ms": int64(1000)}), 1, 1),
		plantest.Of("receivedBefore", receivedBefore.With(pg.Args{"namespace_id": 1, "sender": strings.TrimPrefix(awaits[0], "e")}), 1, 1),
		plantest.Of("keptEvents", keptEvents.With(pg.Args{"awaits": kept}), items, 0),
		plantest.Of("eventsToBring", eventsToBring.With(pg.UpTo(items).Args()), items, items),
		plantest.Of("bringEvents", bringEvents.With(pg.Args{"b": events, "keep_ms": int64(1000)}), items, 0),
		plantest.Of("markBrought", markBrought.With(pg.Args{"b": brought}), items, 0),
		plantest.Of("dropBrought", dropBrought.With(pg.Args{"events": tasks}), items, items),
		plantest.Of("takeMessages", takeMessages.With(pg.UpTo(items).Args().And(pg.Args{"kind": pg.MessageEnded})), items, items),
		plantest.Of("dropStopMessages", dropStopMessages.With(pg.Args{"d": stops}), items, 0),
		plantest.Of("lockWaiting", lockWaiting.With(pg.Args{"awaits": awaits}), items, items),
		plantest.Of("howTasksEnded", howTasksEnded.With(pg.Args{"tasks": tasks}), items, items),
		plantest.Of("awaitTasks", awaitTasks.With(pg.Args{"tasks": tasks}), items, items),
		plantest.Of("lastResults", lastResults.With(pg.Args{"k": keys}), items, 0),
		plantest.Of("dependentsOf", dependentsOf.With(pg.Args{"ended": others, "limit": items}), items, items),
		plantest.Of("dependenciesMet", dependenciesMet.With(pg.Args{"m": waiting}), items, items),
		plantest.Of("sendFailed", sendFailed.With(pg.Args{"tasks": tasks}), items, 0),
		plantest.Of("releaseTasks", releaseTasks.With(pg.Args{"tasks": tasks}), items, 0),
		plantest.Of("strandedTasks", strandedTasks.With(pg.Args{"task": uuid.Nil, "depends_on": uuid.Nil, "limit": items}), items, 1),
		plantest.Of("openDependencies", openDependencies.With(pg.Args{"tasks": tasks}), items, items),
		plantest.Of("approval", readApproval.With(pg.Args{"awaits": awaits[0]}), 1, 1),
	}
}

// approvalStatements are those that look up templates and namespaces. It turns waits for
// events into approvals.
func approvalStatements(f plantest.Fixture, t *testing.T, db *pgtest.DB, items int) []plantest.Statement {
	approval := uuid.MustParse(db.QueryString(t, fmt.Sprintf(`with a as (
		update tasker.board set awaits = 'a' || awaits, claimed_at = now() where slot = 9 and awaits like 'e%%'
			and task_uuid in (select task_uuid from tasker.board where slot = 9 and awaits like 'e%%' and task_uuid >= test_id(%d) order by 1 limit %d)
		returning task_uuid) select min(task_uuid::text) from a`, f.From+f.Finished+1, items)))
	require.NotEqual(t, uuid.Nil, approval)
	task := uuid.MustParse(db.QueryString(t, `select test_id($1)::text`, f.From+f.Finished+1))
	var all ApprovalPlace
	return []plantest.Statement{
		plantest.Of("plansByName", plansByName.With(pg.Args{"w": slices.Repeat([]versionName{{"big", "p", "1.0.0"}}, items)}), items, items),
		plantest.Of("addressOfTask", addressOfTask.With(pg.Args{"task": task}), 1, 1),
		plantest.Of("approvals of all", listApprovals.rows.With(all.args().And(pg.Args{"limit": items})), items, items),
		plantest.Of("approvals of a namespace", searchApprovals.rows.With(all.args().And(pg.Args{"limit": items, "namespace": "big",
			"last_since": infinity, "last_task": uuid.Max, "last_slot": 0})), items, items),
		plantest.Of("approvals of a task", taskApprovals.rows.With(pg.Args{"limit": items, "task": approval}), 1, 1),
	}
}
