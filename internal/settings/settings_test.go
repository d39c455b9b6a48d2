package settings

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOrFillsWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	type inner struct{ N, hidden int }
	type outer struct {
		Name  string
		Wait  time.Duration
		Inner inner
		List  []string
	}
	got := Or(outer{Wait: 1, Inner: inner{hidden: 1}}, outer{Name: "a", Wait: 2, Inner: inner{N: 3, hidden: 4}, List: []string{"b"}})
	require.Equal(t, outer{Name: "a", Wait: 1, Inner: inner{N: 3, hidden: 1}, List: []string{"b"}}, got)
}

func TestPositive(t *testing.T) {
	t.Parallel()
	require.NoError(t, Positive("Size", 1))
	require.EqualError(t, Positive("Size", 0), "invalid Size 0: want more than 0")
	require.EqualError(t, Positive("Wait", -time.Second), "invalid Wait -1s: want more than 0")
}
