package store

import (
	"context"
	"errors"
	"time"
)

// Continuation is the next task that a handler names when it ends its step.
type Continuation struct {
	Claim    ClaimKey
	StepName string
	Actor    string // recorded in the history of the continued task
	Next     NewTask
}

// continueTask links two tasks: the event is on the continued task, the column on the
// next one. Fields that the request left empty are taken from the old task. A task with a
// claimed step is in process, whatever its stored state.
// Index: the primary keys.
const continueTask = `
with told as (
    insert into tasker.task_events (task_uuid, at, from_state, to_state, actor, reason, metadata)
    select task_uuid, clock_timestamp(), greatest(task_state, 4), greatest(task_state, 4), $6, 'continued by ' || $2::uuid,
           jsonb_build_object('continued_by', $2::uuid, 'step', $3::int, 'step_name', $4::text, 'token', $5::bigint)
    from tasker.board where task_uuid = $1::uuid and slot = 0
)
update tasker.tasks n
set continues_task_uuid = o.task_uuid, initiator = coalesce(n.initiator, o.initiator),
    source_system = coalesce(n.source_system, o.source_system), tags = coalesce(n.tags, o.tags)
from tasker.tasks o
where n.task_uuid = $2::uuid and o.task_uuid = $1::uuid and not $7::bool`

// ErrContinuesItself says that the next task has the identity of the task that it continues.
var ErrContinuesItself = errors.New("the next task is the task itself")

// Continue creates the next task within the transaction and links both, see
// CreateTasksIn. It is committed with the report of the step, whose fence decides about
// all of it. A duplicate is recorded as the next task and stays unchanged. After an error
// the transaction must be rolled back.
func (w *Work) Continue(ctx context.Context, c Continuation) (created CreatedTask, err error) {
	if err := w.reportable(); err != nil { // outside its transaction the task would stay
		return created, err
	}
	defer w.observe("continue", time.Now(), &err)
	rows, err := CreateTasksIn(ctx, w.tx, AnnounceNothing, c.Next)
	if err != nil {
		return created, err
	}
	created = rows[0]
	if created.UUID == c.Claim.TaskUUID {
		return created, ErrContinuesItself
	}
	err = guestOf(w.tx).exec(ctx, continueTask, [16]byte(c.Claim.TaskUUID), [16]byte(created.UUID), c.Claim.Step, c.StepName, c.Claim.Token, c.Actor, created.Duplicate)
	if err != nil {
		return created, classify("link a task with the next one", err)
	}
	if !created.Duplicate {
		w.Announce(CreateSignals([]NewTask{c.Next})...)
	}
	return created, nil
}
