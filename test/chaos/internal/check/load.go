package check

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
	"github.com/tasker-go/tasker/workflow"
)

// Load reads the product's records. The daemons may have ended.
func (f *Facts) Load(ctx context.Context, dsn string, maxCrashes int) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if f.Tasks, err = loadTasks(ctx, conn); err != nil {
		return fmt.Errorf("read the tasks: %w", err)
	}
	if f.Attempts, err = loadAttempts(ctx, conn); err != nil {
		return fmt.Errorf("read the attempts: %w", err)
	}
	if f.Booked, err = workload.ReadBooked(ctx, conn); err != nil {
		return err
	}
	if f.Left, err = loadBoard(ctx, conn); err != nil {
		return fmt.Errorf("read the board: %w", err)
	}
	return f.checkIntegrity(ctx, dsn, maxCrashes)
}

func loadTasks(ctx context.Context, conn *pgx.Conn) ([]Task, error) {
	rows, err := conn.Query(ctx, `select t.task_uuid, coalesce(t.idempotency_key, ''), v.name, v.state, v.requested_at, v.completed_at
		from tasker.tasks t join tasker.v_tasks v using (task_uuid) order by 1`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (t Task, err error) {
		var ended *time.Time
		err = row.Scan(&t.ID, &t.Key, &t.Flow, &t.State, &t.Began, &ended)
		if ended != nil {
			t.Ended = *ended
		}
		return t, err
	})
}

func loadAttempts(ctx context.Context, conn *pgx.Conn) ([]Attempt, error) {
	rows, err := conn.Query(ctx, `select a.task_uuid, p.name, coalesce(p.steps[a.step_no + 1], ''), a.attempt, coalesce(a.token, 0), a.outcome,
			coalesce(a.reason, ''), coalesce(a.error->>'error_type' = 'ExecutorLost', false), a.claimed_at, a.reported_at, a.applied_at, a.result
		from tasker.step_attempts a join tasker.tasks t using (task_uuid) join tasker.plans p using (plan_id)
		where a.step_no >= 0 order by a.task_uuid, a.token`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (a Attempt, err error) {
		var claimed, reported *time.Time
		var result json.RawMessage
		if err = row.Scan(&a.Task, &a.Flow, &a.Step, &a.Attempt, &a.Token, &a.Outcome, &a.Reason, &a.ProcessLost, &claimed, &reported, &a.Applied, &result); err != nil {
			return a, err
		}
		if claimed != nil {
			a.Claimed = *claimed
		}
		if reported != nil {
			a.Reported = *reported
		}
		if a.Outcome == Success && result != nil {
			a.Result = &workload.Result{}
			if err = json.Unmarshal(result, a.Result); err != nil {
				err = fmt.Errorf("read the result of %s: %w", describe(&a), err)
			}
		}
		return a, err
	})
}

// shownOfBoard bounds the rows shown of a board that is not empty.
const shownOfBoard = 50

func loadBoard(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, err := conn.Query(ctx, `select b.task_uuid, format('slot %s, state %s, step %s, attempt %s, task state %s, due %s, lease until %s, reported %s, seq %s',
			b.slot, b.state, b.step_no, b.attempt, b.task_state, b.due_at, b.lease_until, b.reported_at, b.seq)
		from tasker.board b order by b.task_uuid, b.slot limit $1`, shownOfBoard)
	if err != nil {
		return nil, err
	}
	var id uuid.UUID
	var what string
	var left []string
	_, err = pgx.ForEachRow(rows, []any{&id, &what}, func() error {
		left = append(left, fmt.Sprintf("task %s: %s", id, what))
		return nil
	})
	return left, err
}

func (f *Facts) checkIntegrity(ctx context.Context, dsn string, maxCrashes int) error {
	s, err := store.Open(ctx, store.Options{URL: dsn, MaxConns: 2, ApplicationName: "chaos-check"})
	if err != nil {
		return err
	}
	defer s.Close()
	report, err := s.CheckIntegrity(ctx, workflow.Rules{MaxCrashes: maxCrashes})
	if err != nil {
		return err
	}
	f.Checked = report.Tasks
	for _, v := range report.Violations {
		f.Integrity = append(f.Integrity, fmt.Sprintf("task %s: %s", v.TaskUUID, v.Problem))
	}
	return nil
}
