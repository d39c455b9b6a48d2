package board

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/aside"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
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
	// BesideSuspect: the worker has a suspect under way, so no step is claimed that was lost before.
	BesideSuspect bool
	// Suspects: a suspect may be claimed, too. Such a claim, of limited callables, takes one step.
	Suspects bool
	// Except are tasks whose steps are not claimed: they are set aside.
	Except []uuid.UUID
}

// runs reports whether the worker may claim a step: it offers the step's callable and has
// all of its tags.
func (r *ClaimRequest) runs(plan *registry.Plan, step *workflow.PlanStep) bool {
	for _, tag := range step.Tags {
		if !slices.Contains(r.Tags, tag) {
			return false
		}
	}
	return slices.Contains(r.Callables, plan.CallableOf(step))
}

// losses is how often a step may have been lost to be claimed.
func (r *ClaimRequest) losses() int {
	switch {
	case r.Suspects:
		return math.MaxInt16
	case r.BesideSuspect:
		return 0
	}
	return SuspectedFrom - 1
}

// Claimed is a step that now belongs to the caller until its lease ends.
type Claimed struct {
	TaskUUID              uuid.UUID
	Slot                  int // of the board's row, see ClaimKey
	Step                  int `sql:"step_no"`
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
	ParentResults map[int]json.RawMessage `sql:"inputs"`
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
	// Trace is the task's, see NewTask.Trace.
	Trace []byte
	// Losses is how often the step was lost with its process without being blamed; LostAfterMs is
	// the longest time, in milliseconds, from a claim of it to such a loss.
	Losses      int   `sql:",omitzero"`
	LostAfterMs int64 `sql:",omitzero"`
	// Task is the state of the task, if this is its only live step; else nil.
	Task *Standing `sql:"-"`
	// Large: the step has inputs that are too large for a claim, and comes without any of them: they
	// are read by Inputs.
	Large bool `sql:"-"`
	// Unreadable is why the database did not give the step its inputs, which are missing then;
	// nil: it has them.
	Unreadable error `sql:"-"`
}

// InputBytes is the size of the JSON of the inputs that the claim has.
func (c *Claimed) InputBytes() int64 {
	n := len(c.Context) + len(c.Checkpoint)
	for _, result := range c.ParentResults {
		n += len(result)
	}
	return int64(n)
}

