package board

import (
	"strconv"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

// The statements that claim steps of limited callables: of those with direct limits from the lines of
// callables, of others from the lines of keys. The time of claiming is the one by which tokens were
// counted, so the rate holds for the recorded times. Steps are claimed ahead only where as much room stays
// for other workers, and of a rate those of a hundredth of a second: they may begin so much later.

const (
	// directStep are the columns of a waiting step that a claim of direct limits needs: it sorts and stores them several times.
	directStep    = `select ctid as at, lane, seq, last_attempt is null as repeatable ` + claimableHere
	claimableHere = `from tasker.board where state = {claimable} and (tags is null or tags <@ @tags::text[]) and ` + maybeLost + ` and task_uuid <> all (@except::uuid[])`
	// toLimited makes steps numbered claims of limited ones.
	toLimited = `state = {in_progress}, attempt = s.attempt + 1, token = n.token, worker = @worker::uuid, claimed_at = now.now,
        lease_until = now.now + @lease_ms::bigint * interval '1 ms', limit_line = n.line, ahead = case when n.ahead then true end`
	// limitedAhead is how many steps of a key of a limit l with room x may begin later.
	limitedAhead = `case when @ahead::int > 0 and not l.ordered then least(@limit::int, x.spare / 2, floor(l.per_second / 100))::int else 0 end`
)

// numberedInOrder gives tokens to picked steps, those first that begin at once.
func numberedInOrder(columns, order string) string {
	return `numbered as materialized (
    select ` + columns + `, nextval('tasker.claim_token') as token
    from (select ` + columns + `, row_number() over (order by ahead, ` + order + `) as begins from picked order by ahead, ` + order + `) p
    where begins <= @limit::int - @ahead::int or ahead
)`
}

var (
	claimDirect = claimDirectFrom(`from lanes m cross join lateral (select * from open where callable_id = m.callable offset 0) o cross join lateral (`+directStep+`
        and callable = m.callable and lane = m.lane and seq >= m.mark order by seq limit o.room`, `) s limit @limit::int`,
		` or exists (select from lanes m join open o on o.callable_id = m.callable where o.room <= (select count(*) from numbered where line = o.line))`)
	claimDirectFully = claimDirectFrom(`from open o cross join lateral (`+directStep+`
        and callable = o.callable_id order by lane, seq limit o.room`, `) s order by s.lane, o.nth, s.seq limit @limit::int`, ``)
)

// runningSlack is how many tokens the key of a direct limit may be behind with what runs,
// so that few of its claims write its row.
const runningSlack = 1000

// claimDirectFrom claims the oldest steps in the lines of callables, as many of each as there is room
// for: from the marks, or from the beginning. The turn of callables within a lane is theirs in the
// request. The row of a key is written for its tokens, and otherwise seldom.
// Index: board_running, board_claimable, the primary keys.
func claimDirectFrom(from, inOrder, orLeft string) *stmt.Statement {
	return pg.Compile(`
with now as materialized (select clock_timestamp() as now), lanes as materialized (
    select * from ` + stmt.List[laneFrom]("m") + `
), open as materialized (
    select k.at, k.line, l.callable_id, c.nth, k.running_from, l.per_second, l.burst, greatest(x.room, 0) as room, ` + limitedAhead + ` as later, x.oldest
    from now cross join unnest(@callables::int[]) with ordinality c(callable_id, nth) cross join lateral ` + limitOf("c.callable_id") + `
    cross join lateral ` + keyOf("l.callable_id", "''") + ` cross join lateral ` + limitedRoom + `
    where ` + limitedDirectly + ` and not k.waiting and not ` + limitedPaused + `
), read as materialized (
    select s.*, o.line, o.room, o.later ` + from + ` for update skip locked` + inOrder + `
), ready as (
    select ` + from + inOrder + `
), picked as materialized (
    select at, line, lane, seq, repeatable and nth <= later as ahead
    from (select *, row_number() over (partition by line order by lane, seq) as nth from read) r where nth <= room
), ` + numberedInOrder("at, line, ahead", "lane, seq") + `, taken as materialized (
    select line, count(*) as steps, min(token) as first from numbered group by line
), charged as (
    update tasker.limit_keys k
    set tokens = coalesce(` + limitedTokens + ` - l.steps, k.tokens), tokens_at = now.now, running_from = greatest(k.running_from, l.oldest, l.first)
    from now cross join (
        select o.*, coalesce(t.steps, 0) as steps, case when o.oldest is null then t.first end as first from open o left join taken t on t.line = o.line) l
    where k.ctid = l.at and (l.steps > 0 and l.per_second is not null or greatest(l.oldest, l.first) > l.running_from + ` + strconv.Itoa(runningSlack) + `)
), claimed as (
    update tasker.board s set ` + toLimited + `
    from numbered n, now where s.ctid = n.at
    returning ` + ofBoard + `
)` + announced + `, rest as (
    select case when (select count(*) from claimed) < (select count(*) from numbered)
               or (select count(*) from read) < @limit::int and (select count(*) from read) < (select count(*) from ready)
               or (select count(*) from read) = @limit::int and (select count(*) from picked) < @limit::int then ` + strconv.Itoa(int(RestLocked)) + ` else 0 end
         + case when (select count(*) from numbered) < (select count(*) from picked)` + orLeft + ` then ` + strconv.Itoa(int(restLeft)) + ` else 0 end` + orSuspects + ` as rest
)` + claimedRows + fromBoard)
}

var (
	// firstKeys adds the keys of direct limits.
	firstKeys = pg.Compile(`
insert into tasker.limit_keys (callable_id, key, turn, from_turn, weight, tokens, tokens_at, waiting)
select l.callable_id, '', l.turn, l.turn, coalesce((l.weights ->> '')::float8, 1), l.burst, clock_timestamp(), false
from tasker.limits l where l.callable_id = any (@callables::int[]) and ` + limitedDirectly + `
    and not exists (select from tasker.limit_keys where callable_id = l.callable_id and key = '')
on conflict (callable_id, key) do nothing`)
	// firstDirect is where the steps of direct limits begin.
	// Index: board_claimable.
	firstDirect = pg.Compile(`
select l.callable_id as callable, s.lane, s.seq as mark
from tasker.limits l cross join lateral (` + directStep + ` and callable = l.callable_id order by lane, seq limit 1) s
where l.callable_id = any (@callables::int[]) and ` + limitedDirectly)
)

const (
	// openKey are the columns of a key k with room.
	openKey = `select k.at as key_at, k.line, k.callable_id, k.turn, k.near, k.weight, k.from_lane, k.from_seq, k.head_task, k.head_step, l.limit_at, l.turn as reached,
            l.turns_from, l.per_second, l.burst, l.beyond = 'cancel_running' as supersedes, x.spare, x.room, ` + limitedAhead + ` as later, x.oldest, ` + limitedHeld + ` as held`
	openIfRoom = ` cross join lateral ` + limitedRoom + ` where x.room > 0`
	// limitedHeld: the step that has an ordered key has not ended.
	limitedHeld = `l.ordered and not l.overtake and exists (
            select from tasker.board h where h.task_uuid = k.head_task and h.slot in (0, k.head_step + 1) and h.step_no = k.head_step)`
	// lined are the waiting steps of a key o, but those that a younger one has superseded.
	lined     = linedStep + inLine
	linedStep = `select ctid as at, task_uuid, step_no, lane, seq, last_attempt is null as repeatable`
	inLine    = ` ` + claimableHere + ` and callable = -o.line and (not o.supersedes or coalesce(limit_line, 0) >= 0)`
	// ofOpen are the columns of an open key o that its change needs.
	ofOpen = `o.line, o.supersedes, o.spare, o.key_at, o.near, o.per_second, o.burst, o.oldest, o.from_lane, o.from_seq`
)

// Steps are claimed in the order of turns, of which a large claim counts several as one. It
// takes more steps from fewer keys, and the next one takes from others; each key whose steps it
// takes leaves a row version.
const (
	inTurns = `case when @limit::int < 50 then turns - reached else floor((turns - reached) / ` + atOnce + `) end`
	atOnce  = `greatest(@limit::int / 25, 1)`
	// keysFirst is how many keys a claim reads first: as many as fill it with atOnce steps of each, and a few more.
	keysFirst = `(@limit::int / ` + atOnce + ` + 8)`
)

// Keys are found by from_turn, which is indexed and lags behind their turn, so that most claims change no
// index: not of one where it would have to be read past too many others.
const (
	// nearKeys are put in the order of their turns once they are read.
	nearKeys = `128`
	// turnsBehind is how many such changes from_turn lags behind.
	turnsBehind = `32`
)

// Where a claim from the lines of keys begins to read, unless at the beginning: the turns of keys, and
// the line of a key.
const (
	fromTurn = ` and k.from_turn >= l.turns_from`
	fromStep = ` and (lane, seq) >= (o.from_lane, o.from_seq)`
)

var (
	claimKeys      = claimKeysFrom(fromTurn, fromStep)
	claimKeysFully = claimKeysFrom("", "")
)

// openKeys are keys with room, in the order of their next steps; part says how many.
func openKeys(keys, part string) string {
	return `select k.*
    from now cross join unnest(@callables::int[]) c cross join lateral ` + limitOf("c") + ` cross join lateral (
        select * from (
            (` + openKey + ` from (
                select *, ` + inTurns + ` as place from (select *, turn + 1 / weight as turns, l.turn as reached, count(*) over () < ` + nearKeys + ` as near from (
                    select ctid as at, * from tasker.limit_keys k where k.callable_id = l.callable_id and k.waiting` + keys + ` order by k.from_turn, k.line limit ` + nearKeys + `) k) k
                order by place, line) k` + openIfRoom + ` order by k.place, k.line limit @limit::int + ` + keysFirst + `)
            union all
            (` + openKey + ` from (
                select ctid as at, *, false as near from tasker.limit_keys k where k.callable_id = l.callable_id and k.waiting` + keys + ` order by k.from_turn, k.line offset ` + nearKeys + `) k` + openIfRoom + ` order by k.from_turn, k.line limit @limit::int + ` + keysFirst + `)) k
        ` + part + `) k
    where not ` + limitedPaused
}

// stepsOf are the first steps of keys, of each as many as few says.
func stepsOf(keys, few, line string) string {
	return `select ` + ofCandidate + ` from ` + keys + ` o cross join lateral (
        (select *, row_number() over (order by lane, seq) as nth from (` + lined + line + ` and not o.held order by lane, seq limit least(o.room, (select few from ` + few + `))) s)
        union all
        (` + linedStep + `, 1` + inLine + ` and o.held and task_uuid = o.head_task and slot in (0, o.head_step + 1) and step_no = o.head_step)) s`
}

// ofCandidate are the columns of the nth step s of an open key o.
const ofCandidate = `o.line, o.callable_id, o.reached, o.turn + s.nth / o.weight as turns, s.at, s.task_uuid, s.step_no, s.repeatable and s.nth <= o.later as ahead, s.nth`

// claimKeysFrom claims from the keys with room, those with the smallest turns first, by how far
// they are behind those of their callable; a step takes its key as many turns further as its
// weight says. A key of which nothing waits any more leaves the list of those with
// waiting steps; where all keys are read and the claim is full, with the next one: often others have
// come by then.
//
// It reads first as many keys as fill it with several steps of each, or, of fewer keys, of each twice its share
// of the claim. If these steps are too few, it reads so many more of these keys as may begin at once, and other keys.
//
// Where those that run make room (cancel_running), steps that have run and wait to run again are superseded once
// as many others run as may: such a step is marked by the negative line, is not claimed any more, and ActBeyond
// cancels its task. One that another transaction has locked, or whose failure is reported and not applied yet, is not
// marked; it comes behind the others of its line.
// Index: limit_keys_turns, board_running, board_superseded, board_claimable, the primary keys.
func claimKeysFrom(keys, line string) *stmt.Statement {
	const tooFew = `(select count(*) from first) < @limit::int - @ahead::int`
	return pg.Compile(`
with now as materialized (select clock_timestamp() as now), open as materialized (
    ` + openKeys(keys, `limit `+keysFirst) + `
), few as materialized (
    select case when count(*) < ` + keysFirst + ` then greatest(2 * @limit::int / greatest(count(*), 1), ` + atOnce + `) else ` + atOnce + ` end as few from open
), first as materialized (
    ` + stepsOf("open", "few", line) + `
), more as materialized (
    ` + openKeys(keys, `offset `+keysFirst+` limit @limit::int`) + ` and ` + tooFew + ` and (select count(*) from open) >= ` + keysFirst + `
), few_more as materialized (
    select greatest(2 * @limit::int / greatest(count(*), 1), ` + atOnce + `) as few from more
), opened as materialized (
    select * from open
    union all
    select * from more
), candidates as materialized (
    select * from first
    union all
    select ` + ofCandidate + ` from open o cross join lateral (
        select *, (select few from few) + row_number() over (order by lane, seq) as nth from (
            ` + lined + line + ` and not o.held order by lane, seq offset (select few from few) limit greatest(least(o.room - (select few from few), @limit::int - @ahead::int), 0)) s) s
    where ` + tooFew + ` and o.room > (select few from few)
    union all
    ` + stepsOf("more", "few_more", line) + `
), wanted as materialized (
    select *, row_number() over (order by ` + inTurns + `, line, nth) as place from candidates order by ` + inTurns + `, line, nth limit @limit::int
), picked as materialized (
    select w.* from wanted w cross join lateral (select from tasker.board where ctid = w.at and state = {claimable} for update skip locked) s
), ` + numberedInOrder("at, line, callable_id, turns, task_uuid, step_no, ahead, place", "place") + `, taken as materialized (
    select ` + ofOpen + `, t.turn, t.steps, t.first, t.task_uuid, t.step_no
    from (select line, max(turns) as turn, count(*) as steps, min(token) as first, (array_agg(task_uuid))[1] as task_uuid, (array_agg(step_no))[1] as step_no
          from numbered group by line) t join opened o on o.line = t.line
    union all
    select ` + ofOpen + `, null, 0, null, null, null from opened o where line not in (select line from candidates)
), charged as (
    update tasker.limit_keys k
    set turn = coalesce(l.turn, k.turn), from_turn = case when l.near and l.turn - k.from_turn < ` + turnsBehind + ` * (l.turn - k.turn) then k.from_turn else coalesce(l.turn, k.from_turn) end,
        head_task = coalesce(l.task_uuid, k.head_task), head_step = coalesce(l.step_no, k.head_step),
        tokens = coalesce(` + limitedTokens + ` - l.steps, k.tokens), tokens_at = now.now, running_from = greatest(k.running_from, coalesce(l.oldest, l.first)),
        waiting = k.waiting and e.more, from_lane = case when w.steps > 0 then w.lane when e.more then -32768 else k.from_lane end,
        from_seq = case when w.steps > 0 then w.seq when e.more then 0 else k.from_seq end
    from now cross join taken l
    cross join lateral (select count(*) as steps, (array_agg(o.lane))[1] as lane, (array_agg(o.seq))[1] as seq
                        from (select lane, seq from tasker.board, (select l.from_lane, l.from_seq) o
                              where state = {claimable} and callable = -l.line` + line + ` order by lane, seq limit l.steps + 1) o) w
    cross join lateral (select case when w.steps > l.steps or l.steps > 0 and (select count(*) from open) < ` + keysFirst + ` and (select count(*) from numbered) >= @limit::int then true else (
                            select count(*) > l.steps from (select from tasker.board where state = {claimable} and callable = -l.line limit l.steps + 1) b) end as more offset 0) e
    where k.ctid = l.key_at and (l.steps > 0 or w.steps = 0)
), reached as (
    update tasker.limits l set turn = greatest(l.turn, p.turn), turns_from = least(f.from_turn, greatest(l.turn, p.turn))
    from (select callable_id, min(turns) as turn from numbered group by callable_id) p
    cross join lateral (select limit_at, turns_from from opened where callable_id = p.callable_id limit 1) o
    left join lateral (select k.from_turn from tasker.limit_keys k, (select o.turns_from) l
                       where k.callable_id = p.callable_id and k.waiting` + keys + ` order by k.from_turn, k.line limit 1) f on true
    where l.ctid = o.limit_at
), superseded as (
    update tasker.board b set limit_line = -b.limit_line
    from taken l cross join lateral (
        select ctid as at from tasker.board w
        where w.state in ({scheduled}, {claimable}) and w.limit_line = l.line and w.ctid <> all (array(select at from numbered))
              and not ` + undoes + `w.task_uuid)
        for update skip locked) s
    where l.supersedes and l.steps > 0 and l.spare <= l.steps and b.ctid = s.at
), claimed as (
    update tasker.board s set callable = n.callable_id, ` + toLimited + `
    from numbered n, now where s.ctid = n.at
    returning s.seq - {not_of_callable} as seq, ` + ofBoardButSeq + `
)` + announced + `, rest as (
    select case when (select count(*) from picked) < (select count(*) from wanted) or (select count(*) from claimed) < (select count(*) from numbered) then ` + strconv.Itoa(int(RestLocked)) + ` else 0 end` + orSuspects + `
         + case when (select count(*) from numbered) < (select count(*) from picked) then ` + strconv.Itoa(int(restLeft)) + ` else 0 end as rest
)` + claimedRows + fromBoard)
}
