package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/schedule"
	"github.com/tasker-go/tasker/internal/store"
)

const (
	schedulesPath = "/v1/schedules"
	goodSchedule  = `"name":"nightly","namespace":"shapes","template":"diamond","version":"1.0.0","cron":"30 2 * * *"`
)

var (
	scheduleID   = uuid.MustParse("019d1c5e-0c3e-7a41-9a0e-5b7b1b0a3f10")
	schedulePath = schedulesPath + "/" + scheduleID.String()
)

// aNightlySchedule runs next in the night in which clocks are changed.
func aNightlySchedule() store.Schedule {
	failed := "the task of the run before, " + taskID.String() + ", is still alive"
	return store.Schedule{UUID: scheduleID, Namespace: "shapes", Name: "nightly", Template: "diamond", Version: "1.0.0", Cron: "30 2 * * *",
		TimeZone: "Europe/Berlin", Context: json.RawMessage(`{"even_number":6}`), Priority: 5, Tags: []string{"demo"}, CatchUp: schedule.CatchUpAll, MaxCatchUp: 12,
		Overlap: schedule.OverlapSkip, Jitter: 90 * time.Second, NextRunAt: time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC),
		LastRunAt: at(-3600), LastTask: &taskID, LastError: &failed, CreatedAt: began, UpdatedAt: *at(1), Revision: 3, ReadAt: time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)}
}

// fakeSchedules has one schedule and records requests.
type fakeSchedules struct{ *fakeOperator }

func (f fakeSchedules) one(what string, id uuid.UUID, with any) (store.Schedule, error) {
	if err := f.note(what, with); err != nil {
		return store.Schedule{}, err
	}
	if id != scheduleID {
		return store.Schedule{}, fmt.Errorf("%s: %w", what, store.ErrNotFound)
	}
	return aNightlySchedule(), nil
}

func (f fakeSchedules) CreateSchedule(_ context.Context, s store.Schedule, why orchestration.Why) (store.Schedule, error) {
	if err := f.note("create schedule", []any{s, why}); err != nil {
		return s, err
	}
	made := aNightlySchedule()
	made.LastRunAt, made.LastTask, made.LastError = nil, nil, nil
	return made, nil
}

func (f fakeSchedules) Schedules(_ context.Context, filter store.ScheduleFilter) (store.SchedulePage, error) {
	paused, by, why := aNightlySchedule(), "ana", "the gateway is down"
	paused.Name, paused.PausedAt, paused.PausedBy, paused.PauseReason, paused.Tags = "weekly", at(2), &by, &why, nil
	return store.SchedulePage{Schedules: []store.Schedule{aNightlySchedule(), paused}, Total: 60}, f.note("schedules", filter)
}

func (f fakeSchedules) Schedule(_ context.Context, id uuid.UUID) (store.Schedule, error) {
	return f.one("read", id, nil)
}

func (f fakeSchedules) UpdateSchedule(_ context.Context, id uuid.UUID, why orchestration.Why, change func(s *store.Schedule)) (store.Schedule, error) {
	s := store.Schedule{}
	change(&s)
	return f.one("update schedule", id, []any{s, why})
}

func (f fakeSchedules) PauseSchedule(_ context.Context, id uuid.UUID, why orchestration.Why) (store.Schedule, error) {
	return f.one("pause schedule", id, why)
}

func (f fakeSchedules) ResumeSchedule(_ context.Context, id uuid.UUID, why orchestration.Why) (store.Schedule, error) {
	return f.one("resume schedule", id, why)
}

func (f fakeSchedules) DeleteSchedule(_ context.Context, id uuid.UUID, why orchestration.Why) (store.Schedule, error) {
	return f.one("delete schedule", id, why)
}

func (f fakeSchedules) RunSchedule(_ context.Context, id uuid.UUID, why orchestration.Why) (orchestration.Created, error) {
	_, err := f.one("run schedule", id, why)
	return orchestration.Created{UUID: taskID}, err
}

