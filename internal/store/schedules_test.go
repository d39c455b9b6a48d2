package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/schedule"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
)

var ana = store.OperatorAction{Actor: "ana", Reason: "why not", Action: "create_schedule"}

func aSchedule(name string) store.Schedule {
	return store.Schedule{Namespace: "flows", Name: name, Template: "one", Version: "1.0.0", Cron: "@every 1h", TimeZone: "Europe/Berlin",
		Context: json.RawMessage(`{"n": 1}`), Priority: -7, Tags: []string{"a", "b"}, CatchUp: schedule.CatchUpAll, MaxCatchUp: 12,
		Overlap: schedule.OverlapSkip, Jitter: 90 * time.Second}
}

func inAnHour(now time.Time) time.Time { return now.Add(time.Hour) }

func keep(t testing.TB, s *store.Store, name string) store.Schedule {
	t.Helper()
	made, signals, err := s.CreateSchedule(t.Context(), aSchedule(name), ana, inAnHour)
	require.NoError(t, err)
	require.Equal(t, []signal.Signal{{Topic: signal.TopicDue}}, signals)
	return made
}

// runEach makes the due run of each schedule, and its next one an hour after now.
func runEach(t testing.TB) func(now time.Time, due []store.DueSchedule) []store.Firing {
	return func(now time.Time, due []store.DueSchedule) []store.Firing {
		firings := make([]store.Firing, len(due))
		for i := range due {
			d := &due[i]
			require.False(t, d.NextRunAt.After(now))
			identity := dedup.KeyIdentity("flows", "one", d.UUID.String()+d.NextRunAt.UTC().String())
			task := newTask(d.Plan)
			task.Identity, task.Initiator = &identity, "schedule:"+d.Name
			firings[i] = store.Firing{Tasks: []store.NewTask{task}, Runs: []time.Time{d.NextRunAt}, NextRun: now.Add(time.Hour)}
		}
		return firings
	}
}

func makeDue(t testing.TB, db *pgtest.DB) {
	db.Exec(t, `update tasker.schedules set next_run_at = date_trunc('second', now()) - interval '5 s'`)
}

func TestSchedulesAreKept(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	plan(t, s, oneStepYAML)
	made := keep(t, s, "nightly")
	want := aSchedule("nightly")
	require.Equal(t, want.Policy(), made.Policy())
	require.Equal(t, []any{want.Namespace, want.Name, want.Template, want.Version, want.Cron, want.TimeZone, want.Priority, want.Tags, want.Jitter},
		[]any{made.Namespace, made.Name, made.Template, made.Version, made.Cron, made.TimeZone, made.Priority, made.Tags, made.Jitter})
	require.JSONEq(t, string(want.Context), string(made.Context))
	require.True(t, made.NextRunAt.Equal(made.ReadAt.Add(time.Hour)), "by the database's clock")
	read, err := s.Schedule(t.Context(), made.UUID)
	require.NoError(t, err)
	read.ReadAt = made.ReadAt
	require.Equal(t, made, read)

	_, _, err = s.CreateSchedule(t.Context(), aSchedule("nightly"), ana, inAnHour)
	require.ErrorIs(t, err, store.ErrScheduleExists)
	nowhere := aSchedule("x")
	nowhere.Namespace = "nowhere"
	_, _, err = s.CreateSchedule(t.Context(), nowhere, ana, inAnHour)
	require.ErrorIs(t, err, store.ErrNotFound)
	dry := ana
	dry.DryRun = true
	shown, signals, err := s.CreateSchedule(t.Context(), aSchedule("other"), dry, inAnHour)
	require.NoError(t, err)
	require.Empty(t, signals)
	require.Equal(t, "other", shown.Name)
	require.Equal(t, 1, db.QueryInt(t, `select count(*) from tasker.schedules`))

	changed := made
	changed.Cron, changed.Tags, changed.Overlap = "@daily", nil, schedule.OverlapAllow
	update := ana
	update.Action = "update_schedule"
	after, _, err := s.UpdateSchedule(t.Context(), changed, update, nil)
	require.NoError(t, err)
	require.Equal(t, []any{"@daily", []string{}, schedule.OverlapAllow, made.NextRunAt, 2}, []any{after.Cron, after.Tags, after.Overlap, after.NextRunAt, after.Revision})
	_, _, err = s.UpdateSchedule(t.Context(), changed, update, nil)
	require.ErrorIs(t, err, store.ErrScheduleChanged, "it is read before that change")
	changed.UUID = uuid.New()
	_, _, err = s.UpdateSchedule(t.Context(), changed, update, nil)
	require.ErrorIs(t, err, store.ErrNotFound)

	gone, err := s.DeleteSchedule(t.Context(), made.UUID, store.OperatorAction{Actor: "ana", Reason: "r", Action: "delete_schedule"})
	require.NoError(t, err)
	require.Equal(t, "nightly", gone.Name)
	_, err = s.DeleteSchedule(t.Context(), made.UUID, ana)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = s.Schedule(t.Context(), made.UUID)
	require.ErrorIs(t, err, store.ErrNotFound)
	actions := recordedActions(t, db)
	require.Len(t, actions, 3, "rejected changes and dry runs are not recorded")
	require.Equal(t, []string{"delete_schedule", "update_schedule", "create_schedule"}, []string{actions[0].Action, actions[1].Action, actions[2].Action})
	require.JSONEq(t, fmt.Sprintf(`{"schedule_id":%q,"namespace":"flows","name":"nightly"}`, made.UUID), actions[0].Target.(string))
}

