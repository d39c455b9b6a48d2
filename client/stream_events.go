package client

import (
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
	for attempt := 0; ; attempt++ {
		before := o.After
		err := c.stream(ctx, &o, handle)
		var stopped *handledError
		switch {
		case errors.As(err, &stopped):
			return stopped.error
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !mayRetry(err, retryAlways):
			return err
		}
		if o.After > before {
			attempt = 0
		}
		if !pause(ctx, delay(attempt, err)) {
			return ctx.Err()
		}
	}
}

// handledError is an error of the caller's handle.
type handledError struct{ error }

// stream follows one connection to its end; nil: the server has ended it.
func (c *Client) stream(ctx context.Context, o *EventListOptions, handle func(Event) error) error {
	q := o.query()
	q["after"] = strconv.FormatInt(o.After, 10) // 0 as well
	return c.serverSent(ctx, q, []string{"v1", "events", "stream"}, "", func(sent *serverSent) (bool, error) {
		if len(sent.data) == 0 {
			return true, nil
		}
		var e Event
		if err := json.Unmarshal(sent.data, &e); err != nil {
			return false, fmt.Errorf("decode an event: %w", err)
		}
		if err := handle(e); err != nil {
			return false, &handledError{err}
		}
		o.After = e.Position
		return true, nil
	})
}
