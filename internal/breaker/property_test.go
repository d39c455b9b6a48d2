package breaker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/breaker"
)

// observed is the externally visible state of one breaker.
type observed struct {
	name     string
	settings breaker.Settings
	state    breaker.State
	since    time.Time // of a change to open or closed
	changed  bool
	ends     []func(error)

	// Trials belong to a round, which begins when the breaker becomes half-open
	// and ends with its time-out.
	round              int
	roundAt            time.Time
	running, successes int
	forced             breaker.Control
	lastCheck          breaker.Health
	seen               bool // to answer while it is open
}

// For any calls, in any order of their ends: a refused call is never made, a breaker is
// half-open only between open and the next decision, open and closed last for the shortest
// time, half-open admits no more trials than are needed, and the breakers are independent.
func TestAnyCourseOfEvents(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var failed any // by which rapid ends an attempt, in its own goroutine
		synctest.Test(t, func(*testing.T) {
			defer func() { failed = recover() }()
			course(rt)
		})
		if failed != nil {
			panic(failed)
		}
	})
}

func course(t *rapid.T) {
	all := map[string]breaker.Settings{}
	var seen []*observed
	for _, name := range []string{breaker.Messaging, breaker.Web} {
		set := breaker.Settings{
			FailureThreshold: rapid.IntRange(1, 4).Draw(t, "failures"), SuccessThreshold: rapid.IntRange(1, 3).Draw(t, "successes"),
			Timeout:     time.Duration(rapid.IntRange(1, 20).Draw(t, "timeout")) * time.Second,
			MinInterval: time.Duration(rapid.IntRange(0, 20).Draw(t, "interval")) * time.Second, Judge: judge,
		}
		all[name] = set
		seen = append(seen, &observed{name: name, settings: set})
	}
	defer func() {
		for _, o := range seen {
			for _, end := range o.ends {
				end(nil)
			}
		}
	}()
	set := newSet(t, breaker.Config{}, all)
	for _, o := range seen {
		o.lastCheck = silent(set, o.name)
	}
	for range rapid.IntRange(1, 120).Draw(t, "events") {
		o := seen[rapid.IntRange(0, 1).Draw(t, "which")]
		o.event(t, set)
		for _, other := range seen {
			if other != o {
				require.Equal(t, other.lastCheck, silent(set, other.name), "another breaker was affected")
			}
			other.look(t, set)
		}
	}
}

// silent is the health without the parts that depend on time alone.
func silent(set *breaker.Set, name string) breaker.Health {
	h := set.Breaker(name).Health()
	h.RetryAfter = 0
	return h
}

func (o *observed) event(t *rapid.T, set *breaker.Set) {
	b := set.Breaker(o.name)
	switch event := rapid.IntRange(0, 12).Draw(t, "event"); {
	case event < 5:
		err := rapid.SampledFrom([]error{nil, errAway, errAway, errBad, errOwn}).Draw(t, "error")
		o.begin(t, b)(err)
	case event < 8:
		o.ends = append(o.ends, o.begin(t, b))
	case event < 10 && len(o.ends) > 0:
		i := rapid.IntRange(0, len(o.ends)-1).Draw(t, "call")
		o.ends[i](rapid.SampledFrom([]error{nil, errAway, errBad}).Draw(t, "error"))
		o.ends = append(o.ends[:i:i], o.ends[i+1:]...)
	case event == 10:
		o.seen = o.seen || b.State() == breaker.Open
		b.Seen()
	case event == 11 && rapid.IntRange(0, 5).Draw(t, "operator") == 0:
		o.forced = rapid.SampledFrom([]breaker.Control{breaker.Automatic, breaker.ForcedOpen, breaker.ForcedClosed}).Draw(t, "control")
		b.Force(o.forced)
		if o.state != b.State() {
			o.newRound()
		}
		o.state, o.changed = b.State(), false // operators need not wait
	default:
		time.Sleep(time.Duration(rapid.IntRange(1, 12_000).Draw(t, "pass")) * time.Millisecond)
	}
}

func (o *observed) newRound() {
	o.round++
	o.roundAt, o.running, o.successes = time.Now(), 0, 0
}

// begin makes a call that is under way when it returns; end ends it.
func (o *observed) begin(t *rapid.T, b *breaker.Breaker) (end func(error)) {
	wait, before := b.Wait(), b.Health()
	entered, result, done := make(chan bool, 1), make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		if b.Do(context.Background(), func(context.Context) error { entered <- true; return <-result }) != nil {
			select {
			case entered <- false: // refused; otherwise there is no reader
			default:
			}
		}
	}()
	made := <-entered
	h := b.Health()
	if before.State == breaker.Open && h.State == breaker.HalfOpen ||
		before.State == breaker.HalfOpen && time.Since(o.roundAt) >= o.settings.Timeout {
		o.newRound()
	}
	require.Equal(t, wait == 0, made, "Wait and Do must agree")
	if !made {
		require.Equal(t, before.Rejected+1, h.Rejected)
		<-done
		return func(error) {}
	}
	if h.State != breaker.HalfOpen {
		return func(err error) { result <- err; <-done }
	}
	o.running++
	require.LessOrEqual(t, o.running+o.successes, o.settings.SuccessThreshold, "too many trials")
	round := o.round
	return func(err error) {
		result <- err
		<-done
		if o.round == round {
			o.running--
			if err == nil || judge(err) == breaker.Success {
				o.successes++
			}
		}
	}
}

// look checks the state against the last look.
func (o *observed) look(t *rapid.T, set *breaker.Set) {
	b, now := set.Breaker(o.name), time.Now()
	o.lastCheck = silent(set, o.name)
	to := b.State()
	switch o.forced {
	case breaker.ForcedOpen:
		require.Equal(t, breaker.Open, to)
	case breaker.ForcedClosed:
		require.Equal(t, breaker.Closed, to)
	}
	if to == o.state {
		return
	}
	if o.changed && o.state != breaker.HalfOpen {
		least := o.settings.MinInterval
		if o.state == breaker.Open && o.seen {
			least = min(least, 250*time.Millisecond)
		}
		require.GreaterOrEqual(t, now.Sub(o.since), least, "%v was too short", o.state)
	}
	if o.state == breaker.Closed && o.forced == breaker.Automatic {
		require.Equal(t, breaker.Open, to)
	}
	o.state, o.since, o.changed, o.seen = to, now, true, false
}
