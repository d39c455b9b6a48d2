package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/places"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/events"
	"github.com/tasker-go/tasker/workflow"
)

// Config describes a Hub. All fields but Logger are required.
type Config struct {
	WorkerID     string
	MaxSessions  int           // worker.sessions.max_sessions; 0 allows none
	Share        int           // percentage of them that one principal may have; 0: all
	MaxPermits   int           // of one session (worker.sessions.max_permits)
	ReclaimGrace time.Duration // worker.sessions.reclaim_grace_ms
	MaxLosses    int           // of a step that is not blamed (worker.sessions.max_losses)
	MaxWait      time.Duration // of a poll (worker.sessions.max_wait_ms)
	// ConfirmWithin bounds the time until a report is answered that is not recorded yet; 0: it
	// is answered at once.
	ConfirmWithin time.Duration
	// Adopt is worker.Worker.Adopt; nil: steps are taken over from no other worker.
	Adopt func(ctx context.Context, held []store.HeldClaim, namespaces []string, learn func(tokens map[int64]int64)) (locked bool, err error)
	// Offer is called, without a lock, after the offered callables have changed.
	Offer func()
	// Known returns the handlers that registered templates name, by the namespaces that the
	// worker serves; nil: sessions are not told which of their callables no template names.
	Known func(ctx context.Context) (map[string][]workflow.HandlerReference, error)
	// Subscribe is worker.Worker.Subscribe; nil: sessions get no fast events. It is called
	// once, when a session subscribes first.
	Subscribe func(s events.Subscriber) error
	// Permits is called, without a lock, with the permits of all sessions when they have
	// changed; nil: not at all.
	Permits func(total int)
	Logger  *zap.Logger
	Metrics *telemetry.Metrics
}

// Bounds of one Open.
const (
	maxCallables = 1000
	maxName      = 500 // bytes of a callable, a method or a process's name
	maxHeld      = 5000
)

// Errors of requests.
var (
	// ErrNoSession: there is no such session, or it is lost; the process opens another one.
	ErrNoSession = errors.New("the session does not exist or is lost: open another one")
	// ErrNotHeld: the session does not hold the step (any more); its end changes nothing.
	ErrNotHeld = errors.New("the session does not hold this step")
	// ErrFull: there are worker.sessions.max_sessions sessions.
	ErrFull = errors.New("the worker has no room for another session (worker.sessions.max_sessions)")
	// ErrDraining: the worker stops.
	ErrDraining = errors.New("the worker is stopping: open the session elsewhere")
)

// InvalidError says what is wrong with a request.
type InvalidError struct{ message string }

func (e *InvalidError) Error() string { return e.message }

func invalid(format string, args ...any) error { return &InvalidError{fmt.Sprintf(format, args...)} }

// Hub knows the sessions of a worker. It is a worker.Resolver for the callables that they
// offer, and safe for concurrent use.
type Hub struct {
	cfg Config
	log *zap.Logger

	limiting    sync.Mutex // held while Permits is called
	subscribing sync.Mutex // held while Subscribe is called
	subscribed  bool       // guarded by subscribing

	mu        sync.Mutex
	sessions  map[uuid.UUID]*session
	places    *places.Places
	offered   index
	waiting   []*step           // for a session, in the order inLine
	resuming  map[int64]arrival // adopted claims whose handlers were not called yet, by token
	handovers uint64
	permits   int // of the sessions that do not stop
	draining  bool
}

var _ worker.NamespaceResolver = (*Hub)(nil)

// New returns a hub without sessions.
func New(cfg Config) *Hub {
	log := cfg.Logger
	if log == nil {
		log = zap.NewNop()
	}
	return &Hub{cfg: cfg, log: log, sessions: map[uuid.UUID]*session{}, places: places.New("sessions", int64(cfg.MaxSessions), cfg.Share), offered: newIndex(), resuming: map[int64]arrival{}}
}

// hubName is the resolver of templates whose steps are for sessions alone.
const hubName = "session"

// Name implements worker.Resolver.
func (h *Hub) Name() string { return hubName }

