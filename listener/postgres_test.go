package listener_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/notify"
	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/signal"
)

const (
	patience = 60 * time.Second

	sessions = `from pg_stat_activity where datname = current_database() and application_name = 'tasker-listener'`
	killSQL  = `select pg_terminate_backend(pid) ` + sessions
	countSQL = `select count(*) ` + sessions
)

// sources are those of PostgreSQL, with their transports.
var sources = map[string]func(t *testing.T, db *pgtest.DB, pool *pgxpool.Pool) (signal.Source, signal.Transport){
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

// brisk reconnects within a test's time.
func brisk(id string) listener.SubscriptionConfig {
	cfg := named(id, "numbers")
	cfg.HealthCheckInterval, cfg.FallbackActivationThreshold = 100*time.Millisecond, 10*time.Second
	cfg.ConnectTimeout, cfg.Reconnect = 30*time.Second, deploymode.Backoff{Base: 10 * time.Millisecond, Max: 100 * time.Millisecond, Multiplier: 2}
	return cfg
}

// sending sends consecutive numbers until it is stopped.
type sending struct {
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu   sync.Mutex
	sent int // what Send has returned of
}

func newSending(t *testing.T, transport signal.Transport) *sending {
	ctx, cancel := context.WithCancel(contextFor(t, 2*patience))
	s := &sending{cancel: cancel}
	s.ended.Go(func() {
		for n := 1; ctx.Err() == nil; n++ {
			err := transport.Send(ctx, []signal.Signal{{Topic: "numbers", Payload: strconv.Itoa(n)}})
			if err != nil && ctx.Err() == nil {
				t.Errorf("Send: %v", err)
				return
			}
			s.mu.Lock()
			s.sent = n
			s.mu.Unlock()
		}
	})
	t.Cleanup(s.stop)
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

// counting checks that each number arrives that is sent after OnConnected.
type counting struct {
	sending *sending
	news    chan struct{} // of capacity 1

	mu        sync.Mutex
	next      int // the number that has to arrive
	connected int
	arrived   int
	missed    error
}

func newCounting(s *sending) *counting {
	return &counting{sending: s, news: make(chan struct{}, 1)}
}

func (c *counting) hooks() listener.Hooks {
	hooks := (&owner{}).hooks()
	hooks.OnConnected, hooks.OnSignal = c.onConnected, c.onSignal
	return hooks
}

func (c *counting) onConnected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connected++
	c.next = c.sending.next()
}

func (c *counting) onSignal(s signal.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := strconv.Atoi(s.Payload)
	switch {
	case s.Topic != "numbers" || c.connected == 0:
	case err != nil: // a full buffer dropped the numbers, on a busy machine
		c.next = c.sending.next()
	case n > c.next:
		c.missed = errors.Join(c.missed, fmt.Errorf("%d came in place of %d", n, c.next))
		c.next = n + 1
	case n == c.next:
		c.next++
		c.arrived++
	}
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// wait waits for more numbers.
func (c *counting) wait(ctx context.Context, more int) error {
	c.mu.Lock()
	until := c.arrived + more
	c.mu.Unlock()
	for {
		c.mu.Lock()
		arrived, missed := c.arrived, c.missed
		c.mu.Unlock()
		if missed != nil || arrived >= until {
			return missed
		}
		select {
		case <-c.news:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d numbers arrived: %w", arrived, until, ctx.Err())
		}
	}
}

// TestStorm: subscriptions start, change their topics and stop concurrently, while the
// server ends their sessions and a sender never pauses. None misses a signal without a
// catch-up.
func TestStorm(t *testing.T) {
	t.Parallel()
	for name, newSource := range sources {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			source, transport := newSource(t, db, db.Pool(t))
			shared, numbers := over(source), newSending(t, transport)
			ctx := contextFor(t, 2*patience)
			var group sync.WaitGroup
			for i := range 4 {
				group.Go(func() {
					for round := range 5 {
						if err := visit(ctx, shared, numbers, fmt.Sprint("s", i, round)); err != nil {
							t.Errorf("subscription %d, round %d: %v", i, round, err)
							return
						}
					}
				})
			}
			for range 2 {
				pgtest.Eventually(t, patience, func() (bool, string) { return db.Exec(t, killSQL) == 1, "no session to end" })
			}
			group.Wait()
			numbers.stop()
			pgtest.Eventually(t, patience, func() (bool, string) {
				n := db.QueryInt(t, countSQL)
				return n == 0, fmt.Sprintf("%d sessions are left", n)
			})
		})
	}
}

