package orchestration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
)

// Replay requests a repetition of a task.
type Replay struct {
	Actor, Reason string // required
	// Edit says how the new context differs from the old one; nil: it does not.
	Edit *ContextEdit
}

// Replay creates a new task from an old one, alive or ended. Its parent correlation id
// is the correlation id of the old one. An open investigation of the old task is closed
// and names the new one. Where an earlier replay created the task but ended before it
// closed the investigation, Replay closes it: the answer is that task, or a
// *DuplicateError where this request has another context.
func (o *Orchestrator) Replay(ctx context.Context, task uuid.UUID, r Replay) (Created, error) {
	if err := checkActor(r.Actor, r.Reason); err != nil {
		return Created{}, err
	}
	old, err := o.store.Task(ctx, task)
	if err != nil {
		return Created{}, fmt.Errorf("replay: %w", err)
	}
	key := "replay/" + uuid.NewString()
	letter, err := o.store.DeadLetterOfTask(ctx, task)
	open := err == nil && letter.Resolution == store.ResolutionPending
	switch {
	case open:
		key = "replay/" + letter.UUID.String() // a repeated request must not create two
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return Created{}, fmt.Errorf("replay: %w", err)
	}
	request, err := replayed(old, r, key)
	if err != nil {
		return Created{}, err
	}
	created, err := o.createReplay(ctx, request)
	if !open {
		return created, err
	}
	var before *DuplicateError
	switch {
	case errors.As(err, &before):
		created = Created{UUID: before.Existing, Existing: true}
	case err != nil:
		return created, err
	}
	if marked := o.store.MarkReplayed(ctx, letter.UUID, created.UUID, r.Actor); marked != nil {
		return created, fmt.Errorf("replay: close the investigation: %w", marked)
	}
	if created.Existing && r.Edit == nil {
		err = nil
	}
	return created, err
}

// createReplay is Create, but its identity never expires: a repeated replay must not
// create two tasks, however short the template keeps the keys of its callers.
func (o *Orchestrator) createReplay(ctx context.Context, r Request) (Created, error) {
	o.judge(&r)
	task, err := submission.Prepare(ctx, o.store, &r)
	if err != nil {
		return Created{}, err
	}
	task.IdentityEnd = dedup.IdentityEnd{}
	return o.insert(ctx, &task, &r)
}

func replayed(old *store.Task, r Replay, key string) (request Request, err error) {
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	t := old.Plan.Template
	request = Request{
		Namespace: t.Namespace, Name: t.Name, Version: t.Version, Context: old.Context, Priority: &old.Priority, Tags: old.Tags,
		Initiator: r.Actor, SourceSystem: text(old.SourceSystem), Reason: r.Reason,
		ParentCorrelationID: &old.CorrelationID, IdempotencyKey: key,
	}
	if r.Edit != nil {
		request.Context, err = r.Edit.Merge(old.Context)
	}
	if old.Progress != nil && old.Progress.Retry != nil {
		retry := old.Progress.Retry
		request.MaxAttempts = retry.MaxAttempts
		request.RetryDelays = retry.Delays()
	}
	return request, err
}

// ReplayMany requests the replay of the tasks of many open investigations.
type ReplayMany struct {
	Filter        store.DeadLetterFilter
	PerSecond     float64 // 0: as fast as they can be created
	Limit         int     // 1–maxBulk; 0: maxBulk
	DryRun        bool
	Actor, Reason string
}

// ReplayDeadLetters replays the tasks of open investigations, oldest first. It ends
// with ctx; tasks replayed by then stay. A task that the database rejects does not affect the
// others.
func (o *Orchestrator) ReplayDeadLetters(ctx context.Context, r ReplayMany) (BulkResult, error) {
	result := BulkResult{DryRun: r.DryRun}
	if err := checkActor(r.Actor, r.Reason); err != nil {
		return result, err
	}
	limit, err := limited(r.Limit, maxBulk)
	if r.PerSecond < 0 {
		err = invalid("per_second must not be negative")
	}
	if err != nil {
		return result, err
	}
	pending := store.ResolutionPending
	r.Filter.Resolution, r.Filter.Limit, r.Filter.Offset, r.Filter.OldestFirst = &pending, limit, 0, true
	letters, _, err := o.store.DeadLetters(ctx, r.Filter)
	if err != nil {
		return result, fmt.Errorf("replay: %w", err)
	}
	result.Matched = len(letters)
	for i := range letters[:min(len(letters), bulkShown)] {
		result.Tasks = append(result.Tasks, letters[i].TaskUUID)
	}
	if r.DryRun {
		result.Changed = len(letters)
		return result, nil
	}
	for i := range letters {
		failure := o.replayOne(ctx, &letters[i], r, &result)
		if err = cmp.Or(err, failure); failure != nil && !refused(ctx, failure) {
			break
		}
		if late := pace(ctx, r.PerSecond); late != nil {
			err = errors.Join(err, fmt.Errorf("replay: %w", late))
			break
		}
	}
	return result, errors.Join(err, o.store.RecordAction(context.WithoutCancel(ctx), store.OperatorAction{Actor: r.Actor, Action: "replay", Reason: r.Reason,
		Target: r.Filter, Matched: result.Matched, Changed: result.Changed}))
}

func (o *Orchestrator) replayOne(ctx context.Context, letter *store.DeadLetter, r ReplayMany, result *BulkResult) error {
	_, err := o.Replay(ctx, letter.TaskUUID, Replay{Actor: r.Actor, Reason: r.Reason})
	var duplicate *DuplicateError
	var invalid *InvalidError
	var unknown *UnknownTemplateError
	switch {
	case err == nil:
		result.Changed++
	case errors.As(err, &duplicate), errors.As(err, &invalid), errors.As(err, &unknown), errors.Is(err, store.ErrNotFound):
		result.Skipped++
	case refused(ctx, err):
		result.Skipped++
		return err
	default:
		return err
	}
	return nil
}

// pace waits so that at most perSecond pass per second.
func pace(ctx context.Context, perSecond float64) error {
	if perSecond <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(time.Duration(float64(time.Second) / perSecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
