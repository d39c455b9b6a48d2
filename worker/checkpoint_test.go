package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tasker-go/tasker/worker/internal/engine"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// counts is what slicing accumulates.
type counts struct {
	Sum  int `json:"sum"`
	Runs int `json:"runs"`
}

// slicing processes items in slices and yields after each.
func slicing(total, slice int) HandlerFunc {
	return func(ctx *StepContext) (any, error) {
		at, err := CheckpointAs[int](ctx)
		if err != nil {
			return nil, err
		}
		acc, err := AccumulatedAs[counts](ctx)
		if err != nil {
			return nil, err
		}
		acc.Runs++
		for end := min(at+slice, total); at < end; at++ {
			acc.Sum += at
		}
		if at < total {
			return nil, Yield(at, int64(at), acc)
		}
		return acc, nil
	}
}

func TestYieldRunsTheStepAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics := telemetry.Discard()
		r := newRig(t, Config{MaxConcurrent: 1, Metrics: metrics}, slicing(100, 25))
		r.start(t)
		r.offer(1, stepOnly)
		require.Equal(t, []string{"25", "50", "75"}, r.board.cursors())
		got := r.board.reported()
		require.Len(t, got, 1, "yields are no outcomes")
		require.JSONEq(t, `{"sum":4950,"runs":4}`, string(got[0].Result))
		h := r.Health()
		require.EqualValues(t, 1, h.Claimed, "and no claims")
		require.Equal(t, []uint64{1, 0, 0}, []uint64{h.Succeeded, h.Failed, h.LeasesLost})
		require.Zero(t, h.Running+h.Prefetched+h.Yielding)
		require.InDelta(t, 3, testutil.ToFloat64(metrics.StepYields.WithLabelValues("tests")), 0)
		require.InDelta(t, 3, testutil.ToFloat64(metrics.CheckpointsSaved.WithLabelValues("tests")), 0)
		r.stop(t)
	})
}

// TestAccessorsTellOfTheCheckpoint: of the checkpoint of the claim and of those that the
// execution saves.
func TestAccessorsTellOfTheCheckpoint(t *testing.T) {
	t.Parallel()
	none := contextOf(t, "third", nil, nil)
	require.False(t, none.HasCheckpoint())
	require.Nil(t, none.CheckpointCursor())
	require.Nil(t, none.AccumulatedResults())
	require.Zero(t, none.CheckpointItemsProcessed())
	require.Zero(t, none.CheckpointTime())
	at, err := CheckpointAs[int](none)
	require.NoError(t, err)
	require.Zero(t, at)

	type page struct {
		Day  string `json:"day"`
		Page int    `json:"page"`
	}
	some := contextOf(t, "third", func(c *store.Claimed) {
		c.Checkpoint = json.RawMessage(`{"cursor": {"day": "mon", "page": 3}, "timestamp": "2026-01-02T03:04:05.000006Z", "items_processed": 70, "accumulated_results": [1, 2]}`)
	}, nil)
	require.True(t, some.HasCheckpoint())
	require.JSONEq(t, `{"day": "mon", "page": 3}`, string(some.CheckpointCursor()))
	require.EqualValues(t, 70, some.CheckpointItemsProcessed())
	require.Equal(t, 6000, some.CheckpointTime().Nanosecond())
	cursor, err := CheckpointAs[page](some)
	require.NoError(t, err)
	require.Equal(t, page{"mon", 3}, cursor)
	list, err := AccumulatedAs[[]int](some)
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, list)
	_, err = AccumulatedAs[map[string]int](some)
	require.ErrorContains(t, err, "accumulated results of the checkpoint", "a saved list is not read as an object")
	_, err = CheckpointAs[string](some)
	require.ErrorContains(t, err, "cursor of the checkpoint")

	null := contextOf(t, "third", func(c *store.Claimed) {
		c.Checkpoint = json.RawMessage(`{"cursor": null, "items_processed": 5, "timestamp": "2026-01-02T03:04:05Z"}`)
	}, nil)
	require.True(t, null.HasCheckpoint())
	require.JSONEq(t, `null`, string(null.CheckpointCursor()))
	at, err = CheckpointAs[int](null)
	require.NoError(t, err)
	require.Zero(t, at)
}

