package remote_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/remote"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker/events"
	"github.com/tasker-go/tasker/worker/workertest"
	"github.com/tasker-go/tasker/workflow"
)

func declared(name, condition, publisher string) workflow.EventPublication {
	return workflow.EventPublication{Name: name, Condition: condition, DeliveryMode: "durable", Publisher: publisher}
}

// TestPublishersOfASession make the declared events of its steps; the others have the default payload.
func TestPublishersOfASession(t *testing.T) {
	t.Parallel()
	h := newHub(patience)
	opened, err := h.Open(t.Context(), remote.Open{Protocol: remote.Protocol, Callables: []remote.Callable{{Callable: "charge"}}, Publishers: []string{"receipts"}})
	require.NoError(t, err)
	step := workertest.Step{Publishes: []workflow.EventPublication{declared("made", "success", "receipts"), declared("plain", "success", "receipts"),
		declared("vetoed", "always", "receipts"), declared("broken", "always", "receipts"), declared("unwanted", "failure", "receipts")}}
	ended := start(t, h, step)
	told, _ := next(t, h, opened.SessionID, 0)
	require.Len(t, told.Publishes, 5)
	require.Equal(t, remote.Publishes{Name: "made", Condition: "success", DeliveryMode: "durable", Publisher: "receipts"}, told.Publishes[0])
	report(t, h, opened.SessionID, remote.Report{Fence: told.Fence, Outcome: remote.Success, Result: json.RawMessage(`{"n":1}`), Made: []remote.Made{
		{Name: "made", Payload: json.RawMessage(`{"receipt":7}`), Metadata: json.RawMessage(`{"by":"python"}`)},
		{Name: "vetoed", Skip: "vetoed"}, {Name: "broken", Skip: "publisher_error"}, {Name: "unwanted", Payload: json.RawMessage(`1`)}, {Name: "unknown"}}})
	r := result(t, ended)
	require.Nil(t, r.Failure)
	published := map[string]events.Event{}
	for _, e := range r.Events {
		published[e.Name] = e
	}
	require.Len(t, published, 2)
	require.JSONEq(t, `{"receipt":7}`, string(published["made"].Payload))
	require.JSONEq(t, `{"by":"python"}`, string(published["made"].Metadata.Added))
	require.JSONEq(t, `{"n":1}`, string(published["plain"].Payload), "the default payload is the result")
}

func TestMetadataBesideASuccess(t *testing.T) {
	t.Parallel()
	h := newHub(patience)
	session := open(t, h, 1, remote.Callable{Callable: "charge"})
	ended := start(t, h, workertest.Step{})
	step, _ := next(t, h, session, 0)
	for what, r := range map[string]remote.Report{
		"invalid metadata":        {Outcome: remote.Success, Metadata: json.RawMessage(`[1]`)},
		"that of a success only":  {Outcome: remote.Failure, Metadata: json.RawMessage(`{}`), Error: &remote.Fault{Message: "no"}},
		"invalid made.skip":       {Outcome: remote.Success, Made: []remote.Made{{Name: "e", Skip: "later"}}},
		"invalid made.metadata":   {Outcome: remote.Success, Made: []remote.Made{{Name: "e", Metadata: json.RawMessage(`1`)}}},
		"of a success or a failu": {Outcome: remote.Returned, Made: []remote.Made{{Name: "e"}}},
	} {
		r.Fence = step.Fence
		answer, err := h.Report(t.Context(), session, []remote.Report{r})
		require.NoError(t, err)
		require.Len(t, answer.Rejected, 1, what)
		require.Contains(t, answer.Rejected[0].Error, what)
	}
	report(t, h, session, remote.Report{Fence: step.Fence, Outcome: remote.Success, Metadata: json.RawMessage(`{"ms": 12345678901234567890}`)})
	r := result(t, ended)
	require.Nil(t, r.Failure)
	require.JSONEq(t, `{"ms": 12345678901234567890}`, string(r.Metadata))
}

