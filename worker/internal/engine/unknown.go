package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/store"
)

// unknown tracks claims that the worker may hold without knowing: those of statements
// whose answers were lost. No handler has begun and no attempt may be used for them, so
// they are handed back. It is safe for concurrent use.
type unknown struct {
	// claiming is held for reading while steps are claimed, until they are in the slots.
	claiming sync.RWMutex

	mu     sync.Mutex
	newest int64       // token in the slots
	lost   *lostAnswer // nil: none
}

// lostAnswer is a statement whose claims are not known.
type lostAnswer struct {
	worker uuid.UUID
	after  int64 // older than all of its tokens
}

// begin must be called before steps are claimed, and end when they are in the slots.
// before is less than the tokens that are drawn in between.
func (u *unknown) begin() (before int64) {
	u.claiming.RLock()
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.newest
}

func (u *unknown) end() { u.claiming.RUnlock() }

// took records the tokens of received claims.
func (u *unknown) took(claimed []store.Claimed) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range claimed {
		u.newest = max(u.newest, claimed[i].Token)
	}
}

// lose records a lost answer.
func (u *unknown) lose(worker uuid.UUID, after int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lost != nil && u.lost.worker == worker {
		after = min(after, u.lost.after)
	}
	u.lost = &lostAnswer{worker: worker, after: after}
}

func (u *unknown) answer() *lostAnswer {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.lost
}

// forget drops a lost answer: its claims end with their leases.
func (u *unknown) forget(lost *lostAnswer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lost == lost {
		u.lost = nil
	}
}

// giveUp drops the lost answer, if any.
func (u *unknown) giveUp() { u.forget(u.answer()) }

// unknownPatience bounds how long a claim waits for the handing back of steps of another: a
// statement whose answer was lost may still run and hold their rows.
const unknownPatience = time.Second

// giveBackUnknown hands back the steps that statements with lost answers may have claimed. While
// another claim is under way, and after an error, it waits for the next look: a claim does not
// depend on it.
func (e *Engine) giveBackUnknown(ctx context.Context) {
	lost := e.unknown.answer()
	if lost == nil || !e.unknown.claiming.TryLock() {
		return
	}
	defer e.unknown.claiming.Unlock()
	ctx, cancel := context.WithTimeout(ctx, unknownPatience)
	defer cancel()
	if err := e.handBackUnknown(ctx, lost); err != nil {
		e.log.Debug("steps of a claim whose answer was lost are not handed back yet", zap.Error(err))
		return
	}
	e.unknown.forget(lost)
}

func (e *Engine) handBackUnknown(ctx context.Context, lost *lostAnswer) error {
	keys, err := e.board.ClaimsAfter(ctx, lost.worker, lost.after)
	if err != nil {
		return fmt.Errorf("look for claims whose answer was lost: %w", err)
	}
	if keys = e.slots.unaccounted(keys); len(keys) > 0 {
		signals, err := e.board.HandBack(ctx, keys)
		if err != nil {
			return fmt.Errorf("hand back claims whose answer was lost: %w", err)
		}
		e.publisher.Publish(signals...)
		e.log.Info("handed back steps of a claim whose answer was lost", zap.Int("steps", len(keys)))
	}
	return nil
}

// unaccounted returns the claims that the slots do not hold.
func (s *slots) unaccounted(keys []store.ClaimKey) (unaccounted []store.ClaimKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := make(map[int64]bool, len(s.running)) // also under a lost claim
	for _, x := range s.running {
		running[x.Key.Token] = true
	}
	for _, k := range keys {
		if s.claims[k.Token] == nil && !running[k.Token] {
			unaccounted = append(unaccounted, k)
		}
	}
	return unaccounted
}
