package enginetest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// TestATaskThatOthersHaveAppliedIsNotEnded: the database rejects the reports of a task three
// times, so that an orchestrator blames the task. Before it takes the task again to end it,
// two others apply the reports.
func TestATaskThatOthersHaveAppliedIsNotEnded(t *testing.T) {
	t.Parallel()
	o, rejected, next := newOperators(false), make(chan struct{}), make(chan struct{})
	core, _ := observer.New(zap.ErrorLevel)
	slow := zap.New(core, zap.Hooks(func(entry zapcore.Entry) error {
		if strings.Contains(entry.Message, "which is set aside") {
			rejected <- struct{}{}
			<-next
		}
		return nil
	}))
	e := start(t, o, func(c *orchestration.Config, w *worker.Config) { c.Logger, w.Report.Only = slow, true })
	e.DB.Exec(t, `create function refuse() returns trigger language plpgsql as $$
		begin
			if new.step_no = 1 and new.outcome <> 5 and new.task_uuid = (select t.task_uuid from tasker.tasks t order by t.task_uuid limit 1) then
				raise exception 'refused by the test' using errcode = 'check_violation';
			end if;
			return new;
		end $$`)
	e.DB.Exec(t, `create trigger refuse before insert on tasker.step_attempts for each row execute function refuse()`)
	task := e.Submit("test", "operated", `{}`)
	<-rejected
	next <- struct{}{}
	e.Submit("test", "operated", `{"n":2}`) // what else is applied leaves the blame to the task
	<-o.running
	<-rejected
	next <- struct{}{}
	<-rejected
	accept(t, e.DB)
	for range 2 {
		e.AnotherOrchestrator(func(c *orchestration.Config) { c.Logger = zap.NewNop() })
	}
	<-o.running // the second step of the task
	next <- struct{}{}
	close(o.release)
	require.Equal(t, workflow.TaskComplete, e.Await(task).State)
	require.Zero(t, e.DB.QueryInt(t, `select count(*) from tasker.dlq_entries`))
}

// accept ends what the function refuse of a test does. To drop its trigger would lock the table, against
// statements of the engine that lock others before it.
func accept(t *testing.T, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, `create or replace function refuse() returns trigger language plpgsql as $$ begin return new; end $$`)
}

// TestTasksSetAsideDoNotHideOthers: the database rejects the reports of as many tasks as a
// batch has. Other reports are applied all the same.
func TestTasksSetAsideDoNotHideOthers(t *testing.T) {
	t.Parallel()
	o, rejected := newOperators(false), make(chan struct{}, 100)
	core, _ := observer.New(zap.ErrorLevel)
	log := zap.New(core, zap.Hooks(func(entry zapcore.Entry) error {
		if strings.Contains(entry.Message, "which is set aside") {
			rejected <- struct{}{}
		}
		return nil
	}))
	e := start(t, o, func(c *orchestration.Config, w *worker.Config) {
		c.Logger, c.ApplyBatch, w.Report.Only = log, 1, true
	})
	e.DB.Exec(t, `create function refuse() returns trigger language plpgsql as $$
		begin
			if new.outcome <> 5 and new.task_uuid = (select t.task_uuid from tasker.tasks t order by t.task_uuid limit 1) then
				raise exception 'refused by the test' using errcode = 'check_violation';
			end if;
			return new;
		end $$`)
	e.DB.Exec(t, `create trigger refuse before insert on tasker.step_attempts for each row execute function refuse()`)
	e.Submit("test", "operated", `{}`)
	<-rejected
	close(o.release)
	require.Equal(t, workflow.TaskComplete, e.Run("test", "operated", `{"n":2}`).State)
}
