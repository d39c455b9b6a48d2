package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/worker/internal/bus"
	"github.com/tasker-go/tasker/worker/internal/engine"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// Worker runs the steps of its namespaces. New creates it; it gets handlers and templates
// and is used once: Start, then Stop. It is safe for concurrent use.
type Worker struct {
	cfg        Config
	id         atomic.Pointer[uuid.UUID]
	registry   *registry
	chain      *chain
	publishers publishers
	bus        *bus.Bus
	board      engine.Board                        // replaces the store in tests
	around     func(engine.Settler) engine.Settler // in tests
	fatal      chan error                          // capacity 1: the event system gave up
	forced     context.Context                     // ends when Stop is called again
	force      context.CancelFunc
	stopped    chan struct{} // closed at the end of Stop

	mu        sync.Mutex
	state     state
	templates map[templateKey]*workflow.Template
	problems  []error // of registrations; Start returns them
	parts     *parts  // while it runs
	address   string  // of the API; see SetAddress
	stopErr   error
}

type templateKey struct{ namespace, name, version string }

// state is the state of a worker's life cycle.
type state string

const (
	stateIdle     state = "idle"
	stateStarting state = "starting"
	stateRunning  state = "running"
	stateDraining state = "draining"
	stateStopped  state = "stopped"
)

// New returns a worker that does not run yet. The error lists every problem of the
// configuration; it connects to nothing.
func New(cfg Config) (*Worker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("generate the worker's id: %w", err)
	}
	cfg.checker = submission.NewChecker(submission.SchemaLimits(cfg.SchemaChecks), cfg.Metrics)
	r := newRegistry()
	fast, err := bus.New(bus.Config{Buffer: cfg.DomainEvents.SubscriberBuffer, Timeout: cfg.DomainEvents.SubscriberTimeout,
		QuietErrors: cfg.DomainEvents.QuietSubscribers, Logger: cfg.Logger, Metrics: cfg.Metrics})
	if err != nil {
		return nil, err
	}
	w := &Worker{
		cfg: cfg, registry: r, chain: newChain(r), bus: fast,
		fatal: make(chan error, 1), stopped: make(chan struct{}),
		state: stateIdle, templates: map[templateKey]*workflow.Template{},
	}
	w.id.Store(&id)
	w.forced, w.force = context.WithCancel(context.Background())
	return w, nil
}

// ownUUID identifies this worker in the fleet. It changes when the fleet considered the worker
// dead and it registers again.
func (w *Worker) ownUUID() uuid.UUID { return *w.id.Load() }

// Register registers a handler by name, for handler.callable of templates. It may be
// called while the worker runs. Start returns the error (no name, no handler, a duplicate
// name) again.
func (w *Worker) Register(name string, h Handler) error {
	return w.remember(w.registry.add(name, h))
}

// RegisterMethods registers a handler made of functions; handler.method of a template
// selects one, default "call". The errors are those of Register.
func (w *Worker) RegisterMethods(name string, byName map[string]HandlerFunc) error {
	if len(byName) == 0 {
		return w.remember(fmt.Errorf("register handler %q: want methods", name))
	}
	for method, fn := range byName {
		if method == "" || fn == nil {
			return w.remember(fmt.Errorf("register handler %q: method %q is nil or has no name", name, method))
		}
	}
	return w.Register(name, &methods{callable: name, byName: maps.Clone(byName)})
}

// Confine has the handler of a registered name, however it is registered, serve some namespaces only:
// the templates of others do not reach it, though the worker serves them too. Without it a handler
// serves all namespaces of the worker. Start returns the error (no namespaces) again.
func (w *Worker) Confine(name string, namespaces ...string) error {
	return w.remember(w.registry.confine(name, namespaces))
}

// AddResolver adds a resolver to the chain. Start returns the error (no name, a duplicate
// name) again.
func (w *Worker) AddResolver(r Resolver) error { return w.remember(w.chain.add(r)) }

// Reoffer asks the resolvers again what the worker can run. A resolver whose answers have
// changed while the worker runs calls it: before it returns, the worker has stopped to
// claim what it cannot run any more.
func (w *Worker) Reoffer() {
	if p, _ := w.current(); p != nil {
		p.engine.Reoffer()
	}
}

// Limit changes how many handlers run at once while the worker runs, to at most
// Config.MaxConcurrent: a resolver that passes steps on keeps the worker from claiming more
// than it can take. Handlers beyond a smaller limit go on.
func (w *Worker) Limit(handlers int) {
	if p, _ := w.current(); p != nil {
		p.engine.Limit(handlers)
	}
}

// remember keeps an error for Start, so that none is overlooked. Without one a running
// worker claims what it can run now, and listens for what it needs now.
func (w *Worker) remember(err error) error {
	if err == nil {
		if p, _ := w.current(); p != nil {
			p.engine.Kick()
		}
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == stateIdle {
		w.problems = append(w.problems, err)
	}
	return err
}

// RegisterTemplate registers a template in the database when the worker starts, with the
// overrides of the worker's environment. A second template of the same namespace, name
// and version is rejected; so is any after Start.
func (w *Worker) RegisterTemplate(t *workflow.Template) error {
	if t == nil {
		return w.remember(errors.New("register a template: the template is nil"))
	}
	err := w.addTemplate(t)
	return w.remember(err)
}

func (w *Worker) addTemplate(t *workflow.Template) error {
	if _, err := workflow.Compile(t); err != nil {
		return fmt.Errorf("register a template: %w", err)
	}
	key := templateKey{t.Namespace, t.Name, t.Version}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != stateIdle {
		return fmt.Errorf("register template %s/%s:%s: the worker has already been started", t.Namespace, t.Name, t.Version)
	}
	if _, twice := w.templates[key]; twice {
		return fmt.Errorf("register template %s/%s:%s: already registered", t.Namespace, t.Name, t.Version)
	}
	w.templates[key] = t
	return nil
}

// LoadTemplates registers the templates in files, and in all *.yaml, *.yml and *.json
// files of directories, recursively, up to the limits of template.Load. The error lists
// every problem with its line and column, then the warnings about the same files. If all
// files are valid, warnings are logged.
func (w *Worker) LoadTemplates(paths ...string) error {
	found, problems, err := template.LoadWithJSON(paths...)
	if err != nil {
		err = fmt.Errorf("load templates: %w", err)
	}
	for _, f := range found {
		err = errors.Join(err, w.addTemplate(f.Template))
	}
	if err != nil {
		return w.remember(err)
	}
	for _, p := range problems.Warnings() {
		w.cfg.Logger.Warn("template", zap.String("file", p.File), zap.Stringer("problem", p))
	}
	return nil
}

// Run starts the worker, waits until ctx ends or the event system gives up (see
// coordinator.Config), and stops it within ShutdownTimeout.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.Start(ctx); err != nil {
		return err
	}
	var fatal error
	select {
	case <-ctx.Done():
	case <-w.stopped:
	case fatal = <-w.fatal:
	}
	return errors.Join(fatal, w.stop(context.WithoutCancel(ctx), false))
}
