package board

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
)

// waitedTooLong picks the steps that have waited for longer than the bound behind others
// that are claimed first: smaller lanes in which something waits, of their callable or of
// one that a live worker offers beside it, since claims take the lanes of all their
// callables in one order. New tasks wait for the begun ones of their priority, whose steps
// are finite: these are two lanes, and one rank. Aged steps have waited longer still.
//
// It reads the first step of each lane, and of the lanes where that one is due up to limit:
// a lane is in the order in which its steps became claimable. So a step with a changed
// priority waits for up to the bound from then on. Rows locked by claims are skipped.
// Index: board_claimable, workers_alive, and those of pausedCallables.
var waitedTooLong = `with recursive ` + everyLane + `, heads as materialized (
    select l.*, s.enqueued_at from (select * from found where callable <> all (` + pausedCallables + `)) l cross join lateral (
        select enqueued_at from tasker.board where state = {claimable} and callable = l.callable and lane = l.lane and seq >= l.mark order by seq limit 1) s
), due as materialized (
    select *, case when callable = any (@ordered::int[]) then lane else lane - lane % 2 end as rank from heads where lane > {aged_lane} and enqueued_at < ` + waitedSince + `
), ahead as materialized (
    select w.callables, min(h.lane) as lane
    from (select distinct array[callable] as callables from due
          union all
          select distinct callables from tasker.workers where status < {worker_dead} and stopped_at is null and exists (select from due)) w
    join heads h on h.lane > {aged_lane} and h.callable = any (w.callables)
    group by w.callables
), behind as materialized (
    select d.callable, d.lane, d.mark, (select count(*) from (
        select enqueued_at from tasker.board where state = {claimable} and callable = d.callable and lane = d.lane and seq >= d.mark
        order by seq limit @limit::int + @skip::int) s where enqueued_at < ` + waitedSince + `) as steps
    from due d where exists (select from ahead a where d.callable = any (a.callables) and a.lane < d.rank)
    order by d.enqueued_at
), picked as materialized (
    select s.*, l.callable from behind l cross join lateral (
        select ctid as at, queue, enqueued_at, seq from tasker.board
        where state = {claimable} and callable = l.callable and lane = l.lane and seq >= l.mark
        order by seq limit l.steps for update skip locked) s
    limit @limit::int offset @skip::int
)`

// waitedSince is read once for each use: compared with the clock function, rows could not
// be told from those of the next moment.
const waitedSince = `(select clock_timestamp() - @bound_ms::bigint * interval '1 ms')`

// age moves such steps to the end of the lane of aged ones, and agePreview counts what it
// would move; ageInKeys and its preview do the same in the lines of keys.
var (
	age              = pg.Compile(waitedTooLong + moveAged)
	agePreview       = pg.Compile(waitedTooLong + countAged)
	ageInKeys        = pg.Compile(waitedInKeys + moveAged)
	ageInKeysPreview = pg.Compile(waitedInKeys + countAged)
)

// waitedInKeys picks such steps in the lines of keys, of the 10,000 keys that are next: there
// others of the same key alone are claimed first. Of each key it reads the first ten steps
// behind those of its first priority.
// Index: limit_keys_turns, board_claimable.
var waitedInKeys = `with picked as materialized (
    select s.*, l.callable_id as callable from tasker.limits l cross join lateral (
        select line from tasker.limit_keys where callable_id = l.callable_id and waiting order by from_turn, line limit 10000) k
    cross join lateral (
        select lane from tasker.board where state = {claimable} and callable = -k.line and lane > {aged_lane} order by lane, seq limit 1) f
    cross join lateral (
        select ctid as at, queue, enqueued_at, seq from tasker.board
        where state = {claimable} and callable = -k.line and lane > f.lane and lane - lane % 2 > f.lane
        order by lane, seq limit 10 for update skip locked) s
    where s.enqueued_at < ` + waitedSince + `
    limit @limit::int offset @skip::int
)`

const (
	// moveAged moves the picked steps, in the order of their waiting times. The rows are locked, so they
	// are still there.
	moveAged = `, numbered as materialized (
    select at, callable, nextval('tasker.step_seq') as seq from (select * from picked where enqueued_at < ` + waitedSince + ` order by enqueued_at, seq) o
), moved as (
    update tasker.board s set lane = {aged_lane}, seq = n.seq from numbered n where s.ctid = n.at
    returning s.queue, n.callable, s.lane
)` + agedRows + `moved` + agedRowsEnd
	countAged   = agedRows + `(select queue, 0 as callable, {aged_lane}::smallint as lane from picked)` + agedRowsEnd
	agedRows    = ` select n.name as namespace, m.callable, m.lane, count(*) as steps from `
	agedRowsEnd = ` m cross join lateral (select name from tasker.namespaces where namespace_id = any (array[m.queue]) limit 1) n group by n.name, m.callable, m.lane`
)

// Aged are steps that have waited for too long.
type Aged struct {
	Steps   map[string]int // by namespace
	More    bool           // there may be others
	Signals []signal.Signal
}

// Age moves up to limit steps that have waited for longer than bound behind others to the
// end of the lane that is claimed first. With dry it counts them. A step that the database rejects
// holds up no others.
func (s *Board) Age(ctx context.Context, bound time.Duration, limit int, dry bool) (Aged, error) {
	found, moved := Aged{Steps: map[string]int{}}, 0
	inLanes, inKeys := age, ageInKeys
	if dry {
		inLanes, inKeys = agePreview, ageInKeysPreview
	}
	bounded := pg.Args{"bound_ms": bound.Milliseconds()}
	for _, look := range []struct {
		statement *stmt.Statement
		args      pg.Args
	}{{inLanes, s.everywhere().And(pg.Args{"ordered": s.registry.Ordered()}).And(bounded)}, {inKeys, bounded}} {
		n, err := s.db.ByPosition("age", "step %d of those that have waited for too long", limit-moved, func(limit, skip int) (int, error) {
			return s.ageBy(ctx, look.statement.With(look.args.And(pg.Args{"limit": limit, "skip": skip})), dry, &found)
		})
		if moved += n; err != nil {
			return found, err
		}
	}
	found.More = moved >= limit
	return found, nil
}

// ageBy runs one statement in a transaction of its own, and adds to what was found.
func (s *Board) ageBy(ctx context.Context, call stmt.Call, dry bool, found *Aged) (moved int, err error) {
	type row struct {
		NamedLane
		Steps int
	}
	topics := SignalSet{}
	rows, err := pg.Change(ctx, s.db, "age", "bring forward steps that have waited for too long", func(ctx context.Context, tx pgx.Tx) ([]row, []signal.Signal, error) {
		rows, err := stmt.All[row](ctx, tx, call)
		clear(topics)
		for i := range rows {
			if !dry {
				topics.AddNamed(&rows[i].NamedLane)
			}
		}
		return rows, topics.Signals(), err
	})
	if err != nil {
		return 0, err
	}
	for i := range rows {
		found.Steps[rows[i].Namespace] += rows[i].Steps
		moved += rows[i].Steps
	}
	found.Signals = append(found.Signals, topics.Signals()...)
	return moved, nil
}
