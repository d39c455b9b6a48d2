package client_test

import (
	"encoding/json"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/wire"
)

func golden(t testing.TB, name string) string {
	t.Helper()
	raw, err := os.ReadFile("../internal/api/rest/testdata/" + name + ".json")
	require.NoError(t, err)
	return string(raw)
}

const bulkAnswer = `{"matched":3,"changed":2,"skipped":1,"dry_run":false,"tasks":["` + id + `"]}`

// Each call of operators has the right route and reads the answers of the server's golden
// files.
func TestEveryCallOfOperators(t *testing.T) {
	t.Parallel()
	ctx, yes, no := t.Context(), true, false
	namespace := `{"name":"a/b","paused":false,"paused_at":null,"paused_by":null,"pause_reason":null}`
	var breakers struct{ Breakers []json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(golden(t, "breakers")), &breakers))
	var entries []json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(golden(t, "dlq")), &entries))
	for name, c := range map[string]struct {
		answer, request, body string
		call                  func(c *client.Client) (any, error)
	}{
		"step": {golden(t, "left_step"), "PATCH /v1/tasks/x/workflow_steps/y", `{"action_type":"reset_for_retry","reason":"r","reset_by":"a"}`,
			func(c *client.Client) (any, error) {
				return c.ActOnStep(ctx, "x", "y", client.StepAction{ActionType: client.ActionReset, Reason: "r", ResetBy: "a"})
			}},
		"task": {golden(t, "task"), "POST /v1/tasks/x/actions", `{"action":"cancel","reason":"r","actor":"a"}`, func(c *client.Client) (any, error) {
			return c.ActOnTask(ctx, "x", client.TaskAction{Action: client.ActionCancel, Reason: "r", Actor: "a"})
		}},
		"bulk": {bulkAnswer, "POST /v1/tasks/actions", `{"filter":{"tag":"t"},"action":"cancel","reason":"r","actor":"a","dry_run":false}`,
			func(c *client.Client) (any, error) {
				return c.ActOnTasks(ctx, client.BulkAction{Filter: client.BulkFilter{Tag: "t"}, Action: client.ActionCancel, Reason: "r", Actor: "a", DryRun: &no})
			}},
		"cancel": {golden(t, "task"), "DELETE /v1/tasks/x?actor=a&reason=r+s", "", func(c *client.Client) (any, error) {
			return c.CancelTask(ctx, "x", client.Why{Actor: "a", Reason: "r s"})
		}},
		"dlq": {golden(t, "dlq"), "GET /v1/dlq?dlq_reason=ManualDlq&limit=5&namespace=n&offset=10&resolution_status=Pending&task_name=t", "",
			func(c *client.Client) (any, error) {
				return c.DLQEntries(ctx, client.DLQListOptions{ResolutionStatus: client.ResolutionPending, DLQReason: client.ReasonManualDLQ, Namespace: "n",
					TaskName: "t", Limit: 5, Offset: 10})
			}},
		"entry": {golden(t, "dlq_entry"), "GET /v1/dlq/task/x", "", func(c *client.Client) (any, error) { return c.DLQEntryOfTask(ctx, "x") }},
		"update": {golden(t, "dlq_updated"), "PATCH /v1/dlq/entry/x", `{"resolved_by":"x"}`, func(c *client.Client) (any, error) {
			by := "x"
			return c.UpdateDLQEntry(ctx, "x", client.DLQUpdate{ResolvedBy: &by})
		}},
		"stats":     {golden(t, "dlq_stats"), "GET /v1/dlq/stats", "", func(c *client.Client) (any, error) { return c.DLQStats(ctx) }},
		"queue":     {golden(t, "dlq_queue"), "GET /v1/dlq/investigation-queue?limit=5", "", func(c *client.Client) (any, error) { return c.InvestigationQueue(ctx, 5) }},
		"staleness": {golden(t, "dlq_staleness"), "GET /v1/dlq/staleness", "", func(c *client.Client) (any, error) { return c.Staleness(ctx, 0) }},
		"add": {string(entries[0]), "POST /v1/dlq/entries", `{"task_uuid":"x","reason":"r","actor":"a"}`, func(c *client.Client) (any, error) {
			return c.AddDLQEntry(ctx, client.DLQAdd{TaskUUID: "x", Reason: "r", Actor: "a"})
		}},
		"replay": {bulkAnswer, "POST /v1/dlq/replay", `{"dlq_entry_uuid":"x","reason":"r","actor":"a"}`, func(c *client.Client) (any, error) {
			return c.ReplayDLQ(ctx, client.DLQReplay{DLQEntryUUID: "x", Reason: "r", Actor: "a"})
		}},
		"purge": {`{"purged":1,"dry_run":true}`, "POST /v1/dlq/purge", `{"older_than_seconds":null,"reason":"r","actor":"a","dry_run":true}`,
			func(c *client.Client) (any, error) {
				return c.PurgeDLQ(ctx, client.DLQPurge{Reason: "r", Actor: "a", DryRun: &yes})
			}},
		"summary":  {golden(t, "summary"), "GET /v1/tasks/x/summary", "", func(c *client.Client) (any, error) { return c.TaskSummary(ctx, "x") }},
		"context":  {golden(t, "context"), "GET /v1/tasks/x/context", "", func(c *client.Client) (any, error) { return c.TaskContext(ctx, "x") }},
		"config":   {golden(t, "config"), "GET /config", "", func(c *client.Client) (any, error) { return c.OrchestratorConfig(ctx) }},
		"worker's": {golden(t, "worker_config"), "GET /config", "", func(c *client.Client) (any, error) { return c.WorkerConfig(ctx) }},
		"numbers": {`{"metrics":` + golden(t, "worker_metrics") + `,"timestamp":"2026-03-21T10:11:12.000000Z","worker_id":"w"}`, "GET /metrics/worker", "",
			func(c *client.Client) (any, error) { return c.WorkerMetrics(ctx) }},
		"templates": {golden(t, "worker_templates"), "GET /v1/templates?include_cache_stats=true&namespace=n", "",
			func(c *client.Client) (any, error) { return c.WorkerTemplates(ctx, "n", true) }},
		"template": {golden(t, "worker_template"), "GET /v1/templates/a/b%2Fc/1", "",
			func(c *client.Client) (any, error) { return c.WorkerTemplate(ctx, "a", "b/c", "1") }},
		"validate": {golden(t, "worker_validation"), "POST /v1/templates/a/b/1/validate", "",
			func(c *client.Client) (any, error) { return c.ValidateTemplate(ctx, "a", "b", "1") }},
		"performance": {golden(t, "performance"), "GET /v1/analytics/performance?hours=2", "",
			func(c *client.Client) (any, error) { return c.Performance(ctx, 2) }},
		"bottlenecks": {golden(t, "bottlenecks"), "GET /v1/analytics/bottlenecks?limit=3&min_executions=4", "",
			func(c *client.Client) (any, error) { return c.Bottlenecks(ctx, 3, 4) }},
		"namespaces": {golden(t, "namespaces"), "GET /v1/namespaces", "", func(c *client.Client) (any, error) { return under("namespaces")(c.Namespaces(ctx)) }},
		"pause": {namespace, "PUT /v1/namespaces/a%2Fb/pause", `{"reason":"r","actor":"a"}`, func(c *client.Client) (any, error) {
			return c.PauseNamespace(ctx, "a/b", client.Why{Reason: "r", Actor: "a"})
		}},
		"resume": {namespace, "DELETE /v1/namespaces/a%2Fb/pause", "", func(c *client.Client) (any, error) { return c.ResumeNamespace(ctx, "a/b", client.Why{}) }},
		"a policy": {golden(t, "policies"), "PUT /v1/namespaces/a%2Fb/policies/c%2Fd", `{"policy":"fifo"}`, func(c *client.Client) (any, error) {
			var list wire.PolicyList
			err := c.Call(ctx, "PUT", []string{"v1", "namespaces", "a/b", "policies", "c/d"}, map[string]string{"policy": "fifo"}, &list)
			return list, err
		}},
		"workers": {golden(t, "workers"), "GET /v1/workers?limit=5&namespace=n&status=dead", "", func(c *client.Client) (any, error) {
			return under("workers")(c.Workers(ctx, client.WorkerListOptions{Status: "dead", Namespace: "n", Limit: 5}))
		}},
		"api keys": {golden(t, "api_keys"), "GET /v1/api-keys?limit=7", "", func(c *client.Client) (any, error) { return under("api_keys")(c.APIKeys(ctx, 7)) }},
		"create key": {golden(t, "api_key"), "POST /v1/api-keys", `{"name":"n","permissions":["tasks:read"],"namespaces":["a"],"expires_in_seconds":60}`,
			func(c *client.Client) (any, error) {
				return c.CreateAPIKey(ctx, client.APIKeyRequest{Name: "n", Permissions: []string{"tasks:read"}, Namespaces: []string{"a"}, ExpiresInSeconds: 60})
			}},
		"rotate key": {golden(t, "api_key"), "POST /v1/api-keys/x/rotate", `{"grace_seconds":0,"reason":"r"}`, func(c *client.Client) (any, error) {
			return c.RotateAPIKey(ctx, "x", client.APIKeyRotation{GraceSeconds: new(int64), Reason: "r"})
		}},
		"revoke key": {golden(t, "api_key"), "DELETE /v1/api-keys/x?actor=a", "", func(c *client.Client) (any, error) {
			return c.RevokeAPIKey(ctx, "x", client.Why{Actor: "a"})
		}},
		"audit": {golden(t, "operator_actions"), "GET /v1/audit?actor=a&limit=7&since=2026-03-21T10%3A11%3A12Z", "", func(c *client.Client) (any, error) {
			return c.Audit(ctx, client.AuditOptions{Actor: "a", Since: time.Date(2026, 3, 21, 10, 11, 12, 0, time.UTC), Limit: 7})
		}},
		"me": {golden(t, "me"), "GET /v1/me", "", func(c *client.Client) (any, error) { return c.Me(ctx) }},
		"browser sessions": {golden(t, "browser_sessions"), "GET /v1/browser-sessions?principal=bo", "", func(c *client.Client) (any, error) {
			return under("browser_sessions")(c.BrowserSessions(ctx, client.BrowserSessionListOptions{Principal: "bo"}))
		}},
		"end browser session": {golden(t, "browser_session"), "DELETE /v1/browser-sessions/x?reason=r", "", func(c *client.Client) (any, error) {
			return c.EndBrowserSession(ctx, "x", client.Why{Reason: "r"})
		}},
		"sweeps":    {golden(t, "sweeps"), "GET /v1/sweeps", "", func(c *client.Client) (any, error) { return under("sweeps")(c.Sweeps(ctx)) }},
		"run sweep": {golden(t, "sweep_run"), "POST /v1/sweeps/x/run", `{}`, func(c *client.Client) (any, error) { return c.RunSweep(ctx, "x", client.SweepRequest{}) }},
		"create schedule": {golden(t, "schedule_created"), "POST /v1/schedules", `{"name":"a","namespace":"n","template":"t","version":"1","cron":"@daily"}`, func(c *client.Client) (any, error) {
			return c.CreateSchedule(ctx, client.ScheduleRequest{Name: "a", Namespace: "n", Template: "t", Version: "1", Cron: "@daily"})
		}},
		"schedules": {golden(t, "schedules"), "GET /v1/schedules?name=a&namespace=n&page=2&paused=true&per_page=5&template=t", "", func(c *client.Client) (any, error) {
			return c.Schedules(ctx, client.ScheduleListOptions{Page: 2, PerPage: 5, Namespace: "n", Name: "a", Template: "t", Paused: &yes})
		}},
		"isolated": {golden(t, "isolated"), "GET /v1/tasks/x/batches/isolated?after=5.2&batch=b&limit=7&replayed=false&retryable=true&worker_step=w", "", func(c *client.Client) (any, error) {
			return c.IsolatedItems(ctx, "x", client.IsolatedOptions{Worker: "w", Batch: "b", Retryable: &yes, Replayed: &no, After: "5.2", Limit: 7})
		}},
		"replay isolated": {golden(t, "isolated_replayed"), "POST /v1/tasks/x/batches/isolated/replay", `{"reason":"r","actor":"a","worker_step":"w","limit":5}`, func(c *client.Client) (any, error) {
			return c.ReplayIsolated(ctx, "x", client.IsolatedReplay{Reason: "r", Actor: "a", Worker: "w", Limit: 5})
		}},
		"schedule": {golden(t, "schedule"), "GET /v1/schedules/x", "", func(c *client.Client) (any, error) { return c.Schedule(ctx, "x") }},
		"update schedule": {golden(t, "schedule"), "PATCH /v1/schedules/x", `{"cron":"@daily","tags":[]}`, func(c *client.Client) (any, error) {
			cron, tags := "@daily", []string{}
			return c.UpdateSchedule(ctx, "x", client.ScheduleUpdate{Cron: &cron, Tags: &tags})
		}},
		"pause schedule": {golden(t, "schedule"), "POST /v1/schedules/x/pause", `{"reason":"r","actor":"a"}`, func(c *client.Client) (any, error) {
			return c.PauseSchedule(ctx, "x", client.Why{Reason: "r", Actor: "a"})
		}},
		"resume schedule": {golden(t, "schedule"), "POST /v1/schedules/x/resume", `{}`, func(c *client.Client) (any, error) { return c.ResumeSchedule(ctx, "x", client.Why{}) }},
		"delete schedule": {golden(t, "schedule"), "DELETE /v1/schedules/x?actor=a", "", func(c *client.Client) (any, error) {
			return c.DeleteSchedule(ctx, "x", client.Why{Actor: "a"})
		}},
		"run schedule": {`{"schedule_id":"x","task_uuid":"y"}`, "POST /v1/schedules/x/run", `{}`, func(c *client.Client) (any, error) { return c.RunSchedule(ctx, "x", client.Why{}) }},
		"next runs":    {golden(t, "schedule_next"), "GET /v1/schedules/x/next?count=3", "", func(c *client.Client) (any, error) { return c.NextRuns(ctx, "x", 3) }},
		"put task type": {golden(t, "task_type"), "PUT /v1/task-types/a%2Fb", `{"namespace":"n","handler":"h"}`, func(c *client.Client) (any, error) {
			return c.PutTaskType(ctx, "a/b", client.TaskTypeRequest{Namespace: "n", Handler: "h"})
		}},
		"task types": {golden(t, "task_types"), "GET /v1/task-types?limit=5&namespace=n&offset=7", "", func(c *client.Client) (any, error) {
			return under("task_types")(c.TaskTypes(ctx, client.TaskTypeListOptions{Namespace: "n", Limit: 5, Offset: 7}))
		}},
		"task type": {golden(t, "task_type_read"), "GET /v1/task-types/x?namespace=n", "", func(c *client.Client) (any, error) { return c.TaskType(ctx, "n", "x") }},
		"delete task type": {golden(t, "task_type_read"), "DELETE /v1/task-types/x?actor=a&namespace=n", "", func(c *client.Client) (any, error) {
			return c.DeleteTaskType(ctx, "n", "x", client.Why{Actor: "a"})
		}},
		"enqueue": {`{"id":"x","status":"pending","queue":"n"}`, "POST /v1/enqueue", `{"type":"x","payload":{}}`, func(c *client.Client) (any, error) {
			return c.Enqueue(ctx, client.EnqueueRequest{Type: "x", Payload: json.RawMessage(`{}`)})
		}},
		"enqueued": {`{"id":"x","type":"t","queue":"n","status":"complete","attempts":1,"max_attempts":3,"payload":{},"result":1,"created_at":"2026-03-21T10:11:12.123456Z"}`,
			"GET /v1/enqueue/x?wait=1s", "", func(c *client.Client) (any, error) { return c.EnqueuedTask(ctx, "x", time.Second) }},
		"find": {golden(t, "task"), "GET /v1/tasks/by-key?idempotency_key=a%2Fb+c&name=t&namespace=n&wait=1s", "", func(c *client.Client) (any, error) {
			return c.TaskByKey(ctx, "n", "t", "a/b c", time.Second)
		}},
		"breakers": {golden(t, "breakers"), "GET /v1/admin/breakers", "", func(c *client.Client) (any, error) { return under("breakers")(c.Breakers(ctx)) }},
		"force": {string(breakers.Breakers[0]), "PUT /v1/admin/breakers/web", `{"state":"forced_open"}`, func(c *client.Client) (any, error) {
			return c.ForceBreaker(ctx, "web", client.BreakerForcedOpen)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, calls, last := script(t, step{200, c.answer, nil})
			got, err := c.call(api)
			require.NoError(t, err)
			require.NotEmpty(t, got)
			require.Equal(t, c.request, last.Method+" "+last.URL.RequestURI()[len("/prefix"):])
			sent, err := io.ReadAll(last.Body)
			require.NoError(t, err)
			require.Equal(t, c.body, string(sent))
			require.EqualValues(t, 1, calls.Load())
			again, err := json.Marshal(got)
			require.NoError(t, err)
			require.JSONEq(t, c.answer, string(again), "encoding reverses decoding")

			failing, _, _ := script(t, step{404, `{"error":{"code":"NOT_FOUND","message":"no"}}`, nil})
			_, err = c.call(failing)
			require.True(t, client.IsNotFound(err), "%v", err)
		})
	}
}

