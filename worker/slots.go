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

// phase is the state of an execution. Phases only advance.
type phase uint8

const (
	phaseWaiting   phase = iota + 1 // claimed, waits for a permit
	phaseRunning                    // its handler runs
	phaseYielding                   // its handler has yielded; the checkpoint is under way to the database
	phaseReporting                  // its outcome is under way to the database
	phaseReturned                   // its handler gave up because of the shutdown
	phaseGone                       // the claim is reported, handed back or lost
)

// execution is one claimed step with everything needed until its outcome is reported. It
// is not reused: a handler may keep its context longer than it should.
type execution struct {
	engine   *engine
	claim    store.Claimed
	worker   uuid.UUID // under which it was claimed, if ahead
	key      store.ClaimKey
	progress progress
	ctx      lazyContext
	context  StepContext // the handler's context
	outcome  outcome     // filled in by the holder of the right to report
	// published are the events to route after its report was accepted; nil: none.
	published *publication
	tx        *transaction // of a handler that works in one; used only by its goroutine
	// queued: the handler waits for the connection of its transaction.
	queued atomic.Bool

	// The fields below are guarded by the slots' lock. The goroutine that has the permit
	// may read job, which does not change once set.
	job      *job // nil: not known yet
	phase    phase
	zombie   bool // reported or lost, but its handler still runs
	lost     bool // the claim is lost; a failure need not be reported
	handing  bool // being handed back; the answer shows whether the claim still holds
	permit   int  // its index in running, from 1; 0: none
	leaseEnd time.Time
	since    time.Time // when it was claimed, by the local clock
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

// slots accounts for permits and claims. A permit belongs to a handler's goroutine until
// it returns, even if its outcome was reported long ago (time limit) or does not count
// any more (lease lost): so the number of running handlers is bounded. It is safe for
// concurrent use.
//
// A step takes the lock once, when its handler has ended: the end of one handler and the
// beginning of the next on its permit are one change.
type slots struct {
	limit      int // permits
	prefetch   int // claims that may wait for a permit, even with slow handlers
	maxPending int // pending outcomes beyond which nothing is claimed

	mu        sync.Mutex
	claims    map[int64]*execution // by token: all held claims
	running   []*execution         // all with a permit, unordered
	waiting   []*execution
	yielded   []*execution // saved, wait for a look before they wait for a permit
	pace      pace
	announced announced
	promised  int // permits for steps that are being claimed with a settlement
	reporting int
	yielding  int // checkpoints under way to the database, of ended executions
	zombies   int
	onZombies func(count int) // called under the lock when zombies changes
	owed      bool            // a look is due as soon as there is room
	dry       bool            // the latest look has found less than it asked for
	lookFirst bool            // a look is due before yielded steps continue
	draining  bool
	changed   chan struct{} // closed when something ends; created by a waiter
	deadlines deadlines
}

func newSlots(limit, prefetch, maxPending int) *slots {
	return &slots{limit: limit, prefetch: prefetch, maxPending: maxPending,
		claims: map[int64]*execution{}, running: make([]*execution, 0, limit), onZombies: func(int) {},
		deadlines: deadlines{passed: func() {}}}
}

// room returns how many steps may be claimed now. Without room a look is owed.
func (s *slots) room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := s.roomLocked()
	s.owed = room == 0 && !s.draining
	return room
}

// beyond returns how many of so many claims would not begin at once.
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

// owe records that there is more to claim than there was room for, and reports whether
// there is room again already.
func (s *slots) owe() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.owed = true
	return s.payLocked()
}

// payLocked reports whether the owed look should happen now.
func (s *slots) payLocked() bool {
	// Half of the steps claimed ahead run before the next claim: claims of one step each
	// would cost as much as claims of many.
	if room := s.roomLocked(); !s.owed || room == 0 || len(s.waiting) > s.aheadLocked()/2 {
		return false
	}
	s.owed = false
	return true
}

// payNow is payLocked for callers that made room by other means.
func (s *slots) payNow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.payLocked()
}

// add adds claims and returns those that begin at once; the caller must run them. While
// draining none begins: they wait to be handed back. announce means the same as for
// ended.
func (s *slots) add(claimed []*execution) (begin []*execution, announce bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, x := range claimed {
		x.since = now
		s.claims[x.key.Token] = x
	}
	s.waiting = append(s.waiting, inOrder(claimed)...)
	return s.beginLocked(now), s.mustAnnounceLocked()
}

// nextLocked gives a permit to the claim that has waited longest. A claim whose lease has
// ended by the local clock does not begin, since another worker may have the step: it
// waits for expire, or for a heartbeat that extended its lease after all. A claim made
// ahead waits until its beginning has been announced, and so do all behind it.
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

// describe sets the job of an execution without one; the time limit of its handler starts
// now.
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
	endedWell     ending = iota + 1
	endedBadly           // it failed
	endedByStop          // it ended because of the shutdown
	endedByYield         // it continues from a checkpoint
	endedInTx            // the right to report was taken by winReport
	endedReported        // the same, and the report is composed
)

// winReportLocked requests the right to report the end of an execution; only the first
// caller gets it. A failure under a lost claim need not be reported; a success is, and
// the fence decides.
func (s *slots) winReportLocked(x *execution, success bool) bool {
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

// winReport requests the right to report the end of an execution before its permit is
// free. After that nothing else reports it: neither its time limit nor the loss of its
// lease.
func (s *slots) winReport(x *execution, success bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.winReportLocked(x, success)
}

func (s *slots) zombieLocked(x *execution) {
	if x.permit > 0 && !x.zombie {
		x.zombie = true
		s.zombies++
		s.onZombies(s.zombies)
	}
}

// ended is what follows the end of a handler.
type ended struct {
	took     time.Duration // since it got its permit
	report   bool          // the caller must report the end or save the checkpoint
	next     *execution    // continues with the permit
	look     bool          // a look is owed and there is room
	announce bool          // the caller must announce what begins next
}

// end frees the permit of an execution whose handler has ended.
func (s *slots) end(x *execution, how ending) (e ended) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case how == endedInTx || how == endedReported:
	case how == endedByYield:
		e.report = s.yieldLocked(x)
	case how != endedByStop:
		e.report = s.winReportLocked(x, how == endedWell)
	case x.phase == phaseRunning:
		x.phase = phaseReturned
	}
	s.releaseLocked(x)
	e.took = now.Sub(x.began)
	s.pace.served(e.took)
	s.changedLocked()
	e.next, e.look = s.nextLocked(now), s.payLocked()
	e.announce = s.mustAnnounceLocked()
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

// done removes claims whose reports were answered; look means the same as for ended.
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

// drain stops the start of handlers and lists the claims that have not begun since the
// last call. They stay held until forget.
func (s *slots) drain() (unstarted []*execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining, s.owed = true, false
	unstarted = slices.Concat(s.waiting, s.yielded)
	s.waiting, s.yielded = nil, nil
	return unstarted
}

// hand records that claims are being handed back, or that this has failed. During the
// call a heartbeat that no longer finds them does not count them as lost.
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

// waitFor returns when cond holds, or with the error of ctx.
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
		x.ctx.end(cause)
	}
}

// remains removes every remaining claim: unfinished ones, whose handlers did not begin,
// yielded, or ended because of the shutdown, and the rest, which still run or could not
// be reported.
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
