package trial

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/test/chaos/internal/check"
	"github.com/tasker-go/tasker/test/chaos/internal/faults"
	"github.com/tasker-go/tasker/test/chaos/internal/ledger"
	"github.com/tasker-go/tasker/test/chaos/internal/schedule"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
)

// Report is the result of a run.
type Report struct {
	Options    Options
	Violations []check.Violation
	// Broken are errors of the suite itself.
	Broken []string

	Tasks, Requests int
	Ended           map[string]int // tasks by state
	Posted          int            // orders that came through the broker
	Drained         time.Duration  // from the last order to the end of the last task
	Heard           time.Duration  // from then until all listeners are proven

	Executions, Ideal int
	CutOff            int // executions that never ended
	LeasesLost        int
	Late              int // executions that succeeded and were rejected
	GivenBack         int // executions not on record, of workers that were asked to stop
	Adopted           int // executions that went on at another worker
	ProcessesLost     int // attempts that ended with their process

	Faults     map[schedule.Kind]int
	Strikes    []faults.Strike
	Restarts   int
	Recoveries []Recovery
	Waits      []Wait // beside faults of the broker alone
	// FoundWell is what found the work while the broker was well, FoundIll while it failed.
	FoundWell, FoundIll found
	Vitals              []Vitals
}

// OK reports whether all rules held.
func (r *Report) OK() bool { return len(r.Violations) == 0 && len(r.Broken) == 0 }

func (t *trial) report(f check.Facts, drained time.Duration) *Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &Report{Options: t.o, Violations: check.Check(f), Tasks: len(f.Tasks), Requests: t.submitter.Tries(),
		Ended: map[string]int{}, Drained: drained, Executions: len(f.Executions), Faults: map[schedule.Kind]int{},
		Restarts: t.rig.Starts() - len(t.rig.Daemons), Vitals: t.health, Strikes: t.strikes}
	for _, surprise := range t.rig.Surprises() {
		r.Violations = append(r.Violations, check.Violation{Rule: check.RunsToTheEnd, What: surprise})
	}
	for _, err := range t.broken {
		r.Broken = append(r.Broken, err.Error())
	}
	for _, task := range f.Tasks {
		r.Ended[task.State]++
		if w, ok := workload.ByName(task.Flow); ok {
			r.Ideal += w.Ideal()
		}
	}
	r.countExecutions(f)
	for _, s := range t.strikes {
		r.Faults[s.Kind]++
	}
	for _, o := range f.Ordered {
		if o.Task == uuid.Nil {
			r.Posted++
		}
	}
	flows := map[string]workload.Workflow{}
	for _, w := range workload.Workflows() {
		flows[w.Name] = w
	}
	r.Waits = beside(waits(f, flows), t.strikes)
	r.Violations = append(r.Violations, foundByPolls(r.Waits)...)
	r.FoundWell, r.FoundIll = split(t.health, t.start, slices.DeleteFunc(slices.Clone(t.strikes), func(s faults.Strike) bool { return !concernsBroker(s) }))
	r.Recoveries = recoveries(paceOf(f.Attempts), t.strikes, t.start, t.start.Add(t.o.Length))
	return r
}

func (r *Report) countExecutions(f check.Facts) {
	outcomes := map[int64]int{}
	for _, a := range f.Attempts {
		outcomes[a.Token] = a.Outcome
		if a.Outcome == check.LeaseLost {
			r.LeasesLost++
		}
		if a.ProcessLost {
			r.ProcessesLost++
		}
	}
	for _, x := range f.Executions {
		outcome, known := outcomes[x.Fence()]
		if len(x.Adopted) > 0 {
			r.Adopted++
		}
		switch {
		case x.End.IsZero():
			r.CutOff++
		case !known:
			r.GivenBack++
		case x.Outcome == ledger.Succeeded && outcome != check.Success:
			r.Late++
		}
	}
}

