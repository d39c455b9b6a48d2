package board

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
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

// A snapshot that is held keeps all row versions of limits and keys, and a claim makes some of
// each key that it takes from. So both are looked up backwards, newest version first, and
// changed where the snapshot has found them: all changes have the turn of the callable.

// limitOf is the limit l of a callable.
func limitOf(callable string) string {
	return `(select * from (select *, ctid as limit_at from tasker.limits where callable_id <= ` + callable + ` order by callable_id desc limit 1) l
        where callable_id = ` + callable + `) l`
}

// keyOf is a key k of a callable.
func keyOf(callable, key string) string {
	return `(select * from (select *, ctid as at from tasker.limit_keys where (callable_id, key) <= (` + callable + `, ` + key + `) order by callable_id desc, key desc limit 1) k
        where callable_id = ` + callable + ` and key = ` + key + `) k`
}

const (
	// limitedDirectly: the steps of a limit l without keys are claimed from the line of their
	// callable, whose marks are known: nothing has to be sorted for them.
	limitedDirectly = `(l.key_path is null and l.key_tag is null and not l.ordered and l.beyond = 'wait')`
	// limitedTokens are the beginnings that a key k of a limit l has saved by now; null
	// without a rate, which least leaves out.
	limitedTokens = `case when l.per_second is not null then least(l.burst, k.tokens + l.per_second * extract(epoch from now.now - k.tokens_at)) end`
	// limitedRoom is how many steps of a key k may begin now (room), and how many more may run
	// (spare; null: any number). What runs is counted from the oldest token on that ran at the
	// claim before: tokens rise from claim to claim, and row versions of steps that have ended
	// lie before it.
	limitedRoom = `(select r.*, least(@limit::int, r.spare, floor(` + limitedTokens + `))::int as room
        from (select case when l.ordered then 1 else l.max_running end - count(*) as spare, min(token) as oldest
            from tasker.board where (l.ordered or l.max_running is not null) and state = {in_progress} and limit_line = k.line and token >= k.running_from) r offset 0) x`
	// limitedHeld: the step that has an ordered key has not ended.
	limitedHeld = `l.ordered and not l.overtake and exists (
            select from tasker.board h where h.task_uuid = k.head_task and h.slot in (0, k.head_step + 1) and h.step_no = k.head_step)`
	// limitedPaused: an operator has paused the callable, or its namespace.
	limitedPaused = `exists (
        select from tasker.callables c join tasker.namespaces n on n.namespace_id = c.namespace_id
        where c.callable_id = l.callable_id and (c.paused_by is not null or n.paused_at is not null))`
	// openKey are the columns of a key k with room.
	openKey = `select k.at, k.line, k.callable_id, k.turn, k.from_turn, k.near, k.weight, k.waiting, k.running_from, k.from_lane, k.from_seq, k.head_task, k.head_step, l.limit_at, l.turn as reached,
            l.turns_from, l.ordered, l.per_second, l.burst, ` + limitedDirectly + ` as direct, x.room, x.spare, x.oldest, ` + limitedHeld + ` as held`
	openIfRoom = ` cross join lateral ` + limitedRoom + ` where x.room > 0`
	// limitedStep are the columns of a waiting step that the worker can run.
	limitedStep = `select ctid as at, task_uuid, step_no, lane, seq, last_attempt, `
	runnable    = ` from tasker.board where state = {claimable} and (tags is null or tags <@ @tags::text[])`
	lined       = limitedStep + `true as lined` + runnable + ` and callable = -o.line`
	unlined     = limitedStep + `false as lined` + runnable
)

// inTurns is the order of claiming: by turns, of which a large claim counts several as one. It
// takes more steps from fewer keys, and the next one takes from others; each key whose steps it
// takes leaves a row version.
const (
	inTurns = `case when @limit::int < 50 then turn - reached else floor((turn - reached) / ` + atOnce + `) end, line, nth`
	atOnce  = `greatest(@limit::int / 25, 1)`
)

// Keys are found by from_turn, which is indexed and lags behind their turn, so that most claims change no
// index: not of one where it would have to be read past too many others.
const (
	// nearKeys are put in the order of their turns once they are read.
	nearKeys = `128`
	// turnsBehind is how many such changes from_turn lags behind.
	turnsBehind = `32`
)

