package command_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gate blocks passing goroutines until it is opened, and reports their arrival.
type gate struct {
	came chan struct{}
	open chan struct{}
}

func newGate() *gate { return &gate{came: make(chan struct{}, 1000), open: make(chan struct{})} }

func (g *gate) pass(ctx context.Context) {
	g.came <- struct{}{}
	select {
	case <-g.open:
	case <-ctx.Done():
	}
}

// limit bounds how long a test waits.
func limit(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

type recorder[T any] struct {
	mu    sync.Mutex
	items []T
}

func (r *recorder[T]) add(item T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.items = append(r.items, item)
}

func (r *recorder[T]) all() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]T(nil), r.items...)
}
