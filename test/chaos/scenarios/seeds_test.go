package scenarios

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/test/chaos/internal/schedule"
	"github.com/tasker-go/tasker/test/chaos/internal/trial"
)

// seeds are runs that failed once, each with its cause, reduced to the relevant faults.
var seeds = []struct {
	what    string
	options trial.Options
}{
	{"an easy one, so that this list works", trial.Options{Seed: 1, Tasks: 100, Length: 6 * time.Second, Calm: time.Second, Longest: time.Second,
		Kinds: []schedule.Kind{schedule.Kill, schedule.TerminateBackends}}},
}

func TestSeedsThatFailedOnce(t *testing.T) {
	for _, s := range seeds {
		t.Run(fmt.Sprintf("%d %s", s.options.Seed, s.what), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), s.options.Length+3*time.Minute)
			defer cancel()
			o := s.options
			o.BinDir, o.Dir = binDir, t.TempDir()
			var out bytes.Buffer
			report, err := trial.Run(ctx, o, &out)
			require.NoError(t, err, out.String())
			report.Print(&out)
			require.True(t, report.OK(), out.String())
		})
	}
}