// Standing is the state of a task whose only live step is claimed. While the claim
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
        where state = {claimable} and callable = l.callable and lane = l.lane and seq >= l.mark and (tags is null or tags <@ @tags::text[])
              and ` + maybeLost + ` and task_uuid <> all (@except::uuid[])
        order by seq limit @limit::int`

// maybeLost holds for steps that have not been lost too often for the claim.
const maybeLost = `(losses is null or losses <= @losses::int)`

// pickSteps takes steps lane by lane. Each lane is read from its mark, so that dead row
// versions before it are not read; a nested loop pulls rows one by one, so that no more
// rows are locked than taken.
const pickSteps = `picked as materialized (
    select s.*, l.lane
    from lanes l cross join lateral (
        select ctid as at, last_attempt ` + readyInLane + ` for update skip locked) s
    limit @limit::int
), ready as (
    select
    from lanes l cross join lateral (
        select ` + readyInLane + `) s
    limit @limit::int
)`

// claimSteps is the scan from the marks: it reads the lanes in which steps are known to
// wait.
// Index: board_claimable, then the primary keys.
var claimSteps = `
with lanes as materialized (
    select * from ` + stmt.List[laneFrom]("l") + `
    where l.callable <> all (` + pausedCallables + `)
), ` + pickSteps

// claimAll is the full scan. It determines the existing lanes, and so finds lanes without
// a signal and steps that became visible behind a mark. The lanes of a frontier are read
// from there on; gaps between them are skipped from one lane with waiting steps to the
// next, so that callables of the worker without steps cost nothing.
// Index: board_claimable.
var claimAll = `
with recursive ` + everyLane + `, lanes as materialized (
    select * from (select * from found where callable = any (@callables::int[])) l
    where l.callable <> all (` + pausedCallables + `)
    order by lane, array_position(@callables::int[], callable)
), ` + pickSteps

// pausedCallables are those paused by an operator, themselves or with their namespaces, and
// those with a limit, whose steps only claims of their own take.
// The offsets keep the order of reading, whatever the statistics say: a join made while
// callables had some and namespaces none read every callable.
// Index: namespaces_paused, callables_named, callables_paused.
const (
	pausedInNamespaces = `array(select c.callable_id from (select namespace_id from tasker.namespaces where paused_at is not null offset 0) n,
        lateral (select callable_id from tasker.callables c where c.namespace_id = n.namespace_id offset 0) c
    union all select callable_id from tasker.callables where paused_at is not null`
	pausedCallables = pausedInNamespaces + `)`
)

// pausedByOperators are those of pausedCallables that are not merely limited.
const pausedByOperators = pausedInNamespaces + ` and paused_by is not null)`

// takePicked turns picked rows into claims. The rows are locked, so they cannot move and
// need not be looked up or checked again: the planner would take a state for a reason to
// read a partial index from end to end. Tokens are drawn in the order of picking: a
// worker begins steps claimed ahead in the order of tokens. A row that another
// transaction has locked, or changed between the snapshot and the lock, is skipped,
// whatever that transaction does; and this claim has consumed the signal. So a claim that
// gets fewer than requested reports whether it saw more than it got (ready).
const takePicked = claimPicked + `, rest as (
    select ` + restLocked + ` as rest
)` + claimedRows

// claimPicked gives each picked row a token and makes it a claim.
const claimPicked = `, numbered as materialized (
    select at, nextval('tasker.claim_token') as token from picked
), claimed as (
    update tasker.board s
    set ` + toClaim + `
    from numbered n where s.ctid = n.at
    returning ` + ofBoard + `
)`

// takeAhead is takePicked for a worker that will not begin ahead of the steps at once.
// Those are repeatable steps; the others are for its free permits, and in their lane they
// come first: all the other picked steps are claimed as well. The beginning of the first
// steps claimed ahead is announced with the claim.
const takeAhead = `, numbered as materialized (
    select at, nextval('tasker.claim_token') as token from (
        select at, last_attempt, row_number() over (order by lane, last_attempt is null, nth) as place
        from (select *, row_number() over () as nth from picked) n) p
    where place <= @limit::int - @ahead::int or last_attempt is null
), claimed as (
    update tasker.board s
    set ` + toClaim + `, ahead = case when s.last_attempt is null then true end
    from numbered n where s.ctid = n.at
    returning ` + ofBoard + `
)` + announced + `, rest as (
    select ` + restLocked + ` + case when (select count(*) from numbered) < (select count(*) from picked) then 2 else 0 end as rest
)` + claimedRows

// announced says that the first of the steps claimed ahead begin.
const announced = `, announced as (
    insert into tasker.begun_claims (worker, token)
    select @worker::uuid, max(token) from (select token from claimed where ahead order by token limit @limit::int - @ahead::int) f having max(token) is not null
)`

const (
	toClaim = `state = {in_progress}, attempt = s.attempt + 1, token = n.token, worker = @worker::uuid,
        claimed_at = clock_timestamp(), lease_until = clock_timestamp() + @lease_ms::bigint * interval '1 ms'`
	ofBoard       = `s.seq, ` + ofBoardButSeq
	ofBoardButSeq = `s.task_uuid, s.slot, s.step_no, s.queue, s.callable, s.lane, s.attempt, s.token, s.parents, s.inputs, s.checkpoint, s.enqueued_at,
              s.claimed_at, s.plan_id, s.context, s.correlation_id, s.parent_correlation_id, s.priority, s.requested_at, s.batch, s.task_state, s.progress, s.ahead, s.trace, s.losses, s.lost_after_ms`
	// A row that was changed between the snapshot and the lock is numbered, but not updated.
	restLocked = `case when (select count(*) from picked) < @limit::int and (select count(*) from picked) < (select count(*) from ready)
              or (select count(*) from claimed) < (select count(*) from numbered) then 1 else 0 end` + orSuspects
	// A look at the first page of an index without rows.
	orSuspects = ` + case when exists (select from tasker.board where ` + suspectsWait + `) then 4 else 0 end`
)

// Rest says which steps a claim left although it had room.
type Rest uint8

const (
	// RestLocked says that rows were locked by another transaction, or changed before they could
	// be locked. This look may have consumed their signal, so it must be repeated soon.
	RestLocked Rest = 1 << iota
	// RestLast says that steps are on their last execution and not claimed ahead: they wait for a
	// free permit.
	RestLast
	// RestSuspects says that suspects wait. A worker claims them with ClaimSuspect, one at a time.
	RestSuspects
	// RestUnsorted says that more limited steps may wait than a claim of them has sorted.
	RestUnsorted
)

const claimedRows = `
select r.rest, c.task_uuid, c.slot, c.step_no, c.queue, c.callable, c.lane, c.seq, c.attempt, c.token, coalesce(c.ahead, false) as ahead, c.enqueued_at, c.claimed_at,
       coalesce(c.plan_id, b.plan_id) as plan_id, coalesce(c.correlation_id, b.correlation_id, c.task_uuid) as correlation_id,
       coalesce(c.parent_correlation_id, b.parent_correlation_id) as parent_correlation_id, coalesce(c.priority, b.priority) as priority,
       coalesce(c.requested_at, b.requested_at) as requested_at,
       case when pg_column_size(c.batch) > ` + inClaim + ` then c.batch - 'cursor' else c.batch end as batch, coalesce(c.trace, b.trace) as trace, c.losses, c.lost_after_ms,
       case get_byte(coalesce(c.progress, b.progress), 0)
           when {progress_retry} then (get_byte(coalesce(c.progress, b.progress), length(coalesce(c.progress, b.progress)) - {progress_max_attempts}) << 8)
                                   | get_byte(coalesce(c.progress, b.progress), length(coalesce(c.progress, b.progress)) - 1)
           else 0 end as max_attempts,
       coalesce(c.context, b.context) is null or coalesce(cardinality(c.parents), 0) > 0 as incomplete, coalesce(cardinality(c.parents), 0) > 0 as inherits,
       coalesce(pg_column_size(c.checkpoint), 0) > ` + inClaim + ` or coalesce(pg_column_size(c.batch), 0) > ` + inClaim + ` as large,`

// What rides in a claim is small: the statement that all wait for reads no large inputs. Sizes are those
// of what is stored, mostly compressed.
const (
	// MaxInClaim is how many bytes of inputs of one step come with its claim, and MaxInClaims of all steps
	// of a claim. The others are read by Inputs, when their handlers are about to begin.
	MaxInClaim  = 64 << 10
	MaxInClaims = 4 << 20
	// ledgerLimit is how many steps a claim takes at most that reads the ledger itself.
	ledgerLimit = MaxInClaims / MaxInClaim
	// inClaim is MaxInClaim in statements.
	inClaim = `65536`
)

// Two ways to complete a claim: from the board alone, or with missing inputs from the
// ledger. The ledger has a partition per day, and a statement that names it opens them
// all, even if it then reads nothing. So the first way is tried first; if inputs were
// missing, the second is used for a while.
// Index of the second: the primary keys.
const (
	fromBoard = `
       coalesce(c.context, b.context) as context, c.inputs` + andStanding + ofTask
	fromLedger = `
       coalesce(c.context, b.context, (select context from tasker.tasks where task_uuid = c.task_uuid and pg_column_size(context) <= ` + inClaim + `)) as context,
       case when cardinality(c.parents) > 0 then (
           select case when sum(pg_column_size(a.result)) <= ` + inClaim + ` then jsonb_object_agg(a.step_no, a.result order by a.token) end from tasker.step_attempts a
           where a.task_uuid = c.task_uuid and a.step_no = any (c.parents) and a.outcome = {success}) else c.inputs end as inputs` + andStanding + ofTask
	andStanding = `,
       case when pg_column_size(c.checkpoint) <= ` + inClaim + ` then c.checkpoint - 'history' end as checkpoint, c.task_state, case when c.slot = 0 then c.progress end as progress`
	// ofTask starts with the claims; it is one row without a step if none were claimed
	// and some were left.
	ofTask = `
