package remote

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/store"
)

// A process whose session or daemon is gone opens another session with the fences of the
// steps that it still runs. A fence is the proof that the process has the step: a step of
// this worker changes its session, and a claim of another worker is adopted, with a new
// token that shuts out the former worker, alive or not. So of all that may report the
// step afterwards one can.

// arrival is what an adopted claim waits for: the call of its handler.
type arrival struct {
	session *session
	former  string // fence
	arrived chan<- Kept
}

const (
	// resumePatience bounds the time in which the handlers of adopted claims are called: longer
	// only if the daemon has no permits for them.
	resumePatience = 5 * time.Second
	// lockedRetry is the pause before claims are looked for again whose rows were locked.
	lockedRetry = 20 * time.Millisecond
)

// resume gives a session the steps that its process still runs, as far as nothing has
// ended them.
func (h *Hub) resume(ctx context.Context, s *session, held []Held) (kept []Kept) {
	if len(held) == 0 {
		return nil
	}
	arrived := make(chan Kept, len(held))
	kept, elsewhere, coming := h.moveHere(s, held, arrived)
	ctx, cancel := context.WithTimeout(ctx, resumePatience)
	defer cancel()
	coming += h.adopt(ctx, s, elsewhere, arrived)
	for range coming {
		select {
		case k := <-arrived:
			kept = append(kept, k)
		case <-ctx.Done():
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for token, a := range h.resuming { // these run as steps that were handed to no session
		if a.session == s {
			delete(h.resuming, token)
		}
	}
	close(arrived)
	for k := range arrived {
		kept = append(kept, k)
	}
	s.expected = 0
	h.fillLocked(s)
	h.cfg.Metrics.SessionStepsKept.Add(float64(len(kept)))
	h.cfg.Metrics.SessionReportsRejected.Add(float64(len(held) - len(kept)))
	h.log.Info("a process goes on with its steps in another session", s.logged(), zap.Int("presented", len(held)), zap.Int("kept", len(kept)))
	return kept
}

// moveHere takes the steps out of other sessions of this worker; no session has those
// elsewhere. coming are adopted already and not called yet.
func (h *Hub) moveHere(s *session, held []Held, arrived chan<- Kept) (kept []Kept, elsewhere []Held, coming int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range held {
		if h.redirectLocked(s, one.Fence, arrived) {
			coming++
			continue
		}
		w, from := h.holderLocked(one.Fence)
		if from != nil && !from.sameHolder(s) {
			continue
		}
		if w == nil || w.decided || !s.takes(w) {
			elsewhere = append(elsewhere, one)
			continue
		}
		from.forgetLocked(w)
		delete(from.renamed, one.Fence)
		h.nameLocked(s, w)
		w.handed, s.renamed[one.Fence] = true, w
		kept = append(kept, Kept{one.Fence, w.message.Fence})
		h.fillLocked(from)
	}
	return kept, elsewhere, coming
}

// redirectLocked has an adopted claim arrive at another session: its process has presented it again.
func (h *Hub) redirectLocked(s *session, fence string, arrived chan<- Kept) bool {
	for token, a := range h.resuming {
		if a.former == fence && a.session != s && a.session.sameHolder(s) {
			h.resuming[token] = arrival{s, fence, arrived}
			return true
		}
	}
	return false
}

// holderLocked finds the session that holds a step under a fence, or has kept it under that fence
// with an answer that its process does not know.
func (h *Hub) holderLocked(fence string) (*step, *session) {
	for _, s := range h.sessions {
		if w := s.held[fence]; w != nil {
			return w, s
		}
		if w := s.renamed[fence]; w != nil && w.session == s {
			return w, s
		}
	}
	return nil, nil
}

// adopt takes over the claims of other workers, and returns their number. Their handlers
// are called as there are permits.
func (h *Hub) adopt(ctx context.Context, s *session, held []Held, arrived chan<- Kept) (adopted int) {
	missing := make(map[int64]string, len(held)) // fences by token
	claims := make([]store.HeldClaim, len(held))
	for i, one := range held {
		claims[i], _ = one.claim() // checked
		missing[claims[i].Token] = one.Fence
	}
	learn := func(tokens map[int64]int64) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for former, now := range tokens {
			h.resuming[now] = arrival{s, missing[former], arrived}
			delete(missing, former)
			adopted++
		}
	}
	for h.cfg.Adopt != nil && len(missing) > 0 {
		locked, err := h.cfg.Adopt(ctx, claims, s.open.Namespaces, learn)
		if err != nil {
			h.log.Warn("steps of another worker were not adopted", s.logged(), zap.Int("steps", len(missing)), zap.Error(err))
			break
		}
		if !locked || lifecycle.Pause(ctx, lockedRetry) != nil {
			break
		}
	}
	return adopted
}

// arrivedLocked gives an adopted step to the session whose process runs it.
func (h *Hub) arrivedLocked(w *step) bool {
	a, ok := h.resuming[w.ctx.Token()]
	delete(h.resuming, w.ctx.Token())
	if !ok || h.sessions[a.session.id] != a.session || !a.session.takes(w) {
		return false
	}
	h.nameLocked(a.session, w)
	w.handed, a.session.renamed[a.former] = true, w
	a.arrived <- Kept{a.former, w.message.Fence}
	return true
}

// claim reads the claim behind a presented step. The error is an *InvalidError.
func (h *Held) claim() (c store.HeldClaim, err error) {
	first, second, _ := strings.Cut(h.Fence, ".")
	if c.Token, err = strconv.ParseInt(first, 10, 64); err != nil || c.Token <= 0 {
		return c, invalid("invalid held fence %.64q: want one of a step", h.Fence)
	}
	if _, err = strconv.ParseUint(second, 10, 64); err != nil {
		return c, invalid("invalid held fence %.64q: want one of a step", h.Fence)
	}
	if c.TaskUUID, err = uuid.Parse(h.TaskUUID); err != nil {
		return c, invalid("invalid held task_uuid %.64q: want a UUID", h.TaskUUID)
	}
	return c, nil
}