// Foreign implements worker.ForeignResolver: processes have resolvers of their own.
func (h *Hub) Foreign() {}

// Priority implements worker.Resolver: handlers in the worker's own process come first.
func (h *Hub) Priority() int { return 200 }

// CanResolve implements worker.Resolver.
func (h *Hub) CanResolve(def workflow.HandlerReference) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.draining && h.offered.any("", def)
}

// CanResolveIn implements worker.NamespaceResolver.
func (h *Hub) CanResolveIn(namespace string, def workflow.HandlerReference) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.offersLocked(namespace, def)
}

// Resolve implements worker.Resolver.
func (h *Hub) Resolve(def workflow.HandlerReference) (worker.Handler, error) {
	return anyMethod{h, def}, nil
}

// anyMethod is the handler of a callable; the sessions know its methods.
type anyMethod struct {
	hub *Hub
	def workflow.HandlerReference
}

// Call implements worker.Handler.
func (m anyMethod) Call(ctx *worker.StepContext) (any, error) { return m.hub.run(ctx, m.def) }

// Method returns the entry point of a method.
func (m anyMethod) Method(string) (worker.HandlerFunc, bool) { return m.Call, true }

func (h *Hub) offersLocked(namespace string, def workflow.HandlerReference) bool {
	return !h.draining && h.offered.any(namespace, def)
}

// Open opens a session, with the steps that its process still runs. The errors are an
// *InvalidError, a *places.ShareError, ErrFull and ErrDraining.
func (h *Hub) Open(ctx context.Context, o Open) (Opened, error) {
	if err := h.check(&o); err != nil {
		return Opened{}, err
	}
	if err := h.subscribe(o); err != nil {
		return Opened{}, err
	}
	s := newSession(h, o)
	if err := h.add(s); err != nil {
		s.timer.Stop()
		return Opened{}, err
	}
	h.log.Info("session opened", s.logged(), zap.String("name", o.Name), zap.String("client", o.Client),
		zap.Int("callables", len(o.Callables)), zap.Int("permits", o.Permits))
	defer h.leave(s)
	h.permit() // first: the worker claims no more than these
	h.cfg.Offer()
	kept := h.resume(ctx, s, o.Held)
	return Opened{Kept: kept, Unnamed: h.unnamed(ctx, s), SessionID: s.id, Protocol: Protocol, WorkerID: h.cfg.WorkerID,
		ReclaimGraceMS: h.cfg.ReclaimGrace.Milliseconds(), MaxWaitMS: h.cfg.MaxWait.Milliseconds()}, nil
}

func (h *Hub) check(o *Open) error {
	o.Permits = max(o.Permits, 0)
	if o.Permits == 0 {
		o.Permits = 1
	}
	switch {
	case o.Protocol != Protocol:
		return invalid("invalid protocol %d: want %d", o.Protocol, Protocol)
	case len(o.Callables) == 0 || len(o.Callables) > maxCallables:
		return invalid("invalid callables: want 1 to %d", maxCallables)
	case o.Permits > h.cfg.MaxPermits:
		return invalid("invalid permits %d: want at most %d (worker.sessions.max_permits)", o.Permits, h.cfg.MaxPermits)
	case len(o.Name) > maxName || len(o.Client) > maxName:
		return invalid("invalid name or client: want at most %d bytes", maxName)
	}
	for _, name := range o.Namespaces {
		if name == "" || len(name) > maxName {
			return invalid("invalid namespace %.64q: want 1 to %d bytes", name, maxName)
		}
	}
	if len(o.Namespaces) > maxCallables {
		return invalid("invalid namespaces: want at most %d", maxCallables)
	}
	if len(o.Held) > maxHeld {
		return invalid("invalid held: want at most %d", maxHeld)
	}
	for i := range o.Held {
		if _, err := o.Held[i].claim(); err != nil {
			return err
		}
	}
	for i := range o.Callables {
		if err := o.Callables[i].check(); err != nil {
			return err
		}
	}
	return o.checkEvents()
}

