package orchestration_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/schedule"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

const sleepYAML = `
namespace_name: many
version: 1.0.0
steps:
  - {name: nap, type: sleep, wait: {for: 1h}}
`

// TestStepsOfNewerProgramsHoldUpNoOthers: as many steps as begin at once are of a plan that this
// orchestrator cannot read. They are left as they are, and another one begins.
func TestStepsOfNewerProgramsHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	const newer = 100
	var db *pgtest.DB
	startSignalled(t, func(made *pgtest.DB) { db = made }, func(c *orchestration.Config) {
		for name, n := range map[string]int{"newer": newer, "ours": 1} {
			made, _, err := template.Parse("sleep.yaml", []byte("name: "+name+sleepYAML))
			require.NoError(t, err)
			_, err = c.Store.RegisterTemplates(t.Context(), store.Registrant{ID: "test"}, []*workflow.Template{made})
			require.NoError(t, err)
			plan, err := c.Store.PlanNamed(t.Context(), "many", name, "1.0.0")
			require.NoError(t, err)
			tasks := make([]store.NewTask, n)
			for i := range tasks {
				id := uuid.Must(uuid.NewV7())
				tasks[i] = store.NewTask{UUID: id, Plan: plan, Context: json.RawMessage(`{}`), CorrelationID: id}
			}
			_, err = c.Store.CreateTasks(t.Context(), tasks)
			require.NoError(t, err)
		}
		db.Exec(t, `update tasker.board set seq = seq + 1000 where plan_id = (select plan_id from tasker.plans where name = 'ours')`)
		db.Exec(t, `update tasker.plans set template = template || '{"rules_version": 2}' where name = 'newer'`)
		older, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 10})
		require.NoError(t, err)
		t.Cleanup(older.Close)
		c.Store = older
	})
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		return db.QueryInt(t, `select count(*) from tasker.board where wait is not null`) == 1, "the step does not begin"
	})
	require.Equal(t, newer, db.QueryInt(t, `select count(*) from tasker.board where state = 2 and callable = 0`))
}

// TestSchedulesOfNewerProgramsAreLeftToThem: an orchestrator that cannot read the plan of a
// schedule makes no run and does not move it on. Other schedules run.
func TestSchedulesOfNewerProgramsAreLeftToThem(t *testing.T) {
	t.Parallel()
	var db *pgtest.DB
	var newer, ours store.Schedule
	at := time.Now().Add(-time.Second).Truncate(time.Second)
	h := startSignalled(t, func(made *pgtest.DB) { db = made }, func(c *orchestration.Config) {
		made, _, err := template.Parse("sleep.yaml", []byte("name: newer"+sleepYAML))
		require.NoError(t, err)
		_, err = c.Store.RegisterTemplates(t.Context(), store.Registrant{ID: "test"}, []*workflow.Template{made})
		require.NoError(t, err)
		keep := func(name string) store.Schedule {
			made, _, err := c.Store.CreateSchedule(t.Context(), store.Schedule{Namespace: "many", Name: name, Template: name, Version: "1.0.0", Cron: "@every 1h", TimeZone: "UTC",
				Context: json.RawMessage(`{}`), CatchUp: schedule.CatchUpSkip, MaxCatchUp: 1, Overlap: schedule.OverlapAllow}, store.OperatorAction{Actor: "ana", Reason: "r", Action: "create_schedule"},
				func(time.Time) time.Time { return at })
			require.NoError(t, err)
			return made
		}
		newer, ours = keep("newer"), keep("one")
		db.Exec(t, `update tasker.plans set template = template || '{"rules_version": 2}' where name = 'newer'`)
		older, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 10})
		require.NoError(t, err)
		t.Cleanup(older.Close)
		c.Store = older
	})
	h.eventually(func() bool {
		now, err := h.store.Schedule(t.Context(), newer.UUID)
		return err == nil && now.LastError != nil
	}, "the schedule does not say why it does not run")
	h.eventually(func() bool {
		now, err := h.store.Schedule(t.Context(), ours.UUID)
		return err == nil && now.LastTask != nil
	}, "the other schedule does not run")
	now, err := h.store.Schedule(t.Context(), newer.UUID)
	require.NoError(t, err)
	require.Contains(t, *now.LastError, "cannot be read")
	require.True(t, now.NextRunAt.Equal(at), "the run is lost")
}
