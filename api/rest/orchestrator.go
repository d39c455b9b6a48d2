package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// Status is the state of a daemon, with what others may change.
type Status interface {
	// Mode is the deployment mode in force.
	Mode() deploymode.Mode
	// SetMode changes it; after an error the old one stays.
	SetMode(ctx context.Context, mode deploymode.Mode) error
	// Health reports the event systems by name.
	Health() map[string]coordinator.Health
	// Loops reports the background loops.
	Loops() []lifecycle.LoopHealth
	// Saturation is how full the command channel is, 0 to 1.
	Saturation() float64
	// Ready reports whether the daemon can serve, and if not why.
	Ready() (ready bool, reason string)
}

// Engine is the orchestrator behind the API; *orchestration.Orchestrator is
// one.
type Engine interface {
	Status
	Create(ctx context.Context, r orchestration.Request) (orchestration.Created, error)
	// CreateMany answers for each request, in order.
	CreateMany(ctx context.Context, requests []orchestration.Request) []orchestration.CreateResult
	Cancel(ctx context.Context, task uuid.UUID, actor, reason string) error
	Wait(ctx context.Context, task uuid.UUID) (ended bool, err error)
}

// Database is the database for health checks.
type Database interface {
	Ping(ctx context.Context) error
	PoolStat() store.PoolStat
	Fleet(ctx context.Context, maxAge time.Duration) ([]store.Replica, error)
}

// Store are the reads of the API; *store.Store implements it.
type Store interface {
	Database
	Chains
	Task(ctx context.Context, id uuid.UUID) (*store.Task, error)
	// TaskWithoutResults is Task without the results of its steps.
	TaskWithoutResults(ctx context.Context, id uuid.UUID) (*store.Task, error)
	// UnservedSteps returns its steps that no live worker can run.
	UnservedSteps(ctx context.Context, task uuid.UUID, alive time.Duration) (map[int]store.Unserved, error)
	// TaskOfIdentity finds the task that has an identity, or store.ErrNotFound.
	TaskOfIdentity(ctx context.Context, identity workflow.Identity) (uuid.UUID, error)
	// Tasks lists tasks without contexts, ContextBytes measures those, and Contexts reads
	// them.
	Tasks(ctx context.Context, f store.TaskFilter) (store.TaskPage, error)
	ContextBytes(ctx context.Context, ids []uuid.UUID) (int64, error)
	Contexts(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]json.RawMessage, error)
	Timeline(ctx context.Context, task uuid.UUID) (store.Timeline, error)
	Attempts(ctx context.Context, task uuid.UUID, step int) ([]store.StepAttempt, error)
	Plans(ctx context.Context, namespace string) ([]store.ListedPlan, error)
	PlanNamed(ctx context.Context, namespace, name, version string) (*store.Plan, error)
	TemplateVersion(ctx context.Context, plan int32) (store.TemplateVersion, error)
}

// Orchestrator are the parts of an orchestrator's server. Engine and Store are required.
type Orchestrator struct {
	Engine Engine
	Store  Store
	// Verify checks the records of a task for contradictions; its error wraps
	// store.ErrNotFound if the task does not exist. Without it the route does not exist.
	Verify func(ctx context.Context, task uuid.UUID) (problems []string, err error)
	// Loaded reports whether the templates are loaded, and if not why; nil
	// means that they are.
	Loaded func() (loaded bool, reason string)
	// Checks are added to the detailed health and replace built-in ones of the same name;
	// nil: none.
	Checks func(ctx context.Context) map[string]telemetry.Check
	// ID is the default actor of actions over the API.
	ID string

	// The following may be nil: then their routes do not exist.

	// Actions are the actions of operators on tasks.
	Actions Actions
	// DeadLetters is the dead-letter queue.
	DeadLetters DeadLetters
	// Thresholds are those of the staleness view.
	Thresholds store.StaleThresholds
	// Registry shows namespaces, workers and sweeps.
	Registry Registry
	// Sweeps runs sweeps; it needs a Registry.
	Sweeps Sweeps
	// Schedules create tasks again and again.
	Schedules Schedules
	// Waits receives events and decisions for waiting steps.
	Waits Waits
	// Isolated are items that batches could not process.
	Isolated Isolated
	// Events are the durable domain events, MaxEventConsumers how many may read
	// them. Events need both bounds.
	Events            Events
	MaxEventConsumers int
	// NewEvents wakes the streams of events, of which there may be MaxEventStreams
	// at once; nil: they only look from time to time.
	NewEvents       func() <-chan struct{}
	MaxEventStreams int
	// EventStreamRefused is called for each stream beyond that; it must not block.
	EventStreamRefused func()
	// TaskTypes are templates that are registered over the API.
	TaskTypes TaskTypes
	// Breakers are the circuit breakers of this daemon.
	Breakers Breakers
	// Admission rejects new tasks; without it a full command channel does.
	Admission Admission
}