// TestFastEventsOfSessions go to those that subscribe and are in the namespace, once.
func TestFastEventsOfSessions(t *testing.T) {
	t.Parallel()
	var subscribed []events.Subscriber
	h := remote.New(remote.Config{WorkerID: "w1", MaxSessions: 9, MaxPermits: 2, ReclaimGrace: patience, MaxWait: patience, Offer: func() {}, Metrics: telemetry.Discard(),
		Subscribe: func(s events.Subscriber) error { subscribed = append(subscribed, s); return nil }})
	opened := func(patterns []string, namespaces ...string) remote.Opened {
		o, err := h.Open(t.Context(), remote.Open{Protocol: remote.Protocol, Callables: []remote.Callable{{Callable: "charge"}}, Subscribes: patterns, Namespaces: namespaces})
		require.NoError(t, err)
		return o
	}
	deaf := opened(nil)
	require.Empty(t, subscribed)
	payments, shop, bank := opened([]string{"payment.*"}), opened([]string{"*"}, "shop"), opened([]string{"*"}, "bank")
	require.Len(t, subscribed, 1)
	for _, name := range []string{"payment.charged", "order.placed"} {
		require.NoError(t, subscribed[0].Handle(t.Context(), events.Event{Name: name, Metadata: events.Metadata{Namespace: "shop"}}))
	}
	names := func(s uuid.UUID) (list []string) {
		p, err := h.Poll(t.Context(), s, 0, time.Millisecond, false)
		require.NoError(t, err)
		for _, e := range p.Events {
			list = append(list, e.Name)
		}
		return list
	}
	require.Empty(t, names(deaf.SessionID))
	require.Equal(t, []string{"payment.charged"}, names(payments.SessionID))
	require.Equal(t, []string{"payment.charged", "order.placed"}, names(shop.SessionID))
	require.Empty(t, names(shop.SessionID), "they are told once")
	require.Empty(t, names(bank.SessionID))
	for range 1001 { // the oldest goes
		require.NoError(t, subscribed[0].Handle(t.Context(), events.Event{Name: "more", Metadata: events.Metadata{Namespace: "bank"}}))
	}
	require.Len(t, names(bank.SessionID), 1000)
}

// TestUnnamedCallables are those that no template in the namespaces of the session names.
func TestUnnamedCallables(t *testing.T) {
	t.Parallel()
	known := map[string][]workflow.HandlerReference{"shop": {{Callable: "charge"}, {Callable: "Orders::ShipHandler"}}, "bank": {{Callable: "transfer"}}}
	h := remote.New(remote.Config{WorkerID: "w1", MaxSessions: 9, MaxPermits: 2, ReclaimGrace: patience, MaxWait: patience, Offer: func() {}, Metrics: telemetry.Discard(),
		Known: func(context.Context) (map[string][]workflow.HandlerReference, error) { return known, nil }})
	o, err := h.Open(t.Context(), remote.Open{Protocol: remote.Protocol, Namespaces: []string{"shop"},
		Callables: []remote.Callable{{Callable: "charge"}, {Callable: "orders.ship"}, {Callable: "transfer"}, {Callable: "chagre"}, {Callable: "x:*", Resolver: "x"}}})
	require.NoError(t, err)
	require.Equal(t, []string{"transfer", "chagre"}, o.Unnamed)
}

// TestPresenceKeepsASession whose process does not poll, and ends with it.
func TestPresenceKeepsASession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const grace = 3 * time.Second
		h := newHub(grace)
		session := open(t, h, 1, remote.Callable{Callable: "charge"})
		ended := start(t, h, workertest.Step{})
		step, _ := next(t, h, session, 0)
		for range 8 { // a handler that computes for 24 s
			require.NoError(t, h.Present(t.Context(), session, grace))
		}
		report(t, h, session, remote.Report{Fence: step.Fence, Outcome: remote.Success})
		require.Nil(t, result(t, ended).Failure)

		away := make(chan error, 1)
		go func() { away <- h.Present(t.Context(), session, patience) }()
		synctest.Wait()
		require.NoError(t, h.Close(session))
		require.ErrorIs(t, <-away, remote.ErrNoSession)
		require.ErrorIs(t, h.Present(t.Context(), session, grace), remote.ErrNoSession)

		other := open(t, h, 1, remote.Callable{Callable: "charge"})
		go func() { away <- h.Present(t.Context(), other, patience) }()
		synctest.Wait()
		h.Drain()
		require.NoError(t, <-away)
	})
}
