package board

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
)

// sortLimited moves steps of limited callables to the lines of their keys: the oldest, and,
// unless keys are ordered, as many of the newest if there are more than it takes. A key
// that had no steps begins at the turn that claims have reached, so that it makes up for
// nothing. It returns how many steps it has moved of each lane, and up to which of the oldest.
// Index: board_claimable, then the primary keys.
var sortLimited = pg.Compile(`
with asked as materialized (
    select c as callable_id from unnest(@callables::int[]) c
), free as materialized (
    select callable_id from asked where pg_try_advisory_xact_lock(@class, callable_id)
), lanes as materialized (
    select * from ` + stmt.List[laneFrom]("m") + `
), oldest as materialized (
    ` + oldestTaken + `
), newest as materialized (
    ` + takenSteps("asked", takenStep+` order by lane desc, seq desc limit case when (select count(*) from oldest) < @limit::int and exists (select from free) then 0 else @limit::int end for update skip locked`) + ` and not l.ordered
), taken as materialized (
    select *, seq as reached from oldest
    union all
    select *, null from newest where at not in (select at from oldest)
), ` + keyedSteps + `, made as (
    ` + makeKeys("true") + ` do update set turn = greatest(k.turn, excluded.turn), waiting = true,
        from_turn = case when k.waiting then k.from_turn else greatest(k.turn, excluded.turn) end
    returning line, callable_id, key
), marked as (` + markFound + `
), lines as materialized (
    select array_agg(coalesce(f.line, m.line) order by f.nth) as lines
    from found f left join made m on f.line is null and m.callable_id = f.callable_id and m.key = f.key
), moved as (` + intoLines + `
)
select callable_id as callable, lane, coalesce(max(reached) filter (where not ordered), 0) as seq, count(*) as steps, ` + ofSorter + ` from keyed group by callable_id, lane`)

// sortedLane is a lane of a callable from which steps were moved.
type sortedLane struct {
	laneKey
	Seq   int64 // of the last of its oldest; 0: none of them, or its keys are ordered
	Steps int64
	sorter
}

// takenSteps are steps in the lines of callables that have to be sorted.
func takenSteps(callables, steps string) string {
	return `select s.at, s.task_uuid, s.here, s.own, case when l.ordered then 0 else s.lane end as lane, s.seq,
        l.key_path, l.key_tag, l.burst, l.turn, l.weights, l.callable_id, l.ordered
    from ` + callables + ` f cross join lateral ` + limitOf("f.callable_id") + ` cross join lateral (
        ` + steps + `) s
    where not l.removing and not ` + limitedDirectly
}

const takenStep = `select ctid as at, task_uuid, slot = 0 and context is not null as here, context #>> l.key_path as own, lane, seq from tasker.board
        where state = {claimable} and callable = l.callable_id and task_uuid <> all (@except::uuid[])`

// oldestTaken are the oldest steps of callables that are free, since nothing sorts them. They are read
// after the locks are taken: rows that a claim locked without would not be sorted with those behind them.
// They are read from the marks on, where a held snapshot does not have to be read over, unless all are
// wanted (@fully), or keys are ordered: their steps must not be overtaken by younger ones, and an older
// one may come behind a mark.
var oldestTaken = takenSteps("free", `select s.* from lanes m cross join lateral (
            `+takenStep+` and lane = m.lane and seq >= m.mark order by seq limit @limit::int for update skip locked) s
        where m.callable = l.callable_id limit @limit::int`) + ` and not (l.ordered or @fully::bool)
    union all
    ` + takenSteps("free", takenStep+` order by lane, seq limit @limit::int for update skip locked`) + ` and (l.ordered or @fully::bool)`

var (
	// keyedSteps are taken steps with their keys, which are numbered, and these keys with the
	// first of their steps; line is null of a new one.
	keyedSteps = `keyed as materialized (
    select *, dense_rank() over (order by callable_id, key) as nth from (
        select t.*, left(coalesce(case
            when t.key_path is not null and t.here then t.own
            when t.key_path is not null then coalesce(
                (select context from tasker.board where task_uuid = t.task_uuid and slot = 0),
                (select context from tasker.tasks where task_uuid = t.task_uuid)) #>> t.key_path
            when t.key_tag is not null then (
                select substr(tag, length(t.key_tag) + 1) from tasker.tasks k cross join lateral unnest(k.tags) tag
                where k.task_uuid = t.task_uuid and starts_with(tag, t.key_tag) limit 1)
            end, ''), 512) as key
        from taken t) t
), found as materialized (
    select w.*, k.at, k.line, k.waiting, k.from_lane, k.from_seq
    from (select distinct on (nth) nth, callable_id, key, lane, seq, burst, turn, weights, count(*) over (partition by nth)::int as steps from keyed order by nth, lane, seq) w
    left join lateral ` + keyOf("w.callable_id", "w.key") + ` on true
)`
	// markFound says of keys that steps wait in their lines, from which step on.
	markFound = `
    update tasker.limit_keys k
    set turn = case when k.waiting then k.turn else greatest(k.turn, f.turn) end, waiting = true,
        from_turn = case when k.waiting then k.from_turn else greatest(k.turn, f.turn) end,
        from_lane = case when (f.lane, f.seq) < (k.from_lane, k.from_seq) then f.lane else k.from_lane end,
        from_seq = case when (f.lane, f.seq) < (k.from_lane, k.from_seq) then f.seq else k.from_seq end
    from found f where k.ctid = f.at and (not f.waiting or (f.lane, f.seq) < (f.from_lane, f.from_seq))`
	intoLines = `
update tasker.board s set callable = -l.lines[d.nth], lane = d.lane
from keyed d cross join lines l where s.ctid = d.at and l.lines[d.nth] is not null`
)

