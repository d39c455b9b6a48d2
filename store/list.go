package store

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/workflow"
)

// TaskFilter selects tasks for a list; zero values select everything.
type TaskFilter struct {
	Namespace    string
	Name         string
	State        workflow.TaskState // 0: all
	Initiator    string
	SourceSystem string
	Limit        int // 1–1,000
	Offset       int
}

// CountLimit bounds the count of tasks for a list. A filter that selects more sets
// TaskPage.CountIsBound: counting further would read the whole ledger for a number
// without use.
const CountLimit = 100_000

// TaskPage is one page of a list, newest first.
type TaskPage struct {
	Tasks        []*Task
	Total        int
	CountIsBound bool // Total is CountLimit and there are more
}

// listWhere is shared by the page and its count. A pending task that has been claimed is
// shown as steps_in_process but stored as pending; the filter uses the stored state.
// Index: tasks' primary key backwards, or tasks_by_queue; and the primary keys.
const listWhere = `
from tasker.tasks t left join tasker.board b on b.task_uuid = t.task_uuid and b.slot = 0
where ($1 = '' or t.queue = (select namespace_id from tasker.namespaces where name = $1))
  and ($2 = '' or t.plan_id in (select plan_id from tasker.plans where name = $2))
  and ($3 = 0 or $3 = coalesce(b.task_state, (select task_state from tasker.step_attempts
                                              where task_uuid = t.task_uuid and task_state is not null limit 1)))
  and ($4 = '' or t.initiator = $4)
  and ($5 = '' or t.source_system = $5)`

// Tasks lists tasks, newest first, with their steps but without contexts and
// results.
func (s *Store) Tasks(ctx context.Context, f TaskFilter) (TaskPage, error) {
	var page TaskPage
	var ids []uuid.UUID
	err := s.repeatable(ctx, "list_tasks", "list tasks", func(ctx context.Context, db *conn) error {
		args := []any{f.Namespace, f.Name, int16(f.State), f.Initiator, f.SourceSystem}
		b := &pgx.Batch{}
		b.Queue(planForValues)
		b.Queue(`select t.task_uuid `+listWhere+` order by t.task_uuid desc limit $6 offset $7`,
			append(args[:5:5], f.Limit, f.Offset)...).Query(func(rows pgx.Rows) (err error) {
			ids, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
			return err
		})
		b.Queue(`select count(*) from (select 1 `+listWhere+` limit $6) c`,
			append(args[:5:5], CountLimit+1)...).QueryRow(func(row pgx.Row) error { return row.Scan(&page.Total) })
		return db.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return page, err
	}
	if page.Total > CountLimit {
		page.Total, page.CountIsBound = CountLimit, true
	}
	if len(ids) == 0 {
		return page, nil
	}
	tasks, err := s.readTasks(ctx, ids, parts{})
	if err != nil {
		return page, err
	}
	byID := make(map[uuid.UUID]*Task, len(tasks))
	for _, t := range tasks {
		byID[t.UUID] = t
	}
	for _, id := range ids {
		if t := byID[id]; t != nil {
			page.Tasks = append(page.Tasks, t)
		}
	}
	return page, nil
}

// ContextBytes is how long the contexts of tasks are together.
func (s *Store) ContextBytes(ctx context.Context, ids []uuid.UUID) (n int64, err error) {
	err = s.repeatable(ctx, "context_bytes", "measure contexts", func(ctx context.Context, db *conn) error {
		return db.QueryRow(ctx, `select coalesce(sum(octet_length(context::text)), 0)::bigint from tasker.tasks where task_uuid = any ($1)`, ids).Scan(&n)
	})
	return n, err
}

// Contexts reads the contexts of tasks.
func (s *Store) Contexts(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]json.RawMessage, error) {
	contexts := make(map[uuid.UUID]json.RawMessage, len(ids))
	err := s.repeatable(ctx, "contexts", "read contexts", func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, `select task_uuid, context from tasker.tasks where task_uuid = any ($1)`, ids)
		if err != nil {
			return err
		}
		var id uuid.UUID
		var text json.RawMessage
		_, err = pgx.ForEachRow(rows, []any{&id, &text}, func() error {
			contexts[id], text = text, nil
			return nil
		})
		return err
	})
	return contexts, err
}
