package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/signal/inproc"
	"github.com/tasker-go/tasker/store"
)

const oneYAML = `
name: one
namespace_name: tests
version: 1.0.0
steps:
  - name: only
    handler: {callable: do}
  - name: limited
    timeout_seconds: 5
    handler: {callable: do}
  - name: once
    handler: {callable: do}
    retry: {retryable: false}
`

// Steps of oneYAML.
const (
	stepOnly = iota
	stepLimited
	stepOnce
)

// rig is a worker over a board in memory, in the fake time of synctest.
type rig struct {
	*Worker
	board *fakeBoard
	bus   *inproc.Bus
	sent  *published
}

// tee publishes on the bus and keeps a list.
type tee struct {
	bus  *inproc.Bus
	sent *published
}

func (t tee) Publish(s ...signal.Signal) { t.bus.Publish(s...); t.sent.Publish(s...) }

func newRig(t *testing.T, cfg Config, do HandlerFunc) *rig {
	t.Helper()
	r := &rig{board: newFakeBoard(t, oneYAML), bus: inproc.New(), sent: &published{}}
	cfg.DatabaseURL = "postgres://unused"
	cfg.EventSource, cfg.Publisher = r.bus, tee{r.bus, r.sent}
	if len(cfg.Namespaces) == 0 && !cfg.Every {
		cfg.Namespaces = []string{"tests"}
	}
	var err error
	r.Worker, err = New(cfg)
	require.NoError(t, err)
	r.Worker.board = r.board
	require.NoError(t, r.Register("do", do))
	return r
}

func (r *rig) start(t *testing.T) {
	t.Helper()
	require.NoError(t, r.Start(t.Context()))
	synctest.Wait()
}

// offer makes work claimable and says so.
func (r *rig) offer(n, step int) {
	r.board.put(n, step)
	r.signal()
}

func (r *rig) signal() {
	r.bus.Publish(signal.Signal{Topic: signal.WorkerTopic("tests")})
	synctest.Wait()
}

func (r *rig) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, r.Stop(t.Context()))
}

func decodeFailure(t *testing.T, r store.Report) failure {
	t.Helper()
	require.False(t, r.Success)
	var f failure
	require.NoError(t, json.Unmarshal(r.Error, &f))
	require.Equal(t, f.Retryable, r.Retryable)
	return f
}

func TestStepsAreRunAndReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 3}, func(ctx *StepContext) (any, error) {
			return map[string]any{"step": ctx.StepName(), "attempt": ctx.Attempt()}, nil
		})
		r.start(t)
		r.offer(20, stepOnly)
		got := r.board.reported()
		require.Len(t, got, 20)
		for _, rep := range got {
			require.True(t, rep.Success)
			require.JSONEq(t, `{"step":"only","attempt":1}`, string(rep.Result))
			require.Nil(t, rep.Error)
			require.Equal(t, noDelay, rep.RetryAfter)
		}
		require.Contains(t, r.sent.topics(), signal.TopicOrchestration)
		h := r.Health()
		require.True(t, h.Ready, h.Reason)
		require.EqualValues(t, 20, h.Claimed)
		require.EqualValues(t, 20, h.Succeeded)
		require.Zero(t, h.Running)
		for _, limit := range r.board.claims {
			require.LessOrEqual(t, limit, 3, "never more than there are permits")
		}
		r.stop(t)
		require.Equal(t, 1, r.board.stopped)
	})
}

func TestPermitsBoundHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		release := make(chan struct{})
		r := newRig(t, Config{MaxConcurrent: 4, Prefetch: 2}, func(*StepContext) (any, error) {
			now := running.Add(1)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			<-release
			running.Add(-1)
			return nil, nil
		})
		r.start(t)
		r.offer(50, stepOnly)
		h := r.Health()
		require.Equal(t, 4, h.Running)
		require.Equal(t, 2, h.Prefetched)
		require.EqualValues(t, 6, h.Claimed)
		claims := len(r.board.claims)
		r.signal() // no room: not even asked
		require.Len(t, r.board.claims, claims)

		release <- struct{}{} // one ends: a prefetched one begins, and another is claimed at once
		synctest.Wait()
		require.EqualValues(t, 7, r.Health().Claimed)
		close(release)
		synctest.Wait()
		require.Len(t, r.board.reported(), 50)
		require.EqualValues(t, 4, most.Load())
		r.stop(t)
	})
}

