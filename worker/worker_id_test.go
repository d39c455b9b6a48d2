package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

func exclusive() Config {
	return Config{WorkerID: "payments-0", Exclusive: true, HeartbeatInterval: 3 * time.Second, Lease: 10 * time.Second}
}

// TestTheWorkerIDOfADeadWorkerIsTaken: its death is detected after one and a half
// heartbeats, however old its last one was when its successor started.
func TestTheWorkerIDOfADeadWorkerIsTaken(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ age, after time.Duration }{
		"restarted at once":           {age: 0, after: 4500 * time.Millisecond},
		"restarted after seconds":     {age: 2 * time.Second, after: 2500 * time.Millisecond},
		"the database was away":       {age: time.Minute, after: 1500 * time.Millisecond},
		"no worker had the worker_id": {age: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, exclusive(), func(*StepContext) (any, error) { return nil, nil })
				before := store.Namesake{UUID: uuid.New(), Hostname: "node-7", HeartbeatAt: time.Now().Add(-want.age)}
				if want.age >= 0 {
					r.board.namesake = func() store.Namesake { return before }
				}
				begin := time.Now()
				r.start(t)
				require.InDelta(t, want.after, time.Since(begin), float64(400*time.Millisecond))
				if want.age >= 0 {
					require.Equal(t, []uuid.UUID{r.Health().WorkerUUID}, r.board.succeeded)
				}
				r.stop(t)
			})
		})
	}
}

// TestTheStepsOfOtherProcessesMayBeReclaimed: what a worker can run when it starts is its
// own; sessions come later.
func TestTheStepsOfOtherProcessesMayBeReclaimed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := exclusive()
		cfg.ReclaimGrace = 3 * time.Second
		r := newRig(t, cfg, func(*StepContext) (any, error) { return nil, nil })
		r.board.plan = compiled(t, oneYAML+"  - {name: lent, handler: {callable: elsewhere}}\n")
		before := store.Namesake{UUID: uuid.UUID{1}, HeartbeatAt: time.Now().Add(-time.Minute)}
		r.board.namesake = func() store.Namesake { return before }
		r.start(t)
		require.Equal(t, store.Succession{Dead: []uuid.UUID{{1}}, Silence: 4500 * time.Millisecond, Own: []int32{1, 2, 3}, Grace: 3 * time.Second}, r.board.succession)
		r.stop(t)
	})
}

func TestASecondWorkerOfAWorkerIDDoesNotStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, exclusive(), func(*StepContext) (any, error) { return nil, nil })
		lives, id := time.Now().Add(-time.Minute), uuid.New() // the database was unavailable until now
		r.board.namesake = func() store.Namesake {
			return store.Namesake{UUID: id, Hostname: "node-7", HeartbeatAt: lives.Add(time.Since(lives).Truncate(time.Second))}
		}
		err := r.Start(t.Context())
		require.ErrorIs(t, err, ErrWorkerIDInUse)
		require.ErrorContains(t, err, `"payments-0" belongs to worker `+id.String()+` on node-7`)
		require.Empty(t, r.board.daemons, "it never sent a heartbeat")

		r.board.namesake = nil // the other worker has signed off
		r.start(t)
		r.stop(t)
	})
}

// TestAWorkerWhoseIDWasTakenEnds: it was frozen, its successor lives.
func TestAWorkerWhoseIDWasTakenEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fatal := make(chan error, 1)
		cfg := exclusive()
		cfg.Events.OnFatal = func(err error) { fatal <- err }
		r := newRig(t, cfg, func(*StepContext) (any, error) { return nil, nil })
		r.start(t)
		first := r.Health().WorkerUUID
		r.board.set(func(b *fakeBoard) {
			b.dead, b.daemons = first, nil
			b.namesake = func() store.Namesake { return store.Namesake{UUID: uuid.UUID{1}, HeartbeatAt: time.Now()} }
		})
		time.Sleep(cfg.HeartbeatInterval + time.Second)
		synctest.Wait()
		require.ErrorIs(t, <-fatal, ErrWorkerIDInUse)
		require.Empty(t, r.board.daemons, "it does not register beside its successor")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, r.Stop(ctx))
	})
}
