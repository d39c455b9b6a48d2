package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tasker-go/tasker/internal/schema"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// Registry is the room of templates. It is safe for concurrent use.
type Registry struct {
	db    *pg.DB
	known *Memory
}

// Memory is what this process knows of the registry; other rooms read it. It is safe for
// concurrent use.
type Memory struct {
	Callables *callables
	plans     planCache
	limited   atomic.Pointer[map[int32]LimitedCallable] // as read last
}

// New returns the room and its memory.
func New(db *pg.DB) (*Registry, *Memory) {
	m := &Memory{plans: newPlanCache(), Callables: newCallables()}
	m.plans.order = &ordering{predict: db.Opts.Predictor, missing: db.Opts.NotFollowed, unknown: db.Opts.Unpredicted}
	db.Remember(func() {
		m.plans.forget()
		m.Callables.forget()
		m.limited.Store(nil)
	})
	db.RememberPlaces(m.plans.forgetNames)
	return &Registry{db, m}, m
}

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

	// First are the steps that tasks begin with and workers run.
	First []int

	order *ordering // nil: of a program without a store, by priority

	// Limited says that its template had a throttle or a debounce when a task was last
	// created: a hint for the next ones.
	Limited atomic.Bool

	// used says that tasks have used it, regardless of open transactions.
	used atomic.Bool
}

// planTTL bounds how long a replica that receives no signals may use a replaced version.
const planTTL = 2 * time.Second

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
	order  *ordering
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

// find returns the plan that has a name, as read within planTTL.
func (c *planCache) find(k planKey, read func() (*Plan, error)) (*Plan, error) {
	c.mu.RLock()
	e, ok := c.byName[k]
	c.mu.RUnlock()
	if ok && time.Since(e.read) < planTTL {
		return e.plan, nil
	}
	p, err := read()
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.byName[k] = planEntry{p, time.Now()}
	}
	return p, err
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
func (s *Registry) ForgetPlanNames() {
	s.known.plans.forgetNames()
}

func (c *planCache) forgetNames() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.byName)
}

const planColumns = `p.plan_id, p.namespace_id, p.template, p.current, p.callables`

var planNamed = pg.Compile(`select ` + planColumns + ` from tasker.plans p join tasker.namespaces n using (namespace_id)
	where n.name = @namespace and p.name = @name and p.version = @version and p.current`)

// PlanForUse is the SQL of a table with the plan to create a task of, as its column plan_id: that
// of a version, or of the highest that is not deprecated where version is empty. The arguments
// are expressions; the plan stays current until the transaction ends.
// Index: plans_current, plans_highest, plan_uses_plan.
func PlanForUse(namespaceID, name, version string) string {
	return `tasker.plan_for_use(` + namespaceID + `, ` + name + `, coalesce(nullif(` + version + `, ''), (
        select h.version from tasker.plans h
        where h.namespace_id = ` + namespaceID + ` and h.name = ` + name + ` and h.current and h.deprecated_at is null
        order by h.version_key desc, h.version collate "C" desc limit 1)))`
}

// planHighest is the plan of the highest version that is not deprecated.
// Index: plans_highest.
var planHighest = pg.Compile(`select ` + planColumns + ` from tasker.plans p join tasker.namespaces n using (namespace_id)
	where n.name = @namespace and p.name = @name and p.current and p.deprecated_at is null
	order by p.version_key desc, p.version collate "C" desc limit 1`)

// lookUp is the statement that finds a plan.
func (k planKey) lookUp() stmt.Call {
	if k.version == "" {
		return planHighest.With(pg.Args{"namespace": k.namespace, "name": k.name})
	}
	return planNamed.With(pg.Args{"namespace": k.namespace, "name": k.name, "version": k.version})
}

// PlanNamed returns the current plan of a template version, or ErrNotFound. No
// version means the highest that is not deprecated.
func (s *Registry) PlanNamed(ctx context.Context, namespace, name, version string) (*Plan, error) {
	key := planKey{namespace, name, version}
	return s.known.plans.find(key, func() (*Plan, error) {
		return pg.Read(ctx, s.db, "plan", "read the plan", func(ctx context.Context, db *pg.Conn) (*Plan, error) {
			return s.known.plans.read(ctx, db, key.lookUp())
		})
	})
}

// PlanByID returns a plan of a running or ended task, or ErrNotFound.
func (s *Registry) PlanByID(ctx context.Context, id int32) (*Plan, error) {
	if p, ok := s.known.plans.numbered(id); ok {
		return p, nil
	}
	return pg.Read(ctx, s.db, "plan", "read the plan", func(ctx context.Context, db *pg.Conn) (*Plan, error) { return s.known.plans.on(ctx, db, id) })
}