// under puts a list where the API sends it.
func under(field string) func(list any, err error) (any, error) {
	return func(list any, err error) (any, error) { return map[string]any{field: list}, err }
}

// A call that may have changed something is not retried; others are.
func TestRetriesOfOperators(t *testing.T) {
	t.Parallel()
	ctx, yes, no := t.Context(), true, false
	filter := &client.DLQFilter{Namespace: "n"}
	for name, c := range map[string]struct {
		call  func(c *client.Client) error
		calls int32
	}{
		"step":       {func(c *client.Client) error { _, err := c.ActOnStep(ctx, "x", "y", client.StepAction{}); return err }, 1},
		"task":       {func(c *client.Client) error { _, err := c.ActOnTask(ctx, "x", client.TaskAction{}); return err }, 1},
		"bulk":       {func(c *client.Client) error { _, err := c.ActOnTasks(ctx, client.BulkAction{DryRun: &no}); return err }, 1},
		"bulk, dry":  {func(c *client.Client) error { _, err := c.ActOnTasks(ctx, client.BulkAction{}); return err }, 2},
		"replay one": {func(c *client.Client) error { _, err := c.ReplayDLQ(ctx, client.DLQReplay{}); return err }, 1},
		"replay many": {func(c *client.Client) error {
			_, err := c.ReplayDLQ(ctx, client.DLQReplay{Filter: filter, DryRun: &no})
			return err
		}, 1},
		"replay, dry": {func(c *client.Client) error { _, err := c.ReplayDLQ(ctx, client.DLQReplay{Filter: filter}); return err }, 2},
		"replay isolated": {func(c *client.Client) error {
			_, err := c.ReplayIsolated(ctx, "x", client.IsolatedReplay{})
			return err
		}, 1},
		"replay isolated, dry": {func(c *client.Client) error {
			_, err := c.ReplayIsolated(ctx, "x", client.IsolatedReplay{DryRun: true})
			return err
		}, 2},
		"purge": {func(c *client.Client) error { _, err := c.PurgeDLQ(ctx, client.DLQPurge{DryRun: &no}); return err }, 1},
		"sweep": {func(c *client.Client) error { _, err := c.RunSweep(ctx, "x", client.SweepRequest{}); return err }, 1},
		"sweep, dry": {func(c *client.Client) error {
			_, err := c.RunSweep(ctx, "x", client.SweepRequest{DryRun: yes})
			return err
		}, 2},
		"pause":    {func(c *client.Client) error { _, err := c.PauseNamespace(ctx, "x", client.Why{}); return err }, 2},
		"update":   {func(c *client.Client) error { _, err := c.UpdateDLQEntry(ctx, "x", client.DLQUpdate{}); return err }, 2},
		"schedule": {func(c *client.Client) error { _, err := c.CreateSchedule(ctx, client.ScheduleRequest{}); return err }, 1},
		"schedule, dry": {func(c *client.Client) error {
			_, err := c.CreateSchedule(ctx, client.ScheduleRequest{DryRun: yes})
			return err
		}, 2},
		"schedule update": {func(c *client.Client) error {
			_, err := c.UpdateSchedule(ctx, "x", client.ScheduleUpdate{})
			return err
		}, 2},
		"schedule delete": {func(c *client.Client) error { _, err := c.DeleteSchedule(ctx, "x", client.Why{}); return err }, 1},
		"schedule run":    {func(c *client.Client) error { _, err := c.RunSchedule(ctx, "x", client.Why{}); return err }, 1},
		"enqueue":         {func(c *client.Client) error { _, err := c.Enqueue(ctx, client.EnqueueRequest{}); return err }, 1},
		"enqueue keyed": {func(c *client.Client) error {
			_, err := c.Enqueue(ctx, client.EnqueueRequest{IdempotencyKey: "k"})
			return err
		}, 2},
		"force": {func(c *client.Client) error { _, err := c.ForceBreaker(ctx, "x", "automatic"); return err }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, calls, _ := script(t, step{503, `{"error":{"code":"SERVICE_UNAVAILABLE","message":"m"}}`, nil}, step{404, "", nil})
			require.Error(t, c.call(api))
			require.Equal(t, c.calls, calls.Load())
		})
	}
}
