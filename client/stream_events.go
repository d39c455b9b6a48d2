package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// maxStreamed bounds one event of a stream.
const maxStreamed = 32 << 20

// StreamEvents follows durable domain events as they are published, after o.After or,
// with FromNow, from now on; o.Limit is ignored. It calls handle for each, in order, and
// continues after the last one if the connection breaks or the server ends it. It ends
// with the error of handle, with that of ctx, or with one that a retry would not fix.
//
// It stores no position: for events that must not be missed use a consumer (ClaimEvents).
func (c *Client) StreamEvents(ctx context.Context, o EventListOptions, handle func(Event) error) error {
	if o.FromNow {
		o.Limit = 0
		now, err := c.Events(ctx, o)
		if err != nil {
			return err
		}
		o.After = now.Next
	}
	return resumed(ctx, &o.After, func() error { return c.stream(ctx, &o, handle) })
}

// handledError is what the caller ends a stream with, which may be no error.
type handledError struct{ error }

// resumed follows one connection after the other, from the place to which the one before
// has come, until the caller or ctx ends it, or an error that a retry would not fix.
func resumed[P comparable](ctx context.Context, place *P, follow func() error) error {
	for attempt := 0; ; attempt++ {
		before := *place
		err := follow()
		var stopped *handledError
		switch {
		case errors.As(err, &stopped):
			return stopped.error
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !mayRetry(err, retryAlways):
			return err
		}
		if *place != before {
			attempt = 0
		}
		if !pause(ctx, delay(attempt, err)) {
			return cmp.Or(ctx.Err(), context.DeadlineExceeded)
		}
	}
}

// stream follows one connection to its end; nil: the server has ended it.
func (c *Client) stream(ctx context.Context, o *EventListOptions, handle func(Event) error) error {
	q := o.query()
	q["after"] = strconv.FormatInt(o.After, 10) // 0 as well
	return c.serverSent(ctx, q, []string{"v1", "events", "stream"}, "", func(sent *serverSent) error {
		if len(sent.data) == 0 {
			if place, err := strconv.ParseInt(sent.id, 10, 64); err == nil {
				o.After = place // events before it are not of the filter
			}
			return nil
		}
		var e Event
		if err := json.Unmarshal(sent.data, &e); err != nil {
			return fmt.Errorf("decode an event: %w", err)
		}
		if err := handle(e); err != nil {
			return &handledError{err}
		}
		o.After = e.Position
		return nil
	})
}
