package worker

import "time"

// The rules of full scans. A scan from the marks cannot see lanes that are new
// and steps that became visible behind a mark; a full scan sees everything and
// may be slow while old row versions lie in front of the queue.
const (
	// fullScanShare: between two full scans lies this many times the duration
	// of the first, so that they take about 5 % of the time at most.
	fullScanShare = 20
	// cheapScan is what a full scan may take to be made at once, whatever the
	// share, by a look that has a reason to expect something.
	cheapScan = 5 * time.Millisecond
	// emptyPause lies between two full scans of a worker that was signalled and
	// found nothing: most likely another one was quicker, but it may be the
	// first step of a new lane.
	emptyPause = 10 * time.Millisecond
	// partPause lies between two full scans of a worker that finds work from its
	// marks, just not as much as it could take: there is hardly ever more.
	partPause = 100 * time.Millisecond
	// fullScanEvery is how long a worker that is never short of work goes
	// without one: a new lane may hold work of a higher priority.
	fullScanEvery = 2 * time.Second
)

// fullScans decides when a full scan may be made. The zero value is one that
// has never been made.
type fullScans struct {
	ended time.Time
	// took is the shorter of the latest two: one slow scan may have had to
	// prepare its statement or wait for a busy machine.
	took   time.Duration
	latest time.Duration
	quiet  bool // the latest look found nothing
	rich   bool // the latest one took as much as was asked for, so there may be more
}

// wait is how long it is until the next full scan may be made; 0 is now. pause
// is what shall lie between two at least; where none is needed, because a full
// scan is expected to find something, a cheap one may be made at once. So may any
// after one that left something: a backlog may be spread thinly over more lanes than
// are looked into from the marks.
func (f fullScans) wait(now time.Time, pause time.Duration) time.Duration {
	if f.ended.IsZero() || f.rich || pause == 0 && f.took <= cheapScan {
		return 0
	}
	return max(max(fullScanShare*f.took, pause)-now.Sub(f.ended), 0)
}

// suffices reports whether a look of an idle worker may do with a full scan
// alone: there will be nothing at the marks either, and one statement is enough
// to see that.
func (f fullScans) suffices(now time.Time) bool { return f.quiet && f.wait(now, 0) == 0 }

// overdue reports whether one should be made before the scan from the marks.
func (f fullScans) overdue(now time.Time) bool {
	return f.ended.IsZero() || now.Sub(f.ended) >= max(fullScanEvery, fullScanShare*f.took)
}

// made notes a full scan. rich says that it took as much as was asked for.
func (f *fullScans) made(begin, end time.Time, rich bool) {
	took := end.Sub(begin)
	f.rich = rich
	if f.ended.IsZero() {
		f.took = min(took, cheapScan) // the very first one proves nothing
	} else {
		f.took = min(took, f.latest)
	}
	f.ended, f.latest = end, took
}