func TestScheduleIsCreated(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	h.do(http.MethodPost, schedulesPath, `{`+goodSchedule+`,"time_zone":"Europe/Berlin","context":{"even_number":6},"priority":5,"tags":["demo"],"catch_up":"all",`+
		`"max_catch_up":12,"overlap":"skip","jitter_seconds":90,"actor":"ana","reason":"why","dry_run":true}`).golden(t, "schedule_created")
	s := store.Schedule{Namespace: "shapes", Name: "nightly", Template: "diamond", Version: "1.0.0", Cron: "30 2 * * *"}
	full := s
	full.TimeZone, full.Context, full.Priority, full.Tags, full.CatchUp, full.MaxCatchUp = "Europe/Berlin", json.RawMessage(`{"even_number":6}`), 5, []string{"demo"}, schedule.CatchUpAll, 12
	full.Overlap, full.Jitter = schedule.OverlapSkip, 90*time.Second
	require.Equal(t, []acted{{"create schedule", []any{full, orchestration.Why{Actor: "ana", Reason: "why", DryRun: true}}}}, o.taken())
	require.Equal(t, 200, h.do(http.MethodPost, schedulesPath, `{`+goodSchedule+`}`).StatusCode)
	require.Equal(t, []acted{{"create schedule", []any{s, orchestration.Why{Actor: "orchestrator-1", Reason: "created over the API"}}}}, o.taken())

	for body, want := range map[string]int{
		`{}`: 422, `[]`: 422, `{`: 400, `{` + strings.Replace(goodSchedule, `"cron"`, `"corn"`, 1) + `}`: 400, `{` + goodSchedule + `,"name":null}`: 422,
		`{` + goodSchedule + `,"cron":7}`: 422, `{` + goodSchedule + `,"cron":""}`: 400, `{` + goodSchedule + `,"time_zone":""}`: 400, `{` + goodSchedule + `,"context":[]}`: 400,
		`{` + goodSchedule + `,"catch_up":"some"}`: 400, `{` + goodSchedule + `,"overlap":"all"}`: 400, `{` + goodSchedule + `,"max_catch_up":0}`: 400,
		`{` + goodSchedule + `,"max_catch_up":1001}`: 400, `{` + goodSchedule + `,"jitter_seconds":-1}`: 400, `{` + goodSchedule + `,"jitter_seconds":3601}`: 400,
		`{` + goodSchedule + `,"priority":"x"}`: 422, `{` + goodSchedule + `,"tags":"x"}`: 422, `{` + goodSchedule + `,"name":"` + strings.Repeat("x", 65) + `"}`: 400,
	} {
		r := h.do(http.MethodPost, schedulesPath, body)
		require.Equal(t, want, r.StatusCode, "%s: %s", body, r.body)
	}
	require.Empty(t, o.taken())
}

func TestScheduleRefusals(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	for _, tt := range []struct {
		err    error
		status int
		code   string
	}{
		{fmt.Errorf("keep: %w", store.ErrScheduleExists), 409, "CONFLICT"},
		{fmt.Errorf("keep: %w", store.ErrScheduleChanged), 409, "CONFLICT"},
		{&orchestration.ScheduleBusyError{Task: taskID}, 409, "CONFLICT"},
		{&orchestration.InvalidError{Problems: []string{"cron: no"}}, 400, "BAD_REQUEST"},
		{&orchestration.UnknownTemplateError{Namespace: "a", Name: "b", Version: "c"}, 404, "NOT_FOUND"},
		{store.ErrUnavailable, 503, "SERVICE_UNAVAILABLE"},
		{sqlError{}, 500, "DATABASE_ERROR"},
	} {
		o.fails(tt.err)
		for _, r := range []reply{h.do(http.MethodPost, schedulesPath, `{`+goodSchedule+`}`), h.do(http.MethodPatch, schedulePath, `{"priority":1}`),
			h.do(http.MethodPost, schedulePath+"/run", ""), h.do(http.MethodPost, schedulePath+"/resume", "")} {
			e := r.refused(t, tt.status, tt.code)
			require.NotContains(t, e.Message, "secret")
			if errors.As(tt.err, new(*orchestration.ScheduleBusyError)) {
				require.Equal(t, taskID.String(), e.TaskUUID)
			}
		}
	}
	h.store.named = []store.NamedTemplate{{Name: "d", Namespace: "examples", Version: "1.0.0"}}
	o.fails(&orchestration.UnknownTemplateError{Namespace: "default", Name: "d", Version: "1.0.0"})
	for _, r := range []reply{h.do(http.MethodPost, schedulesPath, `{`+goodSchedule+`}`),
		h.do(http.MethodPatch, schedulePath, `{"version":"1.0.0"}`)} {
		e := r.refused(t, 404, "NOT_FOUND")
		require.Equal(t, "Template not found: default/d/1.0.0; did you mean examples/d?", e.Message)
	}
}

