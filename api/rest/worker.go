package rest

import (
	"context"
	"errors"
	"net/http"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// Control is the part of [Status] that a worker implements; *worker.Worker does.
type Control interface {
	Mode() deploymode.Mode
	SetMode(ctx context.Context, mode deploymode.Mode) error
	Ready() (ready bool, reason string)
}

// Worker are the parts of a worker's server. ID, Type and Control are required; a nil
// function or Database reports nothing.
type Worker struct {
	ID      string // worker_id
	Type    string // worker_type
	Control Control
	// Systems reports the event systems by name.
	Systems func() map[string]coordinator.Health
	// Loops reports the background loops.
	Loops func() []lifecycle.LoopHealth
	// Saturation is how full the command channel is, 0 to 1.
	Saturation func() float64
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

func (w *Worker) namespaces() []string { return call(w.Namespaces) }

// workerStatus makes a Status of a worker.
type workerStatus struct {
	Control
	worker *Worker
}

// Health implements Status.
func (s workerStatus) Health() map[string]coordinator.Health { return call(s.worker.Systems) }

// Loops implements Status.
func (s workerStatus) Loops() []lifecycle.LoopHealth { return call(s.worker.Loops) }

// Saturation implements Status.
func (s workerStatus) Saturation() float64 { return call(s.worker.Saturation) }

// call calls a function that may be missing.
func call[T any](f func() T) (none T) {
	if f == nil {
		return none
	}
	return f()
}

// NewWorker returns the server of a worker: health, metrics and deployment
// mode.
func NewWorker(cfg Config, w Worker) (*Server, error) {
	if w.ID == "" || w.Type == "" || w.Control == nil {
		return nil, errors.New("want the id, the type and the control of the worker for its API")
	}
	s, err := newServer(workerServer, cfg)
	if err != nil {
		return nil, err
	}
	a := s.newAPI("Tasker worker")
	status := workerStatus{Control: w.Control, worker: &w}
	(&adminRoutes{api: a, status: status, database: w.Database}).add()
	if w.Breakers != nil {
		(&breakerRoutes{api: a, breakers: w.Breakers}).add()
	}
	if w.Events != nil {
		add(a, operation{method: http.MethodGet, path: "/metrics/events", id: "event-metrics", tag: "metrics", failure: shapeFlat,
			summary: "Counts of the domain events of this worker's steps"},
			func(context.Context, *struct{}) (*client.EventMetrics, error) { m := w.Events(); return &m, nil })
	}
	health := newHealthRoutes(a, status, w.Database)
	health.worker, health.loaded, health.extra = &w, w.Loaded, w.Checks
	health.add(shapeFlat)
	return s, a.finish()
}
