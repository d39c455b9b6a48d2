package main

import (
	"context"
	"time"

	"github.com/tasker-go/tasker/client"
)

const (
	// shortestPause and longestPause bound how often a task is asked for.
	shortestPause = 200 * time.Millisecond
	longestPause  = 2 * time.Second
	// longestWait bounds one long poll, so that a connection lost on the way
	// is noticed.
	longestWait = 20 * time.Second
	// maxLosses is how many calls in a row may fail before watching ends; each
	// has been repeated by the client already.
	maxLosses = 5
)

// poll asks for a task again and again. A server that knows ?wait answers when
// the task ends or the time is over; with one that does not, poll waits
// itself, so that neither is asked too often.
type poll struct {
	app    *app
	client *client.Client
	task   string
	losses int
}

func (a *app) newPoll(c *api, task string) *poll {
	return &poll{app: a, client: c, task: task}
}

// next returns the task when it has ended, else after about wait.
func (p *poll) next(ctx context.Context, wait time.Duration) (*client.Task, error) {
	began := p.app.now()
	task, err := p.client.Task(ctx, p.task, wait)
	if err != nil {
		return p.lost(ctx, err)
	}
	p.losses = 0
	// An answer long before its time means that the server did not wait.
	early := wait - p.app.now().Sub(began)
	if !task.Terminal() && early > wait/2 {
		err = p.app.pause(ctx, min(early, longestPause))
	}
	return task, err
}

// lost tries on while the server may come back.
func (p *poll) lost(ctx context.Context, err error) (*client.Task, error) {
	p.losses++
	if exitCode(err) != exitUnavailable || p.losses > maxLosses || ctx.Err() != nil {
		return nil, err
	}
	if p.losses == 1 {
		p.app.warnf("the orchestrator does not answer, trying again")
	}
	if err := p.app.pause(ctx, longestPause); err != nil {
		return nil, err
	}
	return p.next(ctx, 0)
}

// sleep is the real pause: it ends early with an error when ctx does.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
