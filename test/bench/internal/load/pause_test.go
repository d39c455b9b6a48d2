package load

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPauseIsNoShorterThanAsked(t *testing.T) {
	t.Parallel()
	for range 20 { // timers are used again
		begin := time.Now()
		require.NoError(t, Pause(PauseTime))
		require.GreaterOrEqual(t, time.Since(begin), PauseTime)
	}
}
