package worker

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/store"
)

// TestYieldsOutliveTheDatabase: like outcomes they are kept and retried.
func TestYieldsOutliveTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 2, Lease: time.Hour}, slicing(100, 50))
		r.start(t)
		r.board.set(func(b *fakeBoard) { b.deafSaves = store.ErrUnavailable })
		r.offer(2, stepOnly)
		time.Sleep(5 * time.Minute) // several flushes
		synctest.Wait()
		h := r.Health()
		require.Equal(t, 2, h.Yielding)
		require.Zero(t, h.Running, "they keep no permits")
		require.Empty(t, r.board.reported())
		r.board.set(func(b *fakeBoard) { b.deafSaves = nil })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, r.board.reported(), 2)
		require.Len(t, r.board.cursors(), 2)
		r.stop(t)
	})
}

// TestYieldsDoNotPileUp: while their checkpoints are unanswered, at most as many steps
// again are claimed beside them.
func TestYieldsDoNotPileUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 3, Lease: time.Hour}, slicing(100, 50))
		r.start(t)
		r.board.set(func(b *fakeBoard) { b.deafSaves = store.ErrUnavailable })
		r.offer(50, stepOnly)
		for range 20 {
			time.Sleep(time.Minute)
			r.signal()
		}
		require.LessOrEqual(t, r.Health().Yielding, 6)
		r.board.set(func(b *fakeBoard) { b.deafSaves = nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, r.board.reported(), 50)
		r.stop(t)
	})
}

// TestOthersComeBeforeAStepThatYields: steps that wait in the worker and on the board,
// however soon the checkpoint is saved.
func TestOthersComeBeforeAStepThatYields(t *testing.T) {
	t.Parallel()
	for prefetch, want := range map[int][]string{
		0: {"only0", "once0", "only1", "once0", "only2", "only3"}, // one step is claimed per turn
		2: {"only0", "once0", "once0", "only1", "only2", "only3"},
	} {
		for _, takes := range []time.Duration{0, 50 * time.Millisecond} {
			t.Run(fmt.Sprint(prefetch, " ", takes), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var order []string
					r := newRig(t, Config{MaxConcurrent: 1, Prefetch: prefetch, HandlerTimeout: time.Hour}, func(ctx *StepContext) (any, error) {
						at, err := CheckpointAs[int](ctx)
						require.NoError(t, err)
						order = append(order, fmt.Sprint(ctx.StepName(), at))
						time.Sleep(70 * time.Millisecond)
						if ctx.StepName() == "only" && at < 3 {
							return nil, Yield(at+1, 0, nil)
						}
						return at, nil
					})
					r.board.saveTakes = takes
					r.start(t)
					r.offer(1, stepOnly)
					r.offer(2, stepOnce)
					time.Sleep(time.Minute)
					synctest.Wait()
					require.Equal(t, want, order)
					require.Len(t, r.board.reported(), 3)
					require.Empty(t, r.board.handed)
					r.stop(t)
				})
			})
		}
	}
}

// TestYieldingStepsTakeTurns on one permit, without further claims.
func TestYieldingStepsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var order []string
		r := newRig(t, Config{MaxConcurrent: 1, Prefetch: 1, HandlerTimeout: time.Hour}, func(ctx *StepContext) (any, error) {
			at, _ := CheckpointAs[int](ctx)
			order = append(order, fmt.Sprint(ctx.StepName(), at))
			time.Sleep(10 * time.Second)
			if at < 2 {
				return nil, Yield(at+1, 0, nil)
			}
			return at, nil
		})
		r.board.put(1, stepOnly)
		r.board.put(1, stepOnce)
		r.start(t)
		r.signal()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"only0", "once0", "only1", "once1", "only2", "once2"}, order)
		require.EqualValues(t, 2, r.Health().Claimed)
		require.Len(t, r.board.reported(), 2)
		r.stop(t)
	})
}

