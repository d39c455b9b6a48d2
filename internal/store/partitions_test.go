package store_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// idOf is a UUID of version 7 by a clock that shows the time.
func idOf(at time.Time) uuid.UUID {
	id := uuid.Must(uuid.NewV7())
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(at.UnixMilli()))
	copy(id[:6], ms[2:])
	return id
}

// TestTasksOfAClockThatIsDaysAhead: their day has no partition yet, and gets one later
// nevertheless.
func TestTasksOfAClockThatIsDaysAhead(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	ahead := newTask(p)
	ahead.UUID = idOf(time.Now().AddDate(0, 0, 10))
	_, err := s.CreateTasks(t.Context(), []store.NewTask{newTask(p), ahead})
	require.NoError(t, err)
	report(t, s, succeed(claim(t, s, p, 1)[0], `1`), succeed(claim(t, s, p, 1)[0], `1`))
	applyAll(t, s)
	strays := func() int {
		return db.QueryInt(t, `select (select count(*) from tasker.tasks_default) + (select count(*) from tasker.step_attempts_default)`)
	}
	require.Equal(t, 2, strays())

	made, err := s.EnsurePartitions(t.Context(), 12)
	require.NoError(t, err)
	parents := db.QueryInt(t, `select count(*) from pg_class where relnamespace = 'tasker'::regnamespace and relkind = 'p'`)
	require.Equal(t, 5*parents, made, "the days 8 to 12 of every table")
	require.Zero(t, strays())
	made, err = s.EnsurePartitions(t.Context(), 12)
	require.NoError(t, err)
	require.Zero(t, made)

	for {
		claimed := claim(t, s, p, 10)
		if len(claimed) == 0 {
			break
		}
		for _, c := range claimed {
			report(t, s, succeed(c, `2`))
		}
		applyAll(t, s)
	}
	task, err := s.Task(t.Context(), ahead.UUID)
	require.NoError(t, err)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.Zero(t, strays())
	noViolations(t, s)
}
