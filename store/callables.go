package store

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// Callable is the code that steps of a namespace name. Each has its own line on the
// board, so that a worker claims only what it can run.
type Callable struct {
	ID        int32
	Namespace int32                     // see Store.Queues
	Handler   workflow.HandlerReference `sql:",inline"`
}

// callables caches the registered callables. They do not change, and come in the order of
// their ids: registrations are serialized, see registration.take. It is safe for
// concurrent use.
type callables struct {
	mu   sync.RWMutex
	byID map[int32]Callable
	last int32
	// version changes when callables are added or cleared.
	version uint64
}

func newCallables() *callables { return &callables{byID: map[int32]Callable{}} }

func (c *callables) knows(id int32) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, ok := c.byID[id]
	return ok
}

// newCallablesSince reads the callables registered since.
// Index: the primary key.
var newCallablesSince = compile(`
select callable_id as id, namespace_id as namespace, callable, method, resolver from tasker.callables where callable_id > @last order by callable_id`)

// ask adds the query for new callables to a batch.
func (c *callables) ask(b *pgx.Batch, list *[]Callable) {
	c.mu.RLock()
	last := c.last
	c.mu.RUnlock()
	newCallablesSince.With(args{"last": last}).Queue(b).Query(stmt.Into(list))
}

// learn adds the answer.
func (c *callables) learn(list []Callable) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range list {
		c.byID[k.ID], c.last = k, max(c.last, k.ID)
		c.version++
	}
}

// forget empties it.
func (c *callables) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.byID)
	c.last = 0
	c.version++
}

// Callables returns all registered callables, in the order of the ids. It reads only
// those not read before.
func (s *Store) Callables(ctx context.Context) ([]Callable, error) {
	err := s.repeatable(ctx, "callables", "read the callables", func(ctx context.Context, db *conn) error {
		var list []Callable
		err := s.scanAll(ctx, db, func(b *pgx.Batch) { s.callables.ask(b, &list) })
		if err == nil {
			s.callables.learn(list)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.KnownCallables(), nil
}

// CallablesVersion changes when KnownCallables changes; claims of any caller can cause
// that.
func (s *Store) CallablesVersion() uint64 {
	s.callables.mu.RLock()
	defer s.callables.mu.RUnlock()
	return s.callables.version
}

// KnownCallables returns the callables known from earlier reads, without a query.
func (s *Store) KnownCallables() []Callable {
	s.callables.mu.RLock()
	defer s.callables.mu.RUnlock()
	list := make([]Callable, 0, len(s.callables.byID))
	for _, id := range slices.Sorted(maps.Keys(s.callables.byID)) {
		list = append(list, s.callables.byID[id])
	}
	return list
}
