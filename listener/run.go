package listener

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/signal"
)

// run connects, serves the connection until it is lost, and repeats.
func (l *Listener) run(ctx context.Context) error {
	defer func() {
		if ctx.Err() == nil { // after a panic the machine must not assume a connection
			l.lost()
		}
	}()
	timer := l.cfg.Clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		l.loop.Beat()
		conn, version, err := l.connect(ctx)
		var effects []deploymode.Effect
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			l.failed(err)
			effects = l.step(deploymode.Event{Kind: deploymode.ConnectFailed, Jitter: rand.Float64()})
		} else {
			err = l.serve(ctx, conn, version)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			l.failed(err)
			effects = l.lost()
		}
		timer.Reset(reconnectAfter(effects))
		l.loop.Rest()
		select {
		case <-timer.C():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *Listener) connect(ctx context.Context) (conn signal.Connection, version uint64, err error) {
	l.mu.Lock()
	topics, version := l.topics, l.version
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, l.cfg.ConnectTimeout)
	defer cancel()
	conn, err = l.cfg.Source.Connect(ctx, topics)
	if err != nil {
		return nil, 0, fmt.Errorf("connecting to %s: %w", l.cfg.Source.Name(), err)
	}
	return conn, version, nil
}

func (l *Listener) failed(err error) {
	l.mu.Lock()
	first := l.lastError == ""
	l.lastError = err.Error()
	l.mu.Unlock()
	level := zap.DebugLevel // the first error of a series is logged as a warning
	if first {
		level = zap.WarnLevel
	}
	l.cfg.Logger.Log(level, "listener not connected", zap.String("system", l.cfg.SystemID), zap.Error(err))
}

func (l *Listener) lost() []deploymode.Effect {
	l.mu.Lock()
	l.connectedAt = time.Time{}
	l.mu.Unlock()
	return l.step(deploymode.Event{Kind: deploymode.ConnectionLost, Jitter: rand.Float64()})
}

// subscribed records the subscribed version of the topics.
func (l *Listener) subscribed(version uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.applied = max(l.applied, version)
	l.announce()
}

// step moves the machine and reports changes to the owner.
func (l *Listener) step(event deploymode.Event) []deploymode.Effect {
	l.stepping.Lock()
	defer l.stepping.Unlock()
	l.mu.Lock()
	before := l.machine.Snapshot()
	next, effects := l.machine.Step(event, l.cfg.Clock.Now().Sub(l.begin))
	after := next.Snapshot()
	l.machine = next
	if after.Proven {
		l.lastError = ""
	}
	if after.State != before.State || after.GoodProbes != before.GoodProbes {
		l.announce()
	}
	cause := l.lastError
	l.mu.Unlock()

	l.measure(before, after)
	if before.State != after.State {
		l.logChange(before, after, cause)
	}
	if differ(before, after) {
		l.hooks.OnChange(after)
	}
	for _, e := range effects {
		switch e.Kind {
		case deploymode.CatchUp:
			l.hooks.OnConnected()
		case deploymode.Fatal:
			l.hooks.OnFatal(fmt.Errorf("the listener of %s failed %d times in a row: %s",
				l.cfg.SystemID, after.Attempts, cause))
		}
	}
	return effects
}

// differ reports whether a change is relevant to the owner.
func differ(before, after deploymode.Snapshot) bool {
	return before.Mode != after.Mode || before.State != after.State || before.Pace != after.Pace ||
		before.Ready != after.Ready || before.Proven != after.Proven || before.Attempts != after.Attempts
}

func (l *Listener) measure(before, after deploymode.Snapshot) {
	m, system := l.cfg.Metrics, l.cfg.SystemID
	if before.Mode != after.Mode {
		m.ListenerActive.DeleteLabelValues(system, before.Mode.Label())
		m.ListenerLag.DeleteLabelValues(system, before.Mode.Label())
	}
	active := 0.0
	if after.State == deploymode.Listening {
		active = 1
	}
	m.ListenerActive.WithLabelValues(system, after.Mode.Label()).Set(active)
	m.ListenerLag.WithLabelValues(system, after.Mode.Label()).Set(milliseconds(after.RoundTrip))
	m.Reconnections.WithLabelValues(system).Add(float64(after.Reconnects - before.Reconnects))
}

func (l *Listener) logChange(before, after deploymode.Snapshot, cause string) {
	fields := []zap.Field{
		zap.String("system", l.cfg.SystemID), zap.String("source", l.cfg.Source.Name()),
		zap.String("from", string(before.State)), zap.String("to", string(after.State)),
	}
	switch after.State {
	case deploymode.Deaf:
		l.cfg.Logger.Warn("listener is deaf: a probe did not come back in time", fields...)
	case deploymode.Reconnecting:
		l.cfg.Logger.Warn("listener lost its connection", append(fields, zap.String("cause", cause))...)
	default:
		l.cfg.Logger.Info("listener changed", fields...)
	}
}

func reconnectAfter(effects []deploymode.Effect) time.Duration {
	for _, e := range effects {
		if e.Kind == deploymode.Reconnect {
			return e.After
		}
	}
	return 0
}

func has(effects []deploymode.Effect, kind deploymode.EffectKind) bool {
	for _, e := range effects {
		if e.Kind == kind {
			return true
		}
	}
	return false
}
