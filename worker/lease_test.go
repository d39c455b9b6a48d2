package worker

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tasker-go/tasker/worker/internal/engine"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
)

func TestTimeLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 1)
		r := newRig(t, Config{MaxConcurrent: 1}, func(ctx *StepContext) (any, error) {
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			require.Equal(t, 5*time.Second, time.Until(deadline))
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return nil, ctx.Err()
		})
		r.start(t)
		r.offer(1, stepLimited)
		time.Sleep(5*time.Second - time.Nanosecond)
		synctest.Wait()
		require.Empty(t, r.board.reported())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.ErrorIs(t, <-cause, ErrTimeout)
		got := r.board.reported()
		require.Len(t, got, 1)
		f := decodeFailure(t, got[0])
		require.Equal(t, engine.TypeTimeout, f.Type)
		require.Equal(t, "the handler did not end within 5s", f.Message)
		require.True(t, f.Retryable)
		r.stop(t)
	})
}

func TestHandlerThatIgnoresItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		metrics := telemetry.Discard()
		r := newRig(t, Config{MaxConcurrent: 1, Metrics: metrics}, func(*StepContext) (any, error) {
			<-release
			return "late", nil
		})
		r.start(t)
		r.offer(2, stepLimited)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		got := r.board.reported()
		require.Len(t, got, 1, "the failure does not wait for the handler")
		require.Equal(t, engine.TypeTimeout, decodeFailure(t, got[0]).Type)
		h := r.Health()
		require.Equal(t, 1, h.Running, "its permit is still taken")
		require.Equal(t, 1, h.Zombies)
		require.True(t, h.Steps[0].Zombie)
		require.False(t, h.Ready)
		require.InDelta(t, 1, testutil.ToFloat64(metrics.HandlersZombie), 0)

		close(release)
		synctest.Wait()
		got = r.board.reported()
		require.Len(t, got, 2, "the next step began only now")
		require.True(t, got[1].Success)
		require.Zero(t, r.Health().Zombies)
		require.Zero(t, testutil.ToFloat64(metrics.HandlersZombie))
		require.Zero(t, r.Health().Stale, "the late outcome was not sent")
		r.stop(t)
	})
}

func TestLostLeaseEndsTheHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 1)
		r := newRig(t, Config{MaxConcurrent: 1, Prefetch: 1, HandlerTimeout: time.Hour}, func(ctx *StepContext) (any, error) {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return nil, ctx.Err()
		})
		r.start(t)
		r.offer(2, stepOnly)
		r.board.set(func(b *fakeBoard) { clear(b.held) }) // claimed by another worker
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.ErrorIs(t, <-cause, ErrLeaseLost)
		require.Empty(t, r.board.reported())
		h := r.Health()
		require.EqualValues(t, 2, h.LeasesLost, "also the prefetched step, which never begins")
		require.Zero(t, h.Running+h.Prefetched)
		r.offer(1, stepOnly)
		require.Equal(t, 1, r.Health().Running, "there is room again")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, r.Stop(ctx))
	})
}

// TestTheFleetTakesTheWorkerForDead: it gives up everything, registers under another UUID
// at once, and continues to work.
func TestTheFleetTakesTheWorkerForDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 1)
		r := newRig(t, Config{MaxConcurrent: 1, Prefetch: 1, HandlerTimeout: time.Hour}, func(ctx *StepContext) (any, error) {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return nil, ctx.Err()
		})
		r.start(t)
		r.offer(2, stepOnly)
		before := r.Health().WorkerUUID
		r.board.set(func(b *fakeBoard) { b.dead = before })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.ErrorIs(t, <-cause, ErrLeaseLost)
		require.Empty(t, r.board.reported())
		require.EqualValues(t, 2, r.Health().LeasesLost)
		require.NotEqual(t, before, r.Health().WorkerUUID)
		r.board.set(func(b *fakeBoard) {
			require.Equal(t, r.Health().WorkerUUID, b.daemons[len(b.daemons)-1].UUID, "it has registered again")
		})
		r.offer(1, stepOnly)
		require.Equal(t, 1, r.Health().Running)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, r.Stop(ctx))
	})
}

