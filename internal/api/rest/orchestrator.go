package rest

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/admission"
	"github.com/tasker-go/tasker/internal/autoscale"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/places"
	"github.com/tasker-go/tasker/internal/remote"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/sweep"
	"github.com/tasker-go/tasker/internal/telemetry"
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

// Engine is the orchestrator behind the API; *orchestration.Orchestrator is one. The error
// for something that does not exist wraps store.ErrNotFound, that of a request with a fault
// is an *orchestration.InvalidError, and of many tasks the partial result comes with the
// error.
type Engine interface {
	Status
	Create(ctx context.Context, r orchestration.Request) (orchestration.Created, error)
	CreateMany(ctx context.Context, requests []orchestration.Request) []orchestration.CreateResult
	Cancel(ctx context.Context, task uuid.UUID, actor, reason string) error
	Wait(ctx context.Context, task uuid.UUID) (ended bool, err error)

	Act(ctx context.Context, task uuid.UUID, a orchestration.Action) error
	ActOnMany(ctx context.Context, b orchestration.Bulk) (orchestration.BulkResult, error)
	Preview(ctx context.Context, task uuid.UUID, a orchestration.Action) (orchestration.Preview, error)
	PreviewReplay(ctx context.Context, task uuid.UUID, r orchestration.Replay) (orchestration.Preview, error)
	Replay(ctx context.Context, task uuid.UUID, r orchestration.Replay) (orchestration.Created, error)
	ReplayDeadLetters(ctx context.Context, r orchestration.ReplayMany) (orchestration.BulkResult, error)
	Pause(ctx context.Context, p store.Pause) error
	Resume(ctx context.Context, p store.Pause) error
	SetPolicy(ctx context.Context, p store.CallablePolicy, reason string) error
	SetQuota(ctx context.Context, namespace string, maxTasks int, appliesTo []string, why orchestration.Why) (store.Quota, error)
	DeleteQuota(ctx context.Context, namespace string, why orchestration.Why) (store.Quota, error)
	SetSubmissionLimit(ctx context.Context, namespace, template string, rules admission.Rules, why orchestration.Why) error
	SetLimit(ctx context.Context, l store.Limit, why orchestration.Why) error
	DeleteLimit(ctx context.Context, namespace string, handler workflow.HandlerReference, why orchestration.Why) error
	DeprecateTemplate(ctx context.Context, namespace, name, version string, deprecated bool, why orchestration.Why) error

	CreateSchedule(ctx context.Context, s store.Schedule, why orchestration.Why) (store.Schedule, error)
	Schedules(ctx context.Context, f store.ScheduleFilter) (store.SchedulePage, error)
	Schedule(ctx context.Context, id uuid.UUID) (store.Schedule, error)
	UpdateSchedule(ctx context.Context, id uuid.UUID, why orchestration.Why, change func(s *store.Schedule)) (store.Schedule, error)
	PauseSchedule(ctx context.Context, id uuid.UUID, why orchestration.Why) (store.Schedule, error)
	ResumeSchedule(ctx context.Context, id uuid.UUID, why orchestration.Why) (store.Schedule, error)
	DeleteSchedule(ctx context.Context, id uuid.UUID, why orchestration.Why) (store.Schedule, error)
	RunSchedule(ctx context.Context, id uuid.UUID, why orchestration.Why) (orchestration.Created, error)

	ReceiveEvent(ctx context.Context, e orchestration.Event) (store.Delivered, error)
	Approvals(ctx context.Context, f store.ApprovalFilter) (store.ApprovalPage, error)
	Approval(ctx context.Context, token string) (store.Approval, error)
	Decide(ctx context.Context, token string, v orchestration.Verdict) (store.Approval, error)

	Follow(ctx context.Context, scope store.Scope, id string) (*orchestration.Following, error)

	Isolated(ctx context.Context, task uuid.UUID, q orchestration.IsolatedQuery) (*store.Task, []store.Isolated, error)
	ReplayIsolated(ctx context.Context, task uuid.UUID, r orchestration.ReplayIsolated) (orchestration.ReplayedIsolated, error)

	RegisterTaskType(ctx context.Context, template *workflow.Template, why orchestration.Why) (store.TaskType, error)
	TaskType(ctx context.Context, namespace, name string) (store.TaskType, error)
	TaskTypes(ctx context.Context, namespace string, limit, offset int) ([]store.TaskType, error)
	DeleteTaskType(ctx context.Context, namespace, name string, why orchestration.Why) (store.TaskType, error)
	PlanOfType(ctx context.Context, queue, name string) (*store.Plan, error)
}