func (h *Hub) add(s *session) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return ErrDraining
	}
	place, err := h.places.TryTake(s.open.Principal, 1)
	if errors.Is(err, places.ErrFull) {
		return ErrFull
	} else if err != nil {
		return fmt.Errorf("open a session: %w", err)
	}
	s.place = place
	s.enterLocked()
	h.sessions[s.id] = s
	h.permits += s.open.Permits
	h.offered.add(s)
	h.cfg.Metrics.Sessions.Set(float64(len(h.sessions)))
	h.fillLocked(s)
	return nil
}

// enter finds the session of a request, which is present until leave.
func (h *Hub) enter(id uuid.UUID) (*session, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.sessions[id]
	if s == nil {
		return nil, ErrNoSession
	}
	s.enterLocked()
	clear(s.renamed)
	return s, nil
}

func (h *Hub) leave(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.requests--
	if s.requests == 0 && h.sessions[s.id] == s {
		s.timer.Reset(h.cfg.ReclaimGrace)
	}
}

// Opened returns what a session was opened with; known says that there is such a session.
func (h *Hub) Opened(id uuid.UUID) (o Open, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.sessions[id]; s != nil {
		return s.open, true
	}
	return o, false
}

// Present keeps a session alive for wait, or until it or the worker ends: it shows that the process
// lives, whatever its handlers do. The error is ErrNoSession.
func (h *Hub) Present(ctx context.Context, id uuid.UUID, wait time.Duration) error {
	s, err := h.enter(id)
	if err != nil {
		return err
	}
	defer h.leave(s)
	timer := time.NewTimer(min(wait, h.cfg.MaxWait))
	defer timer.Stop()
	for {
		h.mu.Lock()
		ended, draining, news := h.sessions[id] != s, h.draining, s.news
		h.mu.Unlock()
		switch {
		case ended:
			return ErrNoSession
		case draining:
			return nil
		}
		select {
		case <-news:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// unnamed lists the offered callables that no template in the namespaces of a session names.
func (h *Hub) unnamed(ctx context.Context, s *session) (list []string) {
	if h.cfg.Known == nil {
		return nil
	}
	known, err := h.cfg.Known(ctx)
	if err != nil {
		h.log.Debug("the callables of templates were not read", s.logged(), zap.Error(err))
		return nil
	}
	named := map[string]bool{}
	for namespace, handlers := range known {
		if !s.in(namespace) {
			continue
		}
		for _, def := range handlers {
			named[s.offers.find(def)] = true
		}
	}
	for _, c := range s.open.Callables {
		if c.Resolver == "" && !named[c.Callable] {
			list = append(list, c.Callable)
		}
	}
	return list
}

// Poll answers with new steps and notices of a session, or after wait without.
// It is a Follow that ends with the first answer.
func (h *Hub) Poll(ctx context.Context, id uuid.UUID, after int64, wait time.Duration, stops bool) (p Polled, err error) {
	err = h.Follow(ctx, id, after, wait, stops, func(answer Polled) bool {
		p = answer
		return false
	})
	return p, err
}

// Follow calls tell with new steps and notices of a session as they come, until tell
// returns false or wait is over; then once more, with nothing if there is nothing. A later
// Follow of the same session ends it, and so does the drain of the worker. after is the
// number of the last answer that the session received, 0 for none: what it did not receive
// is sent again. A session that stops gets no more steps, and offers nothing any more.
func (h *Hub) Follow(ctx context.Context, id uuid.UUID, after int64, wait time.Duration, stops bool, tell func(Polled) (more bool)) error {
	s, err := h.enter(id)
	if err != nil {
		return err
	}
	defer h.leave(s)
	if stops {
		h.retire(s)
	}
	wait = min(wait, h.cfg.MaxWait)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	turn, told := h.confirm(s, after), after
	for over := wait == 0; ; {
		answer, news, err := h.answer(s, turn, told, over)
		if err != nil {
			return err
		}
		if news == nil {
			told = answer.Answer
			if !tell(answer) || answer.last {
				return nil
			}
			continue
		}
		select {
		case <-news:
		case <-timer.C:
			over = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// use calls fn with the context of a step that a session holds. The handler does not
// return in the meantime.
func (h *Hub) use(id uuid.UUID, fence string, fn func(*worker.StepContext) error) error {
	s, err := h.enter(id)
	if err != nil {
		return err
	}
	defer h.leave(s)
	return h.useHeld(s, fence, fn)
}

// useHeld is use for a session that is in use.
func (h *Hub) useHeld(s *session, fence string, fn func(*worker.StepContext) error) error {
	h.mu.Lock()
	held := s.held[fence]
	if held == nil || held.decided {
		h.mu.Unlock()
		return ErrNotHeld
	}
	held.uses.RLock() // never blocks: the handler locks it only after the step is decided
	h.mu.Unlock()
	defer held.uses.RUnlock()
	return fn(held.ctx)
}

// Progress shows how far a step is, as worker.StepContext.Progress does. The error is ErrNotHeld.
func (h *Hub) Progress(id uuid.UUID, p Progress) error {
	return h.use(id, p.Fence, func(ctx *worker.StepContext) error {
		ctx.Progress(p.Fraction, p.Message)
		return nil
	})
}

// Result returns the result of a step that a held step depends on, directly or not.
func (h *Hub) Result(id uuid.UUID, fence, name string) (doc json.RawMessage, err error) {
	err = h.use(id, fence, func(ctx *worker.StepContext) (err error) {
		doc, err = ctx.DependencyResult(name)
		return err
	})
	return doc, err
}

// BatchResults returns the results of the batches that a held step depends on.
func (h *Hub) BatchResults(id uuid.UUID, fence, workerStep string) (list []worker.BatchResult, err error) {
	err = h.use(id, fence, func(ctx *worker.StepContext) (err error) {
		list, err = ctx.BatchResults(workerStep)
		return err
	})
	return list, err
}

// retire ends the offer of a session, which keeps the steps that it was handed.
func (h *Hub) retire(s *session) {
	h.mu.Lock()
	if s.stops {
		h.mu.Unlock()
		return
	}
	s.stops = true
	h.withdrawOfferLocked(s)
	for _, held := range s.inOrder() {
		if !held.handed {
			s.forgetLocked(held)
			h.againLocked(held)
		}
	}
	h.mu.Unlock()
	h.returnUnserved()
}

// Close ends a session. The steps that it holds wait for another session; without one
// they are handed back. No attempt is used.
func (h *Hub) Close(id uuid.UUID) error {
	h.mu.Lock()
	s := h.sessions[id]
	if s == nil {
		h.mu.Unlock()
		return ErrNoSession
	}
	h.removeLocked(s)
	for _, held := range s.inOrder() {
		h.againLocked(held)
	}
	h.mu.Unlock()
	h.log.Info("session closed", s.logged(), zap.String("name", s.open.Name))
	h.returnUnserved()
	return nil
}

// lose ends a session that made no request within the grace.
func (h *Hub) lose(s *session) {
	h.mu.Lock()
	if s.requests > 0 || h.sessions[s.id] != s {
		h.mu.Unlock()
		return
	}
	h.removeLocked(s)
	lost, seen := 0, time.Now().Add(-h.cfg.ReclaimGrace)
	for _, held := range s.inOrder() {
		if !held.handed {
			h.againLocked(held)
			continue
		}
		lost++
		held.decideLocked(ending{err: worker.Lost(worker.Retryable(lostError{}, retryLost), seen, h.cfg.MaxLosses)})
	}
	h.mu.Unlock()
	h.cfg.Metrics.SessionsLost.Inc()
	h.log.Warn("session lost: it made no request within the grace", s.logged(), zap.String("name", s.open.Name),
		zap.Int("steps", lost), zap.Duration("grace", h.cfg.ReclaimGrace))
	h.returnUnserved()
}

// permit tells the worker how many steps the sessions can hold now.
func (h *Hub) permit() {
	if h.cfg.Permits == nil {
		return
	}
	h.limiting.Lock() // so that the last call has the last total
	defer h.limiting.Unlock()
	h.mu.Lock()
	total := h.permits
	h.mu.Unlock()
	h.cfg.Permits(total)
}

func (h *Hub) removeLocked(s *session) {
	delete(h.sessions, s.id)
	s.place.Leave()
	if !s.stops {
		h.withdrawOfferLocked(s)
	}
	s.timer.Stop()
	s.wakeLocked()
	h.cfg.Metrics.Sessions.Set(float64(len(h.sessions)))
}

func (h *Hub) withdrawOfferLocked(s *session) {
	h.permits -= s.open.Permits
	h.offered.remove(s)
}

// againLocked gives a step that did not run to another session.
func (h *Hub) againLocked(s *step) {
	if s.decided {
		return
	}
	s.session, s.handed = nil, false
	h.assignLocked(s)
}

// returnUnserved ends the offer of callables that no session has any more and hands back
// the steps that wait for them.
func (h *Hub) returnUnserved() {
	h.cfg.Offer() // first, or the worker would claim them again
	h.permit()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = slices.DeleteFunc(h.waiting, func(s *step) bool {
		if h.offersLocked(s.message.Namespace, s.def) {
			return false
		}
		s.decideLocked(ending{err: worker.HandBack(errNotBegun)})
		return true
	})
}

// Drain tells the sessions that the worker stops, and hands back what waits for one.
func (h *Hub) Drain() {
	h.mu.Lock()
	h.draining = true
	for _, s := range h.sessions {
		s.wakeLocked()
	}
	h.mu.Unlock()
	h.returnUnserved()
}

// take accepts a claimed step.
func (h *Hub) take(s *step) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.arrivedLocked(s) {
		return
	}
	if !h.offersLocked(s.message.Namespace, s.def) { // its last session ended after the claim
		s.decideLocked(ending{err: worker.HandBack(errNotBegun)})
		return
	}
	h.assignLocked(s)
}

// assignLocked gives a step to the session with the most free permits, of those that
// wait for one; without any the step waits.
func (h *Hub) assignLocked(s *step) {
	var best *session
	h.offered.takers(s.message.Namespace, s.def, func(candidate *session) bool {
		if candidate.free() > 0 && (best == nil || candidate.better(best)) {
			best = candidate
		}
		return true
	})
	if best == nil || h.draining {
		at, _ := slices.BinarySearchFunc(h.waiting, s, inLine)
		h.waiting = slices.Insert(h.waiting, at, s)
		return
	}
	h.giveLocked(best, s)
}

// inLine is the order in which steps wait: the most urgent first, and then that of their claims. They
// arrive here in any order.
func inLine(a, b *step) int {
	return cmp.Or(cmp.Compare(b.message.Priority, a.message.Priority), cmp.Compare(a.ctx.Token(), b.ctx.Token()))
}

// fillLocked gives waiting steps to a session with free permits.
func (h *Hub) fillLocked(s *session) {
	if h.draining || h.sessions[s.id] != s {
		return
	}
	h.waiting = slices.DeleteFunc(h.waiting, func(w *step) bool {
		if w.decided {
			return true
		}
		if s.free() <= 0 || !s.takes(w) {
			return false
		}
		h.giveLocked(s, w)
		return true
	})
}

func (h *Hub) giveLocked(s *session, w *step) {
	h.nameLocked(s, w)
	s.steps = append(s.steps, w)
	s.wakeLocked()
}

// nameLocked has a session hold a step under a new fence.
func (h *Hub) nameLocked(s *session, w *step) {
	h.handovers++
	w.session, w.handedIn, w.toldIn, w.message.Fence = s, 0, 0, fence(w.ctx.Token(), h.handovers)
	w.message.Publishes, w.message.Offered = w.publishedBy(s), ""
	if name := s.offers.find(w.def); name != w.def.Callable {
		w.message.Offered = name
	}
	s.held[w.message.Fence] = w
}
