package mux_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/signal/internal/contract"
	"github.com/tasker-go/tasker/signal/mux"
	"github.com/tasker-go/tasker/signal/notify"
	"github.com/tasker-go/tasker/signal/wal"
)

const (
	sessions = `from pg_stat_activity where datname = current_database() and application_name = 'tasker-listener'`
	killSQL  = `select pg_terminate_backend(pid) ` + sessions
	countSQL = `select count(*) ` + sessions
)

// over are the PostgreSQL sources with their transports.
var over = map[string]func(t *testing.T, db *pgtest.DB, pool *pgxpool.Pool) (signal.Source, signal.Transport){
	"notify": func(t *testing.T, db *pgtest.DB, pool *pgxpool.Pool) (signal.Source, signal.Transport) {
		transport := notify.NewTransport(pool)
		source, err := notify.New(notify.Config{DSN: db.DSN}, transport)
		require.NoError(t, err)
		return source, transport
	},
	"wal": func(t *testing.T, db *pgtest.DB, pool *pgxpool.Pool) (signal.Source, signal.Transport) {
		transport := wal.NewTransport(pool)
		source, err := wal.New(wal.Config{DSN: db.DSN, Server: pool}, transport)
		require.NoError(t, err)
		return source, transport
	},
}

func TestContractOverPostgreSQL(t *testing.T) {
	for name, newSource := range over {
		t.Run(name, func(t *testing.T) {
			contract.Run(t, func(t *testing.T) contract.Setup {
				db := pgtest.New(t)
				source, transport := newSource(t, db, db.Pool(t))
				return contract.Setup{
					Source:    mux.New(source, mux.Config{BufferLimit: signal.DefaultBufferLimit}),
					Transport: transport,
					Kill: func(t *testing.T) {
						require.EqualValues(t, 1, db.Exec(t, killSQL))
					},
				}
			})
		})
	}
}

// TestStorm: members connect, change their topics, probe and close concurrently, while
// the server ends their sessions and a sender never pauses. No member misses a signal
// on the common topic without an error.
func TestStorm(t *testing.T) {
	t.Parallel()
	for name, newSource := range over {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			source, transport := newSource(t, db, db.Pool(t))
			s := mux.New(source, mux.Config{BufferLimit: signal.DefaultBufferLimit})
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*patience)
			defer cancel()
			done := newSending(ctx, t, transport)
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					for round := range 6 {
						if err := done.storm(ctx, s, fmt.Sprint(i), round); err != nil {
							t.Errorf("member %d, round %d: %v", i, round, err)
							return
						}
					}
				})
			}
			for range 2 {
				pgtest.Eventually(t, patience, func() (bool, string) { return db.Exec(t, killSQL) == 1, "no session to end" })
			}
			wg.Wait()
			done.stop()
			pgtest.Eventually(t, patience, func() (bool, string) {
				n := db.QueryInt(t, countSQL)
				return n == 0, fmt.Sprintf("%d sessions are left", n)
			})
		})
	}
}

// sending sends numbers on topicA until it is stopped.
type sending struct {
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu   sync.Mutex
	sent int // what Send has returned of
}

func newSending(ctx context.Context, t *testing.T, transport signal.Transport) *sending {
	ctx, cancel := context.WithCancel(ctx)
	s := &sending{cancel: cancel}
	s.ended.Go(func() {
		for n := 1; ctx.Err() == nil; n++ {
			err := transport.Send(ctx, []signal.Signal{{Topic: topicA, Payload: strconv.Itoa(n)}})
			if err != nil && ctx.Err() == nil {
				t.Errorf("Send: %v", err)
				return
			}
			s.mu.Lock()
			s.sent = n
			s.mu.Unlock()
		}
	})
	return s
}

func (s *sending) stop() {
	s.cancel()
	s.ended.Wait()
}

// next is the first number that is certain to be sent from now on.
func (s *sending) next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent + 2 // one may be under way
}

// storm is the life of one member: connect, receive, subscribe again, receive, close.
func (s *sending) storm(ctx context.Context, source signal.Source, name string, round int) error {
	probe := signal.ProbeTopic(name)
	c, err := source.Connect(ctx, []signal.Topic{topicA, probe})
	if err != nil {
		return ignoreKilled(err)
	}
	err = s.receiveRun(ctx, c, s.next(), 20)
	if err == nil {
		from := s.next()
		if err = c.Subscribe(ctx, []signal.Topic{topicA, probe, signal.WorkerTopic(fmt.Sprint(name, round))}); err == nil {
			err = s.receiveRun(ctx, c, from, 20)
		}
	}
	if err == nil && round%2 == 0 {
		err = c.Probe(ctx, signal.Signal{Topic: probe, Payload: fmt.Sprint(round)})
	}
	if closing := c.Close(ctx); closing != nil {
		return closing
	}
	return ignoreKilled(err)
}

