package worker

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/worker/internal/engine"
	"github.com/tasker-go/tasker/workflow"
)

type ref = workflow.HandlerReference

// says is a handler that returns a text.
func says(text string) HandlerFunc {
	return func(*StepContext) (any, error) { return text, nil }
}

// fakeResolver resolves callables with a prefix.
type fakeResolver struct {
	name     string
	priority int
	prefix   string
	err      error
	nothing  bool
}

func (r fakeResolver) Name() string            { return r.name }
func (r fakeResolver) Priority() int           { return r.priority }
func (r fakeResolver) CanResolve(def ref) bool { return strings.HasPrefix(def.Callable, r.prefix) }
func (r fakeResolver) Resolve(ref) (Handler, error) {
	if r.err != nil || r.nothing {
		return nil, r.err
	}
	return says(r.name), nil
}

func newTestWorker(t *testing.T) *Worker {
	t.Helper()
	w, err := New(Config{DatabaseURL: "postgres://unused"})
	require.NoError(t, err)
	return w
}

// TestConfinedHandlers: templates of other namespaces do not reach a handler that is registered for some.
func TestConfinedHandlers(t *testing.T) {
	t.Parallel()
	w := newTestWorker(t)
	require.NoError(t, w.Register("payments.charge_card", says("charge")))
	require.NoError(t, w.Register("mail", says("mail")))
	require.NoError(t, w.Confine("payments.charge_card", "shop", "bank"))
	for _, callable := range []string{"payments.charge_card", "Payments::ChargeCardHandler"} {
		for namespace, serves := range map[string]bool{"shop": true, "bank": true, "": true, "alpha": false} {
			_, err := w.chain.resolve(namespace, ref{Callable: callable})
			require.Equal(t, serves, err == nil, "%s in %q: %v", callable, namespace, err)
			require.Equal(t, serves, w.chain.offers(namespace, ref{Callable: callable}))
		}
	}
	require.True(t, w.chain.offers("alpha", ref{Callable: "mail"}))
	require.Error(t, w.Confine("mail"))
	require.Error(t, w.Confine("mail", ""))
}

func TestResolution(t *testing.T) {
	t.Parallel()
	w := newTestWorker(t)
	require.NoError(t, w.Register("payments.charge_card", says("explicit")))
	require.NoError(t, w.Register("payments.refund_handler", says("refund")))
	require.NoError(t, w.Register("shop.pay", says("pay one")))
	require.NoError(t, w.Register("shop.pay_handler", says("pay two")))
	require.NoError(t, w.RegisterMethods("orders", map[string]HandlerFunc{"call": says("called"), "cancel": says("cancelled")}))
	require.NoError(t, w.RegisterMethods("no_call", map[string]HandlerFunc{"other": says("x")}))
	require.NoError(t, w.AddResolver(fakeResolver{name: "service", priority: 50, prefix: "service://"}))
	require.NoError(t, w.AddResolver(fakeResolver{name: "late", priority: 200, prefix: ""}))
	require.NoError(t, w.AddResolver(fakeResolver{name: "broken", priority: 60, prefix: "broken://", err: errors.New("down")}))
	require.NoError(t, w.AddResolver(fakeResolver{name: "empty", priority: 60, prefix: "empty://", nothing: true}))

	cases := map[string]struct {
		def       ref
		want      string // the result, or
		kind      string // the type of the failure
		retryable bool
	}{
		"exact":                       {def: ref{Callable: "payments.charge_card"}, want: "explicit"},
		"class path":                  {def: ref{Callable: "Payments::ChargeCardHandler"}, want: "explicit"},
		"class path with dots":        {def: ref{Callable: "payments.ChargeCard"}, want: "explicit"},
		"registered with suffix":      {def: ref{Callable: "Payments::Refund"}, want: "refund"},
		"two names with one spelling": {def: ref{Callable: "Shop::Pay"}, kind: engine.TypeResolution},
		"exact before spelling":       {def: ref{Callable: "shop.pay"}, want: "pay one"},
		"by priority":                 {def: ref{Callable: "service://x"}, want: "service"},
		"last resort":                 {def: ref{Callable: "whatever"}, want: "late"},
		"hint":                        {def: ref{Callable: "payments.charge_card", Resolver: "late"}, want: "late"},
		"hint by another name":        {def: ref{Callable: "Payments::ChargeCard", Resolver: "ClassConstantResolver"}, want: "explicit"},
		"hint that cannot":            {def: ref{Callable: "payments.nothing", Resolver: "explicit_mapping"}, kind: engine.TypeHandlerNotFound, retryable: true},
		"unknown hint":                {def: ref{Callable: "payments.charge_card", Resolver: "magic"}, kind: engine.TypeHandlerNotFound, retryable: true},
		"resolver fails":              {def: ref{Callable: "broken://x"}, kind: engine.TypeResolution, retryable: true},
		"resolver returns nothing":    {def: ref{Callable: "empty://x"}, kind: engine.TypeResolution, retryable: true},
		"default method":              {def: ref{Callable: "orders"}, want: "called"},
		"method":                      {def: ref{Callable: "orders", Method: "cancel"}, want: "cancelled"},
		"no such method":              {def: ref{Callable: "orders", Method: "ship"}, kind: engine.TypeMethodNotFound},
		"no default method":           {def: ref{Callable: "no_call"}, kind: engine.TypeMethodNotFound},
		"method of a function":        {def: ref{Callable: "payments.charge_card", Method: "refund"}, kind: engine.TypeMethodNotFound},
		"call of a function":          {def: ref{Callable: "payments.charge_card", Method: "call"}, want: "explicit"},
		"method through a resolver":   {def: ref{Callable: "service://x", Method: "ship"}, kind: engine.TypeMethodNotFound},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fn, err := w.chain.resolve("", c.def)
			var got any
			if err == nil {
				got, err = fn(nil)
			}
			if c.kind == "" {
				require.NoError(t, err)
				require.Equal(t, c.want, got)
				return
			}
			require.Error(t, err)
			f := engine.FailureOf(err)
			require.Equal(t, c.kind, f.Type, f.Message)
			require.Equal(t, c.retryable, f.Retryable, f.Message)
			require.Contains(t, f.Message, shortest(c.def.Callable, c.def.Method))
		})
	}
	_, err := w.chain.resolve("", ref{Callable: "orders", Method: "ship"})
	require.ErrorContains(t, err, "MethodNotFound: Handler 'orders' does not respond to 'ship'")
}

