package rest

import (
	"context"
	"fmt"
	"net/http"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/wire"
)

// namespaceRoutes show namespaces, and pause them.
type namespaceRoutes struct{ *orchestratorAPI }

func (r *namespaceRoutes) add() {
	const path = "/v1/namespaces/{name}/pause"
	op := operation{tag: "namespaces"}
	add(r.api, op.at(http.MethodGet, "/v1/namespaces", "list-namespaces", "List the namespaces and which are paused"), r.list)
	addBody(r.api, op.at(http.MethodPut, path, "pause-namespace", "Pause claims of a namespace, or of one of its callables"), r.pause)
	add(r.api, op.at(http.MethodDelete, path, "resume-namespace", "Resume claims"), r.resume)
}

func (r *namespaceRoutes) list(ctx context.Context, _ *struct{}) (*wire.NamespaceList, error) {
	states, err := r.store.Namespaces(ctx)
	return &wire.NamespaceList{Namespaces: each(states, namespaceOf)}, err
}

func namespaceOf(s *store.NamespaceState) client.Namespace {
	n := client.Namespace{Name: s.Name, Paused: s.PausedAt != nil, PausedAt: instant(s.PausedAt), PausedBy: s.PausedBy, PauseReason: s.PauseReason}
	for _, c := range s.PausedCallables {
		n.PausedCallables = append(n.PausedCallables, client.PausedCallable{Callable: c.Callable, PausedAt: client.Time{Time: c.PausedAt},
			PausedBy: c.PausedBy, PauseReason: c.PauseReason})
	}
	return n
}

func checkNamespace(name string) error {
	if len(name) > orchestration.MaxNameLength || filterText("name", name) != nil {
		return noNamespace(name)
	}
	return nil
}

const unknownNamespace = "Namespace not found: %q"

func noNamespace(name string) error {
	return notFound(fmt.Sprintf(unknownNamespace, clip(name, 64)))
}

// pauseOf is the target of a request.
func pauseOf(namespace, callable string) (store.Pause, error) {
	p := store.Pause{Namespace: namespace, Callable: callable}
	if err := checkNamespace(namespace); err != nil {
		return p, err
	}
	return p, filterText("callable", callable)
}

func (r *namespaceRoutes) pause(ctx context.Context, in *struct {
	Name     string `path:"name"`
	Callable string `query:"callable" doc:"Only the steps of the namespace that call this, with any method and resolver"`
}, body *request[client.Why]) (*client.Namespace, error) {
	p, err := pauseOf(in.Name, in.Callable)
	if err != nil {
		return nil, err
	}
	p.Reason, p.Actor = body.why(body.body.Reason, body.body.Actor)
	if err := body.err(); err != nil {
		return nil, err
	}
	return r.show(ctx, &p, r.engine.Pause(ctx, p))
}

func (r *namespaceRoutes) resume(ctx context.Context, in *struct {
	Name     string `path:"name"`
	Callable string `query:"callable" doc:"Only the steps of the namespace with this callable, which can be paused separately"`
	whyQuery
}) (*client.Namespace, error) {
	p, err := pauseOf(in.Name, in.Callable)
	if err != nil {
		return nil, err
	}
	why, err := r.optionalWhy(ctx, in.whyQuery, "resumed over the API")
	if err != nil {
		return nil, err
	}
	p.Actor, p.Reason = why.Actor, why.Reason
	return r.show(ctx, &p, r.engine.Resume(ctx, p))
}

// show answers with a namespace after an action.
func (r *namespaceRoutes) show(ctx context.Context, p *store.Pause, err error) (*client.Namespace, error) {
	switch {
	case err != nil && p.Callable != "":
		return nil, missing(err, "Callable not found: no step of namespace %q has the callable %q", clip(p.Namespace, 64), clip(p.Callable, 64))
	case err != nil:
		return nil, missing(err, unknownNamespace, clip(p.Namespace, 64))
	}
	states, err := r.store.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	for i := range states {
		if states[i].Name == p.Namespace {
			return new(namespaceOf(&states[i])), nil
		}
	}
	return nil, noNamespace(p.Namespace)
}
