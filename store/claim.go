package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/workflow"
)

// ClaimRequest requests steps to run.
type ClaimRequest struct {
	Worker uuid.UUID
	// Callables that the worker runs, in their order of precedence within a lane;
	// changing the order from claim to claim is fair.
	Callables []int32
	Tags      []string // of the worker; a step's tags must be among them
	Limit     int      // at least 1
	// Ahead is how many of Limit the worker will not begin at once: less than Limit.
	// These are claimed only if they may be executed more than once, and their loss uses
	// no attempt before the worker has announced that it begins them, see BeginClaims.
	Ahead int
	Lease time.Duration
}

// runs reports whether the worker may claim a step: it offers the step's callable and has
// all of its tags.
func (r *ClaimRequest) runs(plan *Plan, step *workflow.PlanStep) bool {
	for _, tag := range step.Tags {
		if !slices.Contains(r.Tags, tag) {
			return false
		}
	}
	return slices.Contains(r.Callables, plan.callableOf(step))
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
	// Batch is the work of a step that was created at run time; nil: another step.
	Batch *Batch
	// MaxAttempts is how often a retryable step of the task may be executed; 0: by the
	// plan.
	MaxAttempts int
	// Ahead: the step may begin only after an announcement, see BeginClaims.
	Ahead bool
	// Checkpoint is the progress saved by earlier executions, without its history; nil
	// without any.
	Checkpoint json.RawMessage
	// Task is the state of the task, if this is its only step in hand; else nil.
	Task *Standing
}

// Standing is the state of a task whose only step in hand is claimed. While the claim
// holds, only an operator's action changes it, which ends the claim.
type Standing struct {
	State    workflow.TaskState
	Progress *workflow.Progress
}

// PlanStep is the number of the plan's step to run: the step itself, or the one that it
// instantiates.
func (c *Claimed) PlanStep() int {
	if c.Batch != nil {
		return c.Batch.Template
	}
	return c.Step
}

// Key names the claim.
func (c *Claimed) Key() ClaimKey {
	return ClaimKey{TaskUUID: c.TaskUUID, Slot: c.Slot, Step: c.Step, Token: c.Token}
}

// StepUUID identifies the step.
func (c *Claimed) StepUUID() uuid.UUID {
	if c.Batch == nil {
		return StepUUID(c.TaskUUID, c.Step)
	}
	return BatchUUID(c.TaskUUID, c.Step, c.Batch.Run)
}

// readyInLane are the first steps of a lane that a worker can run.
const readyInLane = `from tasker.board
        where state = 2 and callable = l.callable and lane = l.lane and seq >= l.mark and (tags is null or tags <@ $3::text[])
        order by seq limit $4::int`

// pickSteps takes steps lane by lane. Each lane is read from its mark, so that dead row
// versions before it are not read; a nested loop pulls rows one by one, so that no more
// rows are locked than taken.
const pickSteps = `picked as materialized (
    select s.*, l.lane
    from lanes l cross join lateral (
        select ctid as at, last_attempt ` + readyInLane + ` for update skip locked) s
    limit $4::int
), ready as (
    select
    from lanes l cross join lateral (
        select ` + readyInLane + `) s
    limit $4::int
)`

// claimSteps is the scan from the marks: it reads the lanes in which steps are known to
// wait.
// Index: board_claimable, then the primary keys.
const claimSteps = `
with lanes as materialized (
    select * from unnest($5::int[], $6::smallint[], $7::bigint[]) l(callable, lane, mark)
    where l.callable <> all (` + pausedCallables + `)
), ` + pickSteps

// claimAll is the full scan. It determines the existing lanes, and so finds lanes without
// a signal and steps that became visible behind a mark. The lanes of a frontier are read
// from there on; gaps between them are skipped from one lane with waiting steps to the
// next, so that callables of the worker ($8) without steps cost nothing.
// Index: board_claimable.
var claimAll = `
with recursive ` + everyLane(5, 9) + `, lanes as materialized (
    select * from (select * from found where callable = any ($8::int[])) l
    where l.callable <> all (` + pausedCallables + `)
    order by lane, array_position($8::int[], callable)
), ` + pickSteps

// pausedCallables are those paused by an operator, themselves or with their namespaces.
// Index: namespaces_paused, callables_named, callables_paused.
const pausedCallables = `array(select c.callable_id from tasker.namespaces n join tasker.callables c using (namespace_id) where n.paused_at is not null
    union all select callable_id from tasker.callables where paused_at is not null)`