func TestFailuresAreReported(t *testing.T) {
	t.Parallel()
	plain := errors.New("no luck")
	cases := map[string]struct {
		do        HandlerFunc
		kind      string
		retryable bool
		after     time.Duration
		message   string
	}{
		"plain":       {func(*StepContext) (any, error) { return nil, plain }, TypeUnexpected, true, noDelay, "no luck"},
		"permanent":   {func(*StepContext) (any, error) { return nil, Permanent(plain) }, TypePermanent, false, noDelay, "no luck"},
		"asked delay": {func(*StepContext) (any, error) { return nil, Retryable(plain, time.Hour) }, TypeRetryable, true, time.Hour, "no luck"},
		"panic":       {func(*StepContext) (any, error) { panic("boom") }, TypePanic, true, noDelay, "the handler panicked: boom"},
		"goexit":      {func(*StepContext) (any, error) { runtime.Goexit(); return nil, nil }, TypePanic, true, noDelay, "the handler ended its goroutine"},
		"not JSON":    {func(*StepContext) (any, error) { return make(chan int), nil }, TypeResultNotEncoded, false, noDelay, ""},
		"NUL":         {func(*StepContext) (any, error) { return "a\x00b", nil }, TypeResultNotStored, false, noDelay, "the handler's result cannot be stored: a text in it contains the character NUL (\\u0000)"},
		"too big":     {func(*StepContext) (any, error) { return make([]int, 3000), nil }, TypeResultNotStored, false, noDelay, "the handler's result cannot be stored: it has 6001 bytes, more than 1000"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Config{MaxConcurrent: 1, MaxResultBytes: 1000}, c.do)
				r.start(t)
				r.offer(2, stepOnly)
				got := r.board.reported()
				require.Len(t, got, 2, "the permit came back")
				f := decodeFailure(t, got[0])
				require.Equal(t, c.kind, f.Type)
				require.Equal(t, c.retryable, f.Retryable)
				require.Equal(t, c.after, got[0].RetryAfter)
				if c.message != "" {
					require.Equal(t, c.message, f.Message)
				}
				require.NotContains(t, string(got[0].Error), "goroutine ", "no stack in what is stored")
				require.Zero(t, r.Health().Running)
				r.stop(t)
			})
		})
	}
}

func TestUnknownHandlerAndPlan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{}, func(*StepContext) (any, error) { return nil, nil })
		r.start(t)
		r.board.plan = compiled(t, `{name: o, namespace_name: tests, version: 1.0.0, steps: [{name: s, handler: {callable: elsewhere}}]}`)
		r.offer(1, 0)
		f := decodeFailure(t, r.board.reported()[0])
		require.Equal(t, TypeHandlerNotFound, f.Type)
		require.True(t, f.Retryable, "another worker may have it")
		require.Contains(t, f.Message, "elsewhere")

		r.offer(1, 9) // no such step
		require.Equal(t, TypePlanUnreadable, decodeFailure(t, r.board.reported()[1]).Type)
		r.stop(t)
	})
}

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
		require.Equal(t, TypeTimeout, f.Type)
		require.Equal(t, "the handler did not end within 5s", f.Message)
		require.True(t, f.Retryable)
		r.stop(t)
	})
}

func TestHandlerThatIgnoresItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, Config{MaxConcurrent: 1}, func(*StepContext) (any, error) {
			<-release
			return "late", nil
		})
		r.start(t)
		r.offer(2, stepLimited)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		got := r.board.reported()
		require.Len(t, got, 1, "the failure does not wait for the handler")
		require.Equal(t, TypeTimeout, decodeFailure(t, got[0]).Type)
		h := r.Health()
		require.Equal(t, 1, h.Running, "its permit is still taken")
		require.Equal(t, 1, h.Zombies)
		require.True(t, h.Steps[0].Zombie)
		require.False(t, h.Ready)

		close(release)
		synctest.Wait()
		got = r.board.reported()
		require.Len(t, got, 2, "the next one began only now")
		require.True(t, got[1].Success)
		require.Zero(t, r.Health().Zombies)
		require.Zero(t, r.Health().Stale, "what came too late was not even sent")
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
		r.board.set(func(b *fakeBoard) { clear(b.held) }) // somebody else has them
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.ErrorIs(t, <-cause, ErrLeaseLost)
		require.Empty(t, r.board.reported())
		h := r.Health()
		require.EqualValues(t, 2, h.LeasesLost, "the prefetched one as well, which never begins")
		require.Zero(t, h.Running+h.Prefetched)
		r.offer(1, stepOnly)
		require.Equal(t, 1, r.Health().Running, "there is room again")
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

func TestLeasesArePresumedLostWithoutHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Time, 1)
		r := newRig(t, Config{HandlerTimeout: time.Hour, Lease: time.Minute}, func(ctx *StepContext) (any, error) {
			<-ctx.Done()
			ended <- time.Now()
			return nil, context.Cause(ctx)
		})
		r.start(t)
		r.offer(1, stepOnly)
		begin := time.Now()
		time.Sleep(11 * time.Second)
		synctest.Wait() // one heartbeat at 10 s
		r.board.set(func(b *fakeBoard) { b.deaf = store.ErrUnavailable })
		time.Sleep(58 * time.Second)
		synctest.Wait()
		require.Empty(t, ended)
		require.Positive(t, r.Health().HeartbeatFailures)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 70*time.Second, (<-ended).Sub(begin), "the lease of the last heartbeat, not longer")
		require.EqualValues(t, 1, r.Health().LeasesLost)
		ready, reason := r.Ready()
		require.False(t, ready)
		require.Contains(t, reason, "heartbeat")

		r.board.set(func(b *fakeBoard) { b.deaf = nil })
		time.Sleep(3 * time.Second)
		synctest.Wait()
		ready, reason = r.Ready()
		require.True(t, ready, reason)
		r.stop(t)
	})
}

func TestReportsAreRepeatedWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, Config{MaxConcurrent: 5}, func(*StepContext) (any, error) {
			<-release
			return 1, nil
		})
		r.start(t)
		r.offer(5, stepOnly)
		r.board.set(func(b *fakeBoard) { b.down = store.ErrUnavailable })
		close(release)
		time.Sleep(3 * time.Minute) // longer than a flush is patient, and than the lease
		synctest.Wait()
		require.Equal(t, 5, r.Health().Reporting)
		require.Zero(t, r.Health().LeasesLost, "what is being reported is not given up")
		r.board.set(func(b *fakeBoard) { b.down = nil })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, r.board.reported(), 5)
		require.Zero(t, r.Health().Reporting)
		r.stop(t)
	})
}

func TestClaimingStopsWhenTooMuchIsPending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 2, Report: ReportConfig{MaxPending: 3}}, func(*StepContext) (any, error) { return 1, nil })
		r.start(t)
		// Claims work, reports do not.
		r.board.set(func(b *fakeBoard) { b.refuse = func(*store.Report) error { return store.ErrUnavailable } })
		r.offer(20, stepOnly)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		h := r.Health()
		require.GreaterOrEqual(t, h.Reporting, 3)
		require.LessOrEqual(t, h.Claimed, uint64(3+2))
		r.board.set(func(b *fakeBoard) { b.refuse = nil })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, r.board.reported(), 20, "it went on by itself")
		r.stop(t)
	})
}

func TestARefusedReportDoesNotFailTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, Config{MaxConcurrent: 10}, func(*StepContext) (any, error) {
			<-release
			return 1, nil
		})
		r.start(t)
		r.offer(10, stepOnly)
		r.board.set(func(b *fakeBoard) {
			b.refuse = func(rep *store.Report) error {
				if rep.Success && (rep.Token == 4 || rep.Token == 5) {
					return fmt.Errorf("report results: %w", errRefused)
				}
				return nil
			}
		})
		close(release)
		synctest.Wait()
		got := r.board.reported()
		require.Len(t, got, 10)
		for _, rep := range got {
			if rep.Token != 4 && rep.Token != 5 {
				require.True(t, rep.Success)
				continue
			}
			f := decodeFailure(t, rep)
			require.Equal(t, TypeResultNotStored, f.Type)
			require.False(t, f.Retryable)
			require.Contains(t, f.Message, "22P02")
		}
		r.stop(t)
	})
}

func TestFullScanAfterAnEmptyFastOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{}, func(*StepContext) (any, error) { return 1, nil })
		r.start(t)
		r.board.set(func(b *fakeBoard) { b.hidden = true })
		r.offer(3, stepOnly)
		require.Len(t, r.board.reported(), 3)
		r.stop(t)
	})
}

func TestANewNamespaceIsServedOnceItExists(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{"named": {Namespaces: []string{"tests", "later"}}, "every": {Every: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cfg := cfg
				cfg.Mode = deploymode.EventDrivenOnly
				r := newRig(t, cfg, func(*StepContext) (any, error) { return 1, nil })
				r.start(t)
				if name == "named" {
					require.Equal(t, []string{"later"}, r.Health().Missing)
				}
				r.board.set(func(b *fakeBoard) { b.queues["later"] = 2 })
				r.bus.Publish(signal.Signal{Topic: signal.TopicControl})
				synctest.Wait()
				require.ElementsMatch(t, []string{"later", "tests"}, r.Health().Namespaces)
				require.Empty(t, r.Health().Missing)
				r.board.put(1, stepOnly)
				r.bus.Publish(signal.Signal{Topic: signal.WorkerTopic("later")})
				synctest.Wait()
				require.Len(t, r.board.reported(), 1)
				r.stop(t)
			})
		})
	}
}

func TestManyHandlersManySignals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen sync.Map
		r := newRig(t, Config{MaxConcurrent: 7, Prefetch: 3, Logger: zap.NewNop()}, func(ctx *StepContext) (any, error) {
			if _, twice := seen.LoadOrStore(ctx.TaskUUID(), true); twice {
				return nil, errors.New("run twice")
			}
			time.Sleep(time.Duration(ctx.TaskUUID()[15]) * time.Microsecond)
			return 1, nil
		})
		r.start(t)
		for range 50 {
			r.offer(20, stepOnly)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, r.board.reported(), 1000)
		require.EqualValues(t, 1000, r.Health().Succeeded)
		r.stop(t)
	})
}
