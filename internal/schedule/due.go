package schedule

import (
	"hash/fnv"
	"slices"
	"time"

	"github.com/tasker-go/tasker/internal/enum"
)

const (
	// Grace is how late a run may begin and still count as on time. A later run was missed.
	Grace = time.Minute
	// MaxCatchUp bounds how many missed runs can be made up for.
	MaxCatchUp = 1000
	// longestStop bounds how far back missed runs are searched.
	longestStop = 10 * 366 * 24 * time.Hour
)

// CatchUp is the policy for missed runs. The numbers are stored.
type CatchUp int16

// The ways to catch up.
const (
	CatchUpSkip CatchUp = iota + 1 // they are skipped
	CatchUpOne                     // one run stands for all
	CatchUpAll                     // all of them are made, up to MaxCatchUp
)

// Overlap is the policy for a run while the task of the previous run is alive. The numbers
// are stored.
type Overlap int16

// The overlap policies.
const (
	OverlapAllow Overlap = iota + 1 // both run
	OverlapSkip                     // the run is skipped
)

var (
	catchUpNames = enum.Names[CatchUp]{CatchUpSkip: "skip", CatchUpOne: "one", CatchUpAll: "all"}
	overlapNames = enum.Names[Overlap]{OverlapAllow: "allow", OverlapSkip: "skip"}
)

// String returns the name in the API.
func (c CatchUp) String() string { return catchUpNames.Name(c) }

// String returns the name in the API.
func (o Overlap) String() string { return overlapNames.Name(o) }

// ParseCatchUp finds the policy of a name.
func ParseCatchUp(name string) (c CatchUp, known bool) { return catchUpNames.Parse(name) }

// ParseOverlap finds the policy of a name.
func ParseOverlap(name string) (o Overlap, known bool) { return overlapNames.Parse(name) }

// CatchUpNames lists the names of the policies.
func CatchUpNames() []string { return slices.Clone(catchUpNames[CatchUpSkip:]) }

// OverlapNames lists the names of the policies.
func OverlapNames() []string { return slices.Clone(overlapNames[OverlapAllow:]) }

// Policy is how a schedule treats due runs.
type Policy struct {
	CatchUp CatchUp
	// MaxCatchUp is how many missed runs are made up for with CatchUpAll, the latest
	// ones.
	MaxCatchUp int
	Overlap    Overlap
}

// Due is the decision about a due schedule.
type Due struct {
	Runs []time.Time // to be made now, oldest first
	// Missed counts the skipped runs, up to MaxCatchUp of them.
	Missed int
	// Next is when the schedule is due again: not later than now where there was no
	// room for all runs, zero where there is no further run.
	Next time.Time
}

// Due decides about a schedule that has been due since next. At most room runs
// are made now.
//
// Runs within Grace of their time were not missed: the policy for missed runs does not
// apply to them. With OverlapSkip one run is made for all: the others would find its task
// alive.
func (s *Spec) Due(next, now time.Time, p Policy, room int) Due {
	runs, more := s.latest(next, now, MaxCatchUp)
	due := Due{Next: s.After(next, now)}
	if len(runs) == 0 {
		return due
	}
	keep := len(runs)
	for keep > 0 && now.Sub(runs[len(runs)-keep]) > Grace {
		keep--
	}
	missed := len(runs) - keep
	switch p.CatchUp {
	case CatchUpAll:
		keep += min(max(p.MaxCatchUp, 1), missed)
	case CatchUpOne:
		keep = max(keep, 1) // a run on time stands for them as well
	}
	if p.Overlap == OverlapSkip {
		keep = min(keep, 1)
	}
	left := len(runs) - keep
	if due.Missed = left; more {
		due.Missed = max(due.Missed, 1)
	}
	if p.CatchUp == CatchUpOne {
		due.Missed = 0 // one run stands for them
	}
	due.Runs = runs[left:]
	if room = max(room, 0); len(due.Runs) > room {
		due.Next = due.Runs[room]
		due.Runs = due.Runs[:room]
	}
	return due
}

// latest lists the last n runs from first, which is a run, up to now, oldest first. more
// says that there were earlier ones.
func (s *Spec) latest(first, now time.Time, n int) (runs []time.Time, more bool) {
	if first.After(now) {
		return nil, false
	}
	if oldest := now.Add(-longestStop); first.Before(oldest) {
		first, more = s.After(first, oldest), true
		if first.IsZero() || first.After(now) {
			return nil, more
		}
	}
	if s.every > 0 {
		if behind := int64(now.Sub(first) / s.every); behind >= int64(n) {
			first, more = first.Add(time.Duration(behind-int64(n)+1)*s.every), true
		}
	}
	for t := first; !t.IsZero() && !t.After(now); t = s.After(first, t) {
		if len(runs) == n {
			return s.tail(first, now, n), true
		}
		runs = append(runs, t)
	}
	return runs, more
}

// tail is latest for more than n runs: it searches backward from now, doubling the
// distance, so that a long stop is not walked through.
func (s *Spec) tail(first, now time.Time, n int) (runs []time.Time) {
	for back := time.Hour; ; back *= 2 {
		from := now.Add(-back)
		all := !from.After(first)
		if all {
			from = first.Add(-1)
		}
		runs = runs[:0]
		for t := s.After(first, from); !t.IsZero() && !t.After(now); t = s.After(first, t) {
			if runs = append(runs, t); len(runs) >= 2*n {
				runs = append(runs[:0], runs[len(runs)-n:]...)
			}
		}
		if len(runs) >= n || all {
			return runs[max(len(runs)-n, 0):]
		}
	}
}

// Spread is the delay of a run, so that runs of many schedules do not begin at the same
// moment: whole seconds up to most, deterministic.
func Spread(id [16]byte, run time.Time, most time.Duration) time.Duration {
	seconds := uint64(max(most, 0) / time.Second)
	h := fnv.New64a()
	_, _ = h.Write(id[:]) // never an error
	_, _ = h.Write(run.UTC().AppendFormat(nil, time.RFC3339))
	return time.Duration(h.Sum64()%(seconds+1)) * time.Second
}
