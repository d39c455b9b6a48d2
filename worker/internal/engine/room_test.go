package engine

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

// TestPromisesOnlyWhereNothingWaits: a step that is claimed on creation bypasses the
// steps on the board, whatever their priority.
func TestPromisesOnlyWhereNothingWaits(t *testing.T) {
	t.Parallel()
	claims := func(tokens ...int64) (list []*Execution) {
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
		"too many outcomes":         {func(s *slots) { s.in[phaseReporting] = 10 }, 0},
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

// TestAPromiseTakesRoomFromLooks: its end pays the look that it delayed.
func TestAPromiseTakesRoomFromLooks(t *testing.T) {
	t.Parallel()
	s := newSlots(3, 0, 10)
	s.looked(true)
	require.Equal(t, 3, s.promise(3))
	require.Zero(t, s.room(), "and the look is owed")
	require.True(t, s.keep(3).look, "there is room, so it is due now")
	require.Equal(t, 3, s.room())
}

// TestKnownClaimsAreNotHandedBack: of the claims that the database lists, only those
// unknown to this worker belong to a lost answer.
func TestKnownClaimsAreNotHandedBack(t *testing.T) {
	t.Parallel()
	s := newSlots(2, 1, 10)
	begun := s.add([]*Execution{newExecution(store.Claimed{Token: 1}, time.Now().Add(time.Hour)), newExecution(store.Claimed{Token: 2}, time.Now().Add(time.Hour)),
		newExecution(store.Claimed{Token: 3}, time.Now().Add(time.Hour))}).begin
	require.Len(t, begun, 2)
	s.lose([]int64{1}) // its handler continues
	require.Equal(t, []store.ClaimKey{{Token: 4}}, s.unaccounted([]store.ClaimKey{{Token: 1}, {Token: 2}, {Token: 3}, {Token: 4}}))
}

// TestALostAnswerWaitsForClaimsOnTheirWay: it is given up when a claim is lost.
func TestALostAnswerWaitsForClaimsOnTheirWay(t *testing.T) {
	t.Parallel()
	var u unknown
	u.took([]store.Claimed{{Token: 7}, {Token: 5}})
	require.EqualValues(t, 7, u.begin())
	require.False(t, u.claiming.TryLock())
	u.end()
	id := uuid.New()
	u.lose(id, 7)
	u.lose(id, 3)
	u.lose(id, 9)
	require.Equal(t, &lostAnswer{id, 3}, u.answer())
	u.lose(uuid.Max, 9)
	require.Equal(t, &lostAnswer{uuid.Max, 9}, u.answer(), "claims under another UUID are lost with it")
	u.giveUp()
	require.Nil(t, u.answer())
}

// TestALimitedStepWaitsForAPermit: with room to claim ahead and without a free permit the look
// is owed, and the end of a handler pays it.
func TestALimitedStepWaitsForAPermit(t *testing.T) {
	t.Parallel()
	s := newSlots(2, 4, 10)
	one, two := newExecution(store.Claimed{Token: 1}, time.Now().Add(time.Hour)), newExecution(store.Claimed{Token: 2}, time.Now().Add(time.Hour))
	require.False(t, s.add([]*Execution{one, two}).look)
	require.Positive(t, s.room())
	require.Zero(t, s.atOnce(5))
	require.False(t, s.followsLocked(time.Now()).look, "no permit is free")
	require.True(t, s.end(one, Success).look)
	require.False(t, s.end(two, Success).look, "it was paid")
	require.Positive(t, s.room())
	require.Equal(t, 2, s.atOnce(5))
	require.False(t, s.followsLocked(time.Now()).look)
}