// visit is the life of one subscription.
func visit(ctx context.Context, shared *listener.Listener, numbers *sending, id string) error {
	c := newCounting(numbers)
	s := shared.Subscribe(brisk(id), c.hooks())
	return errors.Join(s.Start(ctx), s.WaitHeard(ctx), c.wait(ctx, 10),
		s.SetTopics(ctx, []signal.Topic{"numbers", "more"}), c.wait(ctx, 10), s.Stop(ctx))
}

// TestOthersComeAndGo: a subscription receives each signal, without a catch-up, whatever
// the modes of other event systems.
func TestOthersComeAndGo(t *testing.T) {
	t.Parallel()
	for name, newSource := range sources {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			source, transport := newSource(t, db, db.Pool(t))
			shared, numbers := over(source), newSending(t, transport)
			ctx, c := contextFor(t, 2*patience), newCounting(numbers)
			stays := shared.Subscribe(brisk("stays"), c.hooks())
			require.NoError(t, stays.Start(ctx))
			require.NoError(t, stays.WaitHeard(ctx))
			for i := range 10 {
				require.NoError(t, visit(ctx, shared, numbers, fmt.Sprint("guest", i)))
				require.NoError(t, c.wait(ctx, 5))
			}
			require.Equal(t, 1, c.connected)
			require.Zero(t, stays.Snapshot().Reconnects)
			require.NoError(t, stays.Stop(ctx))
		})
	}
}

// TestPersistentSlot: all subscriptions read one slot; the next connection finds it free
// and continues where the last one ended.
func TestPersistentSlot(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool, ctx := db.Pool(t), contextFor(t, 2*patience)
	slot := "shared_" + db.Name
	t.Cleanup(func() { require.NoError(t, wal.DropSlot(contextFor(t, patience), db.DSN, slot)) })
	transport := wal.NewTransport(pool)
	source, err := wal.New(wal.Config{DSN: db.DSN, Slot: slot, Server: pool}, transport)
	require.NoError(t, err)
	shared := over(source)
	send := func(payload string, owners ...*owner) {
		t.Helper()
		require.NoError(t, transport.Send(ctx, []signal.Signal{{Topic: "numbers", Payload: payload}}))
		for _, o := range owners {
			o.waitFor(t, payload)
		}
	}
	ox, oy := &owner{}, &owner{}
	x, y := shared.Subscribe(brisk("x"), ox.hooks()), shared.Subscribe(brisk("y"), oy.hooks())
	for _, s := range []*listener.Subscription{x, y} {
		require.NoError(t, s.Start(ctx))
		require.NoError(t, s.WaitHeard(ctx))
	}
	require.Equal(t, 1, db.QueryInt(t, `select count(*) from pg_replication_slots where database = current_database()`))
	for i := range 3 {
		db.Exec(t, `select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = $1`, slot)
		send(fmt.Sprint("to both ", i), ox, oy)
	}
	require.NoError(t, x.Stop(ctx))
	require.NoError(t, y.Stop(ctx))
	send("meanwhile")
	oz := &owner{}
	z := shared.Subscribe(brisk("z"), oz.hooks())
	require.NoError(t, z.Start(ctx))
	oz.waitFor(t, "meanwhile")
	require.NoError(t, z.Stop(ctx))
}

func (o *owner) waitFor(t *testing.T, payload string) {
	t.Helper()
	pgtest.Eventually(t, patience, func() (bool, string) {
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, s := range o.signals {
			if s.Payload == payload {
				return true, ""
			}
		}
		return false, payload + " did not arrive"
	})
}

// proven waits until each subscription is.
func proven(t *testing.T, subscriptions ...*listener.Subscription) {
	t.Helper()
	pgtest.Eventually(t, patience, func() (bool, string) {
		for _, s := range subscriptions {
			if h := s.Health(); !h.Proven || h.State != deploymode.Listening {
				return false, fmt.Sprintf("%+v", h)
			}
		}
		return true, ""
	})
}
