package rest

import (
	"context"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

func (t *taskRoutes) batches(ctx context.Context, in *taskInput) (*client.Batches, error) {
	task, err := t.readTask(ctx, in.UUID)
	if err != nil {
		return nil, err
	}
	return batchesOf(task), nil
}

// batchesOf is the progress of a task's batches for the API.
func batchesOf(t *store.Task) *client.Batches {
	w := &client.Batches{TaskUUID: t.UUID.String(), Groups: make([]client.BatchGroup, 0, len(t.Progress.Groups))}
	for i := range t.Progress.Groups {
		w.Groups = append(w.Groups, groupOf(t, &t.Progress.Groups[i]))
	}
	return w
}

func groupOf(t *store.Task, g *workflow.Group) client.BatchGroup {
	w := client.BatchGroup{Batchable: t.StepName(g.Batchable), Worker: t.StepName(g.Template), Settled: g.Settled, Total: g.Count,
		Strategy: t.Plan.Steps[g.Template].FailureStrategy(), Batches: make([]client.Batch, 0, g.Count)}
	for i := range t.Steps {
		s := &t.Steps[i]
		if !g.Has(s.No) {
			continue
		}
		b := t.Batches[s.No]
		w.Batches = append(w.Batches, client.Batch{StepUUID: s.UUID.String(), Name: b.Name, BatchID: b.Cursor.BatchID, Start: b.Cursor.Start,
			End: b.Cursor.End, Items: b.Cursor.BatchSize, State: s.State.String(), Attempts: s.Attempts, Isolated: b.Isolated})
		w.IsolatedItems += b.Isolated
		w.NoOp = w.NoOp || b.NoOp
		w.TotalItems += b.Cursor.BatchSize
		countBatch(&w, s, b.Cursor.BatchSize)
	}
	setSpeed(&w)
	return w
}

func countBatch(w *client.BatchGroup, s *store.Step, items int64) {
	switch s.State {
	case workflow.StepPending, workflow.StepEnqueued:
		w.Pending++
	case workflow.StepWaitingForRetry:
		w.WaitingForRetry++
	case workflow.StepComplete, workflow.StepResolvedManually:
		w.Complete++
		w.CompletedItems += items
		if at := s.CompletedAt; at != nil && (w.LastEndedAt == nil || at.After(w.LastEndedAt.Time)) {
			w.LastEndedAt = instant(at)
		}
	case workflow.StepError:
		w.Failed++
	case workflow.StepCancelled:
		w.Cancelled++
	default:
		w.InProgress++
	}
	at := s.StartedAt
	if at == nil {
		at = s.LastAttemptAt // it runs for the first time
	}
	if at != nil && (w.StartedAt == nil || at.Before(w.StartedAt.Time)) {
		w.StartedAt = instant(at)
	}
}

// setSpeed computes the speed and the remaining time. Both ends of the time are the
// database's.
func setSpeed(w *client.BatchGroup) {
	if w.StartedAt == nil || w.LastEndedAt == nil || w.CompletedItems == 0 {
		return
	}
	took := w.LastEndedAt.Sub(w.StartedAt.Time).Seconds()
	if took <= 0 {
		return
	}
	speed := float64(w.CompletedItems) / took
	w.PerSecond = &speed
	if !w.Settled && w.Failed+w.Cancelled == 0 {
		w.SecondsLeft = new(float64(w.TotalItems-w.CompletedItems) / speed)
	}
}
