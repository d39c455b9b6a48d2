package worker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/wording"
	"github.com/tasker-go/tasker/worker/internal/engine"
	"github.com/tasker-go/tasker/workflow"
)

// Resolver finds the handler of a template. The worker tries its resolvers in ascending
// priority; the first that can resolve decides. A template's handler.resolver names one
// directly. Resolvers are called from many goroutines at once, for every step, and must
// be fast.
type Resolver interface {
	// Name is the value for handler.resolver.
	Name() string
	// Priority orders the chain, smallest first. The built-in resolvers have 10 (exact
	// names) and 100 (other spellings).
	Priority() int
	// CanResolve reports whether Resolve should be called.
	CanResolve(def workflow.HandlerReference) bool
	// Resolve returns the handler. An error is a retryable failure of the step unless it
	// is marked Permanent.
	Resolve(def workflow.HandlerReference) (Handler, error)
}

// NamespaceResolver is a Resolver that can do more in some namespaces than in others: the
// worker asks it again, once it can resolve at all.
type NamespaceResolver interface {
	Resolver
	// CanResolveIn reports whether Resolve should be called for a task of the namespace.
	CanResolveIn(namespace string, def workflow.HandlerReference) bool
}

// ForeignResolver is a Resolver for other processes, which have resolvers of their own: the
// worker asks it also where a template names another resolver.
type ForeignResolver interface {
	Resolver
	// Foreign says so.
	Foreign()
}

// The names of the built-in resolvers: byName finds handlers by their exact registered
// names. bySpelling replaces the class loading of other engines, so that their templates
// run unchanged: it finds the handler whose registered name is another spelling of the
// callable.
const (
	byName     = workflow.ResolverByName
	bySpelling = workflow.ResolverBySpelling
)

// chain is the ordered list of resolvers.
type chain struct {
	mu        sync.RWMutex
	resolvers []Resolver
	registry  *registry // for suggestions
}

func newChain(r *registry) *chain {
	return &chain{registry: r, resolvers: []Resolver{&lookup{byName, 10, r.exact, r.exactIn}, &lookup{bySpelling, 100, r.spelled, r.spelledIn}}}
}

func (c *chain) add(r Resolver) error {
	if r == nil || r.Name() == "" {
		return errors.New("add a resolver: want a name")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.resolvers, func(other Resolver) bool { return other.Name() == r.Name() }) {
		return fmt.Errorf("add a resolver: the name %q is already registered", r.Name())
	}
	// A new slice, because readers may hold the old one.
	c.resolvers = append(slices.Clone(c.resolvers), r)
	slices.SortStableFunc(c.resolvers, func(a, b Resolver) int { return a.Priority() - b.Priority() })
	return nil
}

func (c *chain) all() []Resolver {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.resolvers
}

// find returns the resolver that decides in a namespace, "" in any; nil without one. asked
// are the resolvers that could have decided; nil if the template names one that this worker
// does not have.
func (c *chain) find(namespace string, def workflow.HandlerReference) (found Resolver, asked []Resolver) {
	asked = c.all()
	if def.Resolver != "" {
		asked = namedOrForeign(asked, def.ResolverName())
	}
	for _, r := range asked {
		if r.CanResolve(def) && within(r, namespace, def) {
			return r, asked
		}
	}
	return nil, asked
}

func within(r Resolver, namespace string, def workflow.HandlerReference) bool {
	scoped, ok := r.(NamespaceResolver)
	return !ok || namespace == "" || scoped.CanResolveIn(namespace, def)
}

// offers reports whether the worker claims steps of a namespace with this handler reference: whether a
// resolver accepts it. Handlers of the built-in resolvers must have the method too, since
// another worker may have a handler that does. A resolver that panics offers nothing.
func (c *chain) offers(namespace string, def workflow.HandlerReference) (can bool) {
	err := lifecycle.Guard(func() error {
		r, _ := c.find(namespace, def)
		if can = r != nil; can && (r.Name() == byName || r.Name() == bySpelling) {
			_, err := resolveWith(r, def)
			can = engine.TypeOf(err) != engine.TypeMethodNotFound
		}
		return nil
	})
	return can && err == nil
}

// resolve returns the function that runs a step of a namespace, "" of any.
func (c *chain) resolve(namespace string, def workflow.HandlerReference) (HandlerFunc, error) {
	r, tried := c.find(namespace, def)
	switch {
	case r != nil:
		return resolveWith(r, def)
	case def.Resolver != "" && !slices.ContainsFunc(tried, func(r Resolver) bool { return r.Name() == def.ResolverName() }):
		return nil, engine.Errorf(engine.TypeHandlerNotFound, "callable %q names the resolver %q, which this worker does not have (it has %s)",
			def.Callable, def.Resolver, strings.Join(resolverNames(c.all()), ", "))
	}
	if near := wording.Nearest(def.Callable, c.registry.names()); near != "" {
		return nil, engine.Errorf(engine.TypeHandlerNotFound, "no handler %s; did you mean %s", def.Callable, near)
	}
	asked := cmp.Or(def.Resolver, strings.Join(resolverNames(tried), ", "))
	return nil, engine.Errorf(engine.TypeHandlerNotFound, "ResolutionError: No resolver could resolve callable '%s' (asked: %s)", def.Callable, asked)
}

