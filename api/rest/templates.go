package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/store"
)

// templateRoutes show the registered templates.
type templateRoutes struct{ store Store }

func (t *templateRoutes) add(a *api) {
	const tag = "templates"
	add(a, operation{method: http.MethodGet, path: "/v1/templates", id: "list-templates", tag: tag,
		summary: "List the current templates"}, t.list)
	add(a, operation{method: http.MethodGet, path: "/v1/templates/{namespace}/{name}/{version}", id: "get-template", tag: tag,
		summary: "Show a template"}, t.get)
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
				Description: optional(p.Template.Description), StepCount: len(p.Steps)})
		}
	}
	return list, nil
}

func (t *templateRoutes) get(ctx context.Context, in *struct {
	Namespace string `path:"namespace"`
	Name      string `path:"name"`
	Version   string `path:"version"`
}) (*client.TemplateDetail, error) {
	unknown := notFound(strings.ToValidUTF8(fmt.Sprintf("Template not found: %s/%s/%s",
		clip(in.Namespace, 64), clip(in.Name, 64), clip(in.Version, 64)), "?"))
	for _, part := range []string{in.Namespace, in.Name, in.Version} {
		if filterText("", part) != nil {
			return nil, unknown
		}
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
	detail := &client.TemplateDetail{Name: p.Template.Name, Namespace: p.Template.Namespace, Version: p.Template.Version,
		Description: optional(p.Template.Description), Configuration: configuration, Steps: make([]client.TemplateStep, len(p.Steps))}
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
