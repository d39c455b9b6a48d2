package enginetest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// rejectedFlow is a flow of statements over many rows, of which the database rejects one.
type rejectedFlow struct {
	name string // the label of the metric, and the field of the log
	// table and when are the row that is rejected: a condition on the rows old and new of an
	// update, an insertion or a deletion.
	table, event, when string
	template           string // of the tasks
	// limit is the key of a limit of the callable, which holds up none.
	limit string
	// reports: the worker reports outcomes to orchestrators, and settles none.
	reports bool
	// unclaimed: no worker claims the steps.
	unclaimed bool
	// drive makes the tasks go on; nil: they do by themselves.
	drive func(t *testing.T, r *rejectedRun, tasks []uuid.UUID)
	// done is whether a task has passed the flow; nil: it is complete.
	done func(t *testing.T, e *enginetest.Engine, task uuid.UUID) bool
}

// rejectedRun is one run of a flow.
type rejectedRun struct {
	*rejectedFlow
	e       *enginetest.Engine
	logs    *observer.ObservedLogs
	release chan struct{} // lets slow handlers end
}

// names reports whether the log names a culprit of the flow.
func (r *rejectedRun) names(task uuid.UUID) bool {
	for _, line := range r.logs.FilterMessageSnippet("the database rejects a row").All() {
		fields := line.ContextMap()
		if fields["flow"] == r.name && (fields["task_uuid"] == task.String() || fields["key"] == task.String()) {
			return true
		}
	}
	return false
}

const (
	onePlain = `
name: rejected
namespace_name: test
version: 1.0.0
steps:
  - {name: one, handler: {callable: %s}}
`
	oneRetry = `
name: rejected
namespace_name: test
version: 1.0.0
steps:
  - {name: one, handler: {callable: rejected.again}, retry: {max_attempts: 3, backoff: fixed, backoff_base_ms: 20}}
`
	oneSleep = `
name: rejected
namespace_name: test
version: 1.0.0
steps:
  - {name: one, type: sleep, wait: {for: 50ms}}
`
)

// theFirst is the oldest task, which is the culprit.
const theFirst = `(select task_uuid from tasker.tasks order by task_uuid limit 1)`

var rejectedFlows = []rejectedFlow{
	{name: "claims", table: "board", event: "update", when: `old.state = 2 and new.state = 3`, template: fmt.Sprintf(onePlain, "rejected.plain")},
	{name: "claims", table: "board", event: "update", when: `old.state = 2 and new.state = 3`, template: fmt.Sprintf(onePlain, "rejected.plain"), limit: "n"},
	{name: "claims", table: "board", event: "update", when: `old.state = 2`, template: fmt.Sprintf(onePlain, "rejected.plain"), limit: "n"}, // sorting
	{name: "reports", table: "board", event: "update", when: `old.state = 3 and new.state = 4`, template: fmt.Sprintf(onePlain, "rejected.plain"), reports: true},
	{name: "apply", table: "step_attempts", event: "insert", when: `true`, template: fmt.Sprintf(onePlain, "rejected.plain"), reports: true},
	{name: "apply", table: "step_attempts", event: "insert", when: `true`, template: fmt.Sprintf(onePlain, "rejected.plain")}, // after settling
	{name: "due", table: "board", event: "update", when: `old.state = 1 and new.state = 2`, template: oneRetry},
	{name: "due", table: "board", event: "update", when: `old.state = 1 and new.state = 4`, template: oneSleep},
	{name: "engine_steps", table: "board", event: "update", when: `old.state = 2 and new.state = 1`, template: oneSleep},
	{name: "heartbeats", table: "board", event: "update", when: `old.state = 3 and new.state = 3 and new.lease_until > old.lease_until`,
		template: fmt.Sprintf(onePlain, "rejected.slow"),
		drive: func(t *testing.T, r *rejectedRun, tasks []uuid.UUID) {
			pgtest.Eventually(t, patience, func() (bool, string) { return r.names(slices.MinFunc(tasks, compareTasks)), "no heartbeat is rejected" })
			close(r.release)
		}},
	{name: "checkpoints", table: "board", event: "update", when: `new.checkpoint is distinct from old.checkpoint and new.state = 3`,
		template: fmt.Sprintf(onePlain, "rejected.yield")},
	{name: "leases", table: "board", event: "update", when: `old.state = 3 and new.state = 4`, template: fmt.Sprintf(onePlain, "rejected.foreign"), unclaimed: true,
		drive: func(t *testing.T, r *rejectedRun, tasks []uuid.UUID) {
			e := r.e
			callables, err := e.Store.Callables(t.Context())
			require.NoError(t, err)
			request := store.ClaimRequest{Worker: uuid.New(), Limit: 100, Lease: 50 * time.Millisecond}
			for _, c := range callables {
				request.Callables = append(request.Callables, c.ID)
			}
			claimed, _, err := e.Store.Claim(t.Context(), request, true)
			require.NoError(t, err)
			require.Len(t, claimed, len(tasks))
		},
		done: func(t *testing.T, e *enginetest.Engine, task uuid.UUID) bool {
			got, err := e.Store.Task(t.Context(), task)
			require.NoError(t, err)
			return got.Steps[0].Attempts == 1 && got.Steps[0].State != workflow.StepInProgress
		}},
}

