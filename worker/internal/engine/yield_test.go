package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

// TestAYieldUnderALeaseThatIsOverDoesNotGoOn: its checkpoint was saved, but the answer
// came after the end of the lease by the local clock.
func TestAYieldUnderALeaseThatIsOverDoesNotGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1, 0, 10)
		defer s.close(ErrShutdown)
		claimed := store.Claimed{Token: 1}
		x := newExecution(claimed, time.Now().Add(time.Minute))
		require.Len(t, added(s, x), 1)
		s.end(x, Yielded)
		require.True(t, x.mine)
		late := newExecution(claimed, x.leaseEnd)
		time.Sleep(time.Hour)
		require.Empty(t, s.goOn(x, late).begin, "another worker may have the step")
		fine := newExecution(store.Claimed{Token: 2}, time.Now().Add(time.Minute))
		require.Equal(t, []*Execution{fine}, added(s, fine), "others do not wait for it")
		lost, _ := s.expire(time.Now(), 0)
		require.Equal(t, []*Execution{late}, lost)

		other := newExecution(store.Claimed{Token: 3}, time.Now())
		require.Empty(t, added(s, other))
		s.extended([]store.ClaimKey{other.Key}, time.Now().Add(time.Minute)) // by a heartbeat that was answered late
		s.end(fine, Failed)
		require.Equal(t, phaseRunning, other.phase)
	})
}

// added returns what begins when one claim is added.
func added(s *slots, x *Execution) []*Execution {
	return s.add([]*Execution{x}).begin
}

// TestAYieldNeedsNoLook: the heartbeat resumes it if the mode has forbidden the due look.
func TestAYieldNeedsNoLook(t *testing.T) {
	t.Parallel()
	s := newSlots(1, 0, 10)
	defer s.close(ErrShutdown)
	x := newExecution(store.Claimed{Token: 1}, time.Now().Add(time.Minute))
	require.Len(t, added(s, x), 1)
	s.letOthersFirst()
	s.end(x, Yielded)
	next := newExecution(x.Claim, x.leaseEnd)
	require.Empty(t, s.goOn(x, next).begin, "others come first")
	require.Equal(t, []*Execution{next}, s.resume().begin)
}
