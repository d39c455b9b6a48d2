package sweep

import (
	"context"
	"errors"
	"time"

	"github.com/tasker-go/tasker/internal/store"
)

// Job is one sweep. All fields but DryRun, Watch and Wanted are required.
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
	// Run sweeps once, see inBatches. With dry it changes nothing and reports what it would
	// do. One process never calls it concurrently. A result with an error was done before
	// the error.
	Run func(ctx context.Context, dry bool) (Result, error)
	// Watch sets gauges. Every replica calls it in each round, even if another replica
	// runs the sweep. A failed read is repeated in the next round.
	Watch func(ctx context.Context) error
	// Wanted says whether there may be something to do; while it returns false the sweep
	// costs the database nothing. nil: always.
	Wanted func() bool
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
func (r *Result) show(subject, action, detail string) {
	if len(r.Findings) < maxFindings {
		r.Findings = append(r.Findings, Finding{Subject: subject, Action: action, Detail: detail})
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

// maxBatches bounds the batches of one run in addition to its time.
const maxBatches = 10_000

// look is one batch of a run: it adds what it finds and does to the result, and reports
// whether there is more.
type look func(ctx context.Context, res *Result) (more bool, err error)

// inBatches is the shape of a run: begin makes the look of a run, which is repeated while it
// finds more, for up to maxBatches or half of the lease; the other half is for the last batch.
// Only the end of the lease interrupts a batch. Where a batch fails and there is more, the
// next is tried, and the run fails at its end.
//
// A dry run changes nothing, so that a second look would repeat the first: it looks once,
// unless paged says that its looks go on from place to place.
func inBatches(lease time.Duration, paged bool, begin func(dry bool) look) func(ctx context.Context, dry bool) (Result, error) {
	return func(ctx context.Context, dry bool) (res Result, err error) {
		var failures []error
		once, begun := begin(dry), time.Now()
		for n := 1; err == nil; n++ {
			res.More, err = once(ctx, &res)
			if err != nil && !final(ctx, err) {
				failures, err = append(failures, err), nil
			}
			if !res.More || dry && !paged || n >= maxBatches || time.Since(begun) >= lease/2 {
				break
			}
			if err == nil {
				err = ctx.Err()
			}
		}
		return res, errors.Join(append(failures[:min(len(failures), maxFailures)], err)...)
	}
}

// final reports whether an error ends a run: without the database or time nothing else can be
// tried.
func final(ctx context.Context, err error) bool {
	return errors.Is(err, store.ErrUnavailable) || err != nil && ctx.Err() != nil
}

// maxFailures bounds the errors kept of one run.
const maxFailures = 3
