package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/internal/pgcluster"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/fleet"
)

// replicated is a primary with a synchronous standby, and a database URL that leads to
// the writable server.
type replicated struct {
	primary *pgcluster.Cluster
	standby *pgtest.Standby
	db      *pgtest.DB
}

func replicate(t *testing.T) replicated {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	server := pgtest.Private(t, nil)
	db := server.New(t)
	standby := server.Standby(t)
	require.NoError(t, pgtest.SetSynchronous(ctx, server.Cluster, standby))
	db.DSN = pgtest.FailoverDSN(db.Name, server.Cluster, standby.Cluster)
	return replicated{server.Cluster, standby, db}
}

// attempts counts the executions so far over its own connection: that of the database
// would be lost with the primary.
func (f replicated) attempts(t *testing.T) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, f.db.DSN)
	require.NoError(t, err)
	defer func() { _ = conn.Close(ctx) }()
	require.NoError(t, conn.QueryRow(ctx, `select count(*) from tasker.step_attempts`).Scan(&n))
	return n
}

func TestStandbyTakesOver(t *testing.T) {
	for _, c := range []struct{ mode, source string }{
		{"Hybrid", ""}, {"EventDrivenOnly", ""}, {"PollingOnly", ""}, {"EventDrivenOnly", "wal"}, {"EventDrivenOnly", "relay"},
	} {
		t.Run(c.mode+"/"+c.source, func(t *testing.T) {
			if c.mode != "Hybrid" {
				needs.All(t, "the other modes and sources")
			}
			t.Parallel() // they wait for leases
			f := replicate(t)
			r := newFleet(t, f.db)
			r.start(fleet.Orchestrator, c.mode, c.source)
			r.start(fleet.Worker, c.mode, c.source)
			r.start(fleet.Worker, c.mode, c.source)
			r.ready()
			const tasks = 300
			done := insisting(t, r.clients[0], tasks)
			pgtest.Eventually(t, time.Minute, func() (bool, string) {
				n := f.attempts(t)
				return n > 100, fmt.Sprintf("%d attempts", n)
			})

			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.NoError(t, f.primary.Kill(ctx))
			require.NoError(t, f.standby.Promote(ctx))
			promoted := time.Now()
			before := f.attempts(t)
			for _, p := range r.all {
				require.NoError(t, p.WaitReady(ctx))
			}

			got := <-done
			require.NoError(t, got.err)
			for _, id := range got.ids {
				require.Equal(t, "complete", r.wait(id, time.Minute).Status)
			}
			took := time.Since(promoted).Round(time.Millisecond)
			first := r.db.QueryInt(t, `select coalesce(min(extract(epoch from reported_at - $1) * 1000), -1)::int
				from tasker.step_attempts where reported_at > $1`, promoted)
			t.Logf("the first result came %d ms after the promotion, and everything was complete after %v; %d executions were before it", first, took, before)
			require.Equal(t, tasks, r.db.QueryInt(t, `select count(*) from tasker.tasks`), "each once")
			r.clean()
			for _, p := range r.all {
				select {
				case <-p.Done():
					t.Errorf("%s has ended:\n%s", p.Name, p.Log())
				default:
				}
			}
		})
	}
}

// insisting creates n diamonds, each repeatedly until it is accepted: duplicates are
// detected by the key.
func insisting(t *testing.T, c *client.Client, n int) <-chan submitted {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	done := make(chan submitted, 1)
	go func() {
		defer cancel()
		ids, errs := make([]string, n), make([]error, 8)
		var group sync.WaitGroup
		for worker := range errs {
			group.Go(func() {
				for i := worker; i < n && errs[worker] == nil; i += len(errs) {
					ids[i], errs[worker] = insist(ctx, c, fmt.Sprintf("failover-%d", i))
				}
			})
		}
		group.Wait()
		done <- submitted{ids, errors.Join(errs...)}
	}()
	return done
}

func insist(ctx context.Context, c *client.Client, key string) (id string, err error) {
	r := request("diamond", `{"even_number":6}`)
	r.IdempotencyKey = key
	pause := time.NewTimer(0) // takes time: a client that retries
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", errors.Join(err, ctx.Err())
		case <-pause.C:
		}
		var task *client.Task
		task, err = c.CreateTask(ctx, r)
		var refusal *client.Error
		switch {
		case err == nil:
			return task.TaskUUID, nil
		case errors.As(err, &refusal) && refusal.Status == http.StatusConflict && refusal.TaskUUID != "":
			return refusal.TaskUUID, nil
		case errors.As(err, &refusal) && refusal.Status < http.StatusInternalServerError:
			return "", err
		}
		pause.Reset(50 * time.Millisecond)
	}
}
