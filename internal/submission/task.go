package submission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/plainqueue"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/tracing"
	"github.com/tasker-go/tasker/workflow"
)

// Created is a task that exists.
type Created struct {
	UUID          uuid.UUID
	RequestedAt   time.Time // by the database's clock
	CorrelationID uuid.UUID // the request's, or else the task's own id
	Plan          *store.Plan
	Priority      int // the request's, or else the template's, or else 0
	// Existing says that the task existed before (ConflictUseExisting, or it is debounced).
	// Then only its UUID, and its State where it is not debounced, are known.
	Existing bool
	State    workflow.TaskState // of an existing task
	Running  bool               // a worker has the only step of the existing task
}

// Plans looks up the current plan of a template version, or of the highest that is not
// deprecated if none is named; store.ErrNotFound where there is none. The result of UsePlan
// replaces the plan. *store.Store and store.PlansOnTx implement it.
type Plans interface {
	PlanNamed(ctx context.Context, namespace, name, version string) (*store.Plan, error)
	UsePlan(ctx context.Context, plan *store.Plan) (*store.Plan, error)
}

// Prepare makes a task of a request. The error is an *InvalidError or *UnknownTemplateError
// for a fault of the sender, else the error of the template lookup.
func Prepare(ctx context.Context, plans Plans, r *Request) (store.NewTask, error) {
	if err := r.Check(); err != nil {
		return store.NewTask{}, err
	}
	plan, err := Template(ctx, plans, r)
	if err != nil {
		return store.NewTask{}, err
	}
	return TaskOf(ctx, plans, r, plan)
}

// TaskOf is Task for a task that will be created: once it returns, no registration replaces
// the plan of the task, which may be newer than plan.
func TaskOf(ctx context.Context, plans Plans, r *Request, plan *store.Plan) (store.NewTask, error) {
	task, err := Task(ctx, r, plan)
	if err != nil {
		return store.NewTask{}, err
	}
	used, err := plans.UsePlan(ctx, plan)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.NewTask{}, &UnknownTemplateError{r.Namespace, r.Name, r.Version}
	case err != nil:
		return store.NewTask{}, err
	case used.ID != plan.ID:
		task, err = Task(ctx, r, used)
	}
	task.Trace = tracing.Row(ctx)
	return task, err
}

// Template returns the plan that a request names.
func Template(ctx context.Context, plans Plans, r *Request) (*store.Plan, error) {
	plan, err := plans.PlanNamed(ctx, r.Namespace, r.Name, r.Version)
	if errors.Is(err, store.ErrNotFound) {
		return nil, &UnknownTemplateError{r.Namespace, r.Name, r.Version}
	}
	if err != nil {
		return nil, err
	}
	return plan, nil
}

