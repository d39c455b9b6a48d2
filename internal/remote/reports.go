package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/worker"
)

// Report ends steps that a session holds, and returns when their ends are recorded. A
// report may be sent again while the session lives: it is answered as before.
func (h *Hub) Report(ctx context.Context, id uuid.UUID, list []Report) (Reported, error) {
	out := Reported{Rejected: []Rejection{}}
	s, err := h.enter(id)
	if err != nil {
		return out, err
	}
	defer h.leave(s)
	var awaited []*step
	for i := range list {
		r := &list[i]
		if err := cmp.Or(r.check(), s.checkNext(r), r.wrap()); err != nil {
			out.Rejected = append(out.Rejected, Rejection{r.Fence, 400, err.Error()})
			continue
		}
		w, ok := h.report(s, r)
		if !ok {
			h.cfg.Metrics.SessionReportsRejected.Inc()
			h.log.Warn("a report of a session came too late and was rejected", s.logged(), zap.String("fence", r.Fence))
			out.reject(r.Fence)
		}
		if w != nil {
			awaited = append(awaited, w)
		}
	}
	return out, h.confirmed(ctx, awaited, &out)
}

// checkNext refuses a next task in a namespace that the session is not in.
func (s *session) checkNext(r *Report) error {
	if r.Next == nil || r.Next.Namespace == "" || s.in(r.Next.Namespace) {
		return nil
	}
	return fmt.Errorf("invalid next.namespace %.64q: want one of the session", r.Next.Namespace)
}

// reject answers a report that changes nothing.
func (out *Reported) reject(fence string) {
	out.Rejected = append(out.Rejected, Rejection{fence, 409, ErrNotHeld.Error()})
}

// report reports whether the session held the step and nothing else had decided it, and
// returns the step if its end is still to be recorded.
func (h *Hub) report(s *session, r *Report) (w *step, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := s.held[r.Fence]
	if held == nil { // sent again?
		w = s.reported[r.Fence]
		return w, w != nil || s.recent.has(r.Fence)
	}
	delete(s.held, r.Fence)
	took := held.decideLocked(ending{report: r})
	h.fillLocked(s)
	if took && h.cfg.ConfirmWithin > 0 && (r.Outcome == Success || r.Outcome == Failure) {
		s.reported[r.Fence] = held
		return held, true
	}
	return nil, took || r.Outcome == Returned
}

// recorded marks the end of a step as recorded, or as rejected by the fence of its claim.
func (h *Hub) recorded(w *step, accepted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.accepted = accepted
	close(w.recorded)
	if s := w.session; s != nil {
		delete(s.reported, w.message.Fence)
		if accepted {
			s.recent.add(w.message.Fence)
		}
	}
}

// confirmed waits until the ends of the steps are recorded, for at most ConfirmWithin.
func (h *Hub) confirmed(ctx context.Context, awaited []*step, out *Reported) error {
	bounded, cancel := context.WithTimeout(ctx, h.cfg.ConfirmWithin)
	defer cancel()
	for _, w := range awaited {
		select {
		case <-w.recorded:
		case <-bounded.Done():
		}
		switch {
		case !w.isRecorded() && ctx.Err() != nil:
			return context.Cause(ctx)
		case !w.isRecorded() && errors.Is(context.Cause(w.ctx), worker.ErrLeaseLost), w.isRecorded() && !w.accepted:
			out.reject(w.message.Fence)
		case !w.isRecorded():
			out.Unrecorded = append(out.Unrecorded, w.message.Fence)
		}
	}
	return nil
}

func (s *step) isRecorded() bool {
	select {
	case <-s.recorded:
		return true
	default:
		return false
	}
}

// Save saves a checkpoint and returns when it was saved, by the clock of the database.
// The errors are ErrNotHeld, an *InvalidError and those of worker.StepContext.Checkpoint.
func (h *Hub) Save(id uuid.UUID, c Save) (at time.Time, err error) {
	err = h.use(id, c.Fence, func(ctx *worker.StepContext) error {
		if err := isolate(ctx, c.Isolated); err != nil {
			return invalid("%v", err)
		}
		err := ctx.Checkpoint(c.Cursor, c.Items, orNil(c.Accumulated))
		at = ctx.CheckpointTime()
		return err
	})
	if errors.Is(err, worker.ErrLeaseLost) {
		err = ErrNotHeld
	}
	return at, err
}

// recentFences are the fences recorded last, so that reports sent again are known.
type recentFences struct {
	ring []string
	next int
	all  map[string]bool
}

func newRecentFences(size int) recentFences {
	return recentFences{ring: make([]string, size), all: make(map[string]bool, size)}
}

func (r *recentFences) add(fence string) {
	delete(r.all, r.ring[r.next])
	r.ring[r.next], r.all[fence] = fence, true
	r.next = (r.next + 1) % len(r.ring)
}

func (r *recentFences) has(fence string) bool { return r.all[fence] }
