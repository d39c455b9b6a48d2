package worker

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestContinued: what functions around a handler may do with its next task.
func TestContinued(t *testing.T) {
	t.Parallel()
	result, err := Continue("done", NextTask{Name: "next", Version: "2.0.0"})
	require.Equal(t, "done", result)
	for name, tt := range map[string]struct {
		err  error
		next bool
	}{
		"as it is":  {err, true},
		"wrapped":   {fmt.Errorf("around: %w", err), true},
		"none":      {nil, false},
		"failure":   {errors.New("no"), false},
		"permanent": {Permanent(err), false},
		"retryable": {Retryable(err, 0), false},
		"yielding":  {errors.Join(err, Yield(1, 1, nil)), false},
	} {
		next, ok := Continued(tt.err)
		require.Equal(t, tt.next, ok, name)
		if ok {
			require.Equal(t, NextTask{Name: "next", Version: "2.0.0"}, next, name)
		}
	}
	require.ErrorContains(t, err, "continues with the task next")
}