// makeKeys inserts the new ones of the keys found, in their order.
func makeKeys(waiting string) string {
	return `insert into tasker.limit_keys as k (callable_id, key, turn, from_turn, weight, tokens, tokens_at, waiting)
    select callable_id, key, turn, turn, coalesce((weights ->> key)::float8, 1), burst, clock_timestamp(), ` + waiting + `
    from found where line is null order by nth
    on conflict (callable_id, key)`
}

// Sorting beside claims has the turn of the callable at its end alone, when it says in
// which lines steps wait: a claim that had the turn before has not seen them, and may have
// said that nothing waits there. It makes no keys: a claim that has the turn and makes the
// same one would wait for the end of the transaction, which waits for the turn. Keys are made
// by a transaction of their own.
var (
	trySort = pg.Compile(`select pg_try_advisory_xact_lock(@class, @callable::int)`)
	// sortBeside moves steps to the lines of their keys, where those are known.
	// Index: board_claimable, then the primary keys.
	sortBeside = pg.Compile(takenBeside + `, lines as materialized (
    select array_agg(line order by nth) as lines from found
), moved as (` + intoLines + `
)
select coalesce(line, 0) as line, lane, seq, steps, 0::bigint as transaction, 0::bigint as running from found
union all
select -1, lane, max(reached), 0, ` + ofSorter + ` from keyed where not ordered group by lane`)
	makeKeysBeside = pg.Compile(takenBeside + ` ` + makeKeys("false") + ` do nothing`)
	markWaiting    = pg.Compile(`
with found as materialized (
    select f.*, l.turn, k.at, k.waiting, k.from_lane, k.from_seq
    from ` + stmt.List[sortedLine]("f") + ` cross join lateral (
        select ctid as at, * from tasker.limit_keys where line <= f.line order by line desc limit 1) k cross join lateral ` + limitOf("k.callable_id") + `
    where k.line = f.line
)` + markFound)
)

// takenBeside are the oldest steps of a callable with their keys.
var takenBeside = `
with free as materialized (
    select @callable::int as callable_id
), lanes as materialized (
    select * from ` + stmt.List[laneFrom]("m") + `
), taken as materialized (
    select *, seq as reached from (` + oldestTaken + `) o
), ` + keyedSteps

// sortedLine is the line of a key with the first of the steps that have come into it.
type sortedLine struct {
	Line int32 // 0: the key is new; -1: the last of the steps of a lane
	Lane int16
	Seq  int64
}

// sortedBeside is how many steps one transaction sorts: a claim whose turn it is waits for
// the marks of their lines alone, but steps behind them wait for all.
const sortedBeside = 2000

// SortLimited sorts the oldest steps of a limited callable from the marks, or all where none is known;
// more says that there may be others. Steps of the tasks in except are left out. Nothing happens while
// another one sorts them.
func (s *Board) SortLimited(ctx context.Context, callable int32, except []uuid.UUID) (more bool, err error) {
	lanes := s.marks.of([]int32{callable})
	fully := len(lanes) == 0
	args := pg.Args{"callable": callable, "limit": sortedBeside, "m": lanes, "fully": fully, "except": pg.NonNil(except)}
	unknown, reached, by := false, map[laneKey]int64{}, sorter{}
	err = s.sorting(ctx, callable, func(ctx context.Context, tx pgx.Tx) error {
		type sorted struct {
			sortedLine
			Steps int
			sorter
		}
		steps, lines := 0, []sortedLine{}
		unknown = false
		clear(reached)
		err := stmt.Each(ctx, tx, sortBeside.With(args), func(r *sorted) {
			switch {
			case r.Line < 0:
				reached[laneKey{callable, r.Lane}], by = r.Seq, r.sorter
			case r.Line == 0:
				unknown = true
			default:
				steps, lines = steps+r.Steps, append(lines, r.sortedLine)
			}
		})
		more = steps >= sortedBeside
		if err != nil || steps == 0 {
			return err
		}
		return markInTurn(ctx, tx, []int32{callable}, lines)
	})
	switch {
	case err != nil:
		return more, err
	case !unknown:
		s.marks.sortedUpTo(reached, lanes, by, fully && more)
		return more, nil
	}
	return true, s.sorting(ctx, callable, func(ctx context.Context, tx pgx.Tx) error {
		_, err := pg.Run(ctx, tx, makeKeysBeside.With(args))
		return err
	})
}

// markInTurn says in which lines steps wait, once the turn of their callables has come.
func markInTurn(ctx context.Context, tx pgx.Tx, callables []int32, lines []sortedLine) error {
	_, err := pg.Run(ctx, tx, takeTurns.With(pg.Args{"class": int32(pg.TurnLock), "callables": callables}))
	if err == nil {
		_, err = pg.Run(ctx, tx, markWaiting.With(pg.Args{"f": lines}))
	}
	return err
}

// sorting runs a transaction that sorts, unless another one of the callable does.
func (s *Board) sorting(ctx context.Context, callable int32, sort func(ctx context.Context, tx pgx.Tx) error) error {
	return s.db.Transaction(ctx, "sort_limited", "sort limited steps", func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		free, err := pg.OneOf[bool](ctx, tx, trySort.With(pg.Args{"class": int32(pg.SortLock), "callable": callable}))
		if err != nil || !free {
			return nil, err
		}
		return nil, sort(ctx, tx)
	})
}
