package enginetest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/schedule"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// scheduler is an engine whose schedules are made due by hand.
type scheduler struct {
	*enginetest.Engine
	t       *testing.T
	metrics *telemetry.Metrics
	slow    chan struct{} // closed: "slow" ends
}

func newScheduler(t *testing.T, options ...enginetest.Option) *scheduler {
	s := &scheduler{t: t, metrics: telemetry.NewMetrics(prometheus.NewRegistry()), slow: make(chan struct{})}
	options = append(options, func(c *orchestration.Config, _ *worker.Config) { c.Metrics = s.metrics })
	s.Engine = enginetest.Start(t, handlers(s.slow), options...)
	return s
}

var ana = orchestration.Why{Actor: "ana", Reason: "why not"}

// keep creates a schedule of the template "ok", modified by change.
func (s *scheduler) keep(name string, change func(*store.Schedule)) store.Schedule {
	s.t.Helper()
	def := store.Schedule{Namespace: "test", Name: name, Template: "ok", Version: "1.0.0", Cron: "@every 1h", Context: json.RawMessage(`{"n": 1}`)}
	if change != nil {
		change(&def)
	}
	made, err := s.Orchestrator.CreateSchedule(s.t.Context(), def, ana)
	require.NoError(s.t, err)
	return made
}

// due sets the next run of schedules, and requests a look.
func (s *scheduler) due(at time.Time, ids ...uuid.UUID) {
	s.t.Helper()
	s.DB.Exec(s.t, `update tasker.schedules set next_run_at = $1 where schedule_uuid = any ($2)`, at, ids)
	s.Bus.Publish(signal.Signal{Topic: signal.TopicDue})
}

// until waits until a schedule fulfils a condition.
func (s *scheduler) until(id uuid.UUID, right func(now *store.Schedule) bool) store.Schedule {
	s.t.Helper()
	var now store.Schedule
	require.Eventually(s.t, func() bool {
		var err error
		now, err = s.Store.Schedule(s.t.Context(), id)
		return err == nil && right(&now)
	}, 60*time.Second, 5*time.Millisecond)
	return now
}

// caughtUp waits until a schedule is not due any more.
func (s *scheduler) caughtUp(id uuid.UUID) store.Schedule {
	return s.until(id, func(now *store.Schedule) bool { return now.NextRunAt.After(now.ReadAt) })
}

