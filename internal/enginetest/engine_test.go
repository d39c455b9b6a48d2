package enginetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

func TestMain(m *testing.M) { os.Exit(brokertest.With(pgtest.With(m)).Run()) }

const oneStep = `
name: %s
namespace_name: test
version: 1.0.0
input_schema: {type: object, properties: {n: {type: integer}}}
steps:
  - name: a
    handler: {callable: %s}
    retry: {max_attempts: 3, backoff: fixed, backoff_base_ms: 100}
  - name: b
    dependencies: [a]
    handler: {callable: test.ok}
`

// handlers registers the templates "ok", "flaky" and "slow".
func handlers(slow <-chan struct{}) func(*worker.Worker) error {
	return func(w *worker.Worker) error {
		for _, name := range []string{"ok", "flaky", "slow"} {
			if err := enginetest.RegisterTemplates(w, fmt.Sprintf(oneStep, name, "test."+name)); err != nil {
				return err
			}
		}
		return errors.Join(
			w.Register("test.ok", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return 1, nil })),
			w.Register("test.flaky", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
				if ctx.Attempt() < 3 {
					return nil, errors.New("not yet")
				}
				return ctx.Attempt(), nil
			})),
			w.Register("test.slow", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
				select {
				case <-slow:
					return 1, nil
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				}
			})),
		)
	}
}

func TestRetriesComeBackByTheTimer(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, handlers(nil))
	task := e.Run("test", "flaky", `{"n":1}`)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.Equal(t, 3, task.Steps[0].Attempts)
	require.JSONEq(t, `3`, string(task.Steps[0].Result))
}

// TestAFailedStepIsLogged: the log line names the step by searchable terms. The numbers of
// steps have their own field: log collectors accept one type.
func TestAFailedStepIsLogged(t *testing.T) {
	t.Parallel()
	core, lines := observer.New(zap.DebugLevel)
	e := enginetest.Start(t, handlers(nil), func(o *orchestration.Config, w *worker.Config) { o.Logger, w.Logger = zap.New(core), zap.New(core) })
	task := e.Run("test", "flaky", `{"n":1}`)
	require.Equal(t, workflow.TaskComplete, task.State)
	logged := lines.FilterMessage("step failed").All()
	require.Len(t, logged, 2)
	for i, line := range logged {
		require.Equal(t, zap.WarnLevel, line.Level)
		text, err := zapcore.NewJSONEncoder(zapcore.EncoderConfig{}).EncodeEntry(line.Entry, line.Context)
		require.NoError(t, err)
		last := -1
		for _, key := range telemetry.LeadingLogKeys {
			at := strings.Index(text.String(), `"`+key.Name+`"`)
			require.Greater(t, at, last, "the leading fields come first, in their order")
			last = at
		}
		require.Less(t, last, strings.Index(text.String(), `"error_type"`))
		require.Equal(t, map[string]any{"namespace": "test", "template": "flaky", "step_name": "a", "step_uuid": task.Steps[0].UUID.String(), "step_no": int64(0), "attempt": int64(i + 1),
			"task_uuid": task.UUID.String(), "correlation_id": task.CorrelationID.String(),
			"error": "not yet", "error_type": "UnexpectedError", "error_code": "", "retryable": true}, line.ContextMap())
	}
	for _, line := range lines.All() {
		if step, has := line.ContextMap()["step_name"]; has {
			require.IsType(t, "", step, line.Message)
		}
	}
}

func TestCreateRefusesWithClearErrors(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, handlers(nil))
	create := func(name, input, key string) error {
		_, err := e.Orchestrator.Create(t.Context(), orchestration.Request{Namespace: "test", Name: name, Version: "1.0.0",
			Context: json.RawMessage(input), IdempotencyKey: key})
		return err
	}
	var unknown *orchestration.UnknownTemplateError
	require.ErrorAs(t, create("nothing", `{}`, ""), &unknown)
	var invalid *orchestration.InvalidError
	require.ErrorAs(t, create("ok", `{"n":"text"}`, ""), &invalid)
	require.ErrorContains(t, invalid, "context/n")

	require.NoError(t, create("ok", `{"n":1}`, ""))
	var duplicate *orchestration.DuplicateError
	require.ErrorAs(t, create("ok", `{ "n" : 1.0 }`, ""), &duplicate, "the same context in other words")
	require.Equal(t, uuid.Nil, duplicate.Existing, "a guessed context reveals nothing")
	require.NoError(t, create("ok", `{"n":1}`, "key"), "a key is an identity of its own")
	require.ErrorAs(t, create("ok", `{"n":2}`, "key"), &duplicate)
	require.NotEqual(t, uuid.Nil, duplicate.Existing)
	require.Equal(t, 2, e.DB.QueryInt(t, `select count(*) from tasker.tasks`), "a rejected request leaves no task")
}

