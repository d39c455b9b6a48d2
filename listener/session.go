package listener

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sourcegraph/conc"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/signal"
)

var errDeaf = errors.New("a probe did not come back in time")

// session serves one connection with three goroutines: serve decides, receive waits for
// signals, control runs the calls that may hang.
type session struct {
	l    *Listener
	conn signal.Connection

	probes      chan string   // nonces to send; at most one is under way
	resubscribe chan struct{} // of capacity 1
	returned    chan probeReturn
	broken      chan error // of capacity 1 per goroutine
}

type probeReturn struct {
	nonce string
	at    time.Time
}

// serve returns why the connection ended; it is closed by then.
func (l *Listener) serve(ctx context.Context, conn signal.Connection, version uint64) error {
	s := &session{
		l:           l,
		conn:        conn,
		probes:      make(chan string, 1),
		resubscribe: make(chan struct{}, 1),
		returned:    make(chan probeReturn, 4),
		broken:      make(chan error, 2),
	}
	inner, cancel := context.WithCancel(ctx)
	var group conc.WaitGroup
	group.Go(func() { s.broken <- lifecycle.Guard(func() error { return s.receive(inner) }) })
	group.Go(func() { s.broken <- lifecycle.Guard(func() error { return s.control(inner) }) })
	defer func() {
		cancel()
		s.close(ctx, &group)
		l.cfg.Metrics.WALLag.DeleteLabelValues(l.cfg.SystemID) // without a connection the lag is unknown
	}()

	l.mu.Lock()
	l.connectedAt = l.cfg.Clock.Now()
	l.mu.Unlock()
	l.subscribed(version)
	l.step(deploymode.Event{Kind: deploymode.Connected})
	return s.watch(ctx)
}

// watch drives the machine until the connection must be given up.
func (s *session) watch(ctx context.Context) error {
	l := s.l
	timer := l.cfg.Clock.NewTimer(0)
	defer timer.Stop()
	var asked time.Time // when the probe under way was requested
	nonce := ""
	for count := 0; ; {
		l.loop.Beat()
		effects := l.step(deploymode.Event{Kind: deploymode.Tick})
		if has(effects, deploymode.Drop) {
			return errDeaf
		}
		if has(effects, deploymode.Probe) {
			count++
			asked, nonce = l.cfg.Clock.Now(), l.nonce+"-"+strconv.Itoa(count)
			s.probes <- nonce
		}
		s.arm(timer)
		l.loop.Rest()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-s.broken:
			return err
		case <-timer.C():
		case <-l.topicsChanged:
			select {
			case s.resubscribe <- struct{}{}:
			default: // a waiting request will read the present topics
			}
		case r := <-s.returned:
			if r.nonce != nonce {
				continue // of an earlier connection
			}
			nonce = ""
			if has(s.measured(r.at, r.at.Sub(asked)), deploymode.Drop) {
				return errDeaf
			}
		}
	}
}

func (s *session) arm(timer lifecycle.Timer) {
	s.l.mu.Lock()
	at, ok := s.l.machine.NextTick()
	s.l.mu.Unlock()
	if !ok {
		timer.Stop()
		return
	}
	timer.Reset(max(0, at-s.l.cfg.Clock.Now().Sub(s.l.begin)))
}

func (s *session) measured(at time.Time, roundTrip time.Duration) []deploymode.Effect {
	l := s.l
	l.mu.Lock()
	l.lag = signal.Lag{RoundTrip: roundTrip, At: at}
	l.mu.Unlock()
	l.cfg.Metrics.ProbeLag.WithLabelValues(l.cfg.SystemID).Observe(roundTrip.Seconds())
	s.measureLag()
	return l.step(deploymode.Event{Kind: deploymode.ProbeReturned, RoundTrip: roundTrip})
}

func (s *session) receive(ctx context.Context) error {
	received := s.l.cfg.Metrics.NotificationsReceived.WithLabelValues(s.l.cfg.SystemID)
	for {
		sig, err := s.conn.Receive(ctx)
		if err != nil {
			return fmt.Errorf("receiving: %w", err)
		}
		if sig.Topic != s.l.probe {
			received.Inc()
			s.l.hooks.OnSignal(sig)
			continue
		}
		select {
		case s.returned <- probeReturn{sig.Payload, s.l.cfg.Clock.Now()}:
		default: // duplicate; the first one counted
		}
	}
}

// control sends probes and changes the subscription, one at a time.
func (s *session) control(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case nonce := <-s.probes:
			if err := s.sendProbe(ctx, nonce); err != nil {
				return err
			}
		case <-s.resubscribe:
			if err := s.subscribe(ctx); err != nil {
				return err
			}
		}
	}
}

func (s *session) sendProbe(ctx context.Context, nonce string) error {
	ctx, cancel := context.WithTimeout(ctx, s.l.cfg.FallbackActivationThreshold)
	defer cancel()
	if err := s.conn.Probe(ctx, signal.Signal{Topic: s.l.probe, Payload: nonce}); err != nil {
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
	if c, ok := s.conn.(lagging); ok {
		s.l.cfg.Metrics.WALLag.WithLabelValues(s.l.cfg.SystemID).Set(float64(c.LagBytes()))
	}
}

func (s *session) subscribe(ctx context.Context) error {
	l := s.l
	l.mu.Lock()
	topics, version, applied := l.topics, l.version, l.applied
	l.mu.Unlock()
	if applied >= version {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.ConnectTimeout)
	defer cancel()
	if err := s.conn.Subscribe(ctx, topics); err != nil {
		return fmt.Errorf("subscribing: %w", err)
	}
	l.subscribed(version)
	l.stepping.Lock() // OnConnected is called sequentially
	defer l.stepping.Unlock()
	l.hooks.OnConnected()
	return nil
}

// close ends the connection and waits for its goroutines, each within the connect
// timeout: a hanging source must not keep the listener from reconnecting.
func (s *session) close(ctx context.Context, group *conc.WaitGroup) {
	l := s.l
	l.loop.Beat() // it may have rested until now
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.cfg.ConnectTimeout)
	defer cancel()
	done := make(chan error, 1)
	var closing conc.WaitGroup
	closing.Go(func() {
		err := lifecycle.Guard(func() error { return s.conn.Close(ctx) })
		group.Wait()
		done <- err
	})
	grace := l.cfg.Clock.NewTimer(2 * l.cfg.ConnectTimeout)
	defer grace.Stop()
	select {
	case err := <-done:
		if err != nil {
			l.cfg.Logger.Debug("closing the listener's connection", zap.String("system", l.cfg.SystemID), zap.Error(err))
		}
	case <-grace.C():
		l.cfg.Logger.Error("a connection does not end and is abandoned",
			zap.String("system", l.cfg.SystemID), zap.String("source", l.cfg.Source.Name()))
	}
}
