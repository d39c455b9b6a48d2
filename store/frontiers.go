package store

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// frontiers are those of the indexes of the board.
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

// boardWriters says who may still write what is older than now: numbers first,
// so that whoever drew one of them is among the writers or has ended. It needs
// no privilege.
const (
	lastNumber   = `select last_value, clock_timestamp() from tasker.step_seq`
	boardWriters = `
select coalesce(array_agg(virtualtransaction), '{}') from pg_locks
where locktype = 'relation' and relation = 'tasker.board'::regclass and mode = 'RowExclusiveLock'
  and database = (select oid from pg_database where datname = current_database())`
)

// move looks who writes the board and what of it is alive first, all in one
// round trip; read adds the statement that reads the latter. ok is false while
// it is too early to say anything.
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

// firstClaimable reads the first claimable number of each known lane, and of
// what lies between them.
// Index: board_claimable.
const (
	firstClaimable = `
select l.queue, l.lane, coalesce((
    select seq from tasker.board where state = 2 and queue = l.queue and lane = l.lane and seq >= l.floor order by seq limit 1), 0)
from unnest($1::int[], $2::smallint[], $3::bigint[]) l(queue, lane, floor)`
	firstBetween = `
select g.queue, f.lane, f.seq
from unnest($1::int[], $2::int[], $3::int[]) g(queue, above, below) cross join lateral (
    select lane, seq from tasker.board where state = 2 and queue = g.queue and lane > g.above and lane < g.below order by lane, seq limit 1) f`
)

// moveClaimable moves the frontier of the claimable steps of some queues, or of
// all (nil), after a scan of everything that took so long.
func (s *Store) moveClaimable(ctx context.Context, db *conn, queues []int32, took time.Duration) error {
	f := &s.frontiers.claimable
	if !f.due(took, time.Now()) {
		return nil
	}
	reached := false
	defer func() { f.done(reached, time.Now()) }()
	if queues == nil {
		if err := db.QueryRow(ctx, `select coalesce(array_agg(namespace_id), '{}') from tasker.namespaces`).Scan(&queues); err != nil {
			return err
		}
	}
	lanes := s.frontierLanes(queues)
	gaps := lanes.gaps(queues)
	first := map[laneKey]int64{}
	collect := func(rows pgx.Rows) error {
		var k laneKey
		var seq int64
		_, err := pgx.ForEachRow(rows, []any{&k.queue, &k.lane, &seq}, func() error {
			first[k] = seq
			return nil
		})
		return err
	}
	ended, ok, err := f.move(ctx, db, func(b *pgx.Batch) {
		b.Queue(firstClaimable, lanes.queues, lanes.lanes, lanes.from).Query(collect)
		b.Queue(firstBetween, gaps.queues, gaps.above, gaps.below).Query(collect)
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

// moveAll moves all frontiers after a look at all of them. What was read
// counts, whatever becomes of this.
func (s *Store) moveAll(ctx context.Context, db *conn, took time.Duration) {
	_ = s.moveClaimable(ctx, db, nil, took)
	_ = s.moveReported(ctx, db, took)
	_ = s.moveTimes(ctx, db, took)
}

// everyLane reads the first claimable steps of each lane, up to limit, with one
// column of them: the known lanes from the frontier, what lies between them,
// and the queues of which nothing is known. Its parameters, from number p on,
// are those of everywhere.
func everyLane(column, limit string, p int) string {
	at := func(n int) string { return "$" + strconv.Itoa(p+n) }
	return `
    select l.queue, s.` + column + ` from unnest(` + at(0) + `::int[], ` + at(1) + `::smallint[], ` + at(2) + `::bigint[]) l(queue, lane, floor)
    cross join lateral (
        select ` + column + ` from tasker.board where state = 2 and queue = l.queue and lane = l.lane and seq >= l.floor
        order by seq limit ` + limit + `) s
    union all
    select g.queue, s.` + column + ` from unnest(` + at(3) + `::int[], ` + at(4) + `::int[], ` + at(5) + `::int[]) g(queue, above, below)
    cross join lateral (
        select ` + column + ` from tasker.board where state = 2 and queue = g.queue and lane > g.above and lane < g.below
        order by lane, seq limit ` + limit + `) s
    union all
    select n.namespace_id, s.` + column + ` from tasker.namespaces n
    cross join lateral (
        select ` + column + ` from tasker.board where state = 2 and queue = n.namespace_id
        order by lane, seq limit ` + limit + `) s
    where n.namespace_id <> all (` + at(3) + `::int[])`
}

// everywhere are the arguments of everyLane.
func (s *Store) everywhere() []any {
	known := []int32{}
	f := &s.frontiers.claimable
	if f.begin(time.Now()) {
		f.mu.Lock()
		for k := range s.frontiers.lanes {
			if !slices.Contains(known, k.queue) {
				known = append(known, k.queue)
			}
		}
		f.mu.Unlock()
	}
	lanes := s.frontierLanes(known)
	gaps := lanes.gaps(known)
	return []any{nonNil(lanes.queues), nonNil(lanes.lanes), nonNil(lanes.from),
		nonNil(gaps.queues), nonNil(gaps.above), nonNil(gaps.below)}
}

// frontierLanes are the lanes known by claims or by the frontier.
func (s *Store) frontierLanes(queues []int32) lanesFrom {
	known := s.marks.of(queues)
	f := &s.frontiers.claimable
	f.mu.Lock()
	defer f.mu.Unlock()
	place := make(map[int32]int, len(queues))
	for i, q := range queues {
		place[q] = i
	}
	keys := make([]laneKey, 0, len(known.queues))
	for i := range known.queues {
		keys = append(keys, laneKey{known.queues[i], known.lanes[i]})
	}
	for k := range s.frontiers.lanes {
		if _, wanted := place[k.queue]; wanted && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, byLane(place))
	l := lanesFrom{}
	for _, k := range keys {
		l.add(k, s.frontiers.lanes[k])
	}
	return l
}

// claimFrom is where a scan of everything begins; false: at the beginning.
func (s *Store) claimFrom(queues []int32) (lanesFrom, laneGaps, bool) {
	if !s.frontiers.claimable.begin(time.Now()) {
		return lanesFrom{}, laneGaps{}, false
	}
	lanes := s.frontierLanes(queues)
	return lanes, lanes.gaps(queues), true
}

// firstReported reads the first reported number of both kinds, and for how many
// seconds the older of the two has waited.
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

// moveTimes moves the frontier of due times and leases. No transaction sets one
// that has passed when it begins to write.
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
