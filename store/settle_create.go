package store

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// claimCreated claims the first steps of tasks that the same transaction has
// created.
// Index: the primary key.
var claimCreated = compile(`
update tasker.board
set state = {in_progress}, attempt = 1, token = nextval('tasker.claim_token'), worker = @worker::uuid,
    claimed_at = clock_timestamp(), lease_until = clock_timestamp() + @lease_ms::bigint * interval '1 ms'
where task_uuid = any ((select @tasks::uuid[])::uuid[]) and slot = 0 and step_no is not null and due_at is null
      and callable <> all (` + pausedCallables + `)
returning task_uuid, token, enqueued_at, claimed_at, requested_at`)

// CreateAndClaim is CreateTasks that also claims the first steps for taker, up to its
// Limit, if a task begins with a step that the taker may run. Contexts are as sent, not
// yet in the database's form.
func (s *Store) CreateAndClaim(ctx context.Context, tasks []NewTask, taker ClaimRequest) (answers []CreatedTask, claimed []Claimed, err error) {
	answers = make([]CreatedTask, len(tasks))
	chosen := distinctIdentities(tasks)
	first := firstSteps(tasks, chosen, &taker)
	ids := make(uuids, 0, len(first))
	for id := range first {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b [16]byte) int { return slices.Compare(a[:], b[:]) })
	err = s.call(ctx, "create", "create tasks", func(ctx context.Context, db *conn) error {
		claimed = nil // of a rolled-back try
		accepted, err := s.insertTasks(ctx, db, tasks, chosen, identityPatience, func(b *pgx.Batch) {
			if len(ids) == 0 {
				return
			}
			type row struct {
				TaskUUID                           uuid.UUID
				Token                              int64
				EnqueuedAt, ClaimedAt, RequestedAt time.Time
			}
			claim := claimCreated.With(args{"tasks": ids, "worker": taker.Worker, "lease_ms": taker.Lease.Milliseconds()})
			claim.Queue(b).Query(stmt.Rows(func(r *row) error {
				f := first[r.TaskUUID]
				f.Token, f.EnqueuedAt, f.ClaimedAt, f.RequestedAt = r.Token, r.EnqueuedAt, r.ClaimedAt, r.RequestedAt
				claimed = append(claimed, f)
				return nil
			}))
		})
		if err != nil {
			claimed = nil // the answers were not committed
			if !identityHeld(err) {
				return err
			}
			if accepted, err = s.insertAround(ctx, db, tasks, chosen, identityGlance); err != nil {
				return err
			}
		}
		return answerCreated(ctx, db, tasks, accepted, answers)
	})
	return answers, claimed, err
}

// firstSteps are the claims of new tasks' only first steps that the taker may claim;
// token and times are unset.
func firstSteps(tasks []NewTask, chosen []bool, taker *ClaimRequest) map[uuid.UUID]Claimed {
	first := make(map[uuid.UUID]Claimed, min(len(tasks), taker.Limit))
	for i := range tasks {
		t := &tasks[i]
		if len(first) >= taker.Limit {
			break
		}
		if !chosen[i] || t.startsLater() || len(t.DependsOn) > 0 {
			continue
		}
		progress, effects, err := t.begin()
		if err != nil || len(effects.Put) != 1 || !inlines(t.Plan, nil, effects.Put[0].Step) || !taker.runs(t.Plan, &t.Plan.Steps[effects.Put[0].Step]) {
			continue
		}
		first[t.UUID] = Claimed{
			Task: &Standing{State: workflow.TaskPending, Progress: progress}, TaskUUID: t.UUID, Step: effects.Put[0].Step, Attempt: 1, PlanID: t.Plan.ID, Queue: t.Plan.Queue, Context: t.Context,
			CorrelationID: t.CorrelationID, ParentCorrelationID: t.ParentCorrelationID, Priority: t.Priority, MaxAttempts: t.Retry.Attempts(),
		}
	}
	return first
}
