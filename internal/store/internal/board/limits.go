package board

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
)

// Limits of callables. Steps of a limited callable wait, like all, in its line, where no
// other claim takes them: it counts as paused. A claim of limited steps has three
// statements in one transaction: it waits for its turn with each callable, so that the
// snapshots of the others are younger than all claims before; it sorts the oldest steps of
// the line into the lines of their keys, and the newest ones if there are many, so that
// steps behind a flood of one key need not wait until all of it is sorted; and it claims from
// those keys that have room, by turns. What runs is counted on the board, so a slot comes back with the report, the lease
// or the end of a task, by whatever component, and no counter can be wrong.
//
// Where more wait than a claim sorts, a worker sorts beside the claims (SortLimited). One
// transaction at a time sorts the oldest steps of a callable, so that the steps of an ordered
// key come into its line in their order. One that removes the limit waits for both.

// sortLimited moves steps of limited callables to the lines of their keys: the oldest, and,
// unless keys are ordered, as many of the newest if there are more than it takes. A key
// that had no steps begins at the turn that claims have reached, so that it makes up for
// nothing.
// Index: board_claimable, then the primary keys.
var sortLimited = pg.Compile(`
with asked as materialized (
    select c as callable_id from unnest(@callables::int[]) c
), free as materialized (
    select callable_id from asked where pg_try_advisory_xact_lock(@class, callable_id)
), oldest as materialized (
    ` + oldestTaken + `
), newest as materialized (
    ` + takenSteps + ` order by lane desc, seq desc limit case when (select count(*) from oldest) < @limit::int and exists (select from free) then 0 else @limit::int end for update skip locked) s
    where not l.removing and not l.ordered
), taken as materialized (
    select * from oldest
    union all
    select * from newest n where not exists (select from oldest o where o.at = n.at)
), ` + keyedSteps + `, known as (
    insert into tasker.limit_keys as k (callable_id, key, turn, weight, tokens, tokens_at, waiting)
    ` + newKeys + `
    on conflict (callable_id, key) do update
    set turn = case when k.waiting then k.turn else greatest(k.turn, excluded.turn) end, waiting = true
    returning line, callable_id, key
)` + intoLines)

const (
	// takenSteps are steps in the lines of callables.
	takenSteps = `select s.*, l.key_path, l.key_tag, l.ordered, l.burst, l.turn, l.weights, l.callable_id
    from asked f join tasker.limits l on l.callable_id = f.callable_id cross join lateral (
        select ctid as at, task_uuid, slot = 0 and context is not null as here, context #>> l.key_path as own from tasker.board
        where state = {claimable} and callable = l.callable_id`
	// oldestTaken are the oldest steps of callables that are free, since nothing sorts them.
	oldestTaken = takenSteps + ` order by lane, seq limit @limit::int for update skip locked) s
    where not l.removing and exists (select from free where callable_id = f.callable_id)`
	// keyedSteps are taken steps with their keys.
	keyedSteps = `keyed as materialized (
    select t.*, left(coalesce(case
        when t.key_path is not null and t.here then t.own
        when t.key_path is not null then coalesce(
            (select context from tasker.board where task_uuid = t.task_uuid and slot = 0),
            (select context from tasker.tasks where task_uuid = t.task_uuid)) #>> t.key_path
        when t.key_tag is not null then (
            select substr(tag, length(t.key_tag) + 1) from tasker.tasks k cross join lateral unnest(k.tags) tag
            where k.task_uuid = t.task_uuid and starts_with(tag, t.key_tag) limit 1)
        end, ''), 512) as key
    from taken t
)`
	newKeys = `select distinct on (callable_id, key) callable_id, key, turn, coalesce((weights ->> key)::float8, 1), burst, clock_timestamp(), true
    from keyed order by callable_id, key`
	intoLines = `
update tasker.board s set callable = -n.line, lane = case when d.ordered then 0 else s.lane end
from keyed d join known n on n.callable_id = d.callable_id and n.key = d.key
where s.ctid = d.at`
)

