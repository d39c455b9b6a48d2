package orchestration_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// refuse makes the database reject the attempts of the tasks that the SQL condition
// which selects; the row is called new.
func (h *signalled) refuse(which string) {
	h.db.Exec(h.t, `create or replace function refuse() returns trigger language plpgsql as $$
		begin
			if `+which+` then raise exception 'refused by the test' using errcode = 'check_violation'; end if;
			return new;
		end $$`)
	h.db.Exec(h.t, `create or replace trigger refuse before insert on tasker.step_attempts for each row execute function refuse()`)
}

// TestOneTaskThatCannotBeAppliedHoldsUpNoOthers: it ends in the dead letter queue
// once others have gone through, with what was reported in the ledger.
func TestOneTaskThatCannotBeAppliedHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	h := startSignalled(t, func(*pgtest.DB) {})
	ids := h.reported(7)
	h.refuse(`new.outcome <> 5 and new.task_uuid = '` + ids[3].String() + `'`)
	h.sendSignal()
	for i, id := range ids {
		if i != 3 {
			h.eventually(h.ended(id), "another task that cannot be applied blocks this one")
		}
	}
	last := h.reported(1)[0]
	h.sendSignal()
	h.eventually(h.ended(last), "a task that cannot be applied blocks a later one")
	h.eventually(func() bool {
		ends, err := h.store.TaskEnds(t.Context(), ids)
		return err == nil && ends[ids[3]] == workflow.TaskError
	}, "the task that cannot be applied does not end")
	letter, err := h.store.DeadLetterOfTask(t.Context(), ids[3])
	require.NoError(t, err)
	require.Equal(t, "cannot_be_applied", letter.Detail)
	require.True(t, h.db.QueryBool(t, `select result = '{}' and task_reason like 'what was reported cannot be applied%' from tasker.step_attempts where task_uuid = $1`, ids[3]),
		"the report is in the ledger, without the text of the database error")
}

// TestATaskThatCannotBeEndedEitherStaysAsItIs: it is applied once the fault is repaired.
func TestATaskThatCannotBeEndedEitherStaysAsItIs(t *testing.T) {
	t.Parallel()
	h := startSignalled(t, func(*pgtest.DB) {})
	ids := h.reported(3)
	h.refuse(`new.task_uuid = '` + ids[0].String() + `'`)
	h.sendSignal()
	for _, id := range ids[1:] {
		h.eventually(h.ended(id), "another task that cannot be applied blocks this one")
	}
	require.Equal(t, 1, h.db.QueryInt(t, `select count(*) from tasker.board where task_uuid = $1 and state = 4`, ids[0]))
	h.refuse(`false`)
	h.eventually(h.ended(ids[0]), "the task is not tried again")
}

// TestNoTaskEndsBecauseNothingCanBeApplied: the database is at fault. The tasks are
// tried again, and not before their time.
func TestNoTaskEndsBecauseNothingCanBeApplied(t *testing.T) {
	t.Parallel()
	h := startSignalled(t, func(*pgtest.DB) {})
	ids := h.reported(3)
	h.refuse(`new.outcome <> 5`)
	refusals := func() *observer.ObservedLogs { return h.logs.FilterMessageSnippet("which is set aside") }
	h.sendSignal()
	h.eventually(func() bool { return refusals().Len() > 0 }, "the tasks are not tried")
	for range 5 {
		h.sendSignal() // looks that leave them out
	}
	h.eventually(func() bool { return refusals().Len() > 9 }, "the tasks are not tried again")
	until := map[any]time.Time{}
	for _, line := range refusals().All() {
		fields := line.ContextMap()
		at, isTime := fields["until"].(time.Time)
		tries, isNumber := fields["rejections"].(int64)
		require.True(t, isTime && isNumber, fields)
		if before, again := until[fields["task_uuid"]]; again {
			require.GreaterOrEqual(t, at.Sub(before), time.Second<<(tries-1), "tried before its time, or no later than before")
		}
		until[fields["task_uuid"]] = at
	}
	require.Equal(t, 3, h.db.QueryInt(t, `select count(*) from tasker.board where state = 4`))
	require.Zero(t, h.db.QueryInt(t, `select count(*) from tasker.step_attempts`))
	h.refuse(`false`)
	for _, id := range ids {
		h.eventually(h.ended(id), "the task is not tried again")
	}
}

// TestEndsThatCannotBeDecidedAreRecorded: of executions that end together the database rejects
// the decision about one. All are accepted, and the others decided.
func TestEndsThatCannotBeDecidedAreRecorded(t *testing.T) {
	t.Parallel()
	h := startSignalled(t, func(*pgtest.DB) {})
	ids, claimed := h.claimed(3, time.Hour)
	h.refuse(`new.outcome <> 5 and new.task_uuid = '` + ids[1].String() + `'`)
	reports := make([]store.Report, len(claimed))
	for i := range claimed {
		reports[i] = store.Report{ClaimKey: claimed[i].Key(), Success: true, Result: json.RawMessage(`{}`), RetryAfter: -1}
	}
	endings, err := h.End(t.Context(), reports)
	require.NoError(t, err)
	for _, ending := range endings {
		require.True(t, ending.Accepted)
	}
	for i, id := range ids {
		if i != 1 {
			h.eventually(h.ended(id), "a task that cannot be applied blocks another one")
		}
	}
	h.refuse(`false`)
	h.eventually(h.ended(ids[1]), "the task is not tried again")
}