// takePicked turns picked rows into claims. The rows are locked, so they cannot move and
// need not be looked up or checked again: the planner would take a state for a reason to
// read a partial index from end to end. Tokens are drawn in the order of picking: a
// worker begins steps claimed ahead in the order of tokens. A row that another
// transaction has locked, or changed between the snapshot and the lock, is skipped,
// whatever that transaction does; and this claim has used up the signal. So a claim that
// gets fewer than requested reports whether it saw more than it got (ready). Parameters
// of all scans: $1 worker, $2 lease in ms, $3 tags, $4 limit.
const takePicked = `, numbered as materialized (
    select at, nextval('tasker.claim_token') as token from picked
), claimed as (
    update tasker.board s
    set ` + toClaim + `
    from numbered n where s.ctid = n.at
    returning ` + ofBoard + `
), rest as (
    select ` + restLocked + ` as rest
)` + claimedRows

// takeAhead is takePicked for a worker that will not begin $ahead of the steps at once.
// Those are repeatable steps; the others are for its free permits, and in their lane they
// come first: all the other picked steps are claimed as well. The beginning of the first
// steps claimed ahead is announced with the claim.
const takeAhead = `, numbered as materialized (
    select at, nextval('tasker.claim_token') as token from (
        select at, last_attempt, row_number() over (order by lane, last_attempt is null, nth) as place
        from (select *, row_number() over () as nth from picked) n) p
    where place <= $4::int - $ahead::int or last_attempt is null
), claimed as (
    update tasker.board s
    set ` + toClaim + `, ahead = case when s.last_attempt is null then true end
    from numbered n where s.ctid = n.at
    returning ` + ofBoard + `
), announced as (
    insert into tasker.begun_claims (worker, token)
    select $1::uuid, max(token) from (select token from claimed where ahead order by token limit $4::int - $ahead::int) f having max(token) is not null
), rest as (
    select ` + restLocked + ` + case when (select count(*) from numbered) < (select count(*) from picked) then 2 else 0 end as rest
)` + claimedRows

const (
	toClaim = `state = 3, attempt = s.attempt + 1, token = n.token, worker = $1::uuid,
        claimed_at = clock_timestamp(), lease_until = clock_timestamp() + $2::bigint * interval '1 ms'`
	ofBoard = `s.task_uuid, s.slot, s.step_no, s.queue, s.callable, s.lane, s.seq, s.attempt, s.token, s.parents, s.inputs, s.checkpoint, s.enqueued_at,
              s.claimed_at, s.plan_id, s.context, s.correlation_id, s.parent_correlation_id, s.priority, s.requested_at, s.batch, s.task_state, s.progress, s.ahead`
	restLocked = `case when (select count(*) from picked) < $4::int and (select count(*) from picked) < (select count(*) from ready) then 1 else 0 end`
)

// Rest says which steps a claim left although it had room.
type Rest uint8

const (
	// RestLocked says that rows were locked by another transaction, or changed before they could
	// be locked. This look may have used up their signal, so it must be repeated soon.
	RestLocked Rest = 1 << iota
	// RestLast says that steps are on their last execution and not claimed ahead: they wait for a
	// free permit.
	RestLast
)

const claimedRows = `
select r.rest, c.task_uuid, c.slot, c.step_no, c.queue, c.callable, c.lane, c.seq, c.attempt, c.token, coalesce(c.ahead, false), c.enqueued_at, c.claimed_at,
       coalesce(c.plan_id, b.plan_id), coalesce(c.correlation_id, b.correlation_id, c.task_uuid),
       coalesce(c.parent_correlation_id, b.parent_correlation_id), coalesce(c.priority, b.priority),
       coalesce(c.requested_at, b.requested_at), c.batch,
       case get_byte(coalesce(c.progress, b.progress), 0)
           when ` + progressWithRetries + ` then (get_byte(coalesce(c.progress, b.progress), length(coalesce(c.progress, b.progress)) - 2) << 8)
                                   | get_byte(coalesce(c.progress, b.progress), length(coalesce(c.progress, b.progress)) - 1)
           else 0 end,
       coalesce(c.context, b.context) is null or coalesce(cardinality(c.parents), 0) > 0,`

// progressWithRetries is the version of a progress that ends with the task's own number
// of attempts, see workflow.RetryOverride.
const progressWithRetries = `4`

