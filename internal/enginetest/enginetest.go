// Package enginetest runs the whole engine in the process of a test: its own migrated
// database, an orchestrator, a worker, and signals within the process. It is for tests of
// handlers and flows; daemons, modes and the network are tested with real processes in
// e2e.
package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/settings"
	"github.com/tasker-go/tasker/internal/signal/inproc"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/poller"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// Engine is a running engine that belongs to one test.
type Engine struct {
	DB           *pgtest.DB
	Store        *store.Store
	Orchestrator *orchestration.Orchestrator
	Worker       *worker.Worker
	Bus          *inproc.Bus
	Rules        workflow.Rules
	// Deletes says that the test deletes tasks from the ledger, so that it has fewer attempts than were counted.
	Deletes bool
	t       testing.TB
	config  orchestration.Config
	worker  worker.Config
}

// Migrate migrates a database to the product's schema.
func Migrate(ctx context.Context, dsn string) error {
	m, err := store.NewMigrator(dsn)
	if err != nil {
		return err
	}
	_, err = m.Up(ctx)
	return err
}

// Migrated returns a fresh database with the product's schema.
func Migrated(t testing.TB) *pgtest.DB {
	t.Helper()
	hash, err := store.SchemaHash()
	require.NoError(t, err)
	return pgtest.NewMigrated(t, hash, Migrate)
}

// OpenStore returns a store over a fresh, migrated database.
func OpenStore(t testing.TB) (*store.Store, *pgtest.DB) {
	t.Helper()
	db := Migrated(t)
	return openOn(t, db), db
}

func openOn(t testing.TB, db *pgtest.DB) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 10})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// Option changes how the engine is built.
type Option func(*orchestration.Config, *worker.Config)

// Start runs an engine; register adds the worker's handlers and templates. At the end of
// the test it is stopped, and the records are checked.
func Start(t testing.TB, register func(*worker.Worker) error, options ...Option) *Engine {
	t.Helper()
	return StartOn(t, Migrated(t), register, options...)
}

// StartOn is Start over a migrated database.
func StartOn(t testing.TB, db *pgtest.DB, register func(*worker.Worker) error, options ...Option) *Engine {
	t.Helper()
	s := openOn(t, db)
	e := &Engine{DB: db, Store: s, Bus: inproc.New(), t: t, Rules: workflow.Rules{MaxCrashes: 3, Backoff: workflow.BackoffDefaults{
		Delays: []time.Duration{20 * time.Millisecond}, Multiplier: 1, Max: time.Second}}}
	log := zap.NewNop()
	shared := listener.New(listener.Config{Source: e.Bus})
	system := func(id string) coordinator.Config {
		return Completed(t, coordinator.Config{SystemID: id, Mode: deploymode.Hybrid, Listener: shared,
			Poller: poller.Config{Interval: 200 * time.Millisecond, RelaxedInterval: 2 * time.Second}})
	}
	oc := Configured(t)
	oc.Store, oc.Publisher, oc.Rules, oc.Logger = s, e.Bus, e.Rules, log
	oc.Orchestration, oc.Readiness = system("orchestration"), system("task_readiness")
	wc := worker.Config{Store: s, EventSource: e.Bus, Publisher: e.Bus, WorkerID: "test", Environment: "test", Events: system("worker"),
		MaxConcurrent: 20, Lease: 10 * time.Second, HeartbeatInterval: time.Second, Logger: log}
	for _, o := range options {
		o(&oc, &wc)
	}
	e.config, e.worker = oc, wc
	var err error
	e.Orchestrator, err = orchestration.New(oc)
	require.NoError(t, err)
	e.Worker, err = worker.New(wc)
	require.NoError(t, err)
	require.NoError(t, register(e.Worker))
	require.NoError(t, e.Orchestrator.Start(t.Context()))
	require.NoError(t, e.Worker.Start(t.Context()))
	t.Cleanup(e.stop)
	return e
}