// Database is the database for health checks; *store.Store is one.
type Database interface {
	Ping(ctx context.Context) error
	PoolStat() store.PoolStat
	Fleet(ctx context.Context, maxAge time.Duration) ([]store.Replica, error)
}

// Store is the database behind the API of an orchestrator; *store.Store is one. The error
// for something that does not exist wraps store.ErrNotFound.
type Store interface {
	Database
	SessionStore
	KeyStore
	AuditStore
	RatesStore
	Task(ctx context.Context, id uuid.UUID) (*store.Task, error)
	TaskWithoutResults(ctx context.Context, id uuid.UUID) (*store.Task, error)
	UnservedSteps(ctx context.Context, task uuid.UUID, alive time.Duration) (map[int]store.Unserved, error)
	TaskOfIdentity(ctx context.Context, identity dedup.Identity) (uuid.UUID, error)
	Tasks(ctx context.Context, f store.TaskFilter) (store.TaskPage, error)
	ContextBytes(ctx context.Context, ids []uuid.UUID) (int64, error)
	Contexts(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]json.RawMessage, error)
	Chain(ctx context.Context, task uuid.UUID, limit int) (store.Chain, error)
	Timeline(ctx context.Context, task uuid.UUID) (store.Timeline, error)
	Graph(ctx context.Context, task uuid.UUID) (store.Graph, error)
	Logs(ctx context.Context, q store.LogQuery) ([]store.LogChunk, store.Seen, error)
	TaskEnds(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]workflow.TaskState, error)
	Attempts(ctx context.Context, task uuid.UUID, step int) ([]store.StepAttempt, error)
	Plans(ctx context.Context, namespace string) ([]store.ListedPlan, error)
	TemplatesNamed(ctx context.Context, names []string) ([]store.NamedTemplate, error)
	Queues(ctx context.Context, namespaces []string) (map[string]int32, error)
	PlanNamed(ctx context.Context, namespace, name, version string) (*store.Plan, error)
	TemplateVersion(ctx context.Context, plan int32) (store.TemplateVersion, error)

	DeadLetters(ctx context.Context, f store.DeadLetterFilter) ([]store.DeadLetter, []uuid.UUID, error)
	DeadLetter(ctx context.Context, id uuid.UUID) (store.DeadLetter, error)
	DeadLetterOfTask(ctx context.Context, task uuid.UUID) (store.DeadLetter, error)
	PendingReason(ctx context.Context, task uuid.UUID) (workflow.DeadLetterReason, error)
	UpdateDeadLetter(ctx context.Context, id uuid.UUID, u store.DeadLetterUpdate) (store.DeadLetter, error)
	DeadLetterStats(ctx context.Context) ([]store.DeadLetterStats, error)
	InvestigationQueue(ctx context.Context, limit int) ([]store.QueueEntry, error)
	StalenessMonitor(ctx context.Context, th store.StaleThresholds, limit int) ([]store.StalenessEntry, error)
	OpenDeadLetter(ctx context.Context, task uuid.UUID, reason workflow.DeadLetterReason, detail, actor string,
		metadata json.RawMessage) (l store.DeadLetter, created bool, err error)
	PurgeDeadLetters(ctx context.Context, olderThan time.Duration, limit int, by store.OperatorAction) (int, error)

	Namespaces(ctx context.Context) ([]store.NamespaceState, error)
	Policies(ctx context.Context, namespace string) ([]store.CallablePolicy, error)
	Foretell(p *store.Plan, context []byte) map[string]store.Foretold
	Quotas(ctx context.Context) ([]store.Quota, error)
	SubmissionLimits(ctx context.Context, namespace string) ([]store.SubmissionLimit, error)
	Limits(ctx context.Context, namespace string, limit int) ([]store.LimitState, error)
	Workers(ctx context.Context, f store.WorkerFilter) ([]store.WorkerState, error)
	Sweeps(ctx context.Context) ([]store.SweepState, error)
	Performance(ctx context.Context, window time.Duration) (store.Performance, error)
	Bottlenecks(ctx context.Context, window time.Duration, limit, executions int) (store.Bottlenecks, error)

	Events(ctx context.Context, f store.EventFilter) (store.EventPage, error)
	LastEvent(ctx context.Context, namespace string) (position int64, err error)
	EventConsumers(ctx context.Context, limit int) ([]store.EventConsumer, error)
	EventConsumer(ctx context.Context, name string) (store.EventConsumer, error)
	EventConsumerIn(ctx context.Context, name string, namespaces []string) (store.EventConsumer, error)
	CreateEventConsumer(ctx context.Context, def store.EventConsumer, from store.EventPlace, most store.ConsumerBounds, by store.OperatorAction) (store.EventConsumer, error)
	ResetEventConsumer(ctx context.Context, name string, to store.EventPlace, by store.OperatorAction) (store.EventConsumer, error)
	DeleteEventConsumer(ctx context.Context, name string, by store.OperatorAction) (store.EventConsumer, error)
	ClaimEvents(ctx context.Context, consumer, holder string, limit int, lease time.Duration) (store.ClaimedEvents, error)
	AckEvents(ctx context.Context, consumer string, token, position int64, letGo bool) error
}

