package rest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/places"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/wire"
)

// eventRoutes show domain events and let consumers read them.
type eventRoutes struct {
	*orchestratorAPI
	most *places.Places // consumers, of which a namespace has its share; the database counts them
}

func (r *eventRoutes) add() {
	const all, one = "/v1/event-consumers", "/v1/event-consumers/{name}"
	op := operation{tag: "events"}
	add(r.api, op.at(http.MethodGet, "/v1/events", "list-events", "List durable domain events by position"), r.list)
	addBody(r.api, op.at(http.MethodPost, all, "create-event-consumer", "Create a consumer for the events of a namespace"), r.create)
	add(r.api, op.at(http.MethodGet, all, "list-event-consumers", "List consumers by name"), r.consumers)
	add(r.api, op.at(http.MethodGet, one, "get-event-consumer", "Show a consumer and how far behind it is"), r.get)
	add(r.api, op.at(http.MethodDelete, one, "delete-event-consumer", "Delete a consumer; events stay"), r.remove)
	addBody(r.api, op.at(http.MethodPost, one+"/claim", "claim-events", "Claim the next events of a consumer"), r.claim)
	addBody(r.api, op.at(http.MethodPost, one+"/ack", "ack-events", "Acknowledge everything up to a position"), r.ack)
	addBody(r.api, op.at(http.MethodPost, one+"/reset", "reset-event-consumer", "Move a consumer to another position"), r.reset)
}

// eventQuery selects events.
type eventQuery struct {
	Namespace string `query:"namespace"`
	Name      string `query:"name" doc:"A name, in which * stands for any characters"`
	Task      string `query:"task_uuid" format:"uuid"`
	After     string `query:"after" doc:"The position to go on after; default 0; now: no events, only the place behind all there are"`
	Limit     number `query:"limit" within:"1,1000,100" doc:"1 to 1,000; default 100"`
}

func (q *eventQuery) filter() (f store.EventFilter, err error) {
	f.Limit = int(q.Limit)
	if q.Task != "" {
		if f.Task, err = parseTask(q.Task); err != nil {
			return f, err
		}
	}
	var c checked
	f.Namespace = c.text("namespace", q.Namespace, orchestration.MaxNameLength)
	if f.Pattern = q.Name; q.Name != "" {
		c.pattern(q.Name)
	}
	if f.After, err = position(q.After); q.After != "" && q.After != client.EventsFromNow && err != nil {
		c.add("after must be a position: a number from 0")
	}
	return f, c.err()
}

func (r *eventRoutes) list(ctx context.Context, in *eventQuery) (*client.EventList, error) {
	f, err := in.filter()
	if err != nil {
		return nil, err
	}
	if in.After == client.EventsFromNow {
		last, err := r.store.LastEvent(ctx, f.Namespace)
		return &client.EventList{Events: []client.Event{}, Next: last}, err
	}
	page, err := r.store.Events(ctx, f)
	if err != nil {
		return nil, err
	}
	return &client.EventList{Events: each(page.Events, ShownEvent), Next: page.Next, More: page.More}, nil
}

// consumerInput selects a consumer.
type consumerInput struct {
	Name string `path:"name"`
}

func (r *eventRoutes) create(ctx context.Context, _ *struct{}, body *request[client.EventConsumerRequest]) (*client.EventConsumer, error) {
	b := &body.body
	def, from := body.consumer(b)
	why := body.whyOr(b.Reason, b.Actor, r.actor, "created over the API")
	if err := body.err(); err != nil {
		return nil, err
	}
	if err := within(ctx, def.Namespace); err != nil {
		return nil, err
	}
	bounds := store.ConsumerBounds{All: int(r.most.Total()), Namespace: int(r.most.Each(exchangeOf(ctx).holder()))}
	c, err := r.store.CreateEventConsumer(ctx, def, from, bounds, recorded("create_event_consumer", why))
	if errors.Is(err, store.ErrNamespaceConsumers) {
		return nil, &places.ShareError{Principal: "namespace " + def.Namespace, What: "event consumers", Each: int64(bounds.Namespace), Total: r.most.Total()}
	}
	return consumerOf(ctx, &c, missing(err, "Namespace not found: %s", def.Namespace))
}

func (r *eventRoutes) consumers(ctx context.Context, _ *struct{}) (*wire.EventConsumerList, error) {
	found, err := r.store.EventConsumers(ctx, int(r.most.Total()))
	return &wire.EventConsumerList{Consumers: each(found, shownConsumer)}, err
}

func (r *eventRoutes) get(ctx context.Context, in *consumerInput) (*client.EventConsumer, error) {
	if err := filterText("name", in.Name); err != nil {
		return nil, err
	}
	c, err := r.store.EventConsumer(ctx, in.Name)
	return consumerOf(ctx, &c, ofConsumer(in.Name, err))
}

func (r *eventRoutes) remove(ctx context.Context, in *struct {
	consumerInput
	whyQuery
}) (*client.EventConsumer, error) {
	if err := filterText("name", in.Name); err != nil {
		return nil, err
	}
	why, err := r.optionalWhy(ctx, in.whyQuery, "deleted over the API")
	if err != nil {
		return nil, err
	}
	c, err := r.store.DeleteEventConsumer(ctx, in.Name, recorded("delete_event_consumer", why))
	return consumerOf(ctx, &c, ofConsumer(in.Name, err))
}