// Two ways to complete a claim: from the board alone, or with missing inputs from the
// ledger. The ledger has a partition per day, and a statement that names it opens them
// all, even if it then reads nothing. So the first way is tried first; if inputs were
// missing, the second is used for a while.
// Index of the second: the primary keys.
const (
	fromBoard = `
       coalesce(c.context, b.context), c.inputs` + andStanding + ofTask
	fromLedger = `
       coalesce(c.context, b.context, (select context from tasker.tasks where task_uuid = c.task_uuid)),
       case when cardinality(c.parents) > 0 then (
           select jsonb_object_agg(a.step_no, a.result order by a.token) from tasker.step_attempts a
           where a.task_uuid = c.task_uuid and a.step_no = any (c.parents) and a.outcome = 1) else c.inputs end` + andStanding + ofTask
	andStanding = `,
       c.checkpoint - 'history', c.task_state, case when c.slot = 0 then c.progress end`
	// ofTask starts with the claims; it is one row without a step if none were claimed
	// and some were left.
	ofTask = `
from rest r left join claimed c on true
left join lateral (
    select plan_id, context, correlation_id, parent_correlation_id, priority, requested_at, progress from tasker.board
    where c.slot > 0 and task_uuid = c.task_uuid and slot = 0 limit 1) b on true
where r.rest > 0 or c.task_uuid is not null
order by c.lane, c.seq`

	// fetchInputs reads the inputs that a claim from the board lacks.
	// Index: the primary keys.
	fetchInputs = `
select k.at, coalesce(b.context, (select context from tasker.tasks where task_uuid = k.task_uuid)),
       case when cardinality(s.parents) > 0 then (
           select jsonb_object_agg(a.step_no, a.result order by a.token) from tasker.step_attempts a
           where a.task_uuid = k.task_uuid and a.step_no = any (s.parents) and a.outcome = 1) else s.inputs end
from unnest((select $1::uuid[]), (select $2::smallint[])) with ordinality k(task_uuid, slot, at)
cross join lateral (select parents, inputs from tasker.board where task_uuid = k.task_uuid and slot = k.slot limit 1) s
cross join lateral (select context from tasker.board where task_uuid = k.task_uuid and slot = 0 limit 1) b`

	// ledgerClaims is the number of claims that read the ledger at once after one that
	// lacked inputs.
	ledgerClaims = 32
)

// claimStatement is the scans with one way to end.
type claimStatement struct{ fromMarks, full scanStatement }

// scanStatement is one scan. ahead is for a worker that does not begin all steps
// at once, and how many of them is its last parameter.
type scanStatement struct{ now, ahead string }

func claimsEndingWith(end string) claimStatement {
	return claimStatement{scanEndingWith(claimSteps, end, 8), scanEndingWith(claimAll, end, 14)}
}

func scanEndingWith(scan, end string, last int) scanStatement {
	return scanStatement{scan + takePicked + end, strings.ReplaceAll(scan+takeAhead+end, "$ahead", "$"+strconv.Itoa(last))}
}

// of is the statement for a claim, with its parameters.
func (s *scanStatement) of(req *ClaimRequest, args []any) (string, []any) {
	if req.Ahead == 0 {
		return s.now, args
	}
	return s.ahead, append(args, req.Ahead)
}

var (
	claimFromBoard  = claimsEndingWith(fromBoard)
	claimFromLedger = claimsEndingWith(fromLedger)
)

// Claim takes up to Limit claimable steps. full makes it scan everything instead of from
// the marks: it finds new lanes and steps that became visible behind a mark, and is more
// expensive while old row versions lie in front. rest says why it got fewer than
// requested although there were steps.
func (s *Store) Claim(ctx context.Context, req ClaimRequest, full bool) (claimed []Claimed, rest Rest, err error) {
	var found claims
	err = s.call(ctx, claimFlow(full), "claim steps", func(ctx context.Context, db *conn) error {
		found = newClaims()
		statement, inLedger := &claimFromBoard, s.inLedger.Load() > 0
		if inLedger {
			statement = &claimFromLedger
		}
		if err := s.claimInto(ctx, db, req, full, statement, &found); err != nil {
			return err
		}
		switch {
		case inLedger && len(found.incomplete) == 0 && len(found.list) > 0:
			s.inLedger.Add(-1)
		case !inLedger && len(found.incomplete) > 0:
			s.inLedger.Store(ledgerClaims)
			return found.complete(ctx, db)
		}
		return nil
	})
	return found.list, found.rest, err
}

