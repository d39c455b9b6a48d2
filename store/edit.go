package store

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// readContexts reads the contexts of the tasks. They change only under the locks of the
// tasks, so the result stays valid.
// Index: the primary key.
func (t *Taken) readContexts(ctx context.Context) error {
	place, ids := t.places()
	if len(ids) == 0 {
		return nil
	}
	rows, err := t.conn.Query(ctx, `select task_uuid, context from tasker.tasks where task_uuid = any ($1)`, ids)
	if err != nil {
		return err
	}
	var id uuid.UUID
	var document json.RawMessage
	_, err = pgx.ForEachRow(rows, []any{(*[16]byte)(&id), &document}, func() error {
		t.Tasks[place[id]].Context = append(json.RawMessage{}, document...)
		return nil
	})
	return err
}

// editedColumns are contexts that operators have changed.
type editedColumns struct {
	tasks    uuids
	contexts []string
}

// editContexts replaces the contexts of tasks, small ones on the board as well, as a
// creation does. Claimed steps keep the old one. The identity of the task stays that of
// its creation.
// Index: the primary keys.
const editContexts = `
with n as materialized (
    select task_uuid, context, context::jsonb as document from unnest($1::uuid[], $2::text[]) n(task_uuid, context)
), kept as (
    update tasker.tasks t set context = n.document from n where t.task_uuid = any (array[n.task_uuid])
)
update tasker.board b set context = case when octet_length(n.context) <= ` + inlineContext + ` then n.document end
from n where b.task_uuid = any (array[n.task_uuid]) and b.slot = 0`
