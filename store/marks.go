package store

import (
	"cmp"
	"math"
	"slices"
	"sync"
)

// markSlack is how far behind the last key taken a scan starts: a transaction
// that drew its numbers earlier may commit later. What is older still is found
// by the next full scan.
const markSlack = 1000

// marks are the moving low-water marks: of the claimable steps per queue and
// lane, and of the reported steps. A scan from a mark takes what it finds in
// order, so it may raise the mark to what it found last; unless the mark has
// been lowered since it began, because then there is older work to do first.
// A full scan that found more than it could take lowers the mark: the rest is
// found from there, and need not wait for one full scan after the other.
type marks struct {
	mu    *sync.Mutex
	m     map[laneKey]int64
	taken *reportMarks
}

// reportMarks are the marks of the reported steps: of those that stand in
// their tasks' rows, and of those that stand apart.
type reportMarks struct{ lone, apart int64 }

type laneKey struct {
	queue int32
	lane  int16
}

// lanesFrom are the known lanes of some queues in claim order with the marks
// from which a scan begins.
type lanesFrom struct {
	queues []int32
	lanes  []int16
	from   []int64
}

func newMarks() marks {
	return marks{mu: &sync.Mutex{}, m: map[laneKey]int64{}, taken: new(reportMarks)}
}

// of returns the known lanes of queues in claim order: by lane, and the queues
// of one lane in the order in which they are asked for. Of a queue of which
// nothing is known the lanes of the default priority are tried.
func (m marks) of(queues []int32) (l lanesFrom) {
	m.mu.Lock()
	defer m.mu.Unlock()
	place := make(map[int32]int, len(queues))
	for i, q := range queues {
		place[q] = i
	}
	keys := make([]laneKey, 0, len(m.m))
	known := make(map[int32]bool, len(queues))
	for k := range m.m {
		if _, wanted := place[k.queue]; wanted {
			keys, known[k.queue] = append(keys, k), true
		}
	}
	for _, q := range queues {
		if !known[q] {
			keys = append(keys, laneKey{q, Lane(0, true)}, laneKey{q, Lane(0, false)})
		}
	}
	slices.SortFunc(keys, byLane(place))
	for _, k := range keys {
		l.add(k, m.m[k])
	}
	return l
}

// heard makes a lane known, from its beginning on, and those that are tried where
// nothing is known.
func (m marks) heard(k laneKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, lane := range []int16{k.lane, Lane(0, true), Lane(0, false)} {
		key := laneKey{k.queue, lane}
		m.m[key] = max(m.m[key], 0)
	}
}

// byLane is the order of claims.
func byLane(place map[int32]int) func(a, b laneKey) int {
	return func(a, b laneKey) int {
		return cmp.Or(cmp.Compare(a.lane, b.lane), cmp.Compare(place[a.queue], place[b.queue]))
	}
}

func (l *lanesFrom) add(k laneKey, from int64) {
	l.queues, l.lanes, l.from = append(l.queues, k.queue), append(l.lanes, k.lane), append(l.from, from)
}

// laneGaps are what lies between known lanes, without them.
type laneGaps struct{ queues, above, below []int32 }

// gaps are all lanes of the queues that are not in l.
func (l lanesFrom) gaps(queues []int32) (g laneGaps) {
	known := map[int32][]int32{}
	for i, q := range l.queues {
		known[q] = append(known[q], int32(l.lanes[i]))
	}
	for _, q := range queues {
		above := int32(math.MinInt16) - 1
		slices.Sort(known[q])
		for _, lane := range append(known[q], math.MaxInt16+1) {
			g.queues, g.above, g.below = append(g.queues, q), append(g.above, above), append(g.below, lane)
			above = lane
		}
	}
	return g
}

// claimed moves the marks of the lanes in which a scan found something. began
// is where it started, empty for a full scan; more says that a full scan left
// something behind.
func (m marks) claimed(newest map[laneKey]int64, began lanesFrom, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	from := make(map[laneKey]int64, len(began.from))
	for i := range began.from {
		from[laneKey{began.queues[i], began.lanes[i]}] = began.from[i]
	}
	for k, seq := range newest {
		m.m[k] = max(moved(m.m[k], from[k], seq, more), 1)
	}
}

// moved is where a mark goes after a scan that began at from and took the
// oldest there was, up to newest.
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

// applied moves the marks of the reported steps after scans that began at from
// (0: full ones) and reached so far; 0 is one that says nothing.
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
	*m.taken = reportMarks{}
}

func (m marks) reported() reportMarks {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *m.taken
}
