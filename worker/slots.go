package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tasker-go/tasker/store"
)

// phase is where an execution stands. A phase is only ever left for a later
// one.
type phase uint8

const (
	phaseWaiting   phase = iota + 1 // claimed, waits for a permit
	phaseRunning                    // its handler runs
	phaseReporting                  // its outcome is on the way to the database
	phaseReturned                   // its handler gave up because of the shutdown
	phaseGone                       // the claim is settled, handed back or lost
)

// execution is one claimed step in the worker's hands. Its fields below the
// line are guarded by the slots' lock.
type execution struct {
	claim    store.Claimed
	key      store.ClaimKey
	progress progress

	phase    phase
	zombie   bool // nobody waits for its handler any more, which still runs
	lost     bool // the claim is gone; a failure is not worth reporting
	leaseEnd time.Time
	began    time.Time
	name     string    // namespace/task/step, for people; set when it begins
	since    time.Time // when it was claimed, by our clock
	cancel   context.CancelCauseFunc
}

func newExecution(c store.Claimed, leaseEnd time.Time) *execution {
	return &execution{
		claim: c, key: c.Key(),
		phase: phaseWaiting, leaseEnd: leaseEnd,
	}
}

// slots keeps account of permits and claims. A permit belongs to a handler's
// goroutine until it really ends, also when its outcome was reported long ago
// (time limit) or matters to nobody any more (lease lost): so the number of
// handlers running is bounded whatever they do. It starts no goroutines and is
// safe for concurrent use.
type slots struct {
	limit      int // permits
	prefetch   int // claims that may wait for a permit, however slow the handlers
	maxPending int // outcomes on the way to the database beyond which nothing is claimed

	mu        sync.Mutex
	claims    map[int64]*execution    // by token: everything whose claim is ours
	running   map[*execution]struct{} // everything that has a permit
	waiting   []*execution
	pace      pace
	reporting int
	zombies   int
	onZombies func(count int) // called under the lock when zombies has changed
	owed      bool            // a look is due as soon as there is room
	draining  bool
	changed   chan struct{} // closed when something ends; made when somebody waits
}

func newSlots(limit, prefetch, maxPending int) *slots {
	return &slots{limit: limit, prefetch: prefetch, maxPending: maxPending,
		claims: map[int64]*execution{}, running: map[*execution]struct{}{}, onZombies: func(int) {}}
}

// room is how many steps may be claimed now. Without any the look is owed.
func (s *slots) room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := s.roomLocked()
	s.owed = room == 0 && !s.draining
	return room
}

func (s *slots) roomLocked() int {
	if s.draining || s.reporting >= s.maxPending {
		return 0
	}
	return max(s.limit+s.aheadLocked()-len(s.running)-len(s.waiting), 0)
}

// owe remembers that there is more to claim than there was room for, and
// reports whether there is room again already.
func (s *slots) owe() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.owed = true
	return s.payLocked()
}

// payLocked reports whether the look that is owed should happen now.
func (s *slots) payLocked() bool {
	// Half of what is claimed ahead is worked off before more is asked for:
	// claims of one step each would cost as much as those of many.
	if room := s.roomLocked(); !s.owed || room == 0 || len(s.waiting) > s.aheadLocked()/2 {
		return false
	}
	s.owed = false
	return true
}

// payNow is payLocked for those who made room by other means.
func (s *slots) payNow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.payLocked()
}

// add takes claims in and returns those that begin at once; the caller must
// run them. While draining none begins: they wait to be handed back.
func (s *slots) add(claimed []*execution) (begin []*execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, x := range claimed {
		x.since = now
		s.claims[x.key.Token] = x
		s.waiting = append(s.waiting, x)
	}
	for {
		x := s.nextLocked()
		if x == nil {
			return begin
		}
		begin = append(begin, x)
	}
}

// nextLocked gives a permit to the claim that waits longest.
func (s *slots) nextLocked() *execution {
	if s.draining || len(s.waiting) == 0 || len(s.running) >= s.limit {
		return nil
	}
	x := s.waiting[0]
	s.waiting[0], s.waiting = nil, s.waiting[1:]
	x.phase, x.began = phaseRunning, time.Now()
	s.running[x] = struct{}{}
	return x
}

// begun remembers how to end a handler. It reports false when the claim was
// lost in the meantime.
func (s *slots) begun(x *execution, cancel context.CancelCauseFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.cancel = cancel
	return x.phase == phaseRunning
}

// describe says what an execution is, for people.
func (s *slots) describe(x *execution, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.name = name
}

