package board

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/plantest"
	"github.com/tasker-go/tasker/workflow"
)

func TestDeadLetterClosesByItself(t *testing.T) {
	t.Parallel()
	db := plantest.Open(t)
	f := plantest.Fixture{Waiting: 20}
	f.Fill(t, db)
	pool, tasks := db.Pool(t), plantest.IDs(t, db, 2, `select task_uuid from tasker.board where slot = 0 order by 1 limit $1`)
	record := func(task uuid.UUID, detail string) {
		_, err := pg.Run(t.Context(), pool, RecordDeadLetters.With(pg.Args{"o": []OpenedLetter{{task, workflow.TaskStepsInProcess, workflow.DeadLetterStaleness, detail, nil}}}))
		require.NoError(t, err)
	}
	marked := func(task uuid.UUID) bool {
		return db.QueryBool(t, `select coalesce(dead_letter, false) from tasker.board where task_uuid = $1 and slot = 0`, task)
	}
	record(tasks[0], "waiting_for_retry")
	record(tasks[1], "waiting_for_retry")
	_, err := pg.Run(t.Context(), pool, closeDeadLetters.With(pg.Args{"o": []closedLetter{{tasks[0], pg.ResolutionCancelled, "it was cancelled"},
		{uuid.Must(uuid.NewV7()), pg.ResolutionCancelled, "no reason"}}}))
	require.NoError(t, err)
	require.False(t, marked(tasks[0]))
	require.True(t, marked(tasks[1]))
	require.Equal(t, 1, db.QueryInt(t, `select count(*) from tasker.dlq_entries where task_uuid = $1 and resolution = $2 and resolution_notes = 'it was cancelled'
		and resolution_timestamp is not null`, tasks[0], pg.ResolutionCancelled))
	record(tasks[0], "anew")
	require.Equal(t, 2, db.QueryInt(t, `select count(*) from tasker.dlq_entries where task_uuid = $1`, tasks[0]), "a closed one is not opened again")
}
