package store

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/workflow"
)

// stateToOpen locks a task's row and returns its state; of an ended task the final one.
// Index: the primary keys.
const (
	liveStateToOpen  = `select task_state from tasker.board where task_uuid = $1 and slot = 0 for update`
	endedStateToOpen = `select task_state from tasker.step_attempts where task_uuid = $1 and task_state is not null limit 1`
	// addOpener records the operator who opened an entry and the metadata.
	addOpener = `
update tasker.dlq_entries
set metadata = coalesce(metadata, '{}') || jsonb_build_object('opened_by', $2::text) || coalesce($3::jsonb, '{}')
where dlq_entry_uuid = $1`
)

// OpenDeadLetter opens a dead letter for a task, alive or ended; metadata are an object
// or nil. A task with an open entry keeps it (created is false), with the detail added.
// The error wraps ErrNotFound if the task does not exist. While this runs a claim skips a
// step in the task's row; a poll finds it.
func (s *Store) OpenDeadLetter(ctx context.Context, task uuid.UUID, reason workflow.DeadLetterReason, detail, actor string, metadata json.RawMessage) (entry DeadLetter, created bool, err error) {
	err = s.call(ctx, "open_dead_letter", "open a dead letter", func(ctx context.Context, db *conn) error {
		return s.inTx(ctx, db, func(tx pgx.Tx) error {
			state, err := stateToOpen(ctx, tx, task)
			if err != nil {
				return err
			}
			var id, of uuid.UUID
			err = tx.QueryRow(ctx, recordDeadLetters, uuids{task}, []int16{state}, []int16{int16(reason)}, []string{detail},
				[]*int16{nil}).Scan(&id, &of, &created)
			if err != nil {
				return deadLetterError(err) // no row: the task is not in the ledger
			}
			b := &pgx.Batch{}
			b.Queue(addOpener, id, actor, document(metadata))
			b.Queue(oneDeadLetter, id).Query(func(rows pgx.Rows) (err error) {
				entry, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[DeadLetter])
				return err
			})
			return tx.SendBatch(ctx, b).Close()
		})
	})
	return entry, created, err
}

func stateToOpen(ctx context.Context, tx pgx.Tx, task uuid.UUID) (state int16, err error) {
	if err = tx.QueryRow(ctx, liveStateToOpen, task).Scan(&state); !errors.Is(err, pgx.ErrNoRows) {
		return state, err
	}
	if err = tx.QueryRow(ctx, endedStateToOpen, task).Scan(&state); errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	return state, err
}

// DescribeStale adds to the open entries of stale tasks the exceeded threshold and the
// time in their states. Tasks without an entry for their staleness are skipped.
func (s *Store) DescribeStale(ctx context.Context, stale []StaleTask) error {
	tasks, minutes, thresholds := make(uuids, len(stale)), make([]int, len(stale)), make([]int, len(stale))
	for i := range stale {
		tasks[i], minutes[i], thresholds[i] = stale[i].UUID, stale[i].MinutesInState, stale[i].ThresholdMinutes
	}
	return s.repeatable(ctx, "describe_stale", "describe stale tasks", func(ctx context.Context, db *conn) error {
		_, err := db.Exec(ctx, describeStale, tasks, minutes, thresholds)
		return err
	})
}
