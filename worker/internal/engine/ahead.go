package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/store"
)

// Claiming ahead. If a worker claims only for its free permits and its handlers take
// microseconds, it queries the database once per handful of steps. It therefore also
// claims the steps that will begin soon: none when handlers take seconds, hundreds when
// they take nothing.
const (
	// maxAhead bounds the steps claimed beyond the permits.
	maxAhead = 500
	// aheadCover is how many round trips of a claim the steps in hand should last: one
	// claim is under way while the steps of the other run. soon is the least time they
	// should last, so that few permits do not cost a claim per few steps: with steps of 1
	// ms, 4 permits run 2.7 k/s without it and 3.7 k/s with it.
	aheadCover = 2
	soon       = 10 * time.Millisecond
	// maxAheadAge is how long a step claimed ahead may wait for a permit. After that the
	// handlers have become slow, and other workers may have free permits.
	maxAheadAge = time.Second
	// memory is the weight of old values in the averages, out of one.
	memory = 0.9
)

// pace holds the recent averages. Its zero value claims nothing ahead.
type pace struct {
	service time.Duration // of a step, while it has a permit
	claim   time.Duration // of a claim, from the request to the answer
}

func (p *pace) served(took time.Duration) {
	p.service = average(p.service, max(took, time.Microsecond))
}
func (p *pace) claimed(took time.Duration) { p.claim = average(p.claim, took) }

// slowed raises the service time to the time that steps claimed ahead have waited.
func (p *pace) slowed(took time.Duration) { p.service = max(p.service, took) }

// maxServices bounds the callables whose handlers are measured one by one.
const maxServices = 1000

func (s *slots) servedLocked(j *job, took time.Duration) {
	if j == nil {
		return // its plan was never read
	}
	past, known := s.services[j.calls]
	if known || len(s.services) < maxServices {
		s.services[j.calls] = average(past, max(took, time.Microsecond))
	}
}

// load returns the permits and the mean times of the handlers.
func (s *slots) load() store.WorkerLoad {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := store.WorkerLoad{Permits: s.limit, ServiceMS: make(map[int32]float64, len(s.services))}
	for callable, took := range s.services {
		l.ServiceMS[callable] = float64(took) / float64(time.Millisecond)
	}
	return l
}

func average(past, now time.Duration) time.Duration {
	if past == 0 {
		return now
	}
	return time.Duration(memory*float64(past) + (1-memory)*float64(now))
}

// ahead returns how many steps to have claimed beyond the permits, at least floor.
func (p *pace) ahead(permits, floor int) int {
	return max(floor, p.begin(permits, max(aheadCover*p.claim, soon)))
}

// begin returns how many steps begin within the time while there are any; maxAhead at
// most.
func (p *pace) begin(permits int, within time.Duration) int {
	if p.service <= 0 || p.claim <= 0 {
		return 0
	}
	return int(min(float64(permits)*float64(within)/float64(p.service), maxAhead))
}

func (s *slots) aheadLocked() int {
	if s.announced.refused > 0 {
		return 0
	}
	return s.pace.ahead(s.limit, s.prefetch)
}

// announced is what the database knows about claims made ahead that begin here. A claim
// that is lost before its beginning was announced uses no attempt.
type announced struct {
	worker   uuid.UUID
	token    int64 // claims of worker up to it may begin
	underWay bool  // an announcement is under way
	refused  int   // number of coming claims that claim nothing ahead
}

// refusals is the number of claims without claiming ahead after a claim that got nothing
// ahead because the waiting steps are on their last attempt: each such claim would lock
// rows that it does not get.
const refusals = 32

// covers reports whether an execution may begin: announced, or not claimed ahead.
func (a *announced) covers(x *Execution) bool {
	return !x.Claim.Ahead || x.worker == a.worker && x.Key.Token <= a.token
}

// to records that claims of a worker up to a token may begin.
func (a *announced) to(worker uuid.UUID, token int64) {
	if worker != a.worker {
		a.worker, a.token = worker, 0
	}
	a.token = max(a.token, token)
}

