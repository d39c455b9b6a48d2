package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/store"
)

// templateRoutes show the registered templates, and deprecate versions of them.
type templateRoutes struct {
	store   Store
	actions Actions // nil: no deprecation
	actor   string
}

func (t *templateRoutes) add(a *api) {
	const tag = "templates"
	add(a, operation{method: http.MethodGet, path: "/v1/templates", id: "list-templates", tag: tag,
		summary: "List the current templates"}, t.list)
	add(a, operation{method: http.MethodGet, path: "/v1/templates/{namespace}/{name}/{version}", id: "get-template", tag: tag,
		summary: "Show a template"}, t.get)
	if t.actions == nil {
		return
	}
	const path = "/v1/templates/{namespace}/{name}/{version}/deprecation"
	add(a, operation{method: http.MethodPut, path: path, id: "deprecate-template", tag: tag,
		summary: "Deprecate a version: requests without a version do not choose it", body: client.Why{}}, t.deprecate)
	add(a, operation{method: http.MethodDelete, path: path, id: "undeprecate-template", tag: tag,
		summary: "Undeprecate a version"}, t.undeprecate)
}

func (t *templateRoutes) list(ctx context.Context, in *struct {
	Namespace string `query:"namespace" doc:"Only the templates of this namespace"`
}) (*client.TemplateList, error) {
	// All are read, because the namespaces and the total ignore the filter.
	plans, err := t.store.Plans(ctx, "")
	if err != nil {
		return nil, err
	}
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

// templatePath names a template version.
type templatePath struct {
	Namespace string `path:"namespace"`
	Name      string `path:"name"`
	Version   string `path:"version"`
}

func (in *templatePath) unknown() error {
	return notFound(strings.ToValidUTF8(fmt.Sprintf("Template not found: %s/%s/%s",
		clip(in.Namespace, 64), clip(in.Name, 64), clip(in.Version, 64)), "?"))
}

// check rejects values that cannot be a version.
func (in *templatePath) check() error {
	for _, part := range []string{in.Namespace, in.Name, in.Version} {
		if filterText("", part) != nil {
			return in.unknown()
		}
	}
	return nil
}

// deprecate answers PUT …/deprecation.
func (t *templateRoutes) deprecate(ctx context.Context, in *templatePath) (*client.TemplateDetail, error) {
	why, err := requiredWhy(ctx)
	if err != nil {
		return nil, err
	}
	return t.mark(ctx, in, true, why)
}

// undeprecate answers DELETE …/deprecation.
func (t *templateRoutes) undeprecate(ctx context.Context, in *struct {
	Namespace string `path:"namespace"`
	Name      string `path:"name"`
	Version   string `path:"version"`
	Reason    string `query:"reason" doc:"Kept in the history; a JSON body with reason and actor takes precedence"`
	Actor     string `query:"actor" doc:"Who acts"`
}) (*client.TemplateDetail, error) {
	why, err := optionalWhy(ctx, client.Why{Reason: in.Reason, Actor: in.Actor}, t.actor, "undeprecated over the API")
	if err != nil {
		return nil, err
	}
	return t.mark(ctx, &templatePath{in.Namespace, in.Name, in.Version}, false, why)
}

func (t *templateRoutes) mark(ctx context.Context, in *templatePath, deprecated bool, why client.Why) (*client.TemplateDetail, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	err := t.actions.DeprecateTemplate(ctx, in.Namespace, in.Name, in.Version, deprecated, orchestration.Why{Actor: why.Actor, Reason: why.Reason})
	if errors.Is(err, store.ErrNotFound) {
		return nil, in.unknown()
	}
	if err != nil {
		return nil, err
	}
	return t.get(ctx, in)
}

func (t *templateRoutes) get(ctx context.Context, in *templatePath) (*client.TemplateDetail, error) {
	unknown := in.unknown()
	if err := in.check(); err != nil {
		return nil, err
	}
	p, err := t.store.PlanNamed(ctx, in.Namespace, in.Name, in.Version)
	if errors.Is(err, store.ErrNotFound) {
		return nil, unknown
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
