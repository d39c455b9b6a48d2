package ledger

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/attemptlog"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/plantest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestStatementsStayOnTheirIndexes checks the plans of all of them.
func TestStatementsStayOnTheirIndexes(t *testing.T) {
	plantest.Grown(t, plantest.Fixture.FillOperations, statements)
}

func TestPlansMadeWithFewTemplatesHold(t *testing.T) {
	plantest.FewTemplates(t, plantest.Fixture.FillOperations, statements)
}

func statements(f plantest.Fixture, t *testing.T, db *pgtest.DB, perStatement int) []plantest.Statement {
	items, youngest := perStatement, f.From+f.Finished
	done := plantest.EndedTasks(t, db, f.From+1, f.Finished, items)
	living := plantest.IDs(t, db, items, `select task_uuid from tasker.board where slot = 0 and task_uuid > test_id($1) order by 1 limit $2`, youngest)
	ended := plantest.IDs(t, db, items, `select task_uuid from tasker.step_attempts where task_uuid > test_id($1) order by 1 limit $2`, f.From)
	split := plantest.IDs(t, db, items, `select distinct task_uuid from tasker.batches where task_uuid > test_id($1) order by 1 limit $2`, youngest)
	var tasks pg.UUIDs
	for _, id := range living {
		tasks = append(tasks, id)
	}
	chained := func(before int) uuid.UUID {
		return uuid.MustParse(db.QueryString(t, `select test_id($1)::text`, f.From+f.Finished+f.Waiting-before))
	}
	window := pg.Args{"hours": 24 * 365, "tasks": items, "attempts": 3 * items}
	slowest := window.And(pg.Args{"limit": 10, "min": 1})
	recording := pg.Args{"namespace": db.QueryString(t, `select name from tasker.namespaces where namespace_id = (select queue from tasker.tasks limit 1)`),
		"from": time.Unix(0, 0), "after": ended[0]}
	page := recording.And(pg.Args{"edge": ended[len(ended)-1], "handler": "", "tag": "tenant:", "path": []string{"tenant"}, "attempts": 200, "learning": true})
	return []plantest.Statement{
		plantest.Of("recordedEdge", recordedEdge.With(recording.And(pg.Args{"to": time.Now().AddDate(1, 0, 0), "tasks": items})), items, 1),
		plantest.Of("recorded", recorded.With(page), 3*items, 0),
		plantest.Of("performance", performance.With(window), 3*items, 1),
		plantest.Of("slowSteps", slowSteps.With(slowest), 3*items, 0),
		plantest.Of("slowTasks", slowTasks.With(slowest), 3*items, 0),
		plantest.Of("stateCounts", stateCounts.With(window.And(pg.Args{"rows": 2 * items, "steps": 10 * items})), 3*items, 0),
		plantest.Of("taskEnds", taskEnds.With(pg.Args{"tasks": slices.Concat(done, tasks)}), perStatement+len(done), len(done)),
		plantest.Of("readTaskRow", readTaskRow.With(pg.Args{"tasks": tasks, "context": true}), perStatement, perStatement),
		plantest.Of("readBoard", readBoard.With(pg.Args{"tasks": tasks, "results": true, "brief": false}), 2*perStatement, 0),
		plantest.Of("readAttempts", readAttempts.With(pg.Args{"tasks": tasks, "results": true, "brief": false}), perStatement, 0),
		plantest.Of("chainBefore", chainBefore.With(pg.Args{"task": chained(0), "limit": 51}), 51, 51),
		plantest.Of("chainAfter", chainAfter.With(pg.Args{"task": chained(51), "limit": 51}), 51, 51),
		plantest.Of("readBatches", readBatches.With(pg.Args{"tasks": split}), 3*items, 3*items),
		plantest.Of("readBatchAttempts", readBatchAttempts.With(pg.Args{"tasks": split, "results": true, "brief": false}), 3*items, 0),
		plantest.Of("readBatchResults", readBatchResults.With(pg.Args{"task": split[0], "template": 1, "after": -1, "limit": items}), 3, min(3, items)),
		plantest.Of("madeGroups", madeGroups.With(pg.Args{"tasks": split}), 6*items, 0),
		plantest.Of("stepAttempts", stepAttempts.With(pg.Args{"task": ended[0], "step": nil}), 1, 1),
		plantest.Of("stepAttempts of one", stepAttempts.With(pg.Args{"task": ended[0], "step": 0}), 1, 1),
	}
}

// TestTransitionsAreReadByTheirTransactions: what an old transaction leaves to read is its
// own, however many have been read since it began.
func TestTransitionsAreReadByTheirTransactions(t *testing.T) {
	plantest.Grown(t, fillTransitions, transitionStatements)
}

// fillTransitions adds as many transitions and followed tasks as there are tasks, with the
// numbers of these as transactions.
func fillTransitions(f plantest.Fixture, t *testing.T, db *pgtest.DB) {
	first, last := f.From+1, f.From+f.Finished+f.Waiting
	db.Exec(t, `insert into tasker.transitions (xid, task_uuid, queue, step_no, attempt, outcome)
		select i::text::xid8, test_id(i), 1, 0, 1, 1 from generate_series($1::int, $2::int) i`, first, last)
	db.Exec(t, `insert into tasker.followed (scope, until) select 't:' || test_id(i), now() + interval '1 h' from generate_series($1::int, $2::int) i`, first, last)
}

