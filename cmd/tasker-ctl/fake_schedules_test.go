package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
)

const (
	nightlySchedule = "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a3f10"
	weeklySchedule  = "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a3f20" // is paused
)

// fakeSchedule is one of two; it runs next in the night in which clocks change.
func fakeSchedule(name string, details bool) client.Schedule {
	last, task, failed := at(-3600), completeTask, "a run was missed: no orchestrator ran in time"
	s := client.Schedule{ScheduleID: nightlySchedule, Namespace: "shapes", Name: name, Template: "diamond", Version: "1.0.0", Cron: "30 2 * * *",
		TimeZone: "Europe/Berlin", Context: json.RawMessage(`{"even_number":6}`), Priority: 5, Tags: []string{"a", "b"}, CatchUp: "all", MaxCatchUp: 12,
		Overlap: "skip", JitterSeconds: 90, NextRunAt: client.Time{Time: time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)}, LastRunAt: &last, LastTaskUUID: &task,
		LastError: &failed, CreatedAt: at(0), UpdatedAt: at(1)}
	if name == "weekly" {
		since, by, why := at(2), "ana", "the gateway is down"
		s.ScheduleID, s.Paused, s.PausedAt, s.PausedBy, s.PauseReason = weeklySchedule, true, &since, &by, &why
		s.LastRunAt, s.LastTaskUUID, s.LastError, s.Tags, s.CatchUp = nil, nil, nil, nil, "one"
	}
	if details {
		s.NextRuns = fakeRuns()
	}
	return s
}

func fakeRuns() []client.NextRun {
	return []client.NextRun{
		{At: client.Time{Time: time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)}, Local: "2026-03-29T03:00:00+02:00"},
		{At: client.Time{Time: time.Date(2026, 3, 30, 0, 30, 0, 0, time.UTC)}, Local: "2026-03-30T02:30:00+02:00"},
	}
}

// schedules answers what is asked of schedules.
func (f *fakeAPI) schedules(w http.ResponseWriter, r *http.Request, path string, body []byte) {
	parts := strings.Split(path, "/")
	switch {
	case len(parts) == 2 && r.Method == http.MethodPost:
		var q client.ScheduleRequest
		_ = json.Unmarshal(body, &q)
		switch {
		case q.Name == "nightly":
			fail(w, http.StatusConflict, "CONFLICT", "A schedule of this name exists in the namespace")
		case q.Template == "missing":
			fail(w, http.StatusNotFound, "NOT_FOUND", "Template not found: shapes/missing/1.0.0")
		case q.Cron == "61 * * * *":
			fail(w, http.StatusBadRequest, "BAD_REQUEST", `cron: invalid minute "61": want 0 to 59, a range, a list, or *`)
		default:
			s := fakeSchedule(q.Name, true)
			s.Namespace = q.Namespace
			answer(w, s)
		}
	case len(parts) == 2:
		list := client.ScheduleList{Pagination: client.Pagination{Page: 1, PerPage: 25, TotalCount: 60, TotalPages: 3, HasNext: true}}
		for _, name := range []string{"nightly", "weekly"} {
			if n := r.URL.Query().Get("name"); n == "" || n == name {
				list.Schedules = append(list.Schedules, fakeSchedule(name, false))
			}
		}
		answer(w, list)
	case parts[2] != nightlySchedule && parts[2] != weeklySchedule:
		fail(w, http.StatusNotFound, "NOT_FOUND", "Schedule not found: "+parts[2])
	case strings.HasSuffix(path, "/next"):
		answer(w, client.NextRuns{ScheduleID: parts[2], TimeZone: "Europe/Berlin", Paused: parts[2] == weeklySchedule, Runs: fakeRuns()})
	case strings.HasSuffix(path, "/run") && parts[2] == weeklySchedule:
		fail(w, http.StatusConflict, "CONFLICT", "the task of the run before, "+runningTask+", is still alive")
	case strings.HasSuffix(path, "/run"):
		answer(w, client.ScheduleRun{ScheduleID: parts[2], TaskUUID: newTask})
	case strings.HasSuffix(path, "/pause"):
		answer(w, fakeSchedule("weekly", true))
	default:
		answer(w, fakeSchedule(map[string]string{nightlySchedule: "nightly", weeklySchedule: "weekly"}[parts[2]], r.Method != http.MethodDelete))
	}
}
