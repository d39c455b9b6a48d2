package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/plantest"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

// What is not read of the tasks and executions of a window is left out as a whole, and the
// period begins later.
func TestAnalysisIsOfWholeTasks(t *testing.T) {
	t.Parallel()
	db := plantest.Open(t)
	plantest.Fixture{Finished: 100}.Fill(t, db)
	conn, err := db.Pool(t).Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	const year = 24 * 365 * time.Hour
	for name, c := range map[string]struct {
		tasks, attempts int
		total           int64
		cut             bool
	}{
		"all are read":        {1000, 1000, 100, false},
		"not all tasks":       {30, 1000, 30, true},
		"not all executions":  {1000, 11, 10, true},
		"no task of this age": {0, 1000, 0, false},
	} {
		p, err := stmt.One[Performance](t.Context(), conn, performance.With(analysis(year).And(pg.Args{"tasks": c.tasks, "attempts": c.attempts})))
		require.NoError(t, err, name)
		require.Equal(t, c.total, p.Total, name)
		require.Equal(t, c.total, p.Completed, name)
		require.Equal(t, c.cut, p.At.Sub(p.Since) < year, name)
	}
}