// ofCandidate are the columns of a step s of an open key o.
const ofCandidate = `o.line, o.callable_id, o.direct, o.room, o.reached, o.turn, o.weight, o.ordered, o.spare, o.per_second,
        s.at, s.task_uuid, s.step_no, s.lane, s.seq, s.last_attempt, s.lined`

// Where a claim begins to read: at the marks, or for a full scan at the beginning.
type limitedFrom struct {
	direct string // steps of a limit without keys
	keys   string // the turns of keys
	line   string // the line of a key
}

const (
	fromTurn = ` and k.from_turn >= l.turns_from`
	fromStep = ` and (lane, seq) >= (o.from_lane, o.from_seq)`

	directFromMarks = `select s.* from lanes m cross join lateral (
             ` + unlined + ` and callable = m.callable and lane = m.lane and seq >= m.mark order by seq limit o.room for update skip locked) s
         where o.direct and m.callable = o.callable_id limit o.room`
	directFull = `select s.* from (` + unlined + ` and o.direct and callable = o.callable_id order by lane, seq limit o.room for update skip locked) s`
)

// claimLimitedBy claims from the keys with room, those with the smallest turns first, by how far
// they are behind those of their callable; a step takes its key as many turns further as its
// weight says. The time of claiming is the one by which tokens were counted, so the rate holds
// for the recorded times. A key of which nothing waits any more leaves the list of those with
// waiting steps; where all keys are read and the claim is full, with the next one: often others have
// come by then.
//
// Of each key twice its share of the claim is read, and if that is too little, so many more as may
// begin at once. Steps are claimed ahead only from keys that keep as much room for other workers,
// and of a rate those of a hundredth of a second: they may begin that much later than was counted.
// Index: limit_keys_turns, board_running, board_claimable, the primary keys.
func claimLimitedBy(from limitedFrom) *stmt.Statement {
	return pg.Compile(`
with now as materialized (select clock_timestamp() as now), lanes as materialized (
    select * from ` + stmt.List[laneFrom]("m") + `
), open as materialized (
    select k.*
    from now cross join unnest(@callables::int[]) c cross join lateral ` + limitOf("c") + ` cross join lateral (
        (select * from (
            (` + openKey + ` from (
                select * from (select *, count(*) over () < ` + nearKeys + ` as near from (
                    select ctid as at, * from tasker.limit_keys k where k.callable_id = l.callable_id and k.waiting` + from.keys + ` order by k.from_turn, k.line limit ` + nearKeys + `) k) k
                order by turn, line) k` + openIfRoom + ` order by k.turn, k.line limit @limit::int)
            union all
            (` + openKey + ` from (
                select ctid as at, *, false as near from tasker.limit_keys k where k.callable_id = l.callable_id and k.waiting` + from.keys + ` order by k.from_turn, k.line offset ` + nearKeys + `) k` + openIfRoom + ` order by k.from_turn, k.line limit @limit::int)) k
         limit @limit::int)
        union all
        (` + openKey + ` from (select *, true as near from ` + keyOf("l.callable_id", "''") + `) k` + openIfRoom + ` and not k.waiting and ` + limitedDirectly + `)) k
    where not ` + limitedPaused + `
), few as materialized (
    select greatest(2 * @limit::int / greatest(count(*), 1), ` + atOnce + `) as few from open
), first as materialized (
    select ` + ofCandidate + ` from open o cross join lateral (
        (` + lined + from.line + ` and not o.held order by lane, seq limit least(o.room, (select few from few)))
        union all
        (` + lined + ` and o.held and task_uuid = o.head_task and slot in (0, o.head_step + 1) and step_no = o.head_step)
        union all
        (` + from.direct + `)) s
), candidates as materialized (
    select line, callable_id, direct, room, at, task_uuid, step_no, lined, reached,
           case when direct then reached else turn end + row_number() over w / weight as turn, row_number() over w as nth,
           last_attempt is null and not ordered and (spare is null or row_number() over w * 2 <= spare)
               and (per_second is null or row_number() over w <= per_second / 100) as repeatable
    from (select * from first
          union all
          select ` + ofCandidate + ` from open o cross join lateral (
              ` + lined + from.line + ` and not o.held order by lane, seq offset (select few from few) limit greatest(least(o.room - (select few from few), @limit::int - @ahead::int), 0)) s
          where (select count(*) from first) < @limit::int - @ahead::int and o.room > (select few from few)) c
    window w as (partition by line order by lane, seq)
), wanted as materialized (
    select *, row_number() over (order by ` + inTurns + `) as place from candidates where nth <= room order by ` + inTurns + ` limit @limit::int
), picked as materialized (
    select * from wanted where not lined
    union all
    select w.* from wanted w cross join lateral (select from tasker.board where ctid = w.at and state = {claimable} for update skip locked) s where w.lined
), numbered as materialized (
    select p.*, nextval('tasker.claim_token') as token
    from (select *, row_number() over (order by ahead, place) as begins
          from (select *, @ahead::int > 0 and repeatable as ahead from picked) p order by ahead, place) p
    where begins <= @limit::int - @ahead::int or ahead
), charged as (
    update tasker.limit_keys k
    set turn = coalesce(p.turn, k.turn), from_turn = case when l.near and p.turn - k.from_turn < ` + turnsBehind + ` * (p.turn - k.turn) then k.from_turn else coalesce(p.turn, k.from_turn) end, head_task = coalesce(p.task_uuid, k.head_task), head_step = coalesce(p.step_no, k.head_step),
        tokens = coalesce(` + limitedTokens + ` - p.steps, k.tokens), tokens_at = now.now, running_from = greatest(k.running_from, l.oldest, p.first),
        waiting = k.waiting and e.more, from_lane = case when w.steps > 0 then w.lane when e.more then -32768 else k.from_lane end,
        from_seq = case when w.steps > 0 then w.seq when e.more then 0 else k.from_seq end
    from now cross join open l
    cross join lateral (select max(turn) filter (where not direct) as turn, count(*) as steps, count(*) filter (where lined) as lined,
                               case when l.oldest is null then min(token) end as first, (array_agg(task_uuid))[1] as task_uuid, (array_agg(step_no))[1] as step_no
                        from numbered where line = l.line) p
    cross join lateral (select count(*) as steps, (array_agg(o.lane))[1] as lane, (array_agg(o.seq))[1] as seq
                        from (select lane, seq from tasker.board, (select l.from_lane, l.from_seq) o
                              where state = {claimable} and callable = -l.line` + from.line + ` order by lane, seq limit p.lined + 1) o) w
    cross join lateral (select case when w.steps > p.lined or p.lined > 0 and (select count(*) from open) < @limit::int and (select count(*) from numbered) >= @limit::int then true else (
                            select count(*) > p.lined from (select from tasker.board where state = {claimable} and callable = -l.line limit p.lined + 1) b) end as more) e
    where k.ctid = l.at and (p.steps > 0 and (not l.direct or l.waiting or l.per_second is not null) or l.waiting and w.steps = 0
        or greatest(l.oldest, p.first) > l.running_from + ` + strconv.Itoa(runningSlack) + `)
), reached as (
    update tasker.limits l set turn = greatest(l.turn, p.turn), turns_from = least(f.from_turn, greatest(l.turn, p.turn))
    from (select callable_id, min(turn) as turn from numbered where not direct group by callable_id) p
    cross join lateral (select limit_at, turns_from from open where callable_id = p.callable_id limit 1) o
    left join lateral (select k.from_turn from tasker.limit_keys k, (select o.turns_from) l
                       where k.callable_id = p.callable_id and k.waiting` + from.keys + ` order by k.from_turn, k.line limit 1) f on true
    where l.ctid = o.limit_at
), claimed as (
    update tasker.board s
    set state = {in_progress}, attempt = s.attempt + 1, token = n.token, worker = @worker::uuid, claimed_at = now.now,
        lease_until = now.now + @lease_ms::bigint * interval '1 ms', callable = n.callable_id, limit_line = n.line, ahead = case when n.ahead then true end
    from numbered n, now where s.ctid = n.at
    returning s.seq - case when n.lined then {not_of_callable} else 0 end as seq, ` + ofBoardButSeq + `
)` + announced + `, rest as (
    select case when (select count(*) from picked) < (select count(*) from wanted) then 1 else 0 end
         + case when (select count(*) from numbered) < (select count(*) from picked) or exists (
               select from (select distinct callable from lanes) m cross join lateral ` + limitOf("m.callable") + `
               where ` + limitedDirectly + ` and not ` + limitedPaused + ` and not exists (
                   select from open o where o.direct and o.callable_id = l.callable_id and (select count(*) from numbered where line = o.line) < o.room))
           then ` + strconv.Itoa(int(restLeft)) + ` else 0 end as rest
)` + claimedRows + fromBoard)
}

