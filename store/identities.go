package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/workflow"
)

// taskOfIdentity finds the task that has an identity while that counts.
// Index: the primary key.
const taskOfIdentity = `
select task_uuid from tasker.task_identities where identity = $1 and expires_at > statement_timestamp()`

// TaskOfIdentity returns the task that has an identity, or ErrNotFound if there is none
// or its window is over. The task itself may have been deleted, as identities may outlive
// tasks.
func (s *Store) TaskOfIdentity(ctx context.Context, identity workflow.Identity) (uuid.UUID, error) {
	var task uuid.UUID
	err := s.repeatable(ctx, "task_of_identity", "look for the task", func(ctx context.Context, db *conn) error {
		return db.QueryRow(ctx, taskOfIdentity, identity[:]).Scan((*[16]byte)(&task))
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return uuid.Nil, fmt.Errorf("look for the task: %w", ErrNotFound)
	}
	return task, err
}

// queueZones has the server check the time zones by which the identities of templates
// end: the server computes with them.
func queueZones(b *pgx.Batch, templates []*workflow.Template) {
	asked := map[string]bool{}
	for _, t := range templates {
		if zone := t.Identity.End(false).TimeZone; zone != "" && !asked[zone] {
			asked[zone] = true
			b.Queue(`select statement_timestamp() at time zone $1`, zone)
		}
	}
}
