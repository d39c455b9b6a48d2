package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// What a waiting step awaits is one text, so that one index finds it: an event by
// namespace, name and key, a decision by its token, the end of a task by its UUID.
const (
	awaitsEvent    = "e"
	awaitsApproval = "a"
	awaitsTask     = "t"
	awaitsParts    = "\x1f" // cannot be in a name or a key
)

// eventAwaits is the text of an event: with a key for steps that know it, without for a
// task.
func eventAwaits(namespace, name, key string, task uuid.UUID) string {
	if key != "" {
		return awaitsEvent + namespace + awaitsParts + name + awaitsParts + "=" + key
	}
	return awaitsEvent + namespace + awaitsParts + name + awaitsParts + "@" + task.String()
}

// wait is the document of a waiting step.
type wait struct {
	Kind     string          `json:"kind"`
	Event    string          `json:"event,omitempty"`
	Key      string          `json:"key,omitempty"`
	Prompt   string          `json:"prompt,omitempty"`
	TaskUUID *uuid.UUID      `json:"task_uuid,omitempty"`
	Outcome  int16           `json:"outcome,omitempty"` // with the three below: its end when due
	Retry    bool            `json:"retryable,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Error    json.RawMessage `json:"error,omitempty"`
}

// waitForTasks is the kind of wait of a task's first steps while it depends on others.
const waitForTasks = "tasks"

// Waiting is what a step waits for.
type Waiting struct {
	Kind     string // of the step, or "tasks": those that its task depends on
	Event    string
	Key      string
	Prompt   string
	TaskUUID *uuid.UUID // the sub-workflow's task
	Until    *time.Time // nil: without limit
}

// endColumns are ends of waits, column by column.
type endColumns struct {
	outcomes        []*int16
	retryable       []*bool
	results, errors []*string
}

func (c *endColumns) add(end *workflow.StepEnd) {
	if end == nil {
		c.outcomes, c.retryable = append(c.outcomes, nil), append(c.retryable, nil)
		c.results, c.errors = append(c.results, nil), append(c.errors, nil)
		return
	}
	outcome := int16(workflow.OutcomeSuccess)
	var retryable *bool
	if end.Result == nil {
		outcome = int16(workflow.OutcomeFailed)
		retryable = &end.Retryable
	}
	c.outcomes, c.retryable = append(c.outcomes, &outcome), append(c.retryable, retryable)
	c.results, c.errors = append(c.results, jsonText(end.Result)), append(c.errors, jsonText(end.Error))
}

// reportWaits ends waits: they become reports like those of workers.
// Index: board_awaits.
const reportWaits = `
update tasker.board s
set state = 4, seq = nextval('tasker.step_seq'), due_at = null, reported_at = clock_timestamp(), awaits = null,
    outcome = r.outcome, retryable = r.retryable, result = r.result::jsonb, error = r.error::jsonb
from unnest((select $1::text[]), (select $2::smallint[]), (select $3::boolean[]), (select $4::text[]), (select $5::text[]))
     r(awaits, outcome, retryable, result, error)
where s.awaits = any (array[r.awaits collate "C"])
returning s.task_uuid, s.step_no`

// Approval is a step that waits for a decision.
type Approval struct {
	Token           string // allows one decision
	TaskUUID        uuid.UUID
	StepUUID        uuid.UUID
	Namespace, Task string // the name of the template
	Step            string
	Prompt          string
	Since           time.Time
	Until           *time.Time // nil: without limit
}

// approvals reads waiting approvals with their steps.
const approvals = `
select substr(s.awaits, 2), s.task_uuid, s.step_no, b.plan_id, coalesce(s.wait ->> 'prompt', ''), s.claimed_at, s.due_at, clock_timestamp()
from tasker.board s
cross join lateral (select plan_id, queue from tasker.board where task_uuid = s.task_uuid and slot = 0 limit 1) b `

// Parameters: limit, namespace, task.
// Index: board_awaits, or the primary key for those of a task.
const (
	listApprovals = approvals + `where ` + approvalsIn
	taskApprovals = approvals + `where s.task_uuid = $3 and s.slot > 0 and ` + approvalsIn

	approvalsIn = `s.awaits >= 'a' and s.awaits < 'b'
  and ($2 = '' or b.queue = (select namespace_id from tasker.namespaces where name = $2))
order by s.claimed_at, s.task_uuid, s.slot limit $1`
)

// ApprovalFilter selects approvals; zero values select all.
type ApprovalFilter struct {
	TaskUUID  *uuid.UUID
	Namespace string
	Limit     int // at least 1
}

// Approvals lists steps that wait for a decision, the oldest first.
func (s *Store) Approvals(ctx context.Context, f ApprovalFilter) (list []Approval, err error) {
	err = s.repeatable(ctx, "approvals", "list the approvals", func(ctx context.Context, db *conn) error {
		sql, args := listApprovals, []any{f.Limit, f.Namespace}
		if f.TaskUUID != nil {
			sql, args = taskApprovals, append(args, *f.TaskUUID)
		}
		rows, err := db.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		list, _, err = s.collectApprovals(ctx, db, rows)
		return err
	})
	return list, err
}

// standingApproval is an approval with the data for its decision.
type standingApproval struct {
	step *workflow.PlanStep
	now  time.Time
}

func (s *Store) collectApprovals(ctx context.Context, db querier, rows pgx.Rows) ([]Approval, []standingApproval, error) {
	var list []Approval
	var plans []int32
	var steps []int
	var standing []standingApproval
	var a Approval
	var plan int32
	var no int
	var now time.Time
	_, err := pgx.ForEachRow(rows, []any{&a.Token, &a.TaskUUID, &no, &plan, &a.Prompt, &a.Since, &a.Until, &now}, func() error {
		list, plans, steps = append(list, a), append(plans, plan), append(steps, no)
		standing = append(standing, standingApproval{now: now})
		a.Until = nil
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	read, err := s.plansOn(ctx, db, plans)
	if err != nil {
		return nil, nil, err
	}
	for i := range list {
		p, err := read.of(plans[i])
		if err != nil {
			return nil, nil, err
		}
		step := &p.Steps[steps[i]]
		a := &list[i]
		a.StepUUID, a.Namespace, a.Task, a.Step = StepUUID(a.TaskUUID, steps[i]), p.Template.Namespace, p.Template.Name, step.Name
		standing[i].step = step
	}
	return list, standing, nil
}

// Approval reads the approval with a token; the error wraps ErrNotFound if it has been
// decided, or never existed.
// Index: board_awaits.
func (s *Store) Approval(ctx context.Context, token string) (a Approval, err error) {
	err = s.repeatable(ctx, "approval", "look for the approval", func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, approvals+`where s.awaits = $1`, awaitsApproval+token)
		if err != nil {
			return err
		}
		list, _, err := s.collectApprovals(ctx, db, rows)
		if err == nil && len(list) == 0 {
			err = ErrNotFound
		}
		if err == nil {
			a = list[0]
		}
		return err
	})
	return a, err
}

// Decide ends the wait of the approval with a token; a second decision finds none, and
// the error wraps ErrNotFound. The signals are to publish, unless the store sends them
// itself.
// Index: board_awaits.
func (s *Store) Decide(ctx context.Context, token string, d workflow.Decision) (a Approval, signals []signal.Signal, err error) {
	err = s.call(ctx, "decide", "decide about the approval", func(ctx context.Context, db *conn) error {
		return s.inTxThenNotify(ctx, db, func(tx pgx.Tx) ([]signal.Signal, error) {
			rows, err := tx.Query(ctx, approvals+`where s.awaits = $1 for update of s`, awaitsApproval+token)
			if err != nil {
				return nil, err
			}
			list, standing, err := s.collectApprovals(ctx, tx, rows)
			if err != nil {
				return nil, err
			}
			if len(list) == 0 {
				return nil, ErrNotFound
			}
			a = list[0]
			d.DecidedAt = standing[0].now
			end, err := standing[0].step.Decide(d)
			if err != nil {
				return nil, err
			}
			if _, err := reportEnds(ctx, tx, []string{awaitsApproval + token}, []workflow.StepEnd{end}); err != nil {
				return nil, err
			}
			kind := "reject"
			if d.Approved {
				kind = "approve"
			}
			signals = ReportSignals()
			return signals, insertAction(ctx, tx, OperatorAction{Actor: d.Actor, Action: kind, Reason: d.Comment,
				Target: map[string]any{"task_uuid": a.TaskUUID, "step_uuid": a.StepUUID, "step": a.Step}, Matched: 1, Changed: 1})
		})
	})
	return a, signals, err
}

// reportEnds ends waits, each with its end; it returns the number of steps.
func reportEnds(ctx context.Context, tx pgx.Tx, awaits []string, ends []workflow.StepEnd) (int, error) {
	var c endColumns
	for i := range ends {
		c.add(&ends[i])
	}
	tag, err := tx.Exec(ctx, reportWaits, awaits, c.outcomes, c.retryable, c.results, c.errors)
	return int(tag.RowsAffected()), err
}
