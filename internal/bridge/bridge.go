package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// Engine creates tasks; *orchestration.Orchestrator is one.
type Engine interface {
	PlanOfType(ctx context.Context, queue, name string) (*store.Plan, error)
	CreateMany(ctx context.Context, requests []orchestration.Request) []orchestration.CreateResult
}

// Door creates the tasks of a bridge, unless back-pressure rejects them.
type Door struct {
	Engine
	Namespace string // of the task types; empty: the only one that has the type
	// Admitted reports whether new tasks of a namespace are accepted now.
	Admitted func(namespace string) bool
	Metrics  *telemetry.Metrics
	// ParkedFor is how long a job waits apart in the other queue, in whole seconds; 0: 10 s.
	ParkedFor time.Duration
	since     time.Time // when it began to wait; zero while it does not
}

// ErrRefused says that no new tasks are accepted now.
var ErrRefused = errors.New("new tasks are refused for now: back-pressure")

// ErrNamespaceRefused says that no new tasks of a namespace are accepted now.
var ErrNamespaceRefused = errors.New("new tasks of the namespace are refused for now: back-pressure")

// parkedFor is how long a job waits apart, while the bridge goes on with others.
const parkedFor = 10 * time.Second

// Parking is how long a job waits apart.
func (d *Door) Parking() time.Duration { return cmp.Or(d.ParkedFor, parkedFor) }

// MaxRejections is from how many rejections by the database on a job becomes a dead letter.
const MaxRejections = 5

// Parked reports whether a job waits apart: its namespace or template takes no tasks now, or the
// database rejects its task. Other jobs are not concerned.
func Parked(err error) bool {
	return full(err) || Rejected(err)
}

// Rejected reports whether the database rejects the task of a job.
func Rejected(err error) bool {
	return store.Rejected(err) && !Final(err) && !errors.Is(err, ErrRefused) && !full(err)
}

// full reports whether a namespace or a template takes no tasks now.
func full(err error) bool {
	var quota *submission.QuotaError
	var throttle *submission.ThrottleError
	return errors.As(err, &quota) || errors.As(err, &throttle) || errors.Is(err, ErrNamespaceRefused)
}

// Request is the task of a job: the highest version of a task type, with the job's id as
// idempotency key. The payload is an object, or the text of one.
func (d *Door) Request(ctx context.Context, id, kind string, payload json.RawMessage) (r orchestration.Request, err error) {
	plan, err := d.PlanOfType(ctx, d.Namespace, kind)
	if err != nil {
		return r, err
	}
	t := plan.Template
	if !d.Admitted(t.Namespace) {
		return r, ErrNamespaceRefused
	}
	var text string
	if json.Unmarshal(payload, &text) == nil && json.Valid([]byte(text)) {
		payload = json.RawMessage(text)
	}
	return orchestration.Request{Namespace: t.Namespace, Name: t.Name, Version: t.Version, Context: payload, IdempotencyKey: id,
		Conflict: submission.ConflictUseExisting}, nil
}

// Pause is the delay after the given number of consecutive failures, at least one: it doubles
// with each, from a tenth of a second to five.
func Pause(failures int) time.Duration {
	return min(100*time.Millisecond<<min(failures-1, 16), 5*time.Second)
}

// Count counts jobs of a bridge.
func (d *Door) Count(bridge, outcome string, n int) {
	d.Metrics.BridgeJobs.WithLabelValues(bridge, outcome).Add(float64(n))
}

// Waiting notes how many jobs a bridge holds because they cannot become tasks yet, and whether
// it waits until they can.
func (d *Door) Waiting(bridge string, held int, waits bool) {
	since := 0.0
	switch {
	case !waits:
		d.since = time.Time{}
	case d.since.IsZero():
		d.since = time.Now()
		fallthrough
	default:
		since = float64(d.since.Unix())
	}
	d.Metrics.BridgeHeld.WithLabelValues(bridge).Set(float64(held))
	d.Metrics.BridgeWaiting.WithLabelValues(bridge).Set(since)
}

// Outcome is the outcome of a job that is a task.
func Outcome(created orchestration.CreateResult) string {
	if created.Existing {
		return "duplicate"
	}
	return "created"
}

// Final reports whether a job can never become a task.
func Final(err error) bool {
	var invalid *submission.InvalidError
	var unknownType *orchestration.UnknownTypeError
	var unknown *submission.UnknownTemplateError
	return errors.As(err, &invalid) || errors.As(err, &unknownType) || errors.As(err, &unknown)
}
