package submission

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/priorities"
	"github.com/tasker-go/tasker/workflow"
)

// Bounds of a request. They suit every known client and keep one request from affecting
// others.
const (
	MaxNameLength    = 64
	MaxVersionLength = 50
	MaxTextLength    = 255
	MaxReasonLength  = 500
	MaxTags          = 64
	MaxTagLength     = 128
	MaxKeyLength     = 255
	maxStartDelay    = 366 * 24 * time.Hour
	MaxDependencies  = 100 // dependencies of a task
)

// Request describes a task to create. It is the same for the API, for handlers
// (worker.TaskRequest) and for transactions (client/pgclient).
type Request struct {
	Namespace, Name string
	// Version of the template; empty: the highest that is not deprecated.
	Version             string
	Context             json.RawMessage // a JSON object
	Initiator           string
	SourceSystem        string
	Reason              string
	Tags                []string
	Priority            *int       // priorities.Min–Max; nil: the template's, or 0
	CorrelationID       *uuid.UUID // nil: the task's own id
	ParentCorrelationID *uuid.UUID
	// IdempotencyKey makes requests with the same key the same task, regardless of their
	// contexts and of the template's identity strategy.
	IdempotencyKey string
	// Conflict is the policy where a task with the idempotency key exists.
	Conflict ConflictPolicy
	StartIn  time.Duration // delay of the first steps
	// StartAt delays them until an instant, by the database's clock; nil: none. It
	// excludes StartIn.
	StartAt     *time.Time
	startsAbout time.Duration // the time until StartAt, when it was read
	// DeadlineIn is the time within which the task should have begun; a task that still
	// waits then is cancelled with a dead-letter entry. 0: none.
	DeadlineIn time.Duration
	// Watched says that the sender waits for the end of the task.
	Watched bool
	// Schema is the policy for a context that breaks the template's input schema; nil:
	// it is rejected.
	Schema *SchemaPolicy
	// Checks checks the context; nil: within the budget of a nil *schema.Checker.
	Checks Checks
	// Bounds are those of the context.
	Bounds Bounds
	// DependsOn are tasks that must end before this one begins, at most MaxDependencies.
	// If one of them fails, this one is cancelled, unless OnDependencyFailure is
	// DependencyIgnored.
	DependsOn           []uuid.UUID
	OnDependencyFailure string
	// MaxAttempts is how often each retryable step may be executed, including the first
	// execution; 0: as the template says, or one more than RetryDelays.
	MaxAttempts int
	// RetryDelays are the exact delays before the executions after the first, in place
	// of the template's backoff; the last one is reused. At most
	// limits.MaxRetryDelays, each at most limits.MaxRetryDelay.
	RetryDelays []time.Duration

	reaches func(namespace string) bool // see Reach
}

// Reach sets which namespaces the task may use beside its own; nil: all. Tasks of others, which it
// depends on, do not exist for it.
func (r *Request) Reach(reaches func(namespace string) bool) { r.reaches = reaches }

// MayReach reports whether the task may use a namespace.
func (r *Request) MayReach(namespace string) bool {
	return namespace == r.Namespace || r.reaches == nil || r.reaches(namespace)
}

// The values of Request.OnDependencyFailure; the empty string means
// DependencyFails.
const (
	DependencyFails   = "fail"
	DependencyIgnored = "continue"
)

// ConflictPolicy is the treatment of a request whose idempotency key is taken.
type ConflictPolicy string

// The conflict policies; the empty string means ConflictFail.
const (
	ConflictFail        ConflictPolicy = "fail"         // it is rejected with a *DuplicateError
	ConflictUseExisting ConflictPolicy = "use_existing" // it is answered with the existing task
)

// InvalidError lists the faults of a request, in words for its sender.
type InvalidError struct{ Problems []string }

// Error implements error.
func (e *InvalidError) Error() string { return strings.Join(e.Problems, "; ") }

// DuplicateError says that a task with the same identity exists. Existing and State are set only
// when the sender gave the idempotency key: a guessed context must not reveal a task.
type DuplicateError struct {
	Existing uuid.UUID
	State    workflow.TaskState // of that task; 0: not known
}

// Error implements error.
func (e *DuplicateError) Error() string {
	switch {
	case e.Existing == uuid.Nil:
		return "a task with this identity already exists: send an idempotency_key to tell submissions apart, or let identities of the template end (identity.until, window)"
	case e.State == 0:
		return fmt.Sprintf("a task with this idempotency key already exists: %s", e.Existing)
	}
	return fmt.Sprintf("a task with this idempotency key already exists: %s (%s); conflict_policy use_existing answers with it, another key creates another task",
		e.Existing, e.State)
}

// BusyError says that an open transaction is creating a task with the same identity: only
// its end decides whether this request is a duplicate. Callers should retry later.
type BusyError struct{}

// Error implements error.
func (e *BusyError) Error() string {
	return "a transaction that has not ended yet is creating a task with this identity; try again later"
}

// QuotaError says that a namespace has as many live tasks as its quota allows.
type QuotaError struct {
	Namespace  string
	RetryAfter time.Duration // when places may be free
}

// Error implements error.
func (e *QuotaError) Error() string {
	return fmt.Sprintf("the namespace %s has as many tasks that have not ended as its quota allows", e.Namespace)
}

// ThrottleError says that as many tasks of a template were created as its throttle allows.
type ThrottleError struct {
	Template   string // with its namespace
	RetryAfter time.Duration
}