// TestOneRejectedRowStopsOnlyItself: of seven rows of each flow the database rejects one with each
// code. The others go on, and the log names the culprit.
func TestOneRejectedRowStopsOnlyItself(t *testing.T) {
	t.Parallel()
	for i := range rejectedFlows {
		f := &rejectedFlows[i]
		for _, code := range pgtest.Rejections {
			t.Run(fmt.Sprintf("%s of %s/%s", f.name, f.table, code), func(t *testing.T) {
				t.Parallel()
				f.run(t, code)
			})
		}
	}
}

// register adds the handlers and the template of a flow.
func (r *rejectedRun) register(w *worker.Worker) error {
	return errors.Join(enginetest.RegisterTemplates(w, r.template),
		w.Register("rejected.plain", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return "done", nil })),
		w.Register("rejected.again", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			if ctx.Attempt() == 1 {
				return nil, worker.Retryable(errors.New("again"), 0)
			}
			return "done", nil
		})),
		w.Register("rejected.slow", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			select {
			case <-r.release:
				return "done", nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})),
		w.Register("rejected.yield", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			if ctx.CheckpointItemsProcessed() > 0 {
				return "done", nil
			}
			return nil, worker.Yield(json.RawMessage(`1`), 1, nil)
		})))
}

func (f *rejectedFlow) run(t *testing.T, code string) {
	core, logs := observer.New(zapcore.InfoLevel)
	r := &rejectedRun{rejectedFlow: f, logs: logs, release: make(chan struct{})}
	e := enginetest.Start(t, r.register, func(c *orchestration.Config, w *worker.Config) {
		c.Logger, w.Logger = zap.New(core), zap.New(core)
		w.Report.Only, w.Lease, w.HeartbeatInterval = f.reports, 3*time.Second, 100*time.Millisecond
	})
	r.e = e
	row := "new"
	if f.event == "delete" {
		row = "old"
	}
	accept := e.DB.Reject(t, f.table, f.event, f.when+` and `+row+`.task_uuid = `+theFirst, code)
	if f.limit != "" {
		_, err := e.Store.SetLimit(t.Context(), store.Limit{Namespace: "test", Handler: workflow.HandlerReference{Callable: "rejected.plain"},
			Rule: limitrule.Rule{MaxRunning: new(100), KeyPath: []string{f.limit}}}, "t", "t")
		require.NoError(t, err)
		e.Bus.Publish(signal.Signal{Topic: signal.TopicControl})
	}
	requests := make([]orchestration.Request, 7)
	for i := range requests {
		requests[i] = orchestration.Request{Namespace: "test", Name: "rejected", Version: "1.0.0", Context: fmt.Appendf(nil, `{"n": %d}`, i),
			Initiator: "t", SourceSystem: "t", Reason: "t"}
	}
	begun := time.Now()
	tasks := make([]uuid.UUID, len(requests))
	for i, created := range e.Orchestrator.CreateMany(t.Context(), requests) {
		require.NoError(t, created.Err)
		tasks[i] = created.UUID
	}
	if f.drive != nil {
		f.drive(t, r, tasks)
	}
	culprit := slices.MinFunc(tasks, compareTasks)
	for _, task := range tasks {
		if task == culprit {
			continue
		}
		pgtest.Eventually(t, patience, func() (bool, string) {
			if f.done != nil {
				return f.done(t, e, task), "a task does not pass the flow"
			}
			ends, err := e.Store.TaskEnds(t.Context(), []uuid.UUID{task})
			require.NoError(t, err)
			return ends[task] == workflow.TaskComplete, "a task is not complete"
		})
	}
	t.Logf("the others were done after %v", time.Since(begun).Round(time.Millisecond))
	pgtest.Eventually(t, patience, func() (bool, string) { return r.names(culprit), "the log does not name the culprit" })
	accept()
}

