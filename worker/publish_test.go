package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker/events"
	"github.com/tasker-go/tasker/worker/internal/bus"
)

const publishingYAML = `
name: one
namespace_name: tests
version: 1.0.0
steps:
  - name: only
    handler: {callable: do}
    timeout_seconds: 5
    retry: {retryable: true, max_attempts: 3}
    publishes_events:
      - {name: plain.done, condition: success, schema: {type: object, required: [n]}}
      - {name: shaped.done, condition: always, publisher: shaper, schema: {type: object, required: [shaped]}}
      - {name: local.done, condition: always, delivery_mode: fast, schema: {}}
      - {name: both.done, condition: success, delivery_mode: broadcast, publisher: shaper, schema: {}}
      - {name: local.over, condition: permanent_failure, delivery_mode: fast, schema: {}}
`

// eventLog records the fast events that a subscriber receives.
type eventLog struct {
	mu   sync.Mutex
	list []events.Event
}

func (h *eventLog) subscriber(patterns ...string) events.Subscriber {
	return events.Subscriber{Name: "eventLog", Patterns: patterns, Handle: func(_ context.Context, e events.Event) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.list = append(h.list, e)
		return nil
	}}
}

func (h *eventLog) received() (list []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.list {
		list = append(list, e.Name+" "+string(e.Payload))
	}
	return list
}

func shaper() Publisher {
	return Publisher{Name: "shaper", Payload: func(_ context.Context, e *StepEvent) (any, error) {
		return map[string]any{"shaped": e.Attempt, "ok": e.Success()}, nil
	}}
}

// publishingRig is a rig whose only step publishes.
func publishingRig(t *testing.T, cfg Config, do HandlerFunc, p ...Publisher) (*rig, *eventLog) {
	t.Helper()
	cfg.Metrics = telemetry.Discard()
	r, h := newRig(t, cfg, do), &eventLog{}
	r.board.plan = compiled(t, publishingYAML)
	for i := range p {
		require.NoError(t, r.RegisterPublisher(p[i]))
	}
	require.NoError(t, r.Subscribe(h.subscriber("*")))
	return r, h
}

func (r *rig) runOne(t *testing.T) string {
	t.Helper()
	r.board.put(1, 0)
	r.start(t)
	time.Sleep(20 * time.Second)
	synctest.Wait()
	reports := r.board.reported()
	require.Len(t, reports, 1)
	require.NoError(t, r.Stop(t.Context()))
	return string(reports[0].Events)
}

func countsOne(*StepContext) (any, error) { return map[string]int{"n": 1}, nil }

func TestWhatPublishersMakeTravelsWithTheReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := shaper()
		p.Metadata = func(_ context.Context, e *StepEvent) (map[string]any, error) {
			return map[string]any{"of": e.StepName}, nil
		}
		var after []string
		p.After = func(_ context.Context, e *StepEvent) { after = append(after, e.Name) }
		r, h := publishingRig(t, Config{}, countsOne, p)
		made := r.runOne(t)
		require.JSONEq(t, `{"1": {"payload": {"ok": true, "shaped": 1}, "metadata": {"of": "only"}},
			"3": {"payload": {"ok": true, "shaped": 1}, "metadata": {"of": "only"}}}`, made, "a plain payload is in the result already")
		require.Equal(t, []string{`local.done {"n":1}`, `both.done {"ok":true,"shaped":1}`}, h.received())
		require.Equal(t, []string{"shaped.done", "both.done"}, after)
		s := r.Host().EventStats()
		require.Equal(t, [5]uint64{2, 1, 1, 0, 0}, [5]uint64{s.Durable, s.Fast, s.Broadcast, s.FastFailed, s.DurableFailed})
		require.Equal(t, bus.Stats{Dispatched: 2, Delivered: 2, Subscribers: 1, Patterns: 1}, s.Bus)
		require.InEpsilon(t, 1, testutil.ToFloat64(r.cfg.Metrics.DomainEventsPublished.WithLabelValues("local.done", "tests")), 0)
		m := h.list[1].Metadata
		require.Equal(t, "shaper only tests true 1", fmt.Sprint(m.FiredBy, " ", m.StepName, " ", m.Namespace, " ", m.Success, " ", m.Attempt))
	})
}

func TestEventsOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := publishingRig(t, Config{}, func(*StepContext) (any, error) { return nil, Permanent(WithCode(errors.New("no"), "C")) }, shaper())
		require.JSONEq(t, `{"1": {"payload": {"ok": false, "shaped": 1}}}`, r.runOne(t))
		const failure = `{"error":{"message":"no","error_type":"PermanentError","error_code":"C","retryable":false},"error_code":"C","error_message":"no"}`
		require.Equal(t, []string{"local.done " + failure, "local.over " + failure}, h.received())
	})
}

// TestPublishersThatFail: the outcome of the step does not change.
func TestPublishersThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *Publisher)
		reason string
	}{
		"error": {func(p *Publisher) {
			p.Payload = func(context.Context, *StepEvent) (any, error) { return nil, errors.New("no") }
		}, eventPublisherError},
		"before": {func(p *Publisher) { p.Before = func(context.Context, *StepEvent) error { return errors.New("no") } }, eventPublisherError},
		"panic":  {func(p *Publisher) { p.Payload = func(context.Context, *StepEvent) (any, error) { panic("no") } }, eventPublisherPanic},
		"deaf":   {func(p *Publisher) { p.Payload = func(context.Context, *StepEvent) (any, error) { return nil, nil } }, eventPublisherTimeout},
		"no JSON": {func(p *Publisher) {
			p.Payload = func(context.Context, *StepEvent) (any, error) { return func() {}, nil }
		}, eventNotStorable},
		"NUL": {func(p *Publisher) { p.Payload = func(context.Context, *StepEvent) (any, error) { return "\x00", nil } }, eventNotStorable},
		"misshapen": {func(p *Publisher) {
			p.Payload = func(context.Context, *StepEvent) (any, error) { return map[string]int{}, nil }
		}, eventSchema},
		"large": {func(p *Publisher) {
			p.Payload = func(context.Context, *StepEvent) (any, error) { return strings.Repeat("x", 2000), nil }
		}, eventTooLarge},
		"metadata": {func(p *Publisher) {
			p.Metadata = func(context.Context, *StepEvent) (map[string]any, error) { return nil, errors.New("no") }
		}, eventPublisherError},
		"vetoes": {func(p *Publisher) {
			p.ShouldPublish = func(context.Context, *StepEvent) (bool, error) { return false, nil }
		}, eventVetoed},
		"other name": {func(p *Publisher) { p.Name = "missing" }, eventUnknownPublisher},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := shaper()
				hooked := make(chan error, 10)
				p.Failed = func(_ context.Context, _ *StepEvent, err error) { hooked <- err }
				c.change(&p)
				released := make(chan struct{})
				if name == "deaf" { // until the end of the bubble
					p.Payload = func(context.Context, *StepEvent) (any, error) { <-released; return nil, nil }
				}
				r, _ := publishingRig(t, Config{DomainEvents: DomainEventConfig{MaxPayloadBytes: 1000, UnknownPublisher: publishNothing}}, countsOne, p)
				r.board.put(1, 0)
				r.start(t)
				time.Sleep(20 * time.Second)
				synctest.Wait()
				reports := r.board.reported()
				require.Len(t, reports, 1)
				require.True(t, reports[0].Success)
				close(released)
				require.NoError(t, r.Stop(t.Context()))
				var made map[string]struct {
					Skip string `json:"skip"`
				}
				require.NoError(t, json.Unmarshal(reports[0].Events, &made))
				require.Equal(t, c.reason, made["1"].Skip)
				failed := testutil.ToFloat64(r.cfg.Metrics.DomainEventsFailed.WithLabelValues("shaped.done", "tests", c.reason))
				if c.reason == eventVetoed {
					require.Zero(t, failed)
					require.Zero(t, r.Host().EventStats().DurableFailed)
					return
				}
				require.InEpsilon(t, 1, failed, 0)
				if c.reason != eventUnknownPublisher {
					require.NotEmpty(t, hooked)
				}
			})
		})
	}
}

