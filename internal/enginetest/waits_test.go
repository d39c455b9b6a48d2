package enginetest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// waiting is an engine with workflows that wait.
type waiting struct {
	*enginetest.Engine
	t      *testing.T
	fails  atomic.Bool   // the handler "maybe" does
	blocks chan struct{} // closed: "block" ends
	end    func()        // closes it

	metrics *telemetry.Metrics
}

// untilRejected waits until the database has rejected a row of a flow so many times.
func (w *waiting) untilRejected(flow string, times float64) {
	w.t.Helper()
	pgtest.Eventually(w.t, patience, func() (bool, string) {
		n := testutil.ToFloat64(w.metrics.RowsRejected.WithLabelValues(flow))
		return n >= times, fmt.Sprintf("rows of %s are rejected %v times", flow, n)
	})
}

// waitTemplates are the workflows, each with the handlers "echo", which returns the
// results of its parents, and "maybe".
const waitTemplates = `
name: nap
namespace_name: waits
version: 1.0.0
steps:
  - {name: before, handler: {callable: echo}}
  - {name: nap, type: sleep, depends_on: [before], wait: {for: $.context.for}}
  - {name: after, depends_on: [nap], handler: {callable: echo}}
---
name: until
namespace_name: waits
version: 1.0.0
steps:
  - {name: nap, type: sleep, wait: {until: $.context.until}}
---
name: paid
namespace_name: waits
version: 1.0.0
steps:
  - {name: paid, type: wait_for_event, wait: {event: payment.received, key: $.context.order, timeout: 1h}}
  - {name: ship, depends_on: [paid], handler: {callable: echo}}
---
name: pays
namespace_name: waits
version: 1.0.0
steps:
  - name: pay
    handler: {callable: payment}
    publishes_events:
      - {name: payment.received, key: order.id, schema: {type: object}}
      - {name: payment.noted, schema: {type: object}}
---
name: told
namespace_name: waits
version: 1.0.0
steps:
  - {name: first, handler: {callable: echo}}
  - {name: told, type: wait_for_event, depends_on: [first], wait: {event: go}}
---
name: hurried
namespace_name: waits
version: 1.0.0
steps:
  - {name: came, type: wait_for_event, wait: {event: never, timeout: 50ms}, retry: {max_attempts: 2, backoff: fixed, backoff_base_ms: 100}}
---
name: patient
namespace_name: waits
version: 1.0.0
steps:
  - {name: came, type: wait_for_event, wait: {event: never, timeout: 50ms, on_timeout: continue}}
  - {name: after, depends_on: [came], handler: {callable: echo}}
---
name: asked
namespace_name: waits
version: 1.0.0
steps:
  - {name: prepare, handler: {callable: echo}}
  - {name: approve, type: approval, depends_on: [prepare], wait: {prompt: May it?, timeout: 1h}}
  - {name: after, depends_on: [approve], handler: {callable: echo}}
---
name: unanswered
namespace_name: waits
version: 1.0.0
steps:
  - {name: book, handler: {callable: echo}, compensation: unbook}
  - {name: unbook, type: compensation, handler: {callable: echo}}
  - {name: approve, type: approval, depends_on: [book], wait: {prompt: May it?, timeout: 50ms}}
  - {name: after, depends_on: [approve], handler: {callable: echo}}
---
name: silence
namespace_name: waits
version: 1.0.0
steps:
  - {name: approve, type: approval, wait: {timeout: 50ms, on_timeout: continue, on_rejection: continue}}
  - {name: after, depends_on: [approve], handler: {callable: echo}}
---
name: child
namespace_name: waits
version: 1.0.0
input_schema: {type: object, required: [n], properties: {n: {type: integer}}}
steps:
  - {name: a, handler: {callable: number}}
  - {name: b, depends_on: [a], handler: {callable: maybe}}
  - {name: c, depends_on: [a], handler: {callable: echo}}
---
name: parent
namespace_name: waits
version: 1.0.0
steps:
  - {name: first, handler: {callable: number}}
  - name: sub
    type: task
    depends_on: [first]
    task: {name: child, version: 1.0.0, context: {n: $.steps.first, from: $.task.uuid, price: $$.5, list: [$.context.n, 2]}}
    retry: {max_attempts: 2, backoff: fixed, backoff_base_ms: 100}
  - {name: last, depends_on: [sub], handler: {callable: echo}}
---
name: blocked
namespace_name: waits
version: 1.0.0
steps:
  - {name: wait, handler: {callable: block}}
---
name: over_told
namespace_name: waits
version: 1.0.0
steps:
  - {name: sub, type: task, task: {name: told, version: 1.0.0}}
---
name: over_blocked
namespace_name: waits
version: 1.0.0
steps:
  - {name: sub, type: task, task: {name: blocked, version: 1.0.0}}
---
name: unheard
namespace_name: waits
version: 1.0.0
steps:
  - {name: never, type: wait_for_event, wait: {event: never}}
---
name: over_unheard
namespace_name: waits
version: 1.0.0
steps:
  - {name: sub, type: task, task: {name: unheard, version: 1.0.0}}
---
name: impatient
namespace_name: waits
version: 1.0.0
steps:
  - {name: sub, type: task, task: {name: blocked, version: 1.0.0, timeout: 100ms}}
---
name: endless
namespace_name: waits
version: 1.0.0
steps:
  - {name: again, type: task, task: {name: endless, version: 1.0.0}}
---
name: lost
namespace_name: waits
version: 1.0.0
steps:
  - {name: sub, type: task, task: {name: nobody_knows, version: 1.0.0}}
---
name: wrong
namespace_name: waits
version: 1.0.0
steps:
  - {name: sub, type: task, task: {name: child, version: 1.0.0, context: {n: $.context.nothing.here}}}
---
name: invalid
namespace_name: waits
version: 1.0.0
steps:
  - {name: sub, type: task, task: {name: child, version: 1.0.0, context: {n: seven}}}
---
name: simple
namespace_name: waits
version: 1.0.0
steps:
  - {name: only, handler: {callable: maybe}}
---
name: fan
namespace_name: waits
version: 1.0.0
steps:
  - {name: a, handler: {callable: echo}}
  - {name: b, handler: {callable: echo}}
  - {name: c, depends_on: [a, b], handler: {callable: echo}}
`