// claimed records, before the steps of a claim are added, what it has announced, whether
// it got steps ahead, and how long it took if it found any.
func (s *slots) claimed(r *store.ClaimRequest, claimed []store.Claimed, rest store.Rest, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(claimed) > 0 {
		s.pace.claimed(took)
	}
	a := &s.announced
	a.refused = max(a.refused-1, 0)
	if r.Ahead == 0 {
		return
	}
	a.to(r.Worker, r.Begun(claimed))
	if rest&store.RestLast != 0 && !slices.ContainsFunc(claimed, func(c store.Claimed) bool { return c.Ahead }) {
		a.refused = refusals
	}
}

// inOrder sorts the executions that may begin without an announcement first, then the
// others by token, the order in which they are announced.
func inOrder(claimed []*Execution) []*Execution {
	token := func(x *Execution) int64 {
		if x.Claim.Ahead {
			return x.Key.Token
		}
		return 0
	}
	slices.SortStableFunc(claimed, func(a, b *Execution) int { return cmp.Compare(token(a), token(b)) })
	return claimed
}

// mustAnnounceLocked reports whether the caller must announce what begins next. It is
// announced early, so that no permit is free during the round trip.
func (s *slots) mustAnnounceLocked() bool {
	if s.announced.underWay || s.draining {
		return false
	}
	lead := s.leadLocked()
	for i, x := range s.waiting {
		if i == lead {
			return false
		}
		if !s.announced.covers(x) {
			s.announced.underWay = true
			return true
		}
	}
	return false
}

// leadLocked returns how many executions begin during one round trip.
func (s *slots) leadLocked() int {
	return max(s.pace.begin(s.limit, s.pace.claim), s.prefetch/aheadCover, 1)
}

// nextAnnouncement returns what to announce now: of one worker's claims as many as begin
// in the next two round trips. before is what was announced last.
func (s *slots) nextAnnouncement() (worker uuid.UUID, before, token int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := 2 * s.leadLocked()
	for _, x := range s.waiting {
		if s.announced.covers(x) {
			continue
		}
		if left == 0 || token > 0 && x.worker != worker {
			break
		}
		worker, token = x.worker, max(token, x.Key.Token)
		left--
	}
	if worker == s.announced.worker {
		before = s.announced.token
	}
	return worker, before, token
}

// announcementDone records an announcement that succeeded.
func (s *slots) announcementDone(worker uuid.UUID, token int64, err error) follows {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announced.underWay = false
	if err == nil && token > 0 {
		s.announced.to(worker, token)
	}
	return s.followsLocked(time.Now())
}

// announce announces to the database that steps claimed ahead begin, and begins them.
// While the database is unavailable it retries until no such step is left; their leases
// end meanwhile.
func (e *Engine) announce() {
	for try, again := 0, true; again; {
		worker, before, token := e.slots.nextAnnouncement()
		var err error
		if token > 0 {
			ctx, cancel := context.WithTimeout(e.base, e.cfg.Lease/2)
			err = e.board.BeginClaims(ctx, worker, before, token)
			cancel()
		}
		if try++; err != nil {
			e.log.Debug("the beginning of steps claimed ahead was not announced", zap.Error(err))
			if pause(e.base, try, 0) != nil {
				return
			}
		} else {
			try = 0
		}
		after := e.slots.announcementDone(worker, token, err)
		again, after.announce = after.announce, false
		e.follow(after)
	}
}

// stale removes the steps claimed ahead that have waited too long for a permit; the
// worker keeps their claims until they are handed back.
func (s *slots) stale(now time.Time) (list []*Execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) <= s.prefetch {
		return nil
	}
	age := now.Sub(s.waiting[0].since)
	if age < maxAheadAge {
		return nil
	}
	s.pace.slowed(age)
	list = slices.Clone(s.waiting[s.prefetch:])
	s.waiting = s.waiting[:s.prefetch:s.prefetch]
	return list
}
