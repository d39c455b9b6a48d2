package ledger

import (
	"slices"
	"testing"

	"github.com/google/uuid"

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
	return []plantest.Statement{
		plantest.Of("performance", performance.With(window), 3*items, 1),
		plantest.Of("slowSteps", slowSteps.With(slowest), 3*items, 0),
		plantest.Of("slowTasks", slowTasks.With(slowest), 3*items, 0),
		plantest.Of("stateCounts", stateCounts.With(window.And(pg.Args{"rows": 2 * items, "steps": 10 * items})), 3*items, 0),
		plantest.Of("taskEnds", taskEnds.With(pg.Args{"tasks": slices.Concat(done, tasks)}), perStatement+len(done), len(done)),
		plantest.Of("readTaskRow", readTaskRow.With(pg.Args{"tasks": tasks, "context": true}), perStatement, perStatement),
		plantest.Of("readBoard", readBoard.With(pg.Args{"tasks": tasks, "results": true}), 2*perStatement, 0),
		plantest.Of("readAttempts", readAttempts.With(pg.Args{"tasks": tasks, "results": true}), perStatement, 0),
		plantest.Of("chainBefore", chainBefore.With(pg.Args{"task": chained(0), "limit": 51}), 51, 51),
		plantest.Of("chainAfter", chainAfter.With(pg.Args{"task": chained(51), "limit": 51}), 51, 51),
		plantest.Of("readBatches", readBatches.With(pg.Args{"tasks": split}), 3*items, 3*items),
		plantest.Of("readBatchAttempts", readBatchAttempts.With(pg.Args{"tasks": split, "results": true}), 3*items, 0),
		plantest.Of("readBatchResults", readBatchResults.With(pg.Args{"task": split[0], "template": 1, "after": -1, "limit": items}), 3, min(3, items)),
		plantest.Of("madeGroups", madeGroups.With(pg.Args{"tasks": split}), 6*items, 0),
		plantest.Of("stepAttempts", stepAttempts.With(pg.Args{"task": ended[0], "step": nil}), 1, 1),
		plantest.Of("stepAttempts of one", stepAttempts.With(pg.Args{"task": ended[0], "step": 0}), 1, 1),
	}
}
