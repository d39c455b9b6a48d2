package main

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/wire"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// The tasks the fake API knows, by what becomes of them.
const (
	runningTask  = "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f10" // left is running, right waits for its retry
	failedTask   = "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f20"
	completeTask = "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f30"
	movingTask   = "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f40" // goes one step further with every call
	brokenTask   = "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f50" // the server fails
	unservedTask = "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f60" // no worker serves its namespace
	unknownTask  = "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1fff"
)

// fakeStart is when every task of the fake API was requested.
var fakeStart = time.Date(2026, 3, 21, 10, 11, 12, 0, time.UTC)

// fakeAPI speaks the REST API of both daemons.
type fakeAPI struct {
	t        testing.TB
	mu       sync.Mutex
	moves    int  // answers given for movingTask
	replayed int  // of the dead-letter queue
	looks    int  // at the metrics
	near     bool // daemons have the address of the server
	silent   bool // no answer but 503
	many     bool // several workers are active
	mode     string
	bodies   []string // of what was posted and put
	seen     []string // "METHOD path?query" of every request
}

func newFakeAPI(t testing.TB) (*fakeAPI, *httptest.Server) {
	t.Helper()
	f := &fakeAPI{t: t, mode: "Hybrid"}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, server
}

// ServeHTTP implements http.Handler.
func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	f.seen = append(f.seen, r.Method+" "+r.URL.RequestURI())
	if len(body) > 0 {
		f.bodies = append(f.bodies, string(body))
	}
	w.Header().Set("X-Request-Id", "req-1")
	if f.silent {
		fail(w, http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE", "the server is stopping")
		return
	}
	switch r.Header.Get("Authorization") {
	case "Bearer wrong":
		fail(w, http.StatusUnauthorized, "UNAUTHORIZED", "the token is not valid")
		return
	case "Bearer reader":
		if r.Method != http.MethodGet {
			fail(w, http.StatusForbidden, "FORBIDDEN", "permission tasks:create is missing")
			return
		}
	}
	f.route(w, r, body)
}

func (f *fakeAPI) route(w http.ResponseWriter, r *http.Request, body []byte) {
	path := strings.Trim(r.URL.Path, "/")
	if f.operations(w, r, path, body) {
		return
	}
	if rest, ok := strings.CutPrefix(path, "v1/tasks/"); ok && rest != "batch" {
		id, sub, _ := strings.Cut(rest, "/")
		if id == "by-key" {
			id = map[string]string{"order-7": completeTask}[r.URL.Query().Get("idempotency_key")]
		}
		f.task(w, r, id, sub)
		return
	}
	switch r.Method + " " + path {
	case "POST v1/tasks":
		f.create(w, body)
	case "POST v1/tasks/batch":
		createBatch(w, body)
	case "GET v1/tasks":
		tasks := []client.Task{*fakeTask(runningTask), *fakeTask(completeTask)}
		for i := range tasks {
			tasks[i].Steps = []client.StepReadiness{}
		}
		answer(w, client.TaskList{Tasks: tasks, Pagination: client.Pagination{Page: 1, PerPage: 2, TotalCount: 3, TotalPages: 2, HasNext: true}})
	case "GET v1/templates":
		answer(w, fakeTemplates())
	case "GET v1/templates/shapes/diamond/1.0.0", "POST v1/templates",
		"PUT v1/templates/shapes/diamond/1.0.0/deprecation", "DELETE v1/templates/shapes/diamond/1.0.0/deprecation":
		answer(w, fakeTemplate(f.t))
	case "GET v1/admin/fleet":
		fleet := fakeFleet()
		for i := range fleet.Replicas {
			if f.near {
				fleet.Replicas[i].UUID, fleet.Replicas[i].Address = "u-"+fleet.Replicas[i].ID, r.Host
			}
		}
		answer(w, fleet)
	case "GET v1/admin/deployment-mode", "PUT v1/admin/deployment-mode":
		if r.Method == http.MethodPut {
			var m wire.DeploymentMode
			_ = json.Unmarshal(body, &m)
			f.mode = m.Mode
		}
		answer(w, wire.DeploymentMode{Mode: f.mode})
	case "GET v1/log-levels", "PUT v1/log-levels":
		l := wire.LogLevels{}
		if r.Method == http.MethodPut {
			_ = json.Unmarshal(body, &l)
		}
		answer(w, wire.LogLevels{Levels: map[string]string{"all": "info", "worker": cmp.Or(l.Levels["worker"], "error")}})
	case "GET health/detailed":
		answer(w, fakeHealth())
	default:
		fail(w, http.StatusNotFound, "NOT_FOUND", "Template not found: "+strings.TrimPrefix(path, "v1/templates/"))
	}
}

