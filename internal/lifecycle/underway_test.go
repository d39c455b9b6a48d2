package lifecycle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

func ended(all <-chan struct{}) bool {
	select {
	case <-all:
		return true
	default:
		return false
	}
}

func TestUnderwayEndsWithTheLast(t *testing.T) {
	var u lifecycle.Underway
	require.True(t, u.Admit())
	u.Enter()
	all := u.Close()
	require.False(t, u.Admit(), "it is closed")
	require.Equal(t, 2, u.Count())
	require.False(t, ended(all))
	u.Leave()
	u.Enter() // also once it is closed
	u.Leave()
	require.False(t, ended(all))
	u.Leave()
	require.True(t, ended(all))
	u.Enter() // and once all have ended
	u.Leave()
	require.True(t, ended(u.Close()))
}
