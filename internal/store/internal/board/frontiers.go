package board

import (
	"cmp"
	"context"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
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

// LookFromBeginning drops the frontiers, so that full scans begin at the beginning. It leaves
// one alone where such a scan took longer than cheapWhole: then one is made in its time.
func (s *Board) LookFromBeginning() {
	for drop, f := range s.frontiers.each() {
		f.doubt(drop)
	}
}

// each yields the common part of each frontier, with the function that drops its places.
func (f *frontiers) each() iter.Seq2[func(), *frontier] {
	return func(yield func(func(), *frontier) bool) {
		_ = yield(func() { clear(f.lanes) }, &f.claimable) &&
			yield(func() { f.reports = reportMarks{} }, &f.reported) &&
			yield(func() { f.due, f.lease = time.Time{}, time.Time{} }, &f.timed)
	}
}

// reset forgets all of them.
func (f *frontiers) reset() {
	for drop, one := range f.each() {
		one.reset(drop)
	}
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

// move moves the frontier after a scan of some duration, if that is due. It reads the
// writers of the board and its first live rows, in one round trip; read adds the statement
// for the latter. Once every writer of a generation has ended, reach sets the new places,
// under the lock.
func (f *frontier) move(ctx context.Context, db *pg.Conn, took time.Duration, read func(b *pgx.Batch), reach func(ended *generation)) error {
	if !f.due(took, time.Now()) {
		return nil
	}
	reached := false
	defer func() { f.done(reached, time.Now()) }()
	var now generation
	var writers []string
	b := &pgx.Batch{}
	b.Queue(lastNumber).QueryRow(func(row pgx.Row) error { return row.Scan(&now.seq, &now.now) })
	b.Queue(boardWriters).QueryRow(func(row pgx.Row) error { return row.Scan(&writers) })
	read(b)
	now.at = time.Now()
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	ended, ok := f.step(now, writers)
	f.mu.Lock()
	defer f.mu.Unlock()
	if ok && !f.void {
		reach(&ended)
		reached = true
	}
	return nil
}

// next is the place of an index after a move: its first live row, or else after all that
// the generation has drawn. first is 0 without a row.
func (g *generation) next(first int64) int64 {
	if first > 0 {
		return min(first, g.seq+1)
	}
	return g.seq + 1
}

// firstClaimable reads the first claimable number of each lane; 0: none.
// Index: board_claimable.
var firstClaimable = pg.Compile(`
with recursive ` + everyLane + `
select l.callable, l.lane, coalesce((
    select seq from tasker.board where state = {claimable} and callable = l.callable and lane = l.lane and seq >= l.mark order by seq limit 1), 0) as mark
from found l`)

// moveClaimable moves the frontier of the claimable steps after a full scan of the given
// duration.
func (s *Board) moveClaimable(ctx context.Context, db *pg.Conn, took time.Duration) error {
	first := map[laneKey]int64{}
	return s.frontiers.claimable.move(ctx, db, took, func(b *pgx.Batch) {
		firstClaimable.With(s.knownLanes().arguments()).Queue(b).Query(stmt.Rows(func(l *laneFrom) { first[l.laneKey] = l.mark }))
	}, func(ended *generation) {
		for k, seq := range first {
			s.frontiers.lanes[k] = max(s.frontiers.lanes[k], ended.next(seq))
		}
	})
}

// moveAll moves all frontiers after a look at all of them. An error here does not affect
// what was read.
func (s *Board) moveAll(ctx context.Context, db *pg.Conn, took time.Duration) {
	_ = s.moveClaimable(ctx, db, took)
	_ = s.moveReported(ctx, db, took)
	_ = s.moveTimes(ctx, db, took)
}

// everyLane is a part of a recursive with that finds the lanes in which steps may wait:
// the known ones, and those between them. In gaps it skips from one lane with waiting
// steps to the next; its cost depends on their number, not on the number of possible
// callables. A gap within a callable is bounded by its lanes, any other by its callables:
// with a comparison of both together the scan of an index would take only the first
// column as its end.
// Index: board_claimable.
var everyLane = `walk as (
    select f.callable, f.lane, g.below_lane, g.below
    from (select w.*, null::int from ` + stmt.List[laneGap]("w") + `
          union all
          select b.above, ` + lastLane + `::smallint, null, b.below from ` + stmt.List[callableGap]("b") + `) g(callable, lane, below_lane, below)
    cross join lateral ` + nextLane("g") + `
    union all
    select f.callable, f.lane, w.below_lane, w.below
    from walk w cross join lateral ` + nextLane("w") + `
), found as materialized (
    select * from ` + stmt.List[laneFrom]("k") + `
    union all
    select callable, lane, 0 from walk
)`

// nextLane is the first lane with waiting steps in a gap.
func nextLane(gap string) string {
	return strings.ReplaceAll(`(
        (select callable, lane from tasker.board
         where x.below is null and state = {claimable} and callable = x.callable and lane > x.lane and lane < x.below_lane
         order by lane, seq limit 1)
        union all
        (select callable, lane from tasker.board
         where x.below is not null and state = {claimable} and (callable, lane) > (x.callable, x.lane) and callable < x.below
         order by callable, lane, seq limit 1)) f`, "x.", gap+".")
}

// laneGap lies between two lanes of a callable, callableGap between two callables.
type (
	laneGap struct {
		callable     int32
		above, below int16
	}
	callableGap struct{ above, below int32 }
)

// lastLane is above every lane.
const lastLane = "32767"

// everywhere returns the arguments of everyLane: the lanes of the frontier, if any.
func (s *Board) everywhere() pg.Args {
	if !s.frontiers.claimable.begin(time.Now()) {
		return lanesFrom{}.arguments()
	}
	return s.knownLanes().arguments()
}

// knownLanes returns the lanes known by claims or by the frontier, with its places.
func (s *Board) knownLanes() (l lanesFrom) {
	keys := s.marks.known()
	f := &s.frontiers.claimable
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range s.frontiers.lanes {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compareLanes)
	for _, k := range slices.Compact(keys) {
		l = append(l, laneFrom{k, s.frontiers.lanes[k]})
	}
	return l
}

// compareLanes is the order of the index.
func compareLanes(a, b laneKey) int {
	return cmp.Or(cmp.Compare(a.callable, b.callable), cmp.Compare(a.lane, b.lane))
}

// arguments returns those of everyLane: the lanes in index order, and the gaps between
// them. Steps that the engine runs are in neither.
func (l lanesFrom) arguments() pg.Args {
	within, between := []laneGap{}, []callableGap{}
	last := laneKey{callable: pg.EngineQueue}
	for _, k := range l {
		if k.callable == last.callable {
			within = append(within, laneGap{k.callable, last.lane, k.lane})
		} else {
			if last.callable != pg.EngineQueue {
				within = append(within, laneGap{last.callable, last.lane, math.MaxInt16})
			}
			between = append(between, callableGap{last.callable, k.callable})
			within = append(within, laneGap{k.callable, order.AgedLane - 1, k.lane})
		}
		last = k.laneKey
	}
	if last.callable != pg.EngineQueue {
		within = append(within, laneGap{last.callable, last.lane, math.MaxInt16})
	}
	return pg.Args{"k": l, "w": within, "b": append(between, callableGap{last.callable, math.MaxInt32})}
}

// firstReported reads the first reported number of both kinds, and for how many seconds
// the older of the two has waited.
// Index: board_reported, board_reported_apart.
var firstReported = pg.Compile(`
select coalesce(l.seq, 0) as lone, coalesce(a.seq, 0) as apart,
       coalesce(greatest(date_part('epoch', clock_timestamp() - least(l.reported_at, a.reported_at)), 0), 0) as waited
from (select) one
left join lateral (select seq, reported_at from tasker.board where state = {reported} and slot = 0 and seq >= @lone order by seq limit 1) l on true
left join lateral (select seq, reported_at from tasker.board where state = {reported} and slot > 0 and seq >= @apart order by seq limit 1) a on true`)

// waitingReports is the row of firstReported.
type waitingReports struct {
	Lone, Apart int64
	Waited      time.Duration `sql:",seconds"`
}

// reportedFrom is where a scan of everything reported begins.
func (s *Board) reportedFrom() reportMarks {
	if !s.frontiers.reported.begin(time.Now()) {
		return reportMarks{}
	}
	return s.reports()
}

// moveReported moves the frontier of the reported steps.
func (s *Board) moveReported(ctx context.Context, db *pg.Conn, took time.Duration) error {
	var from reportMarks
	var first waitingReports
	return s.frontiers.reported.move(ctx, db, took, func(b *pgx.Batch) {
		from = s.reports()
		firstReported.With(pg.Args{"lone": from.lone, "apart": from.apart}).Queue(b).Query(stmt.Row(&first))
	}, func(ended *generation) {
		s.frontiers.reports = reportMarks{lone: max(from.lone, ended.next(first.Lone)), apart: max(from.apart, ended.next(first.Apart))}
	})
}

// reports returns the places of the frontier.
func (s *Board) reports() reportMarks {
	s.frontiers.reported.mu.Lock()
	defer s.frontiers.reported.mu.Unlock()
	return s.frontiers.reports
}

// firstTimes reads the first due time and the first end of a lease.
// Index: board_due, board_leases.
var firstTimes = pg.Compile(`
select nullif((select due_at from tasker.board where state = {scheduled} and due_at >= @due_from order by due_at limit 1), 'infinity') as due,
       (select lease_until from tasker.board where state = {in_progress} and lease_until >= @lease_from order by lease_until limit 1) as lease`)

// timesFrom is where a look at due times and leases begins.
func (s *Board) timesFrom() (due, lease time.Time) {
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
func (s *Board) moveTimes(ctx context.Context, db *pg.Conn, took time.Duration) error {
	f := &s.frontiers.timed
	var due, lease time.Time
	var first struct{ Due, Lease *time.Time }
	return f.move(ctx, db, took, func(b *pgx.Batch) {
		f.mu.Lock()
		due, lease = s.frontiers.due, s.frontiers.lease
		if f.moved.IsZero() {
			due, lease = longAgo, longAgo
		}
		f.mu.Unlock()
		firstTimes.With(pg.Args{"due_from": due, "lease_from": lease}).Queue(b).Query(stmt.Row(&first))
	}, func(ended *generation) {
		s.frontiers.due, s.frontiers.lease = ended.after(due, first.Due), ended.after(lease, first.Lease)
	})
}

// after is next for times: not before the place that was reached already.
func (g *generation) after(from time.Time, first *time.Time) time.Time {
	reached := g.now
	if first != nil && first.Before(reached) {
		reached = *first
	}
	if reached.Before(from) {
		return from
	}
	return reached
}

// While a session holds an old snapshot, rows that have died since cannot be removed, and
// a scan of an index from its beginning reads all of them. A frontier is a place in an
// index before which no row is alive and none can appear any more, so that full scans may
// begin there.
//
// Numbers and times on the board are drawn by the transaction that writes the row, and
// only grow. So no older row can appear once every transaction that was writing the board
// at a moment has ended: it held the lock that every writer takes on the table before it
// draws a number. A transaction that only reads, however old, does not count. One that
// writes is waited for without limit: the server bounds those of the engine, but tasks
// are also created in transactions of other programs (CreateTasksIn).
const (
	// slowScan is the duration of a scan from which the frontier is moved: an index with
	// few dead rows costs less than finding the writers.
	slowScan = 10 * time.Millisecond
	// frontierPause lies between two moves.
	frontierPause = time.Second
	// cheapWhole is the longest scan from the beginning that costs nothing to speak of: polls
	// make it whenever they look.
	cheapWhole = 100 * time.Millisecond
	// A frontier is proven, not guessed. All the same a scan begins at the beginning again and
	// again: after wholeShare times the duration of the latest, which is a twentieth of the
	// time at most, but within the bounds. A held snapshot of ten minutes makes such a scan
	// take seconds; without the longer bound it would be all that a worker does.
	wholeShare               = 20
	wholeLeast, wholeLongest = deploymode.LongestHold, time.Minute
)

// generation is the set of transactions writing the board at a moment.
type generation struct {
	at      time.Time // by the local clock; zero: none
	writers map[string]bool
	seq     int64     // the greatest number drawn by then
	now     time.Time // by the database's clock
}

// ended reports whether all of its writers have ended.
func (g *generation) ended(writers []string) bool {
	for _, w := range writers {
		if g.writers[w] {
			return false
		}
	}
	return true
}

// frontier is the common part of the frontiers of the indexes. It is safe for concurrent
// use.
type frontier struct {
	mu     sync.Mutex
	gen    generation
	moved  time.Time     // by the local clock; zero: never, scans begin at the beginning
	whole  time.Time     // when a scan began at the beginning
	cost   time.Duration // of the latest scan that did
	asked  time.Time     // when a scan began at the beginning that is not known to have ended; zero: none
	busy   bool          // it is being moved
	void   bool          // it was reset during the move
	latest time.Duration // duration of the latest scan
}

// due reports whether it should be moved after a scan of that duration, and reserves the
// move for the caller, who must call done.
func (f *frontier) due(took time.Duration, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.gen.at
	if f.moved.After(last) {
		last = f.moved
	}
	if !f.asked.IsZero() {
		f.whole, f.asked, f.cost = f.asked, time.Time{}, took
	}
	// One slow scan may have had to prepare its statement, or wait for a busy
	// machine.
	took, f.latest = min(took, f.latest), took
	if took < slowScan || f.busy || now.Sub(last) < frontierPause {
		return false
	}
	f.busy = true
	return true
}

// begin reports whether a scan of everything may begin at the frontier.
func (f *frontier) begin(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.moved.IsZero() || now.Sub(f.whole) >= min(max(wholeShare*f.cost, wholeLeast), wholeLongest) {
		f.asked = now
		return false
	}
	return true
}

// doubt is reset if a scan from the beginning is cheap.
func (f *frontier) doubt(drop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cost <= cheapWhole {
		f.dropLocked(drop)
	}
}

// step records the current writers and returns the generation that has ended by now, if
// any.
func (f *frontier) step(now generation, writers []string) (ended generation, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now.writers = make(map[string]bool, len(writers))
	for _, w := range writers {
		now.writers[w] = true
	}
	if f.void {
		return generation{}, false
	}
	if f.gen.at.IsZero() {
		f.gen = now
		return generation{}, false
	}
	if !f.gen.ended(writers) {
		return generation{}, false
	}
	ended, f.gen = f.gen, now
	return ended, true
}

// done ends a move; reached says that there is a frontier now.
func (f *frontier) done(reached bool, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	reached = reached && !f.void
	f.busy, f.void = false, false
	if reached {
		if f.moved.IsZero() {
			f.whole = now
		}
		f.moved = now
	}
}

// reset drops the frontier, and its places by calling drop. A move under way has no
// effect.
func (f *frontier) reset(drop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = time.Time{}
	f.dropLocked(drop)
}

func (f *frontier) dropLocked(drop func()) {
	f.gen, f.moved, f.void = generation{}, time.Time{}, f.busy
	drop()
}
