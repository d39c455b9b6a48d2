package orchestration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/aside"
	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/internal/settle"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
)

// The rules of requests are in package submission, because handlers and transactions
// of other programs create tasks by the same rules. These are the names that the API
// uses.
type (
	// Request describes a task to create.
	Request = submission.Request
	// Created is a task that exists.
	Created = submission.Created
	// InvalidError lists the faults of a request, in words for its sender.
	InvalidError = submission.InvalidError
	// DuplicateError says that a task with the same identity exists.
	DuplicateError = submission.DuplicateError
	// BusyError says that a transaction that has not ended is creating a task
	// with the same identity.
	BusyError = submission.BusyError
	// UnknownTemplateError says that no such template version is registered.
	UnknownTemplateError = submission.UnknownTemplateError
)

// Bounds of a request, see package submission.
const (
	MaxNameLength    = submission.MaxNameLength
	MaxVersionLength = submission.MaxVersionLength
	MaxTextLength    = submission.MaxTextLength
	MaxReasonLength  = submission.MaxReasonLength
	MaxTagLength     = submission.MaxTagLength
)

// CheckContext reports why a context cannot be a task's.
func CheckContext(context json.RawMessage) error { return submission.CheckContext(context) }

// Create validates a request and creates its task. Requests that arrive while
// a transaction is under way share the next one. The error is an *InvalidError,
// *UnknownTemplateError or *DuplicateError for a fault of the client, a
// *submission.QuotaError or *submission.ThrottleError when it may have no more tasks now, a
// *BusyError when another transaction with the same identity must end first; it wraps
// store.ErrUnavailable when the database is away.
func (o *Orchestrator) Create(ctx context.Context, r Request) (Created, error) {
	o.judge(&r)
	task, err := submission.Prepare(ctx, o.store, &r)
	if err != nil {
		return Created{}, err
	}
	task.Limited = true
	return o.insert(ctx, &task, &r)
}

// judge sets the rules that a request for a task is checked by here.
func (o *Orchestrator) judge(r *Request) {
	r.Schema, r.Checks, r.Bounds = o.schema, o.checker, o.cfg.Documents
}

// insert writes the task of a request.
func (o *Orchestrator) insert(ctx context.Context, task *store.NewTask, r *Request) (Created, error) {
	row, err := o.creates.Do(ctx, *task)
	if err != nil {
		return Created{}, creationError(err)
	}
	created, err := submission.Answer(task, row, r.Conflict)
	o.refused(err)
	if err == nil && !created.Existing {
		settle.CountCreated(o.metrics, created.Plan, 1)
	}
	return created, err
}

// refused counts a refusal for a quota or a throttle.
func (o *Orchestrator) refused(err error) {
	if fast := (*submission.ThrottleError)(nil); errors.As(err, &fast) {
		o.metrics.BackpressureRefusals.WithLabelValues("throttle").Inc()
	}
	if full := (*submission.QuotaError)(nil); errors.As(err, &full) {
		o.metrics.BackpressureRefusals.WithLabelValues("quota").Inc()
	}
}

// creationError wraps the reason why a task could not be created.
func creationError(err error) error {
	return fmt.Errorf("create the task: %w", submission.Refusal(err))
}

// flushCreates writes one batch of tasks and sends their signals. A task that the database rejects
// does not fail the others; the error then has one entry per task.
func (o *Orchestrator) flushCreates(ctx context.Context, tasks []store.NewTask) ([]store.CreatedTask, error) {
	created, err := o.createSome(ctx, tasks)
	if err == nil || len(tasks) == 1 || !answered(err) {
		return created, err
	}
	places, made := make([]int, len(tasks)), make([]bool, len(tasks))
	for i := range places {
		places[i] = i
	}
	created = make([]store.CreatedTask, len(tasks))
	errs := make([]error, len(tasks))
	failure := aside.Halves(places, err, answered, func(part []int) error {
		done, err := o.createSome(ctx, tasks[part[0]:part[len(part)-1]+1])
		copy(created[part[0]:], done)
		for _, at := range part {
			made[at] = err == nil
		}
		return err
	}, func(at int, why error) { errs[at] = why })
	for at := range tasks {
		if !made[at] && errs[at] == nil {
			errs[at] = failure // the statement is at fault, or the database has gone
		}
	}
	if errors.Join(errs...) == nil {
		return created, nil
	}
	return created, &command.BatchError{Errs: errs}
}

// answered reports whether the database has answered with an error.
func answered(err error) bool { return err != nil && !errors.Is(err, store.ErrUnavailable) }

const (
	// createPatience is after how long creations go past a transaction that is still under way.
	createPatience = time.Second
	// createTimeout bounds a transaction that creates tasks: its connection may be silent.
	createTimeout = 5 * time.Second
)

func (o *Orchestrator) createSome(ctx context.Context, tasks []store.NewTask) ([]store.CreatedTask, error) {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	created, err := o.create(ctx, tasks)
	if err == nil {
		o.scheduleLook()
		o.beginSoon(tasks)
	}
	return created, err
}

// beginSoon starts a look at tasks that the engine begins itself.
func (o *Orchestrator) beginSoon(tasks []store.NewTask) {
	if slices.ContainsFunc(tasks, func(t store.NewTask) bool { return t.Plan.EngineFirst || len(t.DependsOn) > 0 }) {
		o.readiness.WakeIn(0)
	}
}

// What an orchestrator does with a context that breaks the input schema of its template.
const (
	schemaEnforce = "enforce" // the request is rejected
	schemaWarn    = "warn"    // it is accepted, and logged
	schemaOff     = "off"     // contexts are not validated
)

// schemaPolicy is the schema policy of requests.
func schemaPolicy(mode string, log *zap.Logger) *submission.SchemaPolicy {
	switch mode {
	case schemaWarn:
		return &submission.SchemaPolicy{Warn: func(plan *store.Plan, problems string) {
			t := plan.Template
			log.Warn("a context breaks the input schema of its template", zap.String("namespace", t.Namespace), zap.String("template", t.Name),
				zap.String("version", t.Version), zap.String("problems", problems))
		}}
	case schemaOff:
		return &submission.SchemaPolicy{}
	}
	return nil
}
