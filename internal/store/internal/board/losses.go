package board

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
)

// A process that is lost takes all of its steps along, and at most one of them is to blame. The first
// loss of a step makes it one that was lost, the second a suspect. A process has at most one suspect
// under way, and beside it no other step that was lost; so a suspect whose process is lost is blamed,
// unless a step that has never been lost ends two processes in a row. Who runs for longer than it did
// before its losses is no suspect. See decision 0004.

// SuspectedFrom is the number of losses from which a step is a suspect.
const SuspectedFrom = 2

// suspected are the suspects. Claims take the other steps.
const suspected = `losses > 1`

// suspectsWait are the suspects that wait: a range, as the planner would take the state for a reason to
// read the index of all that is claimable.
// Index: board_suspects.
const suspectsWait = `state >= {claimable} and state <= {claimable} and ` + suspected

// firstSuspect is the first suspect that a worker can run, of callables without limits.
const firstSuspect = `from tasker.board
    where ` + suspectsWait + ` and callable = any (@callables::int[]) and callable <> all (` + pausedCallables + `)
          and (tags is null or tags <@ @tags::text[]) and task_uuid <> all (@except::uuid[])
    order by lane, seq limit @limit::int`

// claimSuspect claims in the order of lanes.
// Index: board_suspects.
var claimSuspect = pg.Compile(`
with picked as materialized (
    select ctid as at ` + firstSuspect + ` for update skip locked
), ready as (
    select ` + firstSuspect + `
)` + takePicked + fromBoard)

// ClaimSuspect claims a suspect for a worker that has no step under way that was lost before. rest says
// whether one was locked.
func (s *Board) ClaimSuspect(ctx context.Context, req ClaimRequest) (claimed []Claimed, rest Rest, err error) {
	var found claims
	err = s.db.Call(ctx, "claim_suspect", "claim a suspect", func(ctx context.Context, db *pg.Conn) error {
		found = newClaims()
		call := claimSuspect.With(pg.Args{"worker": req.Worker, "callables": req.Callables, "tags": pg.NonNil(req.Tags), "limit": 1,
			"lease_ms": req.Lease.Milliseconds(), "except": pg.NonNil(req.Except)})
		if err := stmt.Each(ctx, db, call, found.add); err != nil {
			return err
		}
		for _, seq := range found.newest {
			s.db.History.Drew(seq)
		}
		return found.complete(ctx, db)
	})
	return found.list, found.rest, err
}

const (
	// workerOf is the worker w of a claim c.
	workerOf = `(select worker_uuid, heartbeat_at, mode from tasker.workers where worker_uuid = any (array[c.worker]) limit 1) w`
	// outlived holds for a claim c whose worker w was alive when the claim was older than before its losses.
	outlived = `w.heartbeat_at > c.claimed_at + c.lost_after_ms * interval '1 ms'`
)

// judging is what a statement that judges losses says of them.
type judging struct {
	suspects string // the suspects under way in each process, of which it may blame one
	blamed   string // holds for a claim c, with the suspects s of its worker, that is blamed
	kind     string // the type of the failure
	lost     string // who was lost, in the failure of a claim of worker %s
}

