package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/admission"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/backpressure"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/predict"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/sweep"
	"github.com/tasker-go/tasker/workflow"
)

var (
	letterID = uuid.MustParse("019d1c5e-0c3e-7a41-9a0e-5b7b1b0a2f10")
	closedID = uuid.MustParse("019d1c5e-0c3e-7a41-9a0e-5b7b1b0a2f20") // replayed as againID
	againID  = uuid.MustParse("019d1c5e-0c3e-7a41-9a0e-5b7b1b0a2f30")
)

// acted is one call of a fakeOperator.
type acted struct {
	what string
	with any
}

// fakeOperator records the requests of operators and does nothing.
type fakeOperator struct {
	mu    sync.Mutex
	calls []acted
	err   error // of everything
	bulk  orchestration.BulkResult
}

func (f *fakeOperator) note(what string, with any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, acted{what, with})
	return f.err
}

// taken returns the calls and clears them.
func (f *fakeOperator) taken() []acted {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

func (f *fakeOperator) fails(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeOperator) Act(_ context.Context, task uuid.UUID, a orchestration.Action) error {
	if err := f.note("act", a); err != nil {
		return err
	}
	if task != taskID {
		return fmt.Errorf("act: %w", store.ErrNotFound)
	}
	return nil
}

func (f *fakeOperator) ActOnMany(_ context.Context, b orchestration.Bulk) (orchestration.BulkResult, error) {
	f.bulk.DryRun = b.DryRun
	return f.bulk, f.note("act on many", b)
}

func (f *fakeOperator) Preview(_ context.Context, task uuid.UUID, a orchestration.Action) (orchestration.Preview, error) {
	if err := f.note("preview", a); err != nil {
		return orchestration.Preview{}, err
	}
	if task != taskID {
		return orchestration.Preview{}, fmt.Errorf("preview: %w", store.ErrNotFound)
	}
	p := orchestration.Preview{Steps: []orchestration.StepPreview{{Step: 1, State: workflow.StepEnqueued}, {Step: 3, Gone: true}},
		ContextBefore: json.RawMessage(`{"a":1,"b/c":[1,2]}`), ContextAfter: json.RawMessage(`{"b/c":[2],"d":{"e":"<f>"}}`)}
	if a.Kind == orchestration.ActionCancel {
		p = orchestration.Preview{Ended: workflow.TaskCancelled}
	}
	return p, nil
}

func (f *fakeOperator) PreviewReplay(_ context.Context, _ uuid.UUID, r orchestration.Replay) (orchestration.Preview, error) {
	return orchestration.Preview{}, f.note("preview replay", r)
}

func (f *fakeOperator) Replay(_ context.Context, task uuid.UUID, r orchestration.Replay) (orchestration.Created, error) {
	if err := f.note("replay", r); err != nil {
		return orchestration.Created{}, err
	}
	if task != taskID {
		return orchestration.Created{}, fmt.Errorf("replay: %w", store.ErrNotFound)
	}
	return orchestration.Created{UUID: taskID, RequestedAt: began, CorrelationID: correlationID, Plan: diamond()}, nil
}

func (f *fakeOperator) ReplayDeadLetters(_ context.Context, r orchestration.ReplayMany) (orchestration.BulkResult, error) {
	f.bulk.DryRun = r.DryRun
	return f.bulk, f.note("replay many", r)
}

func (f *fakeOperator) SetQuota(_ context.Context, namespace string, maxTasks int, appliesTo []string, why orchestration.Why) (store.Quota, error) {
	return store.Quota{Namespace: namespace, MaxTasks: maxTasks, AppliesTo: appliesTo, ChangedAt: *at(1), ChangedBy: why.Actor}, f.namespace("set-quota", store.Pause{Namespace: namespace, Actor: why.Actor, Reason: why.Reason})
}

func (f *fakeOperator) DeleteQuota(_ context.Context, namespace string, why orchestration.Why) (store.Quota, error) {
	return store.Quota{Namespace: namespace, MaxTasks: 7, ChangedAt: *at(1), ChangedBy: "bob"}, f.namespace("delete-quota", store.Pause{Namespace: namespace, Actor: why.Actor, Reason: why.Reason})
}

func (f *fakeOperator) SetSubmissionLimit(_ context.Context, namespace, template string, rules admission.Rules, why orchestration.Why) error {
	text, _ := json.Marshal(rules)
	return f.namespace("limit "+string(text), store.Pause{Namespace: namespace, Callable: template, Actor: why.Actor, Reason: why.Reason})
}

func (f *fakeOperator) Pause(_ context.Context, p store.Pause) error { return f.namespace("pause", p) }

func (f *fakeOperator) Resume(_ context.Context, p store.Pause) error {
	return f.namespace("resume", p)
}

func (f *fakeOperator) SetLimit(_ context.Context, l store.Limit, why orchestration.Why) error {
	return f.note("set limit", []any{l, why.Actor, why.Reason})
}

func (f *fakeOperator) DeleteLimit(_ context.Context, namespace string, handler workflow.HandlerReference, why orchestration.Why) error {
	return f.note("delete limit", []any{namespace, handler, why.Actor, why.Reason})
}

func (f *fakeOperator) DeprecateTemplate(_ context.Context, namespace, name, version string, deprecated bool, why orchestration.Why) error {
	return f.note("deprecate", []string{namespace, name, version, fmt.Sprint(deprecated), why.Actor, why.Reason})
}

func (f *fakeOperator) SetPolicy(_ context.Context, p store.CallablePolicy, reason string) error {
	return f.namespace("policy "+string(p.Policy), store.Pause{Namespace: p.Namespace, Callable: p.Callable, Actor: p.ChangedBy, Reason: reason})
}

func (f *fakeOperator) namespace(what string, p store.Pause) error {
	said := []string{p.Namespace, p.Actor, p.Reason}
	if p.Callable != "" {
		said = append(said, p.Callable)
	}
	if err := f.note(what, said); err != nil {
		return err
	}
	if p.Namespace != "shapes" {
		return fmt.Errorf("%s: %w", what, store.ErrNotFound)
	}
	return nil
}

func (f *fakeOperator) RunNow(_ context.Context, name string, dry bool) (sweep.Run, error) {
	if name == "nothing" {
		return sweep.Run{}, fmt.Errorf("run it: %w", sweep.ErrUnknown)
	}
	run := sweep.Run{Sweep: name, Outcome: "ok", DryRun: dry, TookMS: 7, Result: sweep.Result{Items: map[string]int{"released": 4},
		Findings: []sweep.Finding{{Subject: workerID.String(), Action: "released", Detail: "silent for 3m"}}}}
	return run, f.note("sweep", dry)
}

// fakeLetters is a dead-letter queue with two entries of the one task, and the
// registry.
type fakeLetters struct{ *fakeOperator }

func letters() []store.DeadLetter {
	by, notes := "ana", "the vendor fixed it"
	return []store.DeadLetter{
		{UUID: letterID, TaskUUID: taskID, Namespace: "shapes", TaskName: "diamond", Version: "1.0.0", OriginalState: workflow.TaskError,
			CurrentState: workflow.TaskError, Reason: workflow.DeadLetterExhausted, Detail: "permanent", At: *at(3), Resolution: store.ResolutionPending,
			Snapshot: json.RawMessage(`{"task_uuid":"` + taskID.String() + `","namespace":"shapes","step":"left","error":{"message":"no route","error_type":"Unreachable","retryable":false}}`), CreatedAt: *at(3), UpdatedAt: *at(3)},
		{UUID: closedID, TaskUUID: taskID, OriginalState: workflow.TaskStepsInProcess, Reason: workflow.DeadLetterStaleness, At: began,
			Resolution: store.ResolutionManuallyResolved, ResolvedAt: at(2), Notes: &notes, ResolvedBy: &by, ReplayedAs: &againID,
			Snapshot: json.RawMessage(`{}`), Metadata: json.RawMessage(`{"ticket":"X-1"}`), CreatedAt: began, UpdatedAt: *at(2)},
	}
}

func (f *fakeLetters) DeadLetters(_ context.Context, filter store.DeadLetterFilter) ([]store.DeadLetter, []uuid.UUID, error) {
	return letters(), []uuid.UUID{taskID}, f.note("list", filter)
}

func (f *fakeLetters) DeadLetter(_ context.Context, id uuid.UUID) (store.DeadLetter, error) {
	for _, l := range letters() {
		if l.UUID == id {
			return l, f.note("read", id)
		}
	}
	return store.DeadLetter{}, fmt.Errorf("read: %w", store.ErrNotFound)
}

func (f *fakeLetters) DeadLetterOfTask(_ context.Context, task uuid.UUID) (store.DeadLetter, error) {
	if task != taskID {
		return store.DeadLetter{}, fmt.Errorf("read: %w", store.ErrNotFound)
	}
	return letters()[0], f.note("read", task)
}

func (f *fakeLetters) UpdateDeadLetter(ctx context.Context, id uuid.UUID, u store.DeadLetterUpdate) (store.DeadLetter, error) {
	if err := f.note("update", u); err != nil {
		return store.DeadLetter{}, err
	}
	return f.DeadLetter(ctx, id)
}

func (f *fakeLetters) DeadLetterStats(context.Context) ([]store.DeadLetterStats, error) {
	mean := 90 * time.Second
	return []store.DeadLetterStats{
		{Reason: workflow.DeadLetterExhausted, Total: 7, Pending: 2, ManuallyResolved: 3, PermanentlyFailed: 1, Cancelled: 1, Oldest: began, Newest: *at(3),
			AverageResolution: &mean},
		{Reason: workflow.DeadLetterManual, Total: 1, Pending: 1, Oldest: began, Newest: began},
	}, f.note("stats", nil)
}

func (f *fakeLetters) InvestigationQueue(_ context.Context, limit int) ([]store.QueueEntry, error) {
	return []store.QueueEntry{
		{UUID: letterID, TaskUUID: taskID, Namespace: "shapes", TaskName: "diamond", OriginalState: workflow.TaskError, CurrentState: workflow.TaskError,
			Reason: workflow.DeadLetterExhausted, At: *at(3), Minutes: 61.5, MinutesInState: ref(61), Score: 561.5},
		{UUID: closedID, TaskUUID: againID, OriginalState: workflow.TaskStepsInProcess, Reason: workflow.DeadLetterWorkerUnavailable, At: began, Minutes: 1, Score: 51},
	}, f.note("queue", limit)
}

func (f *fakeLetters) StalenessMonitor(_ context.Context, th store.StaleThresholds, limit int) ([]store.StalenessEntry, error) {
	return []store.StalenessEntry{{TaskUUID: taskID, Namespace: "shapes", Name: "diamond", State: workflow.TaskWaitingForRetry, MinutesInState: 29,
		MinutesOld: 40, ThresholdMinutes: int(th.WaitingForRetry.Minutes()), Health: store.StalenessWarning, Priority: 5,
		Detail: "waiting_for_retry"}}, f.note("staleness", limit)
}

func (f *fakeLetters) OpenDeadLetter(_ context.Context, task uuid.UUID, reason workflow.DeadLetterReason, detail, actor string,
	metadata json.RawMessage) (store.DeadLetter, bool, error) {
	if task != taskID {
		return store.DeadLetter{}, false, fmt.Errorf("open: %w", store.ErrNotFound)
	}
	l := letters()[0]
	l.Reason, l.Detail, l.Metadata = reason, detail, metadata
	return l, true, f.note("open", []string{detail, actor, string(metadata)})
}

func (f *fakeLetters) PurgeDeadLetters(_ context.Context, olderThan time.Duration, limit int, by store.OperatorAction) (int, error) {
	return 12, f.note("purge", []any{olderThan, limit, by})
}

func (f *fakeLetters) Quotas(context.Context) ([]store.Quota, error) {
	tasks := int64(12)
	return []store.Quota{{Namespace: "lines", MaxTasks: 5, ChangedAt: *at(1), ChangedBy: "ana"},
		{Namespace: "shapes", MaxTasks: 20, Tasks: &tasks, CountedAt: at(2), ChangedAt: *at(1), ChangedBy: "ana"}}, f.note("quotas", nil)
}

func (f *fakeLetters) SubmissionLimits(_ context.Context, namespace string) ([]store.SubmissionLimit, error) {
	return []store.SubmissionLimit{{Namespace: "shapes", Template: "diamond", ChangedAt: *at(1), ChangedBy: "ana",
		Rules: admission.Rules{Throttle: &admission.Throttle{Max: 5, PeriodMS: 60_000, Key: limitrule.Key{KeyPath: []string{"customer", "id"}}}}}}, f.note("limits", namespace)
}

func (f *fakeLetters) Namespaces(context.Context) ([]store.NamespaceState, error) {
	by, why := "ana", "the gateway is down"
	return []store.NamespaceState{{ID: 1, Name: "lines"}, {ID: 2, Name: "shapes", PausedAt: at(1), PausedBy: &by, PauseReason: &why}}, f.note("namespaces", nil)
}

func (f *fakeLetters) Policies(_ context.Context, namespace string) ([]store.CallablePolicy, error) {
	return []store.CallablePolicy{{Namespace: "shapes", Callable: "draw", Policy: order.FIFO, ChangedAt: *at(1), ChangedBy: "ana"}}, f.note("policies", namespace)
}

func (f *fakeLetters) Foretell(*store.Plan, []byte) map[string]store.Foretold {
	times := &predict.Sketch{}
	for _, took := range []time.Duration{300 * time.Millisecond, 300 * time.Millisecond, time.Second, 2 * time.Second} {
		times.Add(took)
	}
	return map[string]store.Foretold{"start": {Policy: order.ShortestExpected, Features: []string{"rows"}, Values: []float64{12}, Class: "acme",
		Expectation: predict.Expectation{Time: 250 * time.Millisecond, Basis: predict.ByRegression, N: 40, Times: times, Weight: []float64{-7, 0.98}},
		Verdict:     predict.Verdict{Trusted: true, N: 40, Order: 0.93},
		Outside:     &store.Outside{Time: 200 * time.Millisecond, Verdict: predict.Verdict{N: 40, Order: -0.2}}}}
}

func (f *fakeLetters) Limits(_ context.Context, namespace string, limit int) ([]store.LimitState, error) {
	return []store.LimitState{{Limit: store.Limit{Namespace: "shapes", Handler: workflow.HandlerReference{Callable: "charge"}, Rule: limitrule.Rule{KeyTag: "tenant:", MaxRunning: new(2), Burst: 1,
		Weights: map[string]float64{"big": 3}, Beyond: limitrule.Drop}}, ChangedAt: began, ChangedBy: "ana", Running: 2, Waiting: 5, Keys: 1}}, f.note("limits", []any{namespace, limit})
}

func (f *fakeLetters) Workers(_ context.Context, filter store.WorkerFilter) ([]store.WorkerState, error) {
	return []store.WorkerState{
		{Daemon: store.Daemon{UUID: workerID, ID: "w1", Hostname: "h", Version: "1", Mode: "Hybrid", Namespaces: []string{"shapes"}},
			Status: store.WorkerActive, StatusSince: began, StartedAt: began, HeartbeatAge: 1500 * time.Millisecond},
		{Daemon: store.Daemon{UUID: taskID, ID: "w2", Hostname: "h", Version: "1", Mode: "Hybrid"},
			Status: store.WorkerDead, StatusSince: *at(9), StartedAt: began, HeartbeatAge: time.Hour, StoppedAt: at(5)},
	}, f.note("workers", filter)
}

func (f *fakeLetters) Sweeps(context.Context) ([]store.SweepState, error) {
	return []store.SweepState{
		{Name: "liveness", Holder: workerID, NextAt: *at(15), StartedAt: began, FinishedAt: at(0.25), Runs: 12, Result: json.RawMessage(`{"items":{"released":4}}`)},
		{Name: "retention", Running: true, Holder: taskID, NextAt: *at(600), StartedAt: *at(1), Runs: 1},
	}, f.note("sweeps", nil)
}

func (f *fakeLetters) Events(_ context.Context, filter store.EventFilter) (store.EventPage, error) {
	return store.EventPage{}, f.note("events", filter)
}

func (f *fakeLetters) LastEvent(context.Context, string) (int64, error) {
	return 7, f.note("read", nil)
}

func (f *fakeLetters) EventConsumers(context.Context, int) ([]store.EventConsumer, error) {
	return nil, f.note("consumers", nil)
}

func (f *fakeLetters) EventConsumer(context.Context, string) (store.EventConsumer, error) {
	return store.EventConsumer{}, f.note("read", nil)
}

func (f *fakeLetters) CreateEventConsumer(_ context.Context, def store.EventConsumer, _ store.EventPlace, _ store.ConsumerBounds, by store.OperatorAction) (store.EventConsumer, error) {
	return def, f.note("create consumer", by)
}

func (f *fakeLetters) ResetEventConsumer(_ context.Context, _ string, _ store.EventPlace, by store.OperatorAction) (store.EventConsumer, error) {
	return store.EventConsumer{}, f.note("reset consumer", by)
}

func (f *fakeLetters) DeleteEventConsumer(_ context.Context, _ string, by store.OperatorAction) (store.EventConsumer, error) {
	return store.EventConsumer{}, f.note("delete consumer", by)
}

func (f *fakeLetters) ClaimEvents(_ context.Context, _, holder string, _ int, _ time.Duration) (store.ClaimedEvents, error) {
	return store.ClaimedEvents{}, f.note("claim events", holder)
}

func (f *fakeLetters) AckEvents(context.Context, string, int64, int64, bool) error {
	return f.note("ack events", nil)
}

// fakeBreakers has one breaker.
type fakeBreakers struct {
	mu      sync.Mutex
	control breaker.Control
}

func (f *fakeBreakers) Health() []breaker.Health {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []breaker.Health{{Component: breaker.Web, State: breaker.Open, Control: f.control, Since: began, RetryAfter: 12 * time.Second,
		Streak: 5, Calls: 90, Failures: 6, Rejected: 31, Opened: 1, LastError: "dial dbhost-7", LastFailure: *at(3)}}
}

func (f *fakeBreakers) Force(name string, c breaker.Control) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name != breaker.Web {
		return fmt.Errorf("force %q: %w", name, breaker.ErrUnknown)
	}
	f.control = c
	return nil
}

