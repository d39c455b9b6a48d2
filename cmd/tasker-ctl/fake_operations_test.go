package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/admission"
	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/wire"
)

const (
	pendingEntry  = "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a2f10"
	resolvedEntry = "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a2f20"
	newTask       = "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f60" // what a replay creates
)

// operations answers what operators ask for.
func (f *fakeAPI) operations(w http.ResponseWriter, r *http.Request, path string, body []byte) bool {
	if strings.HasPrefix(path, "v1/dlq") {
		f.dlq(w, r, path, body)
		return true
	}
	if strings.HasPrefix(path, "v1/schedules") {
		f.schedules(w, r, path, body)
		return true
	}
	if f.waits(w, path, body) {
		return true
	}
	if strings.HasPrefix(path, "v1/event") {
		f.events(w, r, path)
		return true
	}
	if strings.HasPrefix(path, "v1/task-types") || path == "v1/enqueue" {
		fakeTypes(w, r, path, body)
		return true
	}
	switch {
	case r.Method == http.MethodPatch && strings.Contains(path, "/workflow_steps/"):
		patchStep(w, path, body)
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/actions") && path != "v1/tasks/actions":
		actOnFake(w, strings.Split(path, "/")[2], body)
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/actions/preview"):
		answer(w, fakePreview(strings.Split(path, "/")[2], body))
	case path == "v1/tasks/actions":
		var b client.BulkAction
		_ = json.Unmarshal(body, &b)
		answer(w, client.BulkResult{Matched: 3, Changed: 2, Skipped: 1, DryRun: *b.DryRun, Tasks: []string{runningTask, failedTask}})
	case strings.HasSuffix(path, "/batches"):
		answer(w, fakeBatches(strings.Split(path, "/")[2]))
	case strings.HasSuffix(path, "/batches/isolated"):
		answer(w, fakeIsolated(strings.Split(path, "/")[2]))
	case strings.HasSuffix(path, "/batches/isolated/replay"):
		var b client.IsolatedReplay
		_ = json.Unmarshal(body, &b)
		answer(w, fakeReplayed(strings.Split(path, "/")[2], b))
	case path == "v1/namespaces":
		answer(w, wire.NamespaceList{Namespaces: []client.Namespace{{Name: "lines"}, pausedNamespace("shapes")}})
	case path == "v1/namespaces/shapes/pause" && r.Method == http.MethodPut:
		answer(w, pausedNamespace("shapes"))
	case path == "v1/namespaces/shapes/pause":
		answer(w, client.Namespace{Name: "shapes"})
	case path == "v1/audit":
		answer(w, client.AuditList{Records: []client.AuditRecord{{ID: 7, At: at(1), Actor: "ana", Action: "pause_namespace", Reason: "the shop is closed", Namespace: "shapes",
			Target: json.RawMessage(`{"namespace":"shapes"}`), Matched: 1, Changed: 1}}})
	case strings.HasPrefix(path, "v1/api-keys"):
		fakeKeys(w, r.Method)
	case strings.HasPrefix(path, "v1/browser-sessions"):
		fakeSessions(w, r.Method)
	case strings.HasPrefix(path, "v1/metrics/"):
		fakeRates(w, strings.TrimPrefix(path, "v1/metrics/"))
	case path == "v1/me":
		end := at(60)
		answer(w, client.Me{Principal: "ana", Method: "api_key", Permissions: []string{"tasks:read", "audit:read"}, Namespaces: []string{"shapes"}, ExpiresAt: &end, Access: "enforce"})
	case path == "v1/policies", path == "v1/namespaces/shapes/policies/draw" && r.Method == http.MethodPut:
		answer(w, wire.PolicyList{Policies: []wire.Policy{{Namespace: "shapes", Callable: "draw", Policy: "fifo", ChangedAt: *pausedNamespace("shapes").PausedAt, ChangedBy: "ana"}}})
	case path == "v1/namespaces/shapes/policies/draw":
		answer(w, wire.PolicyList{Policies: []wire.Policy{}})
	case strings.HasPrefix(path, "v1/tasks/") && strings.HasSuffix(path, "/predictions"):
		answer(w, wire.PredictionList{TaskUUID: strings.Split(path, "/")[2], Predictions: []wire.Prediction{
			{Step: "start", Policy: "shortest_expected", Basis: "regression", Expected: 0.25, P50: 0.3, P90: 1, P99: 2, Learned: 40, Trusted: true, Order: 0.93, Class: "acme",
				Outside:  &wire.Outside{Expected: new(0.2), Judged: 48, Order: -0.2},
				Features: []string{"rows"}, Values: []float64{12}, Weights: []float64{-7, 0.98}},
			{Step: "left", Policy: "shortest_expected", Basis: "unknown", Outside: &wire.Outside{Missing: "late", Trusted: true, Order: 1}},
		}})
	case path == "v1/limits":
		answer(w, wire.LimitList{Limits: []wire.Limit{fakeLimit(), {Namespace: "shapes", Callable: "mail", LimitRequest: wire.LimitRequest{Rule: limitrule.Rule{PerSecond: new(2.5), Burst: 10, Ordered: true, Overtake: true}}}}})
	case path == "v1/namespaces/shapes/limits/charge":
		answer(w, fakeLimit())
	case path == "v1/submission-limits", path == "v1/namespaces/shapes/submissions/diamond" && r.Method == http.MethodPut:
		answer(w, fakeSubmissionLimits())
	case path == "v1/namespaces/shapes/submissions/diamond":
		answer(w, wire.SubmissionLimitList{Limits: []wire.SubmissionLimit{}})
	case path == "v1/workers":
		list := fakeWorkers()
		for i := range list.Workers {
			if f.near {
				list.Workers[i].Address = r.Host
			}
			if f.many {
				list.Workers[i].Status = "active"
			}
		}
		answer(w, list)
	case path == "metrics":
		f.looks++
		fmt.Fprintf(w, fakeMetrics, 10*f.looks, f.looks)
	case path == "health":
		answer(w, client.Health{Status: "healthy", Timestamp: at(4)})
	case path == "v1/sweeps":
		answer(w, fakeSweeps())
	case path == "v1/sweeps/liveness/run":
		var s client.SweepRequest
		_ = json.Unmarshal(body, &s)
		answer(w, client.SweepRun{Sweep: "liveness", Outcome: "ok", DryRun: s.DryRun, TookMS: 7, Items: map[string]int{"would_bury": 1, "released": 4},
			Findings: []client.SweepFinding{{Subject: "worker-2", Action: "would_bury", Detail: "silent for 3m"}}})
	case path == "v1/sweeps/retention/run":
		fail(w, http.StatusConflict, "CONFLICT", "The sweep is running already")
	case path == "v1/admin/breakers":
		answer(w, fakeBreakers())
	case path == "v1/admin/breakers/messaging":
		var b wire.BreakerForce
		_ = json.Unmarshal(body, &b)
		answer(w, client.Breaker{Name: "messaging", State: "open", Control: b.State})
	default:
		return false
	}
	return true
}

