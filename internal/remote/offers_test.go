package remote_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/remote"
	"github.com/tasker-go/tasker/worker/workertest"
	"github.com/tasker-go/tasker/workflow"
)

// TestWhatAnOfferMeans to the templates of all engines: exact names, other spellings, and the resolvers of the process.
func TestWhatAnOfferMeans(t *testing.T) {
	t.Parallel()
	charge := remote.Callable{Callable: "payments.charge_card", Methods: []string{"refund"}}
	stripe := remote.Callable{Callable: "stripe:*", Methods: []string{"*"}, Resolver: "stripe"}
	for _, c := range []struct {
		name    string
		offered remote.Callable
		def     workflow.HandlerReference
		want    string // the offered name, as the session is told where it differs; "" without a session
	}{
		{"its name", charge, workflow.HandlerReference{Callable: "payments.charge_card"}, "payments.charge_card"},
		{"a method", charge, workflow.HandlerReference{Callable: "payments.charge_card", Method: "refund"}, "payments.charge_card"},
		{"another method", charge, workflow.HandlerReference{Callable: "payments.charge_card", Method: "void"}, ""},
		{"by name", charge, workflow.HandlerReference{Callable: "payments.charge_card", Resolver: "explicit_mapping"}, "payments.charge_card"},
		{"by name, as a class", charge, workflow.HandlerReference{Callable: "payments.charge_card", Resolver: "ExplicitMappingResolver"}, "payments.charge_card"},
		{"another spelling", charge, workflow.HandlerReference{Callable: "Payments::ChargeCardHandler"}, "payments.charge_card"},
		{"its method", charge, workflow.HandlerReference{Callable: "Payments::ChargeCardHandler", Method: "refund"}, "payments.charge_card"},
		{"another spelling by name", charge, workflow.HandlerReference{Callable: "Payments::ChargeCardHandler", Resolver: "explicit_mapping"}, ""},
		{"by spelling", charge, workflow.HandlerReference{Callable: "Payments::ChargeCard", Resolver: "class_constant"}, "payments.charge_card"},
		{"by spelling, as a class", charge, workflow.HandlerReference{Callable: "payments.charge_card", Resolver: "ClassLookupResolver"}, "payments.charge_card"},
		{"sessions alone", charge, workflow.HandlerReference{Callable: "payments.charge_card", Resolver: "session"}, "payments.charge_card"},
		{"a resolver that it has not", charge, workflow.HandlerReference{Callable: "payments.charge_card", Resolver: "stripe"}, ""},
		{"its resolver", stripe, workflow.HandlerReference{Callable: "stripe:charge", Resolver: "stripe"}, "stripe:charge"},
		{"its resolver, any method", stripe, workflow.HandlerReference{Callable: "stripe:charge", Method: "void", Resolver: "stripe"}, "stripe:charge"},
		{"no resolver", stripe, workflow.HandlerReference{Callable: "stripe:charge"}, "stripe:charge"},
		{"another prefix", stripe, workflow.HandlerReference{Callable: "adyen:charge", Resolver: "stripe"}, ""},
		{"another resolver", stripe, workflow.HandlerReference{Callable: "stripe:charge", Resolver: "explicit_mapping"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHub(patience)
			session := open(t, h, 1, c.offered)
			require.Equal(t, c.want != "", h.CanResolve(c.def))
			require.Equal(t, c.want != "", h.CanResolveIn("shop", c.def))
			if c.want == "" {
				return
			}
			handler, err := h.Resolve(c.def)
			require.NoError(t, err)
			ended := make(chan workertest.Result, 1)
			go func() { ended <- workertest.Run(t, handler, workertest.Step{Method: c.def.Method}) }()
			step, _ := next(t, h, session, 0)
			require.Equal(t, c.def.Callable, step.Callable)
			require.Equal(t, c.def.Resolver, step.Resolver)
			if c.want == c.def.Callable {
				require.Empty(t, step.Offered)
			} else {
				require.Equal(t, c.want, step.Offered)
			}
			report(t, h, session, remote.Report{Fence: step.Fence, Outcome: remote.Success})
			require.Nil(t, result(t, ended).Failure)
			require.NoError(t, h.Close(session))
			require.False(t, h.CanResolve(c.def), "the offer has ended with its session")
		})
	}
}

// TestASpellingOfSeveralCallables means none of them, and an exact name still means one.
func TestASpellingOfSeveralCallables(t *testing.T) {
	t.Parallel()
	h := newHub(patience)
	_, err := h.Open(t.Context(), remote.Open{Protocol: remote.Protocol, Callables: []remote.Callable{{Callable: "charge"}, {Callable: "charge_handler"}}})
	require.NoError(t, err)
	require.True(t, h.CanResolve(workflow.HandlerReference{Callable: "charge"}))
	require.False(t, h.CanResolve(workflow.HandlerReference{Callable: "ChargeHandler"}))
}

func TestRefusedOffers(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]remote.Open{
		"want a resolver where":       {Callables: []remote.Callable{{Callable: "pay.*"}}},
		"want another name than":      {Callables: []remote.Callable{{Callable: "pay", Resolver: "ClassConstantResolver"}}},
		"want a resolver where it or": {Callables: []remote.Callable{{Callable: "pay", Methods: []string{"*"}}}},
		"invalid publisher":           {Callables: []remote.Callable{{Callable: "pay"}}, Publishers: []string{""}},
		"invalid subscribes":          {Callables: []remote.Callable{{Callable: "pay"}}, Subscribes: []string{"a b"}},
	} {
		o.Protocol = remote.Protocol
		_, err := newHub(patience).Open(t.Context(), o)
		var invalid *remote.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.ErrorContains(t, err, want)
	}
}
