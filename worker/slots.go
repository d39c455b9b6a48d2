package worker

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/store"
)

// phase is where an execution stands. A phase is only ever left for a later
// one.
type phase uint8

const (
	phaseWaiting   phase = iota + 1 // claimed, waits for a permit
	phaseRunning                    // its handler runs
	phaseYielding                   // its handler has yielded; the checkpoint is on the way to the database
	phaseReporting                  // its outcome is on the way to the database
	phaseReturned                   // its handler gave up because of the shutdown
	phaseGone                       // the claim is settled, handed back or lost
)

// execution is one claimed step in the worker's hands, with everything that is
// needed until its outcome is reported. It is not used again: a handler may
// keep its context longer than it should.
type execution struct {
	engine   *engine
	claim    store.Claimed
	worker   uuid.UUID // under which it was claimed, if it was ahead
	key      store.ClaimKey
	progress progress
	life     life
	context  StepContext // what the handler is given
	outcome  outcome     // of whoever had it settled
	// published is what is published of it once its end was accepted; nil: nothing.
	published *publication
	tx        *transaction // of a handler that asked for one; its goroutine's own
	// queued: the handler waits for the connection of its transaction.
	queued atomic.Bool

	// The rest is guarded by the slots' lock. The goroutine that has the
	// permit may read job, which does not change once it is set.
	job      *job // nil: not known yet
	phase    phase
	zombie   bool // nobody waits for its handler any more, which still runs
	lost     bool // the claim is gone; a failure is not worth reporting
	handing  bool // it is being handed back: the answer tells whether it is ours
	permit   int  // its place in running, counted from 1; 0: it has none
	leaseEnd time.Time
	since    time.Time // when it was claimed, by our clock
	began    time.Time // when it got its permit
	deadline time.Time // of its handler
}

func newExecution(c store.Claimed, leaseEnd time.Time) *execution {
	return &execution{
		claim: c, key: c.Key(),
		phase: phaseWaiting, leaseEnd: leaseEnd,
	}
}

func (x *execution) jobKey() jobKey { return jobKey{x.claim.PlanID, x.claim.PlanStep()} }

// slots keeps account of permits and claims. A permit belongs to a handler's
// goroutine until it really ends, also when its outcome was reported long ago
// (time limit) or matters to nobody any more (lease lost): so the number of
// handlers running is bounded whatever they do. It is safe for concurrent use.
//
// A step takes the lock once, when its handler has ended: the end of one and
// the beginning of the next on its permit are one change of the account.
type slots struct {
	limit      int // permits
	prefetch   int // claims that may wait for a permit, however slow the handlers
	maxPending int // outcomes on the way to the database beyond which nothing is claimed

	mu        sync.Mutex
	claims    map[int64]*execution // by token: everything whose claim is ours
	running   []*execution         // everything that has a permit, in no order
	waiting   []*execution
	yielded   []*execution // saved, and waits for a look before it waits
	pace      pace
	announced announced
	promised  int // permits for steps that are being claimed along with a settlement
	reporting int
	yielding  int // checkpoints on the way to the database, of executions that have ended
	zombies   int
	onZombies func(count int) // called under the lock when zombies has changed
	owed      bool            // a look is due as soon as there is room
	dry       bool            // the latest look has found less than it asked for
	lookFirst bool            // a look is due before what has yielded goes on
	draining  bool
	changed   chan struct{} // closed when something ends; made when somebody waits
	deadlines deadlines
}

func newSlots(limit, prefetch, maxPending int) *slots {
	return &slots{limit: limit, prefetch: prefetch, maxPending: maxPending,
		claims: map[int64]*execution{}, running: make([]*execution, 0, limit), onZombies: func(int) {},
		deadlines: deadlines{passed: func() {}}}
}

// room is how many steps may be claimed now. Without any the look is owed.
func (s *slots) room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := s.roomLocked()
	s.owed = room == 0 && !s.draining
	return room
}

// beyond is how many of so many claims would not begin at once.
func (s *slots) beyond(claims int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(claims-max(s.limit-len(s.running)-len(s.waiting)-s.promised, 0), 0)
}