func resolveWith(r Resolver, def workflow.HandlerReference) (HandlerFunc, error) {
	h, err := r.Resolve(def)
	if err != nil {
		return nil, fmt.Errorf("resolve callable %q with %s: %w", def.Callable, r.Name(), asResolution(err))
	}
	if h == nil {
		return nil, engine.Errorf(engine.TypeResolution, "resolver %s returned no handler for callable %q", r.Name(), def.Callable)
	}
	return entry(def.Callable, def.Method, h)
}

// asResolution gives a resolver's error the type TypeResolution if it has none.
func asResolution(err error) error {
	var own interface{ ErrorType() string }
	if errors.As(err, &own) {
		return err
	}
	return engine.WithType(err, engine.TypeResolution)
}

// namedOrForeign returns the resolver of a name and those of other processes; nil without any.
func namedOrForeign(resolvers []Resolver, name string) (some []Resolver) {
	for _, r := range resolvers {
		if _, foreign := r.(ForeignResolver); foreign || r.Name() == name {
			some = append(some, r)
		}
	}
	return some
}

func resolverNames(resolvers []Resolver) []string {
	names := make([]string, len(resolvers))
	for i, r := range resolvers {
		names[i] = r.Name()
	}
	return names
}

// lookup is a built-in resolver. find returns the registered handler that a callable
// means, or the names of several that it could mean.
type lookup struct {
	name     string
	priority int
	find     func(callable string) (h Handler, several []string)
	serves   func(namespace, callable string) bool
}

var _ NamespaceResolver = (*lookup)(nil)

// Name implements Resolver.
func (l *lookup) Name() string { return l.name }

// Priority implements Resolver.
func (l *lookup) Priority() int { return l.priority }

// CanResolve implements Resolver.
func (l *lookup) CanResolve(def workflow.HandlerReference) bool {
	h, several := l.find(def.Callable)
	return h != nil || several != nil
}

// CanResolveIn implements NamespaceResolver.
func (l *lookup) CanResolveIn(namespace string, def workflow.HandlerReference) bool {
	return l.serves(namespace, def.Callable)
}

// Resolve implements Resolver.
func (l *lookup) Resolve(def workflow.HandlerReference) (Handler, error) {
	h, several := l.find(def.Callable)
	if several != nil {
		return nil, Permanent(engine.Errorf(engine.TypeResolution, "the callable could mean any of %s", strings.Join(several, ", ")))
	}
	return h, nil
}

// maxCallable bounds the length of a template's callable, in bytes here.
const maxCallable = 500

// registry holds the handlers by their registered names. It is safe for concurrent use,
// so handlers may be added while the worker runs.
type registry struct {
	mu        sync.RWMutex
	handlers  map[string]Handler
	canonical map[string][]string // workflow.CanonicalCallable → registered names
	confined  map[string][]string // registered name → namespaces that its handler serves; none: all
}

func newRegistry() *registry {
	return &registry{handlers: map[string]Handler{}, canonical: map[string][]string{}, confined: map[string][]string{}}
}

func (r *registry) add(name string, h Handler) error {
	switch {
	case name == "" || len(name) > maxCallable:
		return fmt.Errorf("register a handler: invalid name %.64q: want 1–%d bytes", name, maxCallable)
	case isNil(h):
		return fmt.Errorf("register handler %q: the handler is nil", name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, twice := r.handlers[name]; twice {
		return fmt.Errorf("register handler %q: the name is already registered", name)
	}
	r.handlers[name] = h
	c := workflow.CanonicalCallable(name)
	r.canonical[c] = append(r.canonical[c], name)
	slices.Sort(r.canonical[c])
	return nil
}

// confine has the handler of a name serve some namespaces only.
func (r *registry) confine(name string, namespaces []string) error {
	if len(namespaces) == 0 || slices.Contains(namespaces, "") {
		return fmt.Errorf("confine handler %q: want names of namespaces", name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.confined[name] = slices.Clone(namespaces)
	return nil
}

// servesLocked reports whether the handler of a registered name serves a namespace.
func (r *registry) servesLocked(namespace, name string) bool {
	to, confined := r.confined[name]
	return !confined || slices.Contains(to, namespace)
}

// exactIn reports whether the handler of a name serves a namespace.
func (r *registry) exactIn(namespace, name string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.servesLocked(namespace, name)
}

// spelledIn is exactIn for another spelling of the name.
func (r *registry) spelledIn(namespace, callable string) bool {
	canonical := workflow.CanonicalCallable(callable)
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.ContainsFunc(r.canonical[canonical], func(name string) bool { return r.servesLocked(namespace, name) })
}

func isNil(h Handler) bool {
	if f, ok := h.(HandlerFunc); ok {
		return f == nil
	}
	return h == nil
}

// exact returns the handler registered under a name; nil without one.
func (r *registry) exact(name string) (h Handler, _ []string) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.handlers[name], nil
}

// spelled returns the handler whose name is another spelling of the callable.
func (r *registry) spelled(callable string) (h Handler, several []string) {
	canonical := workflow.CanonicalCallable(callable)
	r.mu.RLock()
	defer r.mu.RUnlock()
	names := r.canonical[canonical]
	if len(names) > 1 {
		return nil, slices.Clone(names)
	}
	for _, name := range names {
		h = r.handlers[name]
	}
	return h, nil
}

func (r *registry) names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.handlers))
}
