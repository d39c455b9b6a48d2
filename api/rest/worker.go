package rest

import (
	"context"
	"errors"
	"net/http"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// Worker are the parts of a worker's server. ID, Type and Status are required; a nil
// function or Database reports nothing.
type Worker struct {
	ID     string // worker_id
	Type   string // worker_type
	Status Status
	// Database is pinged by health checks; *store.Store implements it.
	Database Database
	// Namespaces returns those that the worker serves now.
	Namespaces func() []string
	// Loaded reports whether templates and handlers are loaded, and if not
	// why; nil means that they are.
	Loaded func() (loaded bool, reason string)
	// Checks are added to the detailed health and replace built-in ones of the same name,
	// such as step_processing.
	Checks func(ctx context.Context) map[string]telemetry.Check
	// Events count the domain events; nil: the route does not exist.
	Events func() client.EventMetrics
	// Breakers are the circuit breakers of this daemon; nil: the routes do not
	// exist.
	Breakers Breakers
}

func (w *Worker) namespaces() []string {
	if w.Namespaces == nil {
		return nil
	}
	return w.Namespaces()
}

// NewWorker returns the server of a worker: health, metrics and deployment
// mode.
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
		add(a, operation{method: http.MethodGet, path: "/metrics/events", id: "event-metrics", tag: "metrics", failure: shapeFlat,
			summary: "Counts of the domain events of this worker's steps"},
			func(context.Context, *struct{}) (*client.EventMetrics, error) { m := w.Events(); return &m, nil })
	}
	health := newHealthRoutes(a, w.Status, w.Database)
	health.worker, health.loaded, health.extra = &w, w.Loaded, w.Checks
	health.add(shapeFlat)
	return s, a.finish()
}