from rest r left join claimed c on true
left join lateral (
    select plan_id, context, correlation_id, parent_correlation_id, priority, requested_at, progress, trace from tasker.board
    where c.slot > 0 and task_uuid = c.task_uuid and slot = 0 limit 1) b on true
where r.rest > 0 or c.task_uuid is not null
order by c.lane, c.seq`

	// ledgerClaims is the number of claims that read the ledger at once after one that
	// lacked inputs.
	ledgerClaims = 32
)

// FetchInputs reads the inputs that a claim from the board lacks: of steps with at most @most bytes of
// them, as long as all have at most @all. bytes are those of each step.
// Index: the primary keys.
var FetchInputs = pg.Compile(`
with sized as materialized (
    select k.at, k.task_uuid, s.parents, s.inputs, s.slot, b.context,
           coalesce(pg_column_size(s.checkpoint), 0) + coalesce(pg_column_size(s.batch), 0) + coalesce(pg_column_size(b.context), c.bytes, 0) + coalesce(r.bytes, 0) as bytes,
           pg_column_size(s.checkpoint) > ` + inClaim + ` as checkpoint, pg_column_size(s.batch) > ` + inClaim + ` as batch
    from ` + stmt.OrderedHiddenList[RowKey]("k") + `
    cross join lateral (select slot, parents, inputs, checkpoint, batch from tasker.board where task_uuid = k.task_uuid and slot = k.slot limit 1) s
    cross join lateral (select context from tasker.board where task_uuid = k.task_uuid and slot = 0 limit 1) b
    left join lateral (select pg_column_size(context) as bytes from tasker.tasks where b.context is null and task_uuid = k.task_uuid limit 1) c on true
    left join lateral (select sum(pg_column_size(a.result)) as bytes from tasker.step_attempts a
                       where cardinality(s.parents) > 0 and a.task_uuid = k.task_uuid and a.step_no = any (s.parents) and a.outcome = {success}) r on true
), fitting as materialized (
    select *, bytes <= @most::bigint and sum(bytes) filter (where bytes <= @most::bigint) over (order by at) <= @all::bigint as fits from sized
)
select f.at, f.bytes, coalesce(f.fits, false) as fits,
       case when f.fits then coalesce(f.context, (select context from tasker.tasks where task_uuid = f.task_uuid)) end as context,
       case when not f.fits then null when cardinality(f.parents) > 0 then (
           select jsonb_object_agg(a.step_no, a.result order by a.token) from tasker.step_attempts a
           where a.task_uuid = f.task_uuid and a.step_no = any (f.parents) and a.outcome = {success}) else f.inputs end as inputs,
       case when f.fits and f.checkpoint then (select checkpoint - 'history' from tasker.board where task_uuid = f.task_uuid and slot = f.slot) end as checkpoint,
       case when f.fits and f.batch then (select batch from tasker.board where task_uuid = f.task_uuid and slot = f.slot) end as batch
