package mux_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/signal/mux"
)

// prober is a member with a probe topic.
type prober struct {
	signal.Connection
	topic signal.Topic
	count int
}

func newProber(t *testing.T, s signal.Source, name string) *prober {
	t.Helper()
	topic := signal.ProbeTopic(name)
	return &prober{Connection: connect(t, s, topic), topic: topic}
}

// probe sends a probe and returns it.
func (p *prober) probe(t *testing.T) signal.Signal {
	t.Helper()
	p.count++
	s := signal.Signal{Topic: p.topic, Payload: fmt.Sprint(p.topic, " ", p.count)}
	require.NoError(t, p.Probe(bounded(t), s))
	return s
}

// roundTrip probes and returns how long that took.
func (p *prober) roundTrip(t *testing.T) time.Duration {
	t.Helper()
	begin := time.Now()
	require.Equal(t, p.probe(t), receive(t, p))
	return time.Since(begin)
}

const trip = 3 * time.Millisecond

func TestProbeStandsForThatOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{trip: trip}
		s := mux.New(f, mux.Config{BufferLimit: signal.DefaultBufferLimit})
		x, y := newProber(t, s, "x"), newProber(t, s, "y")
		expect := func(p *prober, sent int, why string) {
			t.Helper()
			before := f.sent()
			require.Equal(t, trip, p.roundTrip(t), "%s: want the round trip", why)
			require.Equal(t, sent, f.sent()-before, why)
		}
		expect(x, 1, "the first probe of a member is its own")
		expect(y, 1, "the first probe of a member is its own")
		time.Sleep(4 * time.Second)
		expect(x, 1, "no probe within the last half of the interval")
		time.Sleep(time.Second)
		expect(y, 0, "x probed a second ago")
		time.Sleep(4 * time.Second)
		expect(x, 1, "its own probe is too old, and y's was not sent")
		time.Sleep(3 * time.Second)
		expect(y, 0, "x probed 3 s ago, and y has not probed for 7 s")
		time.Sleep(500 * time.Millisecond)
		expect(y, 1, "x has not probed since y did")
		expectNothing(t, x)
		expectNothing(t, y)
		closeAll(t, x, y)
	})
}

// TestProbeUnderWay: a probe under way comes back for both members.
func TestProbeUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{trip: trip}
		s := mux.New(f, mux.Config{BufferLimit: signal.DefaultBufferLimit})
		x, y := newProber(t, s, "x"), newProber(t, s, "y")
		x.roundTrip(t)
		y.roundTrip(t)
		time.Sleep(5 * time.Second)
		before := f.sent()
		ofX := x.probe(t)
		time.Sleep(time.Millisecond)
		require.Equal(t, trip-time.Millisecond, y.roundTrip(t))
		require.Equal(t, ofX, receive(t, x))
		require.Equal(t, 1, f.sent()-before)
		closeAll(t, x, y)
	})
}

func TestEveryProbeIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{trip: trip}
		s := mux.New(f, mux.Config{BufferLimit: signal.DefaultBufferLimit, ProofShare: -1})
		x, y := newProber(t, s, "x"), newProber(t, s, "y")
		for range 5 {
			x.roundTrip(t)
			y.roundTrip(t)
			time.Sleep(5 * time.Second)
		}
		require.Equal(t, 10, f.sent())
		closeAll(t, x, y)
	})
}

// TestWhoIsNotAnsweredEndsTheConnection: for all members, so that none shares a deaf
// connection any longer. A member whose probes are answered leaves without effect on
// the others.
func TestWhoIsNotAnsweredEndsTheConnection(t *testing.T) {
	for name, mute := range map[string]bool{"deaf": true, "well": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{trip: trip}
				s := mux.New(f, mux.Config{BufferLimit: signal.DefaultBufferLimit})
				x, y := newProber(t, s, "x"), newProber(t, s, "y")
				x.roundTrip(t)
				f.set(func() { f.mute = mute })
				x.probe(t)
				time.Sleep(10 * time.Second)
				closeAll(t, x)
				f.set(func() { f.mute = false })
				x = newProber(t, s, "x")
				_, connects, _ := f.state()
				if mute {
					_, err := y.Receive(bounded(t))
					require.ErrorIs(t, err, mux.ErrSuspect)
					closeAll(t, y)
					y = newProber(t, s, "y")
				}
				require.Equal(t, map[bool]int{true: 2, false: 1}[mute], connects)
				x.roundTrip(t)
				y.roundTrip(t)
				closeAll(t, x, y)
			})
		})
	}
}

