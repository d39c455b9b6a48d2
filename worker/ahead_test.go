package worker

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

// TestStepsClaimedAheadBeginWhenThatIsKnown: a handler begins only after its beginning
// was announced to the database, and others wait behind it.
func TestStepsClaimedAheadBeginWhenThatIsKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		var ran atomic.Int32
		r = newRig(t, Config{MaxConcurrent: 2, Prefetch: 20}, func(ctx *StepContext) (any, error) {
			ran.Add(1)
			token := ctx.Token()
			if ctx.x.Claim.Ahead && token > r.board.begunUpTo() {
				t.Errorf("the step with token %d began unannounced", token)
			}
			time.Sleep(10 * time.Millisecond)
			return 1, nil
		})
		r.board.set(func(b *fakeBoard) { b.deafBegin = store.ErrUnavailable })
		r.start(t)
		r.offer(22, stepOnly)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		require.EqualValues(t, 2, ran.Load(), "only the steps that began with the claim")
		r.board.set(func(b *fakeBoard) { b.deafBegin = nil })
		time.Sleep(30 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 22, ran.Load())
		require.Len(t, r.board.reported(), 22)
		r.stop(t)
	})
}
