package rest_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/attemptlog"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// logged writes lines of an attempt as a worker does, in chunks of perChunk lines.
func logged(t *testing.T, e *enginetest.Engine, of store.LogOf, from time.Time, lines, perChunk int) {
	t.Helper()
	m := attemptlog.NewMemory[int](attemptlog.Bounds{Kept: 16 << 20, Line: 1 << 10, Pending: 16 << 20}, func() {})
	l := m.NewLog(0)
	for n := range lines {
		level := attemptlog.Info
		if n%10 == 9 {
			level = attemptlog.Error
		}
		l.Add(from.Add(time.Duration(n)*time.Millisecond), level, fmt.Sprintf("step %d, Line %d", of.Step, n), fmt.Appendf(nil, `{"n":%d}`, n))
		if n%perChunk == perChunk-1 || n == lines-1 {
			chunks, _ := l.Take()
			for _, c := range chunks {
				require.NoError(t, e.Store.KeepLogs(t.Context(), []store.LogChunk{{LogOf: of, Chunk: c}}, nil, nil))
			}
		}
	}
}

func TestTheLogsOfATask(t *testing.T) {
	t.Parallel()
	base, transport, e := operatedAt(t)
	c := client.New(client.Config{BaseURL: base, HTTP: &http.Client{Transport: transport}})
	task := ended(t, c, "good", "complete")
	id, at := uuid.MustParse(task.TaskUUID), time.Now().Add(-time.Minute)
	empty, err := c.TaskLogs(t.Context(), task.TaskUUID, client.LogOptions{Text: "Line"})
	require.NoError(t, err)
	require.Empty(t, empty.Lines)
	logged(t, e, store.LogOf{Task: id, Step: 0, Token: 5, Attempt: 1}, at, 100, 7)
	logged(t, e, store.LogOf{Task: id, Step: 1, Token: 6, Attempt: 2}, at.Add(50*time.Millisecond), 40, 100)

	for _, limit := range []int{1, 3, 7, 50, 5_000} {
		var lines []client.LogLine
		for o := (client.LogOptions{Limit: limit, Text: "lINE"}); ; {
			page, err := c.TaskLogs(t.Context(), task.TaskUUID, o)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page.Lines), limit)
			lines = append(lines, page.Lines...)
			if o.After = page.Next; page.Next == "" {
				break
			}
		}
		require.Len(t, lines, 140, "in pages of %d", limit)
		seen := map[string]bool{}
		for _, l := range lines {
			require.Zero(t, l.DroppedBefore)
			require.Equal(t, fmt.Sprintf("step %d, Line %d", l.StepNo, l.Line), l.Text)
			require.Equal(t, []string{"first", "second"}[l.StepNo], l.StepName)
			seen[l.Text] = true
		}
		require.Len(t, seen, 140)
	}
	page, err := c.TaskLogs(t.Context(), task.TaskUUID, client.LogOptions{Level: "error"})
	require.NoError(t, err)
	require.Len(t, page.Lines, 14)
	require.True(t, isSorted(page.Lines))
	page, err = c.TaskLogs(t.Context(), task.TaskUUID, client.LogOptions{Step: "second", Attempt: 2, Text: "line 3"})
	require.NoError(t, err)
	require.Len(t, page.Lines, 11)
	page, err = c.TaskLogs(t.Context(), task.TaskUUID, client.LogOptions{Attempt: 3})
	require.NoError(t, err)
	require.Empty(t, page.Lines)
	for _, wrong := range []client.LogOptions{{Step: "third"}, {Level: "loud"}, {Attempt: -1}, {Limit: 5_001}, {After: "x"}, {After: "1.2.3.4.5.6"}} {
		_, err = c.TaskLogs(t.Context(), task.TaskUUID, wrong)
		require.Error(t, err, "%+v", wrong)
	}
	_, err = c.TaskLogs(t.Context(), uuid.NewString(), client.LogOptions{})
	require.True(t, client.IsNotFound(err))

	// Lines that are not kept are counted, and a damaged chunk stops no other.
	e.DB.Exec(t, `delete from tasker.attempt_logs where token = 5 and first_line = 14`)
	e.DB.Exec(t, `update tasker.attempt_logs set content = 'damaged' where token = 5 and first_line = 28`)
	page, err = c.TaskLogs(t.Context(), task.TaskUUID, client.LogOptions{Step: "first"})
	require.NoError(t, err)
	require.Len(t, page.Lines, 100-14)
	require.Equal(t, 1, page.Unreadable)
	require.EqualValues(t, 21, page.Lines[14].Line)
	require.EqualValues(t, 7, page.Lines[14].DroppedBefore)
}

func isSorted(lines []client.LogLine) bool {
	for i := 1; i < len(lines); i++ {
		if lines[i].At.Before(lines[i-1].At) {
			return false
		}
	}
	return true
}

// A stream has the lines that are there, those that follow, and ends after its task; one that breaks
// goes on where it was.
func TestFollowingTheLogsOfATask(t *testing.T) {
	t.Parallel()
	m := telemetry.Discard()
	base, transport, e := operatedAt(t, func(o *rest.Orchestrator) { o.Metrics = m })
	c := client.New(client.Config{BaseURL: base, HTTP: &http.Client{Transport: transport}})
	slow, err := c.CreateTask(t.Context(), mood("slow"))
	require.NoError(t, err)
	of := store.LogOf{Task: uuid.MustParse(slow.TaskUUID), Step: 0, Token: 5, Attempt: 1}
	at := time.Now()
	logged(t, e, of, at, 100, 50)
	o, lines := client.LogOptions{Text: "Line"}, []int64{}
	for l, err := range c.FollowTaskLogs(t.Context(), slow.TaskUUID, o) {
		require.NoError(t, err)
		switch lines = append(lines, l.Line); len(lines) {
		case 100:
			of.Token = 6 // another attempt, whose worker has a clock that is behind
			logged(t, e, of, at.Add(-30*time.Second), 10, 3)
		case 110:
			_, err := c.CancelTask(t.Context(), slow.TaskUUID, client.Why{})
			require.NoError(t, err)
			of.Token = 7 // written after the end
			logged(t, e, of, at, 1, 1)
		}
	}
	require.Len(t, lines, 111)
	require.Eventually(t, func() bool { return testutil.ToFloat64(m.EventStreamsEnded.WithLabelValues("logs", "complete")) == 1 }, 30*time.Second, 20*time.Millisecond)
}