func shortest(callable, method string) string {
	if method != "" {
		return "'" + method + "'"
	}
	return callable[:3]
}

func TestCanonicalNames(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		"Payments::ChargeCardHandler":     "payments.charge_card",
		"payments.charge_card":            "payments.charge_card",
		"payments.charge-card":            "payments.charge_card",
		"payments/charge_card_handler":    "payments.charge_card",
		"my_app.handlers.HTTPCallHandler": "my_app.handlers.http_call",
		"Handler":                         "handler",
		"_handler":                        "",
		"":                                "",
		"::":                              "",
	} {
		require.Equal(t, want, workflow.CanonicalCallable(input), input)
	}
}

func TestRegistrationErrorsAreNotOverlooked(t *testing.T) {
	t.Parallel()
	cases := map[string]func(w *Worker) error{
		"no name":        func(w *Worker) error { return w.Register("", says("x")) },
		"nil":            func(w *Worker) error { return w.Register("x", nil) },
		"nil func":       func(w *Worker) error { return w.Register("x", HandlerFunc(nil)) },
		"nil typed":      func(w *Worker) error { return Handle[int, int](w, "x", nil) },
		"too long":       func(w *Worker) error { return w.Register(strings.Repeat("x", 501), says("x")) },
		"twice":          func(w *Worker) error { _ = w.Register("x", says("x")); return w.Register("x", says("y")) },
		"no methods":     func(w *Worker) error { return w.RegisterMethods("x", nil) },
		"nil method":     func(w *Worker) error { return w.RegisterMethods("x", map[string]HandlerFunc{"a": nil}) },
		"no resolver":    func(w *Worker) error { return w.AddResolver(nil) },
		"resolver twice": func(w *Worker) error { return w.AddResolver(fakeResolver{name: byName}) },
		"nil template":   func(w *Worker) error { return w.RegisterTemplate(nil) },
		"no steps":       func(w *Worker) error { return w.RegisterTemplate(&workflow.Template{Name: "x"}) },
		"no file":        func(w *Worker) error { return w.LoadTemplates("testdata/nowhere.yaml") },
	}
	for name, register := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestWorker(t)
			err := register(w)
			require.Error(t, err)
			require.ErrorContains(t, w.Start(t.Context()), err.Error())
		})
	}
}

func TestAMisspeltHandler(t *testing.T) {
	t.Parallel()
	r := newRegistry()
	require.NoError(t, r.add("hello.greet", HandlerFunc(func(*StepContext) (any, error) { return nil, nil })))
	c := newChain(r)
	_, err := c.resolve("", workflow.HandlerReference{Callable: "hello.gret"})
	require.EqualError(t, err, "no handler hello.gret; did you mean hello.greet")
	require.Equal(t, engine.TypeHandlerNotFound, engine.FailureOf(err).Type)
	_, err = c.resolve("", workflow.HandlerReference{Callable: "orders.ship"})
	require.ErrorContains(t, err, "No resolver could resolve callable 'orders.ship'")
}
