package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// TemplateStore has the registered templates; *store.Store is one. The error for one that
// does not exist wraps store.ErrNotFound.
type TemplateStore interface {
	Plans(ctx context.Context, namespace string) ([]store.ListedPlan, error)
	PlanNamed(ctx context.Context, namespace, name, version string) (*store.Plan, error)
	TemplateVersion(ctx context.Context, plan int32) (store.TemplateVersion, error)
}

const codeTemplateNotFound = "TEMPLATE_NOT_FOUND"

// workerCapabilities are the words for what each worker has.
var workerCapabilities = []string{"command_processing", "database_access", "message_queues"}

// workerTemplateRoutes show the templates of the namespaces that a worker serves.
type workerTemplateRoutes struct {
	*api
	worker    *Worker
	templates TemplateStore
}

func (r *workerTemplateRoutes) add() {
	const one = "/v1/templates/{namespace}/{name}/{version}"
	op := operation{tag: "templates", failure: shapeFlat}
	add(r.api, op.at(http.MethodGet, "/v1/templates", "list-worker-templates", "Count the templates of the worker's namespaces"), r.list)
	add(r.api, op.at(http.MethodGet, one, "get-worker-template", "Show a template of the worker's namespaces"), r.get)
	add(r.api, op.at(http.MethodPost, one+"/validate", "validate-worker-template", "Say whether the worker can run every step of a template"), r.validate)
}

func (r *workerTemplateRoutes) list(ctx context.Context, in *struct {
	Namespace  string `query:"namespace" doc:"Only the templates of this namespace"`
	CacheStats string `query:"include_cache_stats" enum:"true,false" doc:"Add cache_stats"`
}) (*client.WorkerTemplates, error) {
	if err := filterText("namespace", in.Namespace); err != nil {
		return nil, err
	}
	stats, err := strconv.ParseBool(in.CacheStats)
	if in.CacheStats != "" && err != nil {
		return nil, badRequest("include_cache_stats must be true or false")
	}
	plans, err := r.templates.Plans(ctx, in.Namespace)
	if err != nil {
		return nil, err
	}
	w := &client.WorkerTemplates{SupportedNamespaces: []string{}, WorkerCapabilities: workerCapabilities}
	for _, name := range r.worker.namespaces() {
		if in.Namespace == "" || in.Namespace == name {
			w.SupportedNamespaces = append(w.SupportedNamespaces, name)
		}
	}
	for i := range plans {
		if slices.Contains(w.SupportedNamespaces, plans[i].Template.Namespace) {
			w.TemplateCount++
		}
	}
	if stats {
		w.CacheStats = &client.TemplateCacheStats{SupportedNamespaces: w.SupportedNamespaces}
	}
	return w, nil
}

// find reads a template of a namespace that the worker serves.
func (r *workerTemplateRoutes) find(ctx context.Context, in *templatePath) (*store.Plan, error) {
	err := in.check()
	if err == nil && !slices.Contains(r.worker.namespaces(), in.Namespace) {
		err = in.found(store.ErrNotFound)
	}
	var p *store.Plan
	if err == nil {
		p, err = r.templates.PlanNamed(ctx, in.Namespace, in.Name, in.Version)
		err = in.found(err)
	}
	var f *failure
	if errors.As(err, &f) && f.status == http.StatusNotFound {
		f.code = codeTemplateNotFound
	}
	return p, err
}

func (r *workerTemplateRoutes) get(ctx context.Context, in *templatePath) (*client.WorkerTemplate, error) {
	p, err := r.find(ctx, in)
	if err != nil {
		return nil, err
	}
	version, err := r.templates.TemplateVersion(ctx, p.ID)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(p.Template)
	if err != nil {
		return nil, fmt.Errorf("encode template %s/%s/%s: %w", in.Namespace, in.Name, in.Version, err)
	}
	registered := client.Time{Time: version.RegisteredAt}
	w := &client.WorkerTemplate{
		Template: client.ResolvedTemplate{Template: text, Environment: r.cfg.Environment, ResolvedAt: registered},
		HandlerMetadata: client.HandlerMetadata{Namespace: p.Template.Namespace, Name: p.Template.Name, Version: p.Template.Version,
			HandlerClass: "unknown", ConfigSchema: p.Template.InputSchema, RegisteredAt: registered},
	}
	if handlers := handlersOf(p); len(handlers) > 0 {
		w.HandlerMetadata.HandlerClass = handlers[0]
	}
	if systems := p.Template.SystemDependencies; systems != nil {
		w.HandlerMetadata.DefaultDependentSystem = optional(systems.Primary)
	}
	return w, nil
}

// handlersOf are the callables of the steps in their order, each once.
func handlersOf(p *store.Plan) []string {
	names := []string{}
	for _, s := range p.Steps {
		if name := s.Handler.Callable; name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (r *workerTemplateRoutes) validate(ctx context.Context, in *templatePath) (*client.TemplateValidation, error) {
	p, err := r.find(ctx, in)
	if err != nil {
		return nil, err
	}
	w := &client.TemplateValidation{Errors: []string{}, RequiredCapabilities: []string{}, StepHandlers: handlersOf(p)}
	for _, s := range p.Steps {
		w.RequiredCapabilities = append(w.RequiredCapabilities, s.Tags...)
		for _, problem := range r.problems(s.StepTemplate) {
			w.Errors = append(w.Errors, fmt.Sprintf("step %s: %s", s.Name, problem))
		}
	}
	slices.Sort(w.RequiredCapabilities)
	w.RequiredCapabilities = slices.Compact(w.RequiredCapabilities)
	w.Valid = len(w.Errors) == 0
	return w, nil
}

// problems say why the worker cannot run a step.
func (r *workerTemplateRoutes) problems(s *workflow.StepTemplate) (list []string) {
	if s.Kind.ByEngine() {
		return nil
	}
	for _, tag := range s.Tags {
		if !slices.Contains(r.worker.Tags, tag) {
			list = append(list, fmt.Sprintf("the worker does not carry the tag %q", tag))
		}
	}
	if r.worker.CheckHandler != nil {
		if err := r.worker.CheckHandler(s.Handler); err != nil {
			list = append(list, err.Error())
		}
	}
	return list
}