// JoinTemplate is a template of so many parallel steps p0, p1, …, and a step all that gets their results.
func JoinTemplate(namespace, name string, parts int, part, all string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nnamespace_name: %s\nversion: 1.0.0\nsteps:\n", name, namespace)
	names := make([]string, parts)
	for i := range parts {
		names[i] = fmt.Sprintf("p%d", i)
		fmt.Fprintf(&b, "  - {name: %s, handler: {callable: %s}}\n", names[i], part)
	}
	fmt.Fprintf(&b, "  - {name: all, dependencies: [%s], handler: {callable: %s}}\n", strings.Join(names, ", "), all)
	return b.String()
}

// RegisterTemplates registers templates given as YAML.
func RegisterTemplates(w *worker.Worker, sources ...string) error {
	for _, src := range sources {
		tmpl, _, err := template.Parse("test.yaml", []byte(src))
		if err != nil {
			return err
		}
		if err := w.RegisterTemplate(tmpl); err != nil {
			return err
		}
	}
	return nil
}

// Configured is an orchestrator with the defaults of the configuration, except that it
// opens no dead letters. Store, Publisher and the event systems are unset.
func Configured(t testing.TB) orchestration.Config {
	t.Helper()
	defaults, err := config.Defaults()
	require.NoError(t, err)
	c := orchestration.Configure(defaults)
	c.Daemon, c.DeadLetters = store.Daemon{UUID: uuid.Must(uuid.NewV7()), ID: "test"}, false
	return c
}

// Completed sets missing settings of an event system to the defaults of the
// configuration.
func Completed(t testing.TB, c coordinator.Config) coordinator.Config {
	t.Helper()
	defaults, err := config.Defaults()
	require.NoError(t, err)
	return settings.Or(c, coordinator.Configure(defaults.Worker.EventSystems.Worker.EventSystem))
}

func (e *Engine) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	require.NoError(e.t, e.Worker.Stop(ctx))
	require.NoError(e.t, e.Orchestrator.Stop(ctx))
	report, err := e.Store.CheckIntegrity(ctx, e.Rules)
	require.NoError(e.t, err)
	require.Empty(e.t, report.Violations)
	if !e.Deletes {
		e.CheckRates(ctx)
	}
}

// Supervised is an orchestrator whose mode can be changed, as its daemon does.
type Supervised struct{ *orchestration.Orchestrator }

// SetMode changes the mode of all event systems.
func (s Supervised) SetMode(ctx context.Context, mode deploymode.Mode) (err error) {
	for _, system := range s.Systems() {
		err = errors.Join(err, system.SetMode(ctx, mode))
	}
	return err
}

// AnotherOrchestrator runs a second one beside the first, until the test ends; changes
// apply to its configuration.
func (e *Engine) AnotherOrchestrator(changes ...func(*orchestration.Config)) *orchestration.Orchestrator {
	e.t.Helper()
	cfg := e.config
	cfg.Daemon = store.Daemon{UUID: uuid.Must(uuid.NewV7()), ID: "another"}
	for _, change := range changes {
		change(&cfg)
	}
	o, err := orchestration.New(cfg)
	require.NoError(e.t, err)
	require.NoError(e.t, o.Start(e.t.Context()))
	e.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		require.NoError(e.t, o.Stop(ctx))
	})
	return o
}

// AnotherWorker runs one more worker, until the test ends; changes apply to the configuration of
// the first.
func (e *Engine) AnotherWorker(register func(*worker.Worker) error, changes ...func(*worker.Config)) *worker.Worker {
	e.t.Helper()
	cfg := e.worker
	cfg.WorkerID = "another-" + uuid.NewString()
	for _, change := range changes {
		change(&cfg)
	}
	w, err := worker.New(cfg)
	require.NoError(e.t, err)
	require.NoError(e.t, register(w))
	require.NoError(e.t, w.Start(e.t.Context()))
	e.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		require.NoError(e.t, w.Stop(ctx))
	})
	return w
}

// Refusing is an orchestrator that creates no tasks of requests whose idempotency key begins with
// "full" while a namespace is full, and whose database rejects the task of the key "rejected".
type Refusing struct {
	*orchestration.Orchestrator
	Full atomic.Bool
}

