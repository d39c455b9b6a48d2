package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/poller"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

var (
	taskID        = uuid.MustParse("019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f10")
	correlationID = uuid.MustParse("019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f11")
	workerID      = uuid.MustParse("019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f12")
	began         = time.Date(2026, 3, 21, 10, 11, 12, 123456000, time.UTC)
)

func at(seconds float64) *time.Time {
	t := began.Add(time.Duration(seconds * float64(time.Second)))
	return &t
}

func ref[T any](v T) *T { return &v }

const diamondYAML = `
name: diamond
namespace_name: shapes
version: 1.0.0
description: Four steps
steps:
  - name: start
    description: The first one
    handler: {callable: start}
    result_schema: {type: object}
  - name: left
    dependencies: [start]
    handler: {callable: left}
    retry: {retryable: true, max_attempts: 3, backoff: fixed, backoff_base_ms: 100}
  - name: right
    dependencies: [start]
    handler: {callable: right}
    retry: {retryable: false, max_attempts: 1}
  - name: end
    dependencies: [left, right]
    handler: {callable: end}
`

func diamond() *store.Plan {
	t, _, err := template.Parse("diamond.yaml", []byte(diamondYAML))
	if err != nil {
		panic(err)
	}
	plan, err := workflow.Compile(t.Resolve("test"))
	if err != nil {
		panic(err)
	}
	return &store.Plan{Plan: plan, ID: 1, Queue: 1}
}

// aTask has a step in each of four states.
func aTask() *store.Task {
	plan := diamond()
	step := func(no int, state workflow.StepState) store.Step {
		return store.Step{No: no, UUID: store.StepUUID(taskID, no), Name: plan.Steps[no].Name, State: state,
			CreatedAt: began, Parents: len(plan.Steps[no].Parents)}
	}
	start, left, right, end := step(0, workflow.StepComplete), step(1, workflow.StepWaitingForRetry), step(2, workflow.StepEnqueued), step(3, workflow.StepPending)
	start.Attempts, start.LastAttemptAt, start.CompletedAt, start.Result, start.WorkerUUID = 1, at(0.5), at(1.75), json.RawMessage(`{"n":36}`), &workerID
	start.StartedAt, start.ReportedAt = at(0.5), at(1.5)
	left.StartedAt, left.ReportedAt = at(2), at(2.25)
	left.Attempts, left.ParentsDone, left.LastAttemptAt, left.LastFailureAt, left.NextRetryAt = 1, 1, at(2), at(2.25), at(4)
	left.Error = json.RawMessage(`{"message":"no route","error_type":"Unreachable","error_code":"E1","retryable":true,"context":{"host":"h"}}`)
	right.ParentsDone, right.Ready = 1, true
	return &store.Task{
		UUID: taskID, Plan: plan, State: workflow.TaskStepsInProcess, Priority: 5, Context: json.RawMessage(`{"even_number":6}`),
		CorrelationID: correlationID, Initiator: ref("ops"), SourceSystem: ref("console"), Tags: []string{"demo"},
		RequestedAt: began, UpdatedAt: *at(2.5), Steps: []store.Step{start, left, right, end}, Progress: workflow.NewProgress(plan.Plan),
	}
}

// fakeStatus is a healthy daemon by default.
type fakeStatus struct {
	mu         sync.Mutex
	mode       deploymode.Mode
	modeErr    error
	systems    map[string]coordinator.Health
	loops      []lifecycle.LoopHealth
	saturation float64
	notReady   string
}

func newFakeStatus() *fakeStatus {
	return &fakeStatus{
		mode: deploymode.Hybrid,
		systems: map[string]coordinator.Health{"orchestration": {
			SystemID: "orchestration", Mode: deploymode.Hybrid, ConfiguredMode: deploymode.Hybrid, Status: deploymode.Healthy, Ready: true,
			Found: map[string]uint64{"listener": 7, "poller": 1},
			Listener: &listener.Health{Source: "notify", LagMS: 1.5, LagAt: began, ConnectedAt: began,
				Snapshot: deploymode.Snapshot{State: deploymode.Listening, Proven: true, Reconnects: 2}},
			Poller: poller.Health{Pace: deploymode.PaceRelaxed, Cycles: 3, Found: 1, LastPoll: began},
		}},
		loops: []lifecycle.LoopHealth{{Name: "partitions", State: lifecycle.LoopRunning}},
	}
}

