package waits

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tasker-go/tasker/store/internal/registry"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store/internal/board"
	"github.com/tasker-go/tasker/store/internal/pg"
	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// Waits is the room of steps that wait. It is safe for concurrent use.
type Waits struct {
	db       *pg.DB
	registry *registry.Memory
}

// New returns the room.
func New(db *pg.DB, r *registry.Memory) *Waits { return &Waits{db, r} }

// eventAwaits is the text of an event: with a key for steps that know it, without for a
// task.
func eventAwaits(namespace, name, key string, task uuid.UUID) string {
	if key != "" {
		return board.AwaitsEvent + namespace + board.AwaitsParts + name + board.AwaitsParts + "=" + key
	}
	return board.AwaitsEvent + namespace + board.AwaitsParts + name + board.AwaitsParts + "@" + task.String()
}

// waitEnd is how a wait ends; zero: it goes on.
type waitEnd struct {
	Outcome   workflow.AttemptOutcome `sql:",omitzero"`
	Retryable *bool
	Result    json.RawMessage
	Error     json.RawMessage
}

func waitEndOf(end *workflow.StepEnd) waitEnd {
	switch {
	case end == nil:
		return waitEnd{}
	case end.Result == nil:
		return waitEnd{workflow.OutcomeFailed, &end.Retryable, nil, end.Error}
	}
	return waitEnd{workflow.OutcomeSuccess, nil, end.Result, end.Error}
}

// endedWait is what a step awaited, with the end of its wait.
type endedWait struct {
	Awaits string
	waitEnd
}

// reportWaits ends waits: they become reports like those of workers.
// Index: board_awaits.
var reportWaits = pg.Compile(`
update tasker.board s
set state = {reported}, seq = nextval('tasker.step_seq'), due_at = null, reported_at = clock_timestamp(), awaits = null,
    outcome = r.outcome, retryable = r.retryable, result = r.result::jsonb, error = r.error::jsonb
from ` + stmt.HiddenList[endedWait]("r") + `
where s.awaits = any (array[r.awaits collate "C"])
returning s.task_uuid, s.step_no`)

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
select substr(s.awaits, 2) as token, s.task_uuid, s.step_no, b.plan_id, coalesce(s.wait ->> 'prompt', '') as prompt, s.claimed_at as since,
       s.due_at as until, clock_timestamp() as now
from tasker.board s
cross join lateral (select plan_id, queue from tasker.board where task_uuid = s.task_uuid and slot = 0 limit 1) b `

const approvalsIn = `s.awaits >= 'a' and s.awaits < 'b'
  and (@namespace = '' or b.queue = (select namespace_id from tasker.namespaces where name = @namespace))
order by s.claimed_at, s.task_uuid, s.slot limit @limit`

// Index: board_awaits, or the primary key for those of a task.
var (
	listApprovals = pg.Compile(approvals + `where ` + approvalsIn)
	taskApprovals = pg.Compile(approvals + `where s.task_uuid = @task and s.slot > 0 and ` + approvalsIn)
	readApproval  = pg.Compile(approvals + `where s.awaits = @awaits`)
	lockApproval  = pg.Compile(approvals + `where s.awaits = @awaits for update of s`)
)

// ApprovalFilter selects approvals; zero values select all.
type ApprovalFilter struct {
	TaskUUID  *uuid.UUID
	Namespace string
	Limit     int // at least 1
}

// Approvals lists steps that wait for a decision, the oldest first.
func (s *Waits) Approvals(ctx context.Context, f ApprovalFilter) (list []Approval, err error) {
	err = s.db.Repeatable(ctx, "approvals", "list the approvals", func(ctx context.Context, db *pg.Conn) error {
		statement, filter := listApprovals, pg.Args{"limit": f.Limit, "namespace": f.Namespace}
		if f.TaskUUID != nil {
			statement, filter["task"] = taskApprovals, *f.TaskUUID
		}
		list, _, err = s.approvals(ctx, db, statement.With(filter))
		return err
	})
	return list, err
}

// standingApproval is an approval with the data for its decision.
type standingApproval struct {
	step *workflow.PlanStep
	now  time.Time
}

func (s *Waits) approvals(ctx context.Context, db stmt.Querier, c stmt.Call) ([]Approval, []standingApproval, error) {
	type row struct {
		Token    string
		TaskUUID uuid.UUID
		StepNo   int
		PlanID   int32
		Prompt   string
		Since    time.Time
		Until    *time.Time
		Now      time.Time
	}
	rows, err := stmt.All[row](ctx, db, c)
	if err != nil {
		return nil, nil, err
	}
	plans := make([]int32, len(rows))
	for i := range rows {
		plans[i] = rows[i].PlanID
	}
	read, err := s.registry.PlansOn(ctx, db, plans)
	if err != nil {
		return nil, nil, err
	}
	list, standing := make([]Approval, len(rows)), make([]standingApproval, len(rows))
	for i, r := range rows {
		p, err := read.Of(r.PlanID)
		if err != nil {
			return nil, nil, err
		}
		step := &p.Steps[r.StepNo]
		list[i] = Approval{Token: r.Token, TaskUUID: r.TaskUUID, StepUUID: board.StepUUID(r.TaskUUID, r.StepNo), Namespace: p.Template.Namespace,
			Task: p.Template.Name, Step: step.Name, Prompt: r.Prompt, Since: r.Since, Until: r.Until}
		standing[i] = standingApproval{step, r.Now}
	}
	return list, standing, nil
}

// Approval reads the approval with a token; the error wraps ErrNotFound if it has been
// decided, or never existed.
// Index: board_awaits.
func (s *Waits) Approval(ctx context.Context, token string) (a Approval, err error) {
	err = s.db.Repeatable(ctx, "approval", "look for the approval", func(ctx context.Context, db *pg.Conn) error {
		list, _, err := s.approvals(ctx, db, readApproval.With(pg.Args{"awaits": board.AwaitsApproval + token}))
		if err == nil && len(list) == 0 {
			err = pg.ErrNotFound
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
func (s *Waits) Decide(ctx context.Context, token string, d workflow.Decision) (a Approval, signals []signal.Signal, err error) {
	err = s.db.Transaction(ctx, "decide", "decide about the approval", func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		list, standing, err := s.approvals(ctx, tx, lockApproval.With(pg.Args{"awaits": board.AwaitsApproval + token}))
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return nil, pg.ErrNotFound
		}
		a = list[0]
		d.DecidedAt = standing[0].now
		end, err := standing[0].step.Decide(d)
		if err != nil {
			return nil, err
		}
		if _, err := reportEnds(ctx, tx, []string{board.AwaitsApproval + token}, []workflow.StepEnd{end}); err != nil {
			return nil, err
		}
		kind := "reject"
		if d.Approved {
			kind = "approve"
		}
		signals = board.ReportSignals()
		return signals, pg.InsertAction(ctx, tx, pg.OperatorAction{Actor: d.Actor, Action: kind, Reason: d.Comment,
			Target: map[string]any{"task_uuid": a.TaskUUID, "step_uuid": a.StepUUID, "step": a.Step}, Matched: 1, Changed: 1})
	})
	return a, signals, err
}

// reportEnds ends waits, each with its end; it returns the number of steps.
func reportEnds(ctx context.Context, tx pgx.Tx, awaits []string, ends []workflow.StepEnd) (int, error) {
	rows := make([]endedWait, len(ends))
	for i := range ends {
		rows[i] = endedWait{awaits[i], waitEndOf(&ends[i])}
	}
	return pg.Run(ctx, tx, reportWaits.With(pg.Args{"r": rows}))
}