func (s *slots) roomLocked() int {
	if s.draining || s.reporting >= s.maxPending {
		return 0
	}
	over := s.yielding + len(s.yielded) - s.asideLocked()
	return max(s.limit+s.aheadLocked()-len(s.running)-len(s.waiting)-s.promised-over, 0)
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
// run them. While draining none begins: they wait to be handed back. tell is as
// with end.
func (s *slots) add(claimed []*execution) (begin []*execution, tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, x := range claimed {
		x.since = now
		s.claims[x.key.Token] = x
	}
	s.waiting = append(s.waiting, inOrder(claimed)...)
	return s.beginLocked(now), s.tellLocked()
}

// nextLocked gives a permit to the claim that waits longest. A claim whose lease
// is over by our clock does not begin, since another worker may have the step: it
// waits for expire, or for the heartbeat that extended its lease after all. One
// that was made ahead waits until its beginning has been announced, and all behind
// it with it.
func (s *slots) nextLocked(now time.Time) *execution {
	if s.draining || len(s.running) >= s.limit {
		return nil
	}
	at := slices.IndexFunc(s.waiting, func(x *execution) bool { return x.leaseEnd.After(now) })
	if at < 0 || !s.announced.covers(s.waiting[at]) {
		return nil
	}
	x := s.waiting[at]
	if at == 0 {
		s.waiting[0], s.waiting = nil, s.waiting[1:]
	} else {
		s.waiting = slices.Delete(s.waiting, at, at+1)
	}
	x.phase, x.began = phaseRunning, now
	s.running = append(s.running, x)
	x.permit = len(s.running)
	if x.job != nil {
		s.limitLocked(x, now)
	}
	return x
}

// describe gives an execution the job it came without; the time of its handler
// begins now.
func (s *slots) describe(x *execution, j *job) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	x.job = j
	s.limitLocked(x, now)
}

// ending is how an execution ended.
type ending uint8

const (
	endedWell    ending = iota + 1
	endedBadly          // it failed
	endedByStop         // it gave up because of the shutdown
	endedByYield        // it wants to go on from a checkpoint
	endedInTx           // the right to report its end has been taken by settle
	endedSettled        // the same, and its report is made
)

// settleLocked asks for the right to report the end of an execution; only the
// first who asks gets it. A failure under a lost claim is not worth a report; a
// success is, and the fence decides about it.
func (s *slots) settleLocked(x *execution, success bool) bool {
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

// settle asks for the right to report the end of an execution before its permit
// is given back. From then on nobody else reports it: neither its time limit nor
// the loss of its lease.
func (s *slots) settle(x *execution, success bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settleLocked(x, success)
}

func (s *slots) zombieLocked(x *execution) {
	if x.permit > 0 && !x.zombie {
		x.zombie = true
		s.zombies++
		s.onZombies(s.zombies)
	}
}

// ended is what follows from the end of a handler.
type ended struct {
	took   time.Duration // since it got its permit
	report bool          // its end is to be reported, or its checkpoint saved, by whoever is told so
	next   *execution    // goes on with the permit
	look   bool          // a look is owed and there is room
	tell   bool          // whoever is told so announces what begins next
}

// end takes the permit of an execution whose handler has ended.
func (s *slots) end(x *execution, how ending) (e ended) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case how == endedInTx || how == endedSettled:
	case how == endedByYield:
		e.report = s.yieldLocked(x)
	case how != endedByStop:
		e.report = s.settleLocked(x, how == endedWell)
	case x.phase == phaseRunning:
		x.phase = phaseReturned
	}
	s.releaseLocked(x)
	e.took = now.Sub(x.began)
	s.pace.served(e.took)
	s.changedLocked()
	e.next, e.look = s.nextLocked(now), s.payLocked()
	e.tell = s.tellLocked()
	return e
}

func (s *slots) releaseLocked(x *execution) {
	last := len(s.running) - 1
	moved := s.running[last]
	s.running[x.permit-1], moved.permit = moved, x.permit
	s.running[last], x.permit = nil, 0
	s.running = s.running[:last]
	if x.zombie {
		x.zombie = false
		s.zombies--
		s.onZombies(s.zombies)
	}
}

// done forgets claims whose reports were answered; look is as with end.
func (s *slots) done(list ...*execution) (look bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range list {
		if x.phase != phaseReporting {
			continue
		}
		x.phase = phaseGone
		s.reporting--
		delete(s.claims, x.key.Token)
	}
	s.changedLocked()
	return s.payLocked()
}

// drain stops the beginning of handlers and lists what has not begun since it
// was last called. It stays ours until it is forgotten.
func (s *slots) drain() (unstarted []*execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining, s.owed = true, false
	unstarted = slices.Concat(s.waiting, s.yielded)
	s.waiting, s.yielded = nil, nil
	return unstarted
}

// hand notes that claims are being handed back, or that this has failed.
// Meanwhile a heartbeat that no longer finds them has not seen them lost.
func (s *slots) hand(list []*execution, underWay bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range list {
		x.handing = underWay
	}
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
	for _, x := range s.running {
		x.life.end(cause)
	}
}

// remains takes out every claim that is left: those whose handlers did not
// begin, yielded, or gave up because they were told to, and those that still run
// or could not be reported.
func (s *slots) remains() (unfinished, rest []*execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for token, x := range s.claims {
		if x.phase == phaseReturned || x.phase == phaseWaiting || x.phase == phaseYielding {
			unfinished = append(unfinished, x)
		} else {
			rest = append(rest, x)
		}
		delete(s.claims, token)
	}
	s.waiting, s.yielded = nil, nil
	return unfinished, rest
}