func TestOneOfManyEqualRequestsWins(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, handlers(nil))
	var wg sync.WaitGroup
	errs := make(chan error, 64)
	for range cap(errs) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			_, err := e.Orchestrator.Create(t.Context(), orchestration.Request{Namespace: "test", Name: "ok", Version: "1.0.0", Context: json.RawMessage(`{"n":7}`)})
			errs <- err
		}()
	}
	wg.Wait()
	close(errs)
	won := 0
	for err := range errs {
		var duplicate *orchestration.DuplicateError
		if err == nil {
			won++
		} else {
			require.ErrorAs(t, err, &duplicate)
		}
	}
	require.Equal(t, 1, won)
}

func TestCancelStopsARunningHandler(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, handlers(nil))
	id := e.Submit("test", "slow", `{}`)
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		return e.DB.QueryInt(t, `select count(*) from tasker.board where state = 3`) == 1, "not claimed"
	})
	require.NoError(t, e.Orchestrator.Cancel(t.Context(), id, "ana", "wrong customer"))
	task := e.Await(id)
	require.Equal(t, workflow.TaskCancelled, task.State)
	require.Equal(t, "wrong customer", *task.FinalReason)
	require.ErrorIs(t, e.Orchestrator.Cancel(t.Context(), id, "ana", "again"), store.ErrTaskEnded)
	require.ErrorIs(t, e.Orchestrator.Cancel(t.Context(), uuid.Must(uuid.NewV7()), "ana", ""), store.ErrNotFound)
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		h := e.Worker.Health()
		return h.Running == 0 && h.LeasesLost == 1, fmt.Sprintf("%d running", h.Running)
	})
	require.Equal(t, "ana", e.DB.QueryString(t, `select actor from tasker.task_events`))
}

func TestExpiredLeaseGoesOnWithAnotherExecution(t *testing.T) {
	t.Parallel()
	slow := make(chan struct{})
	e := enginetest.Start(t, handlers(slow))
	id := e.Submit("test", "slow", `{}`)
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		return e.DB.QueryInt(t, `select count(*) from tasker.board where state = 3`) == 1, "not claimed"
	})
	first := store.ClaimKey{TaskUUID: id, Token: int64(e.DB.QueryInt(t, `select token from tasker.board where state = 3`))}
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		// Repeated, because a heartbeat may extend the lease before its end is seen.
		require.NoError(t, e.Store.ReleaseLeases(t.Context(), []store.ClaimKey{first}))
		return e.DB.QueryInt(t, `select count(*) from tasker.board where state = 3 and token > $1`, first.Token) == 1, "no second execution"
	})
	close(slow)
	task := e.Await(id)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.Equal(t, 1, task.Steps[0].Attempts, "a loss uses none")
	require.Zero(t, task.Steps[0].Crashes)
}

func TestWaitGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	slow := make(chan struct{})
	e := enginetest.Start(t, handlers(slow))
	id := e.Submit("test", "slow", `{}`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended, err := e.Orchestrator.Wait(ctx, id)
	require.False(t, ended)
	if err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
	close(slow)
	e.Await(id)
	ended, err = e.Orchestrator.Wait(t.Context(), uuid.Must(uuid.NewV7()))
	require.NoError(t, err)
	require.True(t, ended, "nothing to wait for")
}

func TestTwoOrchestratorsShareTheWork(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, handlers(nil))
	second := e.AnotherOrchestrator()
	var ids []uuid.UUID
	for i := range 200 {
		o := e.Orchestrator
		if i%2 == 1 {
			o = second
		}
		created, err := o.Create(t.Context(), orchestration.Request{Namespace: "test", Name: "ok", Version: "1.0.0", Context: fmt.Appendf(nil, `{"i":%d}`, i)})
		require.NoError(t, err)
		ids = append(ids, created.UUID)
	}
	for _, id := range ids {
		require.Equal(t, workflow.TaskComplete, e.Await(id).State)
	}
	require.Equal(t, 400, e.DB.QueryInt(t, `select count(*) from tasker.step_attempts`))
}

func TestLostSignalsAreMadeGoodByTheHeartbeat(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, handlers(nil), func(o *orchestration.Config, w *worker.Config) {
		o.Orchestration.Mode, o.Readiness.Mode, w.Mode = deploymode.EventDrivenOnly, deploymode.EventDrivenOnly, deploymode.EventDrivenOnly
		o.HeartbeatInterval = 200 * time.Millisecond
	})
	plan, err := e.Store.PlanNamed(t.Context(), "test", "ok", "1.0.0")
	require.NoError(t, err)
	// Created by a process that died before the signal.
	task := store.NewTask{UUID: uuid.Must(uuid.NewV7()), Plan: plan, Context: json.RawMessage(`{}`), CorrelationID: uuid.Must(uuid.NewV7())}
	_, err = e.Store.CreateTasks(t.Context(), []store.NewTask{task})
	require.NoError(t, err)
	require.Equal(t, workflow.TaskComplete, e.Await(task.UUID).State)
}
