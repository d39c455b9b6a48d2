package coordinator

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
)

// Reason is the cause of a look.
type Reason string

// The reasons, in the order in which a coalesced wake is attributed: polling comes
// last, so that it counts only work that nothing else found.
const (
	ReasonSignal   Reason = "signal"
	reasonTimer    Reason = "timer"
	ReasonCatchUp  Reason = "catch_up"
	ReasonContinue Reason = "continue"
	ReasonPoll     Reason = "poll"
)

var reasons = [...]Reason{ReasonSignal, reasonTimer, ReasonCatchUp, ReasonContinue, ReasonPoll}

// by is the metric label for work found.
func (r Reason) by() string {
	switch r {
	case ReasonSignal:
		return telemetry.ByListener
	case reasonTimer:
		return telemetry.ByTimer
	case ReasonCatchUp:
		return telemetry.ByCatchUp
	case ReasonContinue:
		return telemetry.ByContinue
	default:
		return telemetry.ByPoller
	}
}

// Wake says what to look at. It combines everything that woke the system since the
// previous look. It is read-only.
type Wake struct {
	// Reason is the strongest of the reasons.
	Reason Reason
	// All asks to look at everything, whatever Topics says.
	All bool
	// Everywhere says that a poll or a catch-up is among the reasons: the look must see all
	// work, so it follows no memory of where work begins or of what a look costs.
	Everywhere bool
	// CatchUp says that a catch-up is among the reasons: any signal may have been missed.
	CatchUp bool
	// Topics that woke the system.
	Topics map[signal.Topic]struct{}
	// Payloads of their signals, without empty ones and duplicates; bounded. Beyond
	// the bound All is set.
	Payloads []string
}

// Has reports whether topic has to be looked at.
func (w Wake) Has(topic signal.Topic) bool {
	_, ok := w.Topics[topic]
	return w.All || ok
}

// Outcome is the result of a look.
type Outcome struct {
	// Found is how much work was found.
	Found int
	// More asks to look again at once: the look stopped at a limit.
	More bool
	// RetryIn asks to look at everything again after this; 0 does not.
	RetryIn time.Duration
	// Missing says why announced work may exist that this look did not find; empty:
	// there is none. It is counted, and RetryIn must be set with it.
	Missing Missing
	// Waited is how long the found work had been ready before the look, where that is
	// known and the previous look could not have found it. See [Health.Missed].
	Waited time.Duration
	// NextDue is the time until the next known work is due, which arms a
	// timer; NoDue where none is known. 0 means due now.
	NextDue time.Duration
}

// Missing is the reason why a look did not find announced work: a metric label.
type Missing string

// The reasons.
const (
	// MissingLocked: rows were skipped because another transaction held them.
	MissingLocked Missing = "locked"
	// MissingUnseen: a signal arrived, no work was found, and the scan that sees
	// everything is not due yet.
	MissingUnseen Missing = "unseen"
)

// SoonerRetry makes the outcome ask for another look after d, unless it asks for an
// earlier one; why is counted, unless another reason is.
func (o *Outcome) SoonerRetry(d time.Duration, why Missing) {
	if o.RetryIn == 0 || d < o.RetryIn {
		o.RetryIn = d
	}
	if o.Missing == "" {
		o.Missing = why
	}
}

// NoDue is the NextDue of a look that knows of no later work.
const NoDue time.Duration = -1

// Work is what an event system looks for.
type Work interface {
	// Look looks for work and does it or hands it on. One system never calls it
	// concurrently. After an error the system looks again, with everything this wake
	// asked for, after a growing delay.
	Look(ctx context.Context, w Wake) (Outcome, error)
}

// pending collects wakes until the next look. The zero value is empty.
type pending struct {
	reasons  map[Reason]struct{}
	all      bool
	topics   map[signal.Topic]struct{}
	payloads map[string]struct{}
	order    []string  // the payloads in order of arrival
	signalAt time.Time // when the first signal came; zero without one
	waiters  []chan<- result
}

// result is sent to the callers that wait for a look.
type result struct {
	found  int
	reason Reason
	err    error
}

func (p *pending) empty() bool { return len(p.reasons) == 0 }

// add records a reason to look, at everything if it names no topics.
func (p *pending) add(reason Reason, topics ...signal.Topic) {
	if p.reasons == nil {
		p.reasons = map[Reason]struct{}{}
	}
	p.reasons[reason] = struct{}{}
	if len(topics) == 0 {
		p.all = true
		return
	}
	if p.topics == nil {
		p.topics = map[signal.Topic]struct{}{}
	}
	for _, t := range topics {
		p.topics[t] = struct{}{}
	}
}

func (p *pending) addPayload(payload string, limit int) {
	if payload == "" {
		return
	}
	if _, ok := p.payloads[payload]; ok {
		return
	}
	if len(p.order) >= limit {
		p.all = true
		return
	}
	if p.payloads == nil {
		p.payloads = map[string]struct{}{}
	}
	p.payloads[payload] = struct{}{}
	p.order = append(p.order, payload)
}

// merge adds the wakes of from, without its waiters: they have their result.
func (p *pending) merge(from pending, limit int) {
	topics := slices.Collect(maps.Keys(from.topics))
	for reason := range from.reasons {
		all := p.all
		p.add(reason, topics...)
		p.all = all || from.all
	}
	for _, payload := range from.order {
		p.addPayload(payload, limit)
	}
	if p.signalAt.IsZero() || (!from.signalAt.IsZero() && from.signalAt.Before(p.signalAt)) {
		p.signalAt = from.signalAt
	}
}

// has reports whether one of the reasons is reason.
func (p *pending) has(reason Reason) bool {
	_, ok := p.reasons[reason]
	return ok
}

func (p *pending) wake() Wake {
	w := Wake{All: p.all, CatchUp: p.has(ReasonCatchUp), Topics: p.topics, Payloads: p.order}
	w.Everywhere = w.CatchUp || p.has(ReasonPoll)
	if w.Topics == nil {
		w.Topics = map[signal.Topic]struct{}{}
	}
	for _, reason := range reasons {
		if p.has(reason) {
			w.Reason = reason
			break
		}
	}
	return w
}