func startWaiting(t *testing.T, options ...enginetest.Option) *waiting {
	w := &waiting{t: t, blocks: make(chan struct{}), metrics: telemetry.Discard()}
	options = append(options, func(c *orchestration.Config, _ *worker.Config) { c.Metrics = w.metrics })
	w.Engine = enginetest.Start(t, w.register, options...)
	w.end = sync.OnceFunc(func() { close(w.blocks) })
	t.Cleanup(w.end)
	return w
}

func (w *waiting) register(to *worker.Worker) error {
	for _, text := range strings.Split(waitTemplates, "\n---\n") {
		tmpl, problems, err := template.Parse("waits.yaml", []byte(text))
		if err != nil {
			return err
		}
		if len(problems) > 0 {
			return errors.New(problems.String())
		}
		if err := to.RegisterTemplate(tmpl); err != nil {
			return err
		}
	}
	handle := func(name string, h func(ctx *worker.StepContext) (any, error)) error {
		return to.Register(name, worker.HandlerFunc(h))
	}
	return errors.Join(
		handle("echo", func(ctx *worker.StepContext) (any, error) {
			return ctx.DependencyResults(), nil
		}),
		handle("payment", func(ctx *worker.StepContext) (any, error) {
			return map[string]any{"order": ctx.Input()}, nil
		}),
		handle("number", func(ctx *worker.StepContext) (any, error) {
			var in struct{ N int }
			err := json.Unmarshal(ctx.Input(), &in)
			return in.N + 1, err
		}),
		handle("maybe", func(*worker.StepContext) (any, error) {
			if w.fails.Load() {
				return nil, worker.Permanent(errors.New("it may not"))
			}
			return "done", nil
		}),
		handle("block", func(ctx *worker.StepContext) (any, error) {
			select {
			case <-w.blocks:
			case <-ctx.Done():
			}
			return nil, ctx.Err()
		}),
	)
}

// step reads a step of a task.
func (w *waiting) step(id uuid.UUID, name string) store.Step {
	w.t.Helper()
	for _, s := range w.Read(id).Steps {
		if s.Name == name {
			return s
		}
	}
	w.t.Fatalf("no step %s", name)
	return store.Step{}
}

// untilWaiting waits until a step waits.
func (w *waiting) untilWaiting(id uuid.UUID, name string) store.Step {
	w.t.Helper()
	require.Eventually(w.t, func() bool { s := w.step(id, name); return s.Waiting != nil && s.LastAttemptAt != nil }, patience, 2*time.Millisecond)
	return w.step(id, name)
}

func (w *waiting) send(e orchestration.Event) store.Delivered {
	w.t.Helper()
	d, err := w.Orchestrator.ReceiveEvent(w.t.Context(), e)
	require.NoError(w.t, err)
	return d
}