const (
	orchestratorServer = "orchestrator-api"
	workerServer       = "worker-api"
)

// NewOrchestrator returns the server of an orchestrator.
func NewOrchestrator(cfg Config, o Orchestrator) (*Server, error) {
	if o.Engine == nil || o.Store == nil {
		return nil, errors.New("want an engine and a store for an orchestrator's API")
	}
	if o.Events != nil {
		if err := errors.Join(config.Positive("MaxEventConsumers", o.MaxEventConsumers), config.Positive("MaxEventStreams", o.MaxEventStreams)); err != nil {
			return nil, fmt.Errorf("configure the API of events: %w", err)
		}
	}
	o.Store = metered{o.Store}
	s, err := newServer(orchestratorServer, cfg)
	if err != nil {
		return nil, err
	}
	a := s.newAPI("Tasker orchestrator")
	tasks := &taskRoutes{api: a, engine: o.Engine, store: o.Store, verify: o.Verify, actor: o.ID, bulk: make(chan struct{}, maxBatches),
		admission: o.Admission}
	tasks.add()
	(&stepRoutes{api: a, store: o.Store}).add()
	(&templateRoutes{store: o.Store, actions: o.Actions, actor: o.ID}).add(a)
	admin := &adminRoutes{api: a, status: o.Engine, database: o.Store}
	admin.add()
	admin.addFleet()
	o.addOperations(a, tasks)
	health := newHealthRoutes(a, o.Engine, o.Store)
	health.loaded, health.extra, health.breakers = o.Loaded, o.Checks, o.Breakers
	health.add(shapeEnvelope)
	return s, a.finish()
}

// addOperations adds the routes of operators whose parts are set.
func (o *Orchestrator) addOperations(a *api, tasks *taskRoutes) {
	if o.Actions != nil {
		(&actionRoutes{api: a, tasks: tasks, actions: o.Actions, letters: o.DeadLetters}).add()
	}
	if o.DeadLetters != nil {
		(&dlqRoutes{api: a, letters: o.DeadLetters, actions: o.Actions, thresholds: o.Thresholds}).add()
	}
	if o.Registry != nil {
		(&namespaceRoutes{api: a, registry: o.Registry, actions: o.Actions, actor: o.ID}).add()
		(&workerRoutes{api: a, registry: o.Registry}).add()
		(&sweepRoutes{api: a, registry: o.Registry, sweeps: o.Sweeps}).add()
	}
	if o.Isolated != nil {
		(&isolatedRoutes{api: a, items: o.Isolated}).add()
	}
	if o.Schedules != nil {
		(&scheduleRoutes{api: a, schedules: o.Schedules, actor: o.ID}).add()
	}
	if o.Waits != nil {
		(&waitRoutes{api: a, waits: o.Waits}).add()
	}
	if o.Events != nil {
		(&eventRoutes{api: a, events: o.Events, most: o.MaxEventConsumers, actor: o.ID}).add()
		if o.EventStreamRefused == nil {
			o.EventStreamRefused = func() {}
		}
		(&eventStreams{api: a, events: o.Events, published: o.NewEvents, places: make(chan struct{}, o.MaxEventStreams), refused: o.EventStreamRefused}).add()
	}
	if o.TaskTypes != nil {
		(&typeRoutes{api: a, tasks: tasks, types: o.TaskTypes, actor: o.ID}).add()
	}
	if o.Breakers != nil {
		(&breakerRoutes{api: a, breakers: o.Breakers}).add()
	}
}
