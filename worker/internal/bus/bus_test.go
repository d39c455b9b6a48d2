package bus

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/settings"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker/events"
)

func named(name string) events.Event { return events.Event{ID: name, Name: name} }

func newBus(t *testing.T, cfg Config) *Bus {
	t.Helper()
	b, err := New(settings.Or(cfg, Config{Buffer: 100, Timeout: 5 * time.Second}))
	require.NoError(t, err)
	return b
}

func TestNoBoundIsInvented(t *testing.T) {
	for field, c := range map[string]Config{"Buffer": {Timeout: time.Second}, "Timeout": {Buffer: 1}} {
		_, err := New(c)
		require.ErrorContains(t, err, "invalid "+field+" 0")
	}
}

// collect subscribes a recorder of events.
func collect(t *testing.T, b *Bus, name string, patterns ...string) *[]string {
	t.Helper()
	var got []string
	require.NoError(t, b.Subscribe(events.Subscriber{Name: name, Patterns: patterns, Handle: func(_ context.Context, e events.Event) error {
		got = append(got, e.Name)
		return nil
	}}))
	return &got
}

func TestSubscribersHearWhatTheyAskedFor(t *testing.T) {
	b := newBus(t, Config{})
	all, payments, one := collect(t, b, "all", "*"), collect(t, b, "payments", "payment.*", "refund.*"), collect(t, b, "one", "order.created")
	b.Start()
	for _, name := range []string{"payment.done", "order.created", "order.created2", "refund.done"} {
		b.Publish(named(name))
	}
	require.NoError(t, b.Stop(t.Context()))
	require.Equal(t, []string{"payment.done", "order.created", "order.created2", "refund.done"}, *all)
	require.Equal(t, []string{"payment.done", "refund.done"}, *payments)
	require.Equal(t, []string{"order.created"}, *one)
	require.Equal(t, Stats{Dispatched: 4, Delivered: 7, Subscribers: 3, Patterns: 4}, b.Stats())
	b.Publish(named("late"))
	require.Error(t, b.Subscribe(events.Subscriber{Name: "late", Patterns: []string{"*"}, Handle: func(context.Context, events.Event) error { return nil }}))
	require.Len(t, *all, 4)
}

// TestASlowSubscriberLosesItsOldest: and no other subscriber loses any.
func TestASlowSubscriberLosesItsOldest(t *testing.T) {
	m := telemetry.Discard()
	b := newBus(t, Config{Buffer: 3, Metrics: m})
	slow := collect(t, b, "slow", "*")
	for i := range 10 { // it has not begun
		b.Publish(named(fmt.Sprint("a.", i)))
	}
	b.Start()
	quick := collect(t, b, "quick", "b.*")
	require.NoError(t, b.Stop(t.Context()))
	require.Equal(t, []string{"a.7", "a.8", "a.9"}, *slow)
	require.Empty(t, *quick)
	require.Equal(t, uint64(7), b.Stats().Dropped)
	require.InEpsilon(t, 7, testutil.ToFloat64(m.DomainEventsDropped.WithLabelValues("slow")), 0)
}

func TestSubscribersThatFailAreAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, Config{Timeout: time.Second})
		good := collect(t, b, "good", "*")
		var order []string
		note := func(what string) { order = append(order, what) }
		hooked := events.Subscriber{Name: "hooked", Patterns: []string{"*"},
			Before: func(_ context.Context, e events.Event) error {
				note("before " + e.Name)
				if e.Name == "refused.early" {
					return errors.New("no")
				}
				return nil
			},
			Handle: func(ctx context.Context, e events.Event) error {
				switch e.Name {
				case "fails.now":
					return errors.New("no")
				case "panics.now":
					panic("no")
				case "hangs.on":
					<-ctx.Done()
					time.Sleep(time.Second)
				}
				return nil
			},
			After:  func(_ context.Context, e events.Event) { note("after " + e.Name) },
			Failed: func(_ context.Context, e events.Event, _ error) { note("failed " + e.Name) },
		}
		require.NoError(t, b.Subscribe(hooked))
		b.Start()
		for _, name := range []string{"is.well", "refused.early", "fails.now", "panics.now", "hangs.on"} {
			b.Publish(named(name))
		}
		require.NoError(t, b.Stop(t.Context()))
		require.Len(t, *good, 5)
		require.Equal(t, []string{"before is.well", "after is.well", "before refused.early", "failed refused.early", "before fails.now", "failed fails.now",
			"before panics.now", "failed panics.now", "before hangs.on", "after hangs.on", "failed hangs.on"}, order)
		require.Equal(t, uint64(4), b.Stats().Failed)
	})
}

func TestStoppingWaitsNoLongerThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, Config{})
		release := make(chan struct{})
		require.NoError(t, b.Subscribe(events.Subscriber{Name: "stuck", Patterns: []string{"*"}, Handle: func(context.Context, events.Event) error { <-release; return nil }}))
		b.Start()
		b.Publish(named("a.b"))
		b.Publish(named("a.b"))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorContains(t, b.Stop(ctx), "1 events not delivered")
		close(release)
		require.NoError(t, b.Stop(t.Context()))
	})
}

func TestWhatIsNoSubscriber(t *testing.T) {
	b := newBus(t, Config{})
	does := func(context.Context, events.Event) error { return nil }
	for want, s := range map[string]events.Subscriber{
		"no name":          {Patterns: []string{"*"}, Handle: does},
		"no Handle":        {Name: "x", Patterns: []string{"*"}},
		"1 to 100":         {Name: "x", Handle: does},
		"a character that": {Name: "x", Patterns: []string{"a%"}, Handle: does},
	} {
		require.ErrorContains(t, b.Subscribe(s), want)
	}
	require.NoError(t, b.Subscribe(events.Subscriber{Name: "x", Patterns: []string{"*"}, Handle: does}))
	require.ErrorContains(t, b.Subscribe(events.Subscriber{Name: "x", Patterns: []string{"*"}, Handle: does}), "taken")
	for i := 1; i < maxSubscribers; i++ {
		require.NoError(t, b.Subscribe(events.Subscriber{Name: fmt.Sprint(i), Patterns: []string{"*"}, Handle: does}))
	}
	require.ErrorContains(t, b.Subscribe(events.Subscriber{Name: "y", Patterns: []string{"*"}, Handle: does}), "at most 100 subscribers")
}
