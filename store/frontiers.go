package store

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// frontiers are those of the board's indexes.
type frontiers struct {
	claimable frontier
	lanes     map[laneKey]int64 // of claimable, under its lock

	reported frontier
	reports  reportMarks // of reported, under its lock

	timed      frontier
	due, lease time.Time // of timed, under its lock
}

func newFrontiers() *frontiers { return &frontiers{lanes: map[laneKey]int64{}} }

// reset forgets all of them.
func (f *frontiers) reset() {
	f.claimable.reset(func() { clear(f.lanes) })
	f.reported.reset(func() { f.reports = reportMarks{} })
	f.timed.reset(func() { f.due, f.lease = time.Time{}, time.Time{} })
}

// boardWriters lists the transactions that may still write rows with older numbers:
// numbers are read first, so that every transaction that drew one of them is listed or
// has ended. It needs no privilege.
const (
	lastNumber   = `select last_value, clock_timestamp() from tasker.step_seq`
	boardWriters = `
select coalesce(array_agg(virtualtransaction), '{}') from pg_locks
where locktype = 'relation' and relation = 'tasker.board'::regclass and mode = 'RowExclusiveLock'
  and database = (select oid from pg_database where datname = current_database())`
)

// move reads the writers of the board and its first live rows, in one round trip; read
// adds the statement for the latter. ok is false while it is too early to decide.
func (f *frontier) move(ctx context.Context, db *conn, read func(b *pgx.Batch)) (ended generation, ok bool, err error) {
	var now generation
	var writers []string
	b := &pgx.Batch{}
	b.Queue(lastNumber).QueryRow(func(row pgx.Row) error { return row.Scan(&now.seq, &now.now) })
	b.Queue(boardWriters).QueryRow(func(row pgx.Row) error { return row.Scan(&writers) })
	read(b)
	now.at = time.Now()
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return ended, false, err
	}
	ended, ok = f.step(now, writers)
	return ended, ok, nil
}

// firstClaimable reads the first claimable number of each lane; 0: none.
// Index: board_claimable.
var firstClaimable = `
with recursive ` + everyLane(1, 4) + `
select l.callable, l.lane, coalesce((
    select seq from tasker.board where state = 2 and callable = l.callable and lane = l.lane and seq >= l.mark order by seq limit 1), 0)
from found l`

