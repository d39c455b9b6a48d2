package daemon

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/signal/redis"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
)

// newBreakers makes the circuit breakers of a daemon: one per dependency, independent of
// each other.
func newBreakers(c config.Common, w *config.Worker, log *zap.Logger, m *telemetry.Metrics) (*breaker.Set, error) {
	return breaker.NewSet(breaker.Config{Logger: log, Metrics: m}, breakerSettings(c, w))
}

// breakerSettings translates the settings of the breakers.
func breakerSettings(c config.Common, w *config.Worker) map[string]breaker.Settings {
	b, each := c.CircuitBreakers, c.CircuitBreakers.ComponentConfigs
	least := b.GlobalSettings.MinStateTransitionInterval
	of := func(t config.BreakerThresholds) breaker.Settings {
		return breaker.Settings{FailureThreshold: t.FailureThreshold, SuccessThreshold: t.SuccessThreshold,
			Timeout: b.DefaultConfig.Timeout, MinInterval: least, Judge: judge}
	}
	list := map[string]breaker.Settings{breaker.Messaging: of(each.Messaging)}
	if w != nil {
		r := w.CircuitBreakers.FFICompletionSend
		list[breaker.Report] = breaker.Settings{FailureThreshold: r.FailureThreshold, SuccessThreshold: r.SuccessThreshold,
			Timeout: r.RecoveryTimeout, MinInterval: least, Judge: judge}
	} else {
		list[breaker.Web], list[breaker.TaskReadiness] = of(each.Web), of(each.TaskReadiness)
	}
	return list
}

// canceledStatement is the SQLSTATE of a statement that ran into its time limit.
const canceledStatement = "57014"

// judge distinguishes an unavailable database or broker from one that answers, with any error. A
// time-out decides nothing by itself: the database may hang, or the statement had too
// much to do.
func judge(err error) breaker.Verdict {
	var sql interface{ SQLState() string }
	var duplicate *orchestration.DuplicateError
	isSQL := errors.As(err, &sql)
	switch {
	case errors.Is(err, context.DeadlineExceeded), isSQL && sql.SQLState() == canceledStatement: // before ErrUnavailable
		return breaker.Late
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, amqp.ErrUnavailable), errors.Is(err, redis.ErrUnavailable): // before its SQLSTATE
		return breaker.Failure
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrTaskEnded), errors.As(err, &duplicate), isSQL:
		return breaker.Success
	}
	return breaker.Ignored // bad input, or the daemon stops
}

// answered notifies the breakers that the database answers: their trials then begin
// without waiting for their time-outs. Signals may go over it, or not.
func answered(set *breaker.Set, signals bool) {
	for _, name := range []string{breaker.Web, breaker.TaskReadiness, breaker.Report} {
		set.Breaker(name).Seen()
	}
	if signals {
		set.Breaker(breaker.Messaging).Seen()
	}
}

// seenTransport does the same for the broker: probes show its recovery.
type seenTransport struct {
	signal.Transport
	breaker *breaker.Breaker
	note    func(error)
}

// Send implements signal.Transport.
func (t seenTransport) Send(ctx context.Context, signals []signal.Signal) error {
	err := t.Transport.Send(ctx, signals)
	t.note(err)
	if err == nil {
		t.breaker.Seen()
	}
	return err
}

// seenSource notes whether a broker can be listened to.
type seenSource struct {
	signal.Source
	note func(error)
}

// Connect implements signal.Source.
func (s seenSource) Connect(ctx context.Context, topics []signal.Topic) (signal.Connection, error) {
	c, err := s.Source.Connect(ctx, topics)
	s.note(err)
	return c, err
}

// noteBroker notes in the metrics what becomes of the signals' exchanges with a broker.
func noteBroker(m *telemetry.Metrics, reason func(error) string) func(error) {
	return func(err error) { m.Broker("signals", err, reason) }
}

// guardedTransport sends signals through a breaker. A poll or a scan finds the work of a
// signal that is not sent.
type guardedTransport struct {
	signal.Transport
	breaker *breaker.Breaker
}

// Send implements signal.Transport.
func (t guardedTransport) Send(ctx context.Context, signals []signal.Signal) error {
	return t.breaker.Do(ctx, func(ctx context.Context) error { return t.Transport.Send(ctx, signals) })
}
