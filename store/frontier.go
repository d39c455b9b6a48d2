package store

import (
	"sync"
	"time"
)

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
	// frontierWhole is how often a scan begins at the beginning all the same.
	frontierWhole = 10 * time.Minute
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
	if f.moved.IsZero() || now.Sub(f.whole) > frontierWhole {
		f.whole = now
		return false
	}
	return true
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
	f.gen, f.moved, f.void = generation{}, time.Time{}, f.busy
	drop()
}
