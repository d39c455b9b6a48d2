package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/workflow"
)

// Batch is the work of a step that was created at run time.
type Batch struct {
	Template int                   `json:"template"` // the plan's step that it instantiates
	Name     string                `json:"name"`
	Cursor   workflow.CursorConfig `json:"cursor"`
	NoOp     bool                  `json:"no_op"` // a placeholder without work
	First    int                   `json:"first"` // the first step of its group
	// Run is how many batches of the task had its number before it, see BatchUUID.
	Run int `json:"run"`
	// Since is a token: attempts of the step with greater ones belong to this batch,
	// others to those that had its number before.
	Since int64 `json:"since"`
	// Isolated counts the items that the handler could not process; read only with tasks.
	Isolated int `json:"-"`
}

// countIsolated is the number of items that the newest attempt a of the batch d
// has isolated.
const countIsolated = `case when a.outcome = 1 and (d.isolated ->> 'token')::bigint = a.token then jsonb_array_length(d.isolated -> 'items') else 0 end`

// recordBatches records the steps created at run time. All claims of earlier steps with
// their numbers have smaller tokens.
// Index: the primary key of former batches.
const recordBatches = `
insert into tasker.batches (task_uuid, step_no, template_no, first_no, name, cursor, no_op, run, since)
select d.task_uuid, d.step_no, d.template_no, d.first_no, d.name, d.cursor::jsonb, d.no_op,
       coalesce((select run + 1 from tasker.former_batches where task_uuid = d.task_uuid and step_no = d.step_no order by run desc limit 1), 0),
       (select nextval('tasker.claim_token'))
from unnest($1::uuid[], $2::smallint[], $3::smallint[], $4::smallint[], $5::text[], $6::text[], $7::boolean[])
     d(task_uuid, step_no, template_no, first_no, name, cursor, no_op)`

// batchColumns are steps created at run time, column by column.
type batchColumns struct {
	tasks                    uuids
	steps, templates, firsts []int16
	names, cursors           []string
	noOps                    []bool
}

func (c *batchColumns) arguments() []any {
	return []any{c.tasks, c.steps, c.templates, c.firsts, c.names, c.cursors, c.noOps}
}

func (c *batchColumns) add(task uuid.UUID, list []workflow.NewBatch) error {
	for i := range list {
		b := &list[i]
		cursor, err := json.Marshal(b.Cursor)
		if err != nil {
			return fmt.Errorf("encode the cursor of %s: %w", b.Name, err)
		}
		c.tasks, c.steps = append(c.tasks, task), append(c.steps, int16(b.Step))                         // #nosec G115 -- at most workflow.MaxStepNumber
		c.templates, c.firsts = append(c.templates, int16(b.Template)), append(c.firsts, int16(b.First)) // #nosec G115
		c.names, c.cursors, c.noOps = append(c.names, b.Name), append(c.cursors, string(cursor)), append(c.noOps, b.NoOp)
	}
	return nil
}

// readOutcomes reads the results that name the steps to create.
// Index: the primary key.
const readOutcomes = `
select k.at, s.result from unnest((select $1::uuid[]), (select $2::smallint[])) with ordinality k(task_uuid, step_no, at)
cross join lateral (select result from tasker.board where task_uuid = k.task_uuid and slot = any (array[0, k.step_no + 1]) and step_no = k.step_no limit 1) s`

// readOutcomes reads the results of steps that create others. It runs no statement if
// there are none.
func (t *Taken) readOutcomes(ctx context.Context) error {
	var tasks uuids
	var numbers []int16
	var steps []*TakenStep
	for i := range t.Tasks {
		task := &t.Tasks[i]
		if task.Broken != nil || task.Unreadable != nil {
			continue
		}
		for j := range task.Reported {
			r := &task.Reported[j]
			if step := task.Plan.Step(task.Progress, r.Step); step != nil && step.Kind.Unfolds() && r.Outcome == workflow.OutcomeSuccess {
				tasks, numbers, steps = append(tasks, task.UUID), append(numbers, int16(r.Step)), append(steps, r) // #nosec G115 -- as it came
			}
		}
	}
	if len(steps) == 0 {
		return nil
	}
	rows, err := t.conn.Query(ctx, readOutcomes, tasks, numbers)
	if err != nil {
		return err
	}
	var at int
	var result []byte
	_, err = pgx.ForEachRow(rows, []any{&at, &result}, func() error {
		steps[at-1].Result = append(json.RawMessage(nil), result...)
		return nil
	})
	return err
}

// readBatches names the steps of tasks that were created at run time.
// Index: the primary key.
const readBatches = `
select d.task_uuid, d.step_no, d.template_no, d.name, d.cursor - 'items', d.no_op, d.run, d.since, case when d.isolated is null then 0 else (
    select ` + countIsolated + ` from tasker.step_attempts a where a.task_uuid = d.task_uuid and a.step_no = d.step_no order by a.token desc limit 1) end
from tasker.batches d where d.task_uuid = any ($1)`

