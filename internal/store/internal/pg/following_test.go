package pg

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/signal"
)

// TestFollowingStandsAgainstOlderAnswers: a heartbeat that has read the database before
// this process began to follow does not undo that.
func TestFollowingStandsAgainstOlderAnswers(t *testing.T) {
	t.Parallel()
	var s DB
	signals := func() []signal.Signal { return s.WithTransitions(nil) }
	require.Empty(t, signals())
	older := s.Following.Ask()
	s.Following.Begun()
	older(0)
	require.Equal(t, []signal.Signal{{Topic: signal.TopicTransitions}}, signals())
	s.Following.Ask()(2)
	require.Empty(t, signals())
	require.True(t, s.Following.Results())
	s.Following.Ask()(1)
	require.Len(t, signals(), 1)
	require.False(t, s.Following.Results())
}
