package workertest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/batch"
	"github.com/tasker-go/tasker/worker/decision"
	"github.com/tasker-go/tasker/worker/workertest"
	"github.com/tasker-go/tasker/workflow"
)

// failing collects the message of a failed test.
type failing struct{ message string }

func (f *failing) Helper() {}
func (f *failing) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
}

type amount struct {
	Cents int64 `json:"cents"`
}

func TestAHandlerSeesItsStep(t *testing.T) {
	t.Parallel()
	type settings struct{ URL string }
	var seen []any
	got := workertest.Run(t, worker.Typed(func(ctx *worker.StepContext, in amount) (map[string]any, error) {
		earlier, err := worker.ResultOf[amount](ctx, "quote")
		require.NoError(t, err)
		config, err := worker.ConfigAs[settings](ctx)
		require.NoError(t, err)
		_, unknown := ctx.DependencyResult("other")
		require.ErrorIs(t, unknown, worker.ErrUnknownStep)
		rows, err := ctx.BatchResults("rows")
		require.NoError(t, err)
		ctx.Progress(0.5, "half")
		seen = []any{in.Cents, earlier.Cents, config.URL, ctx.Attempt(), ctx.MaxAttempts(), ctx.IsLastAttempt(), ctx.StepName(),
			ctx.TaskName(), ctx.Priority(), ctx.RequestedAt(), len(rows), string(rows[1].Result)}
		return map[string]any{"sum": in.Cents + earlier.Cents}, nil
	}), workertest.Step{Name: "charge", TaskName: "order", Input: amount{7}, Results: map[string]any{"quote": amount{5}},
		BatchResults: map[string][]any{"rows": {1, 2}}, Config: map[string]any{"url": "https://example.com"},
		Attempt: 2, MaxAttempts: 2, Priority: 9, Now: time.Unix(9, 0)})
	require.Equal(t, []any{int64(7), int64(5), "https://example.com", 2, 2, true, "charge", "order", 9, time.Unix(9, 0), 2, "2"}, seen)
	require.JSONEq(t, `{"sum":12}`, got.String())
	require.Nil(t, got.Failure)
	require.Equal(t, []any{0.5, "half"}, []any{got.Progress, got.ProgressMessage})
}

func TestFailuresAreClassifiedAsByAWorker(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		fn   func(ctx *worker.StepContext) (any, error)
		step workertest.Step
		want workertest.Failure
	}{
		"plain":      {fails(broken), workertest.Step{}, workertest.Failure{Message: "broken", Type: "UnexpectedError", Retryable: true, RetryAfter: -1}},
		"last":       {fails(broken), workertest.Step{Attempt: 3}, workertest.Failure{Message: "broken", Type: "UnexpectedError", Retryable: true, Final: true, RetryAfter: -1}},
		"once":       {fails(broken), workertest.Step{NotRetryable: true}, workertest.Failure{Message: "broken", Type: "UnexpectedError", Retryable: true, Final: true, RetryAfter: -1}},
		"later":      {fails(worker.Retryable(broken, time.Minute)), workertest.Step{}, workertest.Failure{Message: "broken", Type: "RetryableError", Retryable: true, RetryAfter: time.Minute}},
		"permanent":  {fails(worker.WithCode(worker.Permanent(broken), "E7")), workertest.Step{}, workertest.Failure{Message: "broken", Type: "PermanentError", Code: "E7", Final: true, RetryAfter: -1}},
		"panic":      {func(*worker.StepContext) (any, error) { panic("oh") }, workertest.Step{}, workertest.Failure{Message: "the handler panicked: oh", Type: "PanicError", Retryable: true, RetryAfter: -1}},
		"goexit":     {func(*worker.StepContext) (any, error) { runtime.Goexit(); return nil, nil }, workertest.Step{}, workertest.Failure{Message: "the handler ended its goroutine", Type: "PanicError", Retryable: true, RetryAfter: -1}},
		"no method":  {fails(nil), workertest.Step{Method: "undo"}, workertest.Failure{Message: "MethodNotFound: Handler 'workertest.handler' does not respond to 'undo'", Type: "MethodNotFound", Final: true, RetryAfter: -1}},
		"no JSON":    {func(*worker.StepContext) (any, error) { return func() {}, nil }, workertest.Step{}, workertest.Failure{Message: "the handler's result has no JSON form: json: unsupported type: func()", Type: "ResultNotEncodable", Final: true, RetryAfter: -1}},
		"bad cursor": {fails(worker.Yield(func() {}, 1, nil)), workertest.Step{}, workertest.Failure{Message: "store the checkpoint's cursor: it has no JSON form: json: unsupported type: func()", Type: "CheckpointNotStorable", Final: true, RetryAfter: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := workertest.Run(t, worker.HandlerFunc(tt.fn), tt.step)
			require.NotNil(t, got.Failure)
			require.Equal(t, tt.want, *got.Failure)
			require.Error(t, got.Err)
			require.Error(t, got.Decode(new(any)))
		})
	}
	got := workertest.Run(t, worker.Typed(func(*worker.StepContext, amount) (any, error) { return nil, nil }), workertest.Step{Input: json.RawMessage(`{"cents":"x"}`)})
	require.Equal(t, "InvalidInput", got.Failure.Type)
}

