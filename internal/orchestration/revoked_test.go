package orchestration

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
)

// sent records when signals were published.
type sent struct {
	mu    sync.Mutex
	begin time.Time
	list  []string
	at    []time.Duration
}

func (s *sent) Publish(signals ...signal.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range signals {
		workers, _ := x.Revokes()
		slices.Sort(workers)
		for _, w := range workers {
			s.list, s.at = append(s.list, w), append(s.at, time.Since(s.begin))
		}
	}
}

// Of many cancels a worker is told at once, and then once in each pause; another one is not kept
// waiting by it.
func TestWorkersAreToldOfRevokedClaimsOncePerPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sent{begin: time.Now()}
		r := newRevoked(&Config{Publisher: s, Metrics: (*telemetry.Metrics)(nil).OrDiscard()})
		require.NoError(t, r.loop.Start(t.Context()))
		a, b := uuid.UUID{1}, uuid.UUID{2}
		tell := func(at time.Duration, workers ...uuid.UUID) {
			time.Sleep(at - time.Since(s.begin)) // takes time: the fake time of the bubble
			r.tell(workers)
			synctest.Wait()
		}
		tell(0)
		for at := time.Duration(0); at < 90*time.Millisecond; at += 10 * time.Millisecond {
			tell(at, a)
		}
		tell(95*time.Millisecond, b, a)
		tell(time.Second, a, b)
		time.Sleep(time.Second) // takes time: the fake time of the bubble
		synctest.Wait()
		require.NoError(t, r.loop.Stop(context.Background()))
		got := map[string][]time.Duration{}
		for i, w := range s.list {
			got[w] = append(got[w], s.at[i])
		}
		require.Equal(t, map[string][]time.Duration{a.String(): {0, 100 * time.Millisecond, time.Second}, b.String(): {95 * time.Millisecond, time.Second}}, got)
	})
}