func transitionStatements(f plantest.Fixture, _ *testing.T, _ *pgtest.DB, items int) []plantest.Statement {
	last := f.From + f.Finished + f.Waiting
	end := last - items + 2
	old := last - 10*items
	after := fmt.Sprintf("%d:%d:%d", old, end, old) // one that has been running for long
	scopes := []string{Scope{Task: uuid.Max}.String(), Scope{}.String()}
	every := TransitionQuery{Scopes: []Scope{{}}, After: after, Limit: 2 * items}
	page := TransitionQuery{Scopes: []Scope{{Queue: 1}, {Task: uuid.Max}}, After: after, Upto: fmt.Sprintf("%d:%d:", last+1, last+1), Limit: 2 * items}
	return []plantest.Statement{
		plantest.Of("readTransitions", readTransitions.With(every.args()), items, items),
		plantest.Of("readTransitions of a page", readTransitions.With(page.args()), items, items),
		plantest.Of("forgetTransitions", forgetTransitions.With(pg.Args{"before": fmt.Sprintf("%d:%d:", last, last), "limit": items, "skip": 0}), items, items),
		plantest.Of("follow", follow.With(pg.Args{"scopes": scopes, "ms": time.Minute.Milliseconds(), "margin_ms": int64(1)}), 2, 2),
	}
}

// TestLogsStayOnTheirKeys: of the logs of all tasks those of one are read, and a write touches its own
// rows; the children of a task are found by their parent.
func TestLogsStayOnTheirKeys(t *testing.T) {
	plantest.Grown(t, fillLogs, logStatements)
}

// fillLogs adds two chunks of an attempt for each task, how far it is, and a child of every fifth task.
func fillLogs(f plantest.Fixture, t *testing.T, db *pgtest.DB) {
	first, last := f.From+1, f.From+f.Finished+f.Waiting
	db.Exec(t, `insert into tasker.attempt_logs (task_uuid, at, token, first_line, last_at, xid, lines, step_no, attempt, levels, content)
		select test_id(i), now() + n * interval '1 s', i, n, now(), i::text::xid8, 1, 0, 1, 2, 'x' from generate_series($1::int, $2::int) i cross join generate_series(0, 1) n`, first, last)
	db.Exec(t, `insert into tasker.attempt_progress (task_uuid, step_no, token, fraction, message)
		select test_id(i), 0, i, 0.5, 'half' from generate_series($1::int, $2::int) i`, first, last)
	db.Exec(t, `update tasker.tasks set parent_task_uuid = test_id(i - 1), parent_step_no = 0 from generate_series($1::int + 1, $2::int, 5) i where task_uuid = test_id(i)`, first, last)
}

func logStatements(f plantest.Fixture, t *testing.T, db *pgtest.DB, items int) []plantest.Statement {
	last := f.From + f.Finished + f.Waiting
	tasks := plantest.IDs(t, db, items, `select task_uuid from tasker.attempt_logs where task_uuid > test_id($1) group by 1 order by 1 limit $2`, last-items-1)
	one, chunks, progress, dropped := tasks[0], []LogChunk{}, []StepProgress{}, []DroppedLog{}
	for i, task := range tasks {
		of := LogOf{Task: task, Step: 0, Token: int64(i), Attempt: 1}
		chunks = append(chunks, LogChunk{LogOf: of, Chunk: attemptlog.Chunk{At: time.Now(), First: 7, Last: time.Now(), Lines: 1, Levels: 2, Content: []byte("x")}})
		progress = append(progress, StepProgress{Task: task, Token: int64(last), Fraction: 0.75})
		dropped = append(dropped, DroppedLog{task, int64(last), attemptlog.Range{From: time.Now().Add(-time.Hour), Upto: time.Now().Add(time.Hour), UptoLine: 1}})
	}
	follow := LogQuery{Task: one, Levels: 15, Since: fmt.Sprintf("%d:%d:", f.From+1, f.From+1), Recent: time.Now().Add(-time.Hour), Limit: 32}
	parent := uuid.MustParse(db.QueryString(t, `select parent_task_uuid::text from tasker.tasks where task_uuid > test_id($1) and parent_task_uuid is not null order by task_uuid limit 1`, last-11))
	return []plantest.Statement{
		plantest.Of("readLogs", readLogs.With((&LogQuery{Task: one, Levels: 15, Limit: 32}).args()), 3, 0),
		plantest.Of("readLogs of those who follow", readLogs.With(follow.args()), 3, 0),
		plantest.Of("readProgress", readProgress.With(pg.Args{"tasks": pg.UUIDs{one}}), 1, 1),
		plantest.Of("readChildren", readChildren.With(pg.Args{"task": parent, "limit": 1_001}), 5, 1),
		plantest.Of("keepLogs", keepLogs.With(pg.Args{"c": chunks, "d": dropped, "s": progress}), 3*len(tasks), 0),
	}
}