func (r *eventRoutes) reset(ctx context.Context, in *consumerInput, body *request[client.EventReset]) (*client.EventConsumer, error) {
	if err := filterText("name", in.Name); err != nil {
		return nil, err
	}
	var to store.EventPlace
	if text := body.required("to", body.body.To, 32); text != "" {
		to = body.place("to", text)
	}
	why := body.whyOr(body.body.Reason, body.body.Actor, r.actor, "reset over the API")
	if err := body.err(); err != nil {
		return nil, err
	}
	consumer, err := r.store.ResetEventConsumer(ctx, in.Name, to, recorded("reset_event_consumer", why))
	return consumerOf(ctx, &consumer, ofConsumer(in.Name, err))
}

// Bounds of claims of events; leases are in seconds.
const (
	maxClaimedEvents     = 1000
	defaultClaimedEvents = 100
	maxEventLease        = 86_400
	defaultEventLease    = 30
)

func (r *eventRoutes) claim(ctx context.Context, in *consumerInput, body *request[client.EventClaim]) (*client.ClaimedEvents, error) {
	if err := filterText("name", in.Name); err != nil {
		return nil, err
	}
	worker := body.required("worker", body.body.Worker, orchestration.MaxTextLength)
	limit := body.within("limit", body.body.Limit, 1, maxClaimedEvents, defaultClaimedEvents)
	lease := body.within("lease_seconds", body.body.LeaseSeconds, 1, maxEventLease, defaultEventLease)
	if err := body.err(); err != nil {
		return nil, err
	}
	claimed, err := r.store.ClaimEvents(ctx, in.Name, worker, limit, time.Duration(lease)*time.Second)
	if err != nil {
		return nil, ofConsumer(in.Name, err)
	}
	return &client.ClaimedEvents{Token: claimed.Token, Events: each(claimed.Events, ShownEvent)}, nil
}

func (r *eventRoutes) ack(ctx context.Context, in *consumerInput, body *request[client.EventAck]) (*client.EventConsumer, error) {
	if err := filterText("name", in.Name); err != nil {
		return nil, err
	}
	b := &body.body
	if body.need("token", "position"); b.Token < 0 || b.Position < 0 {
		body.add("token and position must not be negative")
	}
	if err := body.err(); err != nil {
		return nil, err
	}
	if err := r.store.AckEvents(ctx, in.Name, b.Token, b.Position, b.Release); err != nil {
		return nil, ofConsumer(in.Name, err)
	}
	consumer, err := r.store.EventConsumer(ctx, in.Name)
	return consumerOf(ctx, &consumer, ofConsumer(in.Name, err))
}

// ofConsumer adds the consumer to a not-found or conflict error.
func ofConsumer(name string, err error) error {
	switch {
	case errors.Is(err, store.ErrConsumerBusy):
		return conflict("Another worker has claimed events of this consumer")
	case errors.Is(err, store.ErrConsumerLost):
		return conflict("The events have been given back, or handed to another worker")
	}
	return missing(err, "Event consumer not found: %s", clip(name, 64))
}

// consumerOf is the answer with a consumer.
func consumerOf(ctx context.Context, c *store.EventConsumer, err error) (*client.EventConsumer, error) {
	switch {
	case errors.Is(err, store.ErrConsumerExists):
		return nil, conflict("An event consumer of this name exists")
	case errors.Is(err, store.ErrTooManyConsumers):
		return nil, conflict("The limit of event consumers is reached")
	case err != nil:
		return nil, err
	}
	w := shownConsumer(c)
	if exchangeOf(ctx).namespaces() != nil { // whether others have the name is not theirs to know
		w.Name = strings.TrimPrefix(w.Name, c.Namespace+"/")
	}
	return &w, nil
}

func shownConsumer(c *store.EventConsumer) client.EventConsumer {
	return client.EventConsumer{Name: c.Name, Namespace: c.Namespace, Patterns: append([]string{}, c.Patterns...), Position: c.Position, Holder: c.Holder,
		LeaseUntil: instant(c.LeaseUntil), Unread: c.Unread, OldestUnreadAt: instant(c.OldestUnread), CreatedAt: client.Time{Time: c.CreatedAt},
		UpdatedAt: client.Time{Time: c.UpdatedAt}, LastClaimedAt: instant(c.LastClaimedAt), LastAckedAt: instant(c.LastAckedAt)}
}

// ShownEvent is a domain event as others see it.
func ShownEvent(e *store.Event) client.Event {
	return client.Event{Position: e.Position, ID: e.UUID.String(), Name: e.Name, Version: e.Version, Payload: e.Payload,
		Metadata: client.EventMetadata{TaskUUID: e.Task.String(), StepUUID: store.BatchUUID(e.Task, e.Step, e.Run).String(), StepName: e.StepName,
			Namespace: e.Namespace, CorrelationID: e.CorrelationID.String(), FiredAt: client.Time{Time: e.FiredAt}, FiredBy: e.FiredBy,
			Attempt: e.Attempt, Outcome: e.Outcome.String(), Added: e.Metadata}}
}
