package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/schema"
	"github.com/tasker-go/tasker/workflow"
)

// Plan is a registered plan: the compiled template with its keys in the
// database. It is immutable and safe for concurrent use.
type Plan struct {
	*workflow.Plan
	ID    int32
	Queue int32 // the id of the namespace
	// Callables is, by step number, the callable whose line a step waits in; 0: that of
	// the engine, which runs the step itself.
	Callables []int32
	// InputSchema checks contexts; nil accepts everything.
	InputSchema *schema.Schema
	// EngineFirst says that tasks may begin with a step that the engine runs.
	EngineFirst bool

	// first are the callables that tasks begin with.
	first []int32

	// used says that tasks have used it, regardless of open transactions.
	used atomic.Bool
}

// planTTL bounds how long a replica that receives no signals may use a replaced version.
const planTTL = 5 * time.Second

// maxCachedPlans bounds the cache; a plan that falls out is read again.
const maxCachedPlans = 4096

type planKey struct{ namespace, name, version string }

type planEntry struct {
	plan *Plan
	read time.Time
}

// planCache remembers plans by id for as long as the database is the same (they
// do not change) and for planTTL by name (another one may become current).
type planCache struct {
	mu     sync.RWMutex
	byID   map[int32]*Plan
	byName map[planKey]planEntry
}

func newPlanCache() planCache {
	return planCache{byID: map[int32]*Plan{}, byName: map[planKey]planEntry{}}
}

func (c *planCache) put(p *Plan, current bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byID) >= maxCachedPlans {
		clear(c.byID)
		clear(c.byName)
	}
	c.byID[p.ID] = p
	if current {
		c.byName[planKey{p.Template.Namespace, p.Template.Name, p.Template.Version}] = planEntry{p, now}
	}
}

// remember keeps a plan under a name for planTTL.
func (c *planCache) remember(k planKey, p *Plan, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byName[k] = planEntry{p, now}
}

func (c *planCache) named(k planKey, now time.Time) (*Plan, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e, ok := c.byName[k]
	return e.plan, ok && now.Sub(e.read) < planTTL
}

func (c *planCache) numbered(id int32) (*Plan, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	p, ok := c.byID[id]
	return p, ok
}

// known returns the cached plans by id.
func (c *planCache) known() map[int32]*Plan {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return maps.Clone(c.byID)
}

// forget empties the cache.
func (c *planCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.byID)
	clear(c.byName)
}

// ForgetPlanNames makes the next lookup by name read the database; call it when a signal
// says that the registry changed.
func (s *Store) ForgetPlanNames() {
	s.plans.mu.Lock()
	defer s.plans.mu.Unlock()
	clear(s.plans.byName)
}

const planColumns = `p.plan_id, p.namespace_id, p.template, p.current, p.callables`

const planNamed = `select ` + planColumns + ` from tasker.plans p join tasker.namespaces n using (namespace_id)
	where n.name = $1 and p.name = $2 and p.version = $3 and p.current`

// planHighest is the plan of the highest version that is not deprecated.
// Index: plans_highest.
const planHighest = `select ` + planColumns + ` from tasker.plans p join tasker.namespaces n using (namespace_id)
	where n.name = $1 and p.name = $2 and p.current and p.deprecated_at is null
	order by p.version_key desc, p.version collate "C" desc limit 1`

// lookUp returns the statement that finds a plan, with its arguments.
func (k planKey) lookUp() (query string, args []any) {
	if k.version == "" {
		return planHighest, []any{k.namespace, k.name}
	}
	return planNamed, []any{k.namespace, k.name, k.version}
}

// PlanNamed returns the current plan of a template version, or ErrNotFound. No
// version means the highest that is not deprecated.
func (s *Store) PlanNamed(ctx context.Context, namespace, name, version string) (*Plan, error) {
	key := planKey{namespace, name, version}
	if p, ok := s.plans.named(key, time.Now()); ok {
		return p, nil
	}
	var plan *Plan
	err := s.repeatable(ctx, "plan", "read the plan", func(ctx context.Context, db *conn) (err error) {
		query, args := key.lookUp()
		plan, err = s.plans.read(ctx, db, query, args...)
		return err
	})
	if err == nil {
		s.plans.remember(key, plan, time.Now())
	}
	return plan, err
}

// PlanByID returns a plan of a running or ended task, or ErrNotFound.
func (s *Store) PlanByID(ctx context.Context, id int32) (*Plan, error) {
	if p, ok := s.plans.numbered(id); ok {
		return p, nil
	}
	var plan *Plan
	err := s.repeatable(ctx, "plan", "read the plan", func(ctx context.Context, db *conn) (err error) {
		plan, err = s.planOn(ctx, db, id)
		return err
	})
	return plan, err
}

// Index: the primary key.
const readPlan = `select ` + planColumns + ` from tasker.plans p where p.plan_id = $1`

// planOn is PlanByID for callers that already have a connection: waiting for a second one
// while holding the first could deadlock a busy pool.
func (s *Store) planOn(ctx context.Context, db querier, id int32) (*Plan, error) {
	if p, ok := s.plans.numbered(id); ok {
		return p, nil
	}
	return s.plans.read(ctx, db, readPlan, id)
}

// ReadPlans caches many plans for PlanByID. Plans that cannot be read are left to later
// callers.
func (s *Store) ReadPlans(ctx context.Context, ids []int32) error {
	if _, missing := s.plans.take(ids); len(missing) == 0 {
		return nil
	}
	return s.repeatable(ctx, "plan", "read the plans", func(ctx context.Context, db *conn) error {
		_, err := s.plansOn(ctx, db, ids)
		return err
	})
}

// plans are plans by id, and errors of the unusable ones.
type plans struct {
	usable map[int32]*Plan
	broken map[int32]error
}

