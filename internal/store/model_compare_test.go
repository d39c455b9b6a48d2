package store_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// compare compares the whole database with the model, and reads the sequence numbers.
func (m *model) compare(t *rapid.T) {
	m.compareSteps(t)
	m.compareTasks(t)
	rows, err := m.pool.Query(m.ctx, `select task_uuid, step_no, attempt, case when claimed_at is null then 0 else token end, outcome, checkpoint
		from tasker.step_attempts where step_no >= 0`)
	require.NoError(t, err)
	ledger := map[string]bool{}
	lines, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var id uuid.UUID
		var step, attempt int
		var token int64
		var outcome workflow.AttemptOutcome
		var checkpoint json.RawMessage
		err := row.Scan(&id, &step, &attempt, &token, &outcome, &checkpoint)
		return ledgerLine(id, step, attempt, token, outcome, cursorOf(checkpoint)), err
	})
	require.NoError(t, err)
	for _, line := range lines {
		require.False(t, ledger[line], "recorded twice: %s", line)
		ledger[line] = true
	}
	require.Equal(t, m.ledger, ledger)
}

func (m *model) compareSteps(t *rapid.T) {
	rows, err := m.pool.Query(m.ctx, `select task_uuid, step_no, state, attempt, coalesce(token, 0), lane, seq, coalesce(outcome, 0), callable, slot, checkpoint from tasker.board where step_no is not null`)
	require.NoError(t, err)
	found := map[string]bool{}
	var (
		id       uuid.UUID
		no       int
		callable int32
		got      modelStep
		saved    json.RawMessage
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &no, &got.state, &got.attempt, &got.token, &got.lane, &got.seq, &got.outcome, &callable, &got.slot, &saved}, func() error {
		where := fmt.Sprintf("step %d of %s", no, id)
		task := m.tasks[id]
		if task == nil || task.steps[no] == nil {
			return fmt.Errorf("%s must not be on the board", where)
		}
		want := task.steps[no]
		if want.state != 4 {
			want.outcome = 0
		}
		require.Equal(t, []any{want.state, want.attempt, want.token, want.lane, want.outcome, task.plan.Callables[no], want.saved},
			[]any{got.state, got.attempt, got.token, got.lane, got.outcome, callable, cursorOf(saved)}, where)
		if got.slot == 0 {
			require.Len(t, task.steps, 1, "%s is in the task's own row", where)
		} else {
			require.Equal(t, no+1, got.slot, where)
		}
		require.GreaterOrEqual(t, got.seq, want.seq, "%s: sequence numbers only grow", where)
		want.seq = got.seq
		found[where] = true
		return nil
	})
	require.NoError(t, err)
	for id, task := range m.tasks {
		for no := range task.steps {
			require.True(t, found[fmt.Sprintf("step %d of %s", no, id)], "step %d of %s must be on the board", no, id)
		}
	}
}

func (m *model) compareTasks(t *rapid.T) {
	rows, err := m.pool.Query(m.ctx, `select t.task_uuid, b.task_state, e.task_state, coalesce(e.task_progress, b.progress), e.applied_at is not null
		from tasker.tasks t left join tasker.board b on b.task_uuid = t.task_uuid and b.slot = 0
		left join tasker.step_attempts e on e.task_uuid = t.task_uuid and e.task_state is not null`)
	require.NoError(t, err)
	var (
		id          uuid.UUID
		live, final *int16
		progress    []byte
		completed   bool
		count       int
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &live, &final, &progress, &completed}, func() error {
		count++
		task := m.tasks[id]
		require.NotNil(t, task, "task %s must not exist", id)
		state := int16(task.state)
		if task.state.Terminal() {
			require.Nil(t, live, "task %s has ended", id)
			require.Equal(t, &state, final)
		} else {
			require.Equal(t, &state, live)
			require.Nil(t, final)
		}
		require.Equal(t, task.state.Terminal(), completed)
		require.Equal(t, task.progress.Encode(), progress)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, len(m.tasks), count)
}

// finish runs every task to its end: running steps succeed, blocked ones are cancelled.
// Then nothing may be left, and the records must agree.
func (m *model) finish(t *rapid.T) {
	for _, id := range m.order {
		if m.tasks[id].state == workflow.TaskBlockedByFailures {
			m.cancelTask(t, id)
		}
	}
	for round := 0; m.onBoard() > 0; round++ {
		require.Less(t, round, 200, "the tasks come to no end")
		m.compare(t)
		due := m.makeDue(t, func() bool { return true })
		_, err := m.stores[0].PromoteDue(m.ctx, store.UpTo(1000))
		require.NoError(t, err)
		for _, s := range due {
			s.state = 2
		}
		m.succeedAll(t)
		m.compare(t)
		taken, err := m.stores[1].TakeReported(m.ctx, 1000, true)
		require.NoError(t, err)
		m.commit(t, taken)
		for _, id := range m.order {
			if m.tasks[id].state == workflow.TaskBlockedByFailures {
				m.cancelTask(t, id)
			}
		}
	}
	m.compare(t)
	var left int
	require.NoError(t, m.pool.QueryRow(m.ctx, `select count(*) from tasker.board`).Scan(&left))
	require.Zero(t, left, "the board is empty")
	report, err := m.stores[0].CheckIntegrity(m.ctx, modelRules)
	require.NoError(t, err)
	require.Empty(t, report.Violations)
	require.Equal(t, len(m.tasks), report.Tasks)
	require.Equal(t, len(m.ledger), report.Attempts)
}

func (m *model) onBoard() (n int) {
	for _, task := range m.tasks {
		n += len(task.steps)
	}
	return n
}

// succeedAll claims everything and reports success for all that runs.
func (m *model) succeedAll(t *rapid.T) {
	req := store.ClaimRequest{Callables: m.callables(), Limit: 1000, Tags: []string{"gpu"}, Lease: time.Hour}
	claimed, _, err := m.stores[0].Claim(m.ctx, req, true)
	require.NoError(t, err)
	m.looked(0, req, claimed)
	for _, c := range claimed {
		s := m.tasks[c.TaskUUID].steps[c.Step]
		require.EqualValues(t, 2, s.state)
		s.state, s.attempt, s.token, s.slot = 3, c.Attempt, c.Token, c.Slot
	}
	var reports []store.Report
	for _, id := range m.order {
		for no, s := range m.tasks[id].steps {
			if s.state == 3 {
				k := store.ClaimKey{TaskUUID: id, Slot: s.slot, Step: no, Token: s.token}
				reports = append(reports, store.Report{ClaimKey: k, Success: true, Result: json.RawMessage(`{}`), RetryAfter: -1})
				s.state, s.outcome, s.retryable, s.retryAfter = 4, workflow.OutcomeSuccess, false, -1
			}
		}
	}
	accepted, err := m.stores[0].Report(m.ctx, reports)
	require.NoError(t, err)
	require.NotContains(t, accepted, false)
}