// Begun is the token up to which the claims made ahead were announced as begun with the
// claim; 0: none.
func (r *ClaimRequest) Begun(claimed []Claimed) int64 {
	tokens := make([]int64, 0, len(claimed))
	for i := range claimed {
		if claimed[i].Ahead {
			tokens = append(tokens, claimed[i].Token)
		}
	}
	slices.Sort(tokens)
	if tokens = tokens[:min(len(tokens), r.Limit-r.Ahead)]; len(tokens) == 0 {
		return 0
	}
	return tokens[len(tokens)-1]
}

// beginClaims announces that a worker begins steps claimed ahead, up to a token. $3 is
// its previous announcement: with it the older entries are found without reading dead
// ones.
// Index: the primary key.
const beginClaims = `
with older as (
    delete from tasker.begun_claims where worker = $1 and token >= $3 and token < $2
)
insert into tasker.begun_claims (worker, token) values ($1, $2) on conflict do nothing`

// BeginClaims announces that the worker begins the steps claimed ahead, up to a token;
// before is its previous announcement. It must precede their start: the loss of a claim
// made ahead and never announced uses no attempt, since no handler can have begun. After
// an error the announcement may have been made.
func (s *Store) BeginClaims(ctx context.Context, worker uuid.UUID, before, token int64) error {
	return s.repeatable(ctx, "begin_claims", "announce the beginning of claimed steps", func(ctx context.Context, db *conn) error {
		_, err := db.Exec(ctx, beginClaims, worker, token, before)
		return err
	})
}

func claimFlow(full bool) string {
	if full {
		return "claim_full"
	}
	return "claim"
}

// claimInto claims, once more where a full scan turns out to have begun in the
// future.
func (s *Store) claimInto(ctx context.Context, db *conn, req ClaimRequest, full bool, statement *claimStatement, found *claims) error {
	back, err := s.claimOnce(ctx, db, req, full, statement, found)
	if err == nil && back && len(found.list) == 0 {
		_, err = s.claimOnce(ctx, db, req, full, statement, found)
	}
	return err
}

// claimOnce claims, reads the rows and moves the marks. back says that the database went
// back, see history.
func (s *Store) claimOnce(ctx context.Context, db *conn, req ClaimRequest, full bool, statement *claimStatement, found *claims) (back bool, err error) {
	args := []any{req.Worker, req.Lease.Milliseconds(), nonNil(req.Tags), req.Limit}
	var query string
	var lanes lanesFrom
	if full {
		everywhere := s.everywhere()
		args = append(append(args, everywhere[:3]...), req.Callables)
		query, args = statement.full.of(&req, append(args, everywhere[3:]...))
	} else {
		if lanes = s.marks.of(req.Callables); len(lanes.callables) == 0 {
			return false, nil
		}
		query, args = statement.fromMarks.of(&req, append(args, lanes.callables, lanes.lanes, lanes.from))
	}
	b, begin := &pgx.Batch{}, time.Now()
	var q *sighting
	var callables []Callable
	if full {
		q = s.ask(b)
		s.callables.ask(b, &callables)
	} else {
		queueTurns(b, req.Limit, lanes)
	}
	b.Queue(query, args...).Query(func(rows pgx.Rows) error { return found.collect(rows) })
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return false, err
	}
	if back = full && s.wentBack(q); !back {
		s.callables.learn(callables)
	}
	for _, seq := range found.newest {
		s.history.drew(seq)
	}
	all := len(found.list) < req.Limit && found.rest == 0
	s.marks.claimed(found.newest, lanes, full && len(found.list) >= req.Limit)
	if all {
		s.marks.emptied(req.Callables, found.newest, lanes, full, begin)
	}
	if full {
		// The claims are valid regardless of an error here.
		_ = s.moveClaimable(ctx, db, time.Since(begin))
	}
	return back, nil
}

// Large claims of one callable are serialized. Two at once would start at the same place,
// and the second would read every row that the first has locked. Each takes a few
// milliseconds; small claims hardly meet and are not serialized. Neither is a full scan:
// while an old snapshot is held it may take seconds, and no claim should wait for it.
const (
	// largeClaim is the number of steps from which claims are serialized.
	largeClaim = 64
	// turnCallables bounds the callables for which a claim waits; one of more finds
	// room in some of them.
	turnCallables = 16
	// turnLock is the class of the advisory locks; their objects are callables.
	turnLock = 0x7461736b
)

