package sweep

import (
	"context"
	"time"
)

// Job is one sweep. All fields but DryRun and Watch are required.
type Job struct {
	// Name is the sweep in the database, in metrics and for people; snake_case.
	Name string
	// Interval is the time from the beginning of one run in the fleet to that
	// of the next.
	Interval time.Duration
	// Lease is the longest that a run may last: its context ends then, and
	// other replicas may run the sweep. It should be twice as long as a run is
	// meant to last.
	Lease time.Duration
	// DryRun: no run changes anything, whoever asks for it.
	DryRun bool
	// Run sweeps once. With dry it changes nothing and says what it would have
	// done. It is not called again in one process before it has returned. What
	// it returns beside an error was done before the error.
	Run func(ctx context.Context, dry bool) (Result, error)
	// Watch is called in every replica each time it comes round, whoever runs
	// the sweep, to set gauges. What it cannot read now it reads the next time.
	Watch func(ctx context.Context) error
}

// maxFindings bounds what a result shows one by one; it is kept in the database.
const maxFindings = 50

// Result is what a run did, or would have done.
type Result struct {
	// Items counts by action, such as "cancelled" or "would_cancel".
	Items map[string]int `json:"items,omitempty"`
	// Findings are the first 50 things found.
	Findings []Finding `json:"findings,omitempty"`
	// More: it ended at its bounds, and the next run goes on.
	More bool `json:"more,omitempty"`
}

// Finding is one thing that a run found.
type Finding struct {
	Subject string `json:"subject"` // what it is about: the UUID of a task or worker, a day, a topic
	Action  string `json:"action"`  // as in Result.Items
	Detail  string `json:"detail,omitempty"`
}

// action names what a sweep does to something, and what a dry run would do.
type action struct{ done, would string }

func (a action) name(dry bool) string {
	if dry {
		return a.would
	}
	return a.done
}

const (
	skipped = "skipped" // it had changed by itself before the sweep came to it
	failed  = "failed"  // its batch ended with an error
)

// count adds n things that one action was taken on.
func (r *Result) count(action string, n int) {
	if n <= 0 {
		return
	}
	if r.Items == nil {
		r.Items = map[string]int{}
	}
	r.Items[action] += n
}

// tally counts what became of the things that a batch found.
func (r *Result) tally(action string, found, changed int, err error) {
	r.count(action, changed)
	rest := skipped
	if err != nil {
		rest = failed
	}
	r.count(rest, found-changed)
}

// show adds findings as long as there is room.
func (r *Result) show(f Finding) {
	if len(r.Findings) < maxFindings {
		r.Findings = append(r.Findings, f)
	}
}

// total is how many things the run found.
func (r *Result) total() (n int) {
	for _, items := range r.Items {
		n += items
	}
	return n
}

// Outcome says how a run ended. The values are those of a metric's label.
type Outcome string

// The outcomes of runs.
const (
	OutcomeOK      Outcome = "ok"
	OutcomeError   Outcome = "error"
	OutcomePanic   Outcome = "panic"
	OutcomeStopped Outcome = "stopped" // the process was told to stop, or who asked has left
)

// Run is the record of one run, as it is kept in the database.
type Run struct {
	Sweep   string  `json:"sweep"`
	Outcome Outcome `json:"outcome"`
	DryRun  bool    `json:"dry_run"`
	TookMS  int64   `json:"took_ms"`
	Error   string  `json:"error,omitempty"`
	Result
}
