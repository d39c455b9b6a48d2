package registry

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
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
		err := s.db.ScanAll(ctx, db, func(b *pgx.Batch) {
			s.known.Callables.Ask(b, &list)
			s.known.AskPolicies(b)
		})
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

// NamespaceState is a namespace for operators.
type NamespaceState struct {
	ID                    int32
	Name                  string
	CreatedAt             time.Time
	PausedAt              *time.Time // nil: not paused
	PausedBy, PauseReason *string
	PausedCallables       []PausedCallable `sql:"-"` // by name
}

// PausedCallable is one of which an operator has paused the claims.
type PausedCallable struct {
	Callable              string
	PausedAt              time.Time
	PausedBy, PauseReason *string
}

var listNamespaces = pg.Compile(`
select namespace_id as id, name, created_at, paused_at, paused_by, pause_reason from tasker.namespaces order by name limit 10000`)

// listPausedCallables lists each name once: methods and resolvers are paused together.
// Index: callables_paused.
var listPausedCallables = pg.Compile(`
select distinct on (namespace_id, callable) namespace_id, callable, paused_at, paused_by, pause_reason
from tasker.callables where paused_at is not null and paused_by is not null order by namespace_id, callable, paused_at limit 10000`)

// Namespaces lists the namespaces by name, 10,000 at most.
func (s *Registry) Namespaces(ctx context.Context) (list []NamespaceState, err error) {
	err = s.db.Repeatable(ctx, "namespaces", "list the namespaces", func(ctx context.Context, db *pg.Conn) error {
		type paused struct {
			NamespaceID int32
			PausedCallable
		}
		b := &pgx.Batch{}
		listNamespaces.With(nil).Queue(b).Query(stmt.Into(&list))
		listPausedCallables.With(nil).Queue(b).Query(stmt.Rows(func(p *paused) {
			at := slices.IndexFunc(list, func(n NamespaceState) bool { return n.ID == p.NamespaceID })
			if at >= 0 {
				list[at].PausedCallables = append(list[at].PausedCallables, p.PausedCallable)
			}
		}))
		return db.SendBatch(ctx, b).Close()
	})
	return list, err
}

// Pause pauses or resumes claims.
type Pause struct {
	Namespace     string
	Callable      string // of the namespace, with all methods and resolvers; empty: all
	Actor, Reason string
}

// An operator's action is recorded with the change.
// Index: the unique name, callables_named.
var (
	pauseNamespace = pg.Compile(`
with changed as (
    update tasker.namespaces set paused_at = coalesce(paused_at, clock_timestamp()), paused_by = @actor, pause_reason = @reason
    where name = @namespace returning name
)` + recordPause + `'pause_namespace'` + recordNamespace)
	resumeNamespace = pg.Compile(`
with changed as (
    update tasker.namespaces set paused_at = null, paused_by = null, pause_reason = null
    where name = @namespace returning name
)` + recordPause + `'resume_namespace'` + recordNamespace)
	pauseCallable = pg.Compile(`
with changed as (
    update tasker.callables c set paused_at = coalesce(c.paused_at, clock_timestamp()), paused_by = @actor, pause_reason = @reason` + ofNamespace +
		recordPause + `'pause_callable'` + recordCallable)
	resumeCallable = pg.Compile(`
with changed as (
    update tasker.callables c set paused_at = (select l.changed_at from tasker.limits l where l.callable_id = c.callable_id and not l.removing), paused_by = null, pause_reason = null` + ofNamespace +
		recordPause + `'resume_callable'` + recordCallable)
)

const (
	ofNamespace = `
    from tasker.namespaces n where n.name = @namespace and c.namespace_id = n.namespace_id and c.callable = @callable
    returning n.name, c.callable
)`
	recordPause = `
insert into tasker.operator_actions (actor, reason, action, target, matched, changed, dry_run)
select @actor::text, @reason::text, `
	recordNamespace = `, jsonb_build_object('namespace', name), 1, 1, false from changed`
	recordCallable  = `, jsonb_build_object('namespace', name, 'callable', callable), 1, 1, false from (select distinct * from changed) c`
)

// Pause stops claims of a namespace's steps, or of those with a callable, and records it.
// Running steps continue, their successors wait. Pausing again changes actor and reason,
// not the time. The error wraps ErrNotFound if the name does not exist.
func (s *Registry) Pause(ctx context.Context, p Pause) error {
	return s.db.Call(ctx, "pause", "pause claims", func(ctx context.Context, db *pg.Conn) error {
		return p.change(ctx, db, pauseNamespace, pauseCallable)
	})
}

// Resume ends a pause, if any, and records it. A callable of a paused namespace stays
// paused with it. The signals are to publish, unless the store sends them itself. The
// error wraps ErrNotFound if the name does not exist.
func (s *Registry) Resume(ctx context.Context, p Pause) (signals []signal.Signal, err error) {
	err = s.db.Transaction(ctx, "resume", "resume claims", func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		if err := p.change(ctx, tx, resumeNamespace, resumeCallable); err != nil {
			return nil, err
		}
		signals = []signal.Signal{{Topic: signal.WorkerTopic(p.Namespace)}}
		return signals, nil
	})
	return signals, err
}

// change runs one of the two statements.
func (p *Pause) change(ctx context.Context, db pg.Execer, ofNamespace, ofCallable *stmt.Statement) error {
	statement, how := ofNamespace, pg.Args{"namespace": p.Namespace, "actor": p.Actor, "reason": p.Reason}
	if p.Callable != "" {
		statement, how["callable"] = ofCallable, p.Callable
	}
	return pg.Find(ctx, db, statement.With(how))
}