var (
	claimLimited      = claimLimitedBy(limitedFrom{direct: directFromMarks, keys: fromTurn, line: fromStep})
	claimLimitedFully = claimLimitedBy(limitedFrom{direct: directFull})
)

// runningSlack is how many tokens a key of a limit without keys may be behind with what runs,
// so that few of its claims write its row.
const runningSlack = 1000

// limitedCallableOf is the callable of a row s of the board: that of the key in whose line
// the step waits, if it waits in one.
const limitedCallableOf = `case when s.callable < 0 then (select callable_id from tasker.limit_keys where line = -s.callable) else s.callable end`

// keyLines is a part of a with that finds the steps that wait in the lines of keys, as steps
// of their callables: how many, counted up to limit and of each key up to most, and since
// when the first of a key has waited that has waited longest, of the 10,000 keys that are
// next. Without limits it reads two empty indexes.
// Index: limit_keys_turns, board_claimable.
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
        from (select line from tasker.limit_keys where callable_id = l.callable_id and waiting order by from_turn, line limit 10000) k cross join lateral (
            select coalesce(enqueued_at, requested_at) as since from tasker.board where state = {claimable} and callable = -k.line order by lane, seq limit 1) s) f
    where c.steps > 0
)`
}

const (
	allOfKey = `@limit::int`
	// runnableOfKey are as many as may run at once.
	runnableOfKey = `least(@limit::int, case when l.ordered then 1 else l.max_running end)`
)

// limitsWait says whether steps wait in the lines of keys, of the keys that are next, and in how
// many seconds the first key without tokens has one, also of limits without keys in whose
// callables' lines there are signs of steps (hot).
// Index: limit_keys_turns, the primary keys.
var limitsWait = pg.Compile(`
select count(*) filter (where k.lined) > 0 as waiting, min(k.seconds)::float8 as seconds
from (select clock_timestamp() as now) now cross join unnest(@callables::int[]) c cross join lateral ` + limitOf("c") + ` cross join lateral (
    (select ` + limitedSeconds + ` as seconds, true as lined
     from tasker.limit_keys k where k.callable_id = l.callable_id and k.waiting` + fromTurn + ` order by k.from_turn, k.line limit 100)
    union all
    (select ` + limitedSeconds + `, false
     from ` + keyOf("l.callable_id", "''") + ` where ` + limitedDirectly + ` and l.callable_id = any (@hot::int[]))) k`)

// limitedSeconds is when a key has its next token, if it has none.
const limitedSeconds = `case when ` + limitedTokens + ` < 1 then (1 - ` + limitedTokens + `) / l.per_second end`

var (
	// firstKeys adds the keys of limits without keys.
	firstKeys = pg.Compile(`
