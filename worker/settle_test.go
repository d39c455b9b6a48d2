package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/store"
)

// TestPromisesOnlyWhereNothingWaits: a step that is claimed as it comes into
// being passes by what waits on the board, whatever its priority.
func TestPromisesOnlyWhereNothingWaits(t *testing.T) {
	t.Parallel()
	claims := func(tokens ...int64) (list []*execution) {
		for _, token := range tokens {
			list = append(list, newExecution(store.Claimed{Token: token}, time.Now().Add(time.Hour)))
		}
		return list
	}
	for name, c := range map[string]struct {
		prepare func(s *slots)
		want    int
	}{
		"all permits":               {func(*slots) {}, 3},
		"some permits":              {func(s *slots) { s.add(claims(1, 2)) }, 1},
		"no permit":                 {func(s *slots) { s.add(claims(1, 2, 3)) }, 0},
		"some wait for a permit":    {func(s *slots) { s.add(claims(1, 2, 3, 4)) }, 0},
		"the board was not dry":     {func(s *slots) { s.looked(false) }, 0},
		"a look is due":             {func(s *slots) { s.owed = true }, 0},
		"draining":                  {func(s *slots) { s.drain() }, 0},
		"too many outcomes":         {func(s *slots) { s.reporting = 10 }, 0},
		"promised already":          {func(s *slots) { s.promise(2) }, 1},
		"promised and kept":         {func(s *slots) { s.keep(s.promise(2)) }, 3},
		"dry again after it wasn't": {func(s *slots) { s.looked(false); s.looked(true) }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSlots(3, 1, 10)
			s.looked(true)
			c.prepare(s)
			before := s.promised
			require.Equal(t, c.want, s.promise(5))
			require.Equal(t, before+c.want, s.promised)
		})
	}
}

// TestAPromiseTakesRoomFromLooks and pays the look that it kept waiting.
func TestAPromiseTakesRoomFromLooks(t *testing.T) {
	t.Parallel()
	s := newSlots(3, 0, 10)
	s.looked(true)
	require.Equal(t, 3, s.promise(3))
	require.Zero(t, s.room(), "and the look is owed")
	require.True(t, s.keep(3), "there is room, so it is due now")
	require.Equal(t, 3, s.room())
}
