package pending_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/signal/pending"
	"github.com/tasker-go/tasker/signal"
)

// delays is a transport that keeps delays.
type delays struct {
	recorder
	due []time.Time
	err error
}

func (d *delays) sendAfter(_ context.Context, delay time.Duration, _ []signal.Signal) error {
	d.due = append(d.due, time.Now().Add(delay))
	return d.err
}

var due = signal.Signal{Topic: signal.TopicDue}

// TestDelayedSignals: for every delay that was asked for a signal comes when it has passed, and
// at most an eighth of it later; thousands are a few hundred signals.
func TestDelayedSignals(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		asked := rapid.SliceOfN(rapid.Int64Range(1, int64(36*time.Hour)), 1, 2000).Draw(rt, "delays")
		synctest.Test(t, func(t *testing.T) {
			d := &delays{}
			s := start(t, d, pending.SenderConfig{SendAfter: d.sendAfter})
			defer stop(t, s)
			for _, delay := range asked {
				s.PublishAfter(time.Duration(delay), due)
			}
			synctest.Wait()
			for _, delay := range asked {
				wanted, slack := time.Now().Add(time.Duration(delay)), max(time.Duration(delay)/8, 100*time.Millisecond)
				found := false
				for _, at := range d.due {
					found = found || !at.Before(wanted) && !at.After(wanted.Add(slack))
				}
				if !found {
					t.Errorf("no signal within %v after a delay of %v", slack, time.Duration(delay))
				}
			}
			require.LessOrEqual(t, len(d.due), 400)
			stats := s.Stats()
			require.EqualValues(t, len(asked), stats.Published)
			require.Equal(t, stats.Published, stats.Sent+stats.Coalesced)
		})
	})
}

// TestDelayedSignalsAreSentAgainOnceTheyHaveCome: coalescing ends when the time has come.
func TestDelayedSignalsAreSentAgainOnceTheyHaveCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &delays{}
		s := start(t, d, pending.SenderConfig{SendAfter: d.sendAfter})
		for i := range 3 {
			s.PublishAfter(time.Second, due)
			s.PublishAfter(time.Second, due)
			synctest.Wait()
			require.Len(t, d.due, i+1)
			time.Sleep(2 * time.Second)
		}
		stop(t, s)
		s.PublishAfter(time.Second, due)
		stats := s.Stats()
		require.Equal(t, pending.SenderStats{Published: 7, Sent: 3, Coalesced: 3, Dropped: 1, Flushes: 3}, stats)
	})
}

// TestDelayedSignalsThatCannotBeSent: they are counted and not tried again, and signals without a
// delay are sent.
func TestDelayedSignalsThatCannotBeSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &delays{err: errors.New("down")}
		var failures []string
		s := start(t, d, pending.SenderConfig{SendAfter: d.sendAfter, OnError: func(err error) { failures = append(failures, err.Error()) }})
		s.PublishAfter(time.Second, due)
		s.PublishAfter(time.Minute, due)
		s.PublishAfter(time.Minute, signal.Signal{})
		s.Publish(control("a"))
		synctest.Wait()
		require.Equal(t, []string{"sending 1 signals: down", "sending 1 signals: down"}, failures)
		require.Len(t, d.batches, 1)
		require.Equal(t, pending.SenderStats{Published: 4, Sent: 1, Dropped: 3, Failed: 2, Flushes: 1}, s.Stats())
		stop(t, s)

		plain := start(t, d, pending.SenderConfig{})
		plain.PublishAfter(time.Second, due)
		require.Zero(t, plain.Stats())
		stop(t, plain)
	})
}
