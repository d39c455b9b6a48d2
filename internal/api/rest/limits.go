package rest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/wire"
	"github.com/tasker-go/tasker/workflow"
)

// limitRoutes show and change limits of callables.
type limitRoutes struct{ *orchestratorAPI }

const (
	// countedWaiting is up to where steps that wait under a limit are counted.
	countedWaiting = 10_000
	unknownLimit   = "Limit not found: callable %q of namespace %q has none"
)

func (r *limitRoutes) add() {
	const path = "/v1/namespaces/{namespace}/limits/{callable}"
	op := operation{tag: "limits"}
	add(r.api, op.at(http.MethodGet, "/v1/limits", "list-limits", "List the limits of callables, with what they hold up"), r.list)
	addBody(r.api, op.at(http.MethodPut, path, "set-limit", "Limit what runs of a callable, key by key"), r.set)
	add(r.api, op.at(http.MethodDelete, path, "delete-limit", "Remove a limit"), r.remove)
}

// namespaceQuery selects what belongs to a namespace.
type namespaceQuery struct {
	Namespace string `query:"namespace" doc:"Only those of the namespace"`
}

func (q *namespaceQuery) check() error { return filterText("namespace", q.Namespace) }

// callablePath names a callable.
type callablePath struct {
	Namespace string `path:"namespace"`
	Callable  string `path:"callable"`
}

func (r *limitRoutes) list(ctx context.Context, in *namespaceQuery) (*wire.LimitList, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	states, err := r.store.Limits(ctx, in.Namespace, countedWaiting)
	return &wire.LimitList{Limits: each(states, limitOf)}, err
}

func limitOf(s *store.LimitState) wire.Limit {
	return wire.Limit{Namespace: s.Namespace, Callable: s.Handler.Callable, LimitRequest: wire.LimitRequest{LimitedHandler: wire.LimitedHandler{Method: s.Handler.Method, Resolver: s.Handler.Resolver}, Rule: s.Rule},
		ChangedAt: client.Time{Time: s.ChangedAt}, ChangedBy: s.ChangedBy, DeclaredBy: s.DeclaredBy, Removing: s.Removing, Running: s.Running, Waiting: s.Waiting, Keys: s.Keys}
}

// one answers with the limit of a handler.
func (r *limitRoutes) one(ctx context.Context, namespace string, handler workflow.HandlerReference) (*wire.Limit, error) {
	states, err := r.store.Limits(ctx, namespace, countedWaiting)
	if err != nil {
		return nil, err
	}
	for i := range states {
		if h := states[i].Handler; h.Callable == handler.Callable && h.Method == handler.Method && h.Resolver == handler.Resolver {
			return new(limitOf(&states[i])), nil
		}
	}
	return nil, notFound(fmt.Sprintf(unknownLimit, clip(handler.Callable, 64), clip(namespace, 64)))
}

func (r *limitRoutes) set(ctx context.Context, in *callablePath, body *request[wire.LimitRequest]) (*wire.Limit, error) {
	b := &body.body
	l := store.Limit{Namespace: in.Namespace, Handler: workflow.HandlerReference{Callable: in.Callable, Method: body.text("method", b.Method, 255),
		Resolver: body.text("resolver", b.Resolver, 255)}, Rule: b.Rule}
	l.Check(body.add)
	why := orchestration.Why{}
	why.Reason, why.Actor = body.why(b.Reason, b.Actor)
	if err := errors.Join(checkNamespace(in.Namespace), filterText("callable", in.Callable), body.err()); err != nil {
		return nil, err
	}
	switch err := r.engine.SetLimit(ctx, l, why); {
	case errors.Is(err, store.ErrOtherKey):
		return nil, conflict("The limit has another key: remove it before you set one with this key")
	case err != nil:
		return nil, missing(err, unknownNamespace, clip(in.Namespace, 64))
	}
	return r.one(ctx, in.Namespace, l.Handler)
}

func (r *limitRoutes) remove(ctx context.Context, in *struct {
	callablePath
	Method   string `query:"method" doc:"Of the handler"`
	Resolver string `query:"resolver" doc:"Of the handler"`
	whyQuery
}) (*wire.Limit, error) {
	if err := errors.Join(checkNamespace(in.Namespace), filterText("callable", in.Callable), filterText("method", in.Method), filterText("resolver", in.Resolver)); err != nil {
		return nil, err
	}
	body, err := optionalBody[wire.LimitedHandler](ctx)
	if err != nil {
		return nil, err
	}
	why, err := r.whyOr(ctx, body.Why, in.whyQuery, "removed over the API")
	if err != nil {
		return nil, err
	}
	handler := workflow.HandlerReference{Callable: in.Callable, Method: cmp.Or(body.Method, in.Method), Resolver: cmp.Or(body.Resolver, in.Resolver)}
	was, err := r.one(ctx, in.Namespace, handler)
	if err != nil {
		return nil, err
	}
	if err := r.engine.DeleteLimit(ctx, in.Namespace, handler, orchestration.Why{Actor: why.Actor, Reason: why.Reason}); err != nil {
		return nil, missing(err, unknownLimit, clip(in.Callable, 64), clip(in.Namespace, 64))
	}
	return was, nil
}