// receiveRun receives count numbers without a gap, beginning with from or earlier. A
// topic without a number says that a full buffer dropped its payloads: a member that
// could not receive in time on a busy machine begins anew.
func (s *sending) receiveRun(ctx context.Context, c signal.Connection, from, count int) error {
	for last := 0; last < from+count; {
		sig, err := c.Receive(ctx)
		if err != nil {
			return err
		}
		if sig.Topic == topicA && sig.Payload == "" {
			last, from = 0, s.next()
		}
		n, err := strconv.Atoi(sig.Payload)
		if err != nil || sig.Topic != topicA {
			continue
		}
		if (last == 0 && n > from) || (last != 0 && n != last+1) {
			return fmt.Errorf("%w: %d came after %d, from %d", errMissed, n, last, from)
		}
		last = n
	}
	return nil
}

// ignoreKilled: a member that got the error of an ended connection knows that it may
// have missed signals.
func ignoreKilled(err error) error {
	if err == nil || errors.Is(err, errMissed) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// TestPersistentSlot: all members read one slot; the next connection finds it free and
// continues where the last one ended.
func TestPersistentSlot(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(t)
	slot := "shared_" + db.Name
	t.Cleanup(func() { require.NoError(t, wal.DropSlot(bounded(t), db.DSN, slot)) })
	transport := wal.NewTransport(pool)
	source, err := wal.New(wal.Config{DSN: db.DSN, Slot: slot, Server: pool}, transport)
	require.NoError(t, err)
	s := mux.New(source, mux.Config{BufferLimit: signal.DefaultBufferLimit})
	send := func(payload string) {
		t.Helper()
		require.NoError(t, transport.Send(bounded(t), []signal.Signal{{Topic: topicA, Payload: payload}}))
	}
	x, y := connect(t, s, topicA), connect(t, s, topicA)
	require.Equal(t, 1, db.QueryInt(t, `select count(*) from pg_replication_slots where database = current_database()`))
	for range 3 {
		db.Exec(t, `select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = $1`, slot)
		for _, c := range []signal.Connection{x, y} {
			_, err := c.Receive(bounded(t))
			require.Error(t, err)
		}
		closeAll(t, x)
		pgtest.Eventually(t, patience, func() (bool, string) { // the server reports the end of a session before it is complete
			return db.QueryBool(t, `select not active from pg_replication_slots where slot_name = $1`, slot), "the slot is in use"
		})
		x = connect(t, s, topicA)
		closeAll(t, y)
		y = connect(t, s, topicA)
	}
	send("to both")
	require.Equal(t, "to both", receive(t, x).Payload)
	require.Equal(t, "to both", receive(t, y).Payload)
	closeAll(t, x, y)
	send("meanwhile")
	x = connect(t, s, topicA)
	for receive(t, x).Payload != "meanwhile" { // a slot may send older ones first
	}
	closeAll(t, x)
}

// TestVisibleToAll: a signal of the WAL is held back once for all members.
func TestVisibleToAll(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(t)
	db.Exec(t, `create table work (n int)`)
	source, _ := over["wal"](t, db, pool)
	s := mux.New(source, mux.Config{BufferLimit: signal.DefaultBufferLimit})
	x, y := connect(t, s, topicA), connect(t, s, topicA)
	for n := range 200 {
		sql, args, err := wal.Statement([]signal.Signal{{Topic: topicA, Payload: strconv.Itoa(n)}})
		require.NoError(t, err)
		tx, err := pool.Begin(bounded(t))
		require.NoError(t, err)
		_, err = tx.Exec(bounded(t), `insert into work values ($1)`, n)
		require.NoError(t, err)
		_, err = tx.Exec(bounded(t), sql, args...)
		require.NoError(t, err)
		go func() {
			if err := tx.Commit(bounded(t)); err != nil {
				t.Errorf("Commit: %v", err)
			}
		}()
		for _, c := range []signal.Connection{x, y} {
			require.Equal(t, strconv.Itoa(n), receive(t, c).Payload)
			var there bool
			require.NoError(t, pool.QueryRow(bounded(t), `select exists (select from work where n = $1)`, n).Scan(&there))
			require.True(t, there)
		}
	}
	closeAll(t, x, y)
}

// TestProbesOverPostgreSQL: a member gets an answer whether its own probe comes back or
// another one counts for it.
func TestProbesOverPostgreSQL(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(t)
	for name, newSource := range over {
		source, _ := newSource(t, db, pool)
		s := mux.New(source, mux.Config{BufferLimit: signal.DefaultBufferLimit, ProofShare: 0.9})
		x, y := newProber(t, s, name+"x"), newProber(t, s, name+"y")
		for range 5 {
			x.roundTrip(t)
			y.roundTrip(t)
		}
		closeAll(t, x, y)
	}
}
