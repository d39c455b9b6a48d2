package store

import "strings"

// The columns of the board, except its key and the queue, which both have. A test
// compares them with the catalogue: a new column must be added here.
var (
	// columnsOfSteps belong to a step and move with it.
	columnsOfSteps = []string{"seq", "token", "lease_until", "claimed_at", "reported_at", "worker", "due_at", "enqueued_at", "retry_after_ms",
		"callable", "lane", "step_no", "state", "attempt", "outcome", "retryable", "parents", "inputs", "tags", "result", "error", "batch", "checkpoint",
		"wait", "awaits", "events", "last_attempt", "ahead"}
	// columnsOfTasks belong to the task and stay in slot 0.
	columnsOfTasks = []string{"requested_at", "state_since", "updated_at", "processor", "correlation_id", "parent_correlation_id", "plan_id",
		"task_state", "priority", "watched", "progress", "context", "deadline", "dead_letter", "awaited"}
	// columnsWithZero are step columns that are 0 without a step; the others are null.
	columnsWithZero = []string{"seq", "callable", "lane", "state", "attempt"}
)

// spreadTasks gives the step in a task's own row its own row, since an action may add
// others. Its worker finds it there, see ownSlot. A step that is held until other tasks
// have ended stays held.
// Index: the primary key.
var spreadTasks = compile(`
with held as materialized (
    select * from tasker.board where task_uuid = any ((select @tasks::uuid[])::uuid[]) and slot = 0 and state <> {no_step}
    order by task_uuid for update
), apart as (
    insert into tasker.board (task_uuid, slot, queue, ` + strings.Join(columnsOfSteps, ", ") + `)
    select task_uuid, step_no + 1, queue, ` + strings.Join(columnsOfSteps, ", ") + ` from held
)
update tasker.board t set ` + noStepHere() + `
from held h where t.task_uuid = h.task_uuid and t.slot = 0`)

// noStepHere empties the columns of a step.
func noStepHere() string {
	sets := make([]string, len(columnsOfSteps))
	for i, column := range columnsOfSteps {
		sets[i] = column + " = null"
		for _, counted := range columnsWithZero {
			if column == counted {
				sets[i] = column + " = 0"
			}
		}
	}
	return strings.Join(sets, ", ")
}