// TestWhoRidesIsNotAnsweredEither: a member whose probe was not sent, because another
// one was under way, may end the connection too.
func TestWhoRidesIsNotAnsweredEither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{trip: trip}
		s := mux.New(f, mux.Config{BufferLimit: signal.DefaultBufferLimit})
		x, y := newProber(t, s, "x"), newProber(t, s, "y")
		x.roundTrip(t)
		y.roundTrip(t)
		time.Sleep(5 * time.Second)
		f.set(func() { f.mute = true })
		x.probe(t)
		y.probe(t)
		require.Equal(t, 3, f.sent())
		time.Sleep(10 * time.Second)
		closeAll(t, y)
		_, err := x.Receive(bounded(t))
		require.ErrorIs(t, err, mux.ErrSuspect)
		closeAll(t, x)
	})
}

// TestLostProbeOfAnother: a member that waits for a probe that its sender gave up as
// lost is answered by the next one.
func TestLostProbeOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{trip: trip}
		s := mux.New(f, mux.Config{BufferLimit: signal.DefaultBufferLimit})
		x, y := newProber(t, s, "x"), newProber(t, s, "y")
		x.roundTrip(t)
		y.roundTrip(t)
		time.Sleep(5 * time.Second)
		f.set(func() { f.mute = true })
		x.probe(t)
		ofY := y.probe(t)
		time.Sleep(5 * time.Second)
		f.set(func() { f.mute = false })
		x.roundTrip(t)
		require.Equal(t, ofY, receive(t, y))
		closeAll(t, x, y)
	})
}

const (
	interval  = 5 * time.Second
	threshold = 10 * time.Second
)

// TestProbesOfTwoAreThoseOfOne: for any time between their probes.
func TestProbesOfTwoAreThoseOfOne(t *testing.T) {
	for offset := time.Duration(0); offset < interval; offset += 490 * time.Millisecond {
		t.Run(offset.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{trip: trip}
				s := mux.New(f, mux.Config{BufferLimit: signal.DefaultBufferLimit})
				x, y := newProber(t, s, "x"), newProber(t, s, "y")
				const rounds = 100
				for range rounds {
					x.roundTrip(t)
					time.Sleep(offset)
					y.roundTrip(t)
					time.Sleep(interval - offset - 2*trip)
				}
				require.LessOrEqual(t, f.sent(), rounds+2)
				closeAll(t, x, y)
			})
		})
	}
}

// TestDeafnessIsFoundAsSoon as by a single listener: an interval and a threshold after
// the connection has died, for all members and any time between their probes.
func TestDeafnessIsFoundAsSoon(t *testing.T) {
	for offset := time.Duration(0); offset < interval; offset += 490 * time.Millisecond {
		for dies := time.Duration(0); dies < interval; dies += 730 * time.Millisecond {
			t.Run(fmt.Sprint(offset, " ", dies), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { deafness(t, offset, dies) })
			})
		}
	}
}

func deafness(t *testing.T, offset, dies time.Duration) {
	f := &fake{trip: trip}
	s := mux.New(f, mux.Config{BufferLimit: signal.DefaultBufferLimit})
	dead := 4*interval + dies
	begin := time.Now()
	time.AfterFunc(dead, func() { f.set(func() { f.mute = true }) })
	found := make([]time.Duration, 2)
	var members sync.WaitGroup
	for i, after := range []time.Duration{0, offset} {
		p := newProber(t, s, fmt.Sprint(i))
		members.Go(func() {
			time.Sleep(after)
			for p.well(t) {
			}
			found[i] = time.Since(begin)
			_ = p.Close(bounded(t))
		})
	}
	members.Wait()
	for _, at := range found {
		require.Greater(t, at, dead)
		require.LessOrEqual(t, at, dead+interval+threshold+2*trip)
	}
}

// well acts as a listener does in one interval: it probes, waits for the answer until
// the threshold, and goes on receiving.
func (p *prober) well(t *testing.T) bool {
	p.count++
	asked := time.Now()
	if p.Probe(bounded(t), signal.Signal{Topic: p.topic, Payload: fmt.Sprint(p.count)}) != nil {
		return false
	}
	late, cancel := context.WithDeadline(t.Context(), asked.Add(threshold))
	defer cancel()
	if _, err := p.Receive(late); err != nil {
		return false
	}
	next, cancel := context.WithDeadline(t.Context(), asked.Add(interval))
	defer cancel()
	_, err := p.Receive(next)
	return errors.Is(err, context.DeadlineExceeded)
}
