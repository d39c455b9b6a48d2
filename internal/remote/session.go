package remote

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/places"
	"github.com/tasker-go/tasker/worker/events"
)

// session is one process. Its fields are guarded by the hub's lock.
type session struct {
	id       uuid.UUID
	open     Open
	offers   offers
	held     map[string]*step // by fence, until they are reported
	reported map[string]*step // by fence, whose ends are not recorded yet
	renamed  map[string]*step // by the fence that the process has presented, until it uses the session and so knows the new one
	recent   recentFences
	silent   int           // steps reported since it has sent lines
	late     []*step       // the latest to be reported, whose lines may still be under way
	forget   *time.Timer   // of late; nil: there are none
	expected int           // steps that its process runs, and are not held yet
	requests int           // under way
	stops    bool          // it gets no more steps
	timer    *time.Timer   // of the grace; stopped while a request is under way
	news     chan struct{} // closed when there is something to tell
	turn     uint64        // of the newest poll

	// What is to be told. What was told counts as received when a later poll names its answer.
	steps     []*step
	place     *places.Held // of its principal's share
	cancelled []*step
	events    []events.Event // told once
	answered  int64
}

func newSession(h *Hub, o Open) *session {
	if len(o.Namespaces) == 0 {
		o.Namespaces = nil // of all, to those who adopt too
	}
	s := &session{id: uuid.New(), open: o, offers: offersOf(o.Callables), held: map[string]*step{}, reported: map[string]*step{}, renamed: map[string]*step{},
		recent: newRecentFences(2 * o.Permits), expected: len(o.Held), news: make(chan struct{})}
	s.timer = time.AfterFunc(h.cfg.ReclaimGrace, func() { h.lose(s) })
	return s
}

// logged names the session in logs: by a digest, since its id is what its process proves itself by.
func (s *session) logged() zap.Field {
	digest := sha256.Sum256(s.id[:])
	return zap.String("session", hex.EncodeToString(digest[:4]))
}

// enterLocked begins a request, which Hub.leave ends.
func (s *session) enterLocked() {
	s.requests++
	s.timer.Stop()
}

// free returns how many more steps the session may hold.
func (s *session) free() int {
	if s.stops {
		return 0
	}
	return s.open.Permits - len(s.held) - s.expected
}

// in reports whether the session gets steps of a namespace.
func (s *session) in(namespace string) bool {
	return len(s.open.Namespaces) == 0 || slices.Contains(s.open.Namespaces, namespace)
}

// sameHolder reports whether both sessions are of one principal: others' steps are not handed over,
// whatever their fences.
func (s *session) sameHolder(other *session) bool {
	return s.open.Principal == other.open.Principal
}

// takes reports whether the session can run a step.
func (s *session) takes(w *step) bool { return s.offers.find(w.def) != "" && s.in(w.message.Namespace) }

// better says which of two sessions gets a step: one with a request under way, then the
// one with more free permits.
func (s *session) better(other *session) bool {
	if present, others := s.requests > 0, other.requests > 0; present != others {
		return present
	}
	return s.free() > other.free()
}

// wakeLocked ends the wait of the poll.
func (s *session) wakeLocked() {
	close(s.news)
	s.news = make(chan struct{})
}

// forgetLocked removes a step that was not told, or has another session now.
func (s *session) forgetLocked(gone *step) {
	delete(s.held, gone.message.Fence)
	s.steps = slices.DeleteFunc(s.steps, func(other *step) bool { return other == gone })
}

// inOrder returns the held steps in the order of their claims.
func (s *session) inOrder() []*step {
	list := make([]*step, 0, len(s.held))
	for _, held := range s.held {
		list = append(list, held)
	}
	slices.SortFunc(list, func(a, b *step) int { return cmp.Compare(a.ctx.Token(), b.ctx.Token()) })
	return list
}

// confirm begins a poll: messages up to an answer were received, the rest is sent again.
func (h *Hub) confirm(s *session, after int64) (turn uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if after < s.answered {
		s.repeatLocked(after)
		h.fillLocked(s)
	}
	s.turn++
	s.wakeLocked() // the poll before it
	return s.turn
}

// repeatLocked has what was told after an answer told again.
func (s *session) repeatLocked(after int64) {
	var steps, cancelled []*step
	for _, w := range s.inOrder() {
		if w.notice != "" && w.handedIn > after { // the process has no such step to return
			delete(s.held, w.message.Fence)
		}
		if w.toldIn <= after {
			continue // or it is to be told anyway
		}
		w.toldIn = 0
		if w.notice == "" {
			steps = append(steps, w)
		} else {
			cancelled = append(cancelled, w)
		}
	}
	s.steps, s.cancelled = append(steps, s.steps...), append(cancelled, s.cancelled...)
}

// maxAnswerBytes bounds the inputs of the steps of one answer, which has one step at least: the next poll
// is answered with the others.
const maxAnswerBytes = 4 << 20

// bytes is the size of the inputs of a step.
func (m *Step) bytes() int {
	n := len(m.Context)
	for _, result := range m.DependencyResults {
		n += len(result)
	}
	if c := m.Checkpoint; c != nil {
		n += len(c.Cursor) + len(c.Accumulated)
	}
	return n
}

// answer answers a poll, or returns what to wait for if there is nothing to tell and the
// time is not over. told is the answer before, which one that a later poll has ended repeats:
// the process may not have received what the later one was answered.
func (h *Hub) answer(s *session, turn uint64, told int64, over bool) (p Polled, news <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ended := turn != s.turn
	p = Polled{Answer: s.answered, Steps: []Step{}, Cancelled: []Cancelled{}, Draining: h.draining, last: over || h.draining || ended}
	switch {
	case h.sessions[s.id] != s:
		return p, nil, ErrNoSession
	case ended:
		p.Answer = told
		return p, nil, nil
	case len(s.steps)+len(s.cancelled)+len(s.events) == 0 && !p.last:
		return p, s.news, nil
	}
	s.answered++
	p.Answer = s.answered
	var later []*step
	for i, bytes := 0, 0; i < len(s.steps); i++ {
		w := s.steps[i]
		if s.held[w.message.Fence] != w || w.decided {
			continue // reported in the meantime, or told again and cancelled
		}
		if bytes += w.message.bytes(); bytes > maxAnswerBytes && len(p.Steps) > 0 {
			later = s.steps[i:]
			break
		}
		if w.toldIn = s.answered; !w.handed {
			w.handed, w.handedIn = true, s.answered
		}
		m := w.message
		if end, ok := w.ctx.Deadline(); ok {
			m.TimeLeftMS = max(time.Until(end).Milliseconds(), 1)
		}
		p.Steps = append(p.Steps, m)
	}
	for _, w := range s.cancelled {
		w.toldIn = s.answered
		p.Cancelled = append(p.Cancelled, Cancelled{w.message.Fence, w.notice})
	}
	p.Events = s.events
	s.steps, s.cancelled, s.events = slices.Clone(later), nil, nil
	return p, nil, nil
}
