package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// deliver sends batches until there are no more.
func (p *Producer) deliver() {
	for b := range p.batches {
		p.send(b.tasks, false)
		close(b.ended)
	}
}

// send creates tasks and reports the outcome of each.
func (p *Producer) send(tasks []producedTask, earlier arrival) {
	for attempt := 0; len(tasks) > 0; attempt++ {
		if err := p.waitToResume(); err != nil {
			if !earlier {
				err = notSent(err)
			}
			p.fail(tasks, err)
			return
		}
		answer, err := createTasks(p.ctx, p.client, bodiesOf(tasks), ruleOf(tasks), &earlier)
		if err == nil && len(answer.Results) != len(tasks) {
			err = fmt.Errorf("read the answer: %d results for %d tasks", len(answer.Results), len(tasks))
		}
		var refused *Error
		switch {
		case err == nil:
			tasks, refused = report(tasks, answer)
			p.pause(attempt, refused)
		case errors.As(err, &refused) && refused.turnedAway():
			p.pause(attempt, refused)
		case refused != nil && blamesBody(refused.Status) && len(tasks) > 1:
			half := len(tasks) / 2
			p.send(tasks[:half], earlier)
			tasks = tasks[half:]
		case unsent(err) && !bool(earlier):
			p.fail(tasks, notSent(err))
			return
		default:
			p.fail(tasks, err)
			return
		}
	}
}

// blamesBody reports whether a status says that a body is too large or invalid.
func blamesBody(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge || status == http.StatusUnprocessableEntity
}

func bodiesOf(tasks []producedTask) (bodies []json.RawMessage) {
	for i := range tasks {
		bodies = append(bodies, tasks[i].body)
	}
	return bodies
}

func ruleOf(tasks []producedTask) retryRule {
	if slices.ContainsFunc(tasks, func(t producedTask) bool { return !t.keyed }) {
		return retryUnsent
	}
	return retryPaced
}

// report reports the outcomes of tasks, except of those turned away, which it returns
// with the error of the last of them.
func report(tasks []producedTask, answer *TaskBatch) (again []producedTask, why *Error) {
	for i := range answer.Results {
		result := &answer.Results[i]
		if result.Error == nil {
			tasks[i].done(TaskOutcome{TaskUUID: result.TaskUUID, Existing: result.Existing})
			continue
		}
		if err := result.Error.failure(); err.turnedAway() {
			again, why = append(again, tasks[i]), err
		} else {
			tasks[i].done(TaskOutcome{Err: err})
		}
	}
	return again, why
}

// fail reports that tasks were not created, as far as is known.
func (p *Producer) fail(tasks []producedTask, err error) {
	if p.ctx.Err() != nil {
		p.lost.Add(int64(len(tasks)))
	}
	for i := range tasks {
		tasks[i].done(TaskOutcome{Err: err})
	}
}

func notSent(cause error) error { return fmt.Errorf("%w: %w", ErrNotSent, cause) }

// pause delays all senders by the server's Retry-After; nil: no delay.
func (p *Producer) pause(attempt int, why *Error) {
	if why == nil {
		return
	}
	until := time.Now().Add(delay(attempt, why))
	p.mu.Lock()
	defer p.mu.Unlock()
	if until.After(p.resume) {
		p.resume = until
	}
}

// waitToResume waits until requests may be sent; the error is why the producer
// has ended.
func (p *Producer) waitToResume() error {
	for {
		p.mu.Lock()
		left := time.Until(p.resume)
		p.mu.Unlock()
		if left <= 0 || p.ctx.Err() != nil {
			return context.Cause(p.ctx)
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-p.ctx.Done():
			timer.Stop()
		}
	}
}
