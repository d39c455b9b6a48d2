package engine

import "time"

// Rules for full scans. A scan from the marks misses new lanes and steps that became
// visible behind a mark; a full scan sees everything and may be slow while old row
// versions lie in front of the queue.
const (
	// fullScanShare: the time between two full scans is this multiple of the first one's
	// duration, so that they take about 5 % of the time at most.
	fullScanShare = 20
	// cheapScan is the longest full scan that may be made at once, regardless of the
	// share, by a look with a reason to expect work.
	cheapScan = 5 * time.Millisecond
	// emptyPause is the time between two full scans of a worker that was signalled and
	// found nothing: most likely another worker was faster, but it may be the first step
	// of a new lane.
	emptyPause = 10 * time.Millisecond
	// partPause is the time between two full scans of a worker that finds work from its
	// marks, only less than it could take: there is hardly ever more.
	partPause = 100 * time.Millisecond
	// fullScanEvery is how long a worker that always finds enough work goes without a
	// full scan: a new lane may hold work of a higher priority.
	fullScanEvery = 2 * time.Second
)

// fullScans decides when a full scan may be made. The zero value has made none.
type fullScans struct {
	ended time.Time
	// took is the shorter of the latest two: a slow scan may have had to prepare its
	// statement or wait for a busy machine.
	took   time.Duration
	latest time.Duration
	quiet  bool // the latest look found nothing
	rich   bool // the latest one filled its limit, so there may be more
}

// wait returns the time until the next full scan is allowed; 0: now. pause is the least
// time between two; with 0, when a full scan is expected to find work, a cheap one is
// allowed at once. So is any after a scan that left work: a backlog may be spread thinly
// over more lanes than scans from the marks read.
func (f fullScans) wait(now time.Time, pause time.Duration) time.Duration {
	if f.ended.IsZero() || f.rich || pause == 0 && f.took <= cheapScan {
		return 0
	}
	return max(max(fullScanShare*f.took, pause)-now.Sub(f.ended), 0)
}

// suffices reports whether a look of an idle worker may do a full scan alone: there will
// be nothing at the marks either, and one statement is enough to see that.
func (f fullScans) suffices(now time.Time) bool { return f.quiet && f.wait(now, 0) == 0 }

// overdue reports whether a full scan should precede the scan from the marks.
func (f fullScans) overdue(now time.Time) bool {
	return f.ended.IsZero() || now.Sub(f.ended) >= max(fullScanEvery, fullScanShare*f.took)
}

// made records a full scan. rich says that it filled its limit.
func (f *fullScans) made(begin, end time.Time, rich bool) {
	took := end.Sub(begin)
	f.rich = rich
	if f.ended.IsZero() {
		f.took = min(took, cheapScan) // the very first one is not representative
	} else {
		f.took = min(took, f.latest)
	}
	f.ended, f.latest = end, took
}
