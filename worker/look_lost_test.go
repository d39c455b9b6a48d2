package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClaimsWhoseAnswerWasLost: they use no attempt; three of them made a step poison.
func TestClaimsWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		r := newRig(t, Config{}, func(ctx *StepContext) (any, error) {
			attempts = ctx.Attempt()
			return 1, nil
		})
		r.board.set(func(b *fakeBoard) { b.mute = 3 })
		r.board.put(1, 0)
		r.start(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, r.board.reported(), 1, "it runs without waiting for a lease")
		require.Equal(t, 1, attempts)
		require.Len(t, r.board.handed, 3)
		r.stop(t)
	})
}