// Recovered are the known recovery times, sorted.
func (r *Report) Recovered() []time.Duration {
	var took []time.Duration
	for _, x := range r.Recoveries {
		if !x.Unknown {
			took = append(took, x.Took)
		}
	}
	slices.Sort(took)
	return took
}

// Print prints the report.
func (r *Report) Print(out io.Writer) {
	say := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	say("\nseed %d, event source %s", r.Options.Seed, r.Options.Source)
	say("tasks        %d accepted in %d requests; %s", r.Tasks, r.Requests, counts(r.Ended))
	if r.Posted > 0 {
		say("             %d of them through the broker", r.Posted)
	}
	say("executions   %d; %d would do, %d above (%.1f %%)", r.Executions, r.Ideal, r.Executions-r.Ideal, 100*float64(r.Executions-r.Ideal)/float64(max(r.Ideal, 1)))
	say("             %d cut off, %d leases lost, %d given back, %d succeeded too late and were refused", r.CutOff, r.LeasesLost, r.GivenBack, r.Late)
	if r.Options.Executors > 0 {
		say("executors    %d; %d executions went on at another worker, %d attempts ended with their process", r.Options.Executors, r.Adopted, r.ProcessesLost)
	}
	say("faults       %s; %d restarts of daemons", counts(r.Faults), r.Restarts)
	for _, what := range r.Options.LeftOut {
		say("             WITHOUT %s", what)
	}
	took := r.Recovered()
	if n := len(took); n > 0 {
		say("recovery     median %.2f s, 90 %% within %.2f s, longest %.2f s, of %d; %d not known", took[n/2].Seconds(), took[n*9/10].Seconds(), took[n-1].Seconds(), n, len(r.Recoveries)-n)
	}
	r.printSlowest(out)
	printWaits(out, r.Waits)
	if len(r.FoundWell) > 0 {
		say("found        %v", r.FoundWell)
	}
	if len(r.FoundIll) > 0 {
		say("found        while the broker failed: %v", r.FoundIll)
	}
	r.printVitals(out)
	say("the end      %.1f s after the last order; %.1f s later all daemons heard signals", r.Drained.Seconds(), r.Heard.Seconds())
	for _, b := range r.Broken {
		say("BROKEN       the suite could not do what it meant to: %s", b)
	}
	for i, v := range r.Violations {
		if i == 20 {
			say("             and %d more, see report.json", len(r.Violations)-i)
			break
		}
		say("VIOLATED     %v", v)
	}
	if r.OK() {
		say("all rules held: nothing lost, nothing twice, nothing stuck, nothing behind a fence")
	}
}

// printSlowest names the faults with the longest recovery.
func (r *Report) printSlowest(out io.Writer) {
	slowest := slices.SortedFunc(slices.Values(r.Recoveries), func(a, b Recovery) int { return cmp.Compare(b.Took, a.Took) })
	for _, x := range slowest[:min(3, len(slowest))] {
		known := ""
		if x.Unknown {
			known = " or more"
		}
		fmt.Fprintf(out, "             %.2f s%s after %s (%.0f per second as a rule, %.0f at worst)\n", x.Took.Seconds(), known, strings.Join(x.After, " and "), x.Usual, x.During)
	}
}

func (r *Report) printVitals(out io.Writer) {
	if len(r.Vitals) < 8 {
		return
	}
	routines, routinesAfter := trend(r.Vitals, func(v Vitals) float64 { return v.Goroutines })
	memory, memoryAfter := trend(r.Vitals, func(v Vitals) float64 { return v.MemoryMB })
	connections, connectionsAfter := trend(r.Vitals, func(v Vitals) float64 { return float64(v.Connections) })
	fmt.Fprintf(out, "growth       per daemon %.0f to %.0f goroutines, %.0f to %.0f MB; in all %.0f to %.0f connections (second to last quarter of the run)\n",
		routines, routinesAfter, memory, memoryAfter, connections, connectionsAfter)
}

func counts[K ~string](m map[K]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%d %s", m[k], k))
	}
	return strings.Join(parts, ", ")
}
