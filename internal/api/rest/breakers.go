package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/wire"
)

// Breakers are the circuit breakers of a daemon; *breaker.Set is one.
type Breakers interface {
	Health() []breaker.Health
	// Force holds a breaker open or closed or makes it automatic; the error wraps
	// breaker.ErrUnknown.
	Force(name string, c breaker.Control) error
}

// breakerRoutes show the circuit breakers of the daemon that answers, and force
// them.
type breakerRoutes struct {
	*api
	breakers Breakers
}

// addBreakers adds the routes of the circuit breakers, if there are any.
func (a *api) addBreakers(breakers Breakers) {
	if breakers == nil {
		return
	}
	const path = "/v1/admin/breakers"
	op := operation{tag: "administration", failure: shapeProblem, unguarded: true}
	r := &breakerRoutes{api: a, breakers: breakers}
	add(a, op.at(http.MethodGet, path, "list-breakers", "List the circuit breakers of this daemon"), r.list)
	addBody(a, op.at(http.MethodPut, path+"/{name}", "force-breaker", "Hold a circuit breaker open or closed, or make it automatic"), r.force)
}

func (r *breakerRoutes) list(context.Context, *struct{}) (*wire.BreakerList, error) {
	return &wire.BreakerList{Breakers: each(r.breakers.Health(), breakerOf)}, nil
}

// breakerOf omits the text of the last error: it may name hosts or users.
func breakerOf(h *breaker.Health) client.Breaker {
	return client.Breaker{
		Name: h.Component, State: h.State.String(), Control: h.Control.String(), Since: unlessZero(h.Since),
		RetryAfterSeconds: h.RetryAfter.Seconds(), FailuresInARow: h.Streak, Calls: h.Calls, Failures: h.Failures,
		Rejected: h.Rejected, Opened: h.Opened, LastFailureAt: unlessZero(h.LastFailure),
	}
}

func (r *breakerRoutes) force(ctx context.Context, in *struct {
	Name string `path:"name"`
}, body *request[wire.BreakerForce]) (*client.Breaker, error) {
	body.need("state")
	if err := body.err(); err != nil {
		return nil, err
	}
	control, err := breaker.ParseControl(body.body.State)
	if err != nil {
		return nil, unprocessable(fmt.Sprintf("invalid state %q: want forced_open, forced_closed or automatic", clip(body.body.State, 64)))
	}
	if err := r.breakers.Force(in.Name, control); errors.Is(err, breaker.ErrUnknown) {
		return nil, notFound(fmt.Sprintf("Circuit breaker not found: %q", clip(in.Name, 64)))
	} else if err != nil {
		return nil, err
	}
	r.log.Warn("a circuit breaker was forced over the API", zap.String("request_id", exchangeOf(ctx).id),
		zap.String("breaker", in.Name), zap.Stringer("control", control))
	for _, h := range r.breakers.Health() {
		if h.Component == in.Name {
			return new(breakerOf(&h)), nil
		}
	}
	return nil, notFound(fmt.Sprintf("Circuit breaker not found: %q", clip(in.Name, 64)))
}
