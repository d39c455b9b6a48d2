package remote

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
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
		w, err := h.report(s, r)
		if err != nil {
			h.cfg.Metrics.SessionReportsRejected.Inc()
			h.log.Warn("a report of a session was rejected", s.logged(), zap.String("fence", r.Fence), zap.Error(err))
			out.reject(r.Fence, err)
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
func (out *Reported) reject(fence string, why error) {
	out.Rejected = append(out.Rejected, Rejection{fence, 409, why.Error()})
}

// errContradicts answers a report of a step that the session has reported otherwise.
var errContradicts = errors.New("the session has reported another end of this step before, which counts")

// report ends a step that the session holds, and returns it if its end is still to be recorded. The
// errors are ErrNotHeld, also where something else has decided the step, and errContradicts.
func (h *Hub) report(s *session, r *Report) (w *step, err error) {
	content := r.content()
	h.mu.Lock()
	defer h.mu.Unlock()
	held := s.held[r.Fence]
	if held == nil { // sent again?
		w = s.reported[r.Fence]
		before, known := s.recent.all[r.Fence]
		switch {
		case w == nil && !known:
			return nil, ErrNotHeld
		case w != nil && w.content != content, w == nil && before != content:
			return nil, errContradicts
		}
		return w, nil
	}
	delete(s.held, r.Fence)
	held.content = content
	h.remainLocked(s, held)
	took := held.decideLocked(ending{report: r})
	h.fillLocked(s)
	if took && h.cfg.ConfirmWithin > 0 && (r.Outcome == Success || r.Outcome == Failure) {
		s.reported[r.Fence] = held
		return held, nil
	}
	if !took && r.Outcome != Returned {
		return nil, ErrNotHeld
	}
	return nil, nil
}

// content tells whether a report says of its step what another one says: how it ended, with what, and
// what comes next.
func (r *Report) content() [sha256.Size]byte {
	said := struct {
		Outcome string
		Result  json.RawMessage // in the shortest form
		Error   *Fault
		Next    *Next
	}{r.Outcome, r.Result, r.Error, r.Next}
	if said.Result == nil {
		said.Result = json.RawMessage(`null`)
	}
	text, err := json.Marshal(&said)
	if err != nil {
		text = []byte(r.Outcome) // never: what it has was decoded from JSON
	}
	return sha256.Sum256(text)
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
			s.recent.add(w.message.Fence, w.content)
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
			out.reject(w.message.Fence, ErrNotHeld)
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

// recentFences are the fences recorded last with the contents of their reports, so that reports sent
// again are known.
type recentFences struct {
	ring []string
	next int
	all  map[string][sha256.Size]byte
}

func newRecentFences(size int) recentFences {
	return recentFences{ring: make([]string, size), all: make(map[string][sha256.Size]byte, size)}
}

func (r *recentFences) add(fence string, content [sha256.Size]byte) {
	delete(r.all, r.ring[r.next])
	r.ring[r.next], r.all[fence] = fence, content
	r.next = (r.next + 1) % len(r.ring)
}
