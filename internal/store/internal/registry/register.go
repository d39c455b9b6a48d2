package registry

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/admission"
	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// Immutability is the policy for new content under a version that tasks have used.
type Immutability string

// The immutabilities; the empty string means VersionsRefuse.
const (
	VersionsRefuse Immutability = "refuse" // the version stays unchanged
	VersionsWarn   Immutability = "warn"   // the content replaces it, with a warning
	VersionsOff    Immutability = "off"    // the content replaces it
)

// Registrant registers templates.
type Registrant struct {
	ID          string // of the daemon or operator
	Environment string // the templates are resolved for
	Immutable   Immutability
}

// VersionConflict is a template version whose content differs from the one being
// registered.
type VersionConflict struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	// Brought and Registered are the SHA-256 of both contents in hex.
	Brought      string    `json:"brought"`
	Registered   string    `json:"registered"`
	RegisteredBy string    `json:"registered_by"` // "" if unknown
	RegisteredAt time.Time `json:"registered_at"`
}

// Log messages of daemons about conflicts.
const (
	RefusedTemplate  = "a template is refused, because tasks have used its version with other content; give the changed one another version"
	KeptLimit        = "a limit that a template declares is not in force"
	ReplacedTemplate = "a template version that tasks have used has other content from now on"
)

// String names the version and both contents.
func (c VersionConflict) String() string {
	by := c.RegisteredBy
	if by == "" {
		by = "an unknown daemon"
	}
	return fmt.Sprintf("%s/%s:%s: brought %s, registered %s (by %s at %s)", c.Namespace, c.Name, c.Version, c.Brought, c.Registered,
		by, c.RegisteredAt.UTC().Format(time.RFC3339))
}

// Registered is the result of a registration. Templates in neither list are registered
// unchanged.
type Registered struct {
	Refused  []VersionConflict // the used content stays
	Replaced []VersionConflict // the used content was replaced
	Limits   []string          // declared ones that are not in force, and why
}

// registration is templates to register.
type registration struct {
	who       Registrant
	templates []*workflow.Template
	rows      []registeredTemplate
}

// registeredTemplate is a template with its content, as stored.
type registeredTemplate struct {
	Namespace, Name, Version string
	Hash                     []byte
	Template, Steps, Start   json.RawMessage
}

// registeredStep is a step in the order of the step numbers.
type registeredStep struct {
	Name     string  `json:"name"`
	Callable *string `json:"callable"` // nil: the engine runs it
	Method   string  `json:"method"`
	Resolver string  `json:"resolver"`
}

func newRegistration(who Registrant, templates []*workflow.Template) (*registration, error) {
	r := &registration{who: who, templates: templates}
	for _, t := range templates {
		plan, err := workflow.Compile(t)
		if err == nil {
			_, err = admission.Parse(t.Submission)
		}
		if err != nil {
			return nil, fmt.Errorf("compile template %s/%s:%s: %w", t.Namespace, t.Name, t.Version, err)
		}
		document, err := json.Marshal(t)
		if err != nil {
			return nil, fmt.Errorf("encode template %s/%s:%s: %w", t.Namespace, t.Name, t.Version, err)
		}
		order := make([]registeredStep, len(plan.Steps))
		for no := range plan.Steps {
			step := &plan.Steps[no]
			order[no].Name = step.Name
			if h := &step.Handler; !step.Kind.ByEngine() {
				order[no].Callable, order[no].Method, order[no].Resolver = &h.Callable, h.Method, h.Resolver
			}
		}
		list, err := json.Marshal(order)
		if err != nil {
			return nil, fmt.Errorf("encode the steps of template %s/%s:%s: %w", t.Namespace, t.Name, t.Version, err)
		}
		start, err := json.Marshal(newPlanStart(plan))
		if err != nil {
			return nil, fmt.Errorf("encode the start of template %s/%s:%s: %w", t.Namespace, t.Name, t.Version, err)
		}
		hash := t.ContentHash()
		r.rows = append(r.rows, registeredTemplate{t.Namespace, t.Name, t.Version, hash[:], document, list, start})
	}
	return r, nil
}