func compareTasks(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// TestAKeyThatTheDatabaseRejectsStopsOnlyItsCallable: nothing is claimed of a limited callable one of whose keys cannot
// be written, and all of the others.
func TestAKeyThatTheDatabaseRejectsStopsOnlyItsCallable(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.InfoLevel)
	callables := []string{"keyed.good", "keyed.bad"}
	e := enginetest.Start(t, func(w *worker.Worker) error {
		var failed []error
		for _, callable := range callables {
			failed = append(failed, enginetest.RegisterTemplates(w, fmt.Sprintf(`
name: %s
namespace_name: test
version: 1.0.0
steps:
  - {name: one, handler: {callable: %s}}
`, strings.TrimPrefix(callable, "keyed."), callable)),
				w.Register(callable, worker.HandlerFunc(func(*worker.StepContext) (any, error) { return "done", nil })))
		}
		return errors.Join(failed...)
	}, func(c *orchestration.Config, w *worker.Config) { c.Logger, w.Logger = zap.New(core), zap.New(core) })
	accept := e.DB.Reject(t, "limit_keys", "insert or update", `new.key = 'rejected'`, "XX001")
	for _, callable := range callables {
		_, err := e.Store.SetLimit(t.Context(), store.Limit{Namespace: "test", Handler: workflow.HandlerReference{Callable: callable},
			Rule: limitrule.Rule{MaxRunning: new(1), KeyPath: []string{"key"}}}, "t", "t")
		require.NoError(t, err)
	}
	e.Bus.Publish(signal.Signal{Topic: signal.TopicControl})
	bad := e.Submit("test", "bad", `{"key": "rejected"}`)
	for n := range 5 {
		require.Equal(t, workflow.TaskComplete, e.Await(e.Submit("test", "good", fmt.Sprintf(`{"key": "k%d"}`, n))).State)
	}
	pgtest.Eventually(t, patience, func() (bool, string) {
		for _, line := range logs.FilterMessageSnippet("the database rejects a row").All() {
			if line.ContextMap()["callable_id"] != nil {
				return true, ""
			}
		}
		return false, "the log does not name the callable"
	})
	accept()
	require.Equal(t, workflow.TaskComplete, e.Await(bad).State, "once the database takes its key")
}

// A dependent of an ended task that the database rejects does not keep the others, nor the step that the ended task is,
// from going on; it ends once others have passed.
func TestADependentThatIsRejectedStopsOnlyItself(t *testing.T) {
	t.Parallel()
	for _, code := range pgtest.Rejections {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			w := startWaiting(t)
			parent := w.Submit("waits", "over_told", `{}`)
			blocker := w.child(parent, "sub")
			w.untilWaiting(blocker.UUID, "told")
			dependents := make([]uuid.UUID, 5)
			for i := range dependents {
				r := orchestration.Request{Namespace: "waits", Name: "nap", Context: fmt.Appendf(nil, `{"for": "1ms", "no": %d}`, i), Initiator: "ana", SourceSystem: "test", Reason: "after it"}
				r.DependsOn = []uuid.UUID{blocker.UUID}
				created, err := w.Orchestrator.Create(t.Context(), r)
				require.NoError(t, err)
				dependents[i] = created.UUID
			}
			w.DB.Reject(t, "board", "update", fmt.Sprintf(`old.task_uuid = '%s' and old.wait ->> 'kind' = 'tasks' and new.wait is null`, dependents[2]), code)
			_, err := w.Orchestrator.ReceiveEvent(t.Context(), orchestration.Event{Name: "go", TaskUUID: &blocker.UUID})
			require.NoError(t, err)
			require.Equal(t, workflow.TaskComplete, w.Await(parent).State)
			for i, id := range dependents {
				want := workflow.TaskComplete
				if i == 2 {
					want = workflow.TaskError
				}
				require.Equal(t, want, w.Await(id).State, "dependent %d", i)
			}
			require.GreaterOrEqual(t, testutil.ToFloat64(w.metrics.RowsRejected.WithLabelValues("dependents")), 3.0)
			pgtest.Eventually(t, patience, func() (bool, string) {
				return w.DB.QueryInt(t, `select count(*) from tasker.task_messages`) == 0, "the message stays"
			})
		})
	}
}