func fakePreview(id string, body []byte) client.ActionPreview {
	var a client.TaskAction
	_ = json.Unmarshal(body, &a)
	p := client.ActionPreview{TaskUUID: id, Action: a.Action, Steps: []client.StepPreview{}}
	if a.StepUUID != "" {
		p.Steps = []client.StepPreview{{StepUUID: a.StepUUID, Name: "left", From: "complete", To: "enqueued"},
			{StepUUID: a.StepUUID, Name: "join", From: "cancelled", To: "pending"}}
	}
	if a.Context != nil || a.ContextPatch != nil {
		p.ContextBefore, p.ContextAfter = json.RawMessage(`{"n":1}`), json.RawMessage(`{"m":"x","n":2}`)
		p.ContextChanges = []client.ContextChange{{Path: "/m", After: json.RawMessage(`"x"`)}, {Path: "/n", Before: json.RawMessage(`1`), After: json.RawMessage(`2`)}}
	}
	return p
}

// patchStep puts a step into the state that follows from the action; only a
// step in error can be reset.
func patchStep(w http.ResponseWriter, path string, body []byte) {
	parts := strings.Split(path, "/")
	task := fakeTask(parts[2])
	var a client.StepAction
	_ = json.Unmarshal(body, &a)
	for _, s := range fakeSteps(task) {
		if s.StepUUID != parts[4] {
			continue
		}
		if a.ActionType == client.ActionReset && s.CurrentState != "error" {
			fail(w, http.StatusBadRequest, "BAD_REQUEST", "Cannot manually resolve step: invalid transition from "+s.CurrentState+" to ResetForRetry")
			return
		}
		s.CurrentState = map[string]string{client.ActionReset: "pending", client.StepResolveManually: "resolved_manually",
			client.ActionComplete: "complete"}[a.ActionType]
		answer(w, s)
		return
	}
	fail(w, http.StatusNotFound, "NOT_FOUND", "Step does not belong to the specified task")
}

