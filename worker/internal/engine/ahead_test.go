package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/store"
)

func TestClaimingAheadFollowsTheHandlers(t *testing.T) {
	t.Parallel()
	var p pace
	require.Equal(t, 3, p.ahead(10, 3), "no measurement yet")
	p.claimed(2 * time.Millisecond)
	p.served(400 * time.Microsecond)
	require.Equal(t, 250, p.ahead(10, 0), "10 ms of work")
	require.Equal(t, 50, p.begin(10, p.claim), "of which those are announced that begin during a round trip")
	p.claim = 10 * time.Millisecond
	require.Equal(t, 500, p.ahead(10, 0), "two round trips")
	p.slowed(time.Second)
	require.Zero(t, p.ahead(10, 0), "slow handlers claim nothing ahead")
	for range 200 {
		p.served(10 * time.Microsecond)
	}
	require.Equal(t, maxAhead, p.ahead(10, 0))
}

func TestClaimingAheadStaysWithinBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var p pace
		for range rapid.IntRange(0, 20).Draw(t, "measurements") {
			p.claimed(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "claim")))
			p.served(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "service")))
		}
		floor := rapid.IntRange(0, 1000).Draw(t, "floor")
		ahead := p.ahead(rapid.IntRange(1, 10_000).Draw(t, "permits"), floor)
		require.GreaterOrEqual(t, ahead, floor)
		require.LessOrEqual(t, ahead, max(floor, maxAhead))
	})
}

func TestStaleStepsAreGivenBack(t *testing.T) {
	t.Parallel()
	s := newSlots(1, 1, 100)
	var all []*Execution
	for token := range int64(5) {
		all = append(all, newExecution(store.Claimed{Token: token + 1}, time.Now().Add(time.Hour)))
	}
	require.Len(t, s.add(all).begin, 1)
	require.Empty(t, s.stale(time.Now()), "just claimed")
	stale := s.stale(time.Now().Add(2 * maxAheadAge))
	require.Equal(t, all[2:], stale, "all but the configured prefetch")
	require.Equal(t, 1, s.usage().Waiting)
	require.Zero(t, s.room())
}

// TestALostStepIsNotAddedAgain: it was to be handed back, that failed, and a heartbeat gave it up
// before it was to wait for a permit again.
func TestALostStepIsNotAddedAgain(t *testing.T) {
	t.Parallel()
	s := newSlots(1, 0, 100)
	var all []*Execution
	for token := range int64(3) {
		all = append(all, newExecution(store.Claimed{Token: token + 1}, time.Now().Add(time.Hour)))
	}
	s.add(all)
	stale := s.stale(time.Now().Add(2 * maxAheadAge))
	require.Len(t, s.hand(stale), 2)
	s.handed(stale, false)
	require.Len(t, s.lose([]int64{2}), 1)
	s.add(stale)
	require.Equal(t, 1, s.usage().Waiting)
	require.Equal(t, all[2], s.end(all[0], Failed).next, "the lost one does not begin")
	require.Len(t, s.held(), 2)
}

func TestQueuesTakeTurns(t *testing.T) {
	t.Parallel()
	first := map[int32]bool{}
	for range 1000 {
		queues := inTurn([]int32{1, 2, 3})
		require.ElementsMatch(t, []int32{1, 2, 3}, queues)
		first[queues[0]] = true
	}
	require.Len(t, first, 3)
}
