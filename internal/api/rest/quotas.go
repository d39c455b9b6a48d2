package rest

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/wire"
)

// quotaRoutes show and change how many live tasks namespaces may have.
type quotaRoutes struct{ *orchestratorAPI }

func (r *quotaRoutes) add() {
	const path = "/v1/namespaces/{namespace}/quota"
	op := operation{tag: "namespaces"}
	add(r.api, op.at(http.MethodGet, "/v1/quotas", "list-quotas", "List the quotas by namespace"), r.list)
	addBody(r.api, op.at(http.MethodPut, path, "set-quota", "Bound the tasks of a namespace that have not ended"), r.set)
	add(r.api, op.at(http.MethodDelete, path, "delete-quota", "Delete the quota of a namespace"), r.remove)
}

func (r *quotaRoutes) list(ctx context.Context, _ *struct{}) (*wire.QuotaList, error) {
	quotas, err := r.store.Quotas(ctx)
	return &wire.QuotaList{Quotas: each(quotas, quotaOf)}, err
}

func quotaOf(q *store.Quota) wire.Quota {
	return wire.Quota{Namespace: q.Namespace, MaxTasks: q.MaxTasks, AppliesTo: q.AppliesTo, Tasks: q.Tasks, CountedAt: instant(q.CountedAt),
		ChangedAt: client.Time{Time: q.ChangedAt}, ChangedBy: q.ChangedBy}
}

func (r *quotaRoutes) set(ctx context.Context, in *struct {
	Namespace string `path:"namespace"`
}, body *request[wire.QuotaChange]) (*wire.Quota, error) {
	if err := checkNamespace(in.Namespace); err != nil {
		return nil, err
	}
	body.need("max_tasks")
	most := body.within("max_tasks", body.body.MaxTasks, 0, wire.MaxQuota, 0)
	kinds := body.body.AppliesTo
	for _, kind := range kinds {
		if !slices.Contains(store.QuotaKinds, kind) {
			body.add("invalid applies_to %q: want %s", clip(kind, 32), strings.Join(store.QuotaKinds, ", "))
		}
	}
	slices.Sort(kinds)
	why := body.whyOr(body.body.Reason, body.body.Actor, r.actor, "set over the API")
	if err := body.err(); err != nil {
		return nil, err
	}
	q, err := r.engine.SetQuota(ctx, in.Namespace, most, slices.Compact(kinds), why)
	if err != nil {
		return nil, missing(err, unknownNamespace, clip(in.Namespace, 64))
	}
	return new(quotaOf(&q)), nil
}

func (r *quotaRoutes) remove(ctx context.Context, in *struct {
	Namespace string `path:"namespace"`
	whyQuery
}) (*wire.Quota, error) {
	if err := checkNamespace(in.Namespace); err != nil {
		return nil, err
	}
	why, err := r.optionalWhy(ctx, in.whyQuery, "deleted over the API")
	if err != nil {
		return nil, err
	}
	q, err := r.engine.DeleteQuota(ctx, in.Namespace, why)
	if err != nil {
		return nil, missing(err, "Quota not found: the namespace %q has none", clip(in.Namespace, 64))
	}
	return new(quotaOf(&q)), nil
}
