package store_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
)

func underID(id string) store.Daemon {
	return store.Daemon{UUID: uuid.New(), ID: id, Hostname: "node-7", Version: "test", Mode: "Hybrid", Namespaces: []string{"tests"}}
}

// TestASuccessorReleasesWhatADeadWorkerHeld: the claims of its predecessor, and no
// others, become lost leases; and the predecessor stays dead.
func TestASuccessorReleasesWhatADeadWorkerHeld(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, loneYAML)
	dead, other := underID("payments-0"), underID("payments-1")
	held := map[uuid.UUID][]store.Claimed{}
	for _, d := range []store.Daemon{dead, other} {
		_, err := s.WorkerHeartbeat(t.Context(), d, nil, time.Minute)
		require.NoError(t, err)
		create(t, s, p, 3)
		claimed, _, err := s.Claim(t.Context(), store.ClaimRequest{Worker: d.UUID, Callables: p.Callables, Limit: 3, Lease: time.Minute}, true)
		require.NoError(t, err)
		require.Len(t, claimed, 3)
		held[d.UUID] = claimed
	}

	next := underID("payments-0")
	taken, err := s.TakeWorkerID(t.Context(), next, store.Succession{Silence: time.Millisecond})
	require.NoError(t, err)
	require.Len(t, taken.Others, 1, "it has not been watched yet")
	require.Equal(t, dead.UUID, taken.Others[0].UUID)
	require.Equal(t, "node-7", taken.Others[0].Hostname)
	taken, err = s.TakeWorkerID(t.Context(), next, store.Succession{Dead: []uuid.UUID{dead.UUID}, Silence: time.Hour})
	require.NoError(t, err)
	require.Len(t, taken.Others, 1, "its heartbeat is not old enough")

	pgtest.Eventually(t, patience, func() (bool, string) {
		taken, err = s.TakeWorkerID(t.Context(), next, store.Succession{Dead: []uuid.UUID{dead.UUID}, Silence: time.Millisecond})
		return err != nil || len(taken.Others) == 0, "its heartbeat does not get old"
	})
	require.NoError(t, err)
	require.Equal(t, 3, taken.Released)
	require.Equal(t, []signal.Signal{{Topic: signal.TopicDue}}, taken.Signals)
	_, err = s.WorkerHeartbeat(t.Context(), dead, nil, time.Minute)
	require.ErrorIs(t, err, store.ErrWorkerDead)

	expired, err := s.ExpireLeases(t.Context(), store.UpTo(100), 10)
	require.NoError(t, err)
	require.Equal(t, 3, expired.Spared)
	lost, err := s.WorkerHeartbeat(t.Context(), other, []store.ClaimKey{key(held[other.UUID][0])}, time.Minute)
	require.NoError(t, err)
	require.Empty(t, lost)
	require.Equal(t, 3, db.QueryInt(t, `select count(*) from tasker.step_attempts where outcome = 4 and reason = 'not_blamed'`))
}

// die registers a worker that holds n claims and was not heard of for long.
func die(t *testing.T, s *store.Store, db *pgtest.DB, p *store.Plan, n int) (d store.Daemon, held []store.HeldClaim) {
	t.Helper()
	d = underID("payments-0")
	_, err := s.WorkerHeartbeat(t.Context(), d, nil, time.Minute)
	require.NoError(t, err)
	create(t, s, p, n)
	claimed, _, err := s.Claim(t.Context(), store.ClaimRequest{Worker: d.UUID, Callables: p.Callables, Limit: n, Lease: time.Hour}, true)
	require.NoError(t, err)
	require.Len(t, claimed, n)
	for _, c := range claimed {
		held = append(held, store.HeldClaim{TaskUUID: c.TaskUUID, Token: c.Token})
	}
	db.Exec(t, `update tasker.workers set heartbeat_at = now() - interval '1 minute' where worker_uuid = $1`, d.UUID)
	return d, held
}

// TestASuccessorLeavesProcessesTheGrace: the handlers of its own callables died with its
// predecessor. What ran in other processes has the grace, whatever is left of the lease.
func TestASuccessorLeavesProcessesTheGrace(t *testing.T) {
	t.Parallel()
	for name, grace := range map[string]time.Duration{"long": time.Hour, "short": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, db := open(t)
			lone := plan(t, s, loneYAML)
			remote := plan(t, s, strings.ReplaceAll(strings.ReplaceAll(loneYAML, "shapes.only", "shapes.remote"), "name: lone", "name: remote"))
			dead, _ := die(t, s, db, lone, 3)
			create(t, s, remote, 2)
			_, _, err := s.Claim(t.Context(), store.ClaimRequest{Worker: dead.UUID, Callables: remote.Callables, Limit: 2, Lease: time.Minute}, true)
			require.NoError(t, err)
			taken, err := s.TakeWorkerID(t.Context(), underID("payments-0"), store.Succession{Dead: []uuid.UUID{dead.UUID}, Own: lone.Callables, Grace: grace})
			require.NoError(t, err)
			require.Equal(t, []int{3, 2}, []int{taken.Released, taken.Reclaimable})
			require.Equal(t, []signal.Signal{{Topic: signal.TopicDue}}, taken.Signals)
			if grace == time.Hour {
				found, err := s.SweepLiveness(t.Context(), fleetLimits, false)
				require.NoError(t, err)
				require.Zero(t, found.Released, "the sweep leaves them the grace, too")
				require.Equal(t, 2, db.QueryInt(t, `select count(*) from tasker.board where lease_until > now() + interval '50 minutes'`))
				require.Zero(t, db.QueryInt(t, `select count(*) from tasker.board where lease_until > now() and callable = $1`, lone.Callables[0]))
				return
			}
			ended := 0
			pgtest.Eventually(t, patience, func() (bool, string) {
				expired, err := s.ExpireLeases(t.Context(), store.UpTo(100), 10)
				require.NoError(t, err)
				ended += expired.Claims()
				return ended == 5, "the leases do not end"
			})
		})
	}
}

