package enginetest_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/schedule"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

func TestWhatAScheduleMustBe(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	for name, tt := range map[string]struct {
		change func(d *store.Schedule)
		why    string
	}{
		"cron":          {func(d *store.Schedule) { d.Cron = "61 * * * *" }, "cron: "},
		"no cron":       {func(d *store.Schedule) { d.Cron = "" }, "cron: must not be empty"},
		"never":         {func(d *store.Schedule) { d.Cron = "0 0 30 2 *" }, "never"},
		"zone":          {func(d *store.Schedule) { d.TimeZone = "Mars/Olympus" }, "time_zone: "},
		"name":          {func(d *store.Schedule) { d.Name = "a/b" }, "name must consist"},
		"no name":       {func(d *store.Schedule) { d.Name = "" }, "name must not be empty"},
		"no template":   {func(d *store.Schedule) { d.Template = "" }, "template must not be empty"},
		"context":       {func(d *store.Schedule) { d.Context = json.RawMessage(`[]`) }, "context must be a JSON object"},
		"large context": {func(d *store.Schedule) { d.Context = json.RawMessage(`{"n": 1` + strings.Repeat(" ", 65536) + `}`) }, "65536 bytes"},
		"schema":        {func(d *store.Schedule) { d.Context = json.RawMessage(`{"n": "x"}`) }, "context"},
		"tags":          {func(d *store.Schedule) { d.Tags = slices.Repeat([]string{"t"}, 64) }, "at most 63"},
		"empty tag":     {func(d *store.Schedule) { d.Tags = []string{""} }, "tags[0]"},
		"priority":      {func(d *store.Schedule) { d.Priority = 101 }, "priority"},
		"catch up":      {func(d *store.Schedule) { d.MaxCatchUp = 1001 }, "max_catch_up"},
		"jitter":        {func(d *store.Schedule) { d.Jitter = 2 * time.Hour }, "jitter_seconds"},
	} {
		def := store.Schedule{Namespace: "test", Name: "x", Template: "ok", Version: "1.0.0", Cron: "@daily", TimeZone: "UTC"}
		tt.change(&def)
		_, err := s.Orchestrator.CreateSchedule(t.Context(), def, ana)
		var invalid *orchestration.InvalidError
		require.ErrorAs(t, err, &invalid, name)
		require.Contains(t, invalid.Error(), tt.why, name)
	}
	def := store.Schedule{Namespace: "test", Name: "x", Template: "nothing", Version: "1.0.0", Cron: "@daily"}
	_, err := s.Orchestrator.CreateSchedule(t.Context(), def, ana)
	var unknown *orchestration.UnknownTemplateError
	require.ErrorAs(t, err, &unknown)
	def.Template = "ok"
	_, err = s.Orchestrator.CreateSchedule(t.Context(), def, orchestration.Why{})
	require.ErrorContains(t, err, "actor")
	dry, err := s.Orchestrator.CreateSchedule(t.Context(), def, orchestration.Why{Actor: "ana", Reason: "r", DryRun: true})
	require.NoError(t, err)
	require.Equal(t, uuid.Nil, dry.UUID)
	require.True(t, dry.NextRunAt.After(dry.ReadAt))
	require.Zero(t, s.DB.QueryInt(t, `select count(*) from tasker.schedules`), "rejected ones leave no row")
}

