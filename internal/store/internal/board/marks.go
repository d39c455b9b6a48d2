package board

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// markSlack is how far before the last key taken a scan starts: a transaction that drew
// its numbers earlier may commit later. The next full scan finds still older ones.
const markSlack = 1000

const (
	// maxHotLanes bounds the lanes that one claim looks into from the marks.
	maxHotLanes = 64
	// laneCools is how long after the latest sign of steps in it a lane is read: so a
	// busy worker's claims find the next steps before their signal.
	laneCools = time.Second
	// commitsWithin is how long most transactions take from drawing a number to their end. Steps of
	// slower ones may lie behind a mark until the next full scan.
	commitsWithin = 250 * time.Millisecond
)

// marks are the moving low-water marks: of the claimable steps per lane, and of the
// reported steps. A scan from a mark takes rows in order, so it may raise the mark to its
// last row; unless the mark was lowered during the scan, because then there is older work
// to do first. A full scan that found more than it could take lowers the mark: the rest
// is found from there, without one full scan after the other.
//
// Claims from the marks read the hot lanes: recently a signal named them, or a scan found
// steps there, or no claim has had room for more since. So callables without waiting
// steps cost nothing.
type marks struct {
	mu  *sync.Mutex
	m   map[laneKey]int64
	hot map[laneKey]time.Time // the latest sign of steps in it, by the local clock
	// cools and commits are laneCools and commitsWithin but in tests.
	cools, commits *time.Duration
	taken          *reportMarks
	// sorted is how far lanes of limited callables were sorted, for which it is not known yet that
	// no older step can come.
	sorted map[laneKey]sortedTo
}

// sortedTo is the last of the oldest steps that a scan sorted, when it was, and its transaction: those
// that ran when it read the line have smaller numbers, since it had none before it locked the first step.
type sortedTo struct {
	seq, transaction int64
	at               time.Time
}

// sorter is the transaction of a scan, and the oldest one that ran when it read the line.
type sorter struct{ Transaction, Running int64 }

// ofSorter are the columns of sorter.
const ofSorter = `pg_current_xact_id()::text::bigint as transaction, pg_snapshot_xmin(pg_current_snapshot())::text::bigint as running`

// reportMarks are the marks of the reported steps: of those in their tasks' rows, and of
// those in rows of their own.
type reportMarks struct{ lone, apart int64 }

// laneKey is a lane of a callable.
type laneKey struct {
	callable int32
	lane     int16
}

// lanesFrom are lanes with the marks from which a scan begins.
type lanesFrom []laneFrom

type laneFrom struct {
	laneKey
	mark int64
}

// callables are those of lanes.
func (l lanesFrom) callables() []int32 {
	list := make([]int32, len(l))
	for i := range l {
		list[i] = l[i].callable
	}
	return list
}

func newMarks() marks {
	return marks{mu: &sync.Mutex{}, m: map[laneKey]int64{}, hot: map[laneKey]time.Time{}, cools: new(laneCools), commits: new(commitsWithin), taken: new(reportMarks), sorted: map[laneKey]sortedTo{}}
}

// of returns the hot lanes of callables in claim order: by lane, and the callables of one
// lane in the requested order.
func (m marks) of(callables []int32) (l lanesFrom) {
	m.mu.Lock()
	defer m.mu.Unlock()
	place := make(map[int32]int, len(m.hot))
	for k := range m.hot {
		place[k.callable] = -1
	}
	for i, c := range callables {
		if _, hot := place[c]; hot {
			place[c] = i
		}
	}
	keys := make([]laneKey, 0, len(m.hot))
	for k := range m.hot {
		if place[k.callable] >= 0 {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b laneKey) int {
		return cmp.Or(cmp.Compare(a.lane, b.lane), cmp.Compare(place[a.callable], place[b.callable]))
	})
	for _, k := range keys[:min(len(keys), maxHotLanes)] {
		l = append(l, laneFrom{k, m.m[k]})
	}
	return l
}

// heat makes a lane hot.
func (m marks) heat(k laneKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hot[k] = time.Now()
}

// begin makes lanes hot in which steps begin at their marks.
func (m marks) begin(lanes lanesFrom) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range lanes {
		if mark, known := m.m[l.laneKey]; !known || l.mark < mark {
			m.m[l.laneKey] = max(l.mark, 1)
		}
		m.hot[l.laneKey] = time.Now()
	}
}

// emptied records that a scan with room for more, which began at some time, took all
// steps of the lanes that it read: lanes, or for a full one all of the callables.
func (m marks) emptied(callables []int32, found map[laneKey]int64, began lanesFrom, full bool, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	cool := func(k laneKey) {
		if _, some := found[k]; !some && at.Sub(m.hot[k]) > *m.cools {
			delete(m.hot, k)
		}
	}
	for _, l := range began {
		cool(l.laneKey)
	}
	if full {
		for k := range m.hot {
			if slices.Contains(callables, k.callable) {
				cool(k)
			}
		}
	}
}

// known returns the lanes in which steps were found.
func (m marks) known() []laneKey {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.m))
}

// claimed moves the marks of the lanes in which a scan found steps. began is where it
// started, empty for a full scan; more says that a full scan left steps.
func (m marks) claimed(newest map[laneKey]int64, began lanesFrom, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	from := make(map[laneKey]int64, len(began))
	for _, l := range began {
		from[l.laneKey] = l.mark
	}
	for k, seq := range newest {
		m.m[k] = max(moved(m.m[k], from[k], seq, more), 1)
		m.hot[k] = time.Now()
	}
}

// sortedUpTo moves the marks of lanes whose oldest steps a scan has sorted, as claimed does; more says
// that a full one left steps. A flood draws more numbers than the slack has while one transaction
// that drew earlier ones has yet to commit, so a mark moves to where an earlier scan came, once the
// transactions that ran then have ended or have had the time to.
func (m marks) sortedUpTo(reached map[laneKey]int64, began lanesFrom, by sorter, more bool) {
	m.mu.Lock()
	sure := make(map[laneKey]int64, len(reached))
	now := time.Now()
	for k, seq := range reached {
		before, known := m.sorted[k]
		m.hot[k] = now
		switch {
		case more && seq < m.m[k]:
			m.m[k] = max(seq-markSlack, 1)
			delete(m.sorted, k)
			continue
		case known && before.transaction > by.Running && now.Sub(before.at) < *m.commits:
			continue
		case known:
			sure[k] = min(before.seq, seq)
		}
		m.sorted[k] = sortedTo{seq, by.Transaction, now}
	}
	m.mu.Unlock()
	m.claimed(sure, began, false)
}

// moved returns the mark after a scan that began at from and took the oldest steps up to
// newest.
func moved(mark, from, newest int64, more bool) int64 {
	to := newest - markSlack
	switch {
	case more && to < mark:
		return to
	case from > mark: // lowered in the meantime
		return mark
	default:
		return max(mark, to)
	}
}

// applied moves the marks of the reported steps after scans that began at from (0: full
// ones) and reached so far; 0 for a scan without a result.
func (m marks) applied(from, reached reportMarks, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if reached.lone > 0 {
		m.taken.lone = max(moved(m.taken.lone, from.lone, reached.lone, more), 0)
	}
	if reached.apart > 0 {
		m.taken.apart = max(moved(m.taken.apart, from.apart, reached.apart, more), 0)
	}
}

// reset forgets all of them.
func (m marks) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.m)
	clear(m.hot)
	clear(m.sorted)
	*m.taken = reportMarks{}
}

func (m marks) reported() reportMarks {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *m.taken
}
