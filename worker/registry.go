package worker

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// maxCallable bounds the length of a template's callable, in bytes here.
const maxCallable = 500

// registry holds the handlers by their registered names. It is safe for concurrent use,
// so handlers may be added while the worker runs.
type registry struct {
	mu        sync.RWMutex
	handlers  map[string]Handler
	canonical map[string][]string // canonicalName → registered names
}

func newRegistry() *registry {
	return &registry{handlers: map[string]Handler{}, canonical: map[string][]string{}}
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
	c := canonicalName(name)
	r.canonical[c] = append(r.canonical[c], name)
	slices.Sort(r.canonical[c])
	return nil
}

func registering(name string, err error) error {
	return fmt.Errorf("register handler %q: %w", name, err)
}

func isNil(h Handler) bool {
	if f, ok := h.(HandlerFunc); ok {
		return f == nil
	}
	return h == nil
}

func (r *registry) get(name string) (Handler, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	h, ok := r.handlers[name]
	return h, ok
}

// spelled returns the registered names that have one canonical form.
func (r *registry) spelled(canonical string) []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clone(r.canonical[canonical])
}

func (r *registry) names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.handlers))
}
