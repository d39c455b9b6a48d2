package remote

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tasker-go/tasker/internal/tracing"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// step is a claimed step that waits for a session or for its report.
type step struct {
	ctx     *worker.StepContext
	def     workflow.HandlerReference
	message Step
	done    chan ending  // capacity 1: filled by the one that decides the step
	uses    sync.RWMutex // held for reading while a request uses ctx

	// Guarded by the hub's lock.
	decided  bool
	session  *session          // nil: it waits for one
	content  [sha256.Size]byte // of the report that decided it
	handed   bool              // it was part of an answer
	notice   string            // why it was cancelled
	handedIn int64             // the first answer that it was part of; 0: its process had it before
	toldIn   int64             // the answer of its session that told of it, or of its notice; 0: none yet

	recorded chan struct{} // closed when the end is recorded
	accepted bool          // it was not too late; set before
}

// ending is what decides a step: a report, or else an error.
type ending struct {
	report *Report
	err    error
}

// lostError is the failure of a step whose session is lost, where its loss cannot be recorded.
type lostError struct{}

func (lostError) Error() string {
	return "the process that ran the step was lost: its session made no request within the grace"
}

// ErrorType returns the error_type of the failure.
func (lostError) ErrorType() string { return "ExecutorLost" }

// retryLost is the delay before a step of a lost session may run again: as good as none.
const retryLost = time.Millisecond

var (
	errNotBegun  = errors.New("no session took the step")
	errWasReturn = errors.New("the session returned the step without running it")
)

// run is the handler of all steps of a callable.
func (h *Hub) run(ctx *worker.StepContext, def workflow.HandlerReference) (any, error) {
	s := &step{ctx: ctx, def: def, done: make(chan ending, 1), recorded: make(chan struct{})}
	s.message = s.describe()
	ctx.OnRecorded(func(accepted bool) { h.recorded(s, accepted) })
	h.take(s)
	select {
	case end := <-s.done:
		s.uses.Lock() // requests that use the context end first
		defer s.uses.Unlock()
		return s.conclude(end)
	case <-ctx.Done():
		withdrawn := h.withdraw(s, context.Cause(ctx))
		s.uses.Lock()
		defer s.uses.Unlock()
		if !withdrawn { // an accepted report counts
			return s.conclude(<-s.done)
		}
		return nil, context.Cause(ctx)
	}
}

// withdraw ends a step whose context has ended, and tells its session. It reports whether nothing
// else has ended it before.
func (h *Hub) withdraw(s *step, cause error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.decided {
		return false
	}
	s.decided = true
	switch {
	case s.session == nil:
		h.waiting = slices.DeleteFunc(h.waiting, func(w *step) bool { return w == s })
	case !s.handed:
		s.session.forgetLocked(s)
		h.fillLocked(s.session)
	default:
		s.notice, s.toldIn = reason(cause), 0
		s.session.cancelled = append(s.session.cancelled, s)
		s.session.wakeLocked()
	}
	return true
}

// decideLocked ends a step. It reports whether nothing else has before.
func (s *step) decideLocked(end ending) bool {
	if s.decided {
		return false
	}
	s.decided = true
	s.done <- end
	return true
}

// conclude turns an ending into what a handler returns.
func (s *step) conclude(end ending) (any, error) {
	r := end.report
	if r == nil {
		return nil, end.err
	}
	if r.Outcome == Success || r.Outcome == Yield {
		if err := isolate(s.ctx, r.Isolated); err != nil {
			return nil, err
		}
	}
	if len(r.Made) > 0 {
		s.ctx.SetForeignEvents(r.made())
	}
	switch r.Outcome {
	case Success:
		if r.Metadata != nil {
			metadata, err := object(r.Metadata)
			if err == nil {
				err = s.ctx.SetMetadata(metadata)
			}
			if err != nil {
				return nil, err
			}
		}
		for i := range r.Events {
			if err := s.ctx.Publish(r.Events[i].Name, r.Events[i].Payload); err != nil {
				return nil, err
			}
		}
		if r.Next != nil {
			next, err := r.Next.request(time.Now())
			if err != nil {
				return nil, err
			}
			return worker.Continue[any](r.Result, next)
		}
		return r.Result, nil
	case Failure:
		return nil, r.Error.err()
	case Yield:
		c := r.Checkpoint
		return nil, worker.Yield(c.Cursor, c.Items, orNil(c.Accumulated))
	}
	return nil, worker.HandBack(errWasReturn)
}

// made are the declared events that the publishers of the process have made.
func (r *Report) made() map[string]worker.ForeignEvent {
	made := make(map[string]worker.ForeignEvent, len(r.Made))
	for i := range r.Made {
		made[r.Made[i].Name] = worker.ForeignEvent{Payload: r.Made[i].Payload, Metadata: r.Made[i].Metadata, Skip: r.Made[i].Skip}
	}
	return made
}

func isolate(ctx *worker.StepContext, items []Isolated) error {
	for i := range items {
		if err := ctx.Isolate(items[i].Item, items[i].Error.err()); err != nil {
			return err
		}
	}
	return nil
}

// orNil is nil for an absent document, which has no JSON form.
func orNil(doc json.RawMessage) any {
	if doc == nil {
		return nil
	}
	return doc
}

// describe makes the message of a step, without its fence.
func (s *step) describe() Step {
	c := s.ctx
	m := Step{
		TaskUUID: c.TaskUUID(), StepUUID: c.StepUUID(), CorrelationID: c.CorrelationID(), Namespace: c.Namespace(), TaskName: c.TaskName(),
		TaskVersion: c.Version(), StepName: c.StepName(), Callable: s.def.Callable, Method: s.def.Method, Resolver: s.def.Resolver, Attempt: c.Attempt(),
		MaxAttempts: c.MaxAttempts(), Priority: c.Priority(), RequestedAt: c.RequestedAt(), Context: c.Input(),
		Initialization: c.Config(), DependencyResults: c.DependencyResults(), BatchSteps: c.BatchSteps(),
	}
	m.Traceparent, m.Tracestate = tracing.Traceparent(c)
	if id, ok := c.ParentCorrelationID(); ok {
		m.ParentCorrelationID = &id
	}
	if b, ok := c.Batch(); ok {
		m.Batch = &Batch{ID: b.ID, Start: b.Start, End: b.End, Size: b.Size, NoOp: b.NoOp, CursorField: b.CursorField, FailureStrategy: b.FailureStrategy}
		m.Items, _ = c.BatchItems()
	}
	if c.HasCheckpoint() {
		at := c.CheckpointTime()
		m.Checkpoint = &Checkpoint{Cursor: c.CheckpointCursor(), Items: c.CheckpointItemsProcessed(), Accumulated: c.AccumulatedResults(), Timestamp: &at}
	}
	return m
}

// fence names one hand-over of a claim: a process that got the step earlier, from a
// session that has ended since, cannot report it.
func fence(token int64, handover uint64) string {
	return strconv.FormatInt(token, 10) + "." + strconv.FormatUint(handover, 10)
}

// reason is the word for why the context of a step has ended.
func reason(cause error) string {
	switch {
	case errors.Is(cause, worker.ErrTimeout):
		return "timeout"
	case errors.Is(cause, worker.ErrShutdown):
		return "shutdown"
	}
	return "lease_lost"
}