// judge says of the claims in lost, which are locked, what their loss means, and does it:
//
//	unbegun  made ahead and never announced: claimable again as if it had not been made
//	lives    of a worker of a queue that is alive: extended
//	spared   not blamed: claimable again, without using an attempt, and one loss more
//	blamed   the only suspect of its process: reported, as an attempt that crashed
//	once     may not be executed twice: reported
//	worn     has been lost too often without being blamed: reported as lost for good
//	counted  of a dead worker of a queue, or of a worker that nobody knows: reported
//
// Reports of losses are applied like every report. The token stays for the record; a late result is
// rejected because the state has changed. The last part, judged, has a row for each lost step, each
// recorded loss and each lane in which steps are claimable again.
func judge(how judging) string {
	failure := func(message string) string {
		return `jsonb_build_object('error_type', '` + how.kind + `', 'retryable', true, 'message', format('` + how.lost + `; ` + message + `)`
	}
	return how.suspects + `, verdicts as materialized (
    select c.*, q.lives_until, s.under_way, case when s.queue = c.queue then s.task_uuid end as blamed_task, s.step_no as blamed_step,
           case when c.ahead and c.token > coalesce((select token from tasker.begun_claims b where b.worker = c.worker order by token desc limit 1), 0) then 'unbegun'
                when q.lives_until > clock_timestamp() then 'lives'
                when w.worker_uuid is null then 'counted'
                when c.last_attempt and c.attempt <= 1 then 'once'
                when ` + how.blamed + ` then 'blamed'
                when coalesce(c.losses, 0) + 1 >= @max_losses::int then 'worn'
                else 'spared' end as verdict
    from lost c
    left join lateral (select lives_until from tasker.queue_workers where claims = c.worker limit 1) q on true
    left join lateral ` + workerOf + ` on true
    left join suspects s on s.worker = c.worker
), extended as (
    update tasker.board s set lease_until = j.lives_until from verdicts j where s.ctid = j.at and j.verdict = 'lives'
), back as (
    update tasker.board s
    set ` + claimableAgain + `
    where s.ctid = any (array(select at from verdicts where verdict = 'unbegun'))
    returning s.queue, s.callable, s.lane
), spared as (
    update tasker.board s
    set ` + claimableAgain + `, losses = coalesce(s.losses, 0) + 1,
        lost_after_ms = greatest(s.lost_after_ms, extract(epoch from least(s.lease_until, clock_timestamp()) - s.claimed_at) * 1000)
    from verdicts j where s.ctid = j.at and j.verdict = 'spared'
    returning s.task_uuid, s.step_no, j.attempt, j.token, j.worker, j.enqueued_at, j.claimed_at, s.checkpoint, s.queue, s.callable, s.lane,
              clock_timestamp() as lost_at, coalesce((s.batch ->> 'template')::int, s.step_no) as step, ` + limitedCallableOf + ` as counted_as, j.under_way, j.blamed_task, j.blamed_step
), recorded as (
    insert into tasker.step_attempts (task_uuid, step_no, attempt, token, worker, enqueued_at, claimed_at, reported_at, applied_at, outcome, reason, error, checkpoint)
    select task_uuid, step_no, attempt, token, worker, enqueued_at, claimed_at, lost_at, lost_at, {lease_lost}, '` + SparedReason + `',
           ` + failure(`%s, so the step runs again without using an attempt', worker,
               case when under_way = 1 then coalesce(format('step %s of task %s is blamed', blamed_step, blamed_task), 'another step is blamed')
                    else 'no step is blamed' end)`) + `, checkpoint
    from spared where ` + sparedTransition + `
), gone as (
    update tasker.board s
    set state = {reported}, seq = nextval('tasker.step_seq'), lease_until = null, reported_at = clock_timestamp(), outcome = {lease_lost},
        retryable = j.verdict <> 'worn',
        error = case j.verdict
            when 'blamed' then ` + failure(`the step is blamed for it, as the only suspected one there', j.worker)`) + `
            when 'once' then ` + failure(`the step may not be executed twice', j.worker)`) + `
            when 'worn' then ` + failure(`the step was lost %s times without being blamed (max_losses)', j.worker, coalesce(j.losses, 0) + 1)`) + ` end
    from verdicts j where s.ctid = j.at and j.verdict in ('blamed', 'once', 'worn', 'counted')
    returning j.verdict, s.task_uuid, s.step_no
), judged as (
    select verdict, '' as namespace, 0 as callable, 0::smallint as lane, 1::bigint as steps, task_uuid, step_no, ` + nothingLost + ` from gone
    union all
    select 'recorded', '', s.counted_as, 0::smallint, 1, s.task_uuid, s.step_no, t.plan_id, s.step, s.enqueued_at, s.claimed_at, s.lost_at
    from spared s left join lateral (select plan_id from tasker.board where task_uuid = any (array[s.task_uuid]) and slot = 0 limit 1) t on true
    union all
    select b.verdict, n.name, b.callable, b.lane, count(*), null, 0, ` + nothingLost + `
    from (select 'unbegun' as verdict, queue, callable, lane from back union all select 'spared', queue, callable, lane from spared) b
    cross join lateral (select name from tasker.namespaces where namespace_id = any (array[b.queue]) limit 1) n group by b.verdict, n.name, b.callable, b.lane
)`
}