// fakeAdmission rejects all requests, or the tasks of one namespace.
type fakeAdmission struct {
	request   *backpressure.Refusal
	namespace string
	asked     int
}

func (f *fakeAdmission) AdmitRequest() (r backpressure.Refusal, ok bool) {
	if f.request != nil {
		return *f.request, false
	}
	return r, true
}

func (f *fakeAdmission) AdmitTask(namespace string) (backpressure.Refusal, bool) {
	f.asked++
	return backpressure.Refusal{Reason: backpressure.QueueDepth, RetryAfter: 42 * time.Second, Where: namespace}, namespace != f.namespace
}

// operatedEngine is an engine that also records the requests of operators.
type operatedEngine struct {
	*fakeEngine
	*fakeOperator
	fakeSchedules
	fakeWaits
	fakeIsolated
	fakeTypes
}

// operatedStore is a store with a dead-letter queue.
type operatedStore struct {
	*fakeStore
	*fakeLetters
}

// operated adds everything for operators to a house.
func operated(o *fakeOperator) func(*rest.Config, *rest.Orchestrator) {
	return func(_ *rest.Config, w *rest.Orchestrator) {
		engine, isEngine := w.Engine.(*fakeEngine)
		db, isStore := w.Store.(*fakeStore)
		if !isEngine || !isStore {
			panic("operated changes a house of fakes")
		}
		w.Engine = operatedEngine{engine, o, fakeSchedules{o}, fakeWaits{o}, fakeIsolated{o}, fakeTypes{o}}
		w.Store = operatedStore{db, &fakeLetters{o}}
		w.RunSweep, w.Breakers = o.RunNow, &fakeBreakers{}
		w.Thresholds = store.StaleThresholds{WaitingForRetry: 30 * time.Minute}
	}
}
