// Package scenarios holds single tests with a known end, on the rig of the random runs:
// real daemons, a real server, and seeds that once failed.
package scenarios

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/chaos/internal/check"
	"github.com/tasker-go/tasker/test/chaos/internal/ledger"
	"github.com/tasker-go/tasker/test/chaos/internal/rig"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
)

// binDir is where TestMain puts the daemons.
var binDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "tasker-chaos-*")
	if err == nil {
		binDir = dir
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		err = rig.Build(ctx, "..", dir, false)
		cancel()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir) // a temporary folder
	os.Exit(code)
}

// newRig is the ground of one scenario.
func newRig(t *testing.T, orchestrators, workers []string) *rig.Rig {
	t.Helper()
	return startRig(t, rig.Options{Orchestrators: orchestrators, Workers: workers})
}

// startRig is newRig with other options.
func startRig(t *testing.T, o rig.Options) *rig.Rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o.Dir, o.BinDir = t.TempDir(), binDir
	r, err := rig.Start(ctx, o)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	require.NoError(t, err)
	return r
}

// submit orders tasks and returns when all are accepted.
func submit(t *testing.T, r *rig.Rig, orders []workload.Order) []workload.Accepted {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := &workload.Submitter{URLs: r.Orchestrators}
	accepted, err := s.Run(ctx, time.Now(), orders)
	require.NoError(t, err)
	return accepted
}

// number is the answer of a query with one number.
func number(t *testing.T, r *rig.Rig, query string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, r.Do(t.Context(), func(db *pgx.Conn) error { return db.QueryRow(t.Context(), query, args...).Scan(&n) }))
	return n
}

// drain waits until no task is alive.
func drain(t *testing.T, r *rig.Rig, limit time.Duration) {
	t.Helper()
	pgtest.Eventually(t, limit, func() (bool, string) {
		n := number(t, r, `select count(*) from tasker.board where slot = 0`)
		return n == 0, fmt.Sprintf("%d tasks are alive", n)
	})
}

// verify stops the fleet and checks everything.
func verify(t *testing.T, r *rig.Rig, ordered []workload.Accepted) check.Facts {
	t.Helper()
	f := recorded(t, r, ordered)
	require.Empty(t, check.Check(f))
	return f
}

// recorded stops the fleet and loads the facts.
func recorded(t *testing.T, r *rig.Rig, ordered []workload.Accepted) check.Facts {
	t.Helper()
	require.NoError(t, r.Stop(t.Context()))
	f := check.Facts{Ordered: ordered, Stopped: r.Stopped()}
	var err error
	f.Executions, err = ledger.Read(r.Ledger())
	require.NoError(t, err)
	require.NoError(t, f.Load(t.Context(), r.DSN(), rig.MaxCrashes))
	require.Empty(t, r.Surprises())
	return f
}
