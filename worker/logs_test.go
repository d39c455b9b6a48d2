package worker

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tasker-go/tasker/internal/attemptlog"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// keptLines are the lines that the board has, in the order in which they were written.
func (b *fakeBoard) keptLines(t *testing.T) (lines []attemptlog.Line) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.logs {
		read, err := attemptlog.NewReader().Read(&b.logs[i].Chunk)
		require.NoError(t, err)
		lines = append(lines, read...)
	}
	return lines
}

func textsOf(lines []attemptlog.Line) (texts []string) {
	for _, l := range lines {
		texts = append(texts, l.Text)
	}
	return texts
}

func TestWhatAHandlerLogsIsKeptWithinASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics, last := telemetry.Discard(), make(chan struct{})
		r := newRig(t, Config{MaxConcurrent: 1, Metrics: metrics}, func(ctx *StepContext) (any, error) {
			ctx.Logger().Debug("not of the level")
			ctx.Logger().Info("begun", zap.String("token", "secret"), zap.Int("n", 1))
			ctx.KeepLine(time.Unix(1, 0), zapcore.WarnLevel, "of a process", json.RawMessage(`{"password": "secret", "k": [1]}`))
			ctx.KeepLine(time.Unix(1, 0), zapcore.ErrorLevel, "bad fields", json.RawMessage(`{"password": "secret"`))
			ctx.Progress(0.5, "half\x00way")
			<-last
			ctx.Logger().Error("at the end")
			return 1, nil
		})
		r.start(t)
		r.offer(1, stepOnly)
		require.Empty(t, r.board.keptLines(t), "lines wait for others")
		time.Sleep(time.Second)
		synctest.Wait()
		lines := r.board.keptLines(t)
		require.Equal(t, []string{"begun", "of a process", "bad fields"}, textsOf(lines))
		require.JSONEq(t, `{"token": "****", "n": 1}`, string(lines[0].Fields))
		require.JSONEq(t, `{"password": "****", "k": [1]}`, string(lines[1].Fields))
		require.Empty(t, lines[2].Fields)
		require.Equal(t, attemptlog.Warn, lines[1].Level)
		require.Len(t, r.board.said, 1)
		require.InDelta(t, 0.5, r.board.said[0].Fraction, 1e-9)
		require.Equal(t, "half\ufffdway", r.board.said[0].Message)
		close(last)
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, "at the end", r.board.keptLines(t)[3].Text, "an end waits for nothing")
		require.Equal(t, int64(3), r.board.keptLines(t)[3].Number)
		require.InDelta(t, 4, testutil.ToFloat64(metrics.AttemptLogLines.WithLabelValues("kept")), 0)
		require.Zero(t, testutil.ToFloat64(metrics.AttemptLogPending))
		r.stop(t)
	})
}

// Executions that yield and go on are one attempt: its lines go on, too.
func TestTheLogOfAnAttemptGoesOnAfterAYield(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sliced := slicing(100, 25)
		r := newRig(t, Config{MaxConcurrent: 1}, func(ctx *StepContext) (any, error) {
			ctx.Logger().Info("a slice")
			return sliced(ctx)
		})
		r.start(t)
		r.offer(1, stepOnly)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		lines := r.board.keptLines(t)
		require.Len(t, lines, 4)
		require.Equal(t, int64(3), lines[3].Number)
		tokens := map[int64]bool{}
		for _, c := range r.board.logs {
			tokens[c.Token] = true
		}
		require.Len(t, tokens, 1)
		r.stop(t)
	})
}

// A database that does not take lines delays no report, and gets them later.
func TestLogsDelayNoReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 5}, func(ctx *StepContext) (any, error) {
			ctx.Logger().Info("a line")
			return 1, nil
		})
		r.board.deafLogs = func([]store.LogChunk) error { return store.ErrUnavailable }
		r.start(t)
		r.offer(5, stepOnly)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, r.board.reported(), 5)
		r.board.mu.Lock()
		r.board.deafLogs = nil
		r.board.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, r.board.keptLines(t), 5)
		r.stop(t)
	})
}

