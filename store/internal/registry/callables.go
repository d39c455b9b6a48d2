package registry

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/store/internal/pg"
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

func (c *callables) Knows(id int32) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, ok := c.byID[id]
	return ok
}

// newCallablesSince reads the callables registered since.
// Index: the primary key.
var newCallablesSince = pg.Compile(`
select callable_id as id, namespace_id as namespace, callable, method, resolver from tasker.callables where callable_id > @last order by callable_id`)

// Ask adds the query for new callables to a batch.
func (c *callables) Ask(b *pgx.Batch, list *[]Callable) {
	c.mu.RLock()
	last := c.last
	c.mu.RUnlock()
	newCallablesSince.With(pg.Args{"last": last}).Queue(b).Query(stmt.Into(list))
}

// Learn adds the answer.
func (c *callables) Learn(list []Callable) {
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
func (s *Registry) Callables(ctx context.Context) ([]Callable, error) {
	err := s.db.Repeatable(ctx, "callables", "read the callables", func(ctx context.Context, db *pg.Conn) error {
		var list []Callable
		err := s.db.ScanAll(ctx, db, func(b *pgx.Batch) { s.known.Callables.Ask(b, &list) })
		if err == nil {
			s.known.Callables.Learn(list)
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
func (s *Registry) CallablesVersion() uint64 {
	s.known.Callables.mu.RLock()
	defer s.known.Callables.mu.RUnlock()
	return s.known.Callables.version
}

// KnownCallables returns the callables known from earlier reads, without a query.
func (s *Registry) KnownCallables() []Callable {
	s.known.Callables.mu.RLock()
	defer s.known.Callables.mu.RUnlock()
	list := make([]Callable, 0, len(s.known.Callables.byID))
	for _, id := range slices.Sorted(maps.Keys(s.known.Callables.byID)) {
		list = append(list, s.known.Callables.byID[id])
	}
	return list
}
