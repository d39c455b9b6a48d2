package remote

import (
	"context"
	"slices"

	"github.com/tasker-go/tasker/internal/domainevent"
	"github.com/tasker-go/tasker/worker/events"
)

// Domain events of sessions. Their processes have publishers, which make the declared events of
// the steps that they run, and subscribers of fast events.

const (
	// subscriberName is that of all sessions together, in logs and metrics.
	subscriberName = "sessions"
	// maxUntold bounds the fast events that wait for a poll of one session; older ones are dropped.
	maxUntold = 1000
)

// checkEvents says what is wrong with the publishers and subscriptions of a session.
func (o *Open) checkEvents() error {
	if len(o.Publishers) > maxCallables || len(o.Subscribes) > domainevent.MaxPatterns {
		return invalid("invalid publishers or subscribes: want at most %d and %d", maxCallables, domainevent.MaxPatterns)
	}
	for _, name := range o.Publishers {
		if name == "" || len(name) > maxName {
			return invalid("invalid publisher %.64q: want 1 to %d bytes", name, maxName)
		}
	}
	for _, pattern := range o.Subscribes {
		if err := domainevent.CheckPattern(pattern); err != nil {
			return invalid("invalid subscribes: %v", err)
		}
	}
	return nil
}

// subscribe has the hub get the fast events of the worker, once a session wants some.
func (h *Hub) subscribe(o Open) error {
	if len(o.Subscribes) == 0 || h.cfg.Subscribe == nil {
		return nil
	}
	h.subscribing.Lock()
	defer h.subscribing.Unlock()
	if h.subscribed {
		return nil
	}
	err := h.cfg.Subscribe(events.Subscriber{Name: subscriberName, Patterns: []string{"*"}, Handle: h.tell})
	h.subscribed = err == nil
	return err
}

// tell gives a fast event to the sessions that subscribe to it.
func (h *Hub) tell(_ context.Context, e events.Event) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sessions {
		if s.stops || !s.in(e.Metadata.Namespace) || !slices.ContainsFunc(s.open.Subscribes, func(p string) bool { return domainevent.Matches(p, e.Name) }) {
			continue
		}
		if len(s.events) == maxUntold {
			s.events = slices.Delete(s.events, 0, 1)
			h.cfg.Metrics.DomainEventsDropped.WithLabelValues(subscriberName).Inc()
		}
		s.events = append(s.events, e)
		s.wakeLocked()
	}
	return nil
}

// publishedBy lists the declared events of a step whose publishers a session has.
func (s *step) publishedBy(by *session) (list []Publishes) {
	if len(by.open.Publishers) == 0 {
		return nil
	}
	for _, e := range s.ctx.PublisherEvents() {
		if slices.Contains(by.open.Publishers, e.Publisher) {
			list = append(list, Publishes{e.Name, e.Condition, e.DeliveryMode, e.Publisher})
		}
	}
	return list
}
