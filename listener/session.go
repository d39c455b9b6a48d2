package listener

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/sourcegraph/conc"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/signal/topicset"
	"github.com/tasker-go/tasker/signal"
)

var errDeaf = errors.New("a probe did not come back in time")

// session serves one connection with three goroutines: serve decides, receive waits for
// signals, control runs the calls that may hang.
type session struct {
	*connector
	conn   signal.Connection
	topics topicset.Set // of conn; owned by control

	probe       chan struct{} // of capacity 1: a probe has to be sent
	resubscribe chan struct{} // of capacity 1
	returned    chan probeReturn
	broken      chan error // of capacity 1 per goroutine
}

type probeReturn struct {
	number int64
	at     time.Time
}

// serve returns why the connection ended; it is closed by then.
func (c *connector) serve(ctx context.Context, conn signal.Connection, topics topicset.Set, version uint64) error {
	s := &session{
		connector:   c,
		conn:        conn,
		topics:      topics,
		probe:       make(chan struct{}, 1),
		resubscribe: make(chan struct{}, 1),
		returned:    make(chan probeReturn, 4),
		broken:      make(chan error, 2),
	}
	inner, cancel := context.WithCancel(ctx)
	var group conc.WaitGroup
	defer func() {
		cancel()
		s.close(ctx, &group)
		for _, sub := range c.subscriptions() { // without a connection the lag is unknown
			sub.cfg.Metrics.WALLag.DeleteLabelValues(sub.cfg.SystemID)
		}
	}()
	c.subscribed(version)
	group.Go(func() { s.broken <- lifecycle.Guard(func() error { return s.receive(inner) }) })
	group.Go(func() { s.broken <- lifecycle.Guard(func() error { return s.control(inner) }) })
	return s.watch(ctx)
}

// watch drives the machines until the connection must be given up.
func (s *session) watch(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.loop.Beat()
		if s.tick() {
			return errDeaf
		}
		if in, ok := s.nextTick(); ok {
			timer.Reset(in)
		} else {
			timer.Stop()
		}
		s.loop.Rest()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-s.broken:
			return err
		case <-s.again:
			return errDoubted
		case <-timer.C:
		case <-s.poke:
			lifecycle.Nudge(s.resubscribe)
		case r := <-s.returned:
			if s.answer(r) {
				return errDeaf
			}
		}
	}
}

// tick moves the machines with the time. A probe that one of them asks for is sent once
// and counts for all.
func (s *session) tick() (deaf bool) {
	l := s.listener
	next, all := l.probes.Load()+1, s.subscriptions()
	asked := false
	for _, probing := range []bool{false, true} {
		if probing && !asked {
			break
		}
		for _, sub := range all {
			sends, gaveUp := sub.tick(probing, next)
			asked, deaf = asked || sends, deaf || gaveUp
		}
	}
	if asked {
		l.probes.Store(next)
		lifecycle.Nudge(s.probe)
	}
	return deaf
}

// nextTick returns the time until the next tick of a subscription; ok is false when
// passing time changes nothing.
func (s *session) nextTick() (in time.Duration, ok bool) {
	l := s.listener
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, sub := range s.started {
		if at, ticks := sub.machine.NextTick(); ticks && (!ok || at-now < in) {
			in, ok = at-now, true
		}
	}
	return max(0, in), ok
}

func (s *session) answer(r probeReturn) (deaf bool) {
	for _, sub := range s.subscriptions() {
		gaveUp := sub.answered(r.number, r.at)
		deaf = deaf || gaveUp
	}
	s.measureLag()
	return deaf
}

func (s *session) receive(ctx context.Context) error {
	for {
		sig, err := s.conn.Receive(ctx)
		if err != nil {
			return fmt.Errorf("receiving: %w", err)
		}
		if sig.Topic != s.listener.probe {
			s.dispatch(sig)
			continue
		}
		number, err := strconv.ParseInt(sig.Payload, 10, 64)
		if err != nil {
			continue // of no probe that this listener sent
		}
		select {
		case s.returned <- probeReturn{number, time.Now()}:
		default: // duplicate; the first one counted
		}
	}
}

// dispatch puts a signal into the buffers of the subscriptions that have its topic; it
// never blocks.
func (s *session) dispatch(sig signal.Signal) {
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	for _, sub := range s.started {
		if sub.topics.Has(sig.Topic) {
			sub.arrived.Put(sig)
		}
	}
}

// control sends probes and changes the subscription, one at a time.
func (s *session) control(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.probe:
			if err := s.sendProbe(ctx); err != nil {
				return err
			}
		case <-s.resubscribe:
			if err := s.subscribe(ctx); err != nil {
				return err
			}
		}
	}
}

// sendProbe sends the latest probe, which answers all earlier ones too. The machine that
// asked for it ends a sending that hangs.
func (s *session) sendProbe(ctx context.Context) error {
	number := strconv.FormatInt(s.listener.probes.Load(), 10)
	if err := s.conn.Probe(ctx, signal.Signal{Topic: s.listener.probe, Payload: number}); err != nil {
		return fmt.Errorf("sending a probe: %w", err)
	}
	s.measureLag() // also if no probe comes back
	return nil
}

// lagging is a connection that reads a log and knows its lag.
type lagging interface{ LagBytes() int64 }

// measureLag is called after a probe was sent, which is when the connection learns the
// end of the log, and after its return.
func (s *session) measureLag() {
	c, ok := s.conn.(lagging)
	if !ok {
		return
	}
	bytes := float64(c.LagBytes())
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	for _, sub := range s.started {
		sub.cfg.Metrics.WALLag.WithLabelValues(sub.cfg.SystemID).Set(bytes)
	}
}

// subscribe subscribes the connection to the present topics. Those that it had and keeps
// have no gap.
func (s *session) subscribe(ctx context.Context) error {
	topics, version := s.union()
	if !maps.Equal(topics, s.topics) {
		subscribing, cancel := context.WithTimeout(ctx, s.timeout())
		defer cancel()
		if err := s.conn.Subscribe(subscribing, sorted(topics)); err != nil {
			return fmt.Errorf("subscribing: %w", err)
		}
		s.topics = topics
	}
	if ctx.Err() == nil && s.subscribed(version) { // else another connection may follow already
		lifecycle.Nudge(s.poke) // a new subscription has to be ticked
	}
	return nil
}

// close ends the connection and waits for its goroutines, each within the timeout: a
// hanging source must not keep the listener from reconnecting.
func (s *session) close(ctx context.Context, group *conc.WaitGroup) {
	s.loop.Beat() // it may have rested until now
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout())
	defer cancel()
	done := make(chan error, 1)
	var closing conc.WaitGroup
	closing.Go(func() {
		err := lifecycle.Guard(func() error { return s.conn.Close(ctx) })
		group.Wait()
		done <- err
	})
	grace := time.NewTimer(2 * s.timeout())
	defer grace.Stop()
	log := s.listener.cfg.Logger.With(zap.String("source", s.listener.Source()))
	select {
	case err := <-done:
		if err != nil {
			log.Debug("closing the listener's connection", zap.Error(err))
		}
	case <-grace.C:
		log.Error("a connection does not end and is abandoned")
	}
}