func (f *fakeAPI) create(w http.ResponseWriter, body []byte) {
	var r client.TaskRequest
	if err := json.Unmarshal(body, &r); err != nil {
		fail(w, http.StatusUnprocessableEntity, "JSON_ERROR", err.Error())
		return
	}
	switch r.Name {
	case "missing":
		fail(w, http.StatusNotFound, "NOT_FOUND", "Template not found: "+r.Namespace+"/"+r.Name+"/"+r.Version)
	case "twice":
		fail(w, http.StatusConflict, "CONFLICT", "a task with this identity already exists")
	case "keyed":
		write(w, http.StatusConflict, wire.ErrorBody{Error: client.ErrorDetail{Code: "CONFLICT",
			Message: "a task with this idempotency key already exists", TaskUUID: runningTask}})
	case "invalid":
		fail(w, http.StatusBadRequest, "BAD_REQUEST", "context: order is required")
	case "busy":
		w.Header().Set("Retry-After", "15")
		fail(w, http.StatusServiceUnavailable, "BACKPRESSURE", "the command channel is nearly full")
	case "failing":
		answer(w, fakeTask(failedTask))
	case "unserved":
		answer(w, fakeTask(unservedTask))
	default:
		answer(w, movingTaskAt(0))
	}
}

// createBatch tells apart by name what becomes of a task.
func createBatch(w http.ResponseWriter, body []byte) {
	var r wire.TaskBatchRequest
	if err := json.Unmarshal(body, &r); err != nil {
		fail(w, http.StatusUnprocessableEntity, "JSON_ERROR", err.Error())
		return
	}
	b := client.TaskBatch{Results: make([]client.TaskBatchResult, len(r.Tasks))}
	for i, task := range r.Tasks {
		b.Results[i].Index = i
		switch task.Name {
		case "busy":
			fail(w, http.StatusServiceUnavailable, "BACKPRESSURE", "the command channel is nearly full")
			return
		case "refused": // with all that is in the same request
			fail(w, http.StatusUnprocessableEntity, "JSON_ERROR", "a task cannot be read")
			return
		case "twice":
			b.Results[i].Error = &client.ErrorDetail{Code: "CONFLICT", Message: "a task with this identity already exists"}
		case "missing":
			b.Results[i].Error = &client.ErrorDetail{Code: "NOT_FOUND", Message: "Template not found: shapes/missing/1.0.0"}
		default:
			b.Results[i].TaskUUID = movingTask
			b.Created++
			continue
		}
		b.Failed++
	}
	answer(w, b)
}

