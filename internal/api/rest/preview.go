package rest

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
)

// notCreated is the state of a step that would be forgotten.
const notCreated = "not_created"

// preview answers POST /v1/tasks/{uuid}/actions/preview.
func (r *actionRoutes) preview(ctx context.Context, in *taskInput, body *request[client.TaskAction]) (*client.ActionPreview, error) {
	id := in.UUID
	action, err := r.taskAction(ctx, id, body, true)
	if err != nil {
		return nil, err
	}
	found, err := r.foresee(ctx, id, body.body.Action, action)
	if err != nil {
		return nil, r.refusedTask(ctx, id, body.body.Action, err)
	}
	task, err := r.readTask(ctx, id)
	if err != nil {
		return nil, err
	}
	if !exchangeOf(ctx).showsInputs() {
		found.ContextBefore, found.ContextAfter = nil, nil
	}
	return previewOf(task, body.body.Action, found)
}

func (r *actionRoutes) foresee(ctx context.Context, id uuid.UUID, action string, a orchestration.Action) (orchestration.Preview, error) {
	switch action {
	case client.ActionReplay:
		return r.engine.PreviewReplay(ctx, id, replayOf(&a))
	case client.ActionDeadLetter:
		return orchestration.Preview{}, badRequest("no preview of " + action)
	}
	return r.engine.Preview(ctx, id, a)
}

func previewOf(t *store.Task, action string, p orchestration.Preview) (*client.ActionPreview, error) {
	w := &client.ActionPreview{TaskUUID: t.UUID.String(), Action: action, Steps: make([]client.StepPreview, 0, len(p.Steps)),
		ContextBefore: p.ContextBefore, ContextAfter: p.ContextAfter}
	if p.Ended != 0 {
		w.EndsAs = p.Ended.String()
	}
	from := make(map[int]string, len(t.Steps))
	for i := range t.Steps {
		from[t.Steps[i].No] = t.Steps[i].State.String()
	}
	for _, s := range p.Steps {
		to := notCreated
		if !s.Gone {
			to = s.State.String()
		}
		name, run := s.Batch, s.Run
		if name == "" {
			name, run = t.StepName(s.Step), t.Batches[s.Step].Run
		}
		w.Steps = append(w.Steps, client.StepPreview{StepUUID: store.BatchUUID(t.UUID, s.Step, run).String(), Name: name, From: from[s.Step], To: to})
	}
	var err error
	w.ContextChanges, w.MoreContextChanges, err = contextChanges(p.ContextBefore, p.ContextAfter)
	return w, err
}

// maxContextChanges is how many changes of a context are listed.
const maxContextChanges = 100

// contextChanges compares two contexts; empty if one is missing.
func contextChanges(before, after json.RawMessage) (list []client.ContextChange, more bool, err error) {
	if before == nil || after == nil {
		return nil, false, nil
	}
	changes, more, err := submission.ContextChanges(before, after, maxContextChanges)
	for _, c := range changes {
		list = append(list, client.ContextChange(c))
	}
	return list, more, err
}