func fails(err error) func(*worker.StepContext) (any, error) {
	return func(*worker.StepContext) (any, error) { return nil, err }
}

func TestATimeLimitPasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		got := workertest.Run(t, worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), worker.ErrTimeout)
			return nil, ctx.Err()
		}), workertest.Step{Timeout: 40 * time.Second})
		require.Equal(t, 40*time.Second, time.Since(begin))
		require.Equal(t, "Timeout", got.Failure.Type)
		require.Equal(t, "the handler did not end within 40s", got.Failure.Message)
	})
}

func TestProgressContinues(t *testing.T) {
	t.Parallel()
	h := worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
		from, err := worker.CheckpointAs[int](ctx)
		if err != nil || from >= 20 {
			return ctx.CheckpointItemsProcessed(), err
		}
		if err := ctx.Checkpoint(from+5, int64(from+5), nil); err != nil {
			return nil, err
		}
		return nil, worker.Yield(from+10, int64(from+10), map[string]int{"sum": from})
	})
	first := workertest.Run(t, h, workertest.Step{})
	require.True(t, first.Yielded)
	require.Nil(t, first.Failure)
	require.Equal(t, []workertest.Checkpoint{{Cursor: json.RawMessage("5"), Items: 5},
		{Cursor: json.RawMessage("10"), Items: 10, Accumulated: json.RawMessage(`{"sum":0}`)}}, first.Checkpoints)
	second := workertest.Run(t, h, workertest.Step{Checkpoint: first.Checkpoint})
	last := workertest.Run(t, h, workertest.Step{Checkpoint: second.Checkpoint})
	require.Equal(t, "20", last.String())
	require.Nil(t, last.Checkpoint)
}

func TestBatchesAndDecisions(t *testing.T) {
	t.Parallel()
	chosen := workertest.Run(t, worker.HandlerFunc(func(*worker.StepContext) (any, error) { return decision.Create("a", "b"), nil }),
		workertest.Step{Kind: workflow.KindDecision})
	names, err := chosen.Created()
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, names)
	misplaced := workertest.Run(t, worker.HandlerFunc(func(*worker.StepContext) (any, error) { return decision.Create("a"), nil }), workertest.Step{})
	require.Equal(t, "InvalidOutcome", misplaced.Failure.Type)
	split := workertest.Run(t, worker.HandlerFunc(func(*worker.StepContext) (any, error) {
		return batch.Create("rows", batch.Split(10, 5, 0), 10), nil
	}), workertest.Step{Kind: workflow.KindBatchable})
	names, err = split.Created()
	require.NoError(t, err)
	require.Equal(t, []string{"001", "002"}, names)
	rows := worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
		from, to, err := worker.RangeOf(ctx)
		if err != nil {
			return nil, err
		}
		return to - from, ctx.Isolate(from, errors.New("bad row"))
	})
	got := workertest.Run(t, rows, workertest.Step{Batch: &workertest.Batch{Start: 5, End: 10, FailureStrategy: workflow.IsolateFailed}})
	require.Equal(t, "5", got.String())
	require.Len(t, got.Isolated, 1)
	require.JSONEq(t, "5", string(got.Isolated[0].Item))
	require.Equal(t, "bad row", got.Isolated[0].Failure.Message)
	unread := workertest.Run(t, worker.HandlerFunc(fails(nil)), workertest.Step{Batch: &workertest.Batch{Items: []any{1}}})
	require.Equal(t, "ItemsNotRead", unread.Failure.Type)
}

func TestEventsAndTheNextTask(t *testing.T) {
	t.Parallel()
	h := worker.HandlerFunc(func(*worker.StepContext) (any, error) {
		return worker.Continue("done", worker.NextTask{StartIn: time.Hour})
	})
	got := workertest.Run(t, h, workertest.Step{TaskName: "dunning", Input: amount{3}, Publishes: []workflow.EventPublication{
		{Name: "dunning.sent"}, {Name: "dunning.failed", Condition: "failure"}, {Name: "dunning.shaped", Publisher: "shaper"}}},
		func(w *worker.Worker) error {
			return w.RegisterPublisher(worker.Publisher{Name: "shaper", Payload: func(context.Context, *worker.StepEvent) (any, error) { return "shaped", nil }})
		})
	require.Equal(t, `"done"`, got.String())
	require.Len(t, got.Events, 2)
	require.Equal(t, "dunning.sent", got.Events[0].Name)
	require.Equal(t, `"done"`, string(got.Events[0].Payload))
	require.Equal(t, `"shaped"`, string(got.Events[1].Payload))
	require.Equal(t, []any{"tests", "dunning", "1.0.0", time.Hour, `{"cents":3}`},
		[]any{got.Next.Namespace, got.Next.Name, got.Next.Version, got.Next.StartIn, string(got.Next.Context)})
}

