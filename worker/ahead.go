package worker

import (
	"slices"
	"time"
)

// Claiming ahead. A worker that claims only what it has permits for asks the
// database once per handful of steps when its handlers take microseconds. It
// therefore claims as many more as will be done by the time the next claim is
// answered: none when handlers take seconds, hundreds when they take nothing.
const (
	// maxAhead bounds the steps claimed beyond the permits.
	maxAhead = 500
	// aheadCover is how many round trips of a claim the steps in hand should
	// last: one is under way while the other is being worked off.
	aheadCover = 2
	// maxAheadAge is how long a step claimed ahead may wait for its permit.
	// Then the handlers have become slow, and others may have permits free.
	maxAheadAge = time.Second
	// memory is the weight of the past in the averages, out of one.
	memory = 0.9
)

// pace is what was measured of late. Its zero value knows nothing and claims
// nothing ahead.
type pace struct {
	service time.Duration // of a step, while it has a permit
	claim   time.Duration // of a claim, from asking to having
}

func (p *pace) served(took time.Duration) {
	p.service = average(p.service, max(took, time.Microsecond))
}
func (p *pace) claimed(took time.Duration) { p.claim = average(p.claim, took) }

// slowed forgets how fast it was: steps claimed ahead have waited this long.
func (p *pace) slowed(took time.Duration) { p.service = max(p.service, took) }

func average(past, now time.Duration) time.Duration {
	if past == 0 {
		return now
	}
	return time.Duration(memory*float64(past) + (1-memory)*float64(now))
}

// ahead is how many steps to have claimed beyond the permits, at least floor.
func (p *pace) ahead(permits, floor int) int {
	if p.service <= 0 || p.claim <= 0 {
		return floor
	}
	wanted := aheadCover * float64(permits) * float64(p.claim) / float64(p.service)
	return max(floor, int(min(wanted, maxAhead)))
}

func (s *slots) aheadLocked() int { return s.pace.ahead(s.limit, s.prefetch) }

// claimTook notes how long a claim that found something took.
func (s *slots) claimTook(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace.claimed(took)
}

// stale takes out the steps claimed ahead that have waited too long for a
// permit; they stay ours until they are handed back.
func (s *slots) stale(now time.Time) (list []*execution) {
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
