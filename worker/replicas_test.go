package worker

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker/events"
	"github.com/tasker-go/tasker/worker/internal/bus"
)

const elsewhere = "0197f5a0-0000-7000-8000-0000000000ff"

// fromElsewhere is the signal of another worker's event.
func fromElsewhere(t *testing.T, change func(*fastSignal)) signal.Signal {
	t.Helper()
	in := fastSignal{Origin: elsewhere, Event: events.Event{ID: uuid.NewString(), Name: "far.done", Version: "1.0", Payload: json.RawMessage(`{"n":2}`),
		Metadata: events.Metadata{Namespace: "tests", FiredAt: time.Date(2026, 11, 21, 10, 0, 0, 5000, time.UTC)}}}
	if change != nil {
		change(&in)
	}
	doc, err := json.Marshal(in)
	require.NoError(t, err)
	return signal.Signal{Topic: signal.FastTopic("tests"), Payload: string(doc)}
}

func received(m *telemetry.Metrics, outcome string) float64 {
	return testutil.ToFloat64(m.DomainEventsReceived.WithLabelValues(outcome))
}

func sent(m *telemetry.Metrics, outcome string) float64 {
	return testutil.ToFloat64(m.DomainEventsSent.WithLabelValues(outcome))
}

// fastSignals counts the sent signals with fast events.
func (r *rig) fastSignals() int {
	n := 0
	for _, topic := range r.sent.topics() {
		if topic == signal.FastTopic("tests") {
			n++
		}
	}
	return n
}

// TestOnesOwnEventsAreHeardOnce: they come back as signals.
func TestOnesOwnEventsAreHeardOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := publishingRig(t, Config{}, countsOne, shaper())
		r.start(t) // so that it listens when it publishes
		r.offer(1, 0)
		synctest.Wait()
		require.NoError(t, r.Stop(t.Context()))
		require.Equal(t, []string{`local.done {"n":1}`, `both.done {"ok":true,"shaped":1}`}, h.received())
		require.Equal(t, 2, r.fastSignals())
		require.InEpsilon(t, 2, sent(r.cfg.Metrics, fastSent), 0)
		for _, outcome := range []string{fastDelivered, fastDuplicate, fastMalformed, fastLost} {
			require.Zero(t, received(r.cfg.Metrics, outcome), outcome)
		}
	})
}

// TestWithoutAListenerEventsStayLocal: no signal is sent.
func TestWithoutAListenerEventsStayLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := publishingRig(t, Config{Mode: deploymode.PollingOnly}, countsOne, shaper())
		r.runOne(t)
		require.Len(t, h.received(), 2)
		require.Zero(t, r.fastSignals())
		require.Zero(t, sent(r.cfg.Metrics, fastSent))
	})
}

// TestLargeEventsStayLocal: events that exceed a signal by one byte.
func TestLargeEventsStayLocal(t *testing.T) {
	var handed published
	m := telemetry.Discard()
	bus, err := bus.New(bus.Config{Buffer: 1, Timeout: time.Second})
	require.NoError(t, err)
	w, err := New(Config{DatabaseURL: "postgres://unused", Metrics: m})
	require.NoError(t, err)
	w.bus = bus
	r := newReplicas(w, &handed)
	r.listens = func() bool { return true }
	e := events.Event{ID: elsewhere, Payload: json.RawMessage(`""`), Metadata: events.Metadata{Namespace: "tests"}}
	doc, err := json.Marshal(fastSignal{Origin: r.origin, Event: e})
	require.NoError(t, err)
	filled := func(n int) events.Event {
		e.Payload = json.RawMessage(`"` + strings.Repeat("x", n) + `"`)
		return e
	}
	room := signal.MaxPayloadBytes - len(doc)
	r.send(filled(room))
	require.Len(t, handed.topics(), 1)
	r.send(filled(room + 1))
	r.send(filled(signal.MaxPayloadBytes))
	require.Len(t, handed.topics(), 1)
	require.InEpsilon(t, 1, sent(m, fastSent), 0)
	require.InEpsilon(t, 2, sent(m, fastTooLarge), 0)
	e.Metadata.Namespace = strings.Repeat("n", signal.MaxTopicBytes)
	r.send(filled(1))
	require.InEpsilon(t, 1, sent(m, fastNotSendable), 0)
	require.Len(t, handed.topics(), 1)
}