func TestSchedulesAreShown(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	h.get(schedulesPath+"?page=2&per_page=2").golden(t, "schedules")
	h.get(schedulePath).golden(t, "schedule")
	h.get(schedulePath+"/next?count=3").golden(t, "schedule_next")
	require.Equal(t, 200, h.get(schedulesPath+"?namespace=n&name=a&template=t&paused=false").StatusCode)
	no := false
	require.Equal(t, []acted{{"schedules", store.ScheduleFilter{Limit: 2, Offset: 2}}, {"read", nil}, {"read", nil},
		{"schedules", store.ScheduleFilter{Limit: 25, Namespace: "n", Name: "a", Template: "t", Paused: &no}}}, o.taken())
	for _, query := range []string{"?page=0", "?page=x", "?per_page=101", "?per_page=0", "?paused=perhaps", "?namespace=%00", "?name=" + strings.Repeat("x", 65)} {
		h.get(schedulesPath+query).refused(t, 400, "BAD_REQUEST")
	}
	for _, count := range []string{"0", "101", "x"} {
		h.get(schedulePath+"/next?count="+count).refused(t, 400, "BAD_REQUEST")
	}
	require.Empty(t, o.taken())
}

func TestScheduleIsChanged(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	var s client.Schedule
	h.do(http.MethodPatch, schedulePath, `{"cron":"@daily","tags":[],"max_catch_up":3,"reason":"why"}`).into(t, &s)
	require.Equal(t, "nightly", s.Name)
	require.Equal(t, "2026-03-29T03:00:00+02:00", s.NextRuns[0].Local)
	h.do(http.MethodPost, schedulePath+"/pause", `{"reason":"down","actor":"ana"}`).into(t, &s)
	h.do(http.MethodPost, schedulePath+"/resume", "").into(t, &s)
	h.do(http.MethodPost, schedulePath+"/resume?actor=ana&reason=up", "").into(t, &s)
	var gone client.Schedule
	h.do(http.MethodDelete, schedulePath, `{"actor":"ben"}`).into(t, &gone)
	require.Empty(t, gone.NextRuns)
	var run client.ScheduleRun
	h.do(http.MethodPost, schedulePath+"/run", `{"reason":"now"}`).into(t, &run)
	require.Equal(t, client.ScheduleRun{ScheduleID: scheduleID.String(), TaskUUID: taskID.String()}, run)
	why := func(actor, reason string) orchestration.Why { return orchestration.Why{Actor: actor, Reason: reason} }
	require.Equal(t, []acted{
		{"update schedule", []any{store.Schedule{Cron: "@daily", Tags: []string{}, MaxCatchUp: 3}, why("orchestrator-1", "why")}},
		{"pause schedule", why("ana", "down")}, {"resume schedule", why("orchestrator-1", "resumed over the API")}, {"resume schedule", why("ana", "up")},
		{"delete schedule", why("ben", "deleted over the API")}, {"run schedule", why("orchestrator-1", "now")}}, o.taken())

	for body, want := range map[string]int{`{}`: 400, `{"reason":"r"}`: 400, `{"name":"x"}`: 400, `{"namespace":"x","priority":1}`: 400, `{"cron":null}`: 400, `{"cron":""}`: 400,
		`{"context":7}`: 400, `{"priority":1.5}`: 422, `{"tags":{}}`: 422, `{"catch_up":"never"}`: 400, `{"version":"` + strings.Repeat("1", 51) + `"}`: 400} {
		require.Equal(t, want, h.do(http.MethodPatch, schedulePath, body).StatusCode, body)
	}
	for body, want := range map[string]int{`{}`: 422, `{"reason":"r"}`: 422, `{"reason":"","actor":"a"}`: 400} {
		require.Equal(t, want, h.do(http.MethodPost, schedulePath+"/pause", body).StatusCode, body)
	}
	require.Empty(t, o.taken())
	for _, route := range []string{"GET ", "PATCH ", "DELETE ", "POST /pause", "POST /resume", "POST /run", "GET /next"} {
		method, sub, _ := strings.Cut(route, " ")
		body := map[string]string{"PATCH ": `{"priority":1}`, "POST /pause": `{"reason":"r","actor":"a"}`}[route]
		e := h.do(method, schedulesPath+"/"+taskID.String()+sub, body).refused(t, 404, "NOT_FOUND")
		require.Contains(t, e.Message, "Schedule not found: "+taskID.String(), route)
		h.do(method, schedulesPath+"/nonsense"+sub, body).refused(t, 400, "INVALID_UUID")
	}
}

