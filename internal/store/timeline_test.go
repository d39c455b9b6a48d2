package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

func changes(events []store.TaskEvent) (list []string) {
	for _, e := range events {
		list = append(list, e.From+" "+e.To)
	}
	return list
}

// The ordinary transitions of a task are not recorded, and yet shown.
func TestTimelineOfAPlainTask(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, pairYAML)
	id := create(t, s, p, 1)[0]
	tl, err := s.Timeline(t.Context(), id)
	require.NoError(t, err)
	require.Empty(t, tl.Events, "it has not begun")

	first := claim(t, s, p, 1)[0]
	tl, err = s.Timeline(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []string{"pending steps_in_process"}, changes(tl.Events), "the claim alone shows it")
	require.Positive(t, tl.Events[0].Seconds)

	report(t, s, succeed(first, `1`))
	applyAll(t, s)
	report(t, s, succeed(claim(t, s, p, 1)[0], `2`))
	applyAll(t, s)
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.task_events`))
	begun := tl.Events[0]
	tl, err = s.Timeline(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []string{"pending steps_in_process", "evaluating_results complete"}, changes(tl.Events))
	require.Equal(t, begun, tl.Events[0])
	require.InDelta(t, tl.Completed, tl.Events[1].Seconds, 1e-6)
}

func TestTimelineOfATaskThatNeverBegan(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, pairYAML)
	id := create(t, s, p, 1)[0]
	cancel(t, s, id, "enough")
	tl, err := s.Timeline(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []string{"pending cancelled"}, changes(tl.Events))
}

// A recorded event may have a time before the claim it followed: its transaction had
// begun earlier.
func TestTimelineGoesForward(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, pairYAML)
	id := create(t, s, p, 1)[0]
	report(t, s, fail(claim(t, s, p, 1)[0], true, "one"))
	applyAll(t, s)
	db.Exec(t, `update tasker.task_events set at = (select requested_at from tasker.tasks)`)
	tl, err := s.Timeline(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []string{"pending steps_in_process", "steps_in_process waiting_for_retry"}, changes(tl.Events))
	require.InDelta(t, tl.Events[0].Seconds, tl.Events[1].Seconds, 0)
}

func TestAttemptsTellWhoRanAndWhatCameOfIt(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, pairYAML)
	id := create(t, s, p, 1)[0]
	worker := uuid.Must(uuid.NewV7())
	take := func() store.Claimed {
		claimed, _, err := s.Claim(t.Context(), store.ClaimRequest{Worker: worker, Callables: p.Callables, Limit: 1, Lease: time.Minute}, true)
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		return claimed[0]
	}
	report(t, s, fail(take(), true, "one"))
	applyAll(t, s)
	db.Exec(t, `update tasker.board set due_at = now() - interval '1 s' where state = 1`)
	_, err := s.PromoteDue(t.Context(), store.UpTo(10))
	require.NoError(t, err)
	report(t, s, succeed(take(), `{"n":2}`))
	applyAll(t, s)

	attempts, err := s.Attempts(t.Context(), id, 0)
	require.NoError(t, err)
	require.Len(t, attempts, 2)
	for i, outcome := range []string{"failed", "success"} {
		require.Equal(t, fmt.Sprint(i+1, outcome), fmt.Sprint(attempts[i].Attempt, attempts[i].Outcome))
		require.Equal(t, &worker, attempts[i].Worker)
		require.Less(t, attempts[i].Claimed, attempts[i].Reported)
	}
	require.Contains(t, string(attempts[0].Error), "one")
	require.Nil(t, attempts[0].Result)
	require.JSONEq(t, `{"n":2}`, string(attempts[1].Result))
	require.Nil(t, attempts[1].Error)

	task, err := s.Task(t.Context(), id)
	require.NoError(t, err)
	step := task.Steps[0]
	require.InDelta(t, attempts[1].Claimed, step.StartedAt.Sub(task.RequestedAt).Seconds(), 1e-6)
	require.InDelta(t, attempts[1].Reported, step.ReportedAt.Sub(task.RequestedAt).Seconds(), 1e-6)

	tl, err := s.Timeline(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, &worker, tl.Attempts[1].Worker)
	require.Nil(t, tl.Attempts[1].Result, "a whole history comes without results")
	for _, none := range []struct {
		task uuid.UUID
		step int
	}{{id, 1}, {id, 99}, {uuid.Must(uuid.NewV7()), 0}} {
		attempts, err = s.Attempts(t.Context(), none.task, none.step)
		require.NoError(t, err)
		require.Empty(t, attempts)
	}
}
