package worker

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/signal/inproc"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker/internal/engine"
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
	t.Cleanup(func() { // or synctest panics about running goroutines and ends the other tests
		if t.Failed() {
			_ = r.Stop(context.WithoutCancel(t.Context()))
		}
	})
	synctest.Wait()
}

// offer makes work claimable and signals it.
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

func decodeFailure(t *testing.T, r store.Report) engine.Failure {
	t.Helper()
	require.False(t, r.Success)
	var f engine.Failure
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
			require.Equal(t, engine.NoDelay, rep.RetryAfter)
		}
		require.Contains(t, r.sent.topics(), signal.TopicOrchestration)
		h := r.Health()
		require.True(t, h.Ready, h.Reason)
		require.EqualValues(t, 20, h.Claimed)
		require.EqualValues(t, 20, h.Succeeded)
		require.Zero(t, h.Running)
		r.stop(t)
		for _, limit := range r.board.claims {
			require.LessOrEqual(t, limit, 3, "never more than there are permits")
		}
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
		claims := func(b *fakeBoard) int { return len(b.claims) }
		before := r.board.number(claims)
		r.signal()
		require.Equal(t, before, r.board.number(claims), "without room no statement is sent")

		release <- struct{}{} // one ends: a prefetched step begins, and another is claimed at once
		synctest.Wait()
		require.EqualValues(t, 7, r.Health().Claimed)
		close(release)
		synctest.Wait()
		require.Len(t, r.board.reported(), 50)
		require.EqualValues(t, 4, most.Load())
		r.stop(t)
	})
}

func TestUnknownHandlerAndPlan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{}, func(*StepContext) (any, error) { return nil, nil })
		r.start(t)
		plan := compiled(t, `{name: o, namespace_name: tests, version: 1.0.0, steps: [{name: s, handler: {callable: elsewhere}}]}`)
		r.board.set(func(b *fakeBoard) { b.plan = plan })
		r.offer(1, 0)
		f := decodeFailure(t, r.board.reported()[0])
		require.Equal(t, engine.TypeHandlerNotFound, f.Type)
		require.True(t, f.Retryable, "another worker may have the handler")
		require.Contains(t, f.Message, "elsewhere")

		r.offer(1, 9) // no such step
		require.Equal(t, engine.TypePlanUnreadable, decodeFailure(t, r.board.reported()[1]).Type)
		r.stop(t)
	})
}

func TestABusyWorkerLooksEverywhereNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 1}, func(*StepContext) (any, error) {
			time.Sleep(100 * time.Millisecond)
			return 1, nil
		})
		r.start(t)
		r.offer(1000, stepOnly)
		fulls := func(b *fakeBoard) int { return b.fulls }
		before := r.board.number(fulls)
		time.Sleep(9 * time.Second)
		synctest.Wait()
		require.Equal(t, 4, r.board.number(fulls)-before, "every 2 s, although the marks gave all that was wanted")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, r.Stop(ctx))
	})
}

func TestTheEndOfALookDoesNotTearAClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{}, says("x"))
		r.start(t)
		r.board.put(1, stepOnly)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		out, err := r.parts.engine.Look(ctx, coordinator.Wake{Reason: coordinator.ReasonPoll})
		require.NoError(t, err)
		require.Equal(t, 1, out.Found)
		require.Equal(t, coordinator.NoDue, out.NextDue)
		r.stop(t)
	})
}

func TestFullScanAfterAnEmptyFastOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{}, func(*StepContext) (any, error) { return 1, nil })
		r.start(t)
		time.Sleep(10 * time.Millisecond) // of the bubble's clock; Start has just looked
		r.board.set(func(b *fakeBoard) { b.hidden = true })
		r.offer(3, stepOnly)
		time.Sleep(10 * time.Millisecond) // if a poll has looked meanwhile
		synctest.Wait()
		require.Len(t, r.board.reported(), 3)
		r.stop(t)
	})
}

// A claim that skips a step whose row is locked has used up the signal, so it is repeated
// within milliseconds.
func TestAClaimThatPassesOverStepsIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{}, says("x"))
		r.start(t)
		time.Sleep(10 * time.Millisecond)
		r.board.set(func(b *fakeBoard) { b.locked = 5 })
		r.offer(1, stepOnly)
		time.Sleep(200 * time.Millisecond) // of the bubble's clock; a poll almost always comes later
		synctest.Wait()
		require.Len(t, r.board.reported(), 1)
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

// An embedded worker has the defaults of the daemon.
func TestDefaultsOfAWorkerAreThoseOfTheConfiguration(t *testing.T) {
	t.Parallel()
	defaults, err := config.Defaults()
	require.NoError(t, err)
	w, err := New(Config{DatabaseURL: "postgres://unused"})
	require.NoError(t, err)
	want := Configure(defaults)
	for _, c := range []*Config{&want, &w.cfg} { // fields of the process, and functions, which are never equal
		c.WorkerID, c.Version, c.DatabaseURL, c.ListenerURL, c.Logger, c.Metrics = "", "", "", "", nil, nil
		c.MaxResultBytes, c.ShutdownTimeout, c.Namespaces, c.Tags, c.checker = 0, 0, nil, nil, nil
	}
	require.Equal(t, want, w.cfg)
}