const (
	// claimableAgain returns a claim to where it was claimed; its execution is not counted.
	claimableAgain = `state = {claimable}, seq = nextval('tasker.step_seq'), attempt = s.attempt - 1, token = null, worker = null, lease_until = null,
        claimed_at = null, ahead = null, enqueued_at = clock_timestamp()`
	// ofLost are the columns of a lost claim.
	ofLost = `task_uuid, step_no, worker, token, ahead, queue, attempt, last_attempt, losses, lost_after_ms, enqueued_at, claimed_at`
)

// nothingLost are the columns of lostRow of other rows.
const nothingLost = `null::int as plan_id, 0 as step, null::timestamptz as enqueued_at, null::timestamptz as claimed_at, null::timestamptz as at`

// SparedReason is the reason of a recorded attempt that was lost and used none.
const SparedReason = "not_blamed"

var sparedTransition = recording(`task_uuid, queue, step_no, attempt, {lease_lost}, null, null`)

// expireLeases ends leases that have run out. A worker that stopped in order blames nobody. Claims of a
// worker of a queue last as long as it lives: its heartbeats leave them alone, and their leases are
// extended here.
// Index: board_leases, board_suspects, the primary key of begun_claims, queue_workers_claims.
var expireLeases = pg.Compile(`
with lost as materialized (
    select ctid as at, ` + ofLost + ` ` + firstEnded + ` for update skip locked
), ` + judge(judging{
	suspects: `suspects as materialized (
    select c.worker, count(*) as under_way, min(c.queue) as queue, (array_agg(c.task_uuid))[1] as task_uuid, (array_agg(c.step_no))[1] as step_no
    from tasker.board c cross join lateral ` + workerOf + `
    where c.state >= {in_progress} and c.state <= {in_progress} and c.` + suspected + ` and c.worker = any (array(select worker from lost)) and not ` + outlived + `
    group by c.worker
)`,
	blamed: `c.` + suspected + ` and s.under_way = 1 and not ` + outlived + ` and w.mode <> '` + ModeDraining + `'`,
	kind:   `WorkerLost`, lost: `worker %s was lost`,
}) + `
select * from judged`)

// loseClaims ends claims whose handlers ran in another process, which is lost while the worker lives. An
// action may have moved the steps (ownSlot).
// Index: the primary keys.
var loseClaims = pg.Compile(`
with lost as materialized (
    select s.ctid as at, s.task_uuid, s.step_no, s.worker, s.token, null::boolean as ahead, s.queue, s.attempt, s.last_attempt, s.losses, s.lost_after_ms,
           s.enqueued_at, s.claimed_at, r.blamed
    from ` + stmt.HiddenList[lostClaim]("r") + `
    join tasker.board s on s.task_uuid = any (array[r.task_uuid]) and s.slot in (r.slot, r.step_no + 1) and s.step_no = r.step_no
                       and s.lease_until is not null and s.token = r.token
    for update of s
), ` + judge(judging{
	suspects: `suspects as (
    select worker, 0 as under_way, 0 as queue, null::uuid as task_uuid, 0 as step_no from lost where false
)`,
	blamed: `c.blamed`, kind: `ExecutorLost`, lost: `the process that ran the step for worker %s was lost`,
}) + `
select * from judged`)

// lostClaim is a claim whose process is lost, and whether it is blamed for that.
type lostClaim struct {
	ClaimKey
	Blamed bool
}

