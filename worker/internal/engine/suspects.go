package engine

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
)

// Steps that were lost with a process before, this one or another: it has at most one suspect among
// them under way, and beside a suspect no other. Then a suspect whose process is lost is to blame for
// it, whatever else ran there. See decision 0004.

// suspectPause is the pause after a claim that found no suspect although some wait: for other workers,
// or behind a limit.
const suspectPause = time.Second

// suspects is what the looks know of suspects on the board; only they use it.
type suspects struct {
	wait  bool      // the latest look has seen some
	after time.Time // when the next one may be claimed
}

// seen learns from what a claim has left.
func (s *suspects) seen(rest store.Rest) { s.wait = s.wait || rest&store.RestSuspects != 0 }

// retry asks for another look if suspects wait and this process may have one.
func (s *suspects) retry(slots *slots, out *coordinator.Outcome) {
	if s.wait && slots.takesSuspect() {
		out.SoonerRetry(max(time.Until(s.after), lockedRetry), coordinator.MissingUnseen)
	}
}

// lookSuspect claims one suspect if some wait and the process may have one now.
func (e *Engine) lookSuspect(ctx context.Context, out *coordinator.Outcome) (got haul, err error) {
	wait := e.suspects.wait
	e.suspects.wait = false // the claims of this look see anew
	if !wait || time.Now().Before(e.suspects.after) || !e.slots.takesSuspect() {
		return got, nil
	}
	e.suspects.after = time.Now().Add(suspectPause)
	free, limited, _ := e.queues.claimable()
	if len(free) > 0 {
		got, err = e.claimBy(ctx, e.claimRequest(1, free), e.board.ClaimSuspect)
	}
	if err == nil && got.found == 0 && len(limited) > 0 {
		request := e.claimRequest(1, limited)
		request.Suspects = true
		got, _, err = e.claimLimited(ctx, request, true, out)
	}
	if err == nil && got.found > 0 {
		e.suspects.after = time.Time{}
	}
	return got, err
}

// hasSuspect reports whether a suspect is under way.
func (s *slots) hasSuspect() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.lostBefore {
		if x.Claim.Losses >= store.SuspectedFrom {
			return true
		}
	}
	return false
}

// takesSuspect reports whether a suspect may be claimed now: it would begin at once, and no step that
// was lost before is in hand.
func (s *slots) takesSuspect() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lostBefore) == 0 && !s.draining && s.freeLocked() > 0
}

// watchLocked notes a claim of a step that was lost before.
func (s *slots) watchLocked(x *Execution) {
	if x.Claim.Losses > 0 {
		s.lostBefore[x.Key.Token] = x
	}
}

// clearLocked forgets such a claim: it has ended, or it has run for longer than before its losses. A
// look is due, for those that had to wait for that.
func (s *slots) clearLocked(x *Execution) {
	if s.lostBefore[x.Key.Token] == x {
		delete(s.lostBefore, x.Key.Token)
		s.owed = !s.draining
	}
}

// outlivedLocked clears a claim whose lease a heartbeat has extended. The database decides by the time of
// that heartbeat, too.
func (s *slots) outlivedLocked(x *Execution) {
	if x.Claim.Losses > 0 && x.outlived(x.leaseEnd.Sub(x.claimEnd)) {
		s.clearLocked(x)
	}
}

// outlived reports whether a claim that has run for so long has run for longer than before its losses.
func (x *Execution) outlived(ran time.Duration) bool {
	return ran > time.Duration(x.Claim.LostAfterMs)*time.Millisecond
}

// Lose ends the claim of a step whose handler ran in another process, which is lost; seen was the last
// sign of it. The step is to blame if it is a suspect: it was the only one here. Lose repeats that while
// the database is unavailable and the step may run, and reports whether it worked.
func (x *Execution) Lose(seen time.Time, maxLosses int) bool {
	e := x.engine
	blamed := x.Claim.Losses >= store.SuspectedFrom && !x.outlived(seen.Sub(x.claimEnd.Add(-e.cfg.Lease)))
	if blamed {
		e.log.Warn("a step is blamed for the loss of the process that ran it", zap.Inline(x))
	}
	return x.giveUp(func() error {
		return e.giveBack([]*Execution{x}, func(keys []store.ClaimKey) ([]signal.Signal, error) {
			if len(keys) == 0 { // something else has ended it
				return nil, nil
			}
			return e.board.LoseClaim(&x.Ctx, x.Key, blamed, maxLosses)
		})
	})
}