from fitting f`)

// inClaimsOf are the arguments of FetchInputs for what comes with a claim.
func inClaimsOf(keys []RowKey) pg.Args {
	return pg.Args{"k": keys, "most": int64(MaxInClaim), "all": int64(MaxInClaims)}
}

// RowKey is the key of a row of the board.
type RowKey struct {
	TaskUUID uuid.UUID
	Slot     int16
}

// claimStatement is the scans with one way to end.
type claimStatement struct{ fromMarks, full scanStatement }

// scanStatement is one scan. ahead is for a worker that does not begin all steps at once.
type scanStatement struct{ now, ahead *stmt.Statement }

func claimsEndingWith(end string) claimStatement {
	scan := func(scan string) scanStatement {
		return scanStatement{pg.Compile(scan + takePicked + end), pg.Compile(scan + takeAhead + end)}
	}
	return claimStatement{scan(claimSteps), scan(claimAll)}
}

// of is the statement for a claim, with its arguments.
func (s *scanStatement) of(req *ClaimRequest, how pg.Args) stmt.Call {
	how = how.And(pg.Args{"worker": req.Worker, "lease_ms": req.Lease.Milliseconds(), "tags": pg.NonNil(req.Tags), "limit": req.Limit,
		"losses": req.losses(), "except": pg.NonNil(req.Except)})
	if req.Ahead == 0 {
		return s.now.With(how)
	}
	how["ahead"] = req.Ahead
	return s.ahead.With(how)
}

var (
	claimFromBoard  = claimsEndingWith(fromBoard)
	claimFromLedger = claimsEndingWith(fromLedger)
)

// Claim takes up to Limit claimable steps. full makes it scan everything instead of from
// the marks: it finds new lanes and steps that became visible behind a mark, and is more
// expensive while old row versions lie in front. rest says why it got fewer than
// requested although there were steps.
func (s *Board) Claim(ctx context.Context, req ClaimRequest, full bool) (claimed []Claimed, rest Rest, err error) {
	var found claims
	err = s.db.Call(ctx, claimFlow(full), "claim steps", func(ctx context.Context, db *pg.Conn) error {
		found = newClaims()
		statement, inLedger := &claimFromBoard, s.inLedger.Load() > 0 && req.Limit <= ledgerLimit
		if inLedger {
			statement = &claimFromLedger
		}
		err := s.claimInto(ctx, db, req, full, statement, &found)
		if inLedger && pg.Rejected(err) { // the inputs of a step may be at fault: they are read apart
			s.inLedger.Store(0)
			found, inLedger = newClaims(), false
			err = s.claimInto(ctx, db, req, full, &claimFromBoard, &found)
		}
		if err != nil {
			return err
		}
		switch {
		case inLedger && len(found.incomplete) == 0 && len(found.list) > 0:
			s.inLedger.Add(-1)
		case inLedger:
			found.mark()
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

// beginClaims announces that a worker begins steps claimed ahead, up to a token.
// before is its previous announcement: with it the older entries are found without reading
// dead ones.
// Index: the primary key.
var beginClaims = pg.Compile(`
with older as (
    delete from tasker.begun_claims where worker = @worker and token >= @before and token < @token
)
insert into tasker.begun_claims (worker, token) values (@worker, @token) on conflict do nothing`)

// BeginClaims announces that the worker begins the steps claimed ahead, up to a token;
// before is its previous announcement. It must precede their start: the loss of a claim
// made ahead and never announced uses no attempt, since no handler can have begun. After
// an error the announcement may have been made.
func (s *Board) BeginClaims(ctx context.Context, worker uuid.UUID, before, token int64) error {
	_, err := pg.Execute(ctx, s.db, "begin_claims", "announce the beginning of claimed steps",
		beginClaims.With(pg.Args{"worker": worker, "token": token, "before": before}))
	return err
}

func claimFlow(full bool) string {
	if full {
		return "claim_full"
	}
	return "claim"
}

// claimInto claims, once more where a full scan turns out to have begun in the
// future.
func (s *Board) claimInto(ctx context.Context, db *pg.Conn, req ClaimRequest, full bool, statement *claimStatement, found *claims) error {
	back, err := s.claimOnce(ctx, db, req, full, statement, found)
	if err == nil && back && len(found.list) == 0 {
		_, err = s.claimOnce(ctx, db, req, full, statement, found)
	}
	return err
}

// claimOnce claims, reads the rows and moves the marks. back says that the database went
// back, see history.
func (s *Board) claimOnce(ctx context.Context, db *pg.Conn, req ClaimRequest, full bool, statement *claimStatement, found *claims) (back bool, err error) {
	var claim stmt.Call
	var lanes lanesFrom
	if full {
		claim = statement.full.of(&req, s.everywhere().And(pg.Args{"callables": req.Callables}))
	} else {
		if lanes = s.marks.of(req.Callables); len(lanes) == 0 {
			return false, nil
		}
		claim = statement.fromMarks.of(&req, pg.Args{"l": lanes})
	}
	b, begin := &pgx.Batch{}, time.Now()
	var q *pg.Sighting
	var callables []registry.Callable
	if full {
		q = s.db.Ask(b)
		s.registry.Callables.Ask(b, &callables)
		s.registry.AskPolicies(b)
		s.registry.AskLimits(b)
	} else {
		queueTurns(b, req.Limit, lanes)
	}
	claim.Queue(b).Query(stmt.Rows(found.add))
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return false, err
	}
	if back = full && s.db.WentBack(q); !back {
		s.registry.Callables.Learn(callables)
	}
	for _, seq := range found.newest {
		s.db.History.Drew(seq)
	}
	all := len(found.list) < req.Limit && found.rest&^RestSuspects == 0
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
)

var takeTurns = pg.Compile(`select pg_advisory_xact_lock(@class, c) from unnest(@callables::int[]) c`)

// queueTurns adds the lock that serializes claims. It is a statement of its own, so that
// the claim's snapshot is younger than the lock; it is released with the transaction.
func queueTurns(b *pgx.Batch, limit int, lanes lanesFrom) {
	wanted := make([]int32, 0, len(lanes))
	for _, l := range lanes {
		wanted = append(wanted, l.callable)
	}
	slices.Sort(wanted)
	wanted = slices.Compact(wanted)
	if limit < largeClaim || len(wanted) > turnCallables {
		return
	}
	takeTurns.With(pg.Args{"class": int32(pg.TurnLock), "callables": wanted}).Queue(b)
}

// claims are the rows of a claim as they come in.
type claims struct {
	list       []Claimed
	newest     map[laneKey]int64 // sequence number in each lane
	incomplete []int             // indexes in list of claims whose inputs the board lacks, or has too large ones of
	inherits   map[int]bool      // of these, those that get results of parents from the ledger
	rest       Rest
}

func newClaims() claims { return claims{newest: map[laneKey]int64{}} }

// claimedRow is a row of claimedRows. One without a step says that all steps found were
// left.
type claimedRow struct {
	Rest       Rest
	Claimed    `sql:",omitzero"`
	laneKey    `sql:",omitzero"`
	Seq        int64              `sql:",omitzero"`
	Incomplete bool               // the board lacks inputs
	Inherits   bool               // it gets results of parents from the ledger
	Large      bool               // the board has too large ones
	TaskState  workflow.TaskState `sql:",omitzero"`
	Progress   []byte
}

// add adds a row.
func (f *claims) add(r *claimedRow) {
	f.rest = r.Rest
	if r.TaskUUID == uuid.Nil {
		return
	}
	c := r.Claimed
	if r.Progress != nil {
		// An orchestrator that applies the report handles progress that cannot be read.
		if progress, err := workflow.DecodeProgress(r.Progress); err == nil {
			c.Task = &Standing{State: r.TaskState, Progress: progress}
		}
	}
	if r.Seq > 0 { // else it was not in the line of its callable
		f.newest[r.laneKey] = max(f.newest[r.laneKey], r.Seq)
	}
	if c.Large = r.Large; r.Incomplete || r.Large {
		f.incomplete = append(f.incomplete, len(f.list))
	}
	if r.Inherits {
		if f.inherits == nil {
			f.inherits = map[int]bool{}
		}
		f.inherits[len(f.list)] = true
	}
	f.list = append(f.list, c)
}

// complete reads missing inputs, as far as they fit a claim. Claims whose inputs cannot be read are marked.
func (f *claims) complete(ctx context.Context, db *pg.Conn) error {
	fetch := func(part []int) error {
		keys := make([]RowKey, len(part))
		for i, at := range part {
			keys[i] = f.list[at].row()
		}
		return stmt.Each(ctx, db, FetchInputs.With(inClaimsOf(keys)), func(in *ClaimInputs) {
			f.list[part[in.At-1]].take(in)
		})
	}
	return aside.Apart(f.incomplete, pg.Rejected, fetch, func(at int, why error) {
		f.list[at].Unreadable = why
	})
}

// mark marks the claims that a claim from the ledger left without inputs: they are large.
func (f *claims) mark() {
	for _, at := range f.incomplete {
		c := &f.list[at]
		c.Large = c.Large || c.Context == nil || f.inherits[at] && c.ParentResults == nil
	}
}

func (c *Claimed) row() RowKey { return RowKey{c.TaskUUID, int16(c.Slot)} } // #nosec G115 -- at most MaxSteps

// take adds inputs to a claim, or marks it.
func (c *Claimed) take(in *ClaimInputs) {
	if c.Large = !in.Fits; c.Large {
		return
	}
	c.Context, c.ParentResults = in.Context, in.Inputs
	if in.Checkpoint != nil {
		c.Checkpoint = in.Checkpoint
	}
	if in.Batch != nil {
		c.Batch = in.Batch
	}
}

// Inputs reads the inputs of a claim that is Large, if they have at most most bytes, as stored. bytes
// are those that they have; a claim with more stays without them. The error wraps ErrNotFound if the
// step is not on the board any more.
func (s *Board) Inputs(ctx context.Context, c *Claimed, most int64) (bytes int64, err error) {
	found := false
	err = s.db.Call(ctx, "claim_inputs", "read the inputs of a step", func(ctx context.Context, db *pg.Conn) error {
		keys := []RowKey{c.row()}
		if found = false; c.Slot == 0 { // an action may have moved the step, see ownSlot
			keys = append(keys, RowKey{c.TaskUUID, int16(c.Step + 1)}) // #nosec G115 -- at most MaxSteps
		}
		return stmt.Each(ctx, db, FetchInputs.With(pg.Args{"k": keys, "most": most, "all": 2 * most}), func(in *ClaimInputs) {
			if in.At == len(keys) || !found {
				found, bytes = true, in.Bytes
				c.take(in)
			}
		})
	})
	if err == nil && !found {
		err = pg.ErrNotFound
	}
	return bytes, err
}

// ClaimInputs are inputs that a claim from the board may lack.
type ClaimInputs struct {
	At      int   // in the list of keys, from 1 on
	Bytes   int64 // of all of them, as stored
	Fits    bool  // they are not too large, and so read
	Context json.RawMessage
	Inputs  map[int]json.RawMessage
	// Checkpoint and Batch are nil where the board gives them with the claim.
	Checkpoint json.RawMessage
	Batch      *Batch
}
