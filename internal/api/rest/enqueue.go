package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/execution"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/workflow"
)

// enqueueRequest is a client.EnqueueRequest in the form of the creation that it makes, which
// the type completes.
type enqueueRequest struct {
	client.TaskRequest
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
	Queue   string          `json:"queue"`
}

// fill completes the creation from the type.
func (b *enqueueRequest) fill(template *workflow.Template) {
	b.Name, b.Namespace, b.Version, b.Context = template.Name, template.Namespace, template.Version, b.Payload
	if b.IdempotencyKey != "" && b.ConflictPolicy == "" {
		b.ConflictPolicy = client.ConflictUseExisting
	}
}

// counted counts and times the requests that serve answers, by the task type that they name. A
// type that is not registered makes no series.
func (r *typeRoutes) counted(serve func(*exchange, *struct{}) error) func(*exchange, *struct{}) error {
	return func(x *exchange, in *struct{}) error {
		began := time.Now()
		err := serve(x, in)
		name, queue, status := "", "", telemetry.OutcomeOK
		if x.enqueues != nil {
			name, queue = r.metrics.Named("type", x.enqueues.Name), r.metrics.Named("queue", x.enqueues.Namespace)
		}
		if err != nil {
			status = telemetry.OutcomeError
		}
		r.metrics.Enqueued.WithLabelValues(name, queue, status).Inc()
		r.metrics.EnqueueDuration.WithLabelValues(name, queue).Observe(time.Since(began).Seconds())
		return err
	}
}

// enqueue answers POST /v1/enqueue: 201 for a new task, 200 for the existing one with the
// key.
func (r *typeRoutes) enqueue(x *exchange, _ *struct{}) error {
	if err := r.admitRequest(); err != nil {
		return err
	}
	body, err := readBody[enqueueRequest](x, "enqueue")
	if err != nil {
		return err
	}
	b := &body.body
	body.required("type", b.Type, orchestration.MaxNameLength)
	body.text("queue", b.Queue, orchestration.MaxNameLength)
	if absent(b.Payload) {
		body.need("payload")
	}
	if err := body.err(); err != nil {
		return err
	}
	answer, err := through(x.request.Context(), r.guard, func(ctx context.Context) (*client.Enqueued, error) { return r.enqueued(ctx, x, b) })
	if err != nil {
		return err
	}
	if answer.Existing {
		return x.answer(answer)
	}
	return x.answerWith(http.StatusCreated, answer)
}

func (r *typeRoutes) enqueued(ctx context.Context, x *exchange, b *enqueueRequest) (*client.Enqueued, error) {
	plan, err := r.planOfType(ctx, x, b)
	if err != nil {
		return nil, err
	}
	x.enqueues = plan.Template
	if err := r.admitTask(plan.Template.Namespace); err != nil {
		return nil, err
	}
	b.fill(plan.Template)
	request, err := requestOf(&b.TaskRequest, x.request.Header.Get(correlationHeader), time.Now())
	if err != nil {
		return nil, inPayload(err)
	}
	request.Reach(x.reaches(request.Namespace))
	created, err := r.engine.Create(ctx, request)
	if err != nil {
		return nil, inPayload(err)
	}
	answer := &client.Enqueued{ID: created.UUID.String(), Status: workflow.TaskPending.String(), Queue: plan.Template.Namespace, Existing: created.Existing}
	if !created.Existing {
		return answer, nil
	}
	x.Header().Set(replayedHeader, "true")
	r.metrics.QueueDuplicates.WithLabelValues(r.metrics.Named("queue", plan.Template.Namespace)).Inc()
	task, err := r.readTask(ctx, created.UUID)
	if err != nil {
		return nil, err
	}
	answer.Status = execution.VisibleState(task.State, task.Counts()).String()
	return answer, nil
}

// planOfType looks for a type in the queue that the request names, or in all that its principal may
// act in: those of others neither count nor show.
func (r *typeRoutes) planOfType(ctx context.Context, x *exchange, b *enqueueRequest) (found *store.Plan, err error) {
	if b.Queue != "" {
		if err := within(ctx, b.Queue); err != nil {
			return nil, err
		}
	}
	queues := x.namespaces()
	if b.Queue != "" || queues == nil {
		return r.engine.PlanOfType(ctx, b.Queue, b.Type)
	}
	for _, queue := range queues {
		plan, err := r.engine.PlanOfType(ctx, queue, b.Type)
		unknown := (*orchestration.UnknownTypeError)(nil)
		switch {
		case errors.As(err, &unknown):
		case err != nil:
			return nil, err
		case found != nil:
			return nil, orchestration.AmbiguousType(b.Type)
		default:
			found = plan
		}
	}
	if found == nil {
		return nil, &orchestration.UnknownTypeError{Type: b.Type}
	}
	return found, nil
}

// inPayload turns problems of a context into problems of the payload.
func inPayload(err error) error { return renamed(err, "context", "payload") }

// renamed gives problems the names that their sender knows: names are pairs of one with which a
// problem may begin and its new one, of which the first pair that fits counts.
func renamed(err error, names ...string) error {
	var invalid *submission.InvalidError
	if !errors.As(err, &invalid) {
		return err
	}
	words := make([]string, len(invalid.Problems))
	for i, problem := range invalid.Problems {
		words[i] = problem
		for pair := range slices.Chunk(names, 2) {
			if rest, ok := strings.CutPrefix(problem, pair[0]); ok {
				words[i] = pair[1] + rest
				break
			}
		}
	}
	return &submission.InvalidError{Problems: words}
}
