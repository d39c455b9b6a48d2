package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// ClaimRequest asks for steps to run.
type ClaimRequest struct {
	Worker uuid.UUID
	// Queues in the order in which they come first within a lane (in a full
	// scan: altogether); who changes the order from claim to claim is fair.
	Queues []int32
	Tags   []string // of the worker; a step's tags must be among them
	Limit  int      // free permits; at least 1
	Lease  time.Duration
}

// Claimed is a step that now belongs to the caller until its lease ends.
type Claimed struct {
	TaskUUID              uuid.UUID
	Slot                  int // of the board's row, see ClaimKey
	Step                  int
	Attempt               int // 1 for the first execution
	Token                 int64
	PlanID                int32
	Queue                 int32
	Context               json.RawMessage
	CorrelationID         uuid.UUID
	ParentCorrelationID   *uuid.UUID
	Priority              int
	RequestedAt           time.Time
	EnqueuedAt, ClaimedAt time.Time
	// ParentResults holds the results of the direct parents by step number.
	ParentResults map[int]json.RawMessage
}

// Key names the claim.
func (c *Claimed) Key() ClaimKey {
	return ClaimKey{TaskUUID: c.TaskUUID, Slot: c.Slot, Step: c.Step, Token: c.Token}
}

// claimSteps takes steps lane by lane. Each lane is read from its mark on, so
// that the dead versions in front of it are not walked over; a nested loop
// pulls rows one by one, so that no more rows are locked than are taken.
// Index: board_claimable, then the primary keys.
const claimSteps = `
with lanes as materialized (
    select * from unnest($5::int[], $6::smallint[], $7::bigint[]) l(queue, lane, mark)
), picked as materialized (
    select s.at
    from lanes l cross join lateral (
        select ctid as at from tasker.board
        where state = 2 and queue = l.queue and lane = l.lane and seq >= l.mark and (tags is null or tags <@ $3::text[])
        order by seq limit $4::int for update skip locked) s
    limit $4::int
)` + takePicked

// claimAny is the full scan: every lane of the queues, from the beginning. It
// finds lanes that are new and steps that became visible behind a mark.
// Index: board_claimable.
const claimAny = `
with picked as materialized (
    select s.at
    from unnest($5::int[]) q(queue) cross join lateral (
        select ctid as at from tasker.board
        where state = 2 and queue = q.queue and (tags is null or tags <@ $3::text[])
        order by lane, seq limit $4::int for update skip locked) s
    limit $4::int
)` + takePicked

// takePicked turns picked rows into claims and fetches what the handlers
// need. The rows are locked, so their places cannot change and they need not
// be looked up again; one that was changed between the snapshot and the lock
// is passed over, and whoever changed it signals. The look-ups in the select
// list are made only for rows in which something is missing.
// Parameters of both scans: $1 worker, $2 lease in ms, $3 tags, $4 limit.
const takePicked = `, claimed as (
    update tasker.board s
    set state = 3, attempt = s.attempt + 1, token = nextval('tasker.claim_token'), worker = $1::uuid,
        claimed_at = clock_timestamp(), lease_until = clock_timestamp() + $2::bigint * interval '1 ms'
    where s.ctid = any (array(select at from picked)) and s.state = 2
    returning s.task_uuid, s.slot, s.step_no, s.queue, s.lane, s.seq, s.attempt, s.token, s.parents, s.enqueued_at, s.claimed_at,
              s.plan_id, s.context, s.correlation_id, s.parent_correlation_id, s.priority, s.requested_at
)
select c.task_uuid, c.slot, c.step_no, c.queue, c.lane, c.seq, c.attempt, c.token, c.enqueued_at, c.claimed_at,
       coalesce(c.plan_id, b.plan_id),
       coalesce(c.context, b.context, (select context from tasker.tasks where task_uuid = c.task_uuid)),
       coalesce(c.correlation_id, b.correlation_id, c.task_uuid), coalesce(c.parent_correlation_id, b.parent_correlation_id),
       coalesce(c.priority, b.priority), coalesce(c.requested_at, b.requested_at),
       case when cardinality(c.parents) > 0 then (
           select jsonb_object_agg(a.step_no, a.result order by a.token) from tasker.step_attempts a
           where a.task_uuid = c.task_uuid and a.step_no = any (c.parents) and a.outcome = 1) end
from claimed c
left join lateral (
    select plan_id, context, correlation_id, parent_correlation_id, priority, requested_at from tasker.board
    where c.slot > 0 and task_uuid = c.task_uuid and slot = 0 limit 1) b on true
order by c.lane, c.seq`

// Claim takes up to Limit claimable steps. full makes it scan everything
// instead of starting at the marks: it finds lanes that are new and steps that
// became visible behind a mark, and is the dearer one while old row versions
// lie in front.
func (s *Store) Claim(ctx context.Context, req ClaimRequest, full bool) ([]Claimed, error) {
	var claimed []Claimed
	flow := "claim"
	if full {
		flow = "claim_full"
	}
	err := s.call(ctx, flow, "claim steps", func(ctx context.Context, db *conn) error {
		query := claimAny
		args := []any{req.Worker, req.Lease.Milliseconds(), nonNil(req.Tags), req.Limit, req.Queues}
		lanes := lanesFrom{}
		if !full {
			if lanes = s.marks.of(req.Queues); len(lanes.queues) == 0 {
				return nil
			}
			query, args = claimSteps, append(args[:4], lanes.queues, lanes.lanes, lanes.from)
		}
		rows, err := db.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		newest := map[laneKey]int64{}
		claimed, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Claimed, error) { return scanClaimed(row, newest) })
		if err == nil {
			s.marks.claimed(newest, lanes, full && len(claimed) >= req.Limit)
		}
		return err
	})
	return claimed, err
}

// scanClaimed reads one row and notes the newest sequence number of its lane.
func scanClaimed(row pgx.CollectableRow, newest map[laneKey]int64) (Claimed, error) {
	var (
		c       Claimed
		lane    int16
		seq     int64
		results []byte
	)
	err := row.Scan((*[16]byte)(&c.TaskUUID), &c.Slot, &c.Step, &c.Queue, &lane, &seq, &c.Attempt, &c.Token, &c.EnqueuedAt, &c.ClaimedAt,
		&c.PlanID, &c.Context, (*[16]byte)(&c.CorrelationID), &c.ParentCorrelationID, &c.Priority, &c.RequestedAt, &results)
	if err != nil {
		return c, err
	}
	k := laneKey{c.Queue, lane}
	newest[k] = max(newest[k], seq)
	if results != nil {
		err = json.Unmarshal(results, &c.ParentResults)
	}
	return c, err
}