// Error implements error.
func (e *ThrottleError) Error() string {
	return fmt.Sprintf("as many tasks of %s were created of late as its throttle allows", e.Template)
}

// UnknownTemplateError says that no such template version is registered.
type UnknownTemplateError struct{ Namespace, Name, Version string }

// Error implements error.
func (e *UnknownTemplateError) Error() string {
	if e.Version == "" {
		return fmt.Sprintf("Template not found: %s/%s (no version of it that is not deprecated)", e.Namespace, e.Name)
	}
	return fmt.Sprintf("Template not found: %s/%s/%s", e.Namespace, e.Name, e.Version)
}

// Checker collects faults of external input. The zero value is ready for use.
type Checker struct{ problems []string }

// Add records a fault, at most twenty.
func (c *Checker) Add(format string, args ...any) {
	if len(c.problems) < 20 {
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

// Text checks a text of at most limit characters.
func (c *Checker) Text(field, value string, limit int, required bool) {
	switch {
	case value == "" && required:
		c.Add("%s must not be empty", field)
	case len(value) > limit && utf8.RuneCountInString(value) > limit:
		c.Add("%s must have at most %d characters", field, limit)
	case !storableText(value):
		c.Add("%s must be text without control character NUL", field)
	}
}

// Err is an *InvalidError with all recorded faults; nil if there are none.
func (c *Checker) Err() error {
	if c.problems == nil {
		return nil
	}
	return &InvalidError{Problems: c.problems}
}

// storableText reports whether PostgreSQL can keep the text.
func storableText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsAny(s, "\x00\x1f")
}

// Check validates everything that needs no template. The error is an
// *InvalidError.
func (r *Request) Check() error {
	var c Checker
	c.Text("name", r.Name, MaxNameLength, true)
	c.Text("namespace", r.Namespace, MaxNameLength, true)
	c.Text("version", r.Version, MaxVersionLength, false)
	c.Text("initiator", r.Initiator, MaxTextLength, false)
	c.Text("source_system", r.SourceSystem, MaxTextLength, false)
	c.Text("reason", r.Reason, MaxReasonLength, false)
	c.Text("idempotency_key", r.IdempotencyKey, MaxKeyLength, false)
	if len(r.Tags) > MaxTags {
		c.Add("tags must have at most %d entries", MaxTags)
	}
	for i, tag := range r.Tags {
		if tag == "" || len(tag) > MaxTagLength || !storableText(tag) {
			c.Text(fmt.Sprintf("tags[%d]", i), tag, MaxTagLength, true)
		}
	}
	if p := r.Priority; p != nil && (*p < priorities.Min || *p > priorities.Max) {
		c.Add("priority must be between %d and %d", priorities.Min, priorities.Max)
	}
	start := r.startsIn()
	if r.StartIn < 0 || start > maxStartDelay {
		c.Add("the start must be within the next %d days", int(maxStartDelay.Hours()/24))
	}
	if r.StartIn != 0 && r.StartAt != nil {
		c.Add("give start_at or delay_seconds, not both")
	}
	if r.DeadlineIn < 0 || r.DeadlineIn > maxStartDelay || r.DeadlineIn > 0 && r.DeadlineIn <= start {
		c.Add("the deadline must be after the start and within the next %d days", int(maxStartDelay.Hours()/24))
	}
	r.checkDependencies(&c)
	r.checkConflict(&c)
	if r.MaxAttempts != 0 || r.RetryDelays != nil {
		r.checkRetries(&c)
	}
	if err := r.Bounds.CheckContext(r.Context); err != nil {
		c.Add("%s", err)
	}
	return c.Err()
}

func (r *Request) checkDependencies(c *Checker) {
	if len(r.DependsOn) > MaxDependencies {
		c.Add("depends_on must have at most %d entries", MaxDependencies)
	}
	switch r.OnDependencyFailure {
	case "", DependencyFails, DependencyIgnored:
	default:
		c.Add("on_dependency_failure must be %s or %s", DependencyFails, DependencyIgnored)
	}
}

func (r *Request) checkConflict(c *Checker) {
	switch {
	case r.Conflict == "", r.Conflict == ConflictFail:
	case r.Conflict != ConflictUseExisting:
		c.Add("conflict_policy must be %s or %s", ConflictFail, ConflictUseExisting)
	case r.IdempotencyKey == "":
		// A guessed context must not reveal tasks.
		c.Add("conflict_policy %s needs an idempotency_key", ConflictUseExisting)
	}
}

func (r *Request) checkRetries(c *Checker) {
	if r.MaxAttempts < 0 || r.MaxAttempts > limits.MaxAttempts {
		c.Add("max_attempts must be between 1 and %d", limits.MaxAttempts)
	}
	if len(r.RetryDelays) > limits.MaxRetryDelays {
		c.Add("retry_delays must have at most %d entries", limits.MaxRetryDelays)
	}
	for i, delay := range r.RetryDelays {
		if delay < 0 || delay > limits.MaxRetryDelay {
			c.Add("retry_delays[%d] must be between 0s and %d days", i, int(limits.MaxRetryDelay.Hours()/24))
		}
	}
}

// startsIn is the delay of the first steps; for an instant it is approximate: its bounds
// are wide, and this clock may differ from the database's.
func (r *Request) startsIn() time.Duration {
	switch {
	case r.StartAt == nil:
		return r.StartIn
	case r.startsAbout != 0:
		return r.startsAbout
	}
	return time.Until(*r.StartAt)
}
