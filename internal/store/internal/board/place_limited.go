package board

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
)

// Many tasks that are created at once have their steps in the lines of their keys from the
// beginning, where those are known: sorting is what limits with keys cost most, and what a flood
// of one key costs all others. Only the first step of each key waits in the line of its
// callable. It is sorted like all others, and its sorter says that steps wait in the line of
// the key. So the creation changes no key, which may be done with the turn of the callable alone,
// and waits for no claim; and all of it becomes visible at once.
//
// If that first step leaves the line of its callable otherwise, since its task is cancelled,
// MarkWaiting finds the others.
//
// A limit is set and removed with the lock of creations (PlaceLock), so it waits for those that
// have read it. It does not wait long: they never wait for it.

// limitedPlaces: creations place steps in the lines of the keys of the limit l. Steps of ordered
// keys come there in the order in which they are sorted.
const limitedPlaces = `(l.key_path is not null or l.key_tag is not null) and not l.ordered and not l.removing and l.beyond = 'wait'`

// placingLimits are those limits of callables, as JSON; null without one.
// Index: the primary key.
const placingLimits = `(select jsonb_agg(jsonb_build_object('callable', callable_id, 'key_path', key_path, 'key_tag', coalesce(key_tag, '')))
        from tasker.limits l where callable_id = any (@callables::int[]) and ` + limitedPlaces + `)`

var (
	tryPlace = pg.Compile(`select pg_try_advisory_xact_lock_shared(@class, @callable::int)`)
	// linesOf are the lines of known keys, if the limit is still what it was.
	// Index: the primary keys.
	linesOf = pg.Compile(`
select i.nth, k.line
from ` + limitOf("@callable::int") + ` cross join ` + stmt.List[nthKey]("i") + ` cross join lateral ` + keyOf("l.callable_id", "i.key") + `
where l.key_path is not distinct from @key_path and l.key_tag is not distinct from nullif(@key_tag::text, '') and ` + limitedPlaces)
)

type nthKey struct {
	Nth int32
	Key string
}

// eachWaiting calls f with the first steps that wait from now on.
func (c *newRows) eachWaiting(f func(t *NewTask, callable *int32, lane int16)) {
	for i := range c.tasks {
		if t := &c.tasks[i]; t.StepNo != nil && t.DueIn <= 0 {
			f(t.task, &t.Callable, t.Lane)
		}
	}
	for i := range c.steps {
		if p := &c.steps[i]; p.DueIn <= 0 {
			f(p.task, &p.Callable, p.Lane)
		}
	}
}

// callables are those of the first steps that wait from now on.
func (c *newRows) callables() []int32 {
	ids := []int32{}
	c.eachWaiting(func(_ *NewTask, callable *int32, _ int16) {
		if !slices.Contains(ids, *callable) {
			ids = append(ids, *callable)
		}
	})
	return ids
}

// placeByKeys places steps in the lines of their keys, by the limits that placingLimits has found.
func (c *newRows) placeByKeys(ctx context.Context, tx pgx.Tx, placing json.RawMessage) error {
	if placing == nil {
		return nil
	}
	var limits []struct {
		Callable int32
		limitrule.Key
	}
	if err := json.Unmarshal(placing, &limits); err != nil {
		return fmt.Errorf("read the limits of callables: %w", err)
	}
	for i := range limits {
		if err := c.placeStepsOf(ctx, tx, limits[i].Callable, &limits[i].Key); err != nil {
			return err
		}
	}
	return nil
}

// placeStepsOf places the steps of one callable. The lock is taken by a statement of its own, so
// that the snapshot of the next one is younger.
func (c *newRows) placeStepsOf(ctx context.Context, tx pgx.Tx, callable int32, key *limitrule.Key) error {
	keys, byKey := c.byKeys(callable, key)
	type line struct{ Nth, Line int32 }
	free, lines := false, []line(nil)
	b := &pgx.Batch{}
	tryPlace.With(pg.Args{"class": int32(pg.PlaceLock), "callable": callable}).Queue(b).Query(stmt.Row(&free))
	linesOf.With(pg.Args{"i": keys, "callable": callable, "key_path": key.KeyPath, "key_tag": key.KeyTag}).Queue(b).Query(stmt.Into(&lines))
	if err := tx.SendBatch(ctx, b).Close(); err != nil || !free {
		return err
	}
	for _, l := range lines {
		steps := &byKey[l.Nth]
		for i, of := range steps.callables {
			if i != steps.first {
				*of = -l.Line
			}
		}
	}
	return nil
}

