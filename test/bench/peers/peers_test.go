package peers

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tasker-go/tasker/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.With(m)) }

// testEvery is how often tests look for progress.
const testEvery = 10 * time.Millisecond

func TestByNameFindsEachPeer(t *testing.T) {
	t.Parallel()
	for _, p := range All() {
		found, err := ByName(p.Name())
		require.NoError(t, err)
		assert.Equal(t, p.Name(), found.Name())
		assert.NotEmpty(t, p.Settings())
		assert.NotEmpty(t, p.Version())
	}
	_, err := ByName("missing")
	require.ErrorContains(t, err, "river-tuned")
}

func TestEachPeerRunsJobs(t *testing.T) {
	t.Parallel()
	const jobs = 200
	for _, p := range All() {
		t.Run(p.Name(), func(t *testing.T) {
			t.Parallel()
			dsn, db := prepare(t, p)
			_, err := p.Took(t.Context(), db)
			require.Error(t, err, "nothing has run")

			require.NoError(t, p.Submit(t.Context(), dsn, jobs))
			require.Zero(t, finished(t, p, db), "no worker runs")
			stop := work(t, p, dsn)
			awaitFinished(t, p, db, jobs, testEvery)
			took, err := p.Took(t.Context(), db)
			require.NoError(t, err)
			require.Positive(t, took)

			latencies, err := p.Latency(t.Context(), dsn, 2)
			require.NoError(t, err)
			require.Len(t, latencies, 2)
			for _, l := range latencies {
				require.Positive(t, l)
			}
			require.EqualValues(t, jobs+latencyWarmUp+2, finished(t, p, db))

			stop()
			require.NoError(t, p.Submit(t.Context(), dsn, 1))
			require.EqualValues(t, jobs+latencyWarmUp+2, finished(t, p, db), "the workers have stopped")
		})
	}
}

// A held snapshot keeps every dead row, which must not make the count wrong.
func TestFinishedIsRightWithASnapshotHeld(t *testing.T) {
	t.Parallel()
	const rounds, jobs = 5, 200
	for _, p := range All() {
		t.Run(p.Name(), func(t *testing.T) {
			t.Parallel()
			dsn, db := prepare(t, p)
			holder, err := pgx.Connect(t.Context(), dsn)
			require.NoError(t, err)
			t.Cleanup(func() { _ = holder.Close(context.WithoutCancel(t.Context())) })
			_, err = holder.Exec(t.Context(), `begin isolation level repeatable read; select 1`)
			require.NoError(t, err)

			work(t, p, dsn)
			for round := range rounds {
				require.NoError(t, p.Submit(t.Context(), dsn, jobs))
				awaitFinished(t, p, db, int64(round+1)*jobs, testEvery)
			}
		})
	}
}

// prepare creates the peer's tables in its own database and connects to it.
func prepare(t *testing.T, p Peer) (string, *pgx.Conn) {
	t.Helper()
	dsn := pgtest.New(t).DSN
	require.NoError(t, p.Prepare(t.Context(), dsn))
	db, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close(context.WithoutCancel(t.Context())) })
	return dsn, db
}

// work runs the peer's workers until the test ends or the answer is called.
func work(t testing.TB, p Peer, dsn string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- p.Work(ctx, dsn, Pace{}) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		assert.NoError(t, <-ended)
	}
	t.Cleanup(stop)
	return stop
}

func finished(t *testing.T, p Peer, db *pgx.Conn) int64 {
	t.Helper()
	n, err := p.Finished(t.Context(), db)
	require.NoError(t, err)
	return n
}

// awaitFinished waits for n finished jobs; there are never more than that.
func awaitFinished(t testing.TB, p Peer, db *pgx.Conn, n int64, every time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for last := int64(-1); last != n; {
		now, err := p.Finished(ctx, db)
		require.NoError(t, err, "%d of %d jobs are finished", last, n)
		require.LessOrEqual(t, last, now, "finished jobs stay so")
		require.LessOrEqual(t, now, n)
		last = now
		select {
		case <-ctx.Done():
			require.FailNow(t, "the jobs do not finish", "%d of %d", last, n)
		case <-ticker.C:
		}
	}
}