// runs are the times that the tasks of a schedule are for, in order.
func (s *scheduler) runs(name string) (times []time.Time) {
	s.t.Helper()
	tags := s.DB.QueryString(s.t, `select coalesce(string_agg(tag, ' '), '') from tasker.tasks, unnest(tags) tag
		where initiator = $1 and tag like 'scheduled_for:%'`, "schedule:"+name)
	for _, tag := range strings.Fields(tags) {
		at, err := time.Parse(time.RFC3339, strings.TrimPrefix(tag, "scheduled_for:"))
		require.NoError(s.t, err)
		times = append(times, at.UTC())
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

func (s *scheduler) counted(outcome string) int {
	return int(testutil.ToFloat64(s.metrics.ScheduleRuns.WithLabelValues(outcome)))
}

// untilRejected waits until the database has rejected schedules so many times.
func (s *scheduler) untilRejected(times float64) {
	s.t.Helper()
	pgtest.Eventually(s.t, patience, func() (bool, string) {
		return testutil.ToFloat64(s.metrics.RowsRejected.WithLabelValues("schedules")) >= times, "the database rejects no schedule"
	})
}

// untilCounted waits until so many runs are counted, which is after their commit.
func (s *scheduler) untilCounted(outcome string, want int) {
	s.t.Helper()
	pgtest.Eventually(s.t, patience, func() (bool, string) {
		n := s.counted(outcome)
		return n >= want, fmt.Sprintf("%d of %d runs count as %s", n, want, outcome)
	})
	require.Equal(s.t, want, s.counted(outcome), outcome)
}

// TestThreeOrchestratorsRunEachTimeOnce: three orchestrators catch up on runs on both
// sides of the last clock change, in transactions of a few tasks each. In each zone, each
// time gets one task.
func TestThreeOrchestratorsRunEachTimeOnce(t *testing.T) {
	t.Parallel()
	s := newScheduler(t, func(c *orchestration.Config, _ *worker.Config) { c.CreateBatch = 7 })
	s.AnotherOrchestrator()
	s.AnotherOrchestrator()
	require.NoError(t, s.Orchestrator.Pause(t.Context(), store.Pause{Namespace: "test", Actor: "ana", Reason: "the tasks are not of interest"}))
	want := map[string][]time.Time{}
	all := map[string]uuid.UUID{}
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe"} {
		location, err := time.LoadLocation(zone)
		require.NoError(t, err)
		change, _ := time.Now().In(location).ZoneBounds()
		for kind, expression := range map[string]string{"daily": "15 2 * * *", "early": "30 1 * * *", "hourly": "30 * * * SUN"} {
			name := kind + "-" + location.String()[strings.Index(zone, "/")+1:]
			made := s.keep(name, func(d *store.Schedule) {
				d.Cron, d.TimeZone, d.CatchUp, d.MaxCatchUp = expression, zone, schedule.CatchUpAll, schedule.MaxCatchUp
			})
			spec, err := schedule.Parse(expression, zone)
			require.NoError(t, err)
			// Eight days on both sides of the change, if it is that long ago.
			first := spec.After(change, change.AddDate(0, 0, -8))
			end := spec.After(first, made.ReadAt)
			for at := first; at.Before(end); at = spec.After(first, at) {
				want[name] = append(want[name], at.UTC())
			}
			all[name] = made.UUID
			s.DB.Exec(t, `update tasker.schedules set next_run_at = $1 where schedule_uuid = $2`, first, made.UUID)
		}
	}
	s.Bus.Publish(signal.Signal{Topic: signal.TopicDue})
	for name, id := range all {
		now := s.caughtUp(id)
		if got := s.runs(name); !slices.EqualFunc(got, want[name], time.Time.Equal) { // no run is due during this test, or one
			require.Equal(t, append(want[name], *now.LastRunAt), got, name)
		}
		require.Nil(t, now.LastError)
	}
	made := 0
	for name := range all {
		made += len(s.runs(name))
	}
	s.untilCounted("created", made)
	require.Zero(t, s.counted("duplicate"), "no replica has repeated another one's run")
}

// TestCatchUpAfterALongStop: eleven runs were missed, the last of them half an
// hour ago.
func TestCatchUpAfterALongStop(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	since := time.Now().Add(-10*time.Hour - 30*time.Minute).Truncate(time.Second).UTC()
	hours := func(list ...int) (times []time.Time) {
		for _, n := range list {
			times = append(times, since.Add(time.Duration(n)*time.Hour))
		}
		return times
	}
	policies := map[string]struct {
		policy schedule.Policy
		want   []time.Time
	}{
		"skip":  {schedule.Policy{CatchUp: schedule.CatchUpSkip}, nil},
		"one":   {schedule.Policy{CatchUp: schedule.CatchUpOne}, hours(10)},
		"all":   {schedule.Policy{CatchUp: schedule.CatchUpAll, MaxCatchUp: 100}, hours(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)},
		"three": {schedule.Policy{CatchUp: schedule.CatchUpAll, MaxCatchUp: 3}, hours(8, 9, 10)},
		"apart": {schedule.Policy{CatchUp: schedule.CatchUpAll, MaxCatchUp: 3, Overlap: schedule.OverlapSkip}, hours(10)},
	}
	ids := map[string]uuid.UUID{}
	for name, p := range policies {
		ids[name] = s.keep(name, func(d *store.Schedule) {
			d.CatchUp, d.MaxCatchUp, d.Overlap = p.policy.CatchUp, p.policy.MaxCatchUp, p.policy.Overlap
		}).UUID
	}
	s.due(since, slices.Collect(maps.Values(ids))...)
	for name, p := range policies {
		now := s.caughtUp(ids[name])
		require.Equal(t, p.want, s.runs(name), name)
		require.Equal(t, since.Add(11*time.Hour), now.NextRunAt.UTC(), "%s keeps its rhythm", name)
		if p.want == nil {
			require.Contains(t, *now.LastError, "missed")
			require.Nil(t, now.LastRunAt)
			continue
		}
		require.Nil(t, now.LastError)
		require.Equal(t, p.want[len(p.want)-1], now.LastRunAt.UTC())
	}
	s.untilCounted("missed", 11+8+10)
	// A little late is not missed.
	s.due(time.Now().Add(-2*time.Second).Truncate(time.Second), ids["skip"])
	s.caughtUp(ids["skip"])
	require.Len(t, s.runs("skip"), 1)
}

func TestTheTaskOfARunTellsWhereItComesFrom(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	made := s.keep("nightly", func(d *store.Schedule) {
		d.TimeZone, d.Priority, d.Tags, d.Jitter, d.CatchUp = "Europe/Berlin", 7, []string{"mine"}, 3*time.Second, schedule.CatchUpOne
	})
	at := time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)
	s.due(at, made.UUID)
	now := s.caughtUp(made.UUID)
	task := s.Await(*now.LastTask)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.JSONEq(t, `{"n": 1}`, string(task.Context), "as it was written")
	last := now.LastRunAt.UTC().Format(time.RFC3339)
	require.Equal(t, []string{"mine", "scheduled_for:" + last}, task.Tags)
	require.Equal(t, []any{"schedule:nightly", "tasker-schedule", 7, made.UUID}, []any{*task.Initiator, *task.SourceSystem, task.Priority, *task.ParentCorrelationID})
	require.Contains(t, *task.Reason, "(Europe/Berlin)")
	require.Equal(t, "schedule/"+made.UUID.String()+"/"+last, s.DB.QueryString(t, `select idempotency_key from tasker.tasks where task_uuid = $1`, task.UUID))
	spread := schedule.Spread(made.UUID, *now.LastRunAt, 3*time.Second)
	if spread > 0 {
		require.Equal(t, spread, task.StartAt.Sub(task.RequestedAt))
	}
}