// Index: the primary key.
var readPlan = pg.Compile(`select ` + planColumns + ` from tasker.plans p where p.plan_id = @plan_id`)

// on is PlanByID for callers that already have a connection: waiting for a second one
// while holding the first could deadlock a busy pool.
func (c *planCache) on(ctx context.Context, db stmt.Querier, id int32) (*Plan, error) {
	if p, ok := c.numbered(id); ok {
		return p, nil
	}
	return c.read(ctx, db, readPlan.With(pg.Args{"plan_id": id}))
}

// ReadPlans caches many plans for PlanByID. Plans that cannot be read are left to later
// callers.
func (s *Registry) ReadPlans(ctx context.Context, ids []int32) error {
	if _, missing := s.known.plans.take(ids); len(missing) == 0 {
		return nil
	}
	return s.db.Repeatable(ctx, "plan", "read the plans", func(ctx context.Context, db *pg.Conn) error {
		_, err := s.known.PlansOn(ctx, db, ids)
		return err
	})
}

// Found are plans by id, and errors of the unusable ones.
type Found struct {
	Usable map[int32]*Plan
	Broken map[int32]error
}

// Of returns a plan, or ErrNotFound.
func (p Found) Of(id int32) (*Plan, error) {
	if plan := p.Usable[id]; plan != nil {
		return plan, nil
	}
	if err := p.Broken[id]; err != nil {
		return nil, err
	}
	return nil, pg.ErrNotFound
}

// take returns the cached ones of some plans, and the ids of the others, each once; 0 is
// no plan.
func (c *planCache) take(ids []int32) (p Found, missing []int32) {
	p = Found{Usable: make(map[int32]*Plan, 1), Broken: map[int32]error{}}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, id := range ids {
		if _, seen := p.Usable[id]; seen || id == 0 {
			continue
		}
		if p.Usable[id] = c.byID[id]; p.Usable[id] == nil {
			missing = append(missing, id)
		}
	}
	return p, missing
}

// PlansOn is PlanByID for many, on a connection: one statement reads those that are not cached.
// Index: the primary key.
func (s *Memory) PlansOn(ctx context.Context, db stmt.Querier, ids []int32) (Found, error) {
	p, missing := s.plans.take(ids)
	if len(missing) == 0 {
		return p, nil
	}
	read, err := stmt.All[planRow](ctx, db, readPlans.With(pg.Args{"plans": missing}))
	for _, r := range read {
		p.Usable[r.PlanID], p.Broken[r.PlanID] = s.plans.compile(r)
	}
	return p, err
}

var readPlans = pg.Compile(`select ` + planColumns + ` from tasker.plans p where p.plan_id = any (@plans::int[])`)

func (c *planCache) read(ctx context.Context, db stmt.Querier, find stmt.Call) (*Plan, error) {
	row, err := pg.OneOf[planRow](ctx, db, find)
	if err != nil {
		return nil, err
	}
	return c.compile(row)
}

// planRow is a stored plan.
type planRow struct {
	PlanID, NamespaceID int32
	Template            []byte
	Current             bool
	Callables           []int32
}

// compile makes a plan of its row and caches it.
func (c *planCache) compile(r planRow) (*Plan, error) {
	if p, ok := c.numbered(r.PlanID); ok {
		c.put(p, r.Current, time.Now())
		return p, nil
	}
	p := &Plan{ID: r.PlanID, Queue: r.NamespaceID, Callables: r.Callables, order: c.order}
	t := &workflow.Template{}
	if err := json.Unmarshal(r.Template, t); err != nil {
		return nil, fmt.Errorf("decode plan %d: %w", p.ID, pg.OfNewer(err))
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
		} else {
			p.First = append(p.First, no)
		}
	}
	c.put(p, r.Current, time.Now())
	return p, nil
}

// ListedPlan is a current plan in a list.
type ListedPlan struct {
	*Plan
	DeprecatedAt *time.Time // of its version; nil: not deprecated
}

var listPlans = pg.Compile(`
select p.plan_id, p.namespace_id, case when p.plan_id <> all (@known::int[]) then p.template end as template, p.current, p.callables, p.deprecated_at
from tasker.plans p join tasker.namespaces n using (namespace_id)
where p.current and (@namespace = '' or n.name = @namespace) order by n.name, p.name, p.version limit 10000`)

