package rest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Of many requests that are refused for one cause one is logged in ten seconds, with how many
// were not.
func TestRefusalsAreSampled(t *testing.T) {
	t.Parallel()
	var r refusals
	began := time.Now()
	logged, told := 0, 0
	for i := range 10_000 { // one each 10 ms
		if leftOut, due := r.due(codeUnavailable, began.Add(time.Duration(i)*10*time.Millisecond)); due {
			logged++
			told += leftOut
		}
	}
	require.Equal(t, 10, logged)
	require.Equal(t, 9*999, told)
	_, due := r.due(codeTimeout, began)
	require.True(t, due, "another cause")
}