// of returns a plan, or ErrNotFound.
func (p plans) of(id int32) (*Plan, error) {
	if plan := p.usable[id]; plan != nil {
		return plan, nil
	}
	if err := p.broken[id]; err != nil {
		return nil, err
	}
	return nil, ErrNotFound
}

// take returns the cached ones of some plans, and the ids of the others, each once; 0 is
// no plan.
func (c *planCache) take(ids []int32) (p plans, missing []int32) {
	p = plans{usable: make(map[int32]*Plan, 1), broken: map[int32]error{}}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, id := range ids {
		if _, seen := p.usable[id]; seen || id == 0 {
			continue
		}
		if p.usable[id] = c.byID[id]; p.usable[id] == nil {
			missing = append(missing, id)
		}
	}
	return p, missing
}

// plansOn is planOn for many: one statement reads those that are not cached.
// Index: the primary key.
func (s *Store) plansOn(ctx context.Context, db querier, ids []int32) (plans, error) {
	p, missing := s.plans.take(ids)
	if len(missing) == 0 {
		return p, nil
	}
	rows, err := db.Query(ctx, `select `+planColumns+` from tasker.plans p where p.plan_id = any ($1::int[])`, missing)
	if err != nil {
		return p, err
	}
	read, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r planRow, err error) { return r, r.scan(row) })
	for _, r := range read {
		p.usable[r.id], p.broken[r.id] = s.plans.compile(r)
	}
	return p, err
}

func (c *planCache) read(ctx context.Context, db querier, query string, args ...any) (*Plan, error) {
	rows, err := db.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	plan, err := pgx.CollectExactlyOneRow(rows, c.scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotFound
	}
	return plan, err
}

// planRow is a stored plan.
type planRow struct {
	id, queue int32
	document  []byte
	current   bool
	callables []int32
}

func (r *planRow) scan(row pgx.CollectableRow) error {
	return row.Scan(&r.id, &r.queue, &r.document, &r.current, &r.callables)
}

func (c *planCache) scan(row pgx.CollectableRow) (*Plan, error) {
	var r planRow
	if err := r.scan(row); err != nil {
		return nil, err
	}
	return c.compile(r)
}

// compile makes a plan of its row and caches it.
func (c *planCache) compile(r planRow) (*Plan, error) {
	if p, ok := c.numbered(r.id); ok {
		c.put(p, r.current, time.Now())
		return p, nil
	}
	p := &Plan{ID: r.id, Queue: r.queue, Callables: r.callables}
	t := &workflow.Template{}
	if err := json.Unmarshal(r.document, t); err != nil {
		return nil, fmt.Errorf("decode plan %d: %w", p.ID, err)
	}
	var err error
	if p.Plan, err = workflow.Compile(t); err != nil {
		return nil, fmt.Errorf("compile plan %d: %w", p.ID, err)
	}
	if len(p.Callables) != len(p.Steps) {
		return nil, fmt.Errorf("plan %d has %d callables for %d steps", p.ID, len(p.Callables), len(p.Steps))
	}
	if p.InputSchema, err = schema.Read(t.InputSchema); err != nil {
		return nil, fmt.Errorf("compile the input schema of plan %d: %w", p.ID, err)
	}
	for no := range p.Steps {
		s := &p.Steps[no]
		if !s.Initial || len(s.Parents) > 0 {
			continue
		}
		if s.Kind.ByEngine() {
			p.EngineFirst = true
		} else if c := p.callableOf(s); !slices.Contains(p.first, c) {
			p.first = append(p.first, c)
		}
	}
	c.put(p, r.current, time.Now())
	return p, nil
}

// ListedPlan is a current plan in a list.
type ListedPlan struct {
	*Plan
	DeprecatedAt *time.Time // of its version; nil: not deprecated
}

// Plans lists the current plans, ordered by namespace, name and version; an empty
// namespace means all. At most 10,000 are returned. Only those not cached are read and
// compiled.
func (s *Store) Plans(ctx context.Context, namespace string) ([]ListedPlan, error) {
	var plans []ListedPlan
	err := s.repeatable(ctx, "plans", "list the templates", func(ctx context.Context, db *conn) error {
		known := s.plans.known()
		rows, err := db.Query(ctx, `select p.plan_id, p.namespace_id, case when p.plan_id <> all ($2::int[]) then p.template end, p.current, p.callables, p.deprecated_at
			from tasker.plans p join tasker.namespaces n using (namespace_id)
			where p.current and ($1 = '' or n.name = $1) order by n.name, p.name, p.version limit 10000`,
			namespace, nonNil(slices.Collect(maps.Keys(known))))
		if err != nil {
			return err
		}
		plans, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l ListedPlan, err error) {
			var p planRow
			if err := row.Scan(&p.id, &p.queue, &p.document, &p.current, &p.callables, &l.DeprecatedAt); err != nil {
				return l, err
			}
			if l.Plan = known[p.id]; l.Plan == nil {
				l.Plan, err = s.plans.compile(p)
			}
			return l, err
		})
		return err
	})
	return plans, err
}

// Queues returns the queue id of each namespace that exists; no names means
// all of them.
func (s *Store) Queues(ctx context.Context, namespaces []string) (map[string]int32, error) {
	queues := map[string]int32{}
	err := s.repeatable(ctx, "queues", "read the namespaces", func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, `select name, namespace_id from tasker.namespaces
			where cardinality($1::text[]) = 0 or name = any ($1)`, nonNil(namespaces))
		if err != nil {
			return err
		}
		var name string
		var id int32
		_, err = pgx.ForEachRow(rows, []any{&name, &id}, func() error {
			queues[name] = id
			return nil
		})
		return err
	})
	return queues, err
}

func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