// TestClaimsAreAdoptedDuringASuccession: two workers adopt what the processes of a dead one
// present while a successor takes its worker_id and sweeps look for what to end. Each claim
// that is presented stays with exactly one of them, and nothing else ends one.
func TestClaimsAreAdoptedDuringASuccession(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, loneYAML)
	dead, held := die(t, s, db, p, 60)
	successor, other := underID("payments-0"), underID("payments-1")
	_, err := s.WorkerHeartbeat(t.Context(), other, nil, time.Minute)
	require.NoError(t, err)
	var group conc.WaitGroup
	adopters, done := conc.NewWaitGroup(), make(chan struct{})
	group.Go(func() {
		taken, err := s.TakeWorkerID(t.Context(), successor, store.Succession{Dead: []uuid.UUID{dead.UUID}, Grace: time.Hour})
		assert.Equal(t, []any{nil, 0, 0}, []any{err, len(taken.Others), taken.Released})
	})
	group.Go(func() {
		for more := true; more; {
			select {
			case <-done:
				more = false
			default:
			}
			found, err := s.SweepLiveness(t.Context(), fleetLimits, false)
			expired, failure := s.ExpireLeases(t.Context(), store.UpTo(100), 10)
			assert.Equal(t, []any{nil, nil, 0, 0}, []any{err, failure, found.Released, expired.Claims()})
		}
	})
	var mu sync.Mutex
	adopted := map[int64][]store.Adopted{} // by the former token
	for i := range held[:50] {             // each by two processes of the same fence, at two workers
		for _, d := range []store.Daemon{successor, other} {
			adopters.Go(func() {
				for locked := true; locked; {
					var got []store.Adopted
					var err error
					got, locked, err = s.Adopt(t.Context(), d.UUID, held[i:i+1], nil, time.Hour)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, a := range got {
						adopted[a.Former] = append(adopted[a.Former], a)
					}
					mu.Unlock()
				}
			})
		}
	}
	adopters.Wait()
	close(done)
	group.Wait()
	require.Len(t, adopted, 50, "nothing that is presented is lost")
	for former, list := range adopted {
		require.Len(t, list, 1, former)
		stale := list[0].Key()
		stale.Token = former
		require.Equal(t, []bool{false, true}, report(t, s, store.Report{ClaimKey: stale, Success: true, RetryAfter: -1}, succeed(list[0].Claimed, `1`)))
	}
	require.Equal(t, 10, db.QueryInt(t, `select count(*) from tasker.board where lease_until between now() and now() + interval '1 hour'`), "the others wait for the grace")
}

// TestOneOfManySuccessorsTakesTheWorkerID: all have watched their predecessor die.
func TestOneOfManySuccessorsTakesTheWorkerID(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	dead := underID("payments-0")
	_, err := s.WorkerHeartbeat(t.Context(), dead, nil, time.Minute)
	require.NoError(t, err)
	pgtest.Eventually(t, patience, func() (bool, string) {
		taken, err := s.TakeWorkerID(t.Context(), underID("payments-0"), store.Succession{Silence: time.Hour})
		require.NoError(t, err)
		return taken.Others[0].HeartbeatAge > 2*time.Millisecond, "its heartbeat does not get old"
	})

	var group sync.WaitGroup
	var mu sync.Mutex
	var first []uuid.UUID
	for range 8 {
		group.Go(func() {
			d := underID("payments-0")
			taken, err := s.TakeWorkerID(t.Context(), d, store.Succession{Dead: []uuid.UUID{dead.UUID}, Silence: 2 * time.Millisecond})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			} else if len(taken.Others) == 0 {
				first = append(first, d.UUID)
			}
		})
	}
	group.Wait()
	require.Len(t, first, 1)
	require.NoError(t, s.Stopped(t.Context(), first[0]))
	taken, err := s.TakeWorkerID(t.Context(), underID("payments-0"), store.Succession{Silence: time.Hour})
	require.NoError(t, err)
	require.Empty(t, taken.Others, "a signed-off worker frees it")
}