func (f *fakeAPI) task(w http.ResponseWriter, r *http.Request, id, sub string) {
	task := fakeTask(id)
	switch {
	case id == brokenTask:
		fail(w, http.StatusInternalServerError, "INTERNAL_ERROR", "something broke")
	case sub == "workflow_steps" && task == nil:
		answer(w, []client.Step{})
	case task == nil:
		fail(w, http.StatusNotFound, "NOT_FOUND", "Task not found")
	case r.Method == http.MethodDelete && task.Terminal():
		fail(w, http.StatusBadRequest, "BAD_REQUEST", "Cannot cancel a completed task")
	case r.Method == http.MethodDelete:
		task.Status = "cancelled"
		answer(w, task)
	case sub == "" && id == movingTask:
		task = movingTaskAt(f.moves)
		f.moves++
		answer(w, task)
	case sub == "":
		answer(w, task)
	case sub == "timeline":
		answer(w, fakeTimeline(id))
	case sub == "graph":
		answer(w, fakeGraph(id))
	case sub == "logs":
		answer(w, fakeLogs())
	case sub == "logs/stream":
		w.Header().Set("Content-Type", "text/event-stream")
		page, _ := json.Marshal(fakeLogs())
		_, _ = w.Write([]byte("id: 1:1:\nevent: lines\ndata: " + string(page) + "\n\nevent: end\ndata: {}\n\n"))
	case sub == "chain":
		answer(w, fakeChain(id))
	case sub == "verify":
		v := client.Verification{TaskUUID: id, OK: id != failedTask, Problems: []string{}}
		if !v.OK {
			v.Problems = []string{"step join: complete without an accepted success"}
		}
		answer(w, v)
	case sub == "workflow_steps":
		answer(w, fakeSteps(task))
	case strings.HasSuffix(sub, "/audit"):
		took := int64(120)
		answer(w, []client.StepAudit{{AuditUUID: "a", RecordedAt: at(2), Success: true, ExecutionTimeMS: &took, StepName: "start",
			FromState: "in_progress", ToState: "enqueued_for_orchestration", WorkerUUID: "w"}})
	default:
		for _, s := range fakeSteps(task) {
			if sub == "workflow_steps/"+s.StepUUID {
				answer(w, s)
				return
			}
		}
		fail(w, http.StatusNotFound, "NOT_FOUND", "Resource not found")
	}
}

func answer(w http.ResponseWriter, v any) { write(w, http.StatusOK, v) }