func TestWhatNeedsADatabaseFailsTheTest(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]worker.HandlerFunc{
		"InTx": worker.InTx(func(*worker.StepContext, worker.Tx) (any, error) { return nil, nil }),
		"a swallowed error": func(ctx *worker.StepContext) (any, error) {
			_, _ = ctx.CreateTask(nil, worker.TaskRequest{Name: "x"})
			return nil, nil
		},
	} {
		var f failing
		workertest.Run(&f, h, workertest.Step{})
		require.Contains(t, f.message, "runs it without PostgreSQL", name)
	}
	for want, s := range map[string]workertest.Step{
		"want at least 1":        {Attempt: -1},
		"want whole seconds":     {Timeout: time.Millisecond},
		"the engine runs it":     {Kind: workflow.KindSleep},
		"want Batch":             {Kind: workflow.KindBatchWorker},
		"encode Input":           {Input: func() {}},
		"declared twice":         {Name: "a", Results: map[string]any{"a": 1}},
		`the result of step "b"`: {Results: map[string]any{"b": json.RawMessage("{")}},
	} {
		var f failing
		workertest.Run(&f, worker.HandlerFunc(fails(nil)), s)
		require.Contains(t, f.message, want)
	}
}

// TestEventsOfAHandlersOwn beside the declared ones, and what is refused: then the step fails
// for good, whether its handler heeds the error or not.
func TestEventsOfAHandlersOwn(t *testing.T) {
	t.Parallel()
	declared := []workflow.EventPublication{{Name: "dunning.sent"}}
	got := workertest.Run(t, worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
		return 1, errors.Join(ctx.Publish("letter.printed", map[string]int{"pages": 2}), ctx.Publish("letter.printed", nil))
	}), workertest.Step{Publishes: declared})
	require.Nil(t, got.Failure)
	require.Len(t, got.Events, 3)
	require.Equal(t, []string{"dunning.sent 1", `letter.printed {"pages":2}`, "letter.printed null"},
		[]string{got.Events[0].Name + " " + string(got.Events[0].Payload), got.Events[1].Name + " " + string(got.Events[1].Payload), got.Events[2].Name + " " + string(got.Events[2].Payload)})
	require.Equal(t, "workertest.handler", got.Events[1].Metadata.FiredBy)

	for name, publish := range map[string]func(ctx *worker.StepContext) (any, error){
		"its name is not valid":              func(ctx *worker.StepContext) (any, error) { return nil, ctx.Publish("a\nb", 1) },
		"its name is not valid: it is empty": func(ctx *worker.StepContext) (any, error) { _ = ctx.Publish("", 1); return nil, nil },
		"the template declares it":           func(ctx *worker.StepContext) (any, error) { return nil, ctx.Publish("dunning.sent", 1) },
		"its payload cannot be stored":       func(ctx *worker.StepContext) (any, error) { _ = ctx.Publish("a.b", "\x00"); return 1, nil },
		"with it the payloads have 262161 bytes": func(ctx *worker.StepContext) (any, error) {
			return nil, errors.Join(ctx.Publish("a.b", "0123456789abc"), ctx.Publish("a.b", strings.Repeat("x", 262_144)))
		},
		"there are 100 already": func(ctx *worker.StepContext) (any, error) {
			for range 101 {
				_ = ctx.Publish("a.b", 1)
			}
			return nil, nil
		},
		"cannot yield": func(ctx *worker.StepContext) (any, error) {
			return nil, errors.Join(ctx.Publish("a.b", 1), worker.Yield(1, 1, nil))
		},
	} {
		got := workertest.Run(t, worker.HandlerFunc(publish), workertest.Step{Publishes: declared})
		require.NotNil(t, got.Failure, name)
		require.Contains(t, got.Failure.Message, name)
		require.Equal(t, "EventNotPublished", got.Failure.Type, name)
		require.False(t, got.Failure.Retryable, name)
		require.Empty(t, got.Events, name)
	}
}

// TestAHandlerHandsItsStepBack: that is no failure, as nothing has begun.
func TestAHandlerHandsItsStepBack(t *testing.T) {
	t.Parallel()
	busy := errors.New("the printer is busy")
	r := workertest.Run(t, worker.HandlerFunc(func(*worker.StepContext) (any, error) { return nil, worker.HandBack(busy) }), workertest.Step{})
	require.ErrorIs(t, r.Err, busy)
	require.Nil(t, r.Failure)
	require.False(t, r.Yielded)
}
