package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
)

// TestTasksThatComeWhileOthersAreTakenAreSpread: an action takes two tasks, of which one is put on
// the board, as by a reopening, when the other one is spread already. The rules may give a task more
// steps than its row holds.
func TestTasksThatComeWhileOthersAreTakenAreSpread(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, chainYAML)
	here := create(t, s, p, 1)[0]
	coming := newTask(p)
	db.Exec(t, `create function held() returns trigger language plpgsql as $$ begin
		perform set_config('lock_timeout', '0', true), pg_advisory_xact_lock_shared(1); return new; end $$`)
	db.Exec(t, fmt.Sprintf(`create trigger held before insert on tasker.board for each row when (new.slot > 0 and new.task_uuid = '%s') execute function held()`, here))
	var group conc.WaitGroup
	var taken *store.Taken
	var failed error
	require.NoError(t, pgx.BeginFunc(t.Context(), db.Pool(t), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `select pg_advisory_xact_lock(1)`); err != nil {
			return err
		}
		group.Go(func() {
			taken, failed = s.TakeTasks(t.Context(), []uuid.UUID{here, coming.UUID}, store.Taking{Spread: true})
		})
		pgtest.Eventually(t, time.Minute, func() (bool, string) {
			n := db.QueryInt(t, `select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'advisory'`)
			return n == 1, fmt.Sprintf("%d sessions wait", n)
		})
		_, err := s.CreateTasks(t.Context(), []store.NewTask{coming})
		return err
	}))
	group.Wait()
	require.NoError(t, failed)
	defer taken.Release()
	require.Len(t, taken.Tasks, 2)
	for i := range taken.Tasks {
		require.False(t, taken.Tasks[i].Inline, taken.Tasks[i].UUID)
	}
}