// moveClaimable moves the frontier of the claimable steps after a full scan of the given
// duration.
func (s *Store) moveClaimable(ctx context.Context, db *conn, took time.Duration) error {
	f := &s.frontiers.claimable
	if !f.due(took, time.Now()) {
		return nil
	}
	reached := false
	defer func() { f.done(reached, time.Now()) }()
	first := map[laneKey]int64{}
	ended, ok, err := f.move(ctx, db, func(b *pgx.Batch) {
		b.Queue(firstClaimable, s.knownLanes().arguments()...).Query(func(rows pgx.Rows) error {
			var k laneKey
			var seq int64
			_, err := pgx.ForEachRow(rows, []any{&k.callable, &k.lane, &seq}, func() error {
				first[k] = seq
				return nil
			})
			return err
		})
	})
	if err != nil || !ok {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.void {
		return nil
	}
	for k, seq := range first {
		to := ended.seq + 1
		if seq > 0 {
			to = min(to, seq)
		}
		s.frontiers.lanes[k] = max(s.frontiers.lanes[k], to)
	}
	reached = true
	return nil
}

// moveAll moves all frontiers after a look at all of them. An error here does not affect
// what was read.
func (s *Store) moveAll(ctx context.Context, db *conn, took time.Duration) {
	_ = s.moveClaimable(ctx, db, took)
	_ = s.moveReported(ctx, db, took)
	_ = s.moveTimes(ctx, db, took)
}

// everyLane is a part of a recursive with that finds the lanes in which steps may wait:
// those of a list, whose three parameters begin with number known, and those between
// them, whose five begin with number gaps. In gaps it skips from one lane with waiting
// steps to the next; its cost depends on their number, not on the number of possible
// callables. A gap within a callable is bounded by its lanes, any other by its callables:
// with a comparison of both together the scan of an index would take only the first
// column as its end.
// Index: board_claimable.
func everyLane(known, gaps int) string {
	next := func(from string) string {
		return strings.ReplaceAll(`(
        (select callable, lane from tasker.board
         where x.below is null and state = 2 and callable = x.callable and lane > x.lane and lane < x.below_lane
         order by lane, seq limit 1)
        union all
        (select callable, lane from tasker.board
         where x.below is not null and state = 2 and (callable, lane) > (x.callable, x.lane) and callable < x.below
         order by callable, lane, seq limit 1)) f`, "x.", from+".")
	}
	at := func(first int, letters string) (pairs []string) {
		for i, letter := range letters {
			pairs = append(pairs, "$"+string(letter), "$"+strconv.Itoa(first+i))
		}
		return pairs
	}
	return strings.NewReplacer(append(at(known, "abc"), at(gaps, "defgh")...)...).Replace(`walk as (
    select f.callable, f.lane, g.below_lane, g.below
    from (select w.*, null::int from unnest($d::int[], $e::smallint[], $f::smallint[]) w
          union all
          select b.above, ` + lastLane + `::smallint, null, b.below from unnest($g::int[], $h::int[]) b(above, below)) g(callable, lane, below_lane, below)
    cross join lateral ` + next("g") + `
    union all
    select f.callable, f.lane, w.below_lane, w.below
    from walk w cross join lateral ` + next("w") + `
), found as materialized (
    select * from unnest($a::int[], $b::smallint[], $c::bigint[]) k(callable, lane, mark)
    union all
    select callable, lane, 0 from walk
)`)
}

// lastLane is above every lane.
const lastLane = "32767"

// everywhere returns the arguments of everyLane: the lanes of the frontier, if any.
func (s *Store) everywhere() []any {
	if !s.frontiers.claimable.begin(time.Now()) {
		return lanesFrom{}.arguments()
	}
	return s.knownLanes().arguments()
}

// knownLanes returns the lanes known by claims or by the frontier, with its places.
func (s *Store) knownLanes() (l lanesFrom) {
	keys := s.marks.known()
	f := &s.frontiers.claimable
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range s.frontiers.lanes {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compareLanes)
	for _, k := range slices.Compact(keys) {
		l.add(k, s.frontiers.lanes[k])
	}
	return l
}

// compareLanes is the order of the index.
func compareLanes(a, b laneKey) int {
	return cmp.Or(cmp.Compare(a.callable, b.callable), cmp.Compare(a.lane, b.lane))
}

// arguments returns those of everyLane: the lanes in index order, and the gaps between
// them. Steps that the engine runs are in neither.
func (l lanesFrom) arguments() []any {
	var within struct {
		callables    []int32
		above, below []int16
	}
	var above, below []int32
	gap := func(callable int32, from, to int16) {
		within.callables = append(within.callables, callable)
		within.above, within.below = append(within.above, from), append(within.below, to)
	}
	last := laneKey{callable: engineQueue}
	for i := range l.callables {
		k := laneKey{l.callables[i], l.lanes[i]}
		if k.callable == last.callable {
			gap(k.callable, last.lane, k.lane)
		} else {
			if last.callable != engineQueue {
				gap(last.callable, last.lane, math.MaxInt16)
			}
			above, below = append(above, last.callable), append(below, k.callable)
			gap(k.callable, -1, k.lane)
		}
		last = k
	}
	if last.callable != engineQueue {
		gap(last.callable, last.lane, math.MaxInt16)
	}
	return []any{nonNil(l.callables), nonNil(l.lanes), nonNil(l.from), nonNil(within.callables), nonNil(within.above), nonNil(within.below),
		append(above, last.callable), append(below, math.MaxInt32)}
}

// firstReported reads the first reported number of both kinds, and for how many seconds
// the older of the two has waited.
// Index: board_reported, board_reported_apart.
const firstReported = `
select coalesce(l.seq, 0), coalesce(a.seq, 0),
       coalesce(greatest(date_part('epoch', clock_timestamp() - least(l.reported_at, a.reported_at)), 0), 0)
from (select) one
left join lateral (select seq, reported_at from tasker.board where state = 4 and slot = 0 and seq >= $1 order by seq limit 1) l on true
left join lateral (select seq, reported_at from tasker.board where state = 4 and slot > 0 and seq >= $2 order by seq limit 1) a on true`

// reportedFrom is where a scan of everything reported begins.
func (s *Store) reportedFrom() reportMarks {
	f := &s.frontiers.reported
	if !f.begin(time.Now()) {
		return reportMarks{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return s.frontiers.reports
}

// moveReported moves the frontier of the reported steps.
func (s *Store) moveReported(ctx context.Context, db *conn, took time.Duration) error {
	f := &s.frontiers.reported
	if !f.due(took, time.Now()) {
		return nil
	}
	reached := false
	defer func() { f.done(reached, time.Now()) }()
	f.mu.Lock()
	from := s.frontiers.reports
	f.mu.Unlock()
	var first reportMarks
	ended, ok, err := f.move(ctx, db, func(b *pgx.Batch) {
		b.Queue(firstReported, from.lone, from.apart).QueryRow(func(row pgx.Row) error { return row.Scan(&first.lone, &first.apart, nil) })
	})
	if err != nil || !ok {
		return err
	}
	to := func(first int64) int64 {
		if first > 0 {
			return min(first, ended.seq+1)
		}
		return ended.seq + 1
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.void {
		return nil
	}
	s.frontiers.reports = reportMarks{lone: max(from.lone, to(first.lone)), apart: max(from.apart, to(first.apart))}
	reached = true
	return nil
}

// firstTimes reads the first due time and the first end of a lease.
// Index: board_due, board_lease.
const firstTimes = `
select nullif((select due_at from tasker.board where state = 1 and due_at >= $1 order by due_at limit 1), 'infinity'),
       (select lease_until from tasker.board where state = 3 and lease_until >= $2 order by lease_until limit 1)`

// timesFrom is where a look at due times and leases begins.
func (s *Store) timesFrom() (due, lease time.Time) {
	f := &s.frontiers.timed
	if !f.begin(time.Now()) {
		return longAgo, longAgo
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return s.frontiers.due, s.frontiers.lease
}

// longAgo is before every time on the board.
var longAgo = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// moveTimes moves the frontier of due times and leases. No transaction sets one that lies
// in the past when it begins to write.
func (s *Store) moveTimes(ctx context.Context, db *conn, took time.Duration) error {
	f := &s.frontiers.timed
	if !f.due(took, time.Now()) {
		return nil
	}
	reached := false
	defer func() { f.done(reached, time.Now()) }()
	f.mu.Lock()
	due, lease := s.frontiers.due, s.frontiers.lease
	if f.moved.IsZero() {
		due, lease = longAgo, longAgo
	}
	f.mu.Unlock()
	var firstDue, firstLease *time.Time
	ended, ok, err := f.move(ctx, db, func(b *pgx.Batch) {
		b.Queue(firstTimes, due, lease).QueryRow(func(row pgx.Row) error { return row.Scan(&firstDue, &firstLease) })
	})
	if err != nil || !ok {
		return err
	}
	to := func(from time.Time, first *time.Time) time.Time {
		reached := ended.now
		if first != nil && first.Before(reached) {
			reached = *first
		}
		if reached.Before(from) {
			return from
		}
		return reached
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.void {
		return nil
	}
	s.frontiers.due, s.frontiers.lease = to(due, firstDue), to(lease, firstLease)
	reached = true
	return nil
}
