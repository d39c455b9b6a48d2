package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/worker/events"
	"github.com/tasker-go/tasker/workflow"
)

// Worker runs the steps of its namespaces. It is made by New, given handlers
// and templates, and has one life: Start, then Stop. It is safe for concurrent
// use.
type Worker struct {
	cfg        Config
	id         *identity
	registry   *registry
	chain      *chain
	publishers *publishers
	bus        *events.Bus
	board      board                 // instead of a store, in tests
	around     func(settler) settler // in tests
	fatal      chan error            // holds one: the event system gave up
	force      chan struct{}
	stopped    chan struct{} // closed when Stop is through

	mu        sync.Mutex
	state     state
	templates map[templateKey]*workflow.Template
	problems  []error // of registrations; Start returns them
	parts     *parts  // while it runs
	address   string  // of the API; see SetAddress
	stopErr   error
}

type templateKey struct{ namespace, name, version string }

// state is where a worker stands.
type state string

const (
	stateIdle     state = "idle"
	stateStarting state = "starting"
	stateRunning  state = "running"
	stateDraining state = "draining"
	stateStopped  state = "stopped"
)

// New returns a worker that is not running. The error names everything that is
// wrong with the configuration; nothing is connected to yet.
func New(cfg Config) (*Worker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make the worker's id: %w", err)
	}
	r := newRegistry()
	heard := cfg.DomainEvents.Bus
	heard.Logger, heard.Metrics = cfg.Logger, cfg.Metrics
	bus, err := events.NewBus(heard)
	if err != nil {
		return nil, err
	}
	return &Worker{
		cfg: cfg, id: newIdentity(id), registry: r, chain: newChain(r), publishers: newPublishers(), bus: bus,
		fatal: make(chan error, 1), force: make(chan struct{}), stopped: make(chan struct{}),
		state: stateIdle, templates: map[templateKey]*workflow.Template{},
	}, nil
}

// ID identifies this worker in the fleet. It changes when the fleet has taken
// the worker for dead and it comes back.
func (w *Worker) ID() uuid.UUID { return w.id.get() }

// SetAddress tells the fleet where the API of the program around the worker
// listens, as host:port: operators find it by that. A running worker tells it
// with a heartbeat at once; "" stands for no API. It may be called at any time.
func (w *Worker) SetAddress(address string) {
	w.mu.Lock()
	w.address = address
	p := w.parts
	w.mu.Unlock()
	if p != nil {
		p.heartbeat.beatSoon()
	}
}

// Register makes a handler known by name, which is what handler.callable of a
// template says. Registering is possible while the worker runs. The error (no
// name, no handler, a name that is taken) is returned by Start again.
func (w *Worker) Register(name string, h Handler) error {
	return w.remember(w.registry.add(name, h))
}

// RegisterMethods makes a handler of several functions known; handler.method of
// a template chooses one, "call" where it says nothing. The errors are those of
// Register.
func (w *Worker) RegisterMethods(name string, byName map[string]HandlerFunc) error {
	if len(byName) == 0 {
		return w.remember(fmt.Errorf("register handler %q: it has no methods", name))
	}
	for method, fn := range byName {
		if method == "" || fn == nil {
			return w.remember(fmt.Errorf("register handler %q: the method %q is nil or has no name", name, method))
		}
	}
	return w.Register(name, &methods{callable: name, byName: maps.Clone(byName)})
}

// AddResolver puts a resolver into the chain. The error (no name, a name that
// is taken) is returned by Start again.
func (w *Worker) AddResolver(r Resolver) error { return w.remember(w.chain.add(r)) }

// Handlers lists the names of the registered handlers in order.
func (w *Worker) Handlers() []string { return w.registry.names() }

// CanResolve tells why the worker could not run a step whose template
// addresses its handler so; nil means that it could.
func (w *Worker) CanResolve(def workflow.HandlerReference) error {
	_, err := w.chain.resolve(def)
	return err
}

// offerAnew has a worker that runs claim what it can run now.
func (w *Worker) offerAnew() {
	w.mu.Lock()
	p := w.parts
	w.mu.Unlock()
	if p != nil {
		p.queues.kick()
	}
}

// remember keeps an error for Start, so that none is overlooked.
func (w *Worker) remember(err error) error {
	if err == nil {
		w.offerAnew()
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == stateIdle {
		w.problems = append(w.problems, err)
	}
	return err
}

// RegisterTemplate has a template registered in the database when the worker
// starts, as it holds in the worker's environment. A second one of the same
// namespace, name and version is refused; so is any after Start.
func (w *Worker) RegisterTemplate(t *workflow.Template) error {
	if t == nil {
		return w.remember(errors.New("register a template: it is nil"))
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
		return fmt.Errorf("register template %s/%s:%s: the worker has been started", t.Namespace, t.Name, t.Version)
	}
	if _, twice := w.templates[key]; twice {
		return fmt.Errorf("register template %s/%s:%s: there is one already", t.Namespace, t.Name, t.Version)
	}
	w.templates[key] = t
	return nil
}

// LoadTemplates registers the templates in files, and in all *.yaml, *.yml and
// *.json files of directories and those below them. The error names every
// problem with its line and column, then the warnings about the same files.
// Warnings are logged when all files can be used.
func (w *Worker) LoadTemplates(paths ...string) error {
	var (
		wrong    []error
		warnings workflow.Problems
	)
	for _, path := range paths {
		files, err := templateFiles(path)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("look for templates: %w", err))
		}
		for _, file := range files {
			found, err := w.loadTemplate(file)
			warnings = append(warnings, found...)
			if err != nil {
				wrong = append(wrong, err)
			}
		}
	}
	if len(wrong) > 0 {
		return w.remember(errors.Join(wrong...))
	}
	for _, p := range warnings {
		w.cfg.Logger.Warn("template", zap.String("file", p.File), zap.Any("problem", p))
	}
	return nil
}

// loadTemplate returns the warnings about a file that can be used.
func (w *Worker) loadTemplate(file string) (warnings workflow.Problems, err error) {
	src, err := os.ReadFile(file) // #nosec G304 -- the caller names it
	if err != nil {
		return nil, fmt.Errorf("read a template: %w", err)
	}
	t, problems, err := workflow.ParseTemplate(file, src)
	if err != nil {
		return nil, fmt.Errorf("load a template: %w", err)
	}
	return problems, w.addTemplate(t)
}

// templateFiles lists the files behind a path in order.
func templateFiles(path string) (files []string, err error) {
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return nil
		case p == path || slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(p)):
			files = append(files, p)
		}
		return nil
	})
	return files, err
}

// Run starts the worker, waits until ctx ends (or the event system gives up for
// good, see coordinator.Config), and stops it within ShutdownTimeout.
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