// The log of one attempt that the database rejects costs no other its lines.
func TestARejectedLogStopsNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics := telemetry.Discard()
		r := newRig(t, Config{MaxConcurrent: 10, Metrics: metrics}, func(ctx *StepContext) (any, error) {
			ctx.Logger().Info(ctx.TaskUUID().String())
			return 1, nil
		})
		var culprit string
		r.board.deafLogs = func(chunks []store.LogChunk) error {
			for _, c := range chunks {
				if culprit == "" {
					culprit = c.Task.String()
				}
				if c.Task.String() == culprit {
					return sqlError("P0001")
				}
			}
			r.board.logs = append(r.board.logs, chunks...)
			return nil
		}
		r.start(t)
		r.offer(10, stepOnly)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Len(t, r.board.keptLines(t), 9)
		require.NotContains(t, textsOf(r.board.keptLines(t)), culprit)
		require.InDelta(t, 1, testutil.ToFloat64(metrics.AttemptLogLines.WithLabelValues("rejected")), 0)
		require.Len(t, r.board.reported(), 10)
		r.stop(t)
	})
}

// A worker that stops writes what its handlers have logged last.
func TestAStopWritesTheLastLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 1, ShutdownTimeout: 10 * time.Second, Logs: LogConfig{FlushAfter: time.Hour}}, func(ctx *StepContext) (any, error) {
			ctx.Logger().Info("before")
			<-ctx.Done()
			ctx.Logger().Info("the context has ended")
			return nil, ctx.Err()
		})
		r.start(t)
		r.offer(1, stepOnly)
		r.stop(t)
		require.Equal(t, []string{"before", "the context has ended"}, textsOf(r.board.keptLines(t)))
	})
}

// A stop does not wait for a database that takes no lines.
func TestAStopDoesNotWaitForLogs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 1, ShutdownTimeout: 10 * time.Second}, func(ctx *StepContext) (any, error) {
			ctx.Logger().Info("a line")
			return 1, nil
		})
		r.board.deafLogs = func([]store.LogChunk) error { return store.ErrUnavailable }
		r.start(t)
		r.offer(1, stepOnly)
		time.Sleep(30 * time.Second) // the line is being sent again and again
		synctest.Wait()
		begun := time.Now()
		r.stop(t)
		require.Less(t, time.Since(begun), 10*time.Second)
		require.Len(t, r.board.reported(), 1)
	})
}

// A handler that logs much keeps its first and its last lines, and the worker its memory.
func TestAHandlerThatLogsMuchKeepsItsEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics := telemetry.Discard()
		r := newRig(t, Config{MaxConcurrent: 1, Metrics: metrics, Logs: LogConfig{MaxKeptBytes: 64 << 10, MaxPendingBytes: 256 << 10}}, func(ctx *StepContext) (any, error) {
			for range 20_000 {
				ctx.Logger().Info(strings.Repeat("x", 100))
			}
			ctx.Logger().Error("the reason")
			return 1, nil
		})
		r.start(t)
		r.offer(1, stepOnly)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		lines := r.board.keptLines(t)
		require.Zero(t, lines[0].Number)
		require.Equal(t, "the reason", lines[len(lines)-1].Text)
		require.EqualValues(t, 20_000, lines[len(lines)-1].Number)
		require.Less(t, len(lines), 3_000)
		dropped := testutil.ToFloat64(metrics.AttemptLogLines.WithLabelValues("dropped"))
		require.InDelta(t, 20_001-len(lines), dropped, 0, "what is not kept is counted")
		r.stop(t)
	})
}

func TestHandlersThatLogNothingWriteNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		called := false
		r := newRig(t, Config{MaxConcurrent: 1}, func(ctx *StepContext) (any, error) {
			ctx.Logger().Debug("not of the level")
			return 1, nil
		})
		r.board.deafLogs = func([]store.LogChunk) error { called = true; return nil }
		r.start(t)
		r.offer(3, stepOnly)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Len(t, r.board.reported(), 3)
		require.False(t, called)
		r.stop(t)
	})
}