// Sorting beside claims has the turn of the callable at its end alone, when it says in
// which lines steps wait: a claim that had the turn before has not seen them, and may have
// said that nothing waits there.
var (
	trySort = pg.Compile(`select pg_try_advisory_xact_lock(@class, @callable::int)`)
	// Index: board_claimable, then the primary keys.
	sortBeside = pg.Compile(`
with asked as materialized (
    select @callable::int as callable_id
), free as (
    select callable_id from asked
), taken as materialized (
    ` + oldestTaken + `
), ` + keyedSteps + `, made as (
    insert into tasker.limit_keys as k (callable_id, key, turn, weight, tokens, tokens_at, waiting)
    ` + newKeys + `
    on conflict (callable_id, key) do nothing
    returning line, callable_id, key
), known as materialized (
    select line, callable_id, key from made
    union all
    select k.line, k.callable_id, k.key from (select distinct callable_id, key from keyed) d
    cross join lateral (
        select * from tasker.limit_keys where (callable_id, key) >= (d.callable_id, d.key) order by callable_id, key limit 1) k
    where k.callable_id = d.callable_id and k.key = d.key
), moved as (` + intoLines + ` returning n.line
)
select line, count(*)::int as steps from moved group by line`)
	markWaiting = pg.Compile(`
update tasker.limit_keys k set turn = case when k.waiting then k.turn else greatest(k.turn, l.turn) end, waiting = true
from tasker.limits l where l.callable_id = @callable and k.line = any ((select @lines::int[])::int[])`)
)

// sortedBeside is how many steps one transaction sorts: a claim whose turn it is waits for
// the marks of their lines alone, but steps behind them wait for all.
const sortedBeside = 2000

// SortLimited sorts the oldest steps of a limited callable; more says that there may be
// others. Nothing happens while another one sorts them.
func (s *Board) SortLimited(ctx context.Context, callable int32) (more bool, err error) {
	err = s.db.Transaction(ctx, "sort_limited", "sort limited steps", func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		type sorted struct {
			Line  int32
			Steps int
		}
		steps, lines := 0, []int32{}
		if free, err := pg.OneOf[bool](ctx, tx, trySort.With(pg.Args{"class": int32(pg.SortLock), "callable": callable})); err != nil || !free {
			return nil, err
		}
		err := stmt.Each(ctx, tx, sortBeside.With(pg.Args{"callable": callable, "limit": sortedBeside}), func(r *sorted) {
			steps, lines = steps+r.Steps, append(lines, r.Line)
		})
		more = steps >= sortedBeside
		if err != nil || steps == 0 {
			return nil, err
		}
		if _, err := pg.Run(ctx, tx, takeTurns.With(pg.Args{"class": int32(pg.TurnLock), "callables": []int32{callable}})); err != nil {
			return nil, err
		}
		_, err = pg.Run(ctx, tx, markWaiting.With(pg.Args{"callable": callable, "lines": lines}))
		return nil, err
	})
	return more, err
}

const (
	// limitedTokens are the beginnings that a key k of a limit l has saved by now; null
	// without a rate, which least leaves out.
	limitedTokens = `case when l.per_second is not null then least(l.burst, k.tokens + l.per_second * extract(epoch from now.now - k.tokens_at)) end`
	// limitedRoom is how many steps of the key may begin now.
	limitedRoom = `least(@limit::int, case when l.ordered then 1 else l.max_running end - (
            select count(*) from tasker.board r where r.state = {in_progress} and r.limit_line = k.line),
        floor(` + limitedTokens + `))::int`
	// limitedHeld: the step that has an ordered key has not ended.
	limitedHeld = `l.ordered and not l.overtake and exists (
            select from tasker.board h where h.task_uuid = k.head_task and h.slot in (0, k.head_step + 1) and h.step_no = k.head_step)`
	// limitedPaused: an operator has paused the callable, or its namespace.
	limitedPaused = `exists (
        select from tasker.callables c join tasker.namespaces n on n.namespace_id = c.namespace_id
        where c.callable_id = l.callable_id and (c.paused_by is not null or n.paused_at is not null))`
	// limitedStep are the columns of a waiting step that the worker can run.
	limitedStep = `select ctid as at, task_uuid, step_no, lane, seq from tasker.board
         where state = {claimable} and callable = -o.line and (tags is null or tags <@ @tags::text[])`
)