func result(t *testing.T, task *store.Task, step string) map[string]any {
	t.Helper()
	var m map[string]any
	require.NoError(t, json.Unmarshal([]byte(enginetest.Results(task)[step]), &m), enginetest.Results(task)[step])
	return m
}

func TestSleep(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.WarnLevel)
	w := startWaiting(t, func(_ *orchestration.Config, c *worker.Config) { c.Logger = zap.New(core) })
	require.Empty(t, logs.All(), "steps without a callable need no handler")
	s := w.untilWaiting(w.Submit("waits", "nap", `{"for":"1h"}`), "nap")
	require.Equal(t, workflow.StepInProgress, s.State)
	require.Equal(t, "sleep", s.Waiting.Kind)
	require.NotNil(t, s.Waiting.Until)
	require.Equal(t, 1, s.Attempts)
	require.Zero(t, w.Worker.Health().Running, "no worker slot is held")
	require.Equal(t, "in_progress", w.DB.QueryString(t, `select state from tasker.v_workflow_steps where name = 'nap'`))
	id := w.Submit("waits", "nap", `{"for":"300ms"}`)
	task := w.Await(id)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.Contains(t, result(t, task, "nap"), "until")
	require.GreaterOrEqual(t, w.DB.QueryInt(t, `select (extract(epoch from reported_at - claimed_at) * 1000)::int from tasker.step_attempts
		where task_uuid = $1 and step_no = 1`, id), 300)
}

func TestSleepUntil(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	require.Equal(t, workflow.TaskComplete, w.Run("waits", "until", `{"until":"2001-01-01T00:00:00Z"}`).State, "that was long ago")
	at := time.Now().Add(200 * time.Millisecond).UTC()
	task := w.Run("waits", "until", fmt.Sprintf(`{"until":%q}`, at.Format(time.RFC3339Nano)))
	require.Equal(t, workflow.TaskComplete, task.State)
	require.False(t, task.CompletedAt.Before(at.Add(-50*time.Millisecond)), "by the database's clock, which may differ a little")
	task = w.Run("waits", "until", `{"until":"tomorrow"}`)
	require.Equal(t, workflow.TaskError, task.State)
	require.Contains(t, string(task.Steps[0].Error), "invalid time")
}

func TestAnEventThatIsAwaited(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	id := w.Submit("waits", "paid", `{"order":4711}`)
	s := w.untilWaiting(id, "paid")
	require.Equal(t, store.Waiting{Kind: "wait_for_event", Event: "payment.received", Key: "4711", Until: s.Waiting.Until}, *s.Waiting)
	event := orchestration.Event{Namespace: "waits", Name: "payment.received", Key: "4711", ID: "bank-1", Payload: json.RawMessage(`{"amount": 12.50}`)}
	other := event
	other.Key, other.ID = "4712", "bank-2"
	require.Zero(t, w.send(other).Steps, "it has another namespace")
	require.Equal(t, 1, w.send(event).Steps)
	again := w.send(event)
	require.True(t, again.Duplicate)
	require.Equal(t, 1, again.Steps)
	task := w.Await(id)
	require.Equal(t, workflow.TaskComplete, task.State)
	paid := result(t, task, "paid")
	require.Equal(t, map[string]any{"amount": 12.5}, paid["payload"])
	require.Equal(t, "4711", paid["key"])
	require.Equal(t, map[string]any{"paid": paid}, result(t, task, "ship"))
}

func TestAnEventThatCameBefore(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	event := orchestration.Event{Namespace: "waits", Name: "payment.received", Key: "o-1"}
	for i := range 2 {
		event.Payload = fmt.Appendf(nil, `%d`, i)
		require.Zero(t, w.send(event).Steps)
		require.Eventually(t, func() bool {
			return w.DB.QueryInt(t, `select count(*) from tasker.received_events where delivered = 0`) == i+1
		}, patience, time.Millisecond)
	}
	first, second := w.Run("waits", "paid", `{"order":"o-1","n":1}`), w.Run("waits", "paid", `{"order":"o-1","n":2}`)
	require.InDelta(t, 0, result(t, first, "paid")["payload"], 0, "the first one has the first")
	require.InDelta(t, 1, result(t, second, "paid")["payload"], 0)
	third := w.Submit("waits", "paid", `{"order":"o-1","n":3}`)
	w.untilWaiting(third, "paid")
	require.Equal(t, 2, w.DB.QueryInt(t, `select count(*) from tasker.received_events where delivered = 1 and taken_by is not null`))
	require.NoError(t, w.Orchestrator.Cancel(t.Context(), third, "ana", "no money"))
	require.Equal(t, workflow.TaskCancelled, w.Await(third).State)
	event.Payload = nil
	require.Zero(t, w.send(event).Steps, "no step waits any more")
}

