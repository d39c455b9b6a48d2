package remote

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"
)

// session is one process. Its fields are guarded by the hub's lock.
type session struct {
	id       uuid.UUID
	open     Open
	offers   map[offer]bool
	held     map[string]*step // by fence, until they are reported
	reported map[string]*step // by fence, whose ends are not recorded yet
	recent   recentFences
	expected int           // steps that its process runs, and are not held yet
	requests int           // under way
	stops    bool          // it gets no more steps
	timer    *time.Timer   // of the grace; stopped while a request is under way
	news     chan struct{} // closed when there is something to tell
	turn     uint64        // of the newest poll

	// What is to be told: not yet told, and the content of the last answer, which counts as
	// received when a poll names it.
	steps         []*step
	cancelled     []Cancelled
	answered      int64
	toldSteps     []*step
	toldCancelled []Cancelled
}

func newSession(h *Hub, o Open) *session {
	s := &session{id: uuid.New(), open: o, offers: make(map[offer]bool, len(o.Callables)), held: map[string]*step{}, reported: map[string]*step{},
		recent: newRecentFences(2 * o.Permits), expected: len(o.Held), news: make(chan struct{})}
	for _, c := range o.Callables {
		s.offers[offer{c.Callable, defaultMethod}] = true
		for _, method := range c.Methods {
			s.offers[offer{c.Callable, method}] = true
		}
	}
	s.timer = time.AfterFunc(h.cfg.ReclaimGrace, func() { h.lose(s) })
	return s
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
	is := func(other *step) bool { return other == gone }
	s.steps, s.toldSteps = slices.DeleteFunc(s.steps, is), slices.DeleteFunc(s.toldSteps, is)
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

// confirm begins a poll: the last answer was received, or is told again.
func (h *Hub) confirm(s *session, after int64) (turn uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if after != s.answered {
		s.steps = append(s.toldSteps, s.steps...)
		s.cancelled = append(s.toldCancelled, s.cancelled...)
	}
	s.toldSteps, s.toldCancelled = nil, nil
	s.turn++
	s.wakeLocked() // the poll before it
	return s.turn
}

// answer answers a poll, or returns what to wait for if there is nothing to tell and the
// time is not over.
func (h *Hub) answer(s *session, turn uint64, over bool) (p Polled, news <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p = Polled{Answer: s.answered, Steps: []Step{}, Cancelled: []Cancelled{}, Draining: h.draining}
	switch {
	case h.sessions[s.id] != s:
		return p, nil, ErrNoSession
	case turn != s.turn:
		return p, nil, nil
	case len(s.steps)+len(s.cancelled) == 0 && !over && !h.draining:
		return p, s.news, nil
	}
	for _, w := range s.steps {
		if s.held[w.message.Fence] != w || w.decided {
			continue // reported in the meantime, or told again and cancelled
		}
		w.handed = true
		m := w.message
		if end, ok := w.ctx.Deadline(); ok {
			m.TimeLeftMS = max(time.Until(end).Milliseconds(), 1)
		}
		p.Steps = append(p.Steps, m)
	}
	p.Cancelled = append(p.Cancelled, s.cancelled...)
	s.toldSteps, s.toldCancelled, s.steps, s.cancelled = s.steps, s.cancelled, nil, nil
	s.answered++
	p.Answer = s.answered
	return p, nil, nil
}
