package lifecycle

import (
	"context"
	"errors"
)

// Group is a fixed set of loops that start and stop together. It implements
// Service and is safe for concurrent use.
type Group struct {
	name  string
	loops []*Loop
}

// NewGroup returns the group of loops.
func NewGroup(name string, loops ...*Loop) *Group { return &Group{name: name, loops: loops} }

// Name implements Service.
func (g *Group) Name() string { return g.name }

// Start implements Service.
func (g *Group) Start(ctx context.Context) error {
	for _, l := range g.loops {
		if err := l.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stop implements Service: it stops all loops at once, then waits for them.
func (g *Group) Stop(ctx context.Context) error {
	for _, l := range g.loops {
		l.signal()
	}
	var failed []error
	for _, l := range g.loops {
		failed = append(failed, l.Stop(ctx))
	}
	return errors.Join(failed...)
}

// Health returns the health of each loop.
func (g *Group) Health() []LoopHealth {
	out := make([]LoopHealth, len(g.loops))
	for i, l := range g.loops {
		out[i] = l.Health()
	}
	return out
}

// signal stops the loop without waiting for it.
func (l *Loop) signal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state {
	case LoopRunning, LoopRestarting:
		l.state = LoopStopping
		l.cancel()
	case LoopIdle:
		l.state = LoopStopped
	}
}