// TestAYieldThatWaitsLongIsHandedBack: another worker may have a free permit.
func TestAYieldThatWaitsLongIsHandedBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 1, HandlerTimeout: time.Hour, Mode: deploymode.EventDrivenOnly}, func(ctx *StepContext) (any, error) {
			if ctx.StepName() == "once" {
				time.Sleep(time.Minute)
				return "long", nil
			}
			if !ctx.HasCheckpoint() {
				time.Sleep(time.Second)
				return nil, Yield("half", 1, nil)
			}
			require.Equal(t, 1, ctx.Attempt(), "no attempt is used")
			return "whole", nil
		})
		r.start(t)
		r.offer(1, stepOnly)
		r.offer(1, stepOnce)
		time.Sleep(2*time.Second + time.Millisecond) // it yields after one item
		synctest.Wait()
		require.Len(t, r.board.handed, 1)
		r.board.set(func(b *fakeBoard) {
			require.Len(t, b.claimable, 1)
			require.Contains(t, string(b.claimable[0].Checkpoint), "half")
			require.Zero(t, b.claimable[0].Attempt)
		})
		time.Sleep(2 * time.Minute)
		r.signal()
		require.Len(t, r.board.reported(), 2)
		r.stop(t)
	})
}

// TestDrainHandsBackWhatYields while other handlers still run.
func TestDrainHandsBackWhatYields(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 2, HandlerTimeout: time.Hour, ShutdownTimeout: time.Minute}, func(ctx *StepContext) (any, error) {
			if ctx.StepName() == "only" {
				time.Sleep(30 * time.Second)
				return "long", nil
			}
			at, _ := CheckpointAs[int](ctx)
			time.Sleep(2 * time.Second)
			return nil, Yield(at+1, 0, nil)
		})
		r.start(t)
		r.board.put(1, stepOnly)
		r.offer(1, stepOnce)
		time.Sleep(5 * time.Second)
		stopped := make(chan error, 1)
		go func() { stopped <- r.Stop(t.Context()) }()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, "draining", r.Health().State)
		require.Len(t, r.board.handed, 1, "also a step that may not be repeated: it continues")
		r.board.set(func(b *fakeBoard) {
			require.Contains(t, string(b.claimable[0].Checkpoint), `"cursor":3`)
			require.Zero(t, b.claimable[0].Attempt)
		})
		require.NoError(t, <-stopped)
		require.Len(t, r.board.reported(), 1)
		require.Empty(t, r.board.released)
	})
}

// TestStopSavesTheLastWord: handlers whose contexts have ended may still save, and yield.
func TestStopSavesTheLastWord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 2, HandlerTimeout: time.Hour}, func(ctx *StepContext) (any, error) {
			<-ctx.Done()
			if ctx.StepName() == "only" {
				require.NoError(t, ctx.Checkpoint("saved", 1, nil))
				return nil, ctx.Err()
			}
			return nil, Yield("yielded", 1, nil)
		})
		r.start(t)
		r.board.put(1, stepOnly)
		r.offer(1, stepOnce)
		r.stop(t)
		require.ElementsMatch(t, []string{`"saved"`, `"yielded"`}, r.board.cursors())
		require.Len(t, r.board.handed, 2)
		require.Empty(t, r.board.released)
		require.Empty(t, r.board.reported())
	})
}

// TestStopWithYieldsThatCannotBeSaved: it ends in time.
func TestStopWithYieldsThatCannotBeSaved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 2, Lease: time.Hour}, slicing(100, 50))
		r.start(t)
		r.board.set(func(b *fakeBoard) { b.deafSaves = store.ErrUnavailable })
		r.offer(2, stepOnly)
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		begin := time.Now()
		require.ErrorContains(t, r.Stop(ctx), "2 checkpoints not saved")
		require.LessOrEqual(t, time.Since(begin), 6*time.Second)
		require.Len(t, r.board.handed, 2, "they go on from the checkpoint before")
	})
}

// TestYieldsLeaveTheTimeLimitBehind: each execution has its own limit.
func TestYieldsLeaveTheTimeLimitBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 1}, func(ctx *StepContext) (any, error) {
			at, _ := CheckpointAs[int](ctx)
			time.Sleep(4 * time.Second) // of 5
			if at < 5 {
				return nil, Yield(at+1, 0, nil)
			}
			return at, nil
		})
		r.start(t)
		r.offer(1, stepLimited)
		time.Sleep(time.Minute)
		synctest.Wait()
		got := r.board.reported()
		require.Len(t, got, 1)
		require.True(t, got[0].Success)
		r.stop(t)
	})
}