func TestSchedulesAreListed(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	plan(t, s, oneStepYAML)
	for _, name := range []string{"c", "a", "b"} {
		keep(t, s, name)
	}
	names := func(f store.ScheduleFilter) (list []string, total int) {
		page, err := s.Schedules(t.Context(), f)
		require.NoError(t, err)
		for i := range page.Schedules {
			list = append(list, page.Schedules[i].Name)
		}
		return list, page.Total
	}
	list, total := names(store.ScheduleFilter{Limit: 2})
	require.Equal(t, []string{"a", "b"}, list)
	require.Equal(t, 3, total)
	list, _ = names(store.ScheduleFilter{Limit: 2, Offset: 2, Namespace: "flows", Template: "one"})
	require.Equal(t, []string{"c"}, list)
	page, err := s.Schedules(t.Context(), store.ScheduleFilter{Name: "b", Limit: 1})
	require.NoError(t, err)
	_, err = s.PauseSchedule(t.Context(), page.Schedules[0].UUID, ana)
	require.NoError(t, err)
	for paused, want := range map[bool][]string{true: {"b"}, false: {"a", "c"}} {
		list, _ = names(store.ScheduleFilter{Limit: 9, Paused: &paused})
		require.Equal(t, want, list)
	}
	for _, f := range []store.ScheduleFilter{{Namespace: "x", Limit: 9}, {Name: "x", Limit: 9}, {Template: "x", Limit: 9}} {
		list, total = names(f)
		require.Empty(t, list)
		require.Zero(t, total)
	}
}

func TestAPausedScheduleIsNotDue(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	plan(t, s, oneStepYAML)
	made := keep(t, s, "p")
	h, err := s.Horizon(t.Context(), store.Without{})
	require.NoError(t, err)
	require.InDelta(t, time.Hour, h.NextSchedule, float64(time.Minute))
	require.Equal(t, h.NextSchedule, h.Next())
	paused, err := s.PauseSchedule(t.Context(), made.UUID, ana)
	require.NoError(t, err)
	require.Equal(t, "ana", *paused.PausedBy)
	again, err := s.PauseSchedule(t.Context(), made.UUID, store.OperatorAction{Actor: "ben", Reason: "r", Action: "pause_schedule"})
	require.NoError(t, err)
	require.Equal(t, paused.PausedAt, again.PausedAt)
	require.Equal(t, "ben", *again.PausedBy)
	makeDue(t, db)
	h, err = s.Horizon(t.Context(), store.Without{})
	require.NoError(t, err)
	require.Negative(t, h.NextSchedule)
	fired, err := s.RunDueSchedules(t.Context(), store.UpTo(10), runEach(t))
	require.NoError(t, err)
	require.Zero(t, fired.Schedules)

	refusal := errors.New("not now")
	_, _, err = s.ResumeSchedule(t.Context(), made.UUID, ana, func(*store.Schedule) (time.Time, error) { return time.Time{}, refusal })
	require.ErrorIs(t, err, refusal)
	resumed, _, err := s.ResumeSchedule(t.Context(), made.UUID, ana, func(now *store.Schedule) (time.Time, error) { return now.ReadAt.Add(time.Minute), nil })
	require.NoError(t, err)
	require.Nil(t, resumed.PausedAt)
	require.Nil(t, resumed.PausedBy)
	require.True(t, resumed.NextRunAt.Equal(resumed.ReadAt.Add(time.Minute)))
	same, _, err := s.ResumeSchedule(t.Context(), made.UUID, ana, nil)
	require.NoError(t, err)
	require.Equal(t, resumed.NextRunAt, same.NextRunAt, "a schedule that is not paused stays unchanged")
	_, _, err = s.ResumeSchedule(t.Context(), uuid.New(), ana, nil)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = s.PauseSchedule(t.Context(), uuid.New(), ana)
	require.ErrorIs(t, err, store.ErrNotFound)
}

