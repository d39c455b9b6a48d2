package relay_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/notify"
	"github.com/tasker-go/tasker/internal/signal/relay"
	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Apart(m)) }

const patience = 30 * time.Second

// fleet is a database with relays and one listener.
type fleet struct {
	t        *testing.T
	db       *pgtest.DB
	pool     *pgxpool.Pool
	sender   signal.Transport
	listener signal.Connection
}

func newFleet(t *testing.T) *fleet { return newFleetOn(t, pgtest.New(t)) }

func newFleetOn(t *testing.T, db *pgtest.DB) *fleet {
	pool := db.Pool(t)
	f := &fleet{t: t, db: db, pool: pool, sender: wal.NewTransport(pool)}
	source, err := relay.NewSource(notify.Config{DSN: db.DSN}, f.sender)
	require.NoError(t, err)
	require.Equal(t, "relay", source.Name())
	f.listener, err = source.Connect(bounded(t), []signal.Topic{signal.TopicControl, signal.TopicDue, signal.TopicOrchestration,
		signal.TopicTasks, signal.WorkerTopic("a"), signal.WorkerTopic("b"), signal.ProbeTopic("me")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.listener.Close(bounded(t))) })
	return f
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	return ctx
}

func namespaces(context.Context) ([]string, error) { return []string{"a", "b"}, nil }

// candidate starts a relay that tries often.
func (f *fleet) candidate(change func(*relay.Config)) (*relay.Relay, *telemetry.Metrics) {
	f.t.Helper()
	cfg := relay.Config{WAL: wal.Config{DSN: f.db.DSN}, Namespaces: namespaces, RetryInterval: 50 * time.Millisecond,
		ProbeInterval: 50 * time.Millisecond, Metrics: telemetry.Discard()}
	if change != nil {
		change(&cfg)
	}
	r, err := relay.New(cfg)
	require.NoError(f.t, err)
	require.NoError(f.t, r.Start(f.t.Context()))
	f.t.Cleanup(func() { stop(f.t, r) })
	return r, cfg.Metrics
}

func stop(t *testing.T, r *relay.Relay) {
	t.Helper()
	require.NoError(t, r.Stop(bounded(t)))
	require.False(t, r.Health().Leader)
}

func (f *fleet) emit(signals ...signal.Signal) {
	f.t.Helper()
	require.NoError(f.t, f.sender.Send(bounded(f.t), signals))
}

func (f *fleet) receive() signal.Signal {
	f.t.Helper()
	s, err := f.listener.Receive(bounded(f.t))
	require.NoError(f.t, err)
	return s
}

// receiveAll waits for each of want, in any order and among others.
func (f *fleet) receiveAll(want ...signal.Signal) {
	f.t.Helper()
	for len(want) > 0 {
		s := f.receive()
		want = slices.DeleteFunc(want, func(w signal.Signal) bool { return w == s })
	}
}

// takeOver returns the announcements of a new leader.
func takeOver() []signal.Signal {
	return []signal.Signal{{Topic: signal.TopicControl}, {Topic: signal.TopicDue}, {Topic: signal.TopicOrchestration},
		{Topic: signal.WorkerTopic("a")}, {Topic: signal.WorkerTopic("b")}}
}

// leader waits until exactly one of the relays leads, and it is not not.
func (f *fleet) leader(not *relay.Relay, relays ...*relay.Relay) (leader *relay.Relay) {
	f.t.Helper()
	pgtest.Eventually(f.t, patience, func() (bool, string) {
		leaders := 0
		state := ""
		for _, r := range relays {
			h := r.Health()
			state += h.LastError + ";"
			if h.Leader {
				leaders++
				leader = r
			}
		}
		return leaders == 1 && leader != not, "no leader: " + state
	})
	return leader
}

func signalOf(topic signal.Topic, payload string) signal.Signal {
	return signal.Signal{Topic: topic, Payload: payload}
}