func TestARunIsLeftOutWhileTheOneBeforeIsAlive(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	made := s.keep("apart", func(d *store.Schedule) { d.Template, d.Overlap = "slow", schedule.OverlapSkip })
	beside := s.keep("beside", func(d *store.Schedule) { d.Template = "slow" })
	begin := time.Now().Truncate(time.Second)
	s.due(begin, made.UUID, beside.UUID)
	first := s.caughtUp(made.UUID)
	s.caughtUp(beside.UUID)
	s.due(begin.Add(-time.Second), made.UUID, beside.UUID) // another time
	now := s.until(made.UUID, func(now *store.Schedule) bool { return now.LastError != nil })
	s.caughtUp(beside.UUID)
	require.Contains(t, *now.LastError, "the task of the run before, "+first.LastTask.String()+", is still alive")
	require.Equal(t, first.LastTask, now.LastTask)
	require.True(t, now.NextRunAt.After(now.ReadAt))
	require.Len(t, s.runs("apart"), 1)
	require.Len(t, s.runs("beside"), 2)
	s.untilCounted("overlap", 1)
	_, err := s.Orchestrator.RunSchedule(t.Context(), made.UUID, ana)
	var busy *orchestration.ScheduleBusyError
	require.ErrorAs(t, err, &busy)
	require.Equal(t, *first.LastTask, busy.Task)

	close(s.slow)
	require.Equal(t, workflow.TaskComplete, s.Await(*first.LastTask).State)
	created, err := s.Orchestrator.RunSchedule(t.Context(), made.UUID, ana)
	require.NoError(t, err)
	require.Equal(t, workflow.TaskComplete, s.Await(created.UUID).State)
	require.Equal(t, 1, s.counted("by_hand"))
	s.due(begin.Add(-2*time.Second), made.UUID)
	now = s.until(made.UUID, func(now *store.Schedule) bool { return now.NextRunAt.After(now.ReadAt) && now.LastError == nil })
	require.NotEqual(t, created.UUID, *now.LastTask)
	require.Len(t, s.runs("apart"), 3)
}