// TestSchedulesOfARealEngine: an invalid request leaves no row, a valid one runs.
func TestSchedulesOfARealEngine(t *testing.T) {
	t.Parallel()
	c, e := operatedHouse(t)
	ctx := t.Context()
	good := client.ScheduleRequest{Name: "nightly", Namespace: "shapes", Template: "chain", Version: "1.0.0", Cron: "30 2 * * *", TimeZone: "Europe/Berlin", CatchUp: client.CatchUpOne}
	for why, change := range map[string]func(r *client.ScheduleRequest){
		"cron":      func(r *client.ScheduleRequest) { r.Cron = "30 25 * * *" },
		"never":     func(r *client.ScheduleRequest) { r.Cron = "0 0 30 2 *" },
		"time_zone": func(r *client.ScheduleRequest) { r.TimeZone = "Europe/Atlantis" },
		"context":   func(r *client.ScheduleRequest) { r.Context = json.RawMessage(`[1]`) },
		"name":      func(r *client.ScheduleRequest) { r.Name = "night/ly" },
		"Template":  func(r *client.ScheduleRequest) { r.Template = "nothing" },
		"tags":      func(r *client.ScheduleRequest) { r.Tags = []string{""} },
		"priority":  func(r *client.ScheduleRequest) { r.Priority = 1000 },
	} {
		bad := good
		change(&bad)
		_, err := c.CreateSchedule(ctx, bad)
		var refusal *client.Error
		require.ErrorAs(t, err, &refusal, why)
		require.True(t, refusal.Status >= 400 && refusal.Status < 500)
		require.NotEmpty(t, refusal.RequestID)
		require.Contains(t, refusal.Message, why)
	}
	dry := good
	dry.DryRun = true
	shown, err := c.CreateSchedule(ctx, dry)
	require.NoError(t, err)
	require.Len(t, shown.NextRuns, 5)
	require.Equal(t, uuid.Nil.String(), shown.ScheduleID)
	require.Zero(t, e.DB.QueryInt(t, `select count(*) from tasker.schedules`))

	made, err := c.CreateSchedule(ctx, good)
	require.NoError(t, err)
	_, err = c.CreateSchedule(ctx, good)
	require.True(t, client.IsConflict(err), "%v", err)
	next, err := c.NextRuns(ctx, made.ScheduleID, 3)
	require.NoError(t, err)
	require.Equal(t, made.NextRuns[:3], next.Runs)
	require.Equal(t, made.NextRunAt.Time, next.Runs[0].At.Time)

	run, err := c.RunSchedule(ctx, made.ScheduleID, client.Why{Actor: "ana", Reason: "now"})
	require.NoError(t, err)
	task := endOf(t, c, run.TaskUUID, "complete")
	require.Equal(t, "schedule:nightly", task.Initiator)
	paused, err := c.PauseSchedule(ctx, made.ScheduleID, client.Why{Actor: "ana", Reason: "down"})
	require.NoError(t, err)
	require.Equal(t, "down", *paused.PauseReason)
	e.DB.Exec(t, `update tasker.schedules set next_run_at = now() - interval '3 days'`)
	resumed, err := c.ResumeSchedule(ctx, made.ScheduleID, client.Why{})
	require.NoError(t, err)
	require.False(t, resumed.Paused)
	require.Eventually(t, func() bool {
		s, err := c.Schedule(ctx, made.ScheduleID)
		return err == nil && *s.LastTaskUUID != run.TaskUUID
	}, 30*time.Second, 10*time.Millisecond)
	tag := "noon"
	changed, err := c.UpdateSchedule(ctx, made.ScheduleID, client.ScheduleUpdate{Cron: ref("0 12 * * *"), Tags: &[]string{tag}})
	require.NoError(t, err)
	require.Equal(t, []string{tag}, changed.Tags)
	require.Contains(t, changed.NextRuns[0].Local, "T12:00:00")
	_, err = c.UpdateSchedule(ctx, made.ScheduleID, client.ScheduleUpdate{Cron: ref("0 12 * *")})
	require.ErrorContains(t, err, "cron")
	list, err := c.Schedules(ctx, client.ScheduleListOptions{Namespace: "shapes", Name: "nightly"})
	require.NoError(t, err)
	require.Equal(t, "0 12 * * *", list.Schedules[0].Cron)
	_, err = c.DeleteSchedule(ctx, made.ScheduleID, client.Why{})
	require.NoError(t, err)
	_, err = c.Schedule(ctx, made.ScheduleID)
	require.True(t, client.IsNotFound(err))
}