// TestEventsOfOtherWorkers: they are delivered unchanged, once, and wake no look.
func TestEventsOfOtherWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := publishingRig(t, Config{}, countsOne)
		r.start(t)
		looks := r.Health().Events.Looks
		s := fromElsewhere(t, nil)
		r.bus.Publish(s)
		synctest.Wait()
		r.bus.Publish(s)
		synctest.Wait()
		require.Equal(t, looks, r.Health().Events.Looks)
		require.NoError(t, r.Stop(t.Context()))
		var want fastSignal
		require.NoError(t, json.Unmarshal([]byte(s.Payload), &want))
		require.Equal(t, []events.Event{want.Event}, h.list)
		require.InEpsilon(t, 1, received(r.cfg.Metrics, fastDelivered), 0)
		require.InEpsilon(t, 1, received(r.cfg.Metrics, fastDuplicate), 0)
		require.Zero(t, r.fastSignals(), "received events are not sent again")
		require.Zero(t, r.Host().EventStats().Fast, "not an event of this worker's steps")
	})
}

// TestSignalsThatHoldNoEvent: any client of the database can send some.
func TestSignalsThatHoldNoEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		r, h := publishingRig(t, Config{Logger: zap.New(core)}, countsOne)
		r.start(t)
		whole := fromElsewhere(t, nil)
		bad := []signal.Signal{
			{Topic: whole.Topic, Payload: "hello"}, {Topic: whole.Topic, Payload: "{}"}, {Topic: whole.Topic, Payload: "null"}, {Topic: whole.Topic, Payload: "[]"},
			{Topic: whole.Topic, Payload: whole.Payload[:len(whole.Payload)-1]}, {Topic: whole.Topic, Payload: whole.Payload + "}"},
			{Topic: whole.Topic, Payload: strings.Replace(whole.Payload, `"payload"`, `"other"`, 1)},
			fromElsewhere(t, func(s *fastSignal) { s.Origin = "" }),
			fromElsewhere(t, func(s *fastSignal) { s.Event.ID = "1" }),
			fromElsewhere(t, func(s *fastSignal) { s.Event.Name = "" }),
			fromElsewhere(t, func(s *fastSignal) { s.Event.Metadata.Namespace = "others" }),
		}
		r.bus.Publish(bad...)
		r.bus.Publish(signal.Signal{Topic: whole.Topic}, whole)
		synctest.Wait()
		require.NoError(t, r.Stop(t.Context()))
		require.Equal(t, []string{`far.done {"n":2}`}, h.received())
		require.InEpsilon(t, len(bad), received(r.cfg.Metrics, fastMalformed), 0)
		require.InEpsilon(t, 1, received(r.cfg.Metrics, fastLost), 0)
		require.Equal(t, 1, logs.FilterMessageSnippet("holds no fast domain event").Len())
	})
}

// TestListeningFollowsTheFirstSubscriber: a worker without subscribers receives nothing.
func TestListeningFollowsTheFirstSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := telemetry.Discard()
		r := newRig(t, Config{Metrics: m}, countsOne)
		r.start(t)
		r.bus.Publish(fromElsewhere(t, nil))
		synctest.Wait()
		require.Zero(t, received(m, fastDelivered))
		var h eventLog
		require.NoError(t, r.Subscribe(h.subscriber("far.*")))
		synctest.Wait()
		r.bus.Publish(fromElsewhere(t, nil))
		synctest.Wait()
		require.NoError(t, r.Stop(t.Context()))
		require.Len(t, h.received(), 1)
		require.InEpsilon(t, 1, received(m, fastDelivered), 0)
	})
}