// A step of one workflow publishes an event that a step of another one awaits, before or
// after the wait begins.
func TestADomainEventThatIsAwaited(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	second := w.AnotherOrchestrator()
	_ = second
	waiting := w.Submit("waits", "paid", `{"order":"o-1"}`)
	w.untilWaiting(waiting, "paid")
	for _, id := range []string{`"o-1"`, `7`, `null`, `"a\u0001b"`} {
		require.Equal(t, workflow.TaskComplete, w.Run("waits", "pays", `{"id":`+id+`}`).State)
	}
	task := w.Await(waiting)
	require.Equal(t, workflow.TaskComplete, task.State)
	paid := result(t, task, "paid")
	require.Equal(t, map[string]any{"order": map[string]any{"id": "o-1"}}, paid["payload"])
	require.Equal(t, w.DB.QueryString(t, `select event_uuid::text from tasker.domain_events where key = 'o-1'`), paid["event_uuid"])
	later := w.Run("waits", "paid", `{"order":7}`)
	require.Equal(t, "7", result(t, later, "paid")["key"])
	require.Eventually(t, func() bool { return w.DB.QueryInt(t, `select count(*) from tasker.event_deliveries`) == 0 }, patience, time.Millisecond)
	require.Equal(t, 2, w.DB.QueryInt(t, `select count(*) from tasker.received_events`), "without a key no step can wait for it")
	require.Equal(t, 8, w.DB.QueryInt(t, `select count(*) from tasker.domain_events`))
}

func TestAnEventForOneTask(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	id := w.Submit("waits", "told", `{}`)
	w.untilWaiting(id, "told")
	d := w.send(orchestration.Event{Name: "go", TaskUUID: &id})
	require.Equal(t, 1, d.Steps)
	require.Equal(t, workflow.TaskComplete, w.Await(id).State)
	_, err := w.Orchestrator.ReceiveEvent(t.Context(), orchestration.Event{Name: "go", TaskUUID: &id})
	require.ErrorIs(t, err, store.ErrTaskEnded)
	missing := uuid.Must(uuid.NewV7())
	_, err = w.Orchestrator.ReceiveEvent(t.Context(), orchestration.Event{Name: "go", TaskUUID: &missing})
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = w.Orchestrator.ReceiveEvent(t.Context(), orchestration.Event{Namespace: "nowhere", Name: "go", Key: "k"})
	require.ErrorIs(t, err, store.ErrNotFound)
	var invalid *orchestration.InvalidError
	for _, e := range []orchestration.Event{{Namespace: "waits", Name: "go"}, {Namespace: "waits", Key: "k"}, {Namespace: "waits", Name: "go", Key: "k", TaskUUID: &id},
		{Namespace: "waits", Name: "go\n", Key: "k"}, {Namespace: "waits", Name: "go", Key: "k", Payload: json.RawMessage(`{`)},
		{Namespace: "waits", Name: "go", Key: "k", Payload: json.RawMessage(`"\u0000"`)}} {
		_, err = w.Orchestrator.ReceiveEvent(t.Context(), e)
		require.ErrorAs(t, err, &invalid, "%+v", e)
	}
}

// Events and waiting steps meet in any order: as many events as steps, sent while the
// steps begin, and each step gets one, each event goes to one.
func TestEventsAndWaitersCross(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	second := w.AnotherOrchestrator()
	const n = 100
	ids := make([]uuid.UUID, n)
	var senders sync.WaitGroup
	for i := range n {
		key := fmt.Sprintf("k%d", i)
		senders.Go(func() {
			o := w.Orchestrator
			if i%2 == 1 {
				o = second
			}
			_, err := o.ReceiveEvent(t.Context(), orchestration.Event{Namespace: "waits", Name: "payment.received", Key: key, Payload: fmt.Appendf(nil, "%d", i)})
			if err != nil {
				t.Error(err)
			}
		})
		ids[i] = w.Submit("waits", "paid", fmt.Sprintf(`{"order":%q}`, key))
	}
	senders.Wait()
	for i, id := range ids {
		task := w.Await(id)
		require.Equal(t, workflow.TaskComplete, task.State)
		require.InDelta(t, i, result(t, task, "paid")["payload"], 0)
	}
	require.Equal(t, n, w.DB.QueryInt(t, `select count(*) from tasker.received_events where delivered = 1`))
}

