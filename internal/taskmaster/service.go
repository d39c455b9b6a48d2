package taskmaster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/places"
	"github.com/tasker-go/tasker/internal/plainqueue"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// Store is the part of the store that queues need; *store.Store is one.
type Store interface {
	RegisterTemplates(ctx context.Context, who store.Registrant, templates []*workflow.Template) (store.Registered, error)
	PlanNamed(ctx context.Context, namespace, name, version string) (*store.Plan, error)
	PlanByID(ctx context.Context, id int32) (*store.Plan, error)
	Callables(ctx context.Context) ([]store.Callable, error)
	HearLanes(received signal.Signal) (unknown bool)
	LookFromBeginning()
	Claim(ctx context.Context, r store.ClaimRequest, full bool) ([]store.Claimed, store.Rest, error)
	Repeat(ctx context.Context, worker uuid.UUID, named []store.HeldClaim, namespaces []string, limit int, lease time.Duration) ([]store.Claimed, error)
	HandBack(ctx context.Context, claims []store.ClaimKey) ([]signal.Signal, error)
	QueueSteps(ctx context.Context, tasks []uuid.UUID) (map[uuid.UUID]store.QueueStep, error)
	CountQueues(ctx context.Context, queue string, active time.Duration) ([]store.QueueCounts, error)
	RegisterQueueWorker(ctx context.Context, r store.QueueRegistration, l store.LivenessLimits) (store.QueueWorker, error)
	QueueWorkerHeartbeat(ctx context.Context, id string, held []store.HeldClaim, l store.LivenessLimits) (store.QueueWorker, []store.HeldClaim, error)
	QueueWorker(ctx context.Context, id string, l store.LivenessLimits) (store.QueueWorker, error)
	QueueWorkersNamed(ctx context.Context, ids []string, l store.LivenessLimits) (map[string]store.QueueWorker, error)
	QueueWorkers(ctx context.Context, queue string, limit int, l store.LivenessLimits) ([]store.QueueWorker, error)
	Task(ctx context.Context, id uuid.UUID) (*store.Task, error)
	SendsSignals() bool
}

// Engine creates and ends tasks; *orchestration.Orchestrator is one.
type Engine interface {
	CreateMany(ctx context.Context, requests []orchestration.Request) []orchestration.CreateResult
	End(ctx context.Context, reports []store.Report) ([]orchestration.Ending, error)
}

// Config describes a Service. All fields but Logger and Metrics are required.
type Config struct {
	Store     Store
	Engine    Engine
	Publisher signal.Publisher
	// System are the settings of the event system that answers waiting claims; the topics are
	// filled in.
	System coordinator.Config
	// Liveness are the silences after which a worker is STALE and DEAD.
	Liveness store.LivenessLimits
	// BaseDelay is the base of the backoff, in whole milliseconds.
	BaseDelay time.Duration
	// MaxWaiting bounds the claims that wait, Share the percentage of them that one principal
	// has; 0: all.
	MaxWaiting, Share int
	// Actor is recorded as the one who registered the template of a queue.
	Actor   string
	Logger  *zap.Logger        // default none
	Metrics *telemetry.Metrics // default none
}

// Service serves the queues of one orchestrator. It is safe for concurrent use. As a
// lifecycle.Service it answers waiting claims while it runs; a claim that waits longer than
// that ends with its own time.
type Service struct {
	*coordinator.EventSystem
	cfg     Config
	log     *zap.Logger
	metrics *telemetry.Metrics
	waiting waiting
	places  *places.Places // of claims that wait
	scans   chan struct{}  // as many as may run at once
}

// SystemID names the event system of waiting claims in logs, metrics and health.
const SystemID = "queue-claims-event-system"

// Errors of requests, with words for their senders.
var (
	ErrUnknownWorker = errors.New("the worker is not registered")
	ErrDeadWorker    = errors.New("the worker is DEAD: register it again")
	ErrNotHeld       = errors.New("the worker does not hold the task")
	ErrUnknownTask   = errors.New("the task does not exist")
	ErrTooMany       = errors.New("too many claims wait")
)

