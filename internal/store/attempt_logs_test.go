package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/attemptlog"
	"github.com/tasker-go/tasker/internal/store"
)

// chunkOf is a chunk with one line.
func chunkOf(of store.LogOf, at time.Time, first int64, text string) store.LogChunk {
	m := attemptlog.NewMemory[int](attemptlog.Bounds{Kept: 1 << 20, Line: 1 << 10, Pending: 1 << 20}, func() {})
	l := m.NewLog(0)
	l.Add(at, attemptlog.Info, text, nil)
	chunks, _ := l.Take()
	chunks[0].First = first
	return store.LogChunk{LogOf: of, Chunk: chunks[0]}
}

func texts(t *testing.T, chunks []store.LogChunk) (list []string) {
	t.Helper()
	for i := range chunks {
		lines, err := attemptlog.NewReader().Read(&chunks[i].Chunk)
		require.NoError(t, err)
		for _, l := range lines {
			list = append(list, l.Text)
		}
	}
	return list
}

func TestLogsAreKeptAndReadInTheirOrder(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	ctx := context.Background()
	task, other := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	at := time.Now().Truncate(time.Microsecond)
	first, second := store.LogOf{Task: task, Step: 0, Token: 7, Attempt: 1}, store.LogOf{Task: task, Step: 1, Token: 8, Attempt: 2}
	chunks := []store.LogChunk{
		chunkOf(first, at, 0, "a"), chunkOf(second, at.Add(time.Millisecond), 0, "b"), chunkOf(first, at.Add(2*time.Millisecond), 1, "c"),
		chunkOf(store.LogOf{Task: other, Token: 9}, at, 0, "another task"),
	}
	for range 2 { // a repetition changes nothing
		require.NoError(t, s.KeepLogs(ctx, chunks, nil, nil))
	}
	all := store.LogQuery{Task: task, Levels: attemptlog.Debug.Bits(), Limit: 100}
	read, seen, err := s.Logs(ctx, all)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c"}, texts(t, read))

	page := all
	page.Limit, page.After = 1, store.LogPlace{At: read[0].At, Token: read[0].Token, First: read[0].First}
	read, _, err = s.Logs(ctx, page)
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, texts(t, read))
	some := all
	some.Step = new(1)
	read, _, err = s.Logs(ctx, some)
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, texts(t, read))
	some.Step, some.Attempt = nil, new(1)
	read, _, err = s.Logs(ctx, some)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "c"}, texts(t, read))
	some.Attempt, some.Levels = nil, attemptlog.Warn.Bits()
	read, _, err = s.Logs(ctx, some)
	require.NoError(t, err)
	require.Len(t, read, 3)
	require.Empty(t, read[0].Content, "what no line is asked of is not read")

	// Those who follow see what has become visible since, also of a transaction that began before.
	tx, err := db.Pool(t).Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, `insert into tasker.attempt_logs select task_uuid, at - interval '1 s', token, 90, last_at, pg_current_xact_id(), lines, step_no, attempt, levels, content
		from tasker.attempt_logs where task_uuid = $1 and first_line = 1`, task)
	require.NoError(t, err)
	require.NoError(t, s.KeepLogs(ctx, []store.LogChunk{chunkOf(first, at.Add(time.Second), 2, "d")}, nil, nil))
	follow := all
	follow.Since = seen.Snapshot
	read, seen, err = s.Logs(ctx, follow)
	require.NoError(t, err)
	require.Equal(t, []string{"d"}, texts(t, read))
	require.NoError(t, tx.Commit(ctx))
	follow.Since = seen.Snapshot
	read, _, err = s.Logs(ctx, follow)
	require.NoError(t, err)
	require.Len(t, read, 1)
	require.EqualValues(t, 90, read[0].First)

	// What later lines replace is deleted with them.
	require.NoError(t, s.KeepLogs(ctx, nil, []store.DroppedLog{{Task: task, Token: 7, Range: attemptlog.Range{From: at, Upto: at.Add(time.Hour), FromLine: 1, UptoLine: 3}}}, nil))
	read, _, err = s.Logs(ctx, all)
	require.NoError(t, err)
	require.Len(t, read, 3, "a, b and the one of the transaction")
}

func TestTheLatestProgressOfAStepIsKept(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	ctx := context.Background()
	task := uuid.Must(uuid.NewV7())
	say := func(token int64, fraction float64) store.StepProgress {
		return store.StepProgress{Task: task, Step: 3, Token: token, Fraction: fraction, Message: strings.Repeat("m", 10)}
	}
	require.NoError(t, s.KeepLogs(ctx, nil, nil, []store.StepProgress{say(5, 0.5), say(6, 0.25)}))
	require.NoError(t, s.KeepLogs(ctx, nil, nil, []store.StepProgress{say(5, 0.75)}), "of a claim that was lost")
	require.Equal(t, "6 0.25", db.QueryString(t, `select token || ' ' || fraction from tasker.attempt_progress where task_uuid = $1`, task))
	require.NoError(t, s.KeepLogs(ctx, nil, nil, []store.StepProgress{say(6, 1)}))
	require.Equal(t, "6 1", db.QueryString(t, `select token || ' ' || fraction from tasker.attempt_progress where task_uuid = $1`, task))
}