// Orchestrator are the parts of an orchestrator's server. Engine and Store are required.
type Orchestrator struct {
	Engine Engine
	Store  Store
	// Sessions are those of processes in other languages; nil: the routes do not exist.
	Sessions *remote.Hub
	// Guard is the circuit breaker of every route that needs the database; nil: none.
	Guard *breaker.Breaker
	// Verify checks the records of a task for contradictions; its error wraps
	// store.ErrNotFound if the task does not exist. Without it the route does not exist.
	Verify func(ctx context.Context, task uuid.UUID) (problems []string, err error)
	// RunSweep runs a sweep at once. Its error is that of the run, whose record has the
	// partial result, or wraps sweep.ErrUnknown or sweep.ErrRunning. Without it the route
	// does not exist.
	RunSweep func(ctx context.Context, name string, dry bool) (sweep.Run, error)
	// RegisterTemplate stores a template as of an operator; what tasks have used stays and is
	// part of the answer. Without it the route does not exist.
	RegisterTemplate func(ctx context.Context, t *workflow.Template, actor string) (store.Registered, error)
	// Loaded reports whether the templates are loaded, and if not why; nil
	// means that they are.
	Loaded func() (loaded bool, reason string)
	// Checks are added to the detailed health and replace built-in ones of the same name;
	// nil: none.
	Checks func(ctx context.Context) map[string]telemetry.Check
	// Config returns what the API shows of the configuration, without its metadata; nil:
	// the route does not exist.
	Config func() *client.OrchestratorConfig
	// Autoscaling advises how many workers a namespace should have; its error wraps
	// store.ErrNotFound if there is no such namespace. Without it the route does not exist.
	Autoscaling func(ctx context.Context, namespace string) (autoscale.Advice, error)
	// AnalyticsAge is how long the answers of the analytics are cached; 0: not at all.
	AnalyticsAge time.Duration
	// ID is the default actor of actions over the API.
	ID string
	// Thresholds are those of the staleness view.
	Thresholds store.StaleThresholds
	// MaxEventConsumers is how many consumers may read the durable domain events,
	// MaxEventStreams how many streams of them and of transitions there may be at once; 0: none.
	MaxEventConsumers, MaxEventStreams int
	// NewEvents wakes the streams of events; nil: they only look from time to time.
	NewEvents func() <-chan struct{}
	// Metrics count streams and the creation of tasks of types; nil: nothing counts them.
	Metrics *telemetry.Metrics
	// Breakers are the circuit breakers of this daemon; nil: the routes do not exist.
	Breakers Breakers
	// Admission rejects new tasks; without it a full command channel does.
	Admission Admission
	// Queues are the plain task queues; nil: the routes do not exist.
	Queues Queues
	// Compat are faces of other queues.
	Compat Compat
}

