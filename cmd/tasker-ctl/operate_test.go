package main

import (
	"encoding/json"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
)

// What operators ask for arrives as they said it.
func TestOperatorsAreUnderstood(t *testing.T) {
	t.Parallel()
	left := runningTask[:35] + "b"
	for name, tt := range map[string]struct {
		args  []string
		stdin string
		seen  string // the last request
		body  string
	}{
		"reset": {args: []string{"task", "reset-step", failedTask, "right", "-r", "why", "-b", "ana"}, seen: "PATCH /v1/tasks/" + failedTask + "/workflow_steps/" + failedTask[:35] + "c",
			body: `{"action_type":"reset_for_retry","reason":"why","reset_by":"ana"}`},
		"resolve": {args: []string{"task", "resolve-step", runningTask, left, "-r", "why"}, seen: "PATCH /v1/tasks/" + runningTask + "/workflow_steps/" + left,
			body: `{"action_type":"resolve_manually","reason":"why","resolved_by":"cli-operator"}`},
		"complete": {args: []string{"task", "complete-step", runningTask, left, "-r", "why", "--result", "-"}, stdin: `{"b": 1.50}`,
			seen: "PATCH /v1/tasks/" + runningTask + "/workflow_steps/" + left,
			body: `{"action_type":"complete_manually","reason":"why","completed_by":"cli-operator","completion_data":{"result":{"b":1.50}}}`},
		"release": {args: []string{"task", "release-lease", runningTask, "left", "-r", "why"}, seen: "POST /v1/tasks/" + runningTask + "/actions",
			body: `{"action":"release_lease","step_uuid":"` + left + `","reason":"why","actor":"cli-operator"}`},
		"edited": {args: []string{"task", "run-again", runningTask, "left", "-r", "why", "--patch", `{"n":1}`}, seen: "POST /v1/tasks/" + runningTask + "/actions",
			body: `{"action":"run_again","step_uuid":"` + left + `","reason":"why","actor":"cli-operator","context_patch":{"n":1}}`},
		"reset edited": {args: []string{"task", "reset-step", runningTask, "left", "-r", "why", "-b", "ana", "-i", `{"n":1}`}, seen: "POST /v1/tasks/" + runningTask + "/actions",
			body: `{"action":"reset_for_retry","step_uuid":"` + left + `","reason":"why","actor":"ana","context":{"n":1}}`},
		"preview": {args: []string{"task", "run-again", runningTask, "left", "-r", "why", "--dry-run"}, seen: "POST /v1/tasks/" + runningTask + "/actions/preview",
			body: `{"action":"run_again","step_uuid":"` + left + `","reason":"why","actor":"cli-operator"}`},
		"priority": {args: []string{"task", "reprioritise", runningTask, "-p", "-7", "-r", "why"}, seen: "POST /v1/tasks/" + runningTask + "/actions",
			body: `{"action":"reprioritise","reason":"why","actor":"cli-operator","priority":-7}`},
		"replay": {args: []string{"task", "replay", runningTask, "-r", "why", "-i", `{"n":1}`}, seen: "POST /v1/tasks/" + runningTask + "/actions",
			body: `{"action":"replay","reason":"why","actor":"cli-operator","context":{"n":1}}`},
		"cancel": {args: []string{"task", "cancel", runningTask}, seen: "DELETE /v1/tasks/" + runningTask + "?actor=cli-operator"},
		"bulk": {args: []string{"task", "action", "reprioritise", "-n", "shapes", "--name", "diamond", "--version", "1.0.0", "-s", "error,cancelled", "--tag", "t",
			"--created-before", "1h", "--created-after", "2026-03-20T00:00:00Z", "-p", "0", "-l", "7", "-r", "why", "--yes"}, seen: "POST /v1/tasks/actions",
			body: `{"filter":{"namespace":"shapes","name":"diamond","version":"1.0.0","states":["error","cancelled"],"tag":"t","created_before":"2026-03-21T09:11:20.000000Z",` +
				`"created_after":"2026-03-20T00:00:00.000000Z"},"action":"reprioritise","reason":"why","actor":"cli-operator","priority":0,"dry_run":false,"limit":7}`},
		"dlq": {args: []string{"dlq", "list", "-s", "permanently-failed", "--dlq-reason", "worker_unavailable", "-n", "shapes", "--task-name", "diamond", "-l", "7", "-o", "8"},
			seen: "GET /v1/dlq?dlq_reason=WorkerUnavailable&limit=7&namespace=shapes&offset=8&resolution_status=PermanentlyFailed&task_name=diamond"},
		"update": {args: []string{"dlq", "update", pendingEntry, "-s", "cancelled", "-n", "", "--metadata", `{"a":1}`}, seen: "PATCH /v1/dlq/entry/" + pendingEntry,
			body: `{"resolution_status":"Cancelled","resolution_notes":"","metadata":{"a":1}}`},
		"add": {args: []string{"dlq", "add", runningTask, "-r", "why", "--metadata", `{"a":1}`}, seen: "POST /v1/dlq/entries",
			body: `{"task_uuid":"` + runningTask + `","reason":"why","actor":"cli-operator","metadata":{"a":1}}`},
		"replay one": {args: []string{"dlq", "replay", pendingEntry, "-r", "why", "-i", `{}`}, seen: "POST /v1/dlq/replay",
			body: `{"dlq_entry_uuid":"` + pendingEntry + `","reason":"why","actor":"cli-operator","context":{},"dry_run":false}`},
		"replay many": {args: []string{"dlq", "replay", "--since", "2h", "--until", "1h", "-l", "5000", "-r", "why", "--dry-run"}, seen: "POST /v1/dlq/replay",
			body: `{"filter":{"since":"2026-03-21T08:11:20.000000Z","until":"2026-03-21T09:11:20.000000Z"},"reason":"why","actor":"cli-operator","per_second":10,"limit":1000,"dry_run":true}`},
		"purge": {args: []string{"dlq", "purge", "--older-than", "90m", "-l", "5", "-r", "why", "--yes"}, seen: "POST /v1/dlq/purge",
			body: `{"older_than_seconds":5400,"limit":5,"reason":"why","actor":"cli-operator","dry_run":false}`},
		"pause": {args: []string{"namespace", "pause", "shapes", "-r", "why"}, seen: "PUT /v1/namespaces/shapes/pause", body: `{"reason":"why","actor":"cli-operator"}`},
		"policy": {args: []string{"policy", "set", "shapes", "draw", "--policy", "fifo", "-r", "why"}, seen: "PUT /v1/namespaces/shapes/policies/draw",
			body: `{"policy":"fifo","reason":"why","actor":"cli-operator"}`},
		"predictions": {args: []string{"predict", "explain", "0195b1b2-7d00-7000-8000-000000000001"}, seen: "GET /v1/tasks/0195b1b2-7d00-7000-8000-000000000001/predictions"},
		"features": {args: []string{"policy", "set", "shapes", "draw", "--policy", "deadline_aware", "--features", "rows,count:items", "--class", "tenant", "-r", "why"},
			seen: "PUT /v1/namespaces/shapes/policies/draw", body: `{"policy":"deadline_aware","features":["rows","count:items"],"class":"tenant","reason":"why","actor":"cli-operator"}`},
		"no policy": {args: []string{"policy", "delete", "shapes", "draw"}, seen: "DELETE /v1/namespaces/shapes/policies/draw", body: `{"actor":"cli-operator"}`},
		"resume":    {args: []string{"namespace", "resume", "shapes"}, seen: "DELETE /v1/namespaces/shapes/pause?actor=cli-operator"},
		"limit": {args: []string{"limit", "set", "shapes", "charge", "--key", "customer.id", "--max-running", "0", "--weight", "a=b=0.5", "-r", "why"},
			seen: "PUT /v1/namespaces/shapes/limits/charge", body: `{"reason":"why","actor":"cli-operator","key_path":["customer","id"],"max_running":0,"weights":{"a=b":0.5}}`},
		"limit removed": {args: []string{"limit", "delete", "shapes", "charge", "--method", "m"}, seen: "DELETE /v1/namespaces/shapes/limits/charge", body: `{"method":"m","actor":"cli-operator"}`},
		"submission limit": {args: []string{"submission", "set", "shapes", "diamond", "--throttle", "100/1m", "--throttle-key", "customer.id", "--beyond", "delay", "--debounce", "5s",
			"--max-wait", "1m", "--debounce-key-tag", "document:", "-r", "why"}, seen: "PUT /v1/namespaces/shapes/submissions/diamond",
			body: `{"throttle":{"max":100,"period_ms":60000,"key_path":["customer","id"],"beyond":"delay"},"debounce":{"quiet_ms":5000,"max_wait_ms":60000,"key_tag":"document:"},` +
				`"reason":"why","actor":"cli-operator"}`},
		"no submission limit": {args: []string{"submission", "delete", "shapes", "diamond"}, seen: "DELETE /v1/namespaces/shapes/submissions/diamond", body: `{"actor":"cli-operator"}`},
		"workers": {args: []string{"system", "workers", "-s", "dead", "-n", "shapes"}, seen: "GET /v1/workers?" +
			url.Values{"status": {"dead"}, "namespace": {"shapes"}, "limit": {"100"}}.Encode()},
		"sweep": {args: []string{"system", "sweeps", "run", "liveness"}, seen: "POST /v1/sweeps/liveness/run", body: `{}`},
		"schedule": {args: []string{"schedule", "create", "poll", "--cron", "@every 5m", "-z", "Europe/Berlin", "-n", "shapes", "--template", "diamond", "-v", "2.0.0", "-i", "-",
			"-p", "-7", "--tag", "a,b", "--tag", "c", "--catch-up", "all", "--max-catch-up", "50", "--overlap", "skip", "--jitter", "90s", "--dry-run", "-r", "why", "-b", "ana"},
			stdin: `{"b": 1.50, "n": 9007199254740993, "d": 1.000000000000000001}`, seen: "POST /v1/schedules",
			body: `{"name":"poll","namespace":"shapes","template":"diamond","version":"2.0.0","cron":"@every 5m","time_zone":"Europe/Berlin","context":{"b":1.50,"n":9007199254740993,"d":1.000000000000000001},"priority":-7,` +
				`"tags":["a,b","c"],"catch_up":"all","max_catch_up":50,"overlap":"skip","jitter_seconds":90,"actor":"ana","reason":"why","dry_run":true}`},
		"schedule update": {args: []string{"schedule", "update", nightlySchedule, "--cron", "@daily", "-z", "UTC", "-v", "3.0.0", "--template", "t", "-p", "0", "--tag", "x", "-i", "{}",
			"--catch-up", "one", "--max-catch-up", "3", "--overlap", "allow", "--jitter", "0s"}, seen: "PATCH /v1/schedules/" + nightlySchedule,
			body: `{"template":"t","version":"3.0.0","cron":"@daily","time_zone":"UTC","context":{},"priority":0,"tags":["x"],"catch_up":"one","max_catch_up":3,"overlap":"allow",` +
				`"jitter_seconds":0,"actor":"cli-operator"}`},
		"schedule list": {args: []string{"schedule", "list", "-n", "shapes", "--template", "diamond", "--paused=false", "-l", "7", "--page", "2"},
			seen: "GET /v1/schedules?namespace=shapes&page=2&paused=false&per_page=7&template=diamond"},
		"isolated": {args: []string{"task", "batches", "isolated", runningTask, "-w", "rows", "--batch", "rows_003", "--retryable=false", "--replayed", "-l", "7", "--after", "5.2"},
			seen: "GET /v1/tasks/" + runningTask + "/batches/isolated?after=5.2&batch=rows_003&limit=7&replayed=true&retryable=false&worker_step=rows"},
		"replay isolated": {args: []string{"task", "batches", "replay", runningTask, "-w", "rows", "--retryable", "--again", "--dry-run", "-l", "7", "-r", "why", "-b", "ana"},
			seen: "POST /v1/tasks/" + runningTask + "/batches/isolated/replay",
			body: `{"reason":"why","actor":"ana","worker_step":"rows","retryable":true,"again":true,"limit":7,"dry_run":true}`},
		"schedule next":   {args: []string{"schedule", "next", "shapes/nightly", "--count", "3"}, seen: "GET /v1/schedules/" + nightlySchedule + "/next?count=3"},
		"schedule pause":  {args: []string{"schedule", "pause", nightlySchedule, "-r", "why"}, seen: "POST /v1/schedules/" + nightlySchedule + "/pause", body: `{"reason":"why","actor":"cli-operator"}`},
		"schedule resume": {args: []string{"schedule", "resume", nightlySchedule}, seen: "POST /v1/schedules/" + nightlySchedule + "/resume", body: `{"actor":"cli-operator"}`},
		"schedule run":    {args: []string{"schedule", "run", nightlySchedule, "-r", "why"}, seen: "POST /v1/schedules/" + nightlySchedule + "/run", body: `{"reason":"why","actor":"cli-operator"}`},
		"schedule delete": {args: []string{"schedule", "delete", nightlySchedule, "--yes"}, seen: "DELETE /v1/schedules/" + nightlySchedule + "?actor=cli-operator"},
		"events list": {args: []string{"events", "list", "-n", "shapes", "--name", "payment.*", "--after", "8", "--task", completeTask, "-l", "7"},
			seen: "GET /v1/events?after=8&limit=7&name=payment.%2A&namespace=shapes&task_uuid=" + completeTask},
		"type": {args: []string{"type", "register", "email.send", "-n", "mail", "--callable", "mail.send",
			"--execution-timeout", "1m30s"},
			seen: "PUT /v1/task-types/email.send",
			body: `{"namespace":"mail","version":"1.0.0","handler":"mail.send","timeout_seconds":90,"actor":"cli-operator"}`},
		"type, names of before": {args: []string{"type", "register", "email.send", "--handler", "mail.send",
			"--timeout", "90"},
			seen: "PUT /v1/task-types/email.send",
			body: `{"namespace":"default","version":"1.0.0","handler":"mail.send","timeout_seconds":90,"actor":"cli-operator"}`},
		"consumers create": {args: []string{"events", "consumers", "create", "new", "-n", "shapes", "--pattern", "a.*", "--pattern", "b.*", "--from", "now", "-r", "why"},
			seen: "POST /v1/event-consumers", body: `{"name":"new","namespace":"shapes","patterns":["a.*","b.*"],"from":"now","actor":"cli-operator","reason":"why"}`},
		"consumers reset": {args: []string{"events", "consumers", "reset", "mailer", "--to", "12", "-r", "why"}, seen: "POST /v1/event-consumers/mailer/reset",
			body: `{"to":"12","reason":"why","actor":"cli-operator"}`},
		"consumers delete": {args: []string{"events", "consumers", "delete", "mailer", "--yes"}, seen: "DELETE /v1/event-consumers/mailer?actor=cli-operator"},
		"breaker":          {args: []string{"system", "breakers", "force", "messaging", "auto"}, seen: "PUT /v1/admin/breakers/messaging", body: `{"state":"automatic"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			o := s.run(t.Context(), tt.stdin, tt.args...)
			require.Zero(t, o.code, o.stderr)
			require.Equal(t, tt.seen, s.api.seen[len(s.api.seen)-1])
			if tt.body == "" {
				require.Empty(t, s.api.bodies)
				return
			}
			require.Equal(t, []string{tt.body}, s.api.bodies)
		})
	}
}

// A replay of many is made of requests that the server has the time for, and
// ends when nothing is left.
func TestReplayInParts(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	o := s.run(t.Context(), "", "-o", "json", "dlq", "replay", "--all", "-l", "100000", "--per-second", "5", "-r", "why", "--yes")
	require.Zero(t, o.code, o.stderr)
	var done client.BulkResult
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &done))
	require.Equal(t, 250, done.Changed)
	require.Len(t, s.api.bodies, 3, "20 seconds each, and the rest")
	for _, body := range s.api.bodies {
		require.JSONEq(t, `{"filter":{"resolution_status":"Pending"},"reason":"why","actor":"cli-operator","per_second":5,"limit":100,"dry_run":false}`, body)
	}
}
