package telemetry

import "sync"

const (
	// maxNames bounds the values that a label has of one kind of names.
	maxNames = 1000
	// otherName is the value for all names beyond.
	otherName = "other"
)

// names are values that a label has: those that came first.
type names struct {
	mu    sync.RWMutex
	known map[string]map[string]bool // by label
}

// Named returns the value of a label for a name that templates and requests make up: the name itself
// for the first 1,000 of the label, and "other" for those beyond.
func (m *Metrics) Named(label, name string) string {
	n := m.names
	n.mu.RLock()
	known, full := n.known[label][name], len(n.known[label]) >= maxNames
	n.mu.RUnlock()
	switch {
	case known:
		return name
	case full:
		return otherName
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	of := n.known[label]
	if of == nil {
		of = map[string]bool{}
		n.known[label] = of
	}
	if len(of) >= maxNames && !of[name] {
		return otherName
	}
	of[name] = true
	return name
}