func TestSuccessAfterALostLeaseIsDecidedByTheFence(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{true, false} {
		t.Run(fmt.Sprint("gone=", gone), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				r := newRig(t, Config{HandlerTimeout: time.Hour}, func(*StepContext) (any, error) {
					<-release
					return 1, nil
				})
				r.start(t)
				r.offer(1, stepOnly)
				r.board.set(func(b *fakeBoard) {
					b.lost = []int64{1}
					if gone {
						clear(b.held)
					}
				})
				time.Sleep(10 * time.Second)
				synctest.Wait()
				require.Equal(t, 1, r.Health().Zombies)
				close(release)
				synctest.Wait()
				h := r.Health()
				require.Zero(t, h.Zombies+h.Running+h.Reporting)
				if gone {
					require.Empty(t, r.board.reported())
					require.EqualValues(t, 1, h.Stale)
				} else {
					require.Len(t, r.board.reported(), 1)
				}
				r.stop(t)
			})
		})
	}
}

// TestHandlersEndAGraceAfterTheirLeaseWithoutHeartbeats: the database may be unavailable
// for all workers, so a handler ends not with its lease, but a grace later.
func TestHandlersEndAGraceAfterTheirLeaseWithoutHeartbeats(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config Config
		ends   time.Duration // the handler, after the last successful heartbeat
	}{
		"by default": {Config{}, 10*time.Second + 50*time.Second},
		"set":        {Config{Lease: time.Minute, LeaseGrace: 30 * time.Second}, 90 * time.Second},
		"without":    {Config{Lease: time.Minute, LeaseGrace: -1}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan time.Time, 1)
				c.config.HandlerTimeout = time.Hour
				r := newRig(t, c.config, func(ctx *StepContext) (any, error) {
					<-ctx.Done()
					ended <- time.Now()
					return nil, context.Cause(ctx)
				})
				r.start(t)
				r.offer(1, stepOnly)
				time.Sleep(3*time.Second + 100*time.Millisecond)
				synctest.Wait() // the first heartbeat after those of the start
				last := time.Now().Add(-r.Health().HeartbeatAge)
				r.board.set(func(b *fakeBoard) { b.deaf = store.ErrUnavailable })
				time.Sleep(c.ends - time.Second)
				synctest.Wait()
				require.Empty(t, ended)
				require.Positive(t, r.Health().HeartbeatFailures)
				ready, reason := r.Ready()
				require.Equal(t, c.config.LeaseGrace < 0, ready, "not once the lease has ended: %s", reason)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				require.Equal(t, c.ends, (<-ended).Sub(last))
				require.EqualValues(t, 1, r.Health().LeasesLost)
				ready, reason = r.Ready()
				require.False(t, ready)
				require.Contains(t, reason, "heartbeat")

				r.board.set(func(b *fakeBoard) { b.deaf = nil })
				time.Sleep(3 * time.Second)
				synctest.Wait()
				ready, reason = r.Ready()
				require.True(t, ready, reason)
				r.stop(t)
			})
		})
	}
}

// TestAHandlerOutlivesAnOutageOfTheDatabase: no worker could claim its step, and the
// first successful heartbeat extends its lease again. A handler of any length runs once.
func TestAHandlerOutlivesAnOutageOfTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{HandlerTimeout: time.Hour}, func(ctx *StepContext) (any, error) {
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(10 * time.Minute):
				return 1, nil
			}
		})
		r.start(t)
		r.offer(1, stepOnly)
		for range 3 {
			time.Sleep(time.Minute)
			r.board.set(func(b *fakeBoard) { b.deaf = store.ErrUnavailable })
			time.Sleep(50 * time.Second)
			r.board.set(func(b *fakeBoard) { b.deaf = nil })
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		got := r.board.reported()
		require.Len(t, got, 1)
		require.True(t, got[0].Success)
		require.Zero(t, r.Health().LeasesLost)
		r.stop(t)
	})
}