const (
	orchestratorServer = "orchestrator-api"
	workerServer       = "worker-api"
)

// orchestratorAPI is what the routes of an orchestrator share.
type orchestratorAPI struct {
	*api
	engine Engine
	store  Store
	actor  string // the default one
}

// NewOrchestrator returns the server of an orchestrator.
func NewOrchestrator(cfg Config, o Orchestrator) (*Server, error) {
	if o.Engine == nil || o.Store == nil {
		return nil, errors.New("want an engine and a store for an orchestrator's API")
	}
	s, err := newServer(orchestratorServer, cfg)
	if err != nil {
		return nil, err
	}
	a := &orchestratorAPI{api: s.newAPI("Tasker orchestrator", o.Guard), engine: o.Engine, store: metered{o.Store}, actor: o.ID}
	a.owner = a.owners
	tasks := &taskRoutes{orchestratorAPI: a, verify: o.Verify, bulk: places.New("batches", maxBatches, cfg.Access.Share), admission: o.Admission}
	tasks.add()
	(&stepRoutes{a}).add()
	(&graphRoutes{a}).add()
	(&summaryRoutes{tasks}).add()
	(&templateRoutes{a, o.RegisterTemplate}).add()
	admin := &adminRoutes{api: a.api, status: o.Engine, database: o.Store}
	admin.add()
	admin.addFleet()
	(&actionRoutes{taskRoutes: tasks}).add()
	(&dlqRoutes{a, o.Thresholds}).add()
	(&namespaceRoutes{a}).add()
	(&policyRoutes{a}).add()
	(&quotaRoutes{a}).add()
	(&limitRoutes{a}).add()
	(&submissionRoutes{a}).add()
	(&workerRoutes{a}).add()
	(&sweepRoutes{a, o.RunSweep}).add()
	sessions := &sessionDoor{a}
	sessions.add()
	(&providerDoor{sessions}).add()
	(&keyRoutes{a}).add()
	(&auditRoutes{a}).add()
	(&ratesRoutes{a}).add()
	newAnalytics(a, o.AnalyticsAge).add()
	a.addAutoscaling(o.Autoscaling)
	(&isolatedRoutes{a}).add()
	(&scheduleRoutes{a}).add()
	(&waitRoutes{a}).add()
	(&eventRoutes{a, places.New("event consumers", int64(o.MaxEventConsumers), cfg.Access.Share)}).add()
	streams := places.New("streams", int64(o.MaxEventStreams), cfg.Access.Share)
	(&eventStreams{orchestratorAPI: a, published: o.NewEvents, streamPlaces: streamPlaces{"events", streams, o.Metrics.OrDiscard()}}).add()
	(&logRoutes{a, streamPlaces{"logs", streams, o.Metrics.OrDiscard()}}).add()
	(&transitionStreams{a, streamPlaces{"transitions", streams, o.Metrics.OrDiscard()}}).add()
	types := &typeRoutes{tasks, o.Metrics.OrDiscard()}
	types.add()
	if o.Queues != nil {
		newQueueRoutes(tasks, o.Queues, o.AnalyticsAge).add()
	}
	if o.Sessions != nil {
		(&sessionRoutes{a.api, o.Sessions}).add()
	}
	a.addBreakers(o.Breakers)
	addConfig(a.api, "get-config", shapeEnvelope, o.Config, func(c *client.OrchestratorConfig) *client.ConfigMetadata { return &c.Metadata })
	health := newHealthRoutes(a.api, o.Engine, o.Store)
	health.loaded, health.extra, health.breakers = o.Loaded, o.Checks, o.Breakers
	health.add(shapeEnvelope)
	(&compatRoutes{types, health}).add(o.Compat)
	return s, a.finish()
}