func TestAnEventThatDoesNotCome(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	task := w.Run("waits", "hurried", `{}`)
	require.Equal(t, workflow.TaskError, task.State)
	require.Equal(t, 2, task.Steps[0].Attempts, "its retry block had it wait once more")
	require.Contains(t, string(task.Steps[0].Error), "the event never did not come within 50ms")
	task = w.Run("waits", "patient", `{}`)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.Equal(t, true, result(t, task, "came")["timed_out"])
}

func TestApproval(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	for _, approved := range []bool{true, false} {
		id := w.Submit("waits", "asked", fmt.Sprintf(`{"approved":%t}`, approved))
		w.untilWaiting(id, "approve")
		list, err := w.Orchestrator.Approvals(t.Context(), store.ApprovalFilter{TaskUUID: &id, Limit: 10})
		require.NoError(t, err)
		require.Len(t, list.Approvals, 1)
		all, err := w.Orchestrator.Approvals(t.Context(), store.ApprovalFilter{Namespace: "waits", Limit: 10})
		require.NoError(t, err)
		require.Equal(t, list, all)
		elsewhere, err := w.Orchestrator.Approvals(t.Context(), store.ApprovalFilter{Namespace: "elsewhere", Limit: 10})
		require.NoError(t, err)
		require.Empty(t, elsewhere.Approvals)
		a := list.Approvals[0]
		require.Equal(t, "May it?", a.Prompt)
		require.Equal(t, []string{"waits", "asked", "approve"}, []string{a.Namespace, a.Task, a.Step})
		shown, err := w.Orchestrator.Approval(t.Context(), a.Token)
		require.NoError(t, err)
		require.Equal(t, a, shown, "reading decides nothing")
		_, err = w.Orchestrator.Decide(t.Context(), a.Token, orchestration.Verdict{Approved: approved, Actor: "ana", Comment: "why not", Data: json.RawMessage(`{"limit":5}`)})
		require.NoError(t, err)
		_, err = w.Orchestrator.Decide(t.Context(), a.Token, orchestration.Verdict{Approved: !approved, Actor: "eve"})
		require.ErrorIs(t, err, store.ErrNotFound, "it allows one decision")
		_, err = w.Orchestrator.Approval(t.Context(), a.Token)
		require.ErrorIs(t, err, store.ErrNotFound)
		task := w.Await(id)
		if approved {
			require.Equal(t, workflow.TaskComplete, task.State)
			r := result(t, task, "approve")
			require.Equal(t, []any{true, "ana", "why not", map[string]any{"limit": 5.0}}, []any{r["approved"], r["actor"], r["comment"], r["data"]})
			continue
		}
		require.Equal(t, workflow.TaskError, task.State)
		require.Contains(t, string(w.step(id, "approve").Error), "rejected by ana: why not")
	}
	require.Equal(t, 2, w.DB.QueryInt(t, `select count(*) from tasker.operator_actions where action in ('approve', 'reject') and actor = 'ana'`))
}

// Of many concurrent decisions one counts.
func TestOneOfManyDecides(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	id := w.Submit("waits", "asked", `{}`)
	w.untilWaiting(id, "approve")
	list, err := w.Orchestrator.Approvals(t.Context(), store.ApprovalFilter{Limit: 1})
	require.NoError(t, err)
	var decided atomic.Int32
	var people sync.WaitGroup
	for i := range 20 {
		people.Go(func() {
			if _, err := w.Orchestrator.Decide(t.Context(), list.Approvals[0].Token, orchestration.Verdict{Approved: true, Actor: fmt.Sprint(i)}); err == nil {
				decided.Add(1)
			}
		})
	}
	people.Wait()
	require.EqualValues(t, 1, decided.Load())
	require.Equal(t, workflow.TaskComplete, w.Await(id).State)
}

// An approval without a decision in time fails, and earlier steps are compensated.
func TestAnApprovalThatTimesOut(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	task := w.Run("waits", "unanswered", `{}`)
	require.Equal(t, workflow.TaskError, task.State)
	require.Contains(t, string(w.step(task.UUID, "approve").Error), "no decision within 50ms")
	require.Equal(t, workflow.StepComplete, w.step(task.UUID, "unbook").State, "the booking is compensated")
	list, err := w.Orchestrator.Approvals(t.Context(), store.ApprovalFilter{Limit: 10})
	require.NoError(t, err)
	require.Empty(t, list.Approvals)

	task = w.Run("waits", "silence", `{}`)
	require.Equal(t, workflow.TaskComplete, task.State)
	r := result(t, task, "approve")
	require.Equal(t, []any{false, true}, []any{r["approved"], r["timed_out"]})
}
