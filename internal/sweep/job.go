package sweep

import (
	"context"
	"time"
)

// Job is one sweep. All fields but DryRun and Watch are required.
type Job struct {
	// Name is the sweep's name in the database, in metrics and for operators; snake_case.
	Name string
	// Interval is the time between the beginnings of two runs in the fleet.
	Interval time.Duration
	// Lease bounds a run: its context ends then, and other replicas may run the sweep.
	// It should be twice the intended duration of a run.
	Lease time.Duration
	// DryRun: no run changes anything, even on an operator's request.
	DryRun bool
	// Run sweeps once. With dry it changes nothing and reports what it would do. One
	// process never calls it concurrently. A result with an error was done before the
	// error.
	Run func(ctx context.Context, dry bool) (Result, error)
	// Watch sets gauges. Every replica calls it in each round, even if another replica
	// runs the sweep. A failed read is repeated in the next round.
	Watch func(ctx context.Context) error
}

// maxFindings bounds the findings of a result, which is kept in the database.
const maxFindings = 50

// Result is what a run did, or would do.
type Result struct {
	// Items counts by action, such as "cancelled" or "would_cancel".
	Items map[string]int `json:"items,omitempty"`
	// Findings are the first 50 things found.
	Findings []Finding `json:"findings,omitempty"`
	// More: the run stopped at its bounds, and the next one continues.
	More bool `json:"more,omitempty"`
}

// Finding is one item that a run found.
type Finding struct {
	Subject string `json:"subject"` // its subject: the UUID of a task or worker, a day, a topic
	Action  string `json:"action"`  // as in Result.Items
	Detail  string `json:"detail,omitempty"`
}

// action names the effect of a sweep, and of a dry run.
type action struct{ done, would string }

func (a action) name(dry bool) string {
	if dry {
		return a.would
	}
	return a.done
}

const (
	skipped = "skipped" // it had changed before the sweep came to it
	failed  = "failed"  // its batch ended with an error
)

// count adds n items with the same action.
func (r *Result) count(action string, n int) {
	if n <= 0 {
		return
	}
	if r.Items == nil {
		r.Items = map[string]int{}
	}
	r.Items[action] += n
}

// tally counts the outcomes of a batch.
func (r *Result) tally(action string, found, changed int, err error) {
	r.count(action, changed)
	rest := skipped
	if err != nil {
		rest = failed
	}
	r.count(rest, found-changed)
}

// show adds a finding while there is room.
func (r *Result) show(f Finding) {
	if len(r.Findings) < maxFindings {
		r.Findings = append(r.Findings, f)
	}
}

// total is the number of items found.
func (r *Result) total() (n int) {
	for _, items := range r.Items {
		n += items
	}
	return n
}

// Outcome is the end of a run: a metric label.
type Outcome string

// The outcomes of runs.
const (
	OutcomeOK      Outcome = "ok"
	OutcomeError   Outcome = "error"
	OutcomePanic   Outcome = "panic"
	OutcomeStopped Outcome = "stopped" // the process is stopping, or the caller has left
)

// Run is the record of one run, as kept in the database.
type Run struct {
	Sweep   string  `json:"sweep"`
	Outcome Outcome `json:"outcome"`
	DryRun  bool    `json:"dry_run"`
	TookMS  int64   `json:"took_ms"`
	Error   string  `json:"error,omitempty"`
	Result
}
