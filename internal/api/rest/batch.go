package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/places"
)

const (
	// maxBatches bounds the batches read and created at once; the others wait, their
	// bodies unread. It bounds the memory of batches.
	maxBatches = 4
	// maxBatchWait is how long a batch waits before it is answered with Retry-After:
	// batchRetry.
	maxBatchWait = 5 * time.Second
	batchRetry   = 2 * time.Second
	// batchBodies is the bound of a batch as a multiple of the bound of other bodies.
	batchBodies = 8
)

// createMany answers POST /v1/tasks/batch: each task separately, in order. The whole is
// rejected only if it is not a batch, or if no task was created for a reason outside of
// the tasks.
func (t *taskRoutes) createMany(x *exchange, _ *struct{}) error {
	if err := t.admitRequest(); err != nil {
		return err
	}
	ctx := x.request.Context()
	place, err := t.enterBatch(ctx)
	if err != nil {
		return err
	}
	defer place.Leave()
	raw, err := readRaw(x, batchBodies*t.cfg.MaxBodyBytes)
	if err != nil {
		return err
	}
	b := &batch{correlation: x.request.Header.Get(correlationHeader), now: time.Now()}
	if err := b.read(raw); err != nil {
		return err
	}
	b.turnAway(func(namespace string) error {
		if err := within(ctx, namespace); err != nil || t.admission == nil {
			return err
		}
		return t.admitTask(namespace)
	})
	for i := range b.requests {
		b.requests[i].Reach(x.reaches(b.requests[i].Namespace))
	}
	results, err := t.createdMany(ctx, b.requests)
	if err != nil {
		return err
	}
	answer, server := b.answer(results, func(err error) *failure { return t.fail(ctx, err) })
	if server != nil && answer.Created+answer.Existing == 0 {
		x.fail(server) // it is in the log already
		return nil
	}
	return x.answer(answer)
}

// createdMany creates tasks. The error is that of a circuit breaker that is open; otherwise
// each task has its own, and the breaker judges all of them together.
func (t *taskRoutes) createdMany(ctx context.Context, requests []orchestration.Request) (results []orchestration.CreateResult, err error) {
	if len(requests) == 0 {
		return nil, nil
	}
	err = t.guard.Do(ctx, func(ctx context.Context) error {
		results = t.engine.CreateMany(ctx, requests)
		refused := make([]*error, len(results))
		for i := range results {
			refused[i] = &results[i].Err
		}
		t.namesakes(ctx, refused...)
		errs := make([]error, len(results))
		for i := range results {
			errs[i] = results[i].Err
		}
		return errors.Join(errs...)
	})
	if results != nil {
		return results, nil
	}
	return nil, err
}

// enterBatch waits for a place, which the caller must release.
func (t *taskRoutes) enterBatch(ctx context.Context) (*places.Held, error) {
	waiting, cancel := context.WithTimeout(ctx, maxBatchWait)
	defer cancel()
	place, err := t.bulk.Take(waiting, exchangeOf(ctx).holder(), 1)
	switch {
	case err == nil:
		return place, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("wait for other batches: %w", ctx.Err())
	}
	return nil, refusedPlace(err, batchRetry, "Too many batches are being created")
}

// batch is the tasks of one request. A task that cannot be read has an error
// instead of a request.
type batch struct {
	correlation string
	now         time.Time
	requests    []orchestration.Request
	entries     []batchEntry
}

type batchEntry struct {
	request int // index of its request
	err     error
}

// read decodes a body: each task by itself, so that it is judged alone.
func (b *batch) read(raw []byte) error {
	var whole request[struct {
		Tasks []json.RawMessage `json:"tasks" maxItems:"10000"`
	}]
	if err := whole.decode(raw); err != nil {
		return err
	}
	if whole.need("tasks"); whole.missing != nil {
		return whole.err()
	}
	n := len(whole.body.Tasks)
	if n == 0 || n > client.MaxBatchTasks {
		return badRequest(fmt.Sprintf("tasks must have 1 to %d entries", client.MaxBatchTasks))
	}
	b.requests, b.entries = make([]orchestration.Request, 0, n), make([]batchEntry, 0, n)
	task := request[client.TaskRequest]{op: "create-task"} // clients send here what they send there
	for _, raw := range whole.body.Tasks {
		entry := batchEntry{request: len(b.requests), err: task.decode(raw)}
		if entry.err == nil {
			var request orchestration.Request
			if request, entry.err = creation(&task, b.correlation, b.now); entry.err == nil {
				b.requests = append(b.requests, request)
			}
		}
		b.entries = append(b.entries, entry)
	}
	return nil
}

// turnAway removes the tasks that are not admitted now.
func (b *batch) turnAway(admit func(namespace string) error) {
	kept := b.requests[:0]
	for i := range b.entries {
		entry := &b.entries[i]
		if entry.err != nil {
			continue
		}
		request := b.requests[entry.request]
		if entry.err = admit(request.Namespace); entry.err == nil {
			entry.request = len(kept)
			kept = append(kept, request)
		}
	}
	b.requests = kept
}

// answer returns the outcomes in the order of the tasks. fail converts an error; server
// is the first failure that no task caused.
func (b *batch) answer(results []orchestration.CreateResult, fail func(error) *failure) (answer *client.TaskBatch, server *failure) {
	answer = &client.TaskBatch{Results: make([]client.TaskBatchResult, len(b.entries))}
	var last error // each cause is logged once
	var lastFailure *failure
	for i, entry := range b.entries {
		result := &answer.Results[i]
		result.Index = i
		err := entry.err
		if err == nil {
			err = results[entry.request].Err
		}
		if err == nil {
			result.TaskUUID, result.Existing = results[entry.request].UUID.String(), results[entry.request].Existing
			if result.Existing {
				answer.Existing++
			} else {
				answer.Created++
			}
			continue
		}
		if lastFailure == nil || !errors.Is(err, last) || !errors.Is(last, err) {
			last, lastFailure = err, fail(err)
		}
		answer.Failed++
		result.Error = new(lastFailure.detail())
		if (lastFailure.status >= http.StatusInternalServerError || lastFailure.status == http.StatusRequestTimeout) && server == nil {
			server = lastFailure
		}
	}
	return answer, server
}