// TestResumingFollowsThePolicy: runs due during a pause were missed.
func TestResumingFollowsThePolicy(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	for policy, want := range map[schedule.CatchUp]int{schedule.CatchUpSkip: 0, schedule.CatchUpOne: 1, schedule.CatchUpAll: 3} {
		name := policy.String()
		made := s.keep(name, func(d *store.Schedule) { d.CatchUp = policy })
		paused, err := s.Orchestrator.PauseSchedule(t.Context(), made.UUID, ana)
		require.NoError(t, err)
		require.Equal(t, "ana", *paused.PausedBy)
		// The last of three runs is so recent that it would be on time.
		last := time.Now().Add(-20 * time.Second).Truncate(time.Second)
		s.due(last.Add(-2*time.Hour), made.UUID)
		h, err := s.Store.Horizon(t.Context(), store.Without{})
		require.NoError(t, err)
		require.NotZero(t, h.NextSchedule, "nothing is due")
		resumed, err := s.Orchestrator.ResumeSchedule(t.Context(), made.UUID, ana)
		require.NoError(t, err)
		require.Nil(t, resumed.PausedAt)
		now := s.caughtUp(made.UUID)
		require.Len(t, s.runs(name), want, name)
		require.True(t, now.NextRunAt.Equal(last.Add(time.Hour)), "%s: %s after %s", name, now.NextRunAt, last)
	}
	running := s.keep("running", nil)
	same, err := s.Orchestrator.ResumeSchedule(t.Context(), running.UUID, ana)
	require.NoError(t, err)
	require.Equal(t, running.NextRunAt, same.NextRunAt)
}

// TestABrokenScheduleStopsNoOther: runs that cannot be made leave an error and advance to
// their next time.
func TestABrokenScheduleStopsNoOther(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	ids := map[string]uuid.UUID{}
	for _, name := range []string{"gone", "refused", "unread", "good", "bad", "fine"} {
		ids[name] = s.keep(name, nil).UUID
	}
	s.DB.Exec(t, `update tasker.schedules set template = 'nothing' where name = 'gone'`)
	s.DB.Exec(t, `update tasker.schedules set context = '{"n": "x"}' where name = 'refused'`)
	s.DB.Exec(t, `update tasker.schedules set time_zone = 'Mars/Olympus' where name = 'unread'`)
	s.DB.Exec(t, `create function refuse() returns trigger language plpgsql as $$ begin
		if new.initiator = 'schedule:bad' then raise exception 'secret' using errcode = '22P05'; end if; return new; end $$`)
	s.DB.Exec(t, `create trigger refuse before insert on tasker.tasks for each row execute function refuse()`)
	s.due(time.Now().Truncate(time.Second), slices.Collect(maps.Values(ids))...)
	for _, name := range []string{"good", "fine"} {
		now := s.caughtUp(ids[name])
		require.Equal(t, workflow.TaskComplete, s.Await(*now.LastTask).State)
		require.Nil(t, now.LastError)
	}
	for name, why := range map[string]string{"gone": "Template not found: test/nothing/1.0.0", "refused": "context", "bad": "the database refused the run"} {
		now := s.caughtUp(ids[name])
		require.Contains(t, *now.LastError, why)
		require.NotContains(t, *now.LastError, "secret")
		require.Empty(t, s.runs(name))
		require.Nil(t, now.PausedAt)
	}
	now := s.until(ids["unread"], func(now *store.Schedule) bool { return now.PausedAt != nil })
	require.Equal(t, "tasker", *now.PausedBy)
	require.Contains(t, *now.PauseReason, `"Mars/Olympus" is not known`)
	require.Eventually(t, func() bool { return s.counted("failed") >= 4 }, patience, 5*time.Millisecond)
	s.untilCounted("created", 2)
	h, err := s.Store.Horizon(t.Context(), store.Without{})
	require.NoError(t, err)
	require.Greater(t, h.NextSchedule, 30*time.Minute, "the next run is far away")

	_, err = s.Orchestrator.ResumeSchedule(t.Context(), ids["unread"], ana)
	var invalid *orchestration.InvalidError
	require.ErrorAs(t, err, &invalid)
	for _, name := range []string{"gone", "refused"} {
		_, err = s.Orchestrator.RunSchedule(t.Context(), ids[name], ana)
		require.Error(t, err)
	}
	require.Empty(t, s.runs("gone"))
	// After a correction the error is cleared.
	_, err = s.Orchestrator.UpdateSchedule(t.Context(), ids["refused"], ana, func(d *store.Schedule) { d.Context = json.RawMessage(`{"n": 2}`) })
	require.NoError(t, err)
	s.due(time.Now().Truncate(time.Second), ids["refused"])
	s.until(ids["refused"], func(now *store.Schedule) bool { return now.LastTask != nil && now.LastError == nil })
}