// New returns a service that is not started.
func New(cfg Config) (*Service, error) {
	cfg.Logger, cfg.Metrics = cmp.Or(cfg.Logger, zap.NewNop()), cfg.Metrics.OrDiscard()
	cfg.Liveness.Dead = max(cfg.Liveness.Dead, cfg.Liveness.Stale)
	if cfg.Store == nil || cfg.Engine == nil || cfg.Publisher == nil || cfg.MaxWaiting < 1 || cfg.BaseDelay < time.Millisecond || cfg.Liveness.Stale <= 0 {
		return nil, errors.New("queues: store, engine, publisher, liveness, base delay and the bound of waiting claims are required")
	}
	s := &Service{cfg: cfg, log: cfg.Logger, metrics: cfg.Metrics, scans: make(chan struct{}, scansAtOnce),
		places: places.New("waiting claims", int64(cfg.MaxWaiting), cfg.Share)}
	s.waiting.queues = map[string]*line{}
	c := cfg.System
	c.SystemID, c.Topics, c.Processor, c.Logger, c.Metrics = SystemID, []signal.Topic{signal.TopicControl}, nil, cfg.Logger, cfg.Metrics
	c.Take = func(received signal.Signal) bool {
		cfg.Store.HearLanes(received)
		_, taken := received.Revokes() // for workers of daemons
		return taken
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	s.EventSystem = coordinator.New(c, s)
	return s, nil
}

// MaxAttempts is how often a task is executed, unless its sender says otherwise.
const MaxAttempts = 3

// maxBackoff caps the delay before a retry.
const maxBackoff = 5 * time.Minute

// template is that of a queue. Its version stands for the backoff, since a version that tasks
// have used keeps its content.
func (s *Service) template(queue string) *workflow.Template {
	base := s.cfg.BaseDelay.Milliseconds()
	var delays []int64
	for delay := 2 * base; ; delay *= 2 { // 2^attempts times the base: after the first attempt twice
		delays = append(delays, min(delay, maxBackoff.Milliseconds()))
		if delay >= maxBackoff.Milliseconds() {
			break
		}
	}
	return &workflow.Template{
		Name: plainqueue.Template, Namespace: queue, Version: s.version(), Description: "A plain task queue",
		Identity:    &workflow.IdentityPolicy{Strategy: workflow.IdentityAlwaysUnique},
		InputSchema: json.RawMessage(`{"type":"object","properties":{"payload":{},"tags":{"type":"array","items":{"type":"string"}}},"required":["payload"]}`),
		Steps: []workflow.StepTemplate{{Name: "run", Kind: workflow.KindStandard, Handler: workflow.HandlerReference{Callable: plainqueue.Template},
			Retry: workflow.RetryPolicy{Retryable: true, MaxAttempts: MaxAttempts, Backoff: workflow.BackoffList, DelaysMS: delays, MaxMS: maxBackoff.Milliseconds()}}},
	}
}

func (s *Service) version() string { return fmt.Sprintf("1.%d.0", s.cfg.BaseDelay.Milliseconds()) }

// known returns the plan of a queue; nil: nothing was submitted to it yet. A name that somebody claims
// from makes no rows: the first submission registers the queue. Every version has the same line.
func (s *Service) known(ctx context.Context, queue string) (*store.Plan, error) {
	for _, version := range []string{s.version(), ""} {
		plan, err := s.cfg.Store.PlanNamed(ctx, queue, plainqueue.Template, version)
		if !errors.Is(err, store.ErrNotFound) {
			return plan, err
		}
	}
	return nil, nil //nolint:nilnil // there is none yet
}

// plan returns that of a queue, which it registers if it is new.
func (s *Service) plan(ctx context.Context, queue string) (*store.Plan, error) {
	plan, err := s.cfg.Store.PlanNamed(ctx, queue, plainqueue.Template, s.version())
	if !errors.Is(err, store.ErrNotFound) {
		return plan, err
	}
	who := store.Registrant{ID: s.cfg.Actor, Immutable: store.VersionsRefuse}
	if _, err := s.cfg.Store.RegisterTemplates(ctx, who, []*workflow.Template{s.template(queue)}); err != nil {
		return nil, fmt.Errorf("register the queue %s: %w", queue, err)
	}
	s.cfg.Publisher.Publish(signal.Signal{Topic: signal.TopicControl})
	return s.cfg.Store.PlanNamed(ctx, queue, plainqueue.Template, s.version())
}

// Submission is a task to create.
type Submission struct {
	Queue          string
	Payload        json.RawMessage // any JSON
	Tags           []string        // of which a worker must have all
	Labels         []string
	Priority       int // higher first
	MaxAttempts    int // 0: MaxAttempts
	DeadlineIn     time.Duration
	StartIn        time.Duration
	IdempotencyKey string
	CorrelationID  *uuid.UUID
	Initiator      string
}

// Submit creates tasks and returns one answer per submission, in order; see
// orchestration.Orchestrator.CreateMany. With an idempotency key, a task that exists is the
// answer.
func (s *Service) Submit(ctx context.Context, list []Submission) ([]orchestration.CreateResult, error) {
	requests := make([]orchestration.Request, len(list))
	known := map[string]bool{}
	for i := range list {
		in := &list[i]
		if !known[in.Queue] {
			if _, err := s.plan(ctx, in.Queue); err != nil {
				return nil, err
			}
			known[in.Queue] = true
		}
		document, err := json.Marshal(queued{in.Payload, in.Tags})
		if err != nil {
			return nil, &submission.InvalidError{Problems: []string{"payload must be JSON"}}
		}
		requests[i] = orchestration.Request{Namespace: in.Queue, Name: plainqueue.Template, Version: s.version(), Context: document, Tags: in.Labels,
			Priority: &in.Priority, MaxAttempts: in.MaxAttempts, DeadlineIn: in.DeadlineIn, StartIn: in.StartIn, IdempotencyKey: in.IdempotencyKey,
			CorrelationID: in.CorrelationID, Initiator: in.Initiator}
		if in.IdempotencyKey != "" {
			requests[i].Conflict = submission.ConflictUseExisting
		}
	}
	created := s.cfg.Engine.CreateMany(ctx, requests)
	for i := range created {
		switch {
		case created[i].Err != nil:
		case created[i].Existing:
			s.metrics.QueueDuplicates.WithLabelValues(s.metrics.Named("queue", list[i].Queue)).Inc()
		default:
			s.metrics.QueueSubmitted.WithLabelValues(s.metrics.Named("queue", list[i].Queue)).Inc()
		}
	}
	return created, nil
}

// queued is the context of a task.
type queued struct {
	Payload json.RawMessage `json:"payload"`
	Tags    []string        `json:"tags,omitempty"`
}

// Queued returns what was submitted, of the context of a task.
func Queued(context json.RawMessage) (payload json.RawMessage, tags []string) {
	var q queued
	if err := json.Unmarshal(context, &q); err != nil {
		return nil, nil // an operator has changed it
	}
	return q.Payload, q.Tags
}

// Register adds a worker, or changes its queue and tags. The error wraps ErrUnknownWorker if the
// worker is of another namespace than those of the registration.
func (s *Service) Register(ctx context.Context, r store.QueueRegistration) (store.QueueWorker, error) {
	w, err := s.cfg.Store.RegisterQueueWorker(ctx, r, s.cfg.Liveness)
	if err != nil {
		return w, unknown(err)
	}
	label := "other" // a name that nothing was submitted to makes no series
	if plan, err := s.known(ctx, r.Queue); err == nil && plan != nil {
		label = s.metrics.Named("queue", r.Queue)
	}
	s.metrics.QueueWorkersKnown.WithLabelValues(label).Inc()
	return w, nil
}

// Heartbeat records that a worker lives, with all of its claims, and returns those of held that
// it has lost. The error wraps ErrUnknownWorker.
func (s *Service) Heartbeat(ctx context.Context, id string, held []store.HeldClaim) (store.QueueWorker, []store.HeldClaim, error) {
	w, lost, err := s.cfg.Store.QueueWorkerHeartbeat(ctx, id, held, s.cfg.Liveness)
	return w, lost, unknown(err)
}

// Worker reads a worker. The error wraps ErrUnknownWorker.
func (s *Service) Worker(ctx context.Context, id string) (store.QueueWorker, error) {
	w, err := s.cfg.Store.QueueWorker(ctx, id, s.cfg.Liveness)
	return w, unknown(err)
}

// Workers lists the workers of a queue, or of all.
func (s *Service) Workers(ctx context.Context, queue string, limit int) ([]store.QueueWorker, error) {
	return s.cfg.Store.QueueWorkers(ctx, queue, limit, s.cfg.Liveness)
}

// Queues counts the tasks of a queue, or of all.
func (s *Service) Queues(ctx context.Context, queue string) ([]store.QueueCounts, error) {
	return s.cfg.Store.CountQueues(ctx, queue, s.cfg.Liveness.Stale)
}

func unknown(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%w: %w", ErrUnknownWorker, err)
	}
	return err
}