func actOnFake(w http.ResponseWriter, id string, body []byte) {
	task := fakeTask(id)
	var a client.TaskAction
	_ = json.Unmarshal(body, &a)
	switch {
	case task == nil:
		fail(w, http.StatusNotFound, "NOT_FOUND", "Task not found: "+id)
	case a.Action == client.ActionReplay:
		task.TaskUUID, task.Status = newTask, "pending"
		answer(w, task)
	case task.Terminal() && a.Action != client.ActionRunAgain:
		fail(w, http.StatusBadRequest, "BAD_REQUEST", "A task that has ended does not allow "+a.Action)
	default:
		if a.Action == client.ActionResolve {
			task.Status = "resolved_manually"
		}
		if a.Action == client.ActionFail {
			task.Status = "error"
		}
		answer(w, task)
	}
}

func (f *fakeAPI) dlq(w http.ResponseWriter, r *http.Request, path string, body []byte) {
	switch r.Method + " " + path {
	case "GET v1/dlq":
		answer(w, fakeEntries())
	case "GET v1/dlq/task/" + failedTask:
		answer(w, fakeEntries()[0])
	case "GET v1/dlq/stats":
		oldest, average := client.NaiveTime{Time: fakeStart.Add(-time.Hour)}, 42.5
		answer(w, []client.DLQStats{
			{DLQReason: "MaxRetriesExceeded", TotalEntries: 7, Pending: 2, ManuallyResolved: 4, PermanentFailures: 1, OldestEntry: &oldest,
				NewestEntry: &oldest, AvgResolutionTimeMinutes: &average},
			{DLQReason: "ManualDlq", TotalEntries: 1, Pending: 1},
		})
	case "GET v1/dlq/investigation-queue":
		name, space, state, minutes := "diamond", "shapes", "error", int32(61)
		answer(w, []client.DLQQueueEntry{{DLQEntryUUID: pendingEntry, TaskUUID: failedTask, OriginalState: "error", DLQReason: "MaxRetriesExceeded",
			DLQTimestamp: client.NaiveTime{Time: fakeStart}, MinutesInDLQ: 61.5, NamespaceName: &space, TaskName: &name, CurrentState: &state,
			TimeInStateMinutes: &minutes, PriorityScore: 561.5}})
	case "GET v1/dlq/staleness":
		name, space := "diamond", "shapes"
		answer(w, []client.StalenessEntry{{TaskUUID: runningTask, NamespaceName: &space, TaskName: &name, CurrentState: "steps_in_process",
			TimeInStateMinutes: 29, TaskAgeMinutes: 40, StalenessThresholdMinutes: 30, HealthStatus: "warning", Priority: 5,
			Detail: "steps_in_process"}})
	case "PATCH v1/dlq/entry/" + pendingEntry:
		answer(w, client.DLQUpdated{Success: true, Message: "Investigation status updated successfully", DLQEntryUUID: pendingEntry})
	case "POST v1/dlq/entries":
		var a client.DLQAdd
		_ = json.Unmarshal(body, &a)
		e := fakeEntries()[0]
		if a.TaskUUID != failedTask {
			e.TaskUUID, e.DLQReason = a.TaskUUID, client.ReasonManualDLQ
		}
		answer(w, e)
	case "POST v1/dlq/replay":
		f.replayFake(w, body)
	case "POST v1/dlq/purge":
		var p client.DLQPurge
		_ = json.Unmarshal(body, &p)
		answer(w, client.DLQPurged{Purged: 12, DryRun: *p.DryRun})
	default:
		fail(w, http.StatusNotFound, "NOT_FOUND", "DLQ entry not found")
	}
}

// replayFake has 250 pending entries and replays as many as a request may.
func (f *fakeAPI) replayFake(w http.ResponseWriter, body []byte) {
	var r client.DLQReplay
	_ = json.Unmarshal(body, &r)
	switch {
	case r.DLQEntryUUID == resolvedEntry:
		fail(w, http.StatusConflict, "CONFLICT", "The entry was replayed already, as task "+newTask)
	case r.DLQEntryUUID != "":
		answer(w, client.BulkResult{Matched: 1, Changed: 1, Tasks: []string{failedTask}, ReplayedAs: newTask})
	default:
		n := min(r.Limit, 250-f.replayed)
		if !*r.DryRun {
			f.replayed += n
		}
		answer(w, client.BulkResult{Matched: n, Changed: n, DryRun: *r.DryRun, Tasks: []string{failedTask}})
	}
}