// RegisterTemplates makes resolved templates the current ones of their versions, and
// creates their namespaces. Content that is already current is not stored again; running
// tasks keep their plan. Versions that tasks have used are immutable, unless the
// registrant says otherwise: a conflict is part of the answer, not an error.
func (s *Registry) RegisterTemplates(ctx context.Context, who Registrant, templates []*workflow.Template) (done Registered, err error) {
	if len(templates) == 0 {
		return done, nil
	}
	r, err := newRegistration(who, templates)
	if err != nil {
		return done, err
	}
	err = s.db.Repeatable(ctx, "register_templates", "register templates", func(ctx context.Context, db *pg.Conn) error {
		return s.db.InTx(ctx, db, func(tx pgx.Tx) error {
			if err := r.take(ctx, tx); err != nil {
				return err
			}
			done, err = r.write(ctx, tx)
			return err
		})
	})
	if err == nil {
		s.ForgetPlanNames()
	}
	return done, err
}

// take serializes registrations.
func (*registration) take(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtext('tasker.register_templates'))`)
	return err
}

// write stores the templates without conflict.
func (r *registration) write(ctx context.Context, tx pgx.Tx) (done Registered, err error) {
	b := &pgx.Batch{}
	queueZones(b, r.templates)
	addNamespaces.With(pg.Args{"n": r.rows}).Queue(b)
	declareLimits.With(pg.Args{"n": r.rows, "registered_by": r.who.ID}).Queue(b)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return done, err
	}
	found, err := r.rivals(ctx, tx)
	if err != nil {
		return done, err
	}
	free, err := r.lock(ctx, tx, found)
	if err != nil {
		return done, err
	}
	var give []int32
	var fresh []registeredTemplate
	for i := range r.rows {
		v := found[i]
		switch {
		case v != nil && v.Same:
			continue
		case v != nil && !free[v.PlanID] && r.refuses():
			done.Refused = append(done.Refused, r.conflict(i, v))
			continue
		case v != nil:
			give = append(give, v.PlanID)
			if !free[v.PlanID] && r.who.Immutable == VersionsWarn {
				done.Replaced = append(done.Replaced, r.conflict(i, v))
			}
		}
		fresh = append(fresh, r.rows[i])
	}
	if err = r.insert(ctx, tx, fresh, give); err == nil {
		done.Limits, err = r.declareLimits(ctx, tx, done.Refused)
	}
	return done, err
}

func (r *registration) refuses() bool {
	return r.who.Immutable != VersionsWarn && r.who.Immutable != VersionsOff
}

// rival is the current plan of a version to register.
type rival struct {
	At           int // in the registration, from 1 on
	PlanID       int32
	Same         bool // it has the same content
	ContentHash  []byte
	RegisteredBy string
	CreatedAt    time.Time
}

func (r *registration) conflict(i int, v *rival) VersionConflict {
	t := &r.rows[i]
	return VersionConflict{Namespace: t.Namespace, Name: t.Name, Version: t.Version,
		Brought: hex.EncodeToString(t.Hash), Registered: hex.EncodeToString(v.ContentHash), RegisteredBy: v.RegisteredBy, RegisteredAt: v.CreatedAt}
}

var addNamespaces = pg.Compile(`
insert into tasker.namespaces (name) select distinct n.namespace from ` + stmt.List[registeredTemplate]("n") + ` on conflict do nothing`)

// Index: plans_current.
var findRivals = pg.Compile(`
select n.at, p.plan_id, p.content_hash = n.hash as same, p.content_hash, p.registered_by, p.created_at
from ` + stmt.OrderedList[registeredTemplate]("n") + `
join tasker.namespaces s on s.name = n.namespace
join tasker.plans p on p.namespace_id = s.namespace_id and p.name = n.name and p.version = n.version and p.current`)

// rivals returns the current plans of the templates to register.
func (r *registration) rivals(ctx context.Context, tx pgx.Tx) (map[int]*rival, error) {
	found := map[int]*rival{}
	err := stmt.Each(ctx, tx, findRivals.With(pg.Args{"n": r.rows}), func(v *rival) {
		one := *v
		found[v.At-1] = &one
	})
	return found, err
}

const lockPlans = `select plan_id from tasker.plans where plan_id = any (@plans) order by plan_id for update`

var (
	lockAllPlans  = pg.Compile(lockPlans)
	lockFreePlans = pg.Compile(lockPlans + ` skip locked`)
	unusedPlans   = pg.Compile(`select p from unnest(@plans::int[]) p where not exists (select from tasker.plan_uses where plan_id = p)`)
)

// lock locks the plans that may be replaced against the creation of tasks, and returns
// those that no task has used. A locked one is about to be used: a registration that
// would reject it does not wait for that transaction.
func (r *registration) lock(ctx context.Context, tx pgx.Tx, found map[int]*rival) (free map[int32]bool, err error) {
	var wanted []int32
	for _, v := range found {
		if !v.Same {
			wanted = append(wanted, v.PlanID)
		}
	}
	if wanted == nil {
		return nil, nil
	}
	slices.Sort(wanted)
	lock := lockAllPlans
	if r.refuses() {
		lock = lockFreePlans
	}
	locked, err := stmt.All[int32](ctx, tx, lock.With(pg.Args{"plans": wanted}))
	if err != nil {
		return nil, err
	}
	// A statement of its own: the locking one may not see uses committed while it waited.
	unused, err := stmt.All[int32](ctx, tx, unusedPlans.With(pg.Args{"plans": locked}))
	free = make(map[int32]bool, len(unused))
	for _, plan := range unused {
		free[plan] = true
	}
	return free, err
}

// registerCallables adds the callables of templates that are new.
// Index: callables_named.
var registerCallables = pg.Compile(`
insert into tasker.callables (namespace_id, callable, method, resolver)
select distinct s.namespace_id, d.callable, d.method, d.resolver
from ` + stmt.List[registeredTemplate]("n") + `
join tasker.namespaces s on s.name = n.namespace
cross join lateral jsonb_to_recordset(n.steps::jsonb) d(callable text, method text, resolver text)
where d.callable is not null
on conflict do nothing`)

var retirePlans = pg.Compile(`update tasker.plans set current = false where plan_id = any (@plans::int[])`)

// insertPlans adds templates, which become the current ones of their versions.
// Index: plans_current, callables_named.
var insertPlans = pg.Compile(`
insert into tasker.plans (namespace_id, name, version, environment, content_hash, template, steps, callables, registered_by, deprecated_at, current)
select s.namespace_id, n.name, n.version, @environment, n.hash, n.template::jsonb,
       array(select d.step ->> 'name' from jsonb_array_elements(n.steps::jsonb) with ordinality d(step, at) order by d.at),
       array(select coalesce(c.callable_id, 0) from jsonb_array_elements(n.steps::jsonb) with ordinality d(step, at)
             left join tasker.callables c on c.namespace_id = s.namespace_id
                  and md5(c.callable || {separator} || c.method || {separator} || c.resolver) =
                      md5((d.step ->> 'callable') || {separator} || (d.step ->> 'method') || {separator} || (d.step ->> 'resolver'))
             order by d.at), @registered_by,
       (select max(o.deprecated_at) from tasker.plans o where o.namespace_id = s.namespace_id and o.name = n.name and o.version = n.version), true
