package workload

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/worker"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// Prepare creates the table of bookings: a row for each claim whose handler worked in a
// committed transaction. It makes task types of the workflows, which jobs name.
func Prepare(ctx context.Context, conn *pgx.Conn) error {
	made, err := conn.Exec(ctx, `insert into tasker.task_types (namespace_id, name, version, created_by, updated_by)
		select namespace_id, p.name, p.version, 'chaos', 'chaos' from tasker.plans p join tasker.namespaces n using (namespace_id) where p.current and n.name = $1`, Namespace)
	if err == nil && made.RowsAffected() != int64(len(Workflows())) {
		err = fmt.Errorf("%d of %d workflows are registered", made.RowsAffected(), len(Workflows()))
	}
	if err != nil {
		return fmt.Errorf("make the task types: %w", err)
	}
	_, err = conn.Exec(ctx, `create table if not exists public.chaos_booked (token bigint primary key, task_uuid uuid not null, step text not null)`)
	if err != nil {
		return fmt.Errorf("make the table of bookings: %w", err)
	}
	return nil
}

// ReadBooked reads the claims with bookings; none without Prepare.
func ReadBooked(ctx context.Context, conn *pgx.Conn) (tokens []int64, err error) {
	var prepared bool
	if err := conn.QueryRow(ctx, `select to_regclass('public.chaos_booked') is not null`).Scan(&prepared); err != nil || !prepared {
		return nil, err
	}
	rows, err := conn.Query(ctx, `select token from public.chaos_booked order by 1`)
	if err == nil {
		tokens, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	if err != nil {
		return nil, fmt.Errorf("read the bookings: %w", err)
	}
	return tokens, nil
}

// book writes a row before it works, so that most faults strike between the row and the
// end of the step.
func (h *handlers) book(c *worker.StepContext, tx pgx.Tx) (any, error) {
	return h.noted(c, func() error {
		_, err := tx.Exec(c, `insert into public.chaos_booked (token, task_uuid, step) values ($1, $2, $3)`, c.Token(), c.TaskUUID().String(), c.StepName())
		if err != nil {
			return err
		}
		return lifecycle.Pause(c, quickest)
	})
}