func TestCheckpointWithoutLeaving(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 1, HandlerTimeout: time.Hour}, func(ctx *StepContext) (any, error) {
			for _, cursor := range []any{7, "b", map[string]int{"page": 2}, nil} {
				if err := ctx.Checkpoint(cursor, 10, []int{1}); err != nil {
					return nil, err
				}
			}
			require.True(t, ctx.HasCheckpoint())
			require.JSONEq(t, `null`, string(ctx.CheckpointCursor()))
			require.False(t, ctx.CheckpointTime().IsZero())
			return ctx.CheckpointItemsProcessed(), nil
		})
		r.start(t)
		r.offer(1, stepOnly)
		require.Equal(t, []string{`7`, `"b"`, `{"page":2}`, `null`}, r.board.cursors())
		require.JSONEq(t, `[1]`, string(r.board.saves[0].Accumulated))
		got := r.board.reported()
		require.Len(t, got, 1)
		require.JSONEq(t, `10`, string(got[0].Result))
		r.stop(t)
	})
}

// TestWhatCannotBeKeptIsNotSent: it is rejected before a statement is sent, permanently.
func TestWhatCannotBeKeptIsNotSent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cursor, accumulated any
		items               int64
		part, text          string
		size                int
	}{
		"a large cursor":             {cursor: strings.Repeat("x", 99), part: "cursor", text: "101 bytes, more than 100", size: 101},
		"large results":              {accumulated: strings.Repeat("x", 999), part: "accumulated_results", text: "1001 bytes, more than 1000", size: 1001},
		"a cursor without JSON":      {cursor: make(chan int), part: "cursor", text: "no JSON form"},
		"what jsonb does not hold":   {accumulated: "a\x00b", part: "accumulated_results", text: "NUL"},
		"a negative number of items": {items: -1, part: "items_processed", text: "negative"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				metrics := telemetry.Discard()
				limits := CheckpointConfig{MaxCursorBytes: 100, MaxAccumulatedBytes: 1000}
				r := newRig(t, Config{MaxConcurrent: 1, Checkpoint: limits, Metrics: metrics}, func(ctx *StepContext) (any, error) {
					err := ctx.Checkpoint(c.cursor, c.items, c.accumulated)
					var refused *CheckpointError
					require.ErrorAs(t, err, &refused)
					require.Equal(t, c.part, refused.Part)
					require.Equal(t, c.size, refused.Size)
					require.ErrorContains(t, err, c.text)
					if ctx.StepName() == "once" {
						return nil, err
					}
					return nil, Yield(c.cursor, c.items, c.accumulated)
				})
				r.start(t)
				r.offer(1, stepOnly)
				r.offer(1, stepOnce)
				require.Empty(t, r.board.cursors())
				got := r.board.reported()
				require.Len(t, got, 2)
				for _, rep := range got {
					f := decodeFailure(t, rep)
					require.Equal(t, engine.TypeCheckpointNotStored, f.Type)
					require.False(t, f.Retryable)
					require.Contains(t, f.Message, c.text)
				}
				reason := "not_storable"
				if c.size > 0 {
					reason = "too_large"
				}
				require.InDelta(t, 3, testutil.ToFloat64(metrics.CheckpointsRefused.WithLabelValues(reason)), 0)
				r.stop(t)
			})
		})
	}
}

// TestTheServerRefusesTheContent: other steps keep their checkpoints.
func TestTheServerRefusesTheContent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var together sync.WaitGroup
		together.Add(3)
		r := newRig(t, Config{MaxConcurrent: 3}, func(ctx *StepContext) (any, error) {
			if ctx.HasCheckpoint() {
				return "went on", nil
			}
			together.Done()
			together.Wait()
			if ctx.StepName() == "once" {
				return nil, Yield("refuse me", 1, nil)
			}
			return nil, Yield("keep me", 1, nil)
		})
		r.board.put(2, stepOnly)
		r.board.put(1, stepOnce)
		r.start(t)
		r.signal()
		got := r.board.reported()
		require.Len(t, got, 3)
		failed := 0
		for _, rep := range got {
			if rep.Success {
				continue
			}
			failed++
			require.Equal(t, engine.TypeCheckpointNotStored, decodeFailure(t, rep).Type)
		}
		require.Equal(t, 1, failed)
		require.Zero(t, r.Health().Yielding)
		r.stop(t)
	})
}

