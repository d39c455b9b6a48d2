package breaker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errAway = errors.New("connection refused")
	errBad  = errors.New("bad request")
	errOwn  = errors.New("not found")
)

// judge classifies three kinds of errors, like that of the daemons.
func judge(err error) breaker.Verdict {
	switch {
	case errors.Is(err, errBad):
		return breaker.Ignored
	case errors.Is(err, errOwn):
		return breaker.Success
	}
	return breaker.Failure
}

func settings() breaker.Settings {
	return breaker.Settings{FailureThreshold: 3, SuccessThreshold: 2, Timeout: 30 * time.Second, MinInterval: 5 * time.Second, Judge: judge}
}

// kit is a set of two breakers in the fake time of a bubble.
type kit struct {
	*breaker.Set
	t       *testing.T
	metrics *telemetry.Metrics
}

func newSet(t require.TestingT, cfg breaker.Config, settings map[string]breaker.Settings) *breaker.Set {
	s, err := breaker.NewSet(cfg, settings)
	require.NoError(t, err)
	return s
}

// Defaults come from package config: missing values are rejected.
func TestNoThresholdIsInvented(t *testing.T) {
	t.Parallel()
	for field, leaveOut := range map[string]func(*breaker.Settings){
		"FailureThreshold": func(s *breaker.Settings) { s.FailureThreshold = 0 },
		"SuccessThreshold": func(s *breaker.Settings) { s.SuccessThreshold = 0 },
		"Timeout":          func(s *breaker.Settings) { s.Timeout = 0 },
	} {
		s := settings()
		leaveOut(&s)
		_, err := breaker.NewSet(breaker.Config{}, map[string]breaker.Settings{breaker.Web: s})
		require.ErrorContains(t, err, "invalid "+field+" 0")
	}
}

func newKit(t *testing.T) *kit {
	t.Helper()
	k := &kit{t: t, metrics: telemetry.NewMetrics(prometheus.NewRegistry())}
	k.Set = newSet(t, breaker.Config{Metrics: k.metrics},
		map[string]breaker.Settings{breaker.Web: settings(), breaker.Messaging: settings()})
	return k
}

// call makes a call that ends with err; refused says that it was not made.
func (k *kit) call(err error) (refused bool) {
	k.t.Helper()
	called := false
	got := k.Breaker(breaker.Web).Do(k.t.Context(), func(context.Context) error { called = true; return err })
	if called {
		require.Equal(k.t, err, got)
		return false
	}
	require.ErrorIs(k.t, got, breaker.ErrOpen)
	return true
}

func (k *kit) calls(n int, err error) {
	k.t.Helper()
	for range n {
		require.False(k.t, k.call(err))
	}
}

func (k *kit) state() breaker.State { return k.Breaker(breaker.Web).State() }

// open makes the breaker open.
func (k *kit) open() {
	k.t.Helper()
	k.calls(3, errAway)
	require.Equal(k.t, breaker.Open, k.state())
}

// hang begins a call that ends with the error sent.
func (k *kit) hang() (end func(error)) {
	k.t.Helper()
	began, result, done := make(chan struct{}), make(chan error), make(chan struct{})
	go func() {
		defer close(done)
		_ = k.Breaker(breaker.Web).Do(context.Background(), func(context.Context) error { close(began); return <-result })
	}()
	<-began
	return func(err error) { result <- err; <-done }
}

func TestFailuresInARowOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t)
		k.calls(2, errAway)
		k.calls(1, nil)
		k.calls(2, errAway)
		k.calls(1, errOwn) // an answer, if not the one that was hoped for
		k.calls(2, errAway)
		k.calls(5, errBad) // was never asked
		require.Equal(t, breaker.Closed, k.state())
		k.calls(1, errAway)
		require.Equal(t, breaker.Open, k.state())
		require.True(t, k.call(nil))
		require.Equal(t, breaker.Closed, k.Breaker(breaker.Messaging).State(), "the others are unaffected")
	})
}

func TestARefusalSaysWhenToComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t)
		k.open()
		time.Sleep(10 * time.Second)
		err := k.Breaker(breaker.Web).Do(t.Context(), func(context.Context) error { panic("called") })
		var open *breaker.OpenError
		require.ErrorAs(t, err, &open)
		require.Equal(t, &breaker.OpenError{Component: breaker.Web, RetryAfter: 20 * time.Second}, open)
		require.Equal(t, 20*time.Second, k.Breaker(breaker.Web).Wait())
		time.Sleep(20 * time.Second)
		require.Zero(t, k.Breaker(breaker.Web).Wait(), "a trial would get through")
		require.Equal(t, breaker.Open, k.state(), "but Wait takes none")
	})
}

func TestTrialsCloseOrOpenAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t)
		k.open()
		time.Sleep(30 * time.Second)
		k.calls(1, nil)
		require.Equal(t, breaker.HalfOpen, k.state())
		k.calls(1, errAway)
		require.Equal(t, breaker.Open, k.state())
		require.Equal(t, 30*time.Second, k.Breaker(breaker.Web).Wait())
		time.Sleep(30 * time.Second)
		k.calls(2, nil)
		require.Equal(t, breaker.Closed, k.state())
	})
}

func TestOnlySoManyTrialsGoThroughAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t)
		k.open()
		time.Sleep(30 * time.Second)
		first, second := k.hang(), k.hang()
		require.True(t, k.call(nil))
		require.Equal(t, time.Second, k.Breaker(breaker.Web).Wait())
		first(nil)
		require.True(t, k.call(nil), "a success counts too")
		second(nil)
		require.Equal(t, breaker.Closed, k.state())
	})
}

func TestATrialWithoutAVerdictGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t)
		k.open()
		time.Sleep(30 * time.Second)
		b := k.Breaker(breaker.Web)
		k.calls(10, errBad)
		require.Panics(t, func() { _ = b.Do(t.Context(), func(context.Context) error { panic("a mistake") }) })
		ctx, cancel := context.WithCancel(t.Context())
		require.Error(t, b.Do(ctx, func(ctx context.Context) error { cancel(); return fmt.Errorf("query: %w", ctx.Err()) }))
		require.Equal(t, breaker.HalfOpen, k.state())
		k.calls(2, nil)
		require.Equal(t, breaker.Closed, k.state())
	})
}

func TestTrialsThatHangDoNotKeepItHalfOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t)
		k.open()
		time.Sleep(30 * time.Second)
		first, second := k.hang(), k.hang()
		time.Sleep(30 * time.Second)
		k.calls(1, nil)
		first(errAway) // too late to mean anything
		require.Equal(t, breaker.HalfOpen, k.state())
		k.calls(1, nil)
		require.Equal(t, breaker.Closed, k.state())
		second(errAway)
		require.Equal(t, breaker.Closed, k.state())
	})
}

func TestACallOfBeforeSaysNothingAboutNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t)
		late, lucky := k.hang(), k.hang()
		k.open()
		time.Sleep(30 * time.Second)
		k.calls(1, nil)
		late(errAway) // its time-out was as long as we were open
		require.Equal(t, breaker.HalfOpen, k.state())
		lucky(nil)
		require.Equal(t, breaker.HalfOpen, k.state())
		require.EqualValues(t, 4, k.Set.Health()[1].Failures, "it is counted all the same")
	})
}

func TestACallerWhoLeavesProvesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 10 {
			err := k.Breaker(breaker.Web).Do(ctx, func(context.Context) error { return errAway })
			require.ErrorIs(t, err, errAway)
		}
		require.Equal(t, breaker.Closed, k.state())

		ctx, cancel = context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		<-ctx.Done()
		for range 3 {
			require.Error(t, k.Breaker(breaker.Web).Do(ctx, func(ctx context.Context) error { return ctx.Err() }))
		}
		require.Equal(t, breaker.Open, k.state(), "but an exceeded deadline does")
	})
}

func TestCallsThatFailTogetherAreOneFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t)
		var ends []func(error)
		for range 20 {
			ends = append(ends, k.hang())
		}
		for _, end := range ends[:18] {
			end(errAway)
		}
		require.Equal(t, breaker.Closed, k.state())
		require.EqualValues(t, 1, k.Set.Health()[1].Streak)
		// Calls that hang longer are more than one broken connection.
		for _, end := range ends[18:] {
			require.Equal(t, breaker.Closed, k.state())
			time.Sleep(time.Second)
			end(errAway)
		}
		require.Equal(t, breaker.Open, k.state())
	})
}

func TestItStaysOpenOrClosedForTheLeastTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t)
		k.open()
		time.Sleep(30 * time.Second)
		k.calls(2, nil)
		k.calls(10, errAway) // too soon to open again
		require.Equal(t, breaker.Closed, k.state())
		time.Sleep(5 * time.Second)
		k.calls(1, errAway)
		require.Equal(t, breaker.Open, k.state())
	})
}

func TestBeingSeenEndsTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t)
		b := k.Breaker(breaker.Web)
		b.Seen() // closed: of no interest
		k.open()
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, 29900*time.Millisecond, b.Wait())
		b.Seen()
		require.Equal(t, 150*time.Millisecond, b.Wait(), "the answer may be to an earlier call")
		require.True(t, k.call(nil))
		time.Sleep(150 * time.Millisecond)
		k.calls(1, errAway)
		require.Equal(t, 30*time.Second, b.Wait(), "that was of before")
	})
}

func TestOperatorsForceAndLetGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t)
		require.NoError(t, k.Force(breaker.Web, breaker.ForcedOpen))
		require.True(t, k.call(nil))
		time.Sleep(time.Hour)
		k.Breaker(breaker.Web).Seen()
		require.True(t, k.call(nil), "whatever happens")
		require.Equal(t, 30*time.Second, k.Breaker(breaker.Web).Wait())
		require.NoError(t, k.Force(breaker.Web, breaker.Automatic))
		k.calls(2, nil)
		require.Equal(t, breaker.Closed, k.state())

		require.NoError(t, k.Force(breaker.Web, breaker.ForcedClosed))
		time.Sleep(time.Hour)
		k.calls(100, errAway)
		require.Equal(t, breaker.Closed, k.state())
		require.NoError(t, k.Force(breaker.Web, breaker.Automatic))
		k.calls(1, errAway)
		require.Equal(t, breaker.Open, k.state(), "it keeps what it has learnt")
		require.NoError(t, k.Force(breaker.Web, breaker.ForcedClosed))
		k.calls(1, nil)
		require.ErrorIs(t, k.Force("other", breaker.ForcedOpen), breaker.ErrUnknown)
	})
}

func TestWhatItTells(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t)
		require.Equal(t, deploymode.Healthy, k.Check().Status)
		k.open()
		k.call(nil)
		h := k.Set.Health()
		require.Len(t, h, 2)
		require.Equal(t, breaker.Messaging, h[0].Component)
		require.Equal(t, breaker.Health{Component: breaker.Web, State: breaker.Open, Since: time.Now(), RetryAfter: 30 * time.Second,
			Calls: 3, Failures: 3, Rejected: 1, Opened: 1, LastError: errAway.Error(), LastFailure: time.Now()}, h[1])
		text, err := json.Marshal(h[0])
		require.NoError(t, err)
		require.JSONEq(t, `{"component":"messaging","state":"closed","control":"automatic","failures_in_a_row":0,"calls":0,"failures":0,"rejected":0,"opened":0}`, string(text))
		check := k.Check()
		require.Equal(t, deploymode.Unhealthy, check.Status)
		require.Equal(t, "web is open, 1 calls refused so far", check.Message)

		state := func() float64 { return testutil.ToFloat64(k.metrics.BreakerState.WithLabelValues(breaker.Web)) }
		require.InDelta(t, 2, state(), 0)
		time.Sleep(30 * time.Second)
		k.calls(1, nil)
		require.InDelta(t, 1, state(), 0)
		require.Equal(t, deploymode.Degraded, k.Check().Status)
		k.calls(1, nil)
		require.InDelta(t, 0, state(), 0)
		require.InDelta(t, 1, testutil.ToFloat64(k.metrics.BreakerRejected.WithLabelValues(breaker.Web)), 0)
		for _, to := range []string{"open", "half_open", "closed"} {
			require.InDelta(t, 1, testutil.ToFloat64(k.metrics.BreakerTransitions.WithLabelValues(breaker.Web, to)), 0, to)
		}
		require.NoError(t, k.Force(breaker.Messaging, breaker.ForcedClosed))
		require.Contains(t, k.Check().Message, "messaging is closed, forced by an operator")
	})
}

func TestNilLetsEverythingThrough(t *testing.T) {
	t.Parallel()
	var s *breaker.Set
	require.NoError(t, s.Breaker(breaker.Web).Do(t.Context(), func(context.Context) error { return nil }))
	require.Zero(t, s.Breaker(breaker.Web).Wait())
	require.Equal(t, breaker.Closed, s.Breaker(breaker.Web).State())
	s.Breaker(breaker.Web).Seen()
	s.Breaker(breaker.Web).Force(breaker.ForcedOpen)
	require.Empty(t, s.Health())
	require.Equal(t, deploymode.Healthy, s.Check().Status)
}

func TestControlsAreParsed(t *testing.T) {
	t.Parallel()
	for _, c := range []breaker.Control{breaker.Automatic, breaker.ForcedOpen, breaker.ForcedClosed} {
		got, err := breaker.ParseControl(c.String())
		require.NoError(t, err)
		require.Equal(t, c, got)
	}
	_, err := breaker.ParseControl("ajar")
	require.Error(t, err)
}

// A suspended call holds no trial; it is refused if the breaker has opened meanwhile, and
// nothing about it counts then.
func TestASuspendedCallIsOutside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t)
		web := k.Breaker(breaker.Web)
		k.open()
		time.Sleep(30 * time.Second)
		require.NoError(t, web.DoSuspendable(t.Context(), func(ctx context.Context) error {
			return breaker.Outside(ctx, func() error {
				k.calls(1, nil) // one of two trials: the other was given back
				return nil
			})
		}))
		require.Equal(t, breaker.Closed, k.state(), "its second part was the second trial")
		time.Sleep(time.Minute)
		err := web.DoSuspendable(t.Context(), func(ctx context.Context) error {
			return breaker.Outside(ctx, func() error { k.open(); return nil })
		})
		require.ErrorIs(t, err, breaker.ErrOpen)
		require.ErrorIs(t, web.DoSuspendable(t.Context(), func(context.Context) error { return nil }), breaker.ErrOpen)
		require.ErrorIs(t, breaker.Outside(t.Context(), func() error { return errAway }), errAway, "of no call")
		var none *breaker.Breaker
		require.NoError(t, none.DoSuspendable(t.Context(), func(context.Context) error { return nil }))
	})
}