from ` + stmt.List[registeredTemplate]("n") + `
join tasker.namespaces s on s.name = n.namespace
on conflict (namespace_id, name, version, environment, content_hash) do update set current = true
where not plans.current`)

// insert makes templates the current ones of their versions, replacing the plans in give, and
// stores how the tasks of all templates begin.
func (r *registration) insert(ctx context.Context, tx pgx.Tx, fresh []registeredTemplate, give []int32) error {
	b := &pgx.Batch{}
	retirePlans.With(pg.Args{"plans": pg.NonNil(give)}).Queue(b)
	registerCallables.With(pg.Args{"n": fresh}).Queue(b)
	insertPlans.With(pg.Args{"n": fresh, "environment": r.who.Environment, "registered_by": r.who.ID}).Queue(b)
	putPlanStarts.With(pg.Args{"n": r.rows}).Queue(b)
	return tx.SendBatch(ctx, b).Close()
}

// usePlan marks the current plan of a version as used.
// Index: plans_current, plan_uses_plan.
var usePlan = pg.Compile(`select plan_id, settled from tasker.plan_for_use(@namespace_id, @name, @version)`)

// use returns the plan that tasks of plan's version are created by, and whether that is so
// even if the transaction is rolled back.
func (c *planCache) use(ctx context.Context, db stmt.Querier, plan *Plan) (used *Plan, settled bool, err error) {
	type row struct {
		planID  int32
		settled bool
	}
	u, err := pg.OneOf[row](ctx, db, usePlan.With(pg.Args{"namespace_id": plan.Queue, "name": plan.Template.Name, "version": plan.Template.Version}))
	if err == nil && u.planID != plan.ID {
		plan, err = c.on(ctx, db, u.planID)
	}
	return plan, u.settled, err
}

// UsePlan must be called before tasks are created with a plan that PlanNamed returned.
// After it no registration changes the content of its version, unless the fleet allows
// that. It returns the plan to use, which is another one if a registration has replaced
// it, or ErrNotFound if the version was deleted.
func (s *Registry) UsePlan(ctx context.Context, plan *Plan) (*Plan, error) {
	if plan.used.Load() {
		return plan, nil
	}
	used, err := pg.Read(ctx, s.db, "use_plan", "use the plan", func(ctx context.Context, db *pg.Conn) (*Plan, error) {
		used, _, err := s.known.plans.use(ctx, db, plan)
		return used, err
	})
	if err != nil {
		return nil, err
	}
	used.used.Store(true)
	return used, nil
}

// TemplateVersion is the registry's data about a version besides its content.
type TemplateVersion struct {
	Hash         string // SHA-256 of the content, in hex
	RegisteredBy string // "" if unknown
	RegisteredAt time.Time
	Used         bool       // by tasks
	DeprecatedAt *time.Time // nil: not deprecated
}

// Index: the primary key, plan_uses_plan.
var templateVersion = pg.Compile(`
select encode(content_hash, 'hex') as hash, registered_by, created_at as registered_at,
       exists (select from tasker.plan_uses u where u.plan_id = p.plan_id) as used, deprecated_at
