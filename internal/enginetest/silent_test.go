package enginetest_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// TestASilentConnectionStopsNoOthers: while the database does not answer the statement that creates a task, others are
// created; while it does not answer one that reports an outcome, others are reported. What was on the silent connection
// ends by its deadline.
func TestASilentConnectionStopsNoOthers(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, func(w *worker.Worker) error {
		return errors.Join(enginetest.RegisterTemplates(w, `
name: one
namespace_name: silent
version: 1.0.0
steps:
  - {name: only, handler: {callable: silent.only}}
`), w.Register("silent.only", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return nil, nil })))
	}, func(_ *orchestration.Config, w *worker.Config) { w.Report.Only = true })
	e.DB.Exec(t, `create table silent (task uuid)`)
	e.DB.Exec(t, `create function silence() returns void language plpgsql as $$
		begin
			perform set_config('lock_timeout', '0', true), pg_advisory_xact_lock(4711);
		end $$`)
	silent := e.DB.Pool(t)
	_, err := silent.Exec(t.Context(), `select pg_advisory_lock(4711)`)
	require.NoError(t, err)
	e.DB.Exec(t, `create function creates_none() returns trigger language plpgsql as $$
		begin
			if new.initiator = 'silent' then perform silence(); end if;
			return new;
		end $$`)
	e.DB.Exec(t, `create function reports_none() returns trigger language plpgsql as $$
		begin
			if new.state = 4 and old.state = 3 and exists (select from silent where task = new.task_uuid) then perform silence(); end if;
			return new;
		end $$`)
	e.DB.Exec(t, `create trigger silence before insert on tasker.tasks for each row execute function creates_none()`)
	e.DB.Exec(t, `create trigger silence before update on tasker.board for each row execute function reports_none()`)
	asks := func(n int, initiator string) orchestration.Request {
		return orchestration.Request{Namespace: "silent", Name: "one", Version: "1.0.0", Context: fmt.Appendf(nil, `{"n":%d}`, n), Initiator: initiator,
			SourceSystem: "t", Reason: "t"}
	}
	asleep := func(n int) func() (bool, string) {
		return func() (bool, string) {
			return e.DB.QueryInt(t, `select count(*) from pg_stat_activity where wait_event = 'advisory' and datname = current_database()`) == n, "no statement is silent"
		}
	}
	var group conc.WaitGroup
	defer group.Wait()
	answered := make(chan struct{})
	group.Go(func() {
		defer close(answered)
		_, err := e.Orchestrator.Create(t.Context(), asks(0, "silent"))
		assert.ErrorIs(t, err, store.ErrUnavailable)
	})
	pgtest.Eventually(t, patience, asleep(1))
	first, err := e.Orchestrator.Create(t.Context(), asks(1, "loud"))
	require.NoError(t, err)
	select {
	case <-answered:
		t.Fatal("it waited for the silent connection")
	default:
	}
	require.Equal(t, workflow.TaskComplete, e.Await(first.UUID).State)
	<-answered

	e.DB.Exec(t, `create function silent_first() returns trigger language plpgsql as $$
		begin
			if new.initiator = 'quiet' then insert into silent values (new.task_uuid); end if;
			return new;
		end $$`)
	e.DB.Exec(t, `create trigger silent_first before insert on tasker.tasks for each row execute function silent_first()`)
	quiet, err := e.Orchestrator.Create(t.Context(), asks(2, "quiet"))
	require.NoError(t, err)
	pgtest.Eventually(t, patience, asleep(1))
	for n := range 5 {
		other, err := e.Orchestrator.Create(t.Context(), asks(10+n, "loud"))
		require.NoError(t, err)
		require.Equal(t, workflow.TaskComplete, e.Await(other.UUID).State)
	}
	e.DB.Exec(t, `delete from silent`) // what is sent again is answered
	require.Equal(t, workflow.TaskComplete, e.Await(quiet.UUID).State)
}
