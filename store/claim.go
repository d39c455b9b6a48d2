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

// claimSteps takes steps lane by lane. Each lane is read from its mark on, so
// that the dead versions in front of it are not walked over; a nested loop
// pulls rows one by one, so that no more rows are locked than are taken.
// unnest(array(…)) instead of a plain join keeps the planner at a handful of
// expected rows and so at the primary keys, whatever the size of the table.
// Index: live_steps_claimable, then the primary keys.
const claimSteps = `
with lanes as materialized (
    select * from unnest($5::int[], $6::smallint[], $7::bigint[]) l(queue, lane, mark)
), picked as materialized (
    select s.task_uuid, s.step_no
    from lanes l cross join lateral (
        select task_uuid, step_no from tasker.live_steps
        where state = 2 and queue = l.queue and lane = l.lane and seq >= l.mark and (tags is null or tags <@ $3::text[])
        order by seq limit $4::int for update skip locked) s
    limit $4::int
)` + takePicked

// claimAny is the full scan: every lane of the queues, from the beginning. It
// finds lanes that are new and steps that became visible behind a mark.
// Index: live_steps_claimable.
const claimAny = `
with picked as materialized (
    select s.task_uuid, s.step_no
    from unnest($5::int[]) q(queue) cross join lateral (
        select task_uuid, step_no from tasker.live_steps
        where state = 2 and queue = q.queue and (tags is null or tags <@ $3::text[])
        order by lane, seq limit $4::int for update skip locked) s
    limit $4::int
)` + takePicked

// takePicked turns picked rows into claims and fetches what the handlers
// need. Parameters of both scans: $1 worker, $2 lease in ms, $3 tags, $4 limit.
const takePicked = `, claimed as (
    update tasker.live_steps s
    set state = 3, attempt = s.attempt + 1, token = nextval('tasker.claim_token'), worker = $1::uuid,
        claimed_at = clock_timestamp(), lease_until = clock_timestamp() + $2::bigint * interval '1 ms'
    from unnest(array(select task_uuid from picked), array(select step_no from picked)) k(task_uuid, step_no)
    where s.task_uuid = k.task_uuid and s.step_no = k.step_no and s.state = 2
    returning s.task_uuid, s.step_no, s.queue, s.lane, s.seq, s.attempt, s.token, s.parents, s.enqueued_at, s.claimed_at
)
select c.task_uuid, c.step_no, c.queue, c.lane, c.seq, c.attempt, c.token, c.enqueued_at, c.claimed_at,
       t.plan_id, t.context, t.correlation_id, t.parent_correlation_id, t.priority, t.requested_at, r.results
from claimed c
join tasker.tasks t on t.task_uuid = c.task_uuid
left join lateral (
    select jsonb_object_agg(a.step_no, a.result order by a.token) results from tasker.step_attempts a
    where a.task_uuid = c.task_uuid and a.step_no = any (c.parents) and a.outcome = 1) r on cardinality(c.parents) > 0
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
	err := row.Scan(&c.TaskUUID, &c.Step, &c.Queue, &lane, &seq, &c.Attempt, &c.Token, &c.EnqueuedAt, &c.ClaimedAt,
		&c.PlanID, &c.Context, &c.CorrelationID, &c.ParentCorrelationID, &c.Priority, &c.RequestedAt, &results)
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