from tasker.plans p where plan_id = @plan_id`)

// TemplateVersion reads the registry's data about a plan; the error wraps ErrNotFound if
// it does not exist.
func (s *Registry) TemplateVersion(ctx context.Context, plan int32) (TemplateVersion, error) {
	return pg.ReadOne[TemplateVersion](ctx, s.db, "template_version", "read the template version", templateVersion.With(pg.Args{"plan_id": plan}))
}

var deprecateVersion = pg.Compile(`
update tasker.plans p set deprecated_at = case when @deprecated then coalesce(p.deprecated_at, now()) end
from tasker.namespaces n
where n.name = @namespace and p.namespace_id = n.namespace_id and p.name = @name and p.version = @version
  and exists (select from tasker.plans c where c.namespace_id = p.namespace_id and c.name = p.name and c.version = p.version and c.current)`)

// DeprecateVersion excludes a template version from the choice for requests without a
// version, or includes it again, and records the operator. The signals are to publish,
// unless the store sends them itself. The error wraps ErrNotFound if the version does not
// exist.
func (s *Registry) DeprecateVersion(ctx context.Context, namespace, name, version string, deprecated bool, by pg.OperatorAction) ([]signal.Signal, error) {
	defer s.ForgetPlanNames() // also of a transaction that was rolled back
	_, signals, err := pg.Recorded(ctx, s.db, "deprecate_version", "deprecate the template version", by, signal.TopicControl,
		func(ctx context.Context, tx pgx.Tx) (changed int, _ map[string]any, err error) {
			which := pg.Args{"namespace": namespace, "name": name, "version": version}
			// A version registered concurrently would miss it.
			if err = (*registration)(nil).take(ctx, tx); err == nil {
				changed, err = pg.Run(ctx, tx, deprecateVersion.With(which.And(pg.Args{"deprecated": deprecated})))
			}
			if err == nil && changed == 0 {
				err = fmt.Errorf("%w: template %s/%s:%s", pg.ErrNotFound, namespace, name, version)
			}
			return changed, which, err
		})
	return signals, err
}

var checkZone = pg.Compile(`select statement_timestamp() at time zone @zone`)

// queueZones has the server check the time zones by which the identities of templates
// end: the server computes with them.
func queueZones(b *pgx.Batch, templates []*workflow.Template) {
	asked := map[string]bool{}
	for _, t := range templates {
		if zone := dedup.EndOf(t.Identity, false).TimeZone; zone != "" && !asked[zone] {
			asked[zone] = true
			checkZone.With(pg.Args{"zone": zone}).Queue(b)
		}
	}
}
