package peers

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The shapes that workers leave: a complete head, gaps in the jobs being processed, a
// backlog; with the borders of chunks in each of them.
func TestRiverFinishedCountsWhatTheTableHolds(t *testing.T) {
	t.Parallel()
	r := newRiver("river", defaultRiver())
	dsn, db := prepare(t, r)
	require.NoError(t, r.Submit(t.Context(), dsn, 4*progressChunk))
	for _, done := range []string{
		"id = 3",
		"id <= 4000 or id % 2 = 0 and id <= 4900",
		"id <= 5000",
		"id <= 5001",
		"id <= 9999 or id % 7 = 0 and id <= 16000",
		"id <> 9000 and id <= 19999",
		"true",
	} {
		_, err := db.Exec(t.Context(), `update river_job set state = 'completed', finalized_at = now() where `+done)
		require.NoError(t, err)
		var want int64
		require.NoError(t, db.QueryRow(t.Context(), `select count(*) from river_job where state = 'completed'`).Scan(&want))
		require.Equal(t, want, finished(t, r, db), done)
		require.Equal(t, want, finished(t, r, db), "a second look after %s", done)
	}
	fresh := newRiver("river", defaultRiver())
	require.EqualValues(t, 4*progressChunk, finished(t, fresh, db), "from the beginning")
	require.EqualValues(t, 4*progressChunk, r.progress.through, "nothing is read again")
}
