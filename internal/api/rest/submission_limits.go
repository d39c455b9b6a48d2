package rest

import (
	"context"
	"errors"
	"net/http"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/admission"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/wire"
)

// submissionRoutes show and change how often tasks of templates are submitted.
type submissionRoutes struct{ *orchestratorAPI }

func (r *submissionRoutes) add() {
	const path = "/v1/namespaces/{namespace}/submissions/{template}"
	op := operation{tag: "namespaces"}
	add(r.api, op.at(http.MethodGet, "/v1/submission-limits", "list-submission-limits", "List the throttles and debounces of templates"), r.list)
	addBody(r.api, op.at(http.MethodPut, path, "set-submission-limit", "Set how often tasks of a template are submitted: its throttle, its debounce, or both"), r.set)
	add(r.api, op.at(http.MethodDelete, path, "delete-submission-limit", "Delete the throttle and the debounce of a template"), r.remove)
}

func (r *submissionRoutes) list(ctx context.Context, in *namespaceQuery) (*wire.SubmissionLimitList, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	limits, err := r.store.SubmissionLimits(ctx, in.Namespace)
	return &wire.SubmissionLimitList{Limits: each(limits, func(l *store.SubmissionLimit) wire.SubmissionLimit {
		return wire.SubmissionLimit{Namespace: l.Namespace, Template: l.Template, Version: l.Version, Rules: l.Rules, ChangedAt: client.Time{Time: l.ChangedAt}, ChangedBy: l.ChangedBy}
	})}, err
}

// limitedPath names a template.
type limitedPath struct {
	Namespace string `path:"namespace"`
	Template  string `path:"template"`
}

func (r *submissionRoutes) set(ctx context.Context, in *limitedPath, body *request[wire.SubmissionLimitRequest]) (*wire.SubmissionLimitList, error) {
	body.body.Check(body.add)
	why := body.whyOr(body.body.Reason, body.body.Actor, r.actor, "set over the API")
	if err := body.err(); err != nil {
		return nil, err
	}
	return r.change(ctx, in, body.body.Rules, why, "Template not found: namespace %q has no template %q")
}

func (r *submissionRoutes) remove(ctx context.Context, in *struct {
	limitedPath
	whyQuery
}) (*wire.SubmissionLimitList, error) {
	why, err := r.optionalWhy(ctx, in.whyQuery, "deleted over the API")
	if err != nil {
		return nil, err
	}
	return r.change(ctx, &in.limitedPath, admission.Rules{}, why, "Submission limit not found: in namespace %q the template %q has none")
}

// change answers with the limits of the namespace after it.
func (r *submissionRoutes) change(ctx context.Context, of *limitedPath, rules admission.Rules, why orchestration.Why, unknown string) (*wire.SubmissionLimitList, error) {
	if err := errors.Join(checkNamespace(of.Namespace), filterText("template", of.Template)); err != nil {
		return nil, err
	}
	if err := r.engine.SetSubmissionLimit(ctx, of.Namespace, of.Template, rules, why); err != nil {
		return nil, missing(err, unknown, clip(of.Namespace, 64), clip(of.Template, 64))
	}
	return r.list(ctx, &namespaceQuery{of.Namespace})
}