// TestALostClaimSavesNothing: the handler's context ends, and a yield ends the execution.
func TestALostClaimSavesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics := telemetry.Discard()
		errs := make(chan error, 2)
		var r *rig
		r = newRig(t, Config{MaxConcurrent: 2, Metrics: metrics, Lease: time.Hour, HeartbeatInterval: 20 * time.Minute}, func(ctx *StepContext) (any, error) {
			r.board.set(func(b *fakeBoard) { delete(b.held, ctx.Token()) }) // claimed by another worker
			if ctx.StepName() == "once" {
				return nil, Yield(1, 1, nil)
			}
			err := ctx.Checkpoint(1, 1, nil)
			errs <- err
			<-ctx.Done() // at once, not with the next heartbeat
			errs <- context.Cause(ctx)
			require.ErrorIs(t, ctx.Checkpoint(2, 2, nil), ErrLeaseLost)
			return nil, err
		})
		r.start(t)
		r.offer(1, stepOnly)
		r.offer(1, stepOnce)
		require.ErrorIs(t, <-errs, ErrLeaseLost)
		require.ErrorIs(t, <-errs, ErrLeaseLost)
		require.Empty(t, r.board.reported())
		require.Empty(t, r.board.cursors())
		h := r.Health()
		require.EqualValues(t, 2, h.LeasesLost)
		require.Zero(t, h.Running+h.Yielding+h.Zombies)
		require.InDelta(t, 2, testutil.ToFloat64(metrics.CheckpointsRefused.WithLabelValues("lease_lost")), 0)
		r.stop(t)
	})
}

func TestSavingHasAnEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 2, HandlerTimeout: time.Hour, Lease: time.Hour, Checkpoint: CheckpointConfig{SaveTimeout: 7 * time.Second}},
			func(ctx *StepContext) (any, error) {
				begin := time.Now()
				err := ctx.Checkpoint(1, 1, nil)
				if ctx.StepName() == "limited" {
					require.ErrorIs(t, err, ErrTimeout)
					require.Equal(t, 5*time.Second, time.Since(begin), "its time limit is shorter")
					return nil, err
				}
				require.ErrorIs(t, err, store.ErrUnavailable)
				require.Equal(t, 7*time.Second, time.Since(begin))
				require.False(t, ctx.HasCheckpoint())
				return "went on", nil
			})
		r.start(t)
		r.board.set(func(b *fakeBoard) { b.deafSaves = store.ErrUnavailable })
		r.board.put(1, stepLimited)
		r.offer(1, stepOnly)
		time.Sleep(time.Minute)
		synctest.Wait()
		got := r.board.reported()
		require.Len(t, got, 2)
		require.Equal(t, engine.TypeTimeout, decodeFailure(t, got[0]).Type)
		require.True(t, got[1].Success)
		r.stop(t)
	})
}

// TestASavedCheckpointKeepsTheLease while heartbeats fail.
func TestASavedCheckpointKeepsTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 1, HandlerTimeout: time.Hour, Lease: 30 * time.Second}, func(ctx *StepContext) (any, error) {
			for n := range 10 {
				time.Sleep(20 * time.Second)
				if err := ctx.Checkpoint(n, int64(n), nil); err != nil {
					return nil, err
				}
			}
			return "done", nil
		})
		r.start(t)
		r.board.set(func(b *fakeBoard) { b.deaf = store.ErrUnavailable })
		r.offer(1, stepOnly)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.Zero(t, r.Health().LeasesLost)
		require.Len(t, r.board.reported(), 1)
		r.board.set(func(b *fakeBoard) { b.deaf = nil })
		r.stop(t)
	})
}

// TestAMarkedYieldIsAFailure: the outermost mark counts.
func TestAMarkedYieldIsAFailure(t *testing.T) {
	t.Parallel()
	require.NotNil(t, yielded(Yield(1, 1, nil)))
	require.NotNil(t, yielded(fmt.Errorf("in a helper: %w", Yield(1, 1, nil))))
	require.Nil(t, yielded(Permanent(Yield(1, 1, nil))))
	require.Nil(t, yielded(errors.New("no")))
	require.Nil(t, yielded(nil))
}
