package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/store"
)

// TestLimitedStepsLeaveRoomWhereOthersAreExpected: a worker gives limited steps all permits while it has
// no reason to look for others, most of them where it looks, and half where it finds some.
func TestLimitedStepsLeaveRoomWhereOthersAreExpected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 8, Mode: deploymode.EventDrivenOnly}, says("done"))
		r.board.limited = map[int32]store.LimitedCallable{stepLimited + 1: {}}
		r.start(t)
		look := func(why coordinator.Reason) int {
			_, err := r.parts.engine.Look(t.Context(), coordinator.Wake{Reason: why, Everywhere: why == coordinator.ReasonPoll})
			require.NoError(t, err)
			synctest.Wait()
			return r.board.number(func(b *fakeBoard) int { return b.askedLimited[len(b.askedLimited)-1] })
		}
		expect := func(some bool) { r.board.set(func(b *fakeBoard) { b.expects = some }) }
		require.Equal(t, 8, look(coordinator.ReasonSignal), "it has just looked for others everywhere")
		require.Equal(t, 7, look(coordinator.ReasonPoll))
		time.Sleep(3 * time.Second)
		require.Equal(t, 7, look(coordinator.ReasonSignal), "it is time to look everywhere")
		require.Equal(t, 8, look(coordinator.ReasonSignal))
		expect(true)
		r.board.put(1, stepOnly)
		require.Equal(t, 7, look(coordinator.ReasonSignal))
		require.Len(t, r.board.reported(), 1)
		expect(false)
		require.Equal(t, 4, look(coordinator.ReasonSignal), "one was found")
		expect(true)
		require.Equal(t, 7, look(coordinator.ReasonSignal), "no others were found")
		expect(false)
		require.Equal(t, 8, look(coordinator.ReasonSignal))
		r.stop(t)
	})
}
