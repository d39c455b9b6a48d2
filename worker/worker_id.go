package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
)

// ErrWorkerIDInUse says that another worker runs under the WorkerID, which is Exclusive.
var ErrWorkerIDInUse = errors.New("worker_id is in use")

// sighting is when another worker with the WorkerID was first seen, and its last
// heartbeat at that time.
type sighting struct {
	at, heartbeat time.Time
}

// takeWorkerID returns when no other worker runs under the WorkerID. It detects a dead
// one after one and a half heartbeats and releases its claims at once instead of at the
// end of their leases. A living one sends within one interval: while the database is
// unavailable it retries five times as often, so a heartbeat that is old because none
// could be sent proves nothing before half an interval has been watched.
func (w *Worker) takeWorkerID(ctx context.Context, p *parts, watch time.Duration) error {
	d, interval := w.describe(p), w.cfg.HeartbeatInterval
	seen := map[uuid.UUID]sighting{}
	for {
		var silent []uuid.UUID
		for id, s := range seen {
			if time.Since(s.at) >= watch {
				silent = append(silent, id)
			}
		}
		taken, err := p.board.TakeWorkerID(ctx, d, silent, interval+interval/2)
		if err != nil {
			return err
		}
		if len(taken.Others) == 0 {
			if len(silent) > 0 {
				w.cfg.Logger.Info("took over from a dead worker with the same worker_id", zap.String("worker_id", d.ID),
					zap.Stringers("worker_uuids", silent), zap.Int("released", taken.Released))
			}
			p.publisher.Publish(taken.Signals...)
			return nil
		}
		for _, o := range taken.Others {
			s, known := seen[o.UUID]
			if !known {
				seen[o.UUID] = sighting{at: time.Now(), heartbeat: o.HeartbeatAt}
			}
			if known && (o.HeartbeatAt.After(s.heartbeat) || watch == 0) {
				return fmt.Errorf("%w: %q belongs to worker %s on %s, whose last heartbeat was %v ago; set another worker.worker_id, or none",
					ErrWorkerIDInUse, d.ID, o.UUID, o.Hostname, o.HeartbeatAge.Round(time.Millisecond))
			}
		}
		timer := time.NewTimer(interval / 10)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// retakeWorkerID is takeWorkerID for a worker that runs: it ends if another one has taken
// the WorkerID.
func (w *Worker) retakeWorkerID(ctx context.Context, p *parts, fatal func(error)) error {
	err := w.takeWorkerID(ctx, p, 0)
	if errors.Is(err, ErrWorkerIDInUse) {
		fatal(err)
	}
	return err
}
