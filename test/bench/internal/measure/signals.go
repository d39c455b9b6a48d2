package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/signal/notify"
	"github.com/tasker-go/tasker/internal/signal/redis"
	"github.com/tasker-go/tasker/internal/signal/relay"
	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
)

const (
	// signalCount signals go through a transport at once, signalBatch in each call, in each
	// of signalRounds. So many different ones may wait for their receiver.
	signalCount, signalBatch, signalRounds = 10_000, 100, 3
	// signalSingles go one after the other.
	signalSingles = 200
	// signalPatience bounds everything that is done to a transport.
	signalPatience = time.Minute
)

// signalTimes is what a transport does without daemons.
type signalTimes struct {
	rates  []float64 // signals per second, of each flood
	single []time.Duration
}

// transport is one end-to-end way of signals, in this process.
type transport struct {
	signal.Transport
	signal.Source
	closers []func(ctx context.Context) error
}

func (t *transport) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), signalPatience)
	defer cancel()
	var errs []error
	for _, c := range slices.Backward(t.closers) {
		errs = append(errs, c(ctx))
	}
	return errors.Join(errs...)
}

// transportOf makes the two ends of a source as daemons do.
func transportOf(ctx context.Context, source, dsn string, carrier *rig.Carrier) (t *transport, err error) {
	t = &transport{}
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("open a pool: %w", err)
	}
	t.closers = append(t.closers, func(context.Context) error { pool.Close(); return nil })
	switch source {
	case notify.Name:
		t.Transport = notify.NewTransport(pool)
		t.Source, err = notify.New(notify.Config{DSN: dsn, BufferLimit: 2 * signalCount}, t.Transport)
	case wal.Name:
		t.Transport = wal.NewTransport(pool)
		t.Source, err = wal.New(wal.Config{DSN: dsn, BufferLimit: 2 * signalCount, Server: pool}, t.Transport)
	case relay.Name:
		err = t.relayed(ctx, dsn, pool)
	case amqp.Name:
		cfg := amqp.Config{URL: carrier.URL, BufferLimit: 2 * signalCount, MaxWaiting: 2 * signalCount}
		var sender *amqp.Transport
		if sender, err = amqp.NewTransport(cfg); err != nil {
			break
		}
		t.Transport, t.closers = sender, append(t.closers, sender.Stop)
		t.Source, err = amqp.New(cfg, sender)
	case redis.Name:
		cfg := redis.Config{URL: carrier.URL, Prefix: "bench", Timeout: 5 * time.Second, ClientName: "bench", BufferLimit: 2 * signalCount}
		var sender *redis.Transport
		if sender, err = redis.NewTransport(cfg); err != nil {
			break
		}
		t.Transport, t.closers = sender, append(t.closers, sender.Stop)
		t.Source, err = redis.New(cfg, sender)
	default:
		err = fmt.Errorf("no event source is called %q", source)
	}
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// relayed has a relay in this process, too, and waits for its election.
func (t *transport) relayed(ctx context.Context, dsn string, pool *pgxpool.Pool) (err error) {
	t.Transport = wal.NewTransport(pool)
	if t.Source, err = relay.NewSource(notify.Config{DSN: dsn, BufferLimit: 2 * signalCount}, t.Transport); err != nil {
		return err
	}
	r, err := relay.New(relay.Config{WAL: wal.Config{DSN: dsn, BufferLimit: 2 * signalCount}, Namespaces: func(context.Context) ([]string, error) { return nil, nil }})
	if err != nil {
		return err
	}
	if err := r.Start(ctx); err != nil {
		return err
	}
	t.closers = append(t.closers, r.Stop)
	for !r.Health().Leader {
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the relay (%s): %w", r.Health().LastError, err)
		}
	}
	return nil
}

// signals measures a transport from Send to Receive, with different payloads, and adds to out.
func (b *Bench) signals(ctx context.Context, source string, carrier *rig.Carrier, out *signalTimes) (err error) {
	ctx, cancel := context.WithTimeout(ctx, signalPatience)
	defer cancel()
	d, err := b.Rig.Database(ctx, b.Rig.Stock())
	if err != nil {
		return err
	}
	defer func() { _ = d.Drop() }() // the server is removed after the run
	t, err := transportOf(ctx, source, d.DSN, carrier)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	topic := signal.WorkerTopic("bench")
	c, err := t.Connect(ctx, []signal.Topic{topic})
	if err != nil {
		return err
	}
	t.closers = append(t.closers, c.Close)
	payload := 0
	next := func() signal.Signal {
		payload++
		return signal.Signal{Topic: topic, Payload: "00000000-0000-7000-8000-" + fmt.Sprintf("%012d", payload)}
	}
	for range signalSingles {
		s, begin := next(), time.Now()
		if err := t.Send(ctx, []signal.Signal{s}); err != nil {
			return err
		}
		if err := received(ctx, c, map[string]bool{s.Payload: true}); err != nil {
			return err
		}
		out.single = append(out.single, time.Since(begin))
	}
	for range signalRounds {
		all, expected := make([]signal.Signal, signalCount), make(map[string]bool, signalCount)
		for i := range all {
			all[i] = next()
			expected[all[i].Payload] = true
		}
		took, err := flood(ctx, t, c, all, expected)
		if err != nil {
			return err
		}
		out.rates = append(out.rates, signalCount/took.Seconds())
	}
	return nil
}

// flood sends signals as fast as the transport takes them and returns the time until the last
// one has come.
func flood(ctx context.Context, t signal.Transport, c signal.Connection, all []signal.Signal, expected map[string]bool) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := make(chan error, 1)
	begin := time.Now()
	go func() {
		for batch := range slices.Chunk(all, signalBatch) {
			if err := t.Send(ctx, batch); err != nil {
				cancel()
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	err := received(ctx, c, expected)
	took := time.Since(begin)
	cancel()
	if failed := <-sent; err != nil {
		err = errors.Join(failed, err)
	}
	return took, err
}

// received waits for every one of the expected payloads.
func received(ctx context.Context, c signal.Connection, expected map[string]bool) error {
	for len(expected) > 0 {
		s, err := c.Receive(ctx)
		if err != nil {
			return fmt.Errorf("receive with %d signals missing: %w", len(expected), err)
		}
		if s.Payload == "" {
			return errors.New("receive: payloads were dropped")
		}
		delete(expected, s.Payload)
	}
	return nil
}