insert into tasker.limit_keys (callable_id, key, turn, from_turn, weight, tokens, tokens_at, waiting)
select l.callable_id, '', l.turn, l.turn, coalesce((l.weights ->> '')::float8, 1), l.burst, clock_timestamp(), false
from tasker.limits l where l.callable_id = any (@callables::int[]) and ` + limitedDirectly + `
    and not exists (select from tasker.limit_keys where callable_id = l.callable_id and key = '')
on conflict (callable_id, key) do nothing`)
	// firstDirect is where the steps of callables begin that are claimed from their lines.
	// Index: board_claimable.
	firstDirect = pg.Compile(`
select l.callable_id as callable, s.lane, s.seq as mark
from tasker.limits l cross join lateral (
    select lane, seq` + runnable + ` and callable = l.callable_id order by lane, seq limit 1) s
where l.callable_id = any (@callables::int[]) and ` + limitedDirectly)
)

// limitedPatience is after how long a worker looks again for steps of keys that are full:
// most often the worker whose step ends looks at once, and this is for those that end
// without one.
const limitedPatience = 250 * time.Millisecond

// restLeft says that steps of limits without keys may be left for want of room.
const restLeft = RestLast << 1

// ClaimLimited claims up to Limit steps of limited callables, of which Ahead begin later. full
// makes it look for steps of limits without keys wherever they are, instead of from the marks.
// again is after how long it is worth repeating; 0: when there is room; negative: nothing waits.
// unsorted says that more may wait than it has sorted.
func (s *Board) ClaimLimited(ctx context.Context, req ClaimRequest, full bool) (claimed []Claimed, unsorted bool, again time.Duration, err error) {
	var look limitedLook
	err = s.db.Call(ctx, "claim_limited", "claim limited steps", func(ctx context.Context, db *pg.Conn) (err error) {
		if look, err = s.claimLimited(ctx, db, req, full); err == nil && len(look.found.incomplete) > 0 {
			err = look.found.complete(ctx, db)
		}
		return err
	})
	return look.found.list, look.sorted >= sortedAtOnce/2, look.again(&req), err
}

// limitedLook is one claim of limited steps.
type limitedLook struct {
	found  claims
	first  lanesFrom // of limits without keys, after a full scan
	sorted int64     // steps
	rest   limitsLeft
}

// limitsLeft is a row of limitsWait.
type limitsLeft struct {
	Waiting bool
	Seconds *float64
}

// again is when to repeat it, see ClaimLimited.
func (l *limitedLook) again(req *ClaimRequest) time.Duration {
	found, waiting := len(l.found.list), l.rest.Waiting || l.found.rest&restLeft != 0 || len(l.first) > 0
	switch {
	case l.sorted >= sortedAtOnce/2 || found == req.Limit || waiting && found >= max(req.Limit-req.Ahead, 1):
		return 0
	case !waiting:
		return -1
	case l.rest.Seconds != nil:
		return min(limitedPatience, seconds(l.rest.Seconds))
	default:
		return limitedPatience
	}
}

// claimLimited claims, and notes what it has learned of the lines of callables.
func (s *Board) claimLimited(ctx context.Context, db *pg.Conn, req ClaimRequest, full bool) (limitedLook, error) {
	look, begin := limitedLook{found: newClaims()}, time.Now()
	callables := slices.Sorted(slices.Values(req.Callables)) // locked in one order
	claim, lanes := claimLimited, s.marks.of(req.Callables)
	if full {
		claim, lanes = claimLimitedFully, nil
	}
	most := max(sortedAtOnce/2, req.Limit)
	sorted, by := map[laneKey]int64{}, sorter{}
	b := &pgx.Batch{}
	takeTurns.With(pg.Args{"class": int32(pg.TurnLock), "callables": callables}).Queue(b)
	firstKeys.With(pg.Args{"callables": callables}).Queue(b)
	sortLimited.With(pg.Args{"class": int32(pg.SortLock), "callables": callables, "limit": most, "m": lanes, "fully": full}).Queue(b).Query(stmt.Rows(func(l *sortedLane) {
		look.sorted += l.Steps
		if l.Seq > 0 {
			sorted[l.laneKey], by = l.Seq, l.sorter
		} else {
			s.marks.heat(l.laneKey) // older ones may be there
		}
	}))
	claim.With(pg.Args{"worker": req.Worker, "lease_ms": req.Lease.Milliseconds(), "tags": pg.NonNil(req.Tags), "limit": req.Limit,
		"ahead": req.Ahead, "callables": callables, "m": lanes}).Queue(b).Query(stmt.Rows(look.found.add))
	if full {
		firstDirect.With(pg.Args{"callables": callables, "tags": pg.NonNil(req.Tags)}).Queue(b).Query(stmt.Rows(func(l *laneFrom) { look.first = append(look.first, *l) }))
	}
	limitsWait.With(pg.Args{"callables": callables, "hot": lanes.callables()}).Queue(b).Query(stmt.Row(&look.rest))
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return look, err
	}
	s.marks.claimed(look.found.newest, lanes, full && len(look.found.list) >= req.Limit)
	s.marks.sortedUpTo(sorted, lanes, by, full && look.sorted >= int64(most))
	s.marks.begin(look.first)
	if len(look.found.list) < req.Limit && look.found.rest == 0 && look.sorted < int64(most) {
		s.marks.emptied(req.Callables, look.found.newest, lanes, false, begin)
	}
	return look, nil
}

// sortedAtOnce is how many steps a claim sorts at least, if they wait: half of them from each
// end of the line.
const sortedAtOnce = 500