func TestForwardsOnceHoweverManyReplicas(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	var relays []*relay.Relay
	var metrics []*telemetry.Metrics
	for range 3 {
		r, m := f.candidate(nil)
		relays, metrics = append(relays, r), append(metrics, m)
	}
	f.receiveAll(takeOver()...)
	leader := f.leader(nil, relays...)

	const id1, id2 = "0190c0de-0000-7000-8000-000000000001", "0190c0de-0000-7000-8000-000000000002"
	f.emit(signalOf(signal.WorkerTopic("a"), "x"))
	require.Equal(t, signalOf(signal.WorkerTopic("a"), "x"), f.receive())
	f.emit(signalOf(signal.TopicTasks, id1+","+id2))
	got := f.receive().Payload // they are joined only if they are sent together
	if got == id1 {
		got += "," + f.receive().Payload
	}
	require.Equal(t, id1+","+id2, got)
	f.emit(signalOf(signal.WorkerTopic("no listener"), ""), signalOf(signal.WorkerTopic("b"), "end"))
	require.Equal(t, signalOf(signal.WorkerTopic("b"), "end"), f.receive())

	probe := signalOf(signal.ProbeTopic("me"), "nonce")
	require.NoError(t, f.listener.Probe(bounded(t), probe))
	require.Equal(t, probe, f.receive(), "probes go the whole way")

	// A signal may arrive a moment before the relay has counted it; the metric comes last.
	led := slices.Index(relays, leader)
	pgtest.Eventually(t, patience, func() (bool, string) {
		return testutil.ToFloat64(metrics[led].RelayForwarded) >= 5, "not all signals are counted"
	})
	require.EqualValues(t, 5, leader.Health().Forwarded, "its own probes are left out")
	for i, r := range relays {
		leads := 0.0
		if r == leader {
			leads = 1
			require.EqualValues(t, 1, r.Health().Elections)
			require.False(t, r.Health().LeaderSince.IsZero())
		}
		require.InDelta(t, leads, testutil.ToFloat64(metrics[i].RelayLeader), 0)
		require.InDelta(t, 5*leads, testutil.ToFloat64(metrics[i].RelayForwarded), 0)
		pgtest.Eventually(t, patience, func() (bool, string) { return r.Health().Connected, "not connected" })
		if r == leader {
			pgtest.Eventually(t, patience, func() (bool, string) {
				return testutil.CollectAndCount(metrics[i].WALLag) == 1 && r.Health().LagBytes < 1<<20, "no lag measured"
			})
		}
	}
	require.Equal(t, 1, f.db.QueryInt(t, `select count(*) from pg_replication_slots where database = current_database()`),
		"the WAL is decoded once")
}

// TestOnlyCommittedWorkIsAnnounced: and only once other transactions can see it.
func TestOnlyCommittedWorkIsAnnounced(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r, _ := f.candidate(nil)
	f.receiveAll(takeOver()...)
	f.leader(nil, r)
	const emit = `select pg_logical_emit_message(true, 'tasker', convert_to('tasker_worker_a', 'UTF8') || '\x00'::bytea || convert_to($1, 'UTF8'))`
	for _, commit := range []bool{false, true} {
		tx, err := f.pool.Begin(bounded(t))
		require.NoError(t, err)
		text := map[bool]string{false: "rolled back", true: "committed"}[commit]
		_, err = tx.Exec(bounded(t), emit, text)
		require.NoError(t, err)
		if commit {
			require.NoError(t, tx.Commit(bounded(t)))
		} else {
			require.NoError(t, tx.Rollback(bounded(t)))
		}
	}
	require.Equal(t, signalOf(signal.WorkerTopic("a"), "committed"), f.receive())
}

// TestTakeOver: after the leader has lost either of its sessions, a relay leads again,
// announces every topic, and forwards.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]string{
		"lock":   `select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted and database = (select oid from pg_database where datname = current_database())`,
		"stream": `select pg_terminate_backend(active_pid) from pg_replication_slots where database = current_database()`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			a, _ := f.candidate(nil)
			b, _ := f.candidate(nil)
			f.receiveAll(takeOver()...)
			before := f.leader(nil, a, b)
			require.EqualValues(t, 1, f.db.Exec(t, kill))
			f.receiveAll(takeOver()...)
			pgtest.Eventually(t, patience, func() (bool, string) {
				return a.Health().Elections+b.Health().Elections == 2, "no relay took over"
			})
			after := f.leader(nil, a, b)
			t.Logf("the same leader: %v", before == after)
			f.emit(signalOf(signal.WorkerTopic("a"), "again"))
			f.receiveAll(signalOf(signal.WorkerTopic("a"), "again"))
		})
	}
}

