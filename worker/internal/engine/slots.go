package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tasker-go/tasker/internal/store"
)

// phase is the state of an execution:
//
//	          permit          end, time limit           answer
//	waiting ─────────▶ running ─────────────▶ reporting ─────▶ gone
//	   │               │ │ │                    ▲    ▲
//	   │               │ │ └─shutdown─▶ returned│    │
//	   │               │ └─yield─▶ yielding ────┘    │ success: the fence decides
//	   │               │              │ not storable │
//	   └──lease over───┴──────────────┴──────────▶ lost
//
// These are all transitions; TestPhasesMoveAsDrawn compares them with the code.
//
//	waiting   → running handing lost
//	running   → reporting yielding returned handing lost
//	reporting → gone
//	returned  → handing
//	yielding  → gone reporting handing lost
//	handing   → gone running waiting
//	lost      → reporting
//
// A saved checkpoint makes a yielding execution gone; another one of the same claim waits
// in its place. An execution that could not be handed back returns to its former phase.
//
// A permit belongs to the handler's goroutine until it returns, in whatever phase: a
// handler whose execution was reported or lost in the meantime is a zombie.
type phase uint8

const (
	phaseWaiting   phase = iota // claimed, waits for a permit
	phaseRunning                // its handler runs
	phaseYielding               // its handler has yielded; the checkpoint is under way to the database
	phaseReporting              // its outcome is under way to the database
	phaseReturned               // its handler gave up because of the shutdown
	phaseHanding                // being handed back; the answer shows whether the claim still holds
	phaseLost                   // the claim is lost; a failure need not be reported
	phaseGone                   // the claim is reported or handed back, or another execution has it
	phases
)

// slots accounts for permits and claims: permits bound the number of running handlers. It
// is safe for concurrent use. Its methods change phases, by move alone; what follows from
// a change is returned for the caller to do without the lock (engine.follow).
//
// A step takes the lock once, when its handler has ended: the end of one handler and the
// beginning of the next on its permit are one change.
type slots struct {
	limit      int // permits
	prefetch   int // claims that may wait for a permit, even with slow handlers
	maxPending int // pending outcomes beyond which nothing is claimed

	mu         sync.Mutex
	claims     map[int64]*Execution // by token: all held claims
	lostBefore map[int64]*Execution // those of steps that were lost with a process before, see suspects.go
	running    []*Execution         // all with a permit, unordered
	waiting    []*Execution
	yielded    []*Execution // saved, wait for a look before they wait for a permit
	pace       pace
	services   map[int32]time.Duration // mean time of handlers by callable
	announced  announced
	promised   int         // permits for steps that are being claimed with a settlement
	in         [phases]int // claims by phase
	zombies    int
	onZombies  func(count int) // called under the lock when zombies changes
	owed       bool            // a look is due as soon as there is room
	// owedPermit: a look is due as soon as a permit is free. Not all limited steps are claimed ahead.
	owedPermit bool
	dry        bool // the latest look has found less than it asked for
	lookFirst  bool // a look is due before yielded steps continue
	draining   bool
	changed    chan struct{} // closed when something ends; created by a waiter
	deadlines  deadlines
}

func newSlots(limit, prefetch, maxPending int) *slots {
	return &slots{limit: limit, prefetch: prefetch, maxPending: maxPending,
		claims: map[int64]*Execution{}, lostBefore: map[int64]*Execution{}, running: make([]*Execution, 0, limit), services: map[int32]time.Duration{}, onZombies: func(int) {},
		deadlines: deadlines{passed: func() {}}}
}

// move takes an execution from one phase to another. It reports whether it was in the
// first: of several that want to end an execution, one does.
func (s *slots) move(x *Execution, from, to phase) bool {
	if x.phase != from {
		return false
	}
	x.phase = to
	s.in[from]--
	s.in[to]++
	if to == phaseLost || to == phaseGone {
		delete(s.claims, x.Key.Token)
		s.clearLocked(x)
	}
	s.changedLocked()
	return true
}

// follows is the work that a change of the slots requires.
type follows struct {
	begin    []*Execution  // have got permits and must be started
	next     *Execution    // continues with the permit of an ended one
	took     time.Duration // the ended one, since it got its permit
	look     bool          // a look is owed and there is room
	announce bool          // what begins next must be announced
}

// followsLocked assigns the free permits and returns what follows from it.
func (s *slots) followsLocked(now time.Time) (f follows) {
	for x := s.nextLocked(now); x != nil; x = s.nextLocked(now) {
		f.begin = append(f.begin, x)
	}
	f.look, f.announce = s.payLocked(), s.mustAnnounceLocked()
	return f
}

// follow does what follows from a change of the slots, except for next.
func (e *Engine) follow(f follows) {
	for _, x := range f.begin {
		e.start(x)
	}
	if f.announce {
		e.group.Go(e.announce)
	}
	if f.look {
		e.cfg.Wake()
	}
}

// add adds claims, also ones that were not handed back, unless something has ended them in the
// meantime. While draining none begins: they wait to be handed back.
func (s *slots) add(claimed []*Execution) follows {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	claimed = slices.DeleteFunc(claimed, func(x *Execution) bool { return x.phase != phaseWaiting })
	for _, x := range claimed {
		s.holdLocked(x, now)
	}
	s.waiting = append(s.waiting, inOrder(claimed)...)
	return s.followsLocked(now)
}

// holdLocked records a claim, also one that was to be handed back.
func (s *slots) holdLocked(x *Execution, now time.Time) {
	if s.claims[x.Key.Token] != x {
		s.claims[x.Key.Token] = x
		s.in[x.phase]++
		s.watchLocked(x)
	}
	x.since = now
}

