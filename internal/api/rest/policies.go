package rest

import (
	"context"
	"errors"
	"net/http"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/predict"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/wire"
)

// policyRoutes show and change the order in which the steps of callables are claimed.
type policyRoutes struct{ *orchestratorAPI }

func (r *policyRoutes) add() {
	const path = "/v1/namespaces/{namespace}/policies/{callable}"
	op := operation{tag: "policies"}
	add(r.api, op.at(http.MethodGet, "/v1/policies", "list-policies", "List the callables whose steps are not simply in order of priority"), r.list)
	addBody(r.api, op.at(http.MethodPut, path, "set-policy", "Set the order in which the steps of a callable are claimed"), r.set)
	add(r.api, op.at(http.MethodDelete, path, "delete-policy", "Return the steps of a callable to the order of priority"), r.remove)
	add(r.api, op.at(http.MethodGet, "/v1/tasks/{uuid}/predictions", "predict-task", "Explain how long the steps of a task are expected to take, where a policy orders by it"), r.predict)
}

func (r *policyRoutes) list(ctx context.Context, in *namespaceQuery) (*wire.PolicyList, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	policies, err := r.store.Policies(ctx, in.Namespace)
	return &wire.PolicyList{Policies: each(policies, func(p *store.CallablePolicy) wire.Policy {
		return wire.Policy{Namespace: p.Namespace, Callable: p.Callable, Policy: string(p.Policy), Features: p.Features, Class: p.Class, ChangedAt: client.Time{Time: p.ChangedAt}, ChangedBy: p.ChangedBy}
	})}, err
}

func (r *policyRoutes) set(ctx context.Context, in *callablePath, body *request[wire.PolicyRequest]) (*wire.PolicyList, error) {
	p := store.CallablePolicy{Namespace: in.Namespace, Callable: in.Callable}
	var err error
	if p.Policy, err = order.ParsePolicy(body.body.Policy); err != nil {
		body.add("%s", err)
	}
	p.Features, p.Class = body.body.Features, body.text("class", body.body.Class, maxFeaturePath)
	if len(p.Features) > predict.MaxFeatures {
		body.add("features must be at most %d", predict.MaxFeatures)
	}
	for _, path := range p.Features {
		body.filled("features", path, maxFeaturePath)
	}
	var reason string
	reason, p.ChangedBy = body.why(body.body.Reason, body.body.Actor)
	if err := body.err(); err != nil {
		return nil, err
	}
	return r.change(ctx, p, reason, "Callable not found: no step of namespace %q has the callable %q")
}

func (r *policyRoutes) remove(ctx context.Context, in *struct {
	callablePath
	whyQuery
}) (*wire.PolicyList, error) {
	why, err := r.optionalWhy(ctx, in.whyQuery, "removed over the API")
	if err != nil {
		return nil, err
	}
	return r.change(ctx, store.CallablePolicy{Namespace: in.Namespace, Callable: in.Callable, ChangedBy: why.Actor}, why.Reason,
		"Policy not found: in namespace %q the callable %q has none")
}

// maxFeaturePath bounds a path of the context.
const maxFeaturePath = 200

func (r *policyRoutes) predict(ctx context.Context, in *taskInput) (*wire.PredictionList, error) {
	task, err := r.store.Task(ctx, in.UUID)
	if err != nil {
		return nil, ofTask(in.UUID, err)
	}
	list := &wire.PredictionList{TaskUUID: in.UUID.String(), Predictions: []wire.Prediction{}}
	known := r.store.Foretell(task.Plan, task.Context)
	for i := range task.Plan.Steps {
		f, ok := known[task.Plan.Steps[i].Name]
		if !ok {
			continue
		}
		outside := (*wire.Outside)(nil)
		if o := f.Outside; o != nil {
			outside = &wire.Outside{Missing: string(o.Missing), Judged: o.N, Trusted: o.Trusted, Order: o.Order}
			if o.Missing == "" {
				outside.Expected = new(o.Time.Seconds())
			}
		}
		list.Predictions = append(list.Predictions, wire.Prediction{Outside: outside, Step: task.Plan.Steps[i].Name, Policy: string(f.Policy), Basis: string(f.Basis),
			Expected: f.Time.Seconds(), P50: f.Times.Quantile(0.5).Seconds(), P90: f.Times.Quantile(0.9).Seconds(), P99: f.Times.Quantile(0.99).Seconds(), Learned: f.Expectation.N, Trusted: f.Trusted,
			Order: f.Order, Class: f.Class, Features: f.Features, Values: f.Values, Weights: f.Weight})
	}
	return list, nil
}

// change answers with the policies of the namespace after it.
func (r *policyRoutes) change(ctx context.Context, p store.CallablePolicy, reason, unknown string) (*wire.PolicyList, error) {
	if err := errors.Join(checkNamespace(p.Namespace), filterText("callable", p.Callable)); err != nil {
		return nil, err
	}
	if err := r.engine.SetPolicy(ctx, p, reason); err != nil {
		return nil, missing(err, unknown, clip(p.Namespace, 64), clip(p.Callable, 64))
	}
	return r.list(ctx, &namespaceQuery{p.Namespace})
}