// TestNothingPendingIsMissed: signals of a time without a relay are covered by the
// announcements of the next one.
func TestNothingPendingIsMissed(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, _ := f.candidate(nil)
	f.receiveAll(takeOver()...)
	f.leader(nil, a)
	stop(t, a)
	require.Zero(t, f.db.QueryInt(t, `select count(*) from pg_replication_slots where database = current_database()`))
	f.emit(signalOf(signal.WorkerTopic("a"), "without a relay"))
	b, metrics := f.candidate(nil)
	f.receiveAll(takeOver()...)
	f.leader(a, a, b)
	f.emit(signalOf(signal.WorkerTopic("b"), "end"))
	require.Equal(t, signalOf(signal.WorkerTopic("b"), "end"), f.receive(), "want no other announcement")
	stop(t, b)
	require.InDelta(t, 0, testutil.ToFloat64(metrics.RelayLeader), 0)
	require.Zero(t, testutil.CollectAndCount(metrics.WALLag))
	require.ErrorIs(t, b.Start(t.Context()), lifecycle.ErrStopped)
}

// TestFollowerTakesOverFromOneThatStops: within seconds, and without a new connection.
func TestFollowerTakesOverFromOneThatStops(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, _ := f.candidate(nil)
	f.receiveAll(takeOver()...)
	b, _ := f.candidate(nil)
	pgtest.Eventually(t, patience, func() (bool, string) { return b.Health().Connected, "not connected" })
	require.False(t, b.Health().Leader)
	f.emit(signalOf(signal.WorkerTopic("a"), "last words"))
	stop(t, a)
	f.receiveAll(takeOver()...)
	require.Equal(t, b, f.leader(nil, a, b))
}

// TestPersistentSlot: the next leader continues where the last one ended.
func TestPersistentSlot(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	slot := "relay_" + f.db.Name
	t.Cleanup(func() { require.NoError(t, wal.DropSlot(bounded(t), f.db.DSN, slot)) })
	withSlot := func(c *relay.Config) { c.WAL.Slot = slot }
	a, _ := f.candidate(withSlot)
	f.receiveAll(takeOver()...)
	f.leader(nil, a)
	stop(t, a)
	f.emit(signalOf(signal.WorkerTopic("a"), "without a relay"))
	b, _ := f.candidate(withSlot)
	f.receiveAll(append(takeOver(), signalOf(signal.WorkerTopic("a"), "without a relay"))...)
	stop(t, b) // before the slot is dropped
}

// TestWithoutNamespaces: a relay that cannot announce every topic does not lead.
func TestWithoutNamespaces(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	var broken atomic.Bool
	broken.Store(true)
	r, _ := f.candidate(func(c *relay.Config) {
		c.Namespaces = func(ctx context.Context) ([]string, error) {
			if _, ok := ctx.Deadline(); !ok {
				return nil, errors.New("no deadline")
			}
			if broken.Load() {
				return nil, errors.New("the board is away")
			}
			return namespaces(ctx)
		}
	})
	pgtest.Eventually(t, patience, func() (bool, string) { return r.Health().LastError != "", "no error" })
	h := r.Health()
	require.Contains(t, h.LastError, "the board is away")
	require.False(t, h.Leader)
	require.Zero(t, h.Elections)
	broken.Store(false)
	f.receiveAll(takeOver()...)
	f.leader(nil, r)
	require.Empty(t, r.Health().LastError)
}

func TestRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	const dsn = "postgres://localhost/x"
	for name, cfg := range map[string]relay.Config{
		"no namespaces":   {WAL: wal.Config{DSN: dsn}},
		"no DSN":          {WAL: wal.Config{DSN: "not = a ' dsn"}, Namespaces: namespaces},
		"bad slot":        {WAL: wal.Config{DSN: dsn, Slot: "Upper"}, Namespaces: namespaces},
		"bad publication": {WAL: wal.Config{DSN: dsn, Publication: "\x00"}, Namespaces: namespaces},
	} {
		_, err := relay.New(cfg)
		require.Error(t, err, name)
	}
	_, err := relay.NewSource(notify.Config{DSN: dsn}, nil)
	require.Error(t, err)
	r, err := relay.New(relay.Config{WAL: wal.Config{DSN: dsn}, Namespaces: namespaces})
	require.NoError(t, err)
	require.Equal(t, "signal-relay", r.Name())
	require.NoError(t, r.Stop(t.Context()))
}