// Plans lists the current plans, ordered by namespace, name and version; an empty
// namespace means all. At most 10,000 are returned. Only those not cached are read and
// compiled.
func (s *Registry) Plans(ctx context.Context, namespace string) (plans []ListedPlan, err error) {
	type row struct {
		planRow
		DeprecatedAt *time.Time
	}
	known := s.known.plans.known()
	rows, err := pg.ReadAll[row](ctx, s.db, "plans", "list the templates",
		listPlans.With(pg.Args{"namespace": namespace, "known": pg.NonNil(slices.Collect(maps.Keys(known)))}))
	plans = make([]ListedPlan, len(rows))
	for i, r := range rows {
		if plans[i] = (ListedPlan{known[r.PlanID], r.DeprecatedAt}); plans[i].Plan == nil {
			if plans[i].Plan, err = s.known.plans.compile(r.planRow); err != nil {
				return nil, pg.Classify("list the templates", err)
			}
		}
	}
	return plans, err
}

// maxNamesakes bounds the templates of one name that are listed.
const maxNamesakes = 20

// No index: plans are few, and all names are looked for in one pass.
var templatesNamed = pg.Compile(`
select name, namespace, version from (
    select p.name, n.name as namespace, p.version,
        row_number() over (partition by p.name order by n.name, p.plan_id desc) as place
    from tasker.plans p join tasker.namespaces n using (namespace_id)
    where p.current and p.name = any (@names) and p.deprecated_at is null) t
where place <= @limit order by name, place`)

// NamedTemplate is a version of a template, in one of the namespaces that have its name.
type NamedTemplate struct{ Name, Namespace, Version string }

// TemplatesNamed lists the versions of names that are not deprecated, in whichever
// namespaces, ordered by name and namespace, the latest registered first; at most 20 of each.
func (s *Registry) TemplatesNamed(ctx context.Context, names []string) ([]NamedTemplate, error) {
	return pg.ReadAll[NamedTemplate](ctx, s.db, "templates_named", "look for templates of a name",
		templatesNamed.With(pg.Args{"names": names, "limit": maxNamesakes}))
}

var readQueues = pg.Compile(`
select name, namespace_id from tasker.namespaces where cardinality(@names::text[]) = 0 or name = any (@names)`)

// Queues returns the queue id of each namespace that exists; no names means
// all of them.
func (s *Registry) Queues(ctx context.Context, namespaces []string) (map[string]int32, error) {
	type row struct {
		Name        string
		NamespaceID int32
	}
	return pg.ReadMap(ctx, s.db, "queues", "read the namespaces", readQueues.With(pg.Args{"names": pg.NonNil(namespaces)}),
		func(r *row) (string, int32) { return r.Name, r.NamespaceID })
}

// TxPlans reads plans over transactions of the caller and caches them as a store does. It
// is for programs without a store. It is safe for concurrent use.
type TxPlans struct{ cache planCache }

// NewTxPlans returns an empty cache.
func NewTxPlans() *TxPlans { return &TxPlans{cache: newPlanCache()} }

// On returns the lookup that reads uncached plans over tx.
func (p *TxPlans) On(tx pg.Tx) PlansOnTx { return PlansOnTx{p, tx} }

// PlansOnTx looks for plans within one transaction.
type PlansOnTx struct {
	plans *TxPlans
	tx    pg.Tx
}

// PlanNamed returns the current plan of a template version, or ErrNotFound. No
// version means the highest that is not deprecated.
func (p PlansOnTx) PlanNamed(ctx context.Context, namespace, name, version string) (*Plan, error) {
	key := planKey{namespace, name, version}
	return p.plans.cache.find(key, func() (*Plan, error) {
		plan, err := p.plans.cache.read(ctx, pg.GuestOf(p.tx), key.lookUp())
		if err != nil {
			err = pg.Classify(fmt.Sprintf("look for template %s/%s:%s", namespace, name, version), err)
		}
		return plan, err
	})
}

// UsePlan is Store.UsePlan within the transaction: the plan becomes the current one of
// its version when that commits.
func (p PlansOnTx) UsePlan(ctx context.Context, plan *Plan) (*Plan, error) {
	if plan.used.Load() {
		return plan, nil
	}
	used, settled, err := p.plans.cache.use(ctx, pg.GuestOf(p.tx), plan)
	if err != nil {
		t := plan.Template
		return nil, pg.Classify(fmt.Sprintf("use template %s/%s:%s", t.Namespace, t.Name, t.Version), err)
	}
	if settled {
		used.used.Store(true)
	}
	return used, nil
}

// CallableOf returns the callable whose line a step waits in.
func (p *Plan) CallableOf(step *workflow.PlanStep) int32 { return p.Callables[step.No] }