func TestEventsWithoutTheirPublisher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.WarnLevel)
		shapes := func(*StepContext) (any, error) { return map[string]int{"shaped": 1}, nil }
		r, _ := publishingRig(t, Config{Logger: zap.New(core)}, shapes)
		require.JSONEq(t, `{"shaped":1}`, madePayload(t, r.runOne(t)), "the durable event is published nevertheless")
		logged := lines.FilterField(zap.String("publisher", "shaper"))
		require.Equal(t, 1, logged.Len())
		require.Zero(t, testutil.ToFloat64(r.cfg.Metrics.DomainEventsFailed.WithLabelValues("shaped.done", "tests", eventUnknownPublisher)))
	})
	_, err := New(Config{DatabaseURL: "x", DomainEvents: DomainEventConfig{UnknownPublisher: "perhaps"}})
	require.ErrorContains(t, err, `invalid DomainEvents.UnknownPublisher "perhaps": want default, nothing or error`)
}

func TestAWorkerThatWantsAllItsPublishers(t *testing.T) {
	r, _ := publishingRig(t, Config{DomainEvents: DomainEventConfig{UnknownPublisher: publishError}}, countsOne)
	require.NoError(t, r.RegisterTemplate(r.board.plan.Template))
	require.ErrorContains(t, r.Start(t.Context()), `publishers ["shaper"] are not registered in this worker`)
}

// madePayload is the payload of the event that goes through the publisher.
func madePayload(t *testing.T, document string) string {
	t.Helper()
	var made map[string]struct {
		Payload json.RawMessage `json:"payload"`
	}
	require.NoError(t, json.Unmarshal([]byte(document), &made))
	return string(made["1"].Payload)
}

func TestAResultThatDoesNotFitIsNotPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := publishingRig(t, Config{}, func(*StepContext) (any, error) { return 7, nil }, shaper())
		var made map[string]struct {
			Skip string `json:"skip"`
		}
		require.NoError(t, json.Unmarshal([]byte(r.runOne(t)), &made))
		require.Equal(t, eventSchema, made["0"].Skip)
		require.Equal(t, []string{"local.done 7", `both.done {"ok":true,"shaped":1}`}, h.received())
		require.Equal(t, uint64(1), r.Host().EventStats().DurableFailed)
	})
}

// TestAStaleReportReachesNoSubscriber: fast events are delivered after the report was
// accepted.
func TestAStaleReportReachesNoSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := publishingRig(t, Config{}, func(ctx *StepContext) (any, error) {
			time.Sleep(time.Second)
			return countsOne(ctx)
		}, shaper())
		r.board.put(1, 0)
		r.start(t)
		r.board.set(func(b *fakeBoard) { clear(b.held) })
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.Empty(t, h.received())
		require.NoError(t, r.Stop(t.Context()))
		require.Zero(t, r.Host().EventStats().Fast)
	})
}

// TestATimeLimitIsPublished: the watch over time limits does not wait for a publisher,
// and the still-running handler has no influence.
func TestATimeLimitIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		r, h := publishingRig(t, Config{}, func(*StepContext) (any, error) { <-released; return 1, nil }, shaper())
		r.board.put(1, 0)
		r.start(t)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		reports := r.board.reported()
		require.Len(t, reports, 1)
		require.JSONEq(t, `{"1": {"payload": {"ok": false, "shaped": 1}}}`, string(reports[0].Events))
		require.Len(t, h.received(), 1)
		require.Contains(t, h.received()[0], `"error_type":"Timeout"`)
		close(released)
		require.NoError(t, r.Stop(t.Context()))
		require.Len(t, h.received(), 1)
	})
}

func TestAPublisherHasOneName(t *testing.T) {
	w, err := New(Config{DatabaseURL: "postgres://unused", Namespaces: []string{"n"}})
	require.NoError(t, err)
	require.NoError(t, w.RegisterPublisher(shaper()))
	require.ErrorContains(t, w.RegisterPublisher(shaper()), "already registered")
	require.ErrorContains(t, w.RegisterPublisher(Publisher{}), "want a name")
	require.ErrorContains(t, w.Subscribe(events.Subscriber{Name: "x"}), "no Handle")
	require.ErrorContains(t, w.Start(t.Context()), "already registered")
	require.NoError(t, w.Stop(t.Context()))
}
