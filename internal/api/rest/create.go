package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
)

// creation checks a request for a task and converts it for the engine. correlation is the
// header's, used if the request has none.
func creation(r *request[client.TaskRequest], correlation string, now time.Time) (orchestration.Request, error) {
	b := &r.body
	r.need("name", "namespace", "initiator", "source_system", "reason", "context")
	if err := r.err(); err != nil {
		return orchestration.Request{}, err
	}
	if b.Version == "" && r.has("version") { // absent: the highest
		return orchestration.Request{}, badRequest("version must not be empty")
	}
	return requestOf(b, correlation, now)
}

// requestOf converts a complete request for a task for the engine, which checks the rest.
func requestOf(b *client.TaskRequest, correlation string, now time.Time) (orchestration.Request, error) {
	r := orchestration.Request{
		Name: b.Name, Namespace: b.Namespace, Version: b.Version, Context: b.Context,
		Initiator: b.Initiator, SourceSystem: b.SourceSystem, Reason: b.Reason,
		Tags: b.Tags, IdempotencyKey: b.IdempotencyKey, Conflict: submission.ConflictPolicy(b.ConflictPolicy),
	}
	err := errors.Join(r.Urgency(b.Priority, b.PriorityLevel), r.Retries(b.MaxAttempts, b.RetryDelays), r.Start(timeOf(b.StartAt), b.DelaySeconds, now))
	if err != nil {
		return r, err
	}
	if err := r.Dependencies(b.DependsOn, b.OnDependencyFailure); err != nil {
		return r, unprocessable(err.Error())
	}
	if r.CorrelationID, err = optionalUUID("correlation_id", b.CorrelationID); err != nil {
		return r, err
	}
	if r.ParentCorrelationID, err = optionalUUID("parent_correlation_id", b.ParentCorrelationID); err != nil {
		return r, err
	}
	if r.CorrelationID == nil && correlation != "" {
		// Other software uses the header too: a value that is not a UUID is ignored.
		if id, err := uuid.Parse(correlation); err == nil {
			r.CorrelationID = &id
		}
	}
	r.DeadlineIn, err = submission.DeadlineIn(timeOf(b.Deadline), now)
	return r, err
}

// timeOf converts a time of the API.
func timeOf(t *client.Time) *time.Time {
	if t == nil {
		return nil
	}
	return &t.Time
}

func optionalUUID(field string, text *string) (*uuid.UUID, error) {
	id, err := submission.OptionalUUID(field, text)
	if err != nil {
		return nil, unprocessable(err.Error())
	}
	return id, nil
}

// replayedHeader marks the answer to a creation that shows a task which existed
// already.
const replayedHeader = "Idempotent-Replayed"

// create answers POST /v1/tasks.
func (t *taskRoutes) create(x *exchange, in *shownQuery) error {
	if err := t.admitRequest(); err != nil {
		return err
	}
	how, err := t.parseShown(in)
	if err != nil {
		return err
	}
	body, err := readBody[client.TaskRequest](x, "create-task")
	if err != nil {
		return err
	}
	if err := keyOfHeader(body, x.request.Header.Get("Idempotency-Key")); err != nil {
		return err
	}
	request, err := creation(body, x.request.Header.Get(correlationHeader), time.Now())
	if err != nil {
		return err
	}
	if err := within(x.request.Context(), request.Namespace); err != nil {
		return err
	}
	if err := t.admitTask(request.Namespace); err != nil {
		return err
	}
	request.Watched = how.wait > 0
	request.Reach(x.reaches(request.Namespace))
	task, err := through(x.request.Context(), t.guard, func(ctx context.Context) (*client.Task, error) {
		return t.created(ctx, x, request, how)
	})
	if err != nil {
		return err
	}
	return x.answer(task)
}

// keyOfHeader takes the idempotency key of the header where the body has none; a repeated
// request is then answered with the task that it created.
func keyOfHeader(r *request[client.TaskRequest], key string) error {
	switch {
	case key == "" || r.body.IdempotencyKey == key:
		return nil
	case r.body.IdempotencyKey != "":
		return badRequest("the header Idempotency-Key and idempotency_key differ")
	case !utf8.ValidString(key):
		return badRequest("the header Idempotency-Key must be text")
	}
	if r.body.IdempotencyKey = key; r.body.ConflictPolicy == "" {
		r.body.ConflictPolicy = client.ConflictUseExisting
	}
	return nil
}

