package rest

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
)

const transitionStreamPath = "/v1/transitions/stream"

// transitionStreams send transitions of tasks over open connections.
type transitionStreams struct {
	*orchestratorAPI
	streamPlaces
}

type transitionQuery struct {
	Task      string `query:"task_uuid" format:"uuid" doc:"Of this task; the stream ends with it"`
	Namespace string `query:"namespace" doc:"Of the tasks of this namespace; without it and a task: of all"`
}

func (s *transitionStreams) add() {
	addOwn[transitionQuery, struct{}, string](s.api, operation{tag: "tasks", media: eventStreamMedia}.at(http.MethodGet, transitionStreamPath, "stream-transitions",
		"Follow the transitions of a task, a namespace or all tasks (server-sent events); continues after Last-Event-ID"), s.serve)
}

// scope reads what the client wants to follow, and whether it may.
func (s *transitionStreams) scope(ctx context.Context, q *transitionQuery) (scope store.Scope, err error) {
	var c checked
	namespace := c.text("namespace", q.Namespace, orchestration.MaxNameLength)
	if err := c.err(); err != nil {
		return scope, err
	}
	if q.Task == "" {
		if err := within(ctx, namespace); err != nil || namespace == "" {
			return scope, err
		}
		queues, err := through(ctx, s.guard, func(ctx context.Context) (map[string]int32, error) { return s.store.Queues(ctx, []string{namespace}) })
		if scope.Queue = queues[namespace]; err == nil && scope.Queue == 0 {
			err = &failure{status: http.StatusNotFound, code: codeNotFound, message: fmt.Sprintf("There is no namespace %q", namespace)}
		}
		return scope, err
	}
	if scope.Task, err = parseTask(q.Task); err != nil {
		return scope, err
	}
	task, err := through(ctx, s.guard, func(ctx context.Context) (*store.Task, error) { return s.store.TaskWithoutResults(ctx, scope.Task) })
	if err != nil {
		return scope, ofTask(scope.Task, err)
	}
	of := task.Plan.Template.Namespace
	if err := withinThing(ctx, scopeTask, scope.Task.String(), of); err != nil {
		return scope, err
	}
	if namespace != "" && namespace != of {
		err = ofTask(scope.Task, store.ErrNotFound)
	}
	return scope, err
}

func (s *transitionStreams) serve(x *exchange, q *transitionQuery) error {
	ctx := x.request.Context()
	scope, err := s.scope(ctx, q)
	if err != nil {
		return err
	}
	leave, err := s.take(x)
	if err != nil {
		return err
	}
	defer leave()
	f, err := through(ctx, s.guard, func(ctx context.Context) (*orchestration.Following, error) {
		return s.engine.Follow(ctx, scope, x.request.Header.Get("Last-Event-ID"))
	})
	if err != nil {
		return err
	}
	defer f.Close()
	t := transitionStream{s, scope.Task, f, newStream(x)}
	s.ended(t.run(ctx), x.left)
	return nil
}

// transitionStream is one open connection.
type transitionStream struct {
	*transitionStreams
	task uuid.UUID // uuid.Nil: many
	f    *orchestration.Following
	w    *streamWriter
}

// run sends until the stream ends, and returns why.
func (t *transitionStream) run(ctx context.Context) (reason string) {
	first := <-t.f.Batches
	place := first.ID
	if len(first.List) > 0 {
		place = "" // comes with the last of them
	}
	t.w.name("open", place, struct{}{})
	ended := t.batch(first)
	if t.task != uuid.Nil && !ended {
		var err error
		if ended, err = t.snapshot(ctx); err != nil {
			return endError // the client comes again
		}
	}
	beat, life := time.NewTicker(streamBeat), time.NewTimer(streamLife)
	defer beat.Stop()
	defer life.Stop()
	for !ended && t.w.x.left == nil {
		select {
		case <-ctx.Done():
			return endLeft
		case <-t.stopping.Done():
			return endStopping
		case <-life.C:
			return endComplete
		case <-beat.C:
			if id := t.f.ID(); id != "" {
				t.w.send([]byte("id: " + id + "\n\n"))
				continue
			}
			t.w.send([]byte(": beat\n\n"))
		case b, more := <-t.f.Batches:
			if !more {
				return endSlow
			}
			ended = t.batch(b)
		}
	}
	return endComplete
}

// snapshot sends the task as it is. It was read after the place of the first batch, so
// what follows may tell of changes that it shows. One that has ended has its last
// transitions before it.
func (t *transitionStream) snapshot(ctx context.Context) (ended bool, err error) {
	task, err := through(ctx, t.guard, func(ctx context.Context) (*store.Task, error) { return t.store.TaskWithoutResults(ctx, t.task) })
	if err != nil {
		return true, err
	}
	if task.State.Terminal() {
		if err := t.f.Refresh(ctx); err != nil {
			return true, err
		}
		for {
			select {
			case b, more := <-t.f.Batches:
				if more {
					t.batch(b)
					continue
				}
			default:
			}
			break
		}
	}
	t.w.name("snapshot", "", taskFor(ctx, task, true))
	t.w.x.answers.giveBack()
	return task.State.Terminal(), nil
}

// batch sends transitions; true: the task of the stream has ended.
func (t *transitionStream) batch(b orchestration.TransitionBatch) (ended bool) {
	if b.Reset {
		t.w.name("reset", b.ID, struct{}{})
	}
	if b.Overflow {
		t.w.name("overflow", b.ID, struct{}{})
	}
	if len(b.List) > 0 {
		t.w.send(b.Rendered.Text(func() []byte { return transitionEvents(b) }))
		t.metrics.TransitionsSent.Add(float64(len(b.List)))
	}
	return t.task != uuid.Nil && slices.ContainsFunc(b.List, func(x store.Transition) bool { return x.To.Terminal() })
}

// transitionEvents are the events of a batch with their places.
func transitionEvents(b orchestration.TransitionBatch) []byte {
	var text bytes.Buffer
	for i := range b.List {
		writeEvent(&text, transitionName(&b.List[i]), b.Place(i), transitionOf(&b.List[i]))
	}
	return text.Bytes()
}

func transitionName(t *store.Transition) string {
	if t.Step != nil {
		return "step"
	}
	return "task"
}

func transitionOf(t *store.Transition) client.Transition {
	w := client.Transition{TaskUUID: t.Task.String(), Namespace: t.Namespace, Name: t.Name, Version: t.Version, At: t.At}
	if t.Step != nil {
		w.Step, w.StepNo, w.Attempt, w.Outcome = t.StepName, t.Step, t.Attempt, t.Outcome.String()
		return w
	}
	if w.State = t.To.String(); t.From != 0 {
		w.From = t.From.String()
	}
	return w
}

// name sends one event.
func (w *streamWriter) name(event, id string, data any) {
	var text bytes.Buffer
	writeEvent(&text, event, id, data)
	w.send(text.Bytes())
}

// writeEvent writes an event; without an id the client keeps the one it has.
func writeEvent(b *bytes.Buffer, event, id string, data any) {
	var text bytes.Buffer
	if encodeTo(&text, data) != nil {
		return // never: what is sent has a form in JSON
	}
	if id != "" {
		fmt.Fprintf(b, "id: %s\n", id)
	}
	fmt.Fprintf(b, "event: %s\ndata: %s\n\n", event, bytes.TrimSpace(text.Bytes()))
}
