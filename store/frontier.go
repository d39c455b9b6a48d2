package store

import (
	"sync"
	"time"
)

// While somebody holds an old snapshot, nothing that has died since can be
// removed, and a scan of an index from its beginning walks over all of it. A
// frontier is a place in an index before which there is nothing alive and
// nothing can come any more, so that the scans that look at everything may
// begin there.
//
// Numbers and times on the board are drawn by the transaction that writes the
// row, and only grow. So nothing older than a moment can appear once every
// transaction has ended that was writing the board in that moment: it held the
// lock that every writer takes on the table before it draws a number. A
// transaction that only reads, however old, does not count. One that writes is
// waited for however long it takes: ours are bounded by the server, but tasks are
// also created in transactions of others (CreateTasksIn).
const (
	// dearScan is what a scan may take before the frontier is moved at all: an
	// index without many dead costs less than looking who writes.
	dearScan = 10 * time.Millisecond
	// frontierPause lies between two moves.
	frontierPause = time.Second
	// frontierWhole is how often a scan begins at the beginning all the same.
	frontierWhole = 10 * time.Minute
)

// generation is who was writing the board at a moment.
type generation struct {
	at      time.Time // by our clock; zero: there is none
	writers map[string]bool
	seq     int64     // the greatest number drawn by then
	now     time.Time // by the database's clock
}

// ended reports whether none of its writers is among those of today.
func (g *generation) ended(writers []string) bool {
	for _, w := range writers {
		if g.writers[w] {
			return false
		}
	}
	return true
}

// frontier is the common part of those of the several indexes. It is safe for
// concurrent use.
type frontier struct {
	mu     sync.Mutex
	gen    generation
	moved  time.Time     // by our clock; zero: never, scans begin at the beginning
	whole  time.Time     // when a scan began at the beginning
	busy   bool          // somebody is moving it
	void   bool          // it was reset meanwhile
	latest time.Duration // what the latest scan took
}

// due reports whether it should be moved after a scan that took so long, and
// reserves the move for the caller, who must call done.
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
	if took < dearScan || f.busy || now.Sub(last) < frontierPause {
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

// step follows a look at who writes the board: it returns the generation that
// has ended by now, if one has.
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

// reset forgets everything, and has drop do that with the places. A move that
// is under way comes to nothing.
func (f *frontier) reset(drop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gen, f.moved, f.void = generation{}, time.Time{}, f.busy
	drop()
}
