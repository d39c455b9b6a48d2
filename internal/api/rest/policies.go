package rest

import (
	"context"
	"errors"
	"net/http"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/wire"
)

// policyRoutes show and change the order in which the steps of callables are claimed.
type policyRoutes struct{ *orchestratorAPI }

func (r *policyRoutes) add() {
	const tag, path = "policies", "/v1/namespaces/{namespace}/policies/{callable}"
	add(r.api, operation{method: http.MethodGet, path: "/v1/policies", id: "list-policies", tag: tag,
		summary: "List the callables whose steps are not simply in order of priority"}, r.list)
	addBody(r.api, operation{method: http.MethodPut, path: path, id: "set-policy", tag: tag,
		summary: "Set the order in which the steps of a callable are claimed"}, r.set)
	add(r.api, operation{method: http.MethodDelete, path: path, id: "delete-policy", tag: tag,
		summary: "Return the steps of a callable to the order of priority"}, r.remove)
}

func (r *policyRoutes) list(ctx context.Context, in *struct {
	Namespace string `query:"namespace" doc:"Only those of the namespace"`
}) (*wire.PolicyList, error) {
	if err := filterText("namespace", in.Namespace); err != nil {
		return nil, err
	}
	policies, err := r.store.Policies(ctx, in.Namespace)
	if err != nil {
		return nil, err
	}
	list := &wire.PolicyList{Policies: make([]wire.Policy, len(policies))}
	for i, p := range policies {
		list.Policies[i] = wire.Policy{Namespace: p.Namespace, Callable: p.Callable, Policy: string(p.Policy), ChangedAt: client.Time{Time: p.ChangedAt}, ChangedBy: p.ChangedBy}
	}
	return list, nil
}

func (r *policyRoutes) set(ctx context.Context, in *struct {
	Namespace string `path:"namespace"`
	Callable  string `path:"callable"`
}, body *request[wire.PolicyRequest]) (*wire.PolicyList, error) {
	p := store.CallablePolicy{Namespace: in.Namespace, Callable: in.Callable}
	var err error
	if p.Policy, err = order.ParsePolicy(body.body.Policy); err != nil {
		body.add("%s", err)
	}
	var reason string
	reason, p.ChangedBy = body.why(body.body.Reason, body.body.Actor)
	if err := body.err(); err != nil {
		return nil, err
	}
	return r.change(ctx, p, reason, "Callable not found: no step of namespace %q has the callable %q")
}

func (r *policyRoutes) remove(ctx context.Context, in *struct {
	Namespace string `path:"namespace"`
	Callable  string `path:"callable"`
	Reason    string `query:"reason" doc:"Kept in the history; a JSON body with reason and actor takes precedence"`
	Actor     string `query:"actor" doc:"Who acts"`
}) (*wire.PolicyList, error) {
	why, err := r.optionalWhy(ctx, client.Why{Reason: in.Reason, Actor: in.Actor}, "removed over the API")
	if err != nil {
		return nil, err
	}
	return r.change(ctx, store.CallablePolicy{Namespace: in.Namespace, Callable: in.Callable, ChangedBy: why.Actor}, why.Reason,
		"Policy not found: in namespace %q the callable %q has none")
}

// change answers with the policies of the namespace after it.
func (r *policyRoutes) change(ctx context.Context, p store.CallablePolicy, reason, unknown string) (*wire.PolicyList, error) {
	if err := errors.Join(checkNamespace(p.Namespace), filterText("callable", p.Callable)); err != nil {
		return nil, err
	}
	if err := r.engine.SetPolicy(ctx, p, reason); err != nil {
		return nil, missing(err, unknown, clip(p.Namespace, 64), clip(p.Callable, 64))
	}
	return r.list(ctx, &struct {
		Namespace string `query:"namespace" doc:"Only those of the namespace"`
	}{p.Namespace})
}
