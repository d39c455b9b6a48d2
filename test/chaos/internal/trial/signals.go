package trial

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/test/chaos/internal/check"
	"github.com/tasker-go/tasker/test/chaos/internal/faults"
	"github.com/tasker-go/tasker/test/chaos/internal/rig"
	"github.com/tasker-go/tasker/test/chaos/internal/schedule"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
)

// Wait is how long something ready waited for the daemons to find it.
type Wait struct {
	What         string
	Ready, Found time.Time
}

func (w Wait) took() time.Duration { return w.Found.Sub(w.Ready) }

const (
	// pollBound is the longest default poll interval of an event system in Hybrid whose
	// listener seems well (relaxed_interval_ms).
	pollBound = 5 * time.Second
	// pollSlack is for a busy machine.
	pollSlack = 3 * time.Second
	// aftermath is how long a fault may be felt: leases, deaf listeners, and signals sent
	// before.
	aftermath = 10 * time.Second
)

// waits are those of first claims for the ends of the steps before, and of ends for their
// decision.
func waits(f check.Facts, flows map[string]workload.Workflow) (list []Wait) {
	began := map[uuid.UUID]time.Time{}
	for _, t := range f.Tasks {
		began[t.ID] = t.Began
	}
	type step struct {
		task uuid.UUID
		name string
	}
	ended := map[step]time.Time{}
	for _, a := range f.Attempts {
		if a.Outcome == check.Success {
			ended[step{a.Task, a.Step}] = a.Applied
		}
	}
	for _, a := range f.Attempts {
		what := fmt.Sprintf("attempt %d of %s/%s of task %s", a.Attempt, a.Flow, a.Step, a.Task)
		if !a.Reported.IsZero() && a.Outcome != check.LeaseLost {
			list = append(list, Wait{"the end of " + what, a.Reported, a.Applied})
		}
		if a.Attempt != 1 || a.Claimed.IsZero() {
			continue
		}
		ready := began[a.Task]
		for _, parent := range flows[a.Flow].Parents(a.Step) {
			if end := ended[step{a.Task, parent}]; end.After(ready) {
				ready = end
			}
		}
		list = append(list, Wait{what, ready, a.Claimed})
	}
	return list
}

// beside are the waits that met faults of the broker, or their aftermath, and no other fault.
func beside(list []Wait, strikes []faults.Strike) []Wait {
	met := func(w Wait, s faults.Strike) bool {
		return w.Ready.Before(s.Ended.Add(aftermath)) && w.Found.After(s.Began)
	}
	return slices.DeleteFunc(slices.Clone(list), func(w Wait) bool {
		of := false
		for _, s := range strikes {
			if !met(w, s) {
				continue
			}
			if !concernsBroker(s) {
				return true
			}
			of = true
		}
		return !of
	})
}

func concernsBroker(s faults.Strike) bool { return slices.Contains(schedule.Brokers(), s.Kind) }

// foundByPolls breaks the rule for each wait that is too long.
func foundByPolls(list []Wait) (broken []check.Violation) {
	for _, w := range list {
		if w.took() > pollBound+pollSlack {
			broken = append(broken, check.Violation{Rule: check.FoundByPolls, What: fmt.Sprintf("%s waited %v from %v", w.What, w.took(), w.Ready.Format(time.TimeOnly))})
		}
	}
	return broken
}

func printWaits(out io.Writer, list []Wait) {
	if len(list) == 0 {
		return
	}
	slices.SortFunc(list, func(a, b Wait) int { return cmp.Compare(a.took(), b.took()) })
	n := len(list)
	fmt.Fprintf(out, "broker       %d waits beside its faults alone: median %.2f s, 99 %% within %.2f s, longest %.2f s; the poll bound is %v\n",
		n, list[n/2].took().Seconds(), list[n*99/100].took().Seconds(), list[n-1].took().Seconds(), pollBound)
}

// found is the work that each way has found, by what the daemons say; those of daemons that
// died between two samples are not known.
type found map[string]float64

func (f found) String() string {
	all := 0.0
	for _, n := range f {
		all += n
	}
	return fmt.Sprintf("%.1f %% of %.0f by signals, %.1f %% by polls", 100*f["listener"]/max(all, 1), all, 100*f["poller"]/max(all, 1))
}

// since adds what a daemon has found since the last sample of the same process.
func (f found) since(now, last map[string]float64) {
	for series, n := range now {
		if _, by, ok := strings.Cut(series, `tasker_found_total{by="`); ok {
			by, _, _ = strings.Cut(by, `"`)
			f[by] += n - last[series]
		}
	}
}

// split is the work that was found while the broker was well, and while it failed.
func split(health []Vitals, start time.Time, strikes []faults.Strike) (well, ill found) {
	well, ill = found{}, found{}
	for _, v := range health {
		at, into := start.Add(v.At), well
		for _, s := range strikes {
			if s.Began.Before(at) && s.Ended.After(at.Add(-vitalsEvery)) {
				into = ill
			}
		}
		for by, n := range v.Found {
			into[by] += n
		}
	}
	return well, ill
}

// hear waits until no poll of a daemon stands in for signals, and returns how long that took.
func (t *trial) hear(ctx context.Context) (took time.Duration, broken []check.Violation) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	for {
		deaf := t.deaf(ctx)
		if deaf == "" {
			return time.Since(begin), nil
		}
		if lifecycle.Pause(ctx, 100*time.Millisecond) != nil {
			return time.Since(begin), []check.Violation{{Rule: check.HeardAgain, What: fmt.Sprintf("%s after %v", deaf, drainLimit)}}
		}
	}
}

// deaf names a daemon that does not hear.
func (t *trial) deaf(ctx context.Context) string {
	for _, d := range t.rig.Daemons {
		if d.Kind == rig.Executor {
			continue
		}
		values, err := scrape(ctx, d.URL()+"/metrics")
		if err != nil {
			return fmt.Sprintf("%s does not answer: %v", d.Name, err)
		}
		for series, n := range values {
			polls := strings.HasPrefix(series, "tasker_polling_fallback_active{") && n != 0
			unconnected := strings.HasPrefix(series, "tasker_event_listener_active{") && n != 1 && !strings.Contains(series, `mode="polling"`)
			if polls || unconnected {
				return d.Name + " does not hear: " + series
			}
		}
	}
	return ""
}