func fail(w http.ResponseWriter, status int, code, message string) {
	write(w, status, wire.ErrorBody{Error: client.ErrorDetail{Code: code, Message: message}})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func at(seconds float64) client.Time {
	return client.Time{Time: fakeStart.Add(time.Duration(seconds * float64(time.Second)))}
}

// diamondStates are the states of start, left, right and join.
type diamondStates [4]string

var diamondNames = [4]string{"start", "left", "right", "join"}

// diamondTask is a task of the diamond template in which the steps are in the
// given states.
func diamondTask(id, status string, states diamondStates) *client.Task {
	five := 5
	t := &client.Task{
		TaskUUID: id, Name: "diamond", Namespace: "shapes", Version: "1.0.0", Status: status,
		CreatedAt: at(0), UpdatedAt: at(1), Context: json.RawMessage(`{"n":6}`),
		Initiator: "tasker-ctl", SourceSystem: "cli", Reason: "CLI task creation", Priority: &five, Tags: []string{"demo"},
		CorrelationID: "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f11", TotalSteps: 4,
		ExecutionStatus: "processing", RecommendedAction: "wait_for_completion", HealthStatus: "healthy",
	}
	parents := [4]int{0, 1, 1, 2}
	for i, state := range states {
		s := client.StepReadiness{
			WorkflowStepUUID: id[:35] + string(rune('a'+i)), TaskUUID: id, NamedStepUUID: "019d1c5e-0000-7000-8000-00000000000" + string(rune('0'+i)),
			Name: diamondNames[i], CurrentState: state, TotalParents: parents[i], MaxAttempts: 3,
		}
		begun := at(float64(i) + 1)
		switch state {
		case "complete":
			t.CompletedSteps++
		case "error":
			t.FailedSteps++
		case "in_progress":
			t.InProgressSteps++
		case "enqueued":
			t.ReadySteps++
			s.ReadyForExecution = true
		case "waiting_for_retry":
			s.NextRetryAt = &client.NaiveTime{Time: at(20).Time}
		}
		if state != "pending" && state != "enqueued" {
			s.Attempts = 1
			s.LastAttemptedAt = &client.NaiveTime{Time: begun.Time}
		}
		t.Steps = append(t.Steps, s)
	}
	t.CompletionPercentage = float64(t.CompletedSteps) * 25
	if t.Terminal() {
		done := at(5)
		t.CompletedAt, t.RecommendedAction = &done, map[bool]string{false: "none", true: "handle_failures"}[status == "error"]
	}
	return t
}

// movingTaskAt is what movingTask looks like at the nth look.
func movingTaskAt(n int) *client.Task {
	type look struct {
		status string
		states diamondStates
	}
	looks := []look{
		{"pending", diamondStates{"pending", "pending", "pending", "pending"}},
		{"steps_in_process", diamondStates{"in_progress", "pending", "pending", "pending"}},
		{"steps_in_process", diamondStates{"in_progress", "pending", "pending", "pending"}},
		{"steps_in_process", diamondStates{"complete", "in_progress", "enqueued", "pending"}},
		{"steps_in_process", diamondStates{"complete", "complete", "in_progress", "pending"}},
		{"steps_in_process", diamondStates{"complete", "complete", "complete", "in_progress"}},
		{"complete", diamondStates{"complete", "complete", "complete", "complete"}},
	}
	l := looks[max(min(n, len(looks)-1), 0)]
	return diamondTask(movingTask, l.status, l.states)
}

func fakeTask(id string) *client.Task {
	switch id {
	case runningTask:
		return diamondTask(id, "steps_in_process", diamondStates{"complete", "in_progress", "waiting_for_retry", "pending"})
	case failedTask:
		return diamondTask(id, "error", diamondStates{"complete", "complete", "error", "cancelled"})
	case completeTask:
		return diamondTask(id, "complete", diamondStates{"complete", "complete", "complete", "complete"})
	case movingTask:
		return movingTaskAt(0)
	case unservedTask:
		t := diamondTask(id, "pending", diamondStates{"pending", "pending", "pending", "pending"})
		t.Namespace = "hello"
		t.Steps[0].Waiting = &client.Waiting{Kind: client.WaitingForWorker, Reason: "no worker serves namespace hello"}
		return t
	}
	return nil
}

func fakeSteps(t *client.Task) []client.Step {
	var steps []client.Step
	for _, r := range t.Steps {
		s := client.Step{
			StepUUID: r.WorkflowStepUUID, TaskUUID: r.TaskUUID, Name: r.Name, CreatedAt: at(0), UpdatedAt: at(1),
			CurrentState: r.CurrentState, TotalParents: r.TotalParents, Attempts: r.Attempts, MaxAttempts: r.MaxAttempts,
			ReadyForExecution: r.ReadyForExecution,
		}
		if r.LastAttemptedAt != nil {
			s.LastAttemptedAt = &client.Time{Time: r.LastAttemptedAt.Time}
		}
		switch r.CurrentState {
		case "complete":
			done := client.Time{Time: s.LastAttemptedAt.Add(120 * time.Millisecond)}
			s.CompletedAt = &done
			s.Results = json.RawMessage(`{"step_uuid":"` + s.StepUUID + `","success":true,"result":{"n":36},"metadata":{"execution_time_ms":120,"retryable":false,"completed_at":null,"custom":{},"context":{}},"status":"completed"}`)
		case "error":
			s.Results = json.RawMessage(`{"step_uuid":"` + s.StepUUID + `","success":false,"result":null,"metadata":{"execution_time_ms":9,"retryable":false,"completed_at":null,"custom":{},"context":{}},"status":"error","error":{"message":"no such order","error_type":"PermanentError","retryable":false}}`)
			s.Checkpoint = &client.Checkpoint{Cursor: json.RawMessage(`{"page":7}`), ItemsProcessed: 700, Timestamp: at(3), AccumulatedResults: json.RawMessage(`{"sum":12}`),
				History: []client.CheckpointCursor{{Cursor: json.RawMessage(`{"page":6}`), Timestamp: at(2)}}}
		}
		steps = append(steps, s)
	}
	return steps
}

// fakeChain has the task between two others.
func fakeChain(id string) client.Chain {
	before, task, after := fakeTask(completeTask), fakeTask(id), fakeTask(failedTask)
	task.ContinuesTaskUUID, after.ContinuesTaskUUID = before.TaskUUID, task.TaskUUID
	before.ContinuedBy, task.ContinuedBy = []string{task.TaskUUID}, []string{after.TaskUUID}
	chain := client.Chain{TaskUUID: id, Tasks: []client.Task{*before, *task, *after}, MoreAfter: true}
	for i := range chain.Tasks {
		chain.Tasks[i].Steps = []client.StepReadiness{}
	}
	return chain
}

func fakeTimeline(id string) client.Timeline {
	n := func(s float64) *float64 { return &s }
	took := n(4)
	if id == runningTask {
		took = nil
	}
	return client.Timeline{
		TaskUUID: id, Start: at(0), Seconds: took,
		Events: []client.TimelineEvent{
			{Seconds: 0.5, From: "steps_in_process", To: "steps_in_process", Actor: "ana", Reason: "ticket 7", ContextEdited: true,
				ContextChanges: []client.ContextChange{{Path: "/n", Before: json.RawMessage(`1`), After: json.RawMessage(`2`)}}},
			{Seconds: 0, From: "pending", To: "steps_in_process", Actor: "orchestrator-1"},
			{Seconds: 4, From: "steps_in_process", To: "complete", Actor: "orchestrator-1", Reason: "all steps complete"},
		},
		Attempts: []client.StepAttempt{
			{StepUUID: "s1", StepName: "start", Attempt: 1, Enqueued: n(0), Claimed: n(0.5), Reported: n(1), Applied: n(1.1), Outcome: "success"},
			{StepUUID: "s2", StepName: "left", Attempt: 1, Enqueued: n(1.1), Claimed: n(1.2), Reported: n(3), Applied: n(3.05), Outcome: "success"},
			{StepUUID: "s3", StepName: "right", Attempt: 1, Enqueued: n(1.1), Claimed: n(1.4), Reported: n(1.6), Applied: n(1.7), Outcome: "failed"},
			{StepUUID: "s3", StepName: "right", Attempt: 2, Enqueued: n(2), Claimed: n(2.1), Applied: n(2.6), Outcome: "lease_lost"},
			{StepUUID: "s5", StepName: "consent", Attempt: 1, Enqueued: n(1.1), Claimed: n(1.2), Reported: n(3), Applied: n(3.05), Outcome: "success", WaitsFor: "approval"},
			{StepUUID: "s4", StepName: "join", Attempt: 1, Enqueued: n(3.05), Claimed: n(3.1), Reported: n(3.9), Applied: n(4), Outcome: "success"},
		},
	}
}

func fakeTemplates() client.TemplateList {
	deprecated := at(3)
	about := "One step, two beside each other, one that joins them"
	return client.TemplateList{
		Namespaces: []client.NamespaceSummary{{Name: "shapes", TemplateCount: 2}, {Name: "lines", TemplateCount: 1}},
		Templates: []client.TemplateSummary{
			{Name: "diamond", Namespace: "shapes", Version: "1.0.0", Description: &about, StepCount: 4},
			{Name: "chain", Namespace: "shapes", Version: "2.1.0", StepCount: 3, DeprecatedAt: &deprecated},
			{Name: "chain", Namespace: "lines", Version: "1.0.0", StepCount: 9},
		},
		TotalCount: 3,
	}
}

// diamondTemplate is the template the fake API has, read from its file.
func diamondTemplate(t testing.TB) *workflow.Template {
	t.Helper()
	const file = "testdata/templates/diamond.yaml"
	src, err := os.ReadFile(file)
	require.NoError(t, err)
	template, problems, err := template.Parse(file, src)
	require.NoError(t, err, "%v", problems)
	return template
}

func fakeTemplate(t testing.TB) client.TemplateDetail {
	template := diamondTemplate(t)
	configuration, err := json.Marshal(template)
	require.NoError(t, err)
	d := client.TemplateDetail{
		Name: template.Name, Namespace: template.Namespace, Version: template.Version,
		Description: &template.Description, Configuration: configuration,
	}
	for _, s := range template.Steps {
		d.Steps = append(d.Steps, client.TemplateStep{Name: s.Name, DefaultRetryable: true, DefaultMaxAttempts: s.Retry.MaxAttempts})
	}
	return d
}

func fakeFleet() client.Fleet {
	return client.Fleet{
		Replicas: []client.Replica{
			{UUID: "u1", ID: "orchestrator-1", Kind: "orchestrator", Hostname: "pod-a", Address: "pod-a:8080", Version: "0.1.0", Mode: "EventDrivenOnly", Namespaces: []string{}, StartedAt: at(0), HeartbeatAgeSeconds: 2.4, Live: true, EventSource: "amqp", MovingFrom: "notify"},
			{UUID: "u2", ID: "worker-1", Kind: "worker", Hostname: "pod-b", Address: "10.0.0.7:8081", Version: "0.1.0", Mode: "Hybrid", Namespaces: []string{"shapes", "lines"}, StartedAt: at(0), HeartbeatAgeSeconds: 95, Live: false},
			{UUID: "u3", ID: "worker-2", Kind: "worker", Hostname: "pod-c", Version: "0.1.0", Mode: "Hybrid", Namespaces: []string{"shapes"}, StartedAt: at(0), HeartbeatAgeSeconds: 30, Stopped: true},
			{UUID: "u4", ID: "worker-3", Kind: "worker", Hostname: "pod-d", Address: "pod-d:41837", Version: "0.1.0", Mode: "Hybrid", Namespaces: []string{"shapes"}, StartedAt: at(0), HeartbeatAgeSeconds: 1, Live: true, EventSource: "notify"},
		},
		Warning: "no live orchestrator polls",
	}
}

func fakeHealth() client.DetailedHealth {
	slow := "pool is 85 % used"
	lag := at(3)
	return client.DetailedHealth{
		Status: "degraded", Timestamp: at(4),
		Checks: map[string]client.HealthCheck{
			"database":          {Status: "degraded", Message: &slow, DurationMS: 12},
			"command_processor": {Status: "healthy", DurationMS: 0},
		},
		Info: &client.HealthInfo{Version: "0.1.0", Environment: "test", OperationalState: "Normal",
			PoolUtilization: &client.PoolUtilization{TaskerPool: client.PoolDetail{ActiveConnections: 3, MaxConnections: 25}}},
		SystemInfo: &client.WorkerSystemInfo{Version: "0.1.0", Environment: "test", UptimeSeconds: 3700},
		EventSystems: map[string]client.EventSystem{
			"orchestration": {Mode: "Hybrid", Ready: true, Listener: &client.Listener{Source: "notify", State: "listening", LagMS: 1.5, LagAt: &lag}, Poller: &client.Poller{Pace: "relaxed"}},
		},
	}
}

func newServer(t testing.TB, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// fakeLogs has a line of each kind.
func fakeLogs() client.LogPage {
	return client.LogPage{Unreadable: 1, Lines: []client.LogLine{
		{At: at(1).Time, Level: "info", Text: "charging", StepName: "start", Attempt: 1, Fields: json.RawMessage(`{"order":7}`)},
		{At: at(2).Time, Level: "error", Text: "the card was \x1b[31mdeclined\nsee above", StepName: "right", StepNo: 2, Attempt: 2, Line: 40, DroppedBefore: 39},
		{At: at(3).Time, Level: "warn", Text: "trying again", StepName: "right", StepNo: 2, Attempt: 2, Line: 41},
	}}
}

// fakeGraph has a step that exists, one that does not, and a child.
func fakeGraph(id string) client.TaskGraph {
	begun, batch := at(1), 1
	return client.TaskGraph{TaskUUID: id, Namespace: "shapes", Name: "diamond", Version: "1.0.0", Status: "steps_in_process",
		Steps: []client.GraphStep{
			{No: 0, Name: "start", Type: "standard", State: "complete", Attempts: 1, MaxAttempts: 3, DependsOn: []int{}, StartedAt: &begun, EndedAt: &begun},
			{No: 1, Name: "rows", Type: "batch_worker", State: "not_created", MaxAttempts: 3, DependsOn: []int{0}},
			{No: 2, Name: "rows_001", Type: "batch_worker", State: "error", Attempts: 3, MaxAttempts: 3, DependsOn: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, BatchOf: &batch,
				ErrorType: "Timeout", Error: "too slow", Progress: &client.StepProgress{Fraction: 0.4, Message: "page 4"}},
		},
		Children: []client.GraphChild{{TaskUUID: failedTask, StepNo: 1, Namespace: "shapes", Name: "chain", Status: "error"}}}
}