// created creates a task and shows it.
func (t *taskRoutes) created(ctx context.Context, x *exchange, request orchestration.Request, how display) (*client.Task, error) {
	created, err := t.engine.Create(ctx, request)
	if err != nil {
		t.namesakes(ctx, &err)
		return nil, err
	}
	switch {
	case created.Existing:
		x.Header().Set(replayedHeader, "true")
		return t.show(ctx, created.UUID, how)
	case how.wait > 0:
		task, err := t.show(ctx, created.UUID, how)
		if err != nil {
			err = butCreated(created.UUID, err)
		}
		return task, err
	}
	// Its first state follows from its plan and the request.
	fresh := newTaskOf(&request, &created)
	return taskFor(ctx, store.AsCreated(&fresh, created.RequestedAt), true), nil
}

const (
	// mostNamesakes is how many templates of another namespace or version an error names.
	mostNamesakes = 3
	// mostUnknown is how many names of templates that are not there are looked for at once.
	mostUnknown = 100
)

// namesakes adds the templates of the same name to the errors of those that are not there:
// the versions in their own namespaces, and those in others that the client may see. It looks
// for all of them at once.
func (o *orchestratorAPI) namesakes(ctx context.Context, errs ...*error) {
	var names []string
	for _, err := range errs {
		unknown, is := errors.AsType[*orchestration.UnknownTemplateError](*err)
		if is && len(names) < mostUnknown && !slices.Contains(names, unknown.Name) {
			names = append(names, unknown.Name)
		}
	}
	if names == nil {
		return
	}
	list, listErr := o.store.TemplatesNamed(ctx, names)
	if listErr != nil {
		return // what is wrong with the requests is known
	}
	x, visible := exchangeOf(ctx), map[string][]store.NamedTemplate{}
	for _, t := range list {
		if !x.hides(t.Namespace) {
			visible[t.Name] = append(visible[t.Name], t)
		}
	}
	for _, err := range errs {
		if unknown, is := errors.AsType[*orchestration.UnknownTemplateError](*err); is {
			if f := didYouMean(unknown, visible[unknown.Name]); f != nil {
				*err = f
			}
		}
	}
}

// didYouMean is the answer about a template that is not there, with those of its name; nil:
// there are none.
func didYouMean(unknown *orchestration.UnknownTemplateError, named []store.NamedTemplate) *failure {
	var here, elsewhere []string
	for _, t := range named {
		switch text := t.Namespace + "/" + t.Name; {
		case t.Namespace == unknown.Namespace:
			here = append(here, text+"/"+t.Version)
		case !slices.Contains(elsewhere, text):
			elsewhere = append(elsewhere, text)
		}
	}
	near := slices.Concat(here, elsewhere)
	if len(near) == 0 {
		return nil
	}
	return notFound(unknown.Error() + "; did you mean " + strings.Join(near[:min(len(near), mostNamesakes)], " or ") + "?")
}

// newTaskOf is the task created for a request.
func newTaskOf(r *orchestration.Request, created *orchestration.Created) store.NewTask {
	t := store.NewTask{
		UUID: created.UUID, Plan: created.Plan, Context: r.Context, CorrelationID: created.CorrelationID, ParentCorrelationID: r.ParentCorrelationID,
		Initiator: r.Initiator, SourceSystem: r.SourceSystem, Reason: r.Reason, Tags: r.Tags,
		Priority: created.Priority, StartIn: r.StartIn, Retry: r.Override(), DependsOn: r.DependsOn,
	}
	if r.StartAt != nil {
		t.StartAt = *r.StartAt
	}
	return t
}

// butCreated says that the task exists although showing it failed, so that the failure is
// not taken for that of the creation.
func butCreated(id uuid.UUID, err error) error {
	f := &failure{status: http.StatusServiceUnavailable, code: codeUnavailable, taskUUID: id.String(),
		message: fmt.Sprintf("The task was created as %s, but could not be read back", id)}
	return fmt.Errorf("show the new task: %w", errors.Join(f, err))
}
