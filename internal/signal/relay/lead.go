package relay

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sourcegraph/conc"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/signal/notify"
	"github.com/tasker-go/tasker/internal/signal/pending"
	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/signal"
)

// closeTimeout bounds each part of the end of a leadership.
const closeTimeout = 3 * time.Second

// frozenProbes is how many probes a leader may miss before the server ends its session.
const frozenProbes = 3

var errDeaf = errors.New("no probe came back through the WAL")

// leadership is the time from an election to its loss. It has three goroutines: forward
// reads, the sender announces, watch measures.
type leadership struct {
	r      *Relay
	wal    stream
	sender *pending.Sender
	probe  signal.Topic
	nonce  string        // of this leadership
	proven chan struct{} // of capacity 1: a probe came back
	broken chan error    // of capacity 1: the first reason to give up
}

// stream is a connection of package wal.
type stream interface {
	signal.Connection
	LagBytes() int64
}

// lead relays until ctx ends or the leadership breaks, and returns the cause.
func (r *Relay) lead(ctx context.Context, v *session) error {
	l := &leadership{
		r: r, nonce: rand.Text()[:12],
		proven: make(chan struct{}, 1), broken: make(chan error, 1),
	}
	l.probe = signal.ProbeTopic("relay-" + l.nonce)
	if err := l.open(ctx, v); err != nil {
		return err
	}
	l.sender = pending.NewSender(notify.NewTransport(v), pending.SenderConfig{FlushTimeout: commandTimeout, Logger: r.cfg.Logger,
		OnError: func(err error) { l.fail(errorf("announcing", err)) }})
	inner, cancel := context.WithCancel(ctx)
	var group conc.WaitGroup
	defer func() {
		cancel()
		l.close(ctx, &group)
		r.resigned()
	}()
	if err := l.takeOver(ctx); err != nil {
		return err
	}
	if err := v.limitIdle(ctx, frozenProbes*r.cfg.ProbeInterval+commandTimeout); err != nil {
		return err
	}
	r.elected(l.wal.LagBytes)
	group.Go(func() { l.fail(lifecycle.Guard(func() error { return l.forward(inner) })) })
	group.Go(func() { l.fail(lifecycle.Guard(func() error { return l.watch(inner) })) })
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-l.broken:
		return err
	}
}

// open starts reading the WAL. Probes and visibility queries use the leader's session,
// not a pool that may be exhausted.
func (l *leadership) open(ctx context.Context, v *session) error {
	ctx, cancel := context.WithTimeout(ctx, l.r.cfg.TakeOverTimeout)
	defer cancel()
	source, err := wal.New(l.r.walConfig(v), wal.NewTransport(v))
	if err != nil {
		return err
	}
	conn, err := source.Connect(ctx, nil)
	if err != nil {
		return errorf("reading the WAL", err)
	}
	var ok bool
	if l.wal, ok = conn.(stream); !ok {
		return fmt.Errorf("relaying: unexpected %T", conn)
	}
	return nil
}

// takeOver announces every topic, since signals sent without a relay may be lost; from
// here on signals are received. TopicTasks is left out, as it says nothing without a
// payload; waiters for tasks poll anyway.
func (l *leadership) takeOver(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.r.cfg.TakeOverTimeout)
	defer cancel()
	namespaces, err := l.r.cfg.Namespaces(ctx) // after open: later ones are signalled
	if err != nil {
		return errorf("listing the namespaces", err)
	}
	if err := l.sender.Start(ctx); err != nil {
		return err
	}
	l.sender.Publish(signal.Signal{Topic: signal.TopicControl}, signal.Signal{Topic: signal.TopicDue},
		signal.Signal{Topic: signal.TopicOrchestration})
	for _, namespace := range namespaces {
		l.sender.Publish(signal.Signal{Topic: signal.WorkerTopic(namespace)})
	}
	return nil
}

// forward passes each signal to the sender, which never blocks: signals that arrive
// during an announcement wait and are sent together.
func (l *leadership) forward(ctx context.Context) error {
	for {
		s, err := l.wal.Receive(ctx)
		if err != nil {
			return errorf("receiving", err)
		}
		if s.Topic != l.probe {
			l.sender.Publish(s)
			l.r.forwarded()
			continue
		}
		if !strings.HasPrefix(s.Payload, l.nonce) {
			continue
		}
		lifecycle.Nudge(l.proven)
	}
}

// watch probes the WAL. A probe also detects that the session, and with it the lock, is
// lost.
func (l *leadership) watch(ctx context.Context) error {
	ticker := time.NewTicker(l.r.cfg.ProbeInterval)
	defer ticker.Stop()
	last := time.Now()
	for count := 0; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.proven:
			last = time.Now()
			l.measure()
		case <-ticker.C:
			if silent := time.Since(last); l.r.cfg.WAL.Slot == "" && silent > l.r.cfg.DeafAfter {
				return fmt.Errorf("%w for %s", errDeaf, silent.Round(time.Millisecond))
			}
			count++
			if err := l.wal.Probe(ctx, signal.Signal{Topic: l.probe, Payload: l.nonce + "-" + strconv.Itoa(count)}); err != nil {
				return errorf("reading the WAL", err)
			}
			l.measure()
		}
	}
}

func (l *leadership) measure() {
	l.r.cfg.Metrics.WALLag.WithLabelValues(Name).Set(float64(l.wal.LagBytes()))
}

// fail ends the leadership; the first reason counts.
func (l *leadership) fail(err error) {
	select {
	case l.broken <- err:
	default:
	}
}

// close stops reading, sends the signals that were read, and leaves the session to its
// owner. Signals that are not sent are covered by the next leader's announcements.
func (l *leadership) close(ctx context.Context, group *conc.WaitGroup) {
	bounded := func(end func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		return end(ctx)
	}
	err := bounded(l.wal.Close)
	group.Wait() // Close has ended Receive; everything else is bounded
	if err = errors.Join(err, bounded(l.sender.Stop)); err != nil {
		l.r.cfg.Logger.Debug("ending the relay", zap.Error(err))
	}
}
