package client

import (
	"context"
	"net/http"
)

// query says which events are selected, wherever they begin.
func (o EventListOptions) query() parameters {
	return parameters{"namespace": o.Namespace, "name": o.Name, "task_uuid": o.TaskUUID}
}

// Events lists durable domain events by position.
func (c *Client) Events(ctx context.Context, o EventListOptions) (*EventList, error) {
	q := o.query()
	q["after"], q["limit"] = max(o.After, 0), o.Limit
	if o.FromNow {
		q["after"] = EventsFromNow
	}
	return get[EventList](ctx, c, q, "v1", "events")
}

// CreateEventConsumer creates a consumer. A duplicate name is a conflict (see
// [IsConflict]).
func (c *Client) CreateEventConsumer(ctx context.Context, r EventConsumerRequest) (*EventConsumer, error) {
	return send[EventConsumer](ctx, c, http.MethodPost, retryUnsent, r, "v1", "event-consumers")
}

// EventConsumers lists the consumers by name.
func (c *Client) EventConsumers(ctx context.Context) ([]EventConsumer, error) {
	return listed[EventConsumer](ctx, c, nil, "consumers", "v1", "event-consumers")
}

// EventConsumer returns a consumer.
func (c *Client) EventConsumer(ctx context.Context, name string) (*EventConsumer, error) {
	return get[EventConsumer](ctx, c, nil, "v1", "event-consumers", name)
}

// DeleteEventConsumer deletes a consumer and returns it; events stay.
func (c *Client) DeleteEventConsumer(ctx context.Context, name string, why Why) (*EventConsumer, error) {
	return remove[EventConsumer](ctx, c, retryUnsent, why.query(), "v1", "event-consumers", name)
}

// ResetEventConsumer moves a consumer to another position and revokes its claimed events.
func (c *Client) ResetEventConsumer(ctx context.Context, name string, r EventReset) (*EventConsumer, error) {
	return send[EventConsumer](ctx, c, http.MethodPost, retryAlways, r, "v1", "event-consumers", name, "reset")
}

// ClaimEvents claims the next events of a consumer. While another worker has some it is a
// conflict (see [IsConflict]). After a lost answer they stay claimed until the lease
// ends.
func (c *Client) ClaimEvents(ctx context.Context, name string, r EventClaim) (*ClaimedEvents, error) {
	return send[ClaimedEvents](ctx, c, http.MethodPost, retryUnsent, r, "v1", "event-consumers", name, "claim")
}

// AckEvents acknowledges everything up to a position. It is a conflict (see [IsConflict])
// if the events were handed to another worker, or already acknowledged.
func (c *Client) AckEvents(ctx context.Context, name string, r EventAck) (*EventConsumer, error) {
	return send[EventConsumer](ctx, c, http.MethodPost, retryUnsent, r, "v1", "event-consumers", name, "ack")
}
