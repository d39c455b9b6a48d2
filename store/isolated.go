package store

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// keepIsolated stores the items that batches have isolated, in the transaction of the
// reports and after them: if the report of the same claim was accepted. A repetition
// after a lost answer stores the same.
// Index: the primary keys.
const keepIsolated = `
update tasker.batches d set isolated = jsonb_build_object('token', r.token, 'items', r.items::jsonb)
from unnest((select $1::uuid[]), (select $2::smallint[]), (select $3::bigint[]), (select $4::text[])) r(task_uuid, step_no, token, items)
where d.task_uuid = any (array[r.task_uuid]) and d.step_no = r.step_no
  and exists (select from tasker.board s where s.task_uuid = any (array[r.task_uuid]) and s.slot = r.step_no + 1 and s.step_no = r.step_no
              and s.token = r.token and s.outcome = 1)`

// isolatedArguments are the parameters of keepIsolated; nil if no report has isolated
// items, as most.
func isolatedArguments(reports []Report, order []int) []any {
	var (
		tasks  uuids
		steps  []int16
		tokens []int64
		items  []string
	)
	for _, i := range order {
		if r := &reports[i]; r.Isolated != nil {
			tasks, steps = append(tasks, r.TaskUUID), append(steps, int16(r.Step)) // #nosec G115 -- at most workflow.MaxStepNumber
			tokens, items = append(tokens, r.Token), append(items, string(r.Isolated))
		}
	}
	if tasks == nil {
		return nil
	}
	return []any{tasks, steps, tokens, items}
}

// Isolated is an item of a batch that its handler could not process.
type Isolated struct {
	Step     int // the batch
	Run      int // see BatchUUID
	No       int // in the batch, from 1 on
	Template int // the plan's step that the batch instantiates
	Batch    string
	Item     json.RawMessage // as the handler named it
	Error    json.RawMessage // {"message", "error_type", "error_code"?, "retryable"}
	// ReplayedAs is the latest task created to process it again; nil: none.
	ReplayedAs *uuid.UUID
}

// IsolatedFilter selects items of a task; zero values select all.
type IsolatedFilter struct {
	Worker    *int   // the plan's step of their batches
	Batch     string // its name
	Retryable *bool
	Replayed  *bool
}

// readIsolated lists items in the order of the batches: of the latest group of each
// worker step, and of each batch its newest attempt.
// Index: the primary keys.
const readIsolated = `
select d.step_no, d.run, x.no::int, d.template_no, d.name, x.item -> 'item', x.item -> 'error', (x.item ->> 'replayed_as')::uuid
from tasker.batches d
cross join lateral (select token, outcome from tasker.step_attempts
                    where task_uuid = d.task_uuid and step_no = d.step_no order by token desc limit 1) a
cross join lateral jsonb_array_elements(d.isolated -> 'items') with ordinality x(item, no)
where d.task_uuid = $1 and d.isolated is not null and a.outcome = 1 and a.token = (d.isolated ->> 'token')::bigint
  and d.first_no = (select max(first_no) from tasker.batches g where g.task_uuid = $1 and g.template_no = d.template_no)
  and (d.step_no > $2 or d.step_no = $2 and x.no > $3)
  and ($4::smallint is null or d.template_no = $4) and ($5 = '' or d.name = $5)
  and ($6::boolean is null or (x.item -> 'error' ->> 'retryable')::boolean = $6)
  and ($7::boolean is null or (x.item ? 'replayed_as') = $7)
order by d.step_no, x.no limit $8`

// Isolated lists up to limit isolated items of a task after item afterNo of batch
// afterStep; 0, 0: from the first.
func (s *Store) Isolated(ctx context.Context, task uuid.UUID, f IsolatedFilter, afterStep, afterNo, limit int) (list []Isolated, err error) {
	err = s.repeatable(ctx, "isolated", "read the isolated items", func(ctx context.Context, db *conn) error {
		list, err = isolatedIn(ctx, db, task, f, afterStep, afterNo, limit)
		return err
	})
	return list, err
}

func isolatedIn(ctx context.Context, db querier, task uuid.UUID, f IsolatedFilter, afterStep, afterNo, limit int) ([]Isolated, error) {
	rows, err := db.Query(ctx, readIsolated, task, afterStep, afterNo, f.Worker, f.Batch, f.Retryable, f.Replayed, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (i Isolated, err error) {
		err = row.Scan(&i.Step, &i.Run, &i.No, &i.Template, &i.Batch, &i.Item, &i.Error, &i.ReplayedAs)
		return i, err
	})
}