func TestAScheduleIsChanged(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	made := s.keep("x", nil)
	require.Equal(t, []any{"UTC", schedule.CatchUpSkip, schedule.OverlapAllow, 10},
		[]any{made.TimeZone, made.CatchUp, made.Overlap, made.MaxCatchUp}, "missing fields have defaults")
	update := func(why orchestration.Why, change func(*store.Schedule)) store.Schedule {
		after, err := s.Orchestrator.UpdateSchedule(t.Context(), made.UUID, why, change)
		require.NoError(t, err)
		return after
	}
	after := update(ana, func(d *store.Schedule) { d.Priority, d.Name, d.Namespace = 9, "other", "other" })
	require.Equal(t, []any{9, "x", "test", made.NextRunAt}, []any{after.Priority, after.Name, after.Namespace, after.NextRunAt})
	dry := update(orchestration.Why{Actor: "ana", Reason: "r", DryRun: true}, func(d *store.Schedule) { d.Cron = "@every 3h" })
	require.InDelta(t, 3*time.Hour, dry.NextRunAt.Sub(dry.ReadAt), float64(2*time.Second))
	after = update(ana, func(d *store.Schedule) { d.Cron = "@every 2h" })
	require.InDelta(t, 2*time.Hour, after.NextRunAt.Sub(after.ReadAt), float64(2*time.Second))
	runs, err := orchestration.NextRuns(&after, 3)
	require.NoError(t, err)
	require.Equal(t, []time.Time{after.NextRunAt, after.NextRunAt.Add(2 * time.Hour), after.NextRunAt.Add(4 * time.Hour)}, runs)
	after = update(ana, func(d *store.Schedule) { d.Cron, d.TimeZone = "0 0 1 1 *", "Asia/Kathmandu" })
	require.Equal(t, "18:15:00", after.NextRunAt.UTC().Format(time.TimeOnly))

	// Another operator changes it each time just after the read.
	tries := 0
	_, err = s.Orchestrator.UpdateSchedule(t.Context(), made.UUID, ana, func(d *store.Schedule) {
		tries++
		d.Priority = tries
		s.DB.Exec(t, `update tasker.schedules set revision = revision + 1`)
	})
	require.ErrorIs(t, err, store.ErrScheduleChanged)
	require.Equal(t, 3, tries)
	_, err = s.Orchestrator.UpdateSchedule(t.Context(), uuid.New(), ana, func(*store.Schedule) {})
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = s.Orchestrator.UpdateSchedule(t.Context(), made.UUID, ana, func(d *store.Schedule) { d.Cron = "x" })
	require.ErrorContains(t, err, "cron: ")

	gone, err := s.Orchestrator.DeleteSchedule(t.Context(), made.UUID, ana)
	require.NoError(t, err)
	require.Equal(t, 9, gone.Priority)
	_, err = s.Orchestrator.Schedule(t.Context(), made.UUID)
	require.ErrorIs(t, err, store.ErrNotFound)
	page, err := s.Orchestrator.Schedules(t.Context(), store.ScheduleFilter{Limit: 10})
	require.NoError(t, err)
	require.Empty(t, page.Schedules)
	require.Equal(t, 5, s.DB.QueryInt(t, `select count(*) from tasker.operator_actions`), "one creation, three changes, one deletion")
}

// TestASchedulesTasksHaveItsRetries: and the template's again after the schedule's are
// removed.
func TestASchedulesTasksHaveItsRetries(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	made := s.keep("patient", func(d *store.Schedule) {
		d.CatchUp, d.RetryDelays = schedule.CatchUpAll, []time.Duration{time.Second, 2 * time.Second}
	})
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second}, made.RetryDelays)
	created, err := s.Orchestrator.RunSchedule(t.Context(), made.UUID, ana)
	require.NoError(t, err)
	require.Equal(t, &workflow.RetryOverride{MaxAttempts: 3, DelaysMS: []int64{1000, 2000}}, s.Await(created.UUID).Progress.Retry)

	changed, err := s.Orchestrator.UpdateSchedule(t.Context(), made.UUID, ana, func(d *store.Schedule) { d.RetryDelays, d.MaxAttempts = nil, 7 })
	require.NoError(t, err)
	require.Nil(t, changed.RetryDelays)
	s.due(time.Now().Add(-2*time.Second).Truncate(time.Second), made.UUID)
	s.caughtUp(made.UUID)
	last := s.until(made.UUID, func(now *store.Schedule) bool { return now.LastTask != nil && *now.LastTask != created.UUID })
	require.Equal(t, 7, s.Await(*last.LastTask).Progress.Retry.MaxAttempts)

	_, err = s.Orchestrator.UpdateSchedule(t.Context(), made.UUID, ana, func(d *store.Schedule) { d.MaxAttempts = 0 })
	require.NoError(t, err)
	created, err = s.Orchestrator.RunSchedule(t.Context(), made.UUID, ana)
	require.NoError(t, err)
	require.Nil(t, s.Await(created.UUID).Progress.Retry)
	var invalid *orchestration.InvalidError
	_, err = s.Orchestrator.UpdateSchedule(t.Context(), made.UUID, ana, func(d *store.Schedule) { d.MaxAttempts = 40_000 })
	require.ErrorAs(t, err, &invalid)
}