// firstEnded are the claims whose leases ended first.
var firstEnded = `from tasker.board
    where state = {in_progress} and lease_until >= @from and lease_until <= (select clock_timestamp()) and ` + pg.InRows("task_uuid") + `
    order by lease_until limit @limit`

// endedLeases are the tasks of the claims that expireLeases would take.
// Index: board_leases.
var endedLeases = pg.Compile(`select distinct task_uuid from (select task_uuid ` + firstEnded + `) l`)

// EndedLeases returns the tasks of the claims that ExpireLeases would take.
func (s *Board) EndedLeases(ctx context.Context, rows pg.Rows) ([]uuid.UUID, error) {
	_, from := s.timesFrom()
	return pg.ReadAll[uuid.UUID](ctx, s.db, "ended_leases", "list the tasks of claims whose leases have ended",
		endedLeases.With(rows.Args().And(pg.Args{"from": from})))
}

// Expired is the outcome of claims whose leases have ended.
type Expired struct {
	Lost    int             // to be applied as attempts that ended with a lost lease
	Spared  int             // claimable again without having used an attempt: they are not blamed
	Unbegun int             // claimable again: no handler had begun
	Blamed  []StepKey       // of the lost ones, those that are blamed for the loss of their workers
	Signals []signal.Signal // to publish, unless the store sends them itself
}

// Claims is the number of all of them.
func (e *Expired) Claims() int { return e.Lost + e.Spared + e.Unbegun }

// judgement is a row of judged: a lost step, or how many steps of a lane are claimable again.
type judgement struct {
	Verdict string
	NamedLane
	Steps    int
	TaskUUID *uuid.UUID
	StepNo   int
	lostRow
}

// ExpireLeases ends leases that have run out; the keys of the rows are tasks. A step that is not
// blamed for the loss of its worker runs again, until it has been lost maxLosses times.
func (s *Board) ExpireLeases(ctx context.Context, rows pg.Rows, maxLosses int) (Expired, error) {
	_, from := s.timesFrom()
	return s.judge(ctx, "expire", "expire leases", expireLeases.With(rows.Args().And(pg.Args{"from": from, "max_losses": maxLosses})))
}

// LoseClaim ends a claim whose handler ran in another process, which is lost. blamed says that the step
// is to blame, as the only suspect there. Otherwise it runs again without using an attempt, until it
// has been lost maxLosses times. A claim that does not hold any more is left as it is.
func (s *Board) LoseClaim(ctx context.Context, k ClaimKey, blamed bool, maxLosses int) ([]signal.Signal, error) {
	e, err := s.judge(ctx, "lose", "end the claims of a lost process", loseClaims.With(pg.Args{"r": []lostClaim{{k, blamed}}, "max_losses": maxLosses}))
	return e.Signals, err
}

// judge runs a statement that judges losses.
func (s *Board) judge(ctx context.Context, flow, doing string, call stmt.Call) (Expired, error) {
	var lost counted
	e, err := pg.Change(ctx, s.db, flow, doing, func(ctx context.Context, tx pgx.Tx) (e Expired, _ []signal.Signal, err error) {
		topics := SignalSet{}
		lost = counted{}
		if err := stmt.Each(ctx, tx, call, func(r *judgement) {
			switch r.Verdict {
			case "unbegun":
				e.Unbegun += r.Steps
				topics.AddNamed(&r.NamedLane)
			case "spared":
				e.Spared += r.Steps
				topics.AddNamed(&r.NamedLane)
			case "recorded":
				lost.addLost(r)
			default:
				if e.Lost++; r.Verdict == "blamed" {
					e.Blamed = append(e.Blamed, StepKey{*r.TaskUUID, r.StepNo})
				}
			}
		}); err != nil {
			return e, nil, err
		}
		if e.Signals = topics.Signals(); e.Lost > 0 {
			e.Signals = append(e.Signals, ReportSignals()...)
		}
		return e, e.Signals, nil
	})
	if err == nil {
		s.counts.Count(lost.attempts, nil)
	}
	return e, err
}