// claimLimited claims from the keys with room, those with the smallest turns first; a
// step takes its key as many turns further as its weight says. The time of claiming is the
// one by which tokens were counted, so the rate holds for the recorded times. A key of
// which nothing waits any more leaves the list of those with waiting steps.
// Index: limit_keys_waiting, board_limited, board_claimable, the primary keys.
var claimLimited = pg.Compile(`
with now as materialized (select clock_timestamp() as now), open as materialized (
    select k.*
    from now cross join tasker.limits l cross join lateral (
        select k.line, k.callable_id, k.turn, k.weight, k.head_task, k.head_step, l.ordered, x.room, ` + limitedHeld + ` as held
        from tasker.limit_keys k cross join lateral (select ` + limitedRoom + ` as room offset 0) x
        where k.callable_id = l.callable_id and k.waiting and x.room > 0
        order by k.turn, k.line limit @limit::int) k
    where l.callable_id = any (@callables::int[]) and not ` + limitedPaused + `
), candidates as materialized (
    select o.line, o.callable_id, o.ordered, s.at, s.task_uuid, s.step_no,
           o.turn + row_number() over (partition by o.line order by s.lane, s.seq) / o.weight as turn
    from open o cross join lateral (
        (` + limitedStep + ` and not o.held order by lane, seq limit o.room)
        union all
        (` + limitedStep + ` and o.held and task_uuid = o.head_task and slot in (0, o.head_step + 1) and step_no = o.head_step)) s
), picked as materialized (
    select c.*
    from (select * from candidates order by turn, line limit @limit::int) c
    cross join lateral (select from tasker.board where ctid = c.at and state = {claimable} for update skip locked) s
    order by c.turn, c.line
), charged as (
    update tasker.limit_keys k
    set turn = coalesce(p.turn, k.turn), head_task = coalesce(p.task_uuid, k.head_task), head_step = coalesce(p.step_no, k.head_step),
        tokens = coalesce(` + limitedTokens + ` - p.steps, k.tokens), tokens_at = now.now,
        waiting = exists (select from tasker.board b where b.state = {claimable} and b.callable = -k.line
                          and b.ctid <> all (array(select at from picked where line = k.line)))
    from now cross join open o
    cross join lateral (select max(turn) as turn, count(*) as steps, (array_agg(task_uuid))[1] as task_uuid, (array_agg(step_no))[1] as step_no
                        from picked where line = o.line) p, tasker.limits l
    where k.line = o.line and l.callable_id = k.callable_id
), reached as (
    update tasker.limits l set turn = greatest(l.turn, p.turn)
    from (select callable_id, min(turn) as turn from picked group by callable_id) p where l.callable_id = p.callable_id
), numbered as materialized (
    select at, line, callable_id, nextval('tasker.claim_token') as token from picked
), claimed as (
    update tasker.board s
    set state = {in_progress}, attempt = s.attempt + 1, token = n.token, worker = @worker::uuid, claimed_at = now.now,
        lease_until = now.now + @lease_ms::bigint * interval '1 ms', callable = n.callable_id, limit_line = n.line
    from numbered n, now where s.ctid = n.at
    returning ` + ofBoard + `
), rest as (select 0 as rest)` + claimedRows + fromBoard)

// limitedCallableOf is the callable of a row s of the board: that of the key in whose line
// the step waits, if it waits in one.
const limitedCallableOf = `case when s.callable < 0 then (select callable_id from tasker.limit_keys where line = -s.callable) else s.callable end`

