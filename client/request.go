package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"time"
)

const (
	// Delays between attempts double from the first to the last, with jitter;
	// a Retry-After counts instead, up to its bound.
	firstDelay    = 100 * time.Millisecond
	lastDelay     = 5 * time.Second
	maxRetryAfter = 60 * time.Second
)

// retryRule says when a call may be retried.
type retryRule int

const (
	// retryAlways: repeating does no harm.
	retryAlways retryRule = iota
	// retryPaced: the same, but the caller decides when to retry after being turned away.
	retryPaced
	// retryUnsent: only when the request cannot have arrived.
	retryUnsent
	// retryNever: the first answer is final.
	retryNever
)

// call is one request to the API.
type call struct {
	method string
	path   []string
	query  parameters
	body   any
	extra  time.Duration // added to the timeout, for waiting
	retry  retryRule
	// repeated is called with the error of every failed attempt that is followed by
	// another one.
	repeated func(err error)
}

// parameters are those of a query; zero values are not sent.
type parameters map[string]any

func (p parameters) values() url.Values {
	q := url.Values{}
	for name, value := range p {
		given := reflect.ValueOf(value)
		if given.IsZero() {
			continue
		}
		switch v := value.(type) {
		case []string:
			for _, text := range v {
				q.Add(name, text)
			}
		case *Time:
			q.Set(name, v.UTC().Format(time.RFC3339Nano))
		default:
			q.Set(name, fmt.Sprint(reflect.Indirect(given)))
		}
	}
	return q
}

// Call calls a route of the API that no other method is for. The elements of path are
// escaped; body and answer are JSON, and a nil body is none. A POST or PATCH is retried only if
// nothing was sent.
func (c *Client) Call(ctx context.Context, method string, path []string, body, answer any) error {
	rule := retryAlways
	if method == http.MethodPost || method == http.MethodPatch {
		rule = retryUnsent
	}
	return c.do(ctx, call{method: method, path: path, body: body, retry: rule}, answer)
}

// do makes the call and decodes the answer into v.
func (c *Client) do(ctx context.Context, r call, v any) error {
	raw, err := c.raw(ctx, r)
	if err != nil {
		return err
	}
	return decode(raw, v)
}

// raw makes the call, with repetitions, and returns the body of the answer.
func (c *Client) raw(ctx context.Context, r call) ([]byte, error) {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
	}
	for attempt := 0; ; attempt++ {
		answer, err := c.attempt(ctx, r, body)
		if err == nil || attempt >= c.cfg.MaxRetries || !mayRetry(err, r.retry) {
			return answer, err
		}
		if !pause(ctx, delay(attempt, err)) {
			return nil, err
		}
		if r.repeated != nil {
			r.repeated(err)
		}
	}
}

// attempt makes the call once.
func (c *Client) attempt(ctx context.Context, r call, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout+r.extra)
	defer cancel()
	return c.transport.Call(ctx, r.method, r.path, r.query.values(), body)
}

// unsent reports whether the request cannot have reached the server.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// arrival is whether an earlier attempt of a call may have had an effect.
type arrival bool

func (a *arrival) note(err error) {
	refusal, refused := errors.AsType[*Error](err)
	if !unsent(err) && !(refused && refusal.turnedAway()) {
		*a = true
	}
}

// created is the task whose creation by an earlier attempt makes a conflict of this one; "" for
// another error.
func (a arrival) created(err error) string {
	refusal, refused := errors.AsType[*Error](err)
	if !bool(a) || !refused || refusal.Status != http.StatusConflict {
		return ""
	}
	return refusal.TaskUUID
}

func mayRetry(err error, rule retryRule) bool {
	var network net.Error
	var refusal *Error
	switch {
	case rule == retryNever || errors.Is(err, context.Canceled):
		return false
	case errors.As(err, &refusal):
		return rule != retryUnsent && !(rule == retryPaced && refusal.turnedAway()) && refusal.Status >= http.StatusInternalServerError
	case errors.As(err, &network):
		return rule != retryUnsent || unsent(err)
	}
	return false
}

// delay before the attempt after number attempt.
func delay(attempt int, err error) time.Duration {
	if refusal, is := errors.AsType[*Error](err); is && refusal.RetryAfter > 0 {
		return min(refusal.RetryAfter, maxRetryAfter)
	}
	d := min(firstDelay<<min(attempt, 10), lastDelay)
	return d/2 + rand.N(d/2+1) // #nosec G404 -- jitter
}

// pause waits; false means that ctx ends before the time is over, so that another attempt
// would be useless.
func pause(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