func pausedNamespace(name string) client.Namespace {
	since, by, why := at(1), "ana", "the gateway is down"
	return client.Namespace{Name: name, Paused: true, PausedAt: &since, PausedBy: &by, PauseReason: &why}
}

func fakeEntries() []client.DLQEntry {
	by, notes, again, resolved := "ana", "the vendor fixed it", newTask, client.NaiveTime{Time: fakeStart.Add(time.Second)}
	when := client.NaiveTime{Time: fakeStart}
	snapshot := json.RawMessage(`{"task_uuid":"` + failedTask + `","namespace":"shapes","task_name":"diamond","current_state":"error"}`)
	return []client.DLQEntry{
		{DLQEntryUUID: pendingEntry, TaskUUID: failedTask, OriginalState: "error", DLQReason: "MaxRetriesExceeded", DLQTimestamp: when,
			ResolutionStatus: "Pending", TaskSnapshot: snapshot, CreatedAt: when, UpdatedAt: when, Detail: "permanent",
			StepName: "right", Error: &client.StepError{Message: "no such order", ErrorType: "PermanentError"}},
		{DLQEntryUUID: resolvedEntry, TaskUUID: completeTask, OriginalState: "steps_in_process", DLQReason: "StalenessTimeout", DLQTimestamp: when,
			ResolutionStatus: "ManuallyResolved", ResolutionTimestamp: &resolved, ResolutionNotes: &notes, ResolvedBy: &by, ReplayedAs: &again,
			TaskSnapshot: snapshot, Metadata: json.RawMessage(`{"ticket":"X-1"}`), CreatedAt: when, UpdatedAt: when},
	}
}

func fakeWorkers() wire.WorkerList {
	worker := func(id, status string, age float64) client.WorkerState {
		return client.WorkerState{WorkerUUID: "u-" + id, WorkerID: id, Hostname: "pod", Address: "pod:8081", Version: "0.1.0", Mode: "Hybrid", Namespaces: []string{"shapes"},
			Tags: []string{}, Status: status, StatusSince: at(0), StartedAt: at(0), HeartbeatAgeSeconds: age}
	}
	gone := worker("worker-4", "active", 700)
	stopped := at(3)
	gone.StoppedAt, gone.Tags = &stopped, []string{"gpu", "eu"}
	return wire.WorkerList{Workers: []client.WorkerState{worker("worker-1", "active", 1.5), worker("worker-2", "stale", 45), worker("worker-3", "dead", 200), gone}}
}

// fakeMetrics are those of both daemons, of which two numbers grow.
const fakeMetrics = `# HELP tasker_queue_depth Claimable steps.
# TYPE tasker_queue_depth gauge
tasker_queue_depth{namespace="lines"} 3
tasker_queue_depth{namespace="shapes"} 12
tasker_steps_without_worker{namespace="shapes"} 2
tasker_tasks_created_total{namespace="shapes"} %d
tasker_tasks_completed_total{namespace="shapes",state="complete"} 7
tasker_tasks_completed_total{namespace="shapes",state="error"} %d
tasker_steps_claimed_total{namespace="shapes"} 1e+06
tasker_worker_handlers_active 3
tasker_worker_handlers_limit 10
tasker_step_duration_seconds_bucket{namespace="shapes",le="+Inf"} 4
`

func fakeSweeps() wire.SweepList {
	ended := at(0.25)
	return wire.SweepList{Sweeps: []client.Sweep{
		{Name: "liveness", NextAt: at(15), StartedAt: at(0), FinishedAt: &ended, Runs: 12, Holder: "o1", Result: json.RawMessage(`{"items":{"released":4}}`)},
		{Name: "retention", Running: true, Holder: "o2", NextAt: at(600), StartedAt: at(1), Runs: 1, Result: json.RawMessage("null")},
	}}
}

func fakeBreakers() wire.BreakerList {
	since := at(2)
	return wire.BreakerList{Breakers: []client.Breaker{
		{Name: "messaging", State: "open", Control: "automatic", Since: &since, RetryAfterSeconds: 12, FailuresInARow: 5, Calls: 90, Failures: 6, Rejected: 31, Opened: 1},
		{Name: "web", State: "closed", Control: "forced_closed", Calls: 1200},
	}}
}