// Task makes a task of a checked request and its plan.
func Task(ctx context.Context, r *Request, plan *store.Plan) (store.NewTask, error) {
	policy := plan.Template.Identity
	if r.IdempotencyKey == "" && dedup.StrategyOf(policy) == workflow.IdentityCallerProvided {
		return store.NewTask{}, &InvalidError{Problems: []string{fmt.Sprintf(
			"the template %s/%s/%s knows its tasks by the keys that their senders give; send idempotency_key", r.Namespace, r.Name, plan.Template.Version)}}
	}
	if err := r.Schema.check(ctx, r.Checks, r.Context, plan); err != nil {
		return store.NewTask{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return store.NewTask{}, fmt.Errorf("make a task id: %w", err)
	}
	t := store.NewTask{
		UUID: id, Plan: plan, Context: r.Context, CorrelationID: id, ParentCorrelationID: r.ParentCorrelationID,
		Initiator: r.Initiator, SourceSystem: r.SourceSystem, Reason: r.Reason, Tags: r.Tags,
		IdempotencyKey: r.IdempotencyKey, StartIn: r.StartIn, DeadlineIn: r.DeadlineIn,
		DependsOn: r.DependsOn, Lenient: r.OnDependencyFailure == DependencyIgnored, Watched: r.Watched,
		Reaches: r.reaches,
	}
	switch {
	case r.Priority != nil:
		t.Priority = *r.Priority
	case plan.Template.Priority != nil:
		t.Priority = *plan.Template.Priority
	}
	if r.StartAt != nil {
		t.StartAt = *r.StartAt
	}
	t.Retry = r.Override()
	if r.CorrelationID != nil {
		t.CorrelationID = *r.CorrelationID
	}
	if plainqueue.Has(plan.Template) {
		if t.StepTags, err = queueTags(r.Context); err != nil {
			return store.NewTask{}, err
		}
	}
	t.Begin()
	return t, identify(&t, r, policy)
}

// Override is the request's retry policy; nil where it has none.
func (r *Request) Override() *workflow.RetryOverride {
	if r.MaxAttempts == 0 && r.RetryDelays == nil {
		return nil
	}
	return retryOverride(r.MaxAttempts, millis(r.RetryDelays))
}

// ownIdentityKept is how long a task without duplicates keeps its identity: longer than any
// repeated attempt to create it.
const ownIdentityKept = time.Hour

// identify sets the identity of the task: from the sender's key, or else by the template's
// policy.
func identify(t *store.NewTask, r *Request, policy *workflow.IdentityPolicy) error {
	var identity dedup.Identity
	var err error
	switch {
	case r.IdempotencyKey != "":
		identity, t.IdentityEnd = dedup.KeyIdentity(r.Namespace, r.Name, r.IdempotencyKey), dedup.EndOf(policy, true)
	case dedup.StrategyOf(policy) == workflow.IdentityAlwaysUnique:
		identity, t.IdentityEnd = dedup.OwnIdentity(r.Namespace, r.Name, t.UUID), dedup.IdentityEnd{After: ownIdentityKept}
	default:
		if identity, err = dedup.ContextIdentity(r.Namespace, r.Name, r.Context); err != nil {
			return &InvalidError{Problems: []string{err.Error()}}
		}
		t.IdentityEnd = dedup.EndOf(policy, false)
	}
	t.Identity = &identity
	return nil
}

// millis rounds up, so that no delay is too short.
func millis(delays []time.Duration) []int64 {
	ms := make([]int64, len(delays))
	for i, d := range delays {
		ms[i] = int64((d + time.Millisecond - 1) / time.Millisecond)
	}
	return ms
}

// Answer converts the result of an insert. The error is a *DuplicateError, *BusyError,
// *QuotaError or *ThrottleError.
func Answer(task *store.NewTask, row store.CreatedTask, conflict ConflictPolicy) (Created, error) {
	switch {
	case row.Busy:
		return Created{}, &BusyError{}
	case row.Throttled:
		return Created{}, &ThrottleError{Template: task.Plan.Template.Namespace + "/" + task.Plan.Template.Name, RetryAfter: row.RefusedFor}
	case row.RefusedFor > 0:
		return Created{}, &QuotaError{Namespace: task.Plan.Template.Namespace, RetryAfter: row.RefusedFor}
	case row.Debounced && row.RequestedAt.IsZero(), row.Duplicate && conflict == ConflictUseExisting:
		return Created{UUID: row.UUID, Plan: task.Plan, Existing: true, State: row.State, Running: row.Running}, nil
	case row.Duplicate:
		duplicate := &DuplicateError{}
		if task.IdempotencyKey != "" {
			duplicate.Existing, duplicate.State = row.UUID, row.State
		}
		return Created{}, duplicate
	}
	return Created{UUID: row.UUID, RequestedAt: row.RequestedAt, CorrelationID: task.CorrelationID, Plan: task.Plan, Priority: task.Priority}, nil
}

// Refusal converts the error of an insert: an *InvalidError where the request depends on
// unknown tasks, else err.
func Refusal(err error) error {
	var unknown *store.UnknownTasksError
	if errors.As(err, &unknown) {
		return &InvalidError{Problems: []string{"depends_on: " + unknown.Error()}}
	}
	return err
}

// queueTags are the tags that a worker must have to claim a task of a queue.
func queueTags(context json.RawMessage) ([]string, error) {
	var q struct {
		Tags []string `json:"tags"`
	}
	if err := json.Unmarshal(context, &q); err != nil {
		return nil, &InvalidError{Problems: []string{"tags must be a list of texts"}}
	}
	return q.Tags, CheckQueueTags(q.Tags)
}

// maxQueueTags is how many tags a task of a queue may have, and a worker of one.
const maxQueueTags = 16

// CheckQueueTags checks the tags of a task of a queue, or of a worker of one. The error is an
// *InvalidError.
func CheckQueueTags(tags []string) error {
	var c Checker
	if len(tags) > maxQueueTags {
		c.Add("tags must have at most %d entries", maxQueueTags)
	}
	for i, tag := range tags[:min(len(tags), maxQueueTags)] {
		c.Text(fmt.Sprintf("tags[%d]", i), tag, MaxTagLength, true)
	}
	return c.Err()
}

// retryOverride builds the override of a request with a number of attempts (0: one more
// than the delays) and a list of delays; nil without both.
func retryOverride(maxAttempts int, delaysMS []int64) *workflow.RetryOverride {
	switch {
	case maxAttempts > 0:
		return &workflow.RetryOverride{MaxAttempts: maxAttempts, DelaysMS: delaysMS}
	case len(delaysMS) > 0:
		return &workflow.RetryOverride{MaxAttempts: len(delaysMS) + 1, DelaysMS: delaysMS}
	}
	return nil
}
