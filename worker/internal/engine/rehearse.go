package engine

import (
	"context"
	"errors"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker/events"
	"github.com/tasker-go/tasker/workflow"
)

// errNoDatabase: the engine has a board in memory, and no transactions.
var errNoDatabase = errors.New("the worker has no database")

// Rehearsal runs claims one by one for package workertest: handlers see what they see in a
// worker, and nothing is recorded.
type Rehearsal struct {
	Run       func(plan *store.Plan, c *store.Claimed) (Played, error)
	Templates []*workflow.Template // registered in the worker
	Close     func(ctx context.Context) error
}

// Played is how a rehearsed execution ended.
type Played struct {
	Ending
	Report store.Report   // of Success and Failed: what would be recorded
	Events []events.Event // that would be published
	// NoDatabase: the handler needed a transaction, which a rehearsal does not have.
	NoDatabase bool
	Fraction   float64 // of Progress, with Message
	Message    string
}

// Rehearse runs the handler of a claim. As in a worker, a handler whose time limit has
// passed is not waited for.
func (e *Engine) Rehearse(plan *store.Plan, c *store.Claimed) (*Execution, Played, error) {
	x := e.execution(c, time.Time{})
	j, err := e.job(plan, x.jobKey())
	if err != nil {
		return nil, Played{}, err
	}
	x.describe(j)
	x.Ctx.limit(time.Now().Add(j.limit))
	defer x.Ctx.end(context.Canceled)
	end := e.rehearse(x)
	if end.Kind == Success || end.Kind == Failed {
		e.compose(x, end)
	}
	p := Played{Ending: end, Report: x.Report, NoDatabase: x.noDatabase.Load()}
	p.Fraction, p.Message = x.Progress.Get()
	return x, p, nil
}

// rehearse runs the handler in a goroutine of its own, which it may end.
func (e *Engine) rehearse(x *Execution) Ending {
	done := make(chan Ending, 1)
	var group conc.WaitGroup
	group.Go(func() {
		end := Failing(Errorf(TypePanic, "the handler ended its goroutine"))
		defer func() { done <- end }()
		if err := lifecycle.Guard(func() error { end = x.Step.Run(); return nil }); err != nil {
			end = Failing(err)
		}
	})
	select {
	case end := <-done:
		return end
	case <-x.Ctx.Done():
	}
	select {
	case end := <-done: // both at once: the handler has heeded its context
		return end
	default:
		return Failing(timedOut(x))
	}
}