func fakeSubmissionLimits() wire.SubmissionLimitList {
	changed := client.Time{Time: time.Date(2026, 3, 21, 10, 11, 12, 0, time.UTC)}
	return wire.SubmissionLimitList{Limits: []wire.SubmissionLimit{
		{Namespace: "shapes", Template: "diamond", Rules: admission.Rules{
			Throttle: &admission.Throttle{Max: 100, PeriodMS: 60_000, Burst: 10, Key: limitrule.Key{KeyPath: []string{"customer", "id"}}, Beyond: "delay"},
			Debounce: &admission.Debounce{QuietMS: 5000, MaxWaitMS: 60_000, Key: limitrule.Key{KeyTag: "document:"}, Keep: "first"}}, ChangedAt: changed, ChangedBy: "ana"},
		{Namespace: "shapes", Template: "square", Version: "1.2.0", Rules: admission.Rules{Throttle: &admission.Throttle{Max: 1, PeriodMS: 1500}}, ChangedAt: changed, ChangedBy: "worker-1"},
	}}
}

func fakeLimit() wire.Limit {
	return wire.Limit{Namespace: "shapes", Callable: "charge", LimitRequest: wire.LimitRequest{Rule: limitrule.Rule{KeyPath: []string{"customer", "id"}, MaxRunning: new(2), Burst: 1,
		Weights: map[string]float64{"big": 3, "a=b": 0.5}, Beyond: limitrule.CancelNewest}}, ChangedAt: client.Time{Time: time.Date(2026, 3, 21, 10, 11, 12, 0, time.UTC)}, ChangedBy: "ana", Running: 2, Waiting: 5, Keys: 1}
}

// fakeRates answers with what one callable of one namespace did in an hour.
func fakeRates(w http.ResponseWriter, path string) {
	period := client.RatesPeriod{At: at(60), From: at(0), To: at(60), ResolutionSeconds: 600, Gaps: []client.RatesGap{{Kind: "worker", ID: "worker-1", From: at(30)}}}
	did := client.AttemptRates{Success: 3590, Failed: 8, Error: 2, Waiting: client.Durations{Count: 3600, Mean: 0.02, P50: 0.004, P95: 0.25, P99: 1.5},
		Running: client.Durations{Count: 3600, Mean: 0.3, P50: 0.2, P95: 0.9, P99: 72}}
	tasks := client.TaskRates{Created: 100, Completed: 90, Failed: 2, Cancelled: 1, MeanSeconds: 4.25}
	waits := client.Depth{Waiting: 12, Running: 4, OldestSeconds: 90}
	switch path {
	case "callables":
		answer(w, client.CallableRatesList{RatesPeriod: period, Callables: []client.CallableRates{{Namespace: "shapes", Callable: "draw", Method: "left", AttemptRates: did, Depth: waits},
			{Namespace: "shapes", Callable: "idle"}}})
	case "callable":
		answer(w, client.CallableSeries{RatesPeriod: period, Points: []client.CallablePoint{{At: at(0), AttemptRates: did, Depth: &waits}, {At: at(10)}},
			Versions: []client.CallableVersion{{Task: "chain", Version: "1.0.0", Step: "start", AttemptRates: did}}})
	default:
		answer(w, client.NamespaceRatesList{RatesPeriod: period, Namespaces: []client.NamespaceRates{{Namespace: "shapes", TaskRates: tasks, Depth: waits}, {Namespace: "lines"}},
			Points: []client.NamespacePoint{{At: at(0), TaskRates: tasks, Depth: waits}}})
	}
}

// fakeKeys has one API key.
func fakeKeys(w http.ResponseWriter, method string) {
	end := at(60)
	key := client.APIKey{KeyUUID: "0190b6f2-3c5e-7d8a-9f10-6b1c2d3e4f50", Name: "shop", Permissions: []string{"tasks:*", "steps:read"}, Namespaces: []string{"shop"},
		CreatedAt: at(1), CreatedBy: "ana", ExpiresAt: &end}
	switch method {
	case http.MethodGet:
		answer(w, map[string]any{"api_keys": []client.APIKey{key}})
		return
	case http.MethodDelete:
		revoked := at(2)
		key.RevokedAt = &revoked
	default:
		key.Key = "tsk_made"
	}
	answer(w, key)
}

// fakeSessions has one session of a browser.
func fakeSessions(w http.ResponseWriter, method string) {
	s := client.BrowserSession{ID: "0190b6f2-3c5e-7d8a-9f10-6b1c2d3e4f51", Principal: "ana", OpenedBy: "oidc", Permissions: []string{"tasks:read"}, Namespaces: []string{"shop"},
		CreatedAt: at(1), LastUsedAt: at(2), ExpiresAt: at(60)}
	if method == http.MethodGet {
		answer(w, map[string]any{"browser_sessions": []client.BrowserSession{s}})
		return
	}
	answer(w, s)
}