// TestALookThatCannotRunSchedulesDoesTheRest: an error of the schedules themselves delays
// no other work, and is retried.
func TestALookThatCannotRunSchedulesDoesTheRest(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	made := s.keep("stuck", nil)
	s.DB.Exec(t, `create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no' using errcode = '42501'; end $$`)
	s.DB.Exec(t, `create trigger refuse before update of last_error on tasker.schedules for each row execute function refuse()`)
	s.due(time.Now().Truncate(time.Second), made.UUID)
	s.untilRejected(1)
	require.Equal(t, workflow.TaskComplete, s.Run("test", "flaky", `{"n": 1}`).State, "it is retried")
	ready, why := s.Orchestrator.Ready()
	require.True(t, ready, why)
	accept(t, s.DB)
	s.caughtUp(made.UUID)
	require.Len(t, s.runs("stuck"), 1)
}

// TestWhatIsNoFaultOfTheSchedulesIsTriedAgain: while the database accepts no tasks at
// all, no run is given up.
func TestWhatIsNoFaultOfTheSchedulesIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	one, two := s.keep("one", nil), s.keep("two", nil)
	s.DB.Exec(t, `create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no' using errcode = '42P01'; end $$`)
	s.DB.Exec(t, `create trigger refuse before insert on tasker.tasks for each row execute function refuse()`)
	s.due(time.Now().Truncate(time.Second), one.UUID, two.UUID)
	s.untilRejected(2)
	for _, id := range []uuid.UUID{one.UUID, two.UUID} {
		now, err := s.Store.Schedule(t.Context(), id)
		require.NoError(t, err)
		require.Nil(t, now.LastError)
		require.False(t, now.NextRunAt.After(now.ReadAt))
	}
	accept(t, s.DB)
	for name, id := range map[string]uuid.UUID{"one": one.UUID, "two": two.UUID} {
		s.caughtUp(id)
		require.Len(t, s.runs(name), 1)
	}
}

// TestTheTimerSleepsUntilTheNextRun: no poll is needed, and a schedule earlier than all
// others moves the timer, in every replica.
func TestTheTimerSleepsUntilTheNextRun(t *testing.T) {
	t.Parallel()
	s := newScheduler(t, func(c *orchestration.Config, _ *worker.Config) {
		c.Readiness.Poller.Interval, c.Readiness.Poller.RelaxedInterval, c.HeartbeatInterval = time.Hour, time.Hour, time.Hour
	})
	s.keep("late", nil)
	run := func(name string) {
		made := s.keep(name, func(d *store.Schedule) { d.Cron = "@every 1s" })
		s.until(made.UUID, func(*store.Schedule) bool { return len(s.runs(name)) >= 3 })
		runs := s.runs(name)
		for i := range runs[1:] {
			require.Equal(t, time.Second, runs[i+1].Sub(runs[i]), "%v", runs)
		}
		_, err := s.Orchestrator.PauseSchedule(t.Context(), made.UUID, ana)
		require.NoError(t, err)
	}
	run("here")
	s.AnotherOrchestrator()
	for _, system := range s.Orchestrator.Systems() {
		require.NoError(t, system.SetMode(t.Context(), deploymode.Disabled))
	}
	run("there")
	require.Empty(t, s.runs("late"))
}