// keyLines is a part of a with that finds the steps that wait in the lines of keys, as steps
// of their callables: how many, counted up to limit and of each key up to most, and since
// when the first of a key has waited that has waited longest, of the 10,000 keys that are
// next. Without limits it reads two empty indexes.
// Index: limit_keys_waiting, board_claimable.
func keyLines(most string) string {
	return `key_lines as materialized (
    select l.callable_id as callable, c.steps, f.since
    from tasker.limits l
    cross join lateral (
        select count(*) as steps from (
            select from tasker.limit_keys k cross join lateral (
                select from tasker.board where state = {claimable} and callable = -k.line limit ` + most + `) s
            where k.callable_id = l.callable_id and k.waiting limit @limit::int) s) c
    cross join lateral (
        select min(s.since) as since
        from (select line from tasker.limit_keys where callable_id = l.callable_id and waiting order by turn, line limit 10000) k cross join lateral (
            select coalesce(enqueued_at, requested_at) as since from tasker.board where state = {claimable} and callable = -k.line order by lane, seq limit 1) s) f
    where c.steps > 0
)`
}

const (
	allOfKey = `@limit::int`
	// runnableOfKey are as many as may run at once.
	runnableOfKey = `least(@limit::int, case when l.ordered then 1 else l.max_running end)`
)

// limitsWait says whether steps of limited callables wait, of the keys that are next, and
// in how many seconds the first of those without tokens has one.
// Index: limit_keys_waiting.
var limitsWait = pg.Compile(`
select count(*) > 0 as waiting, min(k.seconds)::float8 as seconds
from (select clock_timestamp() as now) now cross join tasker.limits l cross join lateral (
    select case when ` + limitedTokens + ` < 1 then (1 - ` + limitedTokens + `) / l.per_second end as seconds
    from tasker.limit_keys k where k.callable_id = l.callable_id and k.waiting order by k.turn, k.line limit 100) k
where l.callable_id = any (@callables::int[])`)

// limitedPatience is after how long a worker looks again for steps of keys that are full:
// most often the worker whose step ends looks at once, and this is for those that end
// without one.
const limitedPatience = 250 * time.Millisecond

// ClaimLimited claims up to Limit steps of limited callables. again is after how long it is
// worth repeating; negative: nothing waits. unsorted says that more may wait than it has
// sorted. Nothing is claimed ahead.
func (s *Board) ClaimLimited(ctx context.Context, req ClaimRequest) (claimed []Claimed, unsorted bool, again time.Duration, err error) {
	var found claims
	err = s.db.Call(ctx, "claim_limited", "claim limited steps", func(ctx context.Context, db *pg.Conn) error {
		found = newClaims()
		type left struct {
			Waiting bool
			Seconds *float64
		}
		var rest left
		sorted := int64(0)
		callables := slices.Sorted(slices.Values(req.Callables)) // locked in one order
		b := &pgx.Batch{}
		takeTurns.With(pg.Args{"class": int32(pg.TurnLock), "callables": callables}).Queue(b)
		sortLimited.With(pg.Args{"class": int32(pg.SortLock), "callables": callables, "limit": max(sortedAtOnce/2, req.Limit)}).Queue(b).Exec(func(t pgconn.CommandTag) error {
			sorted = t.RowsAffected()
			return nil
		})
		claimLimited.With(pg.Args{"worker": req.Worker, "lease_ms": req.Lease.Milliseconds(), "tags": pg.NonNil(req.Tags), "limit": req.Limit,
			"callables": callables}).Queue(b).Query(stmt.Rows(found.add))
		limitsWait.With(pg.Args{"callables": callables}).Queue(b).Query(stmt.Row(&rest))
		if err := db.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		unsorted = sorted >= sortedAtOnce/2
		switch {
		case unsorted || rest.Waiting && len(found.list) == req.Limit:
			again = 0
		case !rest.Waiting:
			again = -1
		default:
			again = limitedPatience
			if rest.Seconds != nil {
				again = min(again, seconds(rest.Seconds))
			}
		}
		if len(found.incomplete) > 0 {
			return found.complete(ctx, db)
		}
		return nil
	})
	return found.list, unsorted, again, err
}

// sortedAtOnce is how many steps a claim sorts at least, if they wait: half of them from each
// end of the line.
const sortedAtOnce = 500