// keySteps are the steps of a key; the first one of the first lane is the one that claims would take.
type keySteps struct {
	callables []*int32
	first     int
	lane      int16 // of the first
}

// byKeys are the keys of the steps of a callable that are known without PostgreSQL, and their steps.
func (c *newRows) byKeys(callable int32, key *limitrule.Key) (keys []nthKey, steps []keySteps) {
	at := map[string]int{}
	c.eachWaiting(func(t *NewTask, of *int32, lane int16) {
		if *of != callable {
			return
		}
		text, known := key.Of(t.Context, t.Tags)
		if !known {
			return
		}
		i, again := at[text]
		if !again {
			i = len(keys)
			at[text], keys, steps = i, append(keys, nthKey{int32(i), text}), append(steps, keySteps{lane: lane}) // #nosec G115 -- at most as many as tasks
		}
		s := &steps[i]
		if lane < s.lane {
			s.first, s.lane = len(s.callables), lane
		}
		s.callables = append(s.callables, of)
	})
	return keys, steps
}

// unmarked are lines behind one in which steps wait although their keys do not say so, with the
// first of their steps; and the last line that was looked at.
// Index: board_claimable, the primary keys.
var unmarked = pg.Compile(`
with recursive lines as (
    (select callable, lane, seq from tasker.board where state = {claimable} and callable > @after::int and callable < 0 order by callable, lane, seq limit 1)
    union all
    select f.* from lines l cross join lateral (
        select callable, lane, seq from tasker.board where state = {claimable} and callable > l.callable and callable < 0 order by callable, lane, seq limit 1) f
), looked as materialized (
    select * from lines limit @limit::int
)
select (select count(*) from looked) as looked, l.callable as after, -l.callable as line, l.lane, l.seq, coalesce(k.callable_id, 0) as callable, coalesce(n.name, '') as namespace
from looked l
left join lateral (select callable_id from (select * from tasker.limit_keys where line <= -l.callable order by line desc limit 1) k where line = -l.callable and not waiting) k on true
left join lateral (select namespace_id from tasker.callables where callable_id = k.callable_id limit 1) c on true
left join lateral (select name from tasker.namespaces where namespace_id = c.namespace_id limit 1) n on true
where n.name is not null or l.callable = (select max(callable) from looked)
order by l.callable`)

// lookedAtOnce is how many lines one look reads.
const lookedAtOnce = 10_000

// allLines is before the first line.
const allLines = math.MinInt32

// MarkWaiting looks for steps in lines whose keys do not say that steps wait, and lets them be
// claimed. It looks behind a line, 0 for all, and returns the line to go on behind, 0 at the end.
func (s *Board) MarkWaiting(ctx context.Context, after int32) (marked int, next int32, signals []signal.Signal, err error) {
	type row struct {
		Looked                int
		After, Line, Callable int32
		Namespace             string
		Lane                  int16
		Seq                   int64
	}
	if after == 0 {
		after = allLines
	}
	rows, err := pg.ReadAll[row](ctx, s.db, "unmarked_keys", "look for keys with waiting steps", unmarked.With(pg.Args{"after": after, "limit": lookedAtOnce}))
	var callables []int32
	var lines []sortedLine
	topics := SignalSet{}
	for _, r := range rows {
		if r.Looked == lookedAtOnce {
			next = r.After
		}
		if r.Namespace != "" {
			callables, lines = append(callables, r.Callable), append(lines, sortedLine{r.Line, r.Lane, r.Seq})
			topics.addLane(r.Namespace, laneKey{r.Callable, r.Lane})
		}
	}
	if len(lines) == 0 || err != nil {
		return 0, next, nil, err
	}
	slices.Sort(callables) // locked in one order
	err = s.db.Transaction(ctx, "mark_waiting", "say in which lines steps wait", func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		return topics.Signals(), markInTurn(ctx, tx, slices.Compact(callables), lines)
	})
	return len(lines), next, topics.Signals(), err
}
