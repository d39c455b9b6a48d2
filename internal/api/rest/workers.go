package rest

import (
	"context"
	"net/http"
	"slices"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/wire"
)

// workerRoutes show the registered workers.
type workerRoutes struct{ *orchestratorAPI }

func (r *workerRoutes) add() {
	add(r.api, operation{tag: "workers"}.at(http.MethodGet, "/v1/workers", "list-workers", "List the workers, latest heartbeat first"), r.list)
}

var workerStatuses = []named[store.WorkerStatus]{{"active", store.WorkerActive}, {"stale", store.WorkerStale}, {"dead", store.WorkerDead}}

// workerQuery selects workers.
type workerQuery struct {
	Status    string `query:"status" enum:"active,stale,dead"`
	Namespace string `query:"namespace" doc:"Only those that serve it"`
	Limit     number `query:"limit" within:"1,1000,100" doc:"1 to 1000; default 100"`
}

func (q *workerQuery) filter() (f store.WorkerFilter, err error) {
	status, err := valueOf(workerStatuses, q.Status)
	if err != nil {
		return f, badRequest("status: " + err.Error())
	}
	if status != nil {
		f.Status = *status
	}
	var c checked
	f.Namespace = c.text("namespace", q.Namespace, orchestration.MaxNameLength)
	f.Limit = int(q.Limit)
	return f, c.err()
}

func (r *workerRoutes) list(ctx context.Context, in *workerQuery) (*wire.WorkerList, error) {
	f, err := in.filter()
	if err != nil {
		return nil, err
	}
	states, err := r.store.Workers(ctx, f)
	x := exchangeOf(ctx)
	for i := range states { // a worker may serve other namespaces too
		s := &states[i]
		s.Namespaces = slices.DeleteFunc(s.Namespaces, x.hides)
		s.Refused = slices.DeleteFunc(s.Refused, func(c store.VersionConflict) bool { return x.hides(c.Namespace) })
	}
	return &wire.WorkerList{Workers: each(states, workerStateOf)}, err
}

func workerStateOf(s *store.WorkerState) client.WorkerState {
	var refused []client.RefusedTemplate
	for _, c := range s.Refused {
		refused = append(refused, client.RefusedTemplate{Namespace: c.Namespace, Name: c.Name, Version: c.Version, Brought: c.Brought, Registered: c.Registered,
			RegisteredBy: c.RegisteredBy, RegisteredAt: client.Time{Time: c.RegisteredAt}})
	}
	return client.WorkerState{
		WorkerUUID: s.UUID.String(), WorkerID: s.ID, Hostname: s.Hostname, Address: s.Address, Version: s.Version, Mode: s.Mode,
		Draining:   s.Mode == store.ModeDraining && s.StoppedAt == nil && s.Status != store.WorkerDead,
		Namespaces: append([]string{}, s.Namespaces...), Tags: append([]string{}, s.Tags...), Status: s.Status.String(),
		StatusSince: client.Time{Time: s.StatusSince}, StartedAt: client.Time{Time: s.StartedAt},
		HeartbeatAgeSeconds: s.HeartbeatAge.Seconds(), StoppedAt: instant(s.StoppedAt),
		RefusedTemplates: refused,
	}
}
