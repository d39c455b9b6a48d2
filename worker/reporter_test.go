package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker/internal/engine"
)

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
		"plain":       {func(*StepContext) (any, error) { return nil, plain }, engine.TypeUnexpected, true, engine.NoDelay, "no luck"},
		"permanent":   {func(*StepContext) (any, error) { return nil, Permanent(plain) }, engine.TypePermanent, false, engine.NoDelay, "no luck"},
		"asked delay": {func(*StepContext) (any, error) { return nil, Retryable(plain, time.Hour) }, engine.TypeRetryable, true, time.Hour, "no luck"},
		"panic":       {func(*StepContext) (any, error) { panic("boom") }, engine.TypePanic, true, engine.NoDelay, "the handler panicked: boom"},
		"goexit":      {func(*StepContext) (any, error) { runtime.Goexit(); return nil, nil }, engine.TypePanic, true, engine.NoDelay, "the handler ended its goroutine"},
		"not JSON":    {func(*StepContext) (any, error) { return make(chan int), nil }, engine.TypeResultNotEncoded, false, engine.NoDelay, ""},
		"NUL":         {func(*StepContext) (any, error) { return "a\x00b", nil }, engine.TypeResultNotStored, false, engine.NoDelay, "the handler's result cannot be stored: a text in it contains the character NUL (\\u0000)"},
		"too big":     {func(*StepContext) (any, error) { return make([]int, 3000), nil }, engine.TypeResultNotStored, false, engine.NoDelay, "the handler's result cannot be stored: it has 6001 bytes, more than 1000"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Config{MaxConcurrent: 1, MaxResultBytes: 1000}, c.do)
				r.start(t)
				r.offer(2, stepOnly)
				got := r.board.reported()
				require.Len(t, got, 2, "the permit is free again")
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
		time.Sleep(3 * time.Minute) // longer than a flush lasts, and than the lease
		synctest.Wait()
		require.Equal(t, 5, r.Health().Reporting)
		require.Zero(t, r.Health().LeasesLost, "outcomes being reported are not given up")
		r.board.set(func(b *fakeBoard) { b.down = nil })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, r.board.reported(), 5)
		require.Zero(t, r.Health().Reporting)
		r.stop(t)
	})
}

// TestMoreOutcomesThanMayWait: a worker with fast handlers claims far ahead. While the database
// takes no outcomes they fill the queue, with handlers that wait for room in it: then a flush that
// has given up still finds room for what it enqueues again.
func TestMoreOutcomesThanMayWait(t *testing.T) {
	t.Parallel()
	for name, yields := range map[string]bool{"outcomes": false, "checkpoints of yields": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				do := func(*StepContext) (any, error) { return 1, nil }
				if yields {
					do = slicing(2, 1)
				}
				r := newRig(t, Config{MaxConcurrent: 2, Lease: time.Hour, Report: ReportConfig{MaxPending: 10, MaxBatch: 5}}, do)
				r.board.claimTakes = time.Millisecond
				r.start(t)
				r.offer(10, stepOnly) // it learns how fast its handlers are
				time.Sleep(time.Second)
				r.board.set(func(b *fakeBoard) { b.deafReports, b.deafSaves = store.ErrUnavailable, store.ErrUnavailable })
				r.offer(500, stepOnly)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				require.Equal(t, 2, r.Health().Running, "handlers wait for room")
				time.Sleep(5 * time.Minute) // several flushes
				synctest.Wait()
				require.Len(t, r.board.reported(), 10)
				r.board.set(func(b *fakeBoard) { b.deafReports, b.deafSaves = nil, nil })
				time.Sleep(time.Minute)
				synctest.Wait()
				got := r.board.reported()
				require.Len(t, got, 510)
				require.False(t, slices.ContainsFunc(got, func(r store.Report) bool { return !r.Success }), "no time limit passes while a step waits for its goroutine")
				r.stop(t)
			})
		})
	}
}

func TestClaimingStopsWhenTooMuchIsPending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 2, Report: ReportConfig{MaxPending: 3, ClaimBelow: 1}}, func(*StepContext) (any, error) { return 1, nil })
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
		require.Len(t, r.board.reported(), 20, "it continued by itself")
		r.stop(t)
	})
}

func TestARefusedReportDoesNotFailTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 10}, says("x"))
		r.board.refuse = func(*store.Report) error { return store.ErrUnavailable }
		r.start(t)
		r.offer(10, stepOnly)
		r.board.set(func(b *fakeBoard) {
			delete(b.held, 7) // and one report comes too late
			b.refuse = func(rep *store.Report) error {
				if rep.Success && (rep.Token == 4 || rep.Token == 5) {
					return fmt.Errorf("report results: %w", errRefused)
				}
				return nil
			}
		})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 1, r.Health().Stale)
		got := r.board.reported()
		require.Len(t, got, 9)
		for _, rep := range got {
			if rep.Token != 4 && rep.Token != 5 {
				require.True(t, rep.Success)
				continue
			}
			f := decodeFailure(t, rep)
			require.Equal(t, engine.TypeResultNotStored, f.Type)
			require.False(t, f.Retryable)
			require.Contains(t, f.Message, "22P02")
		}
		r.stop(t)
	})
}

// Slow and pending reports are logged once.
func TestSlowAndPendingReportsAreWarnedOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		r := newRig(t, Config{MaxConcurrent: 4, Logger: zap.New(core), Report: ReportConfig{MaxPending: 4, ClaimBelow: 1, WarnFrom: 0.5, SlowAfter: 100 * time.Millisecond}},
			func(*StepContext) (any, error) { return 1, nil })
		slow := &slowBoard{fakeBoard: r.board}
		r.Worker.board = slow
		r.start(t)
		r.offer(1, stepOnly)
		time.Sleep(30 * time.Second)
		require.Zero(t, logs.Len(), "%v", logs.All())
		slow.takes.Store(int64(200 * time.Millisecond))
		r.board.set(func(b *fakeBoard) { b.refuse = func(*store.Report) error { return store.ErrUnavailable } })
		r.offer(4, stepOnly)
		time.Sleep(30 * time.Second)
		require.Equal(t, 1, logs.FilterMessage("many outcomes wait to be reported").Len())
		require.Positive(t, logs.FilterMessage("reporting outcomes was slow").Len())
		r.board.set(func(b *fakeBoard) { b.refuse = nil })
		time.Sleep(30 * time.Second)
		r.stop(t)
	})
}

// slowBoard is slow with reports.
type slowBoard struct {
	*fakeBoard
	takes atomic.Int64
}

func (b *slowBoard) Report(ctx context.Context, reports []store.Report) ([]bool, error) {
	time.Sleep(time.Duration(b.takes.Load()))
	return b.fakeBoard.Report(ctx, reports)
}