// nextLocked gives a permit to the claim that has waited longest. A claim whose lease has
// ended by the local clock does not begin, since another worker may have the step: it
// waits for expire, or for a heartbeat that extended its lease after all. A claim made
// ahead waits until its beginning has been announced, and so do all behind it.
func (s *slots) nextLocked(now time.Time) *Execution {
	if s.draining || len(s.running) >= s.limit {
		return nil
	}
	at := slices.IndexFunc(s.waiting, func(x *Execution) bool { return x.leaseEnd.After(now) })
	if at < 0 || !s.announced.covers(s.waiting[at]) {
		return nil
	}
	x := s.waiting[at]
	if at == 0 {
		s.waiting[0], s.waiting = nil, s.waiting[1:]
	} else {
		s.waiting = slices.Delete(s.waiting, at, at+1)
	}
	s.move(x, phaseWaiting, phaseRunning)
	x.began = now
	s.running = append(s.running, x)
	x.permit = len(s.running)
	if x.job != nil {
		s.limitLocked(x, now)
	}
	return x
}

// describe sets the job of an execution without one; the time limit of its handler starts
// now.
func (s *slots) describe(x *Execution, j *job) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	x.describe(j)
	s.limitLocked(x, now)
}

// winLocked requests the right to report the end of an execution; only the first caller
// gets it. A failure under a lost claim need not be reported; a success is, and the fence
// decides.
func (s *slots) winLocked(x *Execution, how Kind) bool {
	if how == Success && s.move(x, phaseLost, phaseReporting) {
		s.claims[x.Key.Token] = x
		return true
	}
	return s.move(x, phaseRunning, phaseReporting)
}

// winReport requests the right to report for a handler's goroutine before its permit is
// free. After that nothing else reports it: neither its time limit nor the loss of its
// lease.
func (s *slots) winReport(x *Execution, how Kind) (won bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	won = s.winLocked(x, how)
	x.mine = x.mine || won
	return won
}

// zombieLocked marks an execution that was ended while its handler runs.
func (s *slots) zombieLocked(x *Execution, zombie bool) {
	if x.zombie == zombie {
		return
	}
	x.zombie = zombie
	if zombie {
		s.zombies++
	} else {
		s.zombies--
	}
	s.onZombies(s.zombies)
}

// end frees the permit of an execution whose handler has ended, and sets mine if it is
// the first to end it.
func (s *slots) end(x *Execution, how Kind) (f follows) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch how {
	case Success, Failed:
		x.mine = x.mine || s.winLocked(x, how)
	case Yielded:
		x.mine = s.move(x, phaseRunning, phaseYielding)
	case GivenUp:
		s.move(x, phaseRunning, phaseReturned)
	}
	s.releaseLocked(x)
	f.took = now.Sub(x.began)
	s.pace.served(f.took)
	s.servedLocked(x.job, f.took)
	f.next, f.look = s.nextLocked(now), s.payLocked()
	f.announce = s.mustAnnounceLocked()
	return f
}

func (s *slots) releaseLocked(x *Execution) {
	last := len(s.running) - 1
	moved := s.running[last]
	s.running[x.permit-1], moved.permit = moved, x.permit
	s.running[last], x.permit = nil, 0
	s.running = s.running[:last]
	s.zombieLocked(x, false)
	s.changedLocked()
}

// done removes claims whose reports were answered, if any, and assigns the room that
// there is.
func (s *slots) done(list ...*Execution) follows {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range list {
		s.move(x, phaseReporting, phaseGone)
	}
	return s.followsLocked(time.Now())
}

// drain stops the start of handlers and lists the claims that have not begun since the
// last call. They stay held until they are handed back.
func (s *slots) drain() (unstarted []*Execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining, s.owed, s.owedPermit = true, false, false
	unstarted = slices.Concat(s.waiting, s.yielded)
	s.waiting, s.yielded = nil, nil
	return unstarted
}

// hand begins to hand back claims and returns those that nothing else has ended. During
// the call a heartbeat that no longer finds them does not count them as lost.
func (s *slots) hand(list []*Execution) (keys []store.ClaimKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range list {
		if s.move(x, phaseWaiting, phaseHanding) || s.move(x, phaseRunning, phaseHanding) || s.move(x, phaseReturned, phaseHanding) || x.phase == phaseHanding {
			keys = append(keys, x.Key)
		}
	}
	return keys
}

// handed ends hand: the claims are dropped, or held as before.
func (s *slots) handed(list []*Execution, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range list {
		switch {
		case ok:
			s.move(x, phaseHanding, phaseGone)
		case x.permit > 0:
			s.move(x, phaseHanding, phaseRunning)
		default:
			s.move(x, phaseHanding, phaseWaiting)
		}
	}
}

// waitFor returns when cond holds, or with the error of ctx.
func (s *slots) waitFor(ctx context.Context, cond func(Usage) bool) error {
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
		x.Ctx.end(cause)
	}
}

// remains takes every remaining claim out: unstarted ones, whose handlers did not begin or
// yielded; those whose handlers returned because of the shutdown; and the rest, which
// still run or could not be reported.
func (s *slots) remains() (unstarted, returned, rest []*Execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.claims {
		switch {
		case s.move(x, phaseWaiting, phaseHanding), s.move(x, phaseYielding, phaseHanding):
			unstarted = append(unstarted, x)
		case x.phase == phaseReturned:
			returned = append(returned, x)
		default:
			rest = append(rest, x)
		}
	}
	clear(s.claims)
	clear(s.lostBefore)
	s.waiting, s.yielded = nil, nil
	return unstarted, returned, rest
}