// batchesOf reads the steps created at run time for tasks that have some, and their
// attempts.
func batchesOf(ctx context.Context, tx pgx.Tx, tasks []*Task, readers map[uuid.UUID]*taskReader, of parts) error {
	byID := map[uuid.UUID]*Task{}
	var ids []uuid.UUID
	for _, t := range tasks {
		if t.Progress != nil && len(t.Progress.Groups) > 0 {
			t.Batches = map[int]Batch{}
			byID[t.UUID], ids = t, append(ids, t.UUID)
			// Attempts that were read with other tasks include former batches.
			maps.DeleteFunc(readers[t.UUID].attempts, func(no int, _ []attemptRow) bool { return no >= len(t.Plan.Steps) })
		}
	}
	if ids == nil {
		return nil
	}
	b := &pgx.Batch{}
	b.Queue(readBatches, ids).Query(func(rows pgx.Rows) error { return scanBatches(rows, byID) })
	b.Queue(readBatchAttempts, ids, of.results).Query(func(rows pgx.Rows) error {
		return scanEach(rows, readers, (*taskReader).scanAttempt)
	})
	return tx.SendBatch(ctx, b).Close()
}

func scanBatches(rows pgx.Rows, tasks map[uuid.UUID]*Task) error {
	var id uuid.UUID
	var no int
	var cursor []byte
	var isolated *int // null: no attempt is recorded
	var b Batch
	_, err := pgx.ForEachRow(rows, []any{(*[16]byte)(&id), &no, &b.Template, &b.Name, &cursor, &b.NoOp, &b.Run, &b.Since, &isolated}, func() error {
		if err := json.Unmarshal(cursor, &b.Cursor); err != nil {
			return fmt.Errorf("read the cursor of step %d of task %s: %w", no, id, err)
		}
		if isolated != nil {
			b.Isolated = *isolated
		}
		tasks[id].Batches[no] = b
		b = Batch{}
		return nil
	})
	return err
}

// batchableResult is the result of a batchable step without the list of all batches.
// Index: the primary key.
const batchableResult = `
select result #- '{` + workflow.BatchOutcomeKey + `,cursor_configs}' from tasker.step_attempts
where task_uuid = $1 and step_no = $2 and outcome = 1 and jsonb_typeof(result) = 'object' order by token desc limit 1`

// BatchableResult reads the result of the step that created batches, without the list of
// them; nil without one.
func (s *Store) BatchableResult(ctx context.Context, task uuid.UUID, step int) (json.RawMessage, error) {
	var result []byte
	err := s.repeatable(ctx, "batchable_result", "read the result of the step that made batches", func(ctx context.Context, db *conn) error {
		err := db.QueryRow(ctx, batchableResult, task, step).Scan(&result)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return result, err
}

// BatchResult is the result of one batch.
type BatchResult struct {
	Step   int
	Name   string
	Cursor workflow.CursorConfig
	NoOp   bool
	Result json.RawMessage // nil: it has none
	// Isolated counts the items that its handler could not process.
	Isolated int
}

// readBatchResults reads the latest group of a batch worker, in the order in which the
// batches were created.
// Index: the primary keys.
const readBatchResults = `
select d.step_no, d.name, d.cursor - 'items', d.no_op, a.result, ` + countIsolated + `
from tasker.batches d
left join lateral (select result, token, outcome from tasker.step_attempts where task_uuid = d.task_uuid and step_no = d.step_no and outcome = 1
                   and token > d.since order by token desc limit 1) a on true
where d.task_uuid = $1 and d.template_no = $2 and d.step_no > $3
  and d.first_no = (select max(first_no) from tasker.batches where task_uuid = $1 and template_no = $2)
order by d.step_no limit $4`

// BatchResults reads the results of the batches of one worker step of a task, at most
// limit, after a step's number; negative: from the first.
func (s *Store) BatchResults(ctx context.Context, task uuid.UUID, template, after, limit int) ([]BatchResult, error) {
	var list []BatchResult
	err := s.repeatable(ctx, "batch_results", "read the results of batches", func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, readBatchResults, task, template, after, limit)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (b BatchResult, err error) {
			var cursor, result []byte
			if err = row.Scan(&b.Step, &b.Name, &cursor, &b.NoOp, &result, &b.Isolated); err != nil {
				return b, err
			}
			b.Result = append(json.RawMessage(nil), result...)
			return b, json.Unmarshal(cursor, &b.Cursor)
		})
		return err
	})
	return list, err
}

// findBatch sets Batch of the task to which the batch with the UUID belongs.
// Index: the primary key.
func (t *Taken) findBatch(ctx context.Context, id uuid.UUID) error {
	for i := range t.Tasks {
		task := &t.Tasks[i]
		no, run, ok := StepOf(task.UUID, id)
		if !ok || task.Plan == nil || no < len(task.Plan.Steps) {
			continue
		}
		err := t.conn.QueryRow(ctx, `select step_no, name from tasker.batches where task_uuid = $1 and step_no = $2 and run = $3`, task.UUID, no, run).
			Scan(&task.Batch, &task.BatchName)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
	}
	return nil
}

// findBatches sets Batch of the tasks that have such a step, to the youngest of that
// name.
// Index: the primary key.
func (t *Taken) findBatches(ctx context.Context, name string) error {
	place := map[uuid.UUID]int{}
	var ids []uuid.UUID
	for i := range t.Tasks {
		if p := t.Tasks[i].Progress; p != nil && len(p.Groups) > 0 {
			place[t.Tasks[i].UUID], ids = i, append(ids, t.Tasks[i].UUID)
		}
	}
	if ids == nil {
		return nil
	}
	rows, err := t.conn.Query(ctx, `select task_uuid, max(step_no) from tasker.batches where task_uuid = any ($1) and name = $2 group by 1`, ids, name)
	if err != nil {
		return err
	}
	var id uuid.UUID
	var no int
	_, err = pgx.ForEachRow(rows, []any{(*[16]byte)(&id), &no}, func() error {
		t.Tasks[place[id]].Batch, t.Tasks[place[id]].BatchName = no, name
		return nil
	})
	return err
}
