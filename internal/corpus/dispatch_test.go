package corpus_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

const fee = 10 // of a hundred, for processing

// multiMethod is one handler with four methods. Each returns its name.
func multiMethod() methods {
	type data struct {
		Data struct {
			Amount *float64 `json:"amount"`
			Reason string   `json:"reason"`
		} `json:"data"`
	}
	named := func(name string, do func(ctx *worker.StepContext, amount float64, more map[string]any) error) worker.HandlerFunc {
		return worker.Typed(func(ctx *worker.StepContext, in data) (map[string]any, error) {
			if in.Data.Amount == nil {
				return nil, invalid("the amount is missing")
			}
			more := map[string]any{"invoked_method": name}
			return more, do(ctx, *in.Data.Amount, more)
		})
	}
	nothing := func(*worker.StepContext, float64, map[string]any) error { return nil }
	return methods{
		"validate": named("validate", nothing),
		"process": named("process", func(_ *worker.StepContext, amount float64, more map[string]any) error {
			more["processed_amount"], more["processing_fee"] = amount*(100+fee)/100, amount*fee/100
			return nil
		}),
		"refund": named("refund", nothing),
		"call":   named("call", nothing),
	}
}

// Rows 69, 70 and 72: one handler, with a method for each step.
func TestMethodDispatch(t *testing.T) {
	t.Parallel()
	template := load(t, "method_dispatch_rust.yaml")
	e := engine(t, func(w *worker.Worker) error { return w.RegisterMethods("resolver_tests_multi_method", multiMethod()) }, template)
	task := run(e, template, `{"data":{"amount":100,"reason":"broken"}}`)
	requireComplete(t, task)
	require.Len(t, task.Steps, 4)
	for name, method := range map[string]string{"validate_step_rust": "validate", "process_step_rust": "process", "refund_step_rust": "refund", "default_call_step_rust": "call"} {
		require.Equal(t, method, decode[map[string]any](t, step(t, task, name).Result)["invoked_method"])
	}
	require.JSONEq(t, `{"invoked_method":"process","processed_amount":110,"processing_fee":10}`, string(step(t, task, "process_step_rust").Result))

	without := run(e, template, `{"data":{"reason":"broken"}}`)
	require.Equal(t, workflow.TaskError, without.State)
	validate := step(t, without, "validate_step_rust")
	require.Equal(t, 1, validate.Attempts)
	require.Equal(t, "VALIDATION_ERROR", decode[failure](t, validate.Error).Code)
	require.False(t, decode[failure](t, validate.Error).Retry)
}

// A missing method is a permanent error, and no other method is called instead: a typing
// error in "refund" must not charge a customer.
func TestMethodThatIsNotThere(t *testing.T) {
	t.Parallel()
	called := make(chan string, 10)
	template := load(t, "method_dispatch_rust.yaml")
	template.Steps[2].Handler.Method = "refnd"
	entries := multiMethod()
	for name, fn := range entries {
		entries[name] = func(ctx *worker.StepContext) (any, error) { called <- ctx.StepName(); return fn(ctx) }
	}
	e := engine(t, func(w *worker.Worker) error { return w.RegisterMethods("resolver_tests_multi_method", entries) }, template)
	awaitUnserved(t, e, e.SubmitVersion(template.Namespace, template.Name, template.Version, `{"data":{"amount":100}}`), "refund_step_rust")
	require.Len(t, called, 2, "validate and process")
}

// awaitUnserved waits until only a step is left that no worker can run; it uses no
// attempt.
func awaitUnserved(t *testing.T, e *enginetest.Engine, id uuid.UUID, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		task := e.Read(id)
		counts := task.Counts()
		s := step(t, task, name)
		return s.Ready && s.Attempts == 0 && counts.Ready == 1 && counts.InProgress == 0
	}, time.Minute, 10*time.Millisecond)
}

// methods are the ways into a handler.
type methods map[string]worker.HandlerFunc

func (m methods) Call(ctx *worker.StepContext) (any, error) { return m["call"](ctx) }

func (m methods) Method(name string) (worker.HandlerFunc, bool) {
	fn, ok := m[name]
	return fn, ok
}

// oneOf resolves names that begin with its own.
type oneOf struct {
	name string
	methods
}

func (r oneOf) Name() string { return r.name }
func (oneOf) Priority() int  { return 50 }
func (r oneOf) CanResolve(def workflow.HandlerReference) bool {
	return strings.HasPrefix(def.Callable, r.name)
}
func (r oneOf) Resolve(workflow.HandlerReference) (worker.Handler, error) {
	return r.methods, nil
}

// Row 71, whose template the corpus lacks: a named resolver, a named one with a method,
// and the chain. With a missing resolver the step fails, and the chain is not used.
func TestResolverHints(t *testing.T) {
	t.Parallel()
	template := own(t, "resolvers.yaml")
	says := func(text string) worker.HandlerFunc {
		return func(*worker.StepContext) (any, error) { return text, nil }
	}
	register := func(w *worker.Worker) error {
		if err := w.AddResolver(oneOf{"actions", methods{"call": says("called"), "execute_action": says("executed")}}); err != nil {
			return err
		}
		return w.Register("hints.plain", says("from the chain"))
	}
	e := engine(t, register, template)
	task := run(e, template, `{"run":1}`)
	requireComplete(t, task)
	require.JSONEq(t, `"called"`, string(step(t, task, "hinted").Result))
	require.JSONEq(t, `"executed"`, string(step(t, task, "hinted_with_method").Result))
	require.JSONEq(t, `"from the chain"`, string(step(t, task, "by_the_chain").Result))

	template = own(t, "resolvers.yaml")
	template.Steps[2].Handler.Resolver = "missing"
	e = engine(t, register, template)
	awaitUnserved(t, e, e.SubmitVersion(template.Namespace, template.Name, template.Version, `{"run":1}`), "by_the_chain")
}