// settle asks for the right to report the end of an execution; only the first
// who asks gets it. A failure under a lost claim is not worth a report; a
// success is, and the fence decides about it.
func (s *slots) settle(x *execution, success bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case x.phase == phaseRunning:
	case x.phase == phaseGone && x.lost && success:
		x.lost = false
		s.claims[x.key.Token] = x
	default:
		return false
	}
	x.phase = phaseReporting
	s.reporting++
	return true
}

// abandon is settle for a handler that goes on running.
func (s *slots) abandon(x *execution) bool {
	if !s.settle(x, false) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zombieLocked(x)
	return true
}

func (s *slots) zombieLocked(x *execution) {
	if _, runs := s.running[x]; runs && !x.zombie {
		x.zombie = true
		s.zombies++
		s.onZombies(s.zombies)
	}
}

// giveUp marks an execution that ended because of the shutdown.
func (s *slots) giveUp(x *execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.phase == phaseRunning {
		x.phase = phaseReturned
	}
}

// release takes the permit of an execution whose goroutine has ended. next is
// the claim that gets it; look says that a look is owed and there is room.
func (s *slots) release(x *execution) (next *execution, look bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, x)
	s.pace.served(time.Since(x.began))
	if x.zombie {
		x.zombie = false
		s.zombies--
		s.onZombies(s.zombies)
	}
	s.changedLocked()
	return s.nextLocked(), s.payLocked()
}

// done forgets a claim whose report was answered; look is as with release.
func (s *slots) done(x *execution) (look bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.phase != phaseReporting {
		return false
	}
	x.phase = phaseGone
	s.reporting--
	delete(s.claims, x.key.Token)
	s.changedLocked()
	return s.payLocked()
}

// held lists the claims to keep alive.
func (s *slots) held() []store.ClaimKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]store.ClaimKey, 0, len(s.claims))
	for _, x := range s.claims {
		keys = append(keys, x.key)
	}
	return keys
}

// extended notes that the leases of claims end no earlier than at end.
func (s *slots) extended(keys []store.ClaimKey, end time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		if x := s.claims[k.Token]; x != nil {
			x.leaseEnd = end
		}
	}
}

// lose gives up the claims with the given tokens and ends their handlers. What
// is being reported is left to the report: it may have been accepted already,
// which looks the same from here.
func (s *slots) lose(tokens []int64) (lost []*execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, token := range tokens {
		if x := s.claims[token]; x != nil && s.loseLocked(x) {
			lost = append(lost, x)
		}
	}
	return lost
}

// expire gives up the claims whose leases must be presumed to have ended, and
// returns how long it is until the next one; negative when there is none.
func (s *slots) expire(now time.Time) (lost []*execution, next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next = -1
	for _, x := range s.claims {
		if x.phase != phaseWaiting && x.phase != phaseRunning {
			continue
		}
		left := x.leaseEnd.Sub(now)
		if left <= 0 {
			s.loseLocked(x)
			lost = append(lost, x)
		} else if next < 0 || left < next {
			next = left
		}
	}
	return lost, next
}

func (s *slots) loseLocked(x *execution) bool {
	switch x.phase {
	case phaseWaiting:
		s.waiting = slices.DeleteFunc(s.waiting, func(w *execution) bool { return w == x })
	case phaseRunning:
		s.zombieLocked(x)
		if x.cancel != nil {
			x.cancel(ErrLeaseLost)
		}
	default:
		return false
	}
	x.phase, x.lost = phaseGone, true
	delete(s.claims, x.key.Token)
	return true
}

// drain stops the beginning of handlers and lists what has not begun since it
// was last called. It stays ours until it is forgotten.
func (s *slots) drain() (unstarted []*execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining, s.owed = true, false
	unstarted, s.waiting = s.waiting, nil
	return unstarted
}

// forget drops claims that were handed back.
func (s *slots) forget(list []*execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range list {
		x.phase = phaseGone
		delete(s.claims, x.key.Token)
	}
}

// waitFor returns once cond holds for the account, or with the error of ctx.
func (s *slots) waitFor(ctx context.Context, cond func(usage) bool) error {
	for {
		s.mu.Lock()
		if cond(s.usageLocked()) {
			s.mu.Unlock()
			return nil
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *slots) changedLocked() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// cancelAll ends the contexts of all handlers.
func (s *slots) cancelAll(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range s.running {
		if x.cancel != nil {
			x.cancel(cause)
		}
	}
}

// remains takes out every claim that is left: those whose handlers did not
// begin or gave up because they were told to, and those that still run or
// could not be reported.
func (s *slots) remains() (unfinished, rest []*execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for token, x := range s.claims {
		if x.phase == phaseReturned || x.phase == phaseWaiting {
			unfinished = append(unfinished, x)
		} else {
			rest = append(rest, x)
		}
		delete(s.claims, token)
	}
	s.waiting = nil
	return unfinished, rest
}
