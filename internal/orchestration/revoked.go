package orchestration

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/signal"
)

// revokedPause is the least time between two signals that name a worker: whatever the number of
// cancelled tasks, it learns of all of them from one heartbeat.
const revokedPause = 100 * time.Millisecond

// revoked tells workers that claims of theirs were revoked: the first time at once, and what follows
// within revokedPause together.
type revoked struct {
	loop    *lifecycle.Loop
	publish func(...signal.Signal)
	more    chan struct{} // capacity 1

	mu      sync.Mutex
	waiting map[uuid.UUID]struct{}
	told    map[uuid.UUID]time.Time // within the last pause
}

func newRevoked(cfg *Config) *revoked {
	r := &revoked{publish: cfg.Publisher.Publish, more: make(chan struct{}, 1), waiting: map[uuid.UUID]struct{}{}, told: map[uuid.UUID]time.Time{}}
	r.loop = lifecycle.NewLoop(lifecycle.LoopConfig{Name: "revoked-claims", Run: r.run, Logger: cfg.Logger, OnRestart: cfg.Metrics.Restarted})
	return r
}

// tell requests a signal to workers; it never blocks.
func (r *revoked) tell(workers []uuid.UUID) {
	if len(workers) == 0 {
		return
	}
	r.mu.Lock()
	for _, worker := range workers {
		r.waiting[worker] = struct{}{}
	}
	r.mu.Unlock()
	lifecycle.Nudge(r.more)
}

// due takes the workers to name now, and returns how long the others have to wait; 0: there are none.
func (r *revoked) due(now time.Time) (workers []string, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for worker, at := range r.told {
		if now.Sub(at) >= revokedPause {
			delete(r.told, worker)
		}
	}
	for worker := range r.waiting {
		if at, recently := r.told[worker]; recently {
			if left := revokedPause - now.Sub(at); wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		workers, r.told[worker] = append(workers, worker.String()), now
		delete(r.waiting, worker)
	}
	return workers, wait
}

// run publishes the signals until ctx ends; workers that still wait then learn of it from their next
// heartbeats.
func (r *revoked) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-r.more:
		}
		workers, wait := r.due(time.Now())
		r.publish(signal.Revoked(workers)...)
		if wait > 0 {
			timer.Reset(wait)
		}
	}
}
