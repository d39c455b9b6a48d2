package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2/queryparam"
	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/store"
)

// createBody decodes a client.TaskRequest; nil pointers are missing fields. Other keys
// are ignored, including requested_at and options.
type createBody struct {
	Name                *string         `json:"name"`
	Namespace           *string         `json:"namespace"`
	Version             *string         `json:"version"`
	Context             json.RawMessage `json:"context"`
	Initiator           *string         `json:"initiator"`
	SourceSystem        *string         `json:"source_system"`
	Reason              *string         `json:"reason"`
	Tags                []string        `json:"tags"`
	Priority            *int            `json:"priority"`
	PriorityLevel       *int            `json:"priority_level"`
	CorrelationID       *string         `json:"correlation_id"`
	ParentCorrelationID *string         `json:"parent_correlation_id"`
	IdempotencyKey      string          `json:"idempotency_key"`
	ConflictPolicy      string          `json:"conflict_policy"`
	StartAt             *client.Time    `json:"start_at"`
	DelaySeconds        *float64        `json:"delay_seconds"`
	Deadline            *client.Time    `json:"deadline"`
	DependsOn           []string        `json:"depends_on"`
	OnDependencyFailure string          `json:"on_dependency_failure"`
	MaxAttempts         *int            `json:"max_attempts"`
	RetryDelays         []string        `json:"retry_delays"`
}

// missing reports the required fields that are absent or null.
func (b *createBody) missing() error {
	var names []string
	for _, f := range []struct {
		name  string
		value *string
	}{{"name", b.Name}, {"namespace", b.Namespace},
		{"initiator", b.Initiator}, {"source_system", b.SourceSystem}, {"reason", b.Reason}} {
		if f.value == nil {
			names = append(names, f.name)
		}
	}
	if len(b.Context) == 0 || string(b.Context) == "null" {
		names = append(names, "context")
	}
	if names == nil {
		return nil
	}
	return unprocessable("missing field: " + strings.Join(names, ", "))
}

// request converts the body for the engine. correlation is the header's, used if the body
// has none.
func (b *createBody) request(correlation string, now time.Time) (orchestration.Request, error) {
	r := orchestration.Request{}
	if err := b.missing(); err != nil {
		return r, err
	}
	r = orchestration.Request{
		Name: *b.Name, Namespace: *b.Namespace, Context: b.Context,
		Initiator: *b.Initiator, SourceSystem: *b.SourceSystem, Reason: *b.Reason,
		Tags: b.Tags, IdempotencyKey: b.IdempotencyKey, Conflict: submission.ConflictPolicy(b.ConflictPolicy),
	}
	if b.Version != nil { // absent: the highest; empty: an error
		if r.Version = *b.Version; r.Version == "" {
			return r, badRequest("version must not be empty")
		}
	}
	err := b.options(&r, now)
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

// options reads fields with several forms.
func (b *createBody) options(r *orchestration.Request, now time.Time) error {
	if err := r.Urgency(b.Priority, b.PriorityLevel); err != nil {
		return err
	}
	if err := r.Retries(b.MaxAttempts, b.RetryDelays); err != nil {
		return err
	}
	return r.Start(timeOf(b.StartAt), b.DelaySeconds, now)
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
func (t *taskRoutes) create(x *exchange) error {
	if err := t.admitRequest(); err != nil {
		return err
	}
	how, err := t.parseShown(queryparam.Get(x.request.URL.RawQuery, "wait"), queryparam.Get(x.request.URL.RawQuery, "include"))
	if err != nil {
		return err
	}
	raw, err := readRaw(x, t.cfg.MaxBodyBytes)
	if err != nil {
		return err
	}
	body, err := decodeTask(raw)
	if err != nil {
		return err
	}
	request, err := body.request(x.request.Header.Get("X-Correlation-Id"), time.Now())
	if err != nil {
		return err
	}
	if err := t.admitTask(request.Namespace); err != nil {
		return err
	}
	request.Watched = how.wait > 0
	ctx := x.request.Context()
	created, err := t.engine.Create(ctx, request)
	if err != nil {
		return err
	}
	if created.Existing {
		x.Header().Set(replayedHeader, "true")
	}
	if how.wait > 0 || created.Existing {
		task, err := t.show(ctx, created.UUID, how)
		if err != nil && !created.Existing {
			err = butCreated(created.UUID, err)
		}
		if err != nil {
			return err
		}
		return x.answer(task)
	}
	return t.showCreated(x, &request, &created)
}

// showCreated shows a new task without reading it: its first state follows from its plan
// and the request.
func (t *taskRoutes) showCreated(x *exchange, r *orchestration.Request, created *orchestration.Created) error {
	if r.StartIn <= 0 && r.StartAt == nil && r.Override() == nil && len(r.DependsOn) == 0 {
		first, err := t.firsts.of(created.Plan)
		if err != nil {
			return butCreated(created.UUID, err)
		}
		x.write(func(b []byte) []byte { return first.append(b, r, created) })
		return nil
	}
	fresh := newTaskOf(r, created)
	task, err := fresh.AsCreated(created.RequestedAt)
	if err != nil {
		return butCreated(created.UUID, err)
	}
	return x.answer(taskOf(task, true))
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