// FullNamespace returns an orchestrator with a full namespace.
func FullNamespace(o *orchestration.Orchestrator) *Refusing {
	r := &Refusing{Orchestrator: o}
	r.Full.Store(true)
	return r
}

func (o *Refusing) refuse(r *orchestration.Request) error {
	switch {
	case r.IdempotencyKey == "rejected":
		return fmt.Errorf("create the task: %w", &pgconn.PgError{Code: "P0001", Message: "no"})
	case o.Full.Load() && strings.HasPrefix(r.IdempotencyKey, "full"):
		return &submission.QuotaError{Namespace: "jobs", RetryAfter: time.Second}
	}
	return nil
}

// CreateMany creates the tasks of the other requests.
func (o *Refusing) CreateMany(ctx context.Context, requests []orchestration.Request) []orchestration.CreateResult {
	results := make([]orchestration.CreateResult, len(requests))
	var others []orchestration.Request
	var places []int
	for i := range requests {
		if results[i].Err = o.refuse(&requests[i]); results[i].Err == nil {
			others, places = append(others, requests[i]), append(places, i)
		}
	}
	for i, created := range o.Orchestrator.CreateMany(ctx, others) {
		results[places[i]] = created
	}
	return results
}

// Submit creates a task of the examples' namespace at version 1.0.0.
func (e *Engine) Submit(namespace, name, input string) uuid.UUID {
	e.t.Helper()
	return e.SubmitVersion(namespace, name, "1.0.0", input)
}

// SubmitVersion creates a task.
func (e *Engine) SubmitVersion(namespace, name, version, input string) uuid.UUID {
	e.t.Helper()
	created, err := e.Orchestrator.Create(e.t.Context(), orchestration.Request{
		Namespace: namespace, Name: name, Version: version, Context: json.RawMessage(input), Initiator: "test"})
	require.NoError(e.t, err)
	return created.UUID
}

// Run submits a task and waits for its end.
func (e *Engine) Run(namespace, name, input string) *store.Task {
	e.t.Helper()
	return e.Await(e.Submit(namespace, name, input))
}

// Await waits for the end of a task.
func (e *Engine) Await(id uuid.UUID) *store.Task {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 30*time.Second)
	defer cancel()
	ended, err := e.Orchestrator.Wait(ctx, id)
	require.NoError(e.t, err)
	task, err := e.Store.Task(e.t.Context(), id)
	require.NoError(e.t, err)
	require.True(e.t, ended, "the task has not ended: %s", task.State)
	return task
}

// Read reads the present state of a task.
func (e *Engine) Read(id uuid.UUID) *store.Task {
	e.t.Helper()
	task, err := e.Store.Task(e.t.Context(), id)
	require.NoError(e.t, err)
	return task
}

// Until waits until a task fulfils a condition.
func (e *Engine) Until(id uuid.UUID, right func(*store.Task) bool) {
	e.t.Helper()
	require.Eventually(e.t, func() bool { return right(e.Read(id)) }, 30*time.Second, 10*time.Millisecond)
}

// Results are the results of the complete steps of a task by name.
func Results(task *store.Task) map[string]string {
	results := map[string]string{}
	for i := range task.Steps {
		if task.Steps[i].State == workflow.StepComplete {
			results[task.Steps[i].Name] = string(task.Steps[i].Result)
		}
	}
	return results
}

// CheckRates adds up what the stores have counted, and compares the rates with the attempts in the ledger, minute by
// minute. Steps of the engine are not counted.
func (e *Engine) CheckRates(ctx context.Context, stores ...*store.Store) {
	e.t.Helper()
	for _, s := range append(stores, e.Store) {
		_, err := s.KeepRates(ctx, time.Minute)
		require.NoError(e.t, err)
	}
	for more := true; more; {
		var err error
		_, more, err = e.Store.AddUpRates(ctx, 1000)
		require.NoError(e.t, err)
	}
	differing, err := e.Store.CompareRates(ctx, time.Time{}, time.Now().Add(time.Hour))
	require.NoError(e.t, err)
	require.Empty(e.t, differing, "the rates are not those of the ledger")
}
