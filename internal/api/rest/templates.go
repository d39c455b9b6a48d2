package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// templateRoutes show and register templates, and deprecate versions of them.
type templateRoutes struct {
	*orchestratorAPI
	put func(ctx context.Context, t *workflow.Template, actor string) (store.Registered, error) // nil: not over the API
}

func (t *templateRoutes) add() {
	const one = "/v1/templates/{namespace}/{name}/{version}"
	op := operation{tag: "templates"}
	add(t.api, op.at(http.MethodGet, "/v1/templates", "list-templates", "List the current templates"), t.list)
	add(t.api, op.at(http.MethodGet, one, "get-template", "Show a template"), t.get)
	if t.put != nil {
		addBody(t.api, op.at(http.MethodPost, "/v1/templates", "register-template", "Register the text of a template file"), t.register)
	}
	addBody(t.api, op.at(http.MethodPut, one+"/deprecation", "deprecate-template", "Deprecate a version: requests without a version do not choose it"), t.deprecate)
	add(t.api, op.at(http.MethodDelete, one+"/deprecation", "undeprecate-template", "Undeprecate a version"), t.undeprecate)
}

func (t *templateRoutes) list(ctx context.Context, in *struct {
	Namespace string `query:"namespace" doc:"Only the templates of this namespace"`
}) (*client.TemplateList, error) {
	// All are read, because the namespaces and the total ignore the filter.
	plans, err := t.store.Plans(ctx, "")
	if err != nil {
		return nil, err
	}
	x := exchangeOf(ctx)
	plans = slices.DeleteFunc(plans, func(p store.ListedPlan) bool { return x.hides(p.Template.Namespace) })
	list := &client.TemplateList{Namespaces: []client.NamespaceSummary{}, Templates: []client.TemplateSummary{}, TotalCount: len(plans)}
	for _, p := range plans { // ordered by namespace
		last := len(list.Namespaces) - 1
		if last < 0 || list.Namespaces[last].Name != p.Template.Namespace {
			list.Namespaces = append(list.Namespaces, client.NamespaceSummary{Name: p.Template.Namespace})
			last++
		}
		list.Namespaces[last].TemplateCount++
		if in.Namespace == "" || in.Namespace == p.Template.Namespace {
			list.Templates = append(list.Templates, client.TemplateSummary{
				Name: p.Template.Name, Namespace: p.Template.Namespace, Version: p.Template.Version,
				Description: optional(p.Template.Description), StepCount: len(p.Steps), DeprecatedAt: instant(p.DeprecatedAt)})
		}
	}
	return list, nil
}

// register answers POST /v1/templates. Templates follow the rules of template files, all of
// whose problems are named.
func (t *templateRoutes) register(ctx context.Context, _ *struct{}, body *request[client.TemplateSource]) (*client.TemplateDetail, error) {
	body.required("source", body.body.Source, int(t.cfg.MaxBodyBytes))
	why := body.whyOr(body.body.Reason, body.body.Actor, t.actor, "registered over the API")
	if err := body.err(); err != nil {
		return nil, err
	}
	parsed, problems, err := template.Parse("template", []byte(body.body.Source))
	if err != nil {
		return nil, badRequest(wordsOf(problems, template.Problem.String))
	}
	if err := within(ctx, parsed.Namespace); err != nil {
		return nil, err
	}
	if err := withinReach(ctx, parsed); err != nil {
		return nil, err
	}
	done, err := t.put(ctx, parsed, why.Actor)
	if err != nil {
		return nil, err
	}
	if len(done.Refused) > 0 {
		r := done.Refused[0]
		return nil, conflict(fmt.Sprintf("Tasks have used %s/%s:%s with other content (%s, not %s); give the changed template another version",
			r.Namespace, r.Name, r.Version, r.Registered, r.Brought))
	}
	return t.get(ctx, &templatePath{parsed.Namespace, parsed.Name, parsed.Version})
}

// templatePath names a template version.
type templatePath struct {
	Namespace string `path:"namespace"`
	Name      string `path:"name"`
	Version   string `path:"version"`
}

// found adds the template to a not-found error.
func (in *templatePath) found(err error) error {
	return missing(err, "Template not found: %s/%s/%s", printable(in.Namespace), printable(in.Name), printable(in.Version))
}

// check rejects values that cannot be a version.
func (in *templatePath) check() error {
	for _, part := range []string{in.Namespace, in.Name, in.Version} {
		if filterText("", part) != nil {
			return notFound(in.found(store.ErrNotFound).Error())
		}
	}
	return nil
}

// deprecate answers PUT …/deprecation.
func (t *templateRoutes) deprecate(ctx context.Context, in *templatePath, body *request[client.Why]) (*client.TemplateDetail, error) {
	var why orchestration.Why
	why.Reason, why.Actor = body.why(body.body.Reason, body.body.Actor)
	if err := body.err(); err != nil {
		return nil, err
	}
	return t.mark(ctx, in, true, why)
}

// undeprecate answers DELETE …/deprecation.
func (t *templateRoutes) undeprecate(ctx context.Context, in *struct {
	templatePath
	whyQuery
}) (*client.TemplateDetail, error) {
	why, err := t.optionalWhy(ctx, in.whyQuery, "undeprecated over the API")
	if err != nil {
		return nil, err
	}
	return t.mark(ctx, &in.templatePath, false, why)
}

func (t *templateRoutes) mark(ctx context.Context, in *templatePath, deprecated bool, why orchestration.Why) (*client.TemplateDetail, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	if err := t.engine.DeprecateTemplate(ctx, in.Namespace, in.Name, in.Version, deprecated, why); err != nil {
		return nil, in.found(err)
	}
	return t.get(ctx, in)
}

func (t *templateRoutes) get(ctx context.Context, in *templatePath) (*client.TemplateDetail, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	p, err := t.store.PlanNamed(ctx, in.Namespace, in.Name, in.Version)
	if errors.Is(err, store.ErrNotFound) {
		err = &orchestration.UnknownTemplateError{Namespace: printable(in.Namespace), Name: printable(in.Name),
			Version: printable(in.Version)}
		t.namesakes(ctx, &err)
	}
	if err != nil {
		return nil, err
	}
	configuration, err := json.Marshal(p.Template)
	if err != nil {
		return nil, fmt.Errorf("encode template %s/%s/%s: %w", in.Namespace, in.Name, in.Version, err)
	}
	version, err := t.store.TemplateVersion(ctx, p.ID)
	if err != nil {
		return nil, err
	}
	detail := &client.TemplateDetail{Name: p.Template.Name, Namespace: p.Template.Namespace, Version: p.Template.Version,
		Description: optional(p.Template.Description), Configuration: configuration, Steps: make([]client.TemplateStep, len(p.Steps)),
		Registration: &client.TemplateRegistration{ContentHash: version.Hash, RegisteredBy: version.RegisteredBy, RegisteredAt: client.Time{Time: version.RegisteredAt},
			Used: version.Used, DeprecatedAt: instant(version.DeprecatedAt)}}
	for i, s := range p.Steps {
		detail.Steps[i] = client.TemplateStep{Name: s.Name, Description: optional(s.Description),
			DefaultRetryable: s.Retry.Retryable, DefaultMaxAttempts: s.Retry.MaxAttempts, ResultSchema: s.ResultSchema}
	}
	return detail, nil
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