// TestEachRunIsMadeOnce: many run the due schedules at once, and later the schedules are
// at the same runs again.
func TestEachRunIsMadeOnce(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	plan(t, s, oneStepYAML)
	const schedules = 40
	for i := range schedules {
		keep(t, s, fmt.Sprintf("s%d", i))
	}
	makeDue(t, db)
	db.Exec(t, `update tasker.schedules set overlap = 1`)
	var mu sync.Mutex
	made, taken := 0, 0
	all := func() {
		var group sync.WaitGroup
		for range 6 {
			group.Go(func() {
				for {
					fired, err := s.RunDueSchedules(t.Context(), store.UpTo(3), runEach(t))
					if err != nil || fired.Schedules == 0 {
						if err != nil {
							t.Error(err)
						}
						return
					}
					mu.Lock()
					made, taken = made+len(fired.Accepted), taken+fired.Schedules
					mu.Unlock()
				}
			})
		}
		group.Wait()
	}
	all()
	require.Equal(t, []int{schedules, schedules}, []int{made, taken})
	first := db.QueryString(t, `select string_agg(last_task_uuid::text, ',' order by schedule_uuid) from tasker.schedules`)
	db.Exec(t, `update tasker.schedules set next_run_at = last_run_at`)
	all()
	require.Equal(t, []int{schedules, 2 * schedules}, []int{made, taken}, "they exist already")
	require.Equal(t, first, db.QueryString(t, `select string_agg(last_task_uuid::text, ',' order by schedule_uuid) from tasker.schedules`))
	require.Equal(t, schedules, db.QueryInt(t, `select count(*) from tasker.tasks`))
	require.Equal(t, schedules, db.QueryInt(t, `select count(*) from tasker.board b join tasker.schedules s on b.task_uuid = s.last_task_uuid and slot = 0`))
	noViolations(t, s)
}

// TestARunThatIsCutOffIsMadeOnce: the server kills the connection after the
// tasks were created and before the schedules have moved on.
func TestARunThatIsCutOffIsMadeOnce(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	plan(t, s, oneStepYAML)
	keep(t, s, "cut")
	makeDue(t, db)
	db.Exec(t, `create sequence cuts`) // it keeps counting through rollbacks
	db.Exec(t, `create function cut() returns trigger language plpgsql as $$ begin
		if nextval('cuts') = 1 and (select count(*) from tasker.tasks) = 1 then perform pg_terminate_backend(pg_backend_pid()); end if;
		return new; end $$`)
	db.Exec(t, `create trigger cut before update on tasker.schedules for each row execute function cut()`)
	_, err := s.RunDueSchedules(t.Context(), store.UpTo(10), runEach(t))
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.tasks`))
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.task_identities`))
	h, err := s.Horizon(t.Context(), store.Without{})
	require.NoError(t, err)
	require.Zero(t, h.NextSchedule, "it is due still")
	var fired store.Fired
	pgtest.Eventually(t, patience, func() (bool, string) { // the killed session may hold the schedule for a moment
		fired, err = s.RunDueSchedules(t.Context(), store.UpTo(10), runEach(t))
		require.NoError(t, err)
		return fired.Schedules > 0, "the schedule was not run"
	})
	require.Len(t, fired.Accepted, 1)
	require.Len(t, fired.Signals, 1)
	require.Equal(t, signal.WorkerTopic("flows"), fired.Signals[0].Topic)
	fired, err = s.RunDueSchedules(t.Context(), store.UpTo(10), runEach(t))
	require.NoError(t, err)
	require.Zero(t, fired.Schedules)
	require.Equal(t, 1, db.QueryInt(t, `select count(*) from tasker.tasks`))
}

