package store

import (
	"errors"

	"github.com/tasker-go/tasker/workflow"
)

// quarantineTasks removes tasks with contradictory records from the board, and records
// their claims and reports in the ledger.
// Index: the primary key.
const quarantineTasks = `
with gone as (
    delete from tasker.board s
    using unnest($1::uuid[], $2::text[], $3::bytea[]) o(task_uuid, reason, progress)
    where s.task_uuid = o.task_uuid
    returning s.task_uuid, s.slot, s.step_no, s.attempt, s.token, s.worker, s.enqueued_at, s.claimed_at, s.reported_at, s.result, s.error,
              s.checkpoint, o.reason, o.progress, ` + calledOff + ` as sub_task
), stopped as (
    insert into tasker.task_messages (task_uuid, kind) select sub_task, 2 from gone where sub_task is not null
)
insert into tasker.step_attempts (task_uuid, step_no, attempt, token, worker, enqueued_at, claimed_at, reported_at, applied_at,
                                  outcome, reason, result, error, checkpoint, task_state, task_reason, task_progress)
select task_uuid, case when token is null then -1 else step_no end, case when token is null then 0 else attempt end, coalesce(token, 0),
       worker, enqueued_at, claimed_at, reported_at, clock_timestamp(), 5, reason, result, error, checkpoint,
       case when slot = 0 then 10 end, case when slot = 0 then reason end, case when slot = 0 then progress end
from gone where token is not null or slot = 0`

// brokenColumns are tasks that go into quarantine.
type brokenColumns struct {
	tasks      uuids
	reasons    []string
	progresses [][]byte
}

func (w *writes) quarantine(c *Change) error {
	t := c.Task
	if c.Action == nil || c.Effects.DeadLetter == nil {
		return errors.New("want an action and a reason for a quarantine")
	}
	progress := t.Progress
	if progress == nil {
		progress = &workflow.Progress{} // the recorded progress cannot be read
	}
	w.broken.tasks = append(w.broken.tasks, t.UUID)
	w.broken.reasons = append(w.broken.reasons, c.Action.Reason)
	w.broken.progresses = append(w.broken.progresses, progress.Encode())
	w.letters.add(c)
	if t.Watched {
		w.watched = append(w.watched, t.UUID.String())
	}
	if t.Awaited {
		w.notifyDependents(t.UUID)
	}
	w.message() // its sub-workflows are called off
	w.finished++
	return w.performed(c)
}
