package notify_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/notify"
	"github.com/tasker-go/tasker/signal"
)

const patience = 60 * time.Second

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	return ctx
}

func connect(t *testing.T, cfg notify.Config, transport signal.Transport, topics ...signal.Topic) signal.Connection {
	t.Helper()
	s, err := notify.New(cfg, transport)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Connect(bounded(t), topics)
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(bounded(t)); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

// spy is an Execer that counts.
type spy struct {
	mu         sync.Mutex
	statements []string
	err        error
}

func (s *spy) Exec(_ context.Context, sql string, _ ...any) (pgconn.CommandTag, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statements = append(s.statements, sql)
	return pgconn.CommandTag{}, s.err
}

func TestTransportUsesOneStatement(t *testing.T) {
	exec := &spy{}
	transport := notify.NewTransport(exec)
	batch := make([]signal.Signal, 500)
	for i := range batch {
		batch[i] = signal.Signal{Topic: signal.TopicTasks, Payload: fmt.Sprint(i)}
	}
	if err := transport.Send(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if len(exec.statements) != 1 {
		t.Errorf("%d statements, want 1", len(exec.statements))
	}
	exec.err = errors.New("down")
	if err := transport.Send(t.Context(), batch); !errors.Is(err, exec.err) {
		t.Errorf("Send = %v, want the cause", err)
	}
	if err := transport.Send(t.Context(), []signal.Signal{{}}); !errors.Is(err, signal.ErrMalformed) || len(exec.statements) != 2 {
		t.Errorf("a malformed signal: %v after %d statements", err, len(exec.statements))
	}
}

// TestProbeUsesTheTransport: a stuck pool must show in the lag, so a probe must not go
// over the listening connection.
func TestProbeUsesTheTransport(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	exec := &spy{err: errors.New("pool is stuck")}
	probe := signal.ProbeTopic("me")
	c := connect(t, notify.Config{DSN: db.DSN}, notify.NewTransport(exec), probe)
	if err := c.Probe(bounded(t), signal.Signal{Topic: probe, Payload: "n"}); !errors.Is(err, exec.err) {
		t.Errorf("Probe = %v, want the transport's error", err)
	}
}

// TestSession: the session has a name, is not ended for being idle, and accepts the DSN
// of a pool.
func TestSession(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, `do $$ begin execute format('alter database %I set idle_session_timeout = 200', current_database()); end $$`)
	u, err := url.Parse(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("pool_max_conns", "7")
	u.RawQuery = q.Encode()
	transport := notify.NewTransport(db.Pool(t))
	c := connect(t, notify.Config{DSN: u.String(), ApplicationName: "my listener"}, transport, signal.TopicControl)

	const idle = `select coalesce(max(extract(epoch from clock_timestamp() - state_change) * 1000)::int, -1)
		from pg_stat_activity where datname = current_database() and application_name = 'my listener'`
	pgtest.Eventually(t, patience, func() (bool, string) {
		ms := db.QueryInt(t, idle)
		if ms < 0 {
			t.Fatal("the idle session was ended, or has another name")
		}
		return ms > 600, "not idle for long enough"
	})
	if err := transport.Send(bounded(t), []signal.Signal{{Topic: signal.TopicControl}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Receive(bounded(t)); err != nil {
		t.Errorf("Receive after a long silence: %v", err)
	}
}

// TestSubscribeStorm: many subscribers, one receiver and one sender run concurrently:
// no deadlock, no broken connection, no lost signal on a topic that is in every set.
func TestSubscribeStorm(t *testing.T) {
	t.Parallel()
	const n, storms = 500, 4
	db := pgtest.New(t)
	transport := notify.NewTransport(db.Pool(t))
	kept := signal.WorkerTopic("kept")
	c := connect(t, notify.Config{DSN: db.DSN}, transport, kept)
	var wg sync.WaitGroup
	sent := make(chan struct{})
	for storm := range storms {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-sent:
					return
				default:
				}
				topics := []signal.Topic{signal.WorkerTopic(fmt.Sprint(storm, "-", i%5)), kept}
				if err := c.Subscribe(bounded(t), topics); err != nil {
					t.Errorf("Subscribe: %v", err)
					return
				}
			}
		})
	}
	wg.Go(func() {
		defer close(sent)
		for i := range n {
			if err := transport.Send(bounded(t), []signal.Signal{{Topic: kept, Payload: fmt.Sprint(i)}}); err != nil {
				t.Errorf("Send: %v", err)
				return
			}
		}
	})
	ctx := bounded(t)
	for i := range n {
		got, err := c.Receive(ctx)
		if err != nil {
			t.Fatalf("Receive: %v", err)
		}
		if got.Payload != fmt.Sprint(i) {
			t.Fatalf("received %q, want %d: a signal was lost", got.Payload, i)
		}
	}
	wg.Wait()
	if got := db.QueryInt(t, `select count(*) from pg_stat_activity where datname = current_database() and application_name = 'tasker-listener'`); got != 1 {
		t.Errorf("%d listening sessions, want 1", got)
	}
}

// TestSubscribeGivesUp: a caller whose context ends leaves the connection usable.
func TestSubscribeGivesUp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	transport := notify.NewTransport(db.Pool(t))
	c := connect(t, notify.Config{DSN: db.DSN}, transport, signal.TopicControl)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // either outcome of the race is valid
		if err := c.Subscribe(gone, []signal.Topic{signal.TopicTasks}); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatalf("Subscribe = %v", err)
		}
	}
	if err := c.Subscribe(bounded(t), []signal.Topic{signal.TopicOrchestration}); err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	if err := transport.Send(bounded(t), []signal.Signal{{Topic: signal.TopicTasks}, {Topic: signal.TopicOrchestration}}); err != nil {
		t.Fatal(err)
	}
	got, err := c.Receive(bounded(t))
	if err != nil || got.Topic != signal.TopicOrchestration {
		t.Errorf("Receive = %+v, %v", got, err)
	}
}

// TestUnreachable: connecting is bounded, and errors contain no password.
func TestUnreachable(t *testing.T) {
	s, err := notify.New(notify.Config{DSN: "postgres://u:secret@127.0.0.1:1/x"}, notify.NewTransport(&spy{}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.Connect(bounded(t), nil); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("Connect = %v", err)
	}
	if _, err := notify.New(notify.Config{DSN: "postgres://u:secret@%%%"}, notify.NewTransport(&spy{})); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("New with a malformed DSN = %v", err)
	}
	if _, err := notify.New(notify.Config{}, nil); err == nil {
		t.Error("New without transport was accepted")
	}
}