func TestSchedulesSayWhatIsDue(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	fresh, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 1}) // knows no plan
	require.NoError(t, err)
	t.Cleanup(fresh.Close)
	for _, name := range []string{"gone", "same", "alive", "broken"} {
		keep(t, s, name)
	}
	makeDue(t, db)
	db.Exec(t, `update tasker.schedules set template = 'nothing' where name = 'gone'`)
	db.Exec(t, `update tasker.schedules set last_task_uuid = $1 where name = 'alive'`, create(t, s, p, 1)[0])
	db.Exec(t, `insert into tasker.plans (namespace_id, name, version, environment, content_hash, steps, template, current)
		select namespace_id, 'broken', '1.0.0', 'test', decode(repeat('00', 32), 'hex'), '{a}', '{"steps": 7}', true from tasker.namespaces where name = 'flows'`)
	db.Exec(t, `update tasker.schedules set template = 'broken' where name = 'broken'`)
	seen := map[string]store.DueSchedule{}
	fired, err := fresh.RunDueSchedules(t.Context(), store.UpTo(10), func(now time.Time, due []store.DueSchedule) []store.Firing {
		firings := make([]store.Firing, len(due))
		for i := range due {
			seen[due[i].Name] = due[i]
			firings[i] = store.Firing{Error: "because", NextRun: now.Add(time.Hour)}
		}
		firings[0].NextRun, firings[0].Pause = time.Time{}, "it is over"
		return firings
	})
	require.NoError(t, err)
	require.Equal(t, 4, fired.Schedules)
	require.Nil(t, seen["gone"].Plan)
	require.Nil(t, seen["broken"].Plan)
	require.Error(t, seen["broken"].Broken)
	require.Equal(t, p.ID, seen["same"].Plan.ID)
	require.True(t, seen["alive"].Alive)
	require.False(t, seen["same"].Alive)
	require.Equal(t, 4, db.QueryInt(t, `select count(*) from tasker.schedules where last_error = 'because'`))
	require.Equal(t, 1, db.QueryInt(t, `select count(*) from tasker.schedules where paused_by = 'tasker' and pause_reason = 'it is over' and next_run_at < now()`))
	require.Equal(t, 3, db.QueryInt(t, `select count(*) from tasker.schedules where paused_by is null and next_run_at > now()`))
}

func TestOneRunByHand(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	plan(t, s, oneStepYAML)
	made := keep(t, s, "hand")
	run := func(now time.Time, due *store.DueSchedule) (store.Firing, error) {
		task := newTask(due.Plan)
		identity := dedup.KeyIdentity("flows", "one", task.UUID.String())
		task.Identity = &identity
		return store.Firing{Tasks: []store.NewTask{task}, Runs: []time.Time{now}}, nil
	}
	fired, err := s.RunSchedule(t.Context(), made.UUID, ana, run)
	require.NoError(t, err)
	require.Len(t, fired.Accepted, 1)
	after, err := s.Schedule(t.Context(), made.UUID)
	require.NoError(t, err)
	require.Equal(t, made.NextRunAt, after.NextRunAt, "the due run is still due")
	require.Contains(t, fired.Accepted, *after.LastTask)
	refusal := errors.New("no")
	_, err = s.RunSchedule(t.Context(), made.UUID, ana, func(_ time.Time, due *store.DueSchedule) (store.Firing, error) {
		require.True(t, due.Alive)
		return store.Firing{}, refusal
	})
	require.ErrorIs(t, err, refusal)
	_, err = s.RunSchedule(t.Context(), uuid.New(), ana, run)
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Equal(t, 2, db.QueryInt(t, `select count(*) from tasker.operator_actions`), "the creation and one run")
}

// makeSchedules adds n schedules that are due.
func makeSchedules(t testing.TB, db *pgtest.DB, n int) {
	db.Exec(t, `insert into tasker.schedules (namespace_id, name, template, version, cron, time_zone, context, priority, tags, catch_up, max_catch_up,
			overlap, jitter_seconds, next_run_at)
		select namespace_id, 's' || gen_random_uuid(), 'one', '1.0.0', '@every 1h', 'UTC', '{}', 0, '{}', 1, 1, 2, 0, now() - i * interval '1 ms'
		from tasker.namespaces, generate_series(1, $1::int) i where name = 'flows'`, n)
}

// TestARunByHandSeesTheTaskOfTheRunThatItWaitedFor: a run that must not overlap is requested
// while another transaction makes one. It waits for the schedule, and finds the task alive.
func TestARunByHandSeesTheTaskOfTheRunThatItWaitedFor(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	plan(t, s, oneStepYAML)
	made := keep(t, s, "nightly")
	var alive []bool
	run := func(began func()) error {
		_, err := s.RunSchedule(t.Context(), made.UUID, ana, func(now time.Time, due *store.DueSchedule) (store.Firing, error) {
			alive = append(alive, due.Alive)
			began()
			task := newTask(due.Plan)
			identity := dedup.KeyIdentity("flows", "one", task.UUID.String())
			task.Identity = &identity
			return store.Firing{Tasks: []store.NewTask{task}, Runs: []time.Time{now}}, nil
		})
		return err
	}
	second := make(chan error, 1)
	require.NoError(t, run(func() {
		go func() { second <- run(func() {}) }()
		untilBlocked(t, db, 1)
	}))
	require.NoError(t, <-second)
	require.Equal(t, []bool{false, true}, alive)
}
