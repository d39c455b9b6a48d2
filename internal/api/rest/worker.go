package rest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/remote"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/internal/wire"
	"github.com/tasker-go/tasker/workflow"
)

// Worker are the parts of a worker's server. ID, Type and Status are required; a nil
// function or Database reports nothing.
type Worker struct {
	ID     string // worker_id
	Type   string // worker_type
	Status Status
	// Database is pinged by health checks; *store.Store implements it.
	Database Database
	// Templates are those that the worker shows; nil: the routes do not exist.
	Templates TemplateStore
	// CheckHandler says why the worker cannot run a step with a handler; nil: it can run
	// all.
	CheckHandler func(workflow.HandlerReference) error
	// Tags are those that the worker carries.
	Tags []string
	// Queues counts what waits, by namespace; a nil map means that it could not be counted.
	Queues func(ctx context.Context) map[string]QueueState
	// Config returns what the API shows of the configuration, without its metadata; nil:
	// the route does not exist.
	Config func() *client.WorkerConfig
	// Namespaces returns those that the worker serves now.
	Namespaces func() []string
	// Loaded reports whether templates and handlers are loaded, and if not
	// why; nil means that they are.
	Loaded func() (loaded bool, reason string)
	// Checks are added to the detailed health and replace built-in ones of the same name,
	// such as step_processing.
	Checks func(ctx context.Context) map[string]telemetry.Check
	// Events count the domain events; nil: the route does not exist.
	Events func() wire.EventMetrics
	// Breakers are the circuit breakers of this daemon; nil: the routes do not
	// exist.
	Breakers Breakers
	// Sessions are those of processes in other languages; nil: the routes do not exist.
	Sessions *remote.Hub
}

func (w *Worker) namespaces() []string {
	if w.Namespaces == nil {
		return nil
	}
	return w.Namespaces()
}

// NewWorker returns the server of a worker: health, metrics, templates, configuration
// and deployment mode.
func NewWorker(cfg Config, w Worker) (*Server, error) {
	if w.ID == "" || w.Type == "" || w.Status == nil {
		return nil, errors.New("want the id, the type and the status of the worker for its API")
	}
	s, err := newServer(workerServer, cfg)
	if err != nil {
		return nil, err
	}
	a := s.newAPI("Tasker worker", nil)
	(&adminRoutes{api: a, status: w.Status, database: w.Database}).add()
	a.addBreakers(w.Breakers)
	if w.Events != nil {
		add(a, operation{tag: metricsTag, failure: shapeFlat}.at(http.MethodGet, "/metrics/events", "event-metrics", "Counts of the domain events of this worker's steps"),
			func(context.Context, *struct{}) (*wire.EventMetrics, error) { m := w.Events(); return &m, nil })
	}
	(&workerMetrics{&w, time.Now()}).add(a)
	if w.Templates != nil {
		(&workerTemplateRoutes{a, &w, w.Templates}).add()
	}
	if w.Sessions != nil {
		(&sessionRoutes{a, w.Sessions}).add()
	}
	addConfig(a, "get-worker-config", shapeFlat, w.Config, func(c *client.WorkerConfig) *client.ConfigMetadata { return &c.Metadata })
	health := newHealthRoutes(a, w.Status, w.Database)
	health.worker, health.loaded, health.extra = &w, w.Loaded, w.Checks
	health.add(shapeFlat)
	return s, a.finish()
}