func (f *fakeStatus) change(fn func(*fakeStatus)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn(f)
}

func (f *fakeStatus) Mode() deploymode.Mode {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mode
}

func (f *fakeStatus) SetMode(_ context.Context, mode deploymode.Mode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.modeErr == nil {
		f.mode = mode
	}
	return f.modeErr
}

func (f *fakeStatus) Health() map[string]coordinator.Health {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.systems
}

func (f *fakeStatus) Loops() []lifecycle.LoopHealth {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loops
}

func (f *fakeStatus) Saturation() float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.saturation
}

func (f *fakeStatus) Ready() (bool, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.notReady == "", f.notReady
}

// fakeEngine records every request.
type fakeEngine struct {
	noEngine
	*fakeStatus
	created   []orchestration.Request
	createErr error
	existing  bool             // every task is a duplicate
	failOn    map[string]error // by the name of the template
	cancelErr error
	cancelled []string
	reasons   []string
	onCreate  func(ctx context.Context) error
	wait      func(ctx context.Context) (bool, error)
}

// noEngine has the methods that a fakeEngine has not.
type noEngine struct{ rest.Engine }

func newFakeEngine() *fakeEngine { return &fakeEngine{fakeStatus: newFakeStatus()} }

func (f *fakeEngine) Create(ctx context.Context, r orchestration.Request) (orchestration.Created, error) {
	if f.onCreate != nil {
		if err := f.onCreate(ctx); err != nil {
			return orchestration.Created{}, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.created = append(f.created, r)
	if f.createErr != nil {
		return orchestration.Created{}, f.createErr
	}
	if err := f.failOn[r.Name]; err != nil {
		return orchestration.Created{}, err
	}
	created := orchestration.Created{UUID: taskID, RequestedAt: began, CorrelationID: correlationID, Plan: diamond(), Existing: f.existing}
	if r.Priority != nil {
		created.Priority = *r.Priority
	}
	if r.CorrelationID != nil {
		created.CorrelationID = *r.CorrelationID
	}
	return created, nil
}

func (f *fakeEngine) CreateMany(ctx context.Context, requests []orchestration.Request) []orchestration.CreateResult {
	results := make([]orchestration.CreateResult, len(requests))
	for i, r := range requests {
		results[i].Created, results[i].Err = f.Create(ctx, r)
	}
	return results
}

func (f *fakeEngine) Cancel(_ context.Context, _ uuid.UUID, actor, reason string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancelled, f.reasons = append(f.cancelled, actor), append(f.reasons, reason)
	return f.cancelErr
}

func (f *fakeEngine) Wait(ctx context.Context, _ uuid.UUID) (bool, error) {
	if f.wait == nil {
		return true, nil
	}
	return f.wait(ctx)
}

// unmade is what a fakeStore lacks.
type unmade struct{ rest.Store }

// fakeStore has one task and one template, and no other methods.
type fakeStore struct {
	fakeSessions
	fakeKeys
	fakeAudit
	fakeRates
	named []store.NamedTemplate // the templates called d
	asked [][]string            // the names that were looked for
	unmade
	unserved map[int]store.Unserved
	mu       sync.Mutex
	err      error // of everything
	task     *store.Task
	plan     *store.Plan
	filters  []store.TaskFilter
	next     uuid.UUID // the cursor of the next page
	total    int
	timeline store.Timeline
	fleet    []store.Replica
	pool     store.PoolStat
	pings    int
	chained  []int                     // requested limits
	analysed []string                  // what analytics have read
	pending  workflow.DeadLetterReason // of the task; 0: no entry is pending
}

func newFakeStore() *fakeStore {
	return &fakeStore{
		task: aTask(), plan: diamond(), total: 60,
		pool: store.PoolStat{Max: 10, Total: 4, Acquired: 1, Idle: 3, Acquires: 10, EmptyAcquires: 1, AcquireDuration: 5 * time.Millisecond},
		timeline: store.Timeline{Completed: -1,
			Events: []store.TaskEvent{{Seconds: 0, From: "pending", To: "steps_in_process", Actor: "orchestrator-1"}},
			Attempts: []store.StepAttempt{
				{Step: 0, Attempt: 1, Token: 1, Enqueued: 0, Claimed: 0.5, Reported: 1.5, Applied: 1.75, Outcome: "success"},
				{Step: 1, Attempt: 1, Token: 2, Enqueued: 1.75, Claimed: 2, Reported: 2.25, Applied: 2.5, Outcome: "failed", Worker: &workerID,
					Error: json.RawMessage(`{"message":"no route","error_type":"Unreachable"}`)},
				{Step: 1, Attempt: 2, Token: 3, Enqueued: 4, Claimed: 5, Reported: -1, Applied: 35, Outcome: "lease_lost"},
				{Step: 1, Attempt: 3, Token: 4, Enqueued: 36, Claimed: 37, Reported: 38, Applied: 38.5, Outcome: "success", Worker: &workerID,
					Result: json.RawMessage(`{"n":6}`)},
			}},
		fleet: []store.Replica{
			{Daemon: store.Daemon{UUID: workerID, ID: "w1", Hostname: "h", Address: "h:8081", Version: "1", Mode: "EventDrivenOnly", Namespaces: []string{"shapes"}},
				Kind: "worker", HeartbeatAge: time.Second, StartedAt: began},
			{Daemon: store.Daemon{UUID: taskID, ID: "o1", Hostname: "h", Version: "1", Mode: "Hybrid"}, Kind: "orchestrator", StartedAt: began},
		},
	}
}

func (f *fakeStore) fails(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeStore) state() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *fakeStore) Task(_ context.Context, id uuid.UUID) (*store.Task, error) {
	if err := f.state(); err != nil {
		return nil, err
	}
	if id != f.task.UUID {
		return nil, fmt.Errorf("read the task: %w", store.ErrNotFound)
	}
	return f.task, nil
}

// UnservedSteps returns the configured steps.
func (f *fakeStore) UnservedSteps(context.Context, uuid.UUID, time.Duration) (map[int]store.Unserved, error) {
	return f.unserved, nil
}

func (f *fakeStore) TaskWithoutResults(ctx context.Context, id uuid.UUID) (*store.Task, error) {
	t, err := f.Task(ctx, id)
	if err != nil {
		return nil, err
	}
	less := *t
	less.Steps = slices.Clone(t.Steps)
	for i := range less.Steps {
		less.Steps[i].Result, less.Steps[i].Checkpoint = nil, nil
	}
	return &less, nil
}

func (f *fakeStore) ContextBytes(context.Context, []uuid.UUID) (int64, error) {
	return int64(len(f.task.Context)), f.state()
}

func (f *fakeStore) Contexts(context.Context, []uuid.UUID) (map[uuid.UUID]json.RawMessage, error) {
	return map[uuid.UUID]json.RawMessage{f.task.UUID: f.task.Context}, f.state()
}

func (f *fakeStore) TaskOfIdentity(_ context.Context, identity dedup.Identity) (uuid.UUID, error) {
	if err := f.state(); err != nil {
		return uuid.Nil, err
	}
	if identity != dedup.KeyIdentity("shapes", "diamond", "a/b c") {
		return uuid.Nil, fmt.Errorf("look for the task: %w", store.ErrNotFound)
	}
	return f.task.UUID, nil
}

func (f *fakeStore) Tasks(_ context.Context, filter store.TaskFilter) (store.TaskPage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.filters = append(f.filters, filter)
	listed := *f.task
	listed.Context = nil
	return store.TaskPage{Tasks: []*store.Task{&listed}, Total: f.total, Next: f.next}, f.err
}

func (f *fakeStore) Graph(context.Context, uuid.UUID) (store.Graph, error) {
	child := store.ChildTask{Task: absentID, Step: 1, State: workflow.TaskComplete, Name: "chain", Of: "shapes", Ended: &f.task.RequestedAt}
	return store.Graph{Task: f.task, Children: []store.ChildTask{child}, At: f.task.RequestedAt}, f.state()
}

func (f *fakeStore) Logs(context.Context, store.LogQuery) ([]store.LogChunk, store.Seen, error) {
	return nil, store.Seen{Snapshot: "1:1:"}, f.state()
}

func (f *fakeStore) TaskEnds(_ context.Context, ids []uuid.UUID) (map[uuid.UUID]workflow.TaskState, error) {
	return map[uuid.UUID]workflow.TaskState{ids[0]: workflow.TaskComplete}, f.state()
}

func (f *fakeStore) Timeline(context.Context, uuid.UUID) (store.Timeline, error) {
	return f.timeline, f.state()
}

func (f *fakeStore) Chain(_ context.Context, id uuid.UUID, limit int) (store.Chain, error) {
	if err := f.state(); err != nil {
		return store.Chain{}, err
	}
	if id != f.task.UUID {
		return store.Chain{}, fmt.Errorf("follow: %w", store.ErrNotFound)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.chained = append(f.chained, limit)
	before, task := *f.task, *f.task
	before.UUID, before.ContinuedBy = correlationID, []uuid.UUID{taskID}
	task.ContinuesTask = &before.UUID
	return store.Chain{Tasks: []*store.Task{&before, &task}, MoreBefore: true}, nil
}

func (f *fakeStore) Performance(_ context.Context, window time.Duration) (store.Performance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.analysed = append(f.analysed, fmt.Sprint("performance ", window))
	return store.Performance{Total: 8, Active: 2, Completed: 3, Failed: 1, TaskSeconds: 1.5, StepSeconds: 0.25, Steps: 12, Since: began, At: *at(60)}, f.err
}

func (f *fakeStore) Bottlenecks(_ context.Context, window time.Duration, limit, executions int) (store.Bottlenecks, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.analysed = append(f.analysed, fmt.Sprintf("bottlenecks %v %d %d", window, limit, executions))
	slow := store.SlowWork{Namespace: "shapes", Task: "diamond", Version: "1.0.0", Average: 45, Longest: 90, Executions: 10, Errors: 3, LastAt: at(60)}
	step := slow
	step.Step, slow.Steps, slow.LastAt = "left", 3.5, nil
	return store.Bottlenecks{Steps: []store.SlowWork{step}, Tasks: []store.SlowWork{slow},
		TaskStates: map[string]int64{"pending": 2, "complete": 5}, StepStates: map[string]int64{"enqueued_for_orchestration": 3, "error": 4}}, f.err
}

func (f *fakeStore) PendingReason(context.Context, uuid.UUID) (workflow.DeadLetterReason, error) {
	if f.pending == 0 {
		return 0, fmt.Errorf("look for a pending entry: %w", store.ErrNotFound)
	}
	return f.pending, f.state()
}

func (f *fakeStore) Attempts(_ context.Context, _ uuid.UUID, step int) ([]store.StepAttempt, error) {
	var list []store.StepAttempt
	for _, a := range f.timeline.Attempts {
		if a.Step == step {
			list = append(list, a)
		}
	}
	return list, f.state()
}

func (f *fakeStore) Plans(context.Context, string) ([]store.ListedPlan, error) {
	return []store.ListedPlan{{Plan: f.plan, DeprecatedAt: &began}}, f.state()
}

func (f *fakeStore) TemplatesNamed(_ context.Context, names []string) ([]store.NamedTemplate, error) {
	f.mu.Lock()
	f.asked = append(f.asked, names)
	f.mu.Unlock()
	if !slices.Contains(names, "d") {
		return nil, f.state()
	}
	return f.named, f.state()
}

func (f *fakeStore) TemplateVersion(context.Context, int32) (store.TemplateVersion, error) {
	return store.TemplateVersion{Hash: strings.Repeat("ab", 32), RegisteredBy: "worker-1", RegisteredAt: began, Used: true}, f.state()
}

func (f *fakeStore) PlanNamed(_ context.Context, namespace, name, version string) (*store.Plan, error) {
	if err := f.state(); err != nil {
		return nil, err
	}
	if namespace+"/"+name+"/"+version != "shapes/diamond/1.0.0" {
		return nil, fmt.Errorf("read the plan: %w", store.ErrNotFound)
	}
	return f.plan, nil
}

func (f *fakeStore) Fleet(context.Context, time.Duration) ([]store.Replica, error) {
	return f.fleet, f.state()
}

func (f *fakeStore) PoolStat() store.PoolStat { return f.pool }

func (f *fakeStore) Ping(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pings++
	return f.err
}

// sqlError looks like an error of the database driver.
type sqlError struct{}

func (sqlError) Error() string {
	return `ERROR: relation "tasker.secret" does not exist (SQLSTATE 42P01)`
}
func (sqlError) SQLState() string { return "42P01" }

// Queues knows the namespace of every fake.
func (*fakeStore) Queues(context.Context, []string) (map[string]int32, error) {
	return map[string]int32{"shapes": 1}, nil
}

// Follow is refused: a fake has no transitions.
func (*fakeEngine) Follow(context.Context, store.Scope, string) (*orchestration.Following, error) {
	return nil, store.ErrUnavailable
}