// queueTurns adds the lock that serializes claims. It is a statement of its own, so that
// the claim's snapshot is younger than the lock; it is released with the transaction.
func queueTurns(b *pgx.Batch, limit int, lanes lanesFrom) {
	wanted := slices.Compact(slices.Sorted(slices.Values(lanes.callables)))
	if limit < largeClaim || len(wanted) > turnCallables {
		return
	}
	b.Queue(`select pg_advisory_xact_lock($1, c) from unnest($2::int[]) c`, int32(turnLock), wanted)
}

// claims are the rows of a claim as they come in.
type claims struct {
	list       []Claimed
	newest     map[laneKey]int64 // sequence number in each lane
	incomplete []int             // indexes in list of claims whose inputs the board lacks
	rest       Rest
}

func newClaims() claims { return claims{newest: map[laneKey]int64{}} }

// collect reads the rows of a claim. A row without a step says that all steps found were
// left.
func (f *claims) collect(rows pgx.Rows) error {
	for rows.Next() {
		if rows.RawValues()[1] == nil {
			if err := rows.Scan(append([]any{&f.rest}, make([]any, len(rows.FieldDescriptions())-1)...)...); err != nil {
				return err
			}
			continue
		}
		c, err := f.scan(rows)
		if err != nil {
			return err
		}
		f.list = append(f.list, c)
	}
	return rows.Err()
}

func (f *claims) scan(row pgx.CollectableRow) (Claimed, error) {
	var (
		c          Claimed
		lane       laneKey
		seq        int64
		incomplete bool
		results    []byte
		batch      []byte
		state      *int16
		progress   []byte
	)
	err := row.Scan(&f.rest, (*[16]byte)(&c.TaskUUID), &c.Slot, &c.Step, &c.Queue, &lane.callable, &lane.lane, &seq, &c.Attempt, &c.Token, &c.Ahead, &c.EnqueuedAt, &c.ClaimedAt,
		&c.PlanID, (*[16]byte)(&c.CorrelationID), &c.ParentCorrelationID, &c.Priority, &c.RequestedAt, &batch, &c.MaxAttempts, &incomplete, &c.Context, &results,
		&c.Checkpoint, &state, &progress)
	if err != nil {
		return c, err
	}
	if batch != nil {
		if err := json.Unmarshal(batch, &c.Batch); err != nil {
			return c, fmt.Errorf("read what step %d of task %s works on: %w", c.Step, c.TaskUUID, err)
		}
	}
	if progress != nil && state != nil {
		c.Task = &Standing{State: workflow.TaskState(*state)}
		if c.Task.Progress, err = workflow.DecodeProgress(progress); err != nil {
			c.Task = nil // the orchestrator that applies the report handles it
		}
	}
	f.newest[lane] = max(f.newest[lane], seq)
	if incomplete {
		f.incomplete = append(f.incomplete, len(f.list))
	}
	return c, c.setResults(results)
}

func (c *Claimed) setResults(document []byte) error {
	if document == nil {
		return nil
	}
	return json.Unmarshal(document, &c.ParentResults)
}

// complete reads missing inputs from the ledger.
func (f *claims) complete(ctx context.Context, db *conn) error {
	tasks, slots := make(uuids, len(f.incomplete)), make([]int16, len(f.incomplete))
	for i, at := range f.incomplete {
		tasks[i], slots[i] = f.list[at].TaskUUID, int16(f.list[at].Slot) // #nosec G115 -- at most MaxSteps
	}
	rows, err := db.Query(ctx, fetchInputs, tasks, slots)
	if err != nil {
		return err
	}
	return eachInput(rows, func(at int, context json.RawMessage, results map[int]json.RawMessage) {
		c := &f.list[f.incomplete[at]]
		c.Context, c.ParentResults = context, results
	})
}

// eachInput reads the rows of fetchInputs, by places in its lists.
func eachInput(rows pgx.Rows, each func(at int, context json.RawMessage, results map[int]json.RawMessage)) error {
	var at int
	var document, results []byte
	_, err := pgx.ForEachRow(rows, []any{&at, &document, &results}, func() error {
		var c Claimed
		err := c.setResults(results)
		each(at-1, append(json.RawMessage(nil), document...), c.ParentResults)
		return err
	})
	return err
}
