package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

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
}

// registration is templates to register, column by column.
type registration struct {
	who                         Registrant
	templates                   []*workflow.Template
	namespaces, names, versions []string
	hashes                      [][]byte
	documents, steps            []string
}

// registeredStep is a step in the order of the step numbers.
type registeredStep struct {
	Name     string  `json:"name"`
	Callable *string `json:"callable"` // nil: the engine runs it
	Method   string  `json:"method"`
	Resolver string  `json:"resolver"`
}

func newRegistration(who Registrant, templates []*workflow.Template) (*registration, error) {
	r := &registration{who: who}
	for _, t := range templates {
		plan, err := workflow.Compile(t)
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
		hash := t.ContentHash()
		r.add(t, hash[:], string(document), string(list))
	}
	return r, nil
}

func (r *registration) add(t *workflow.Template, hash []byte, document, steps string) {
	r.templates = append(r.templates, t)
	r.namespaces, r.names, r.versions = append(r.namespaces, t.Namespace), append(r.names, t.Name), append(r.versions, t.Version)
	r.hashes, r.documents, r.steps = append(r.hashes, hash), append(r.documents, document), append(r.steps, steps)
}

// RegisterTemplates makes resolved templates the current ones of their versions, and
// creates their namespaces. Content that is already current is not stored again; running
// tasks keep their plan. Versions that tasks have used are immutable, unless the
// registrant says otherwise: a conflict is part of the answer, not an error.
func (s *Store) RegisterTemplates(ctx context.Context, who Registrant, templates []*workflow.Template) (done Registered, err error) {
	if len(templates) == 0 {
		return done, nil
	}
	r, err := newRegistration(who, templates)
	if err != nil {
		return done, err
	}
	err = s.repeatable(ctx, "register_templates", "register templates", func(ctx context.Context, db *conn) error {
		return s.inTx(ctx, db, func(tx pgx.Tx) error {
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
	b.Queue(`insert into tasker.namespaces (name) select distinct unnest($1::text[]) on conflict do nothing`, r.namespaces)
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
	fresh := registration{who: r.who}
	for i := range r.templates {
		v := found[i]
		switch {
		case v != nil && v.same:
			continue
		case v != nil && !free[v.plan] && r.refuses():
			done.Refused = append(done.Refused, r.conflict(i, v))
			continue
		case v != nil:
			give = append(give, v.plan)
			if !free[v.plan] && r.who.Immutable == VersionsWarn {
				done.Replaced = append(done.Replaced, r.conflict(i, v))
			}
		}
		fresh.add(r.templates[i], r.hashes[i], r.documents[i], r.steps[i])
	}
	return done, fresh.insert(ctx, tx, give)
}

func (r *registration) refuses() bool {
	return r.who.Immutable != VersionsWarn && r.who.Immutable != VersionsOff
}

// rival is the current plan of a version to register.
type rival struct {
	plan int32
	same bool // it has the same content
	hash []byte
	by   string
	at   time.Time
}

func (r *registration) conflict(i int, v *rival) VersionConflict {
	return VersionConflict{Namespace: r.namespaces[i], Name: r.names[i], Version: r.versions[i],
		Brought: hex.EncodeToString(r.hashes[i]), Registered: hex.EncodeToString(v.hash), RegisteredBy: v.by, RegisteredAt: v.at}
}

// rivals returns the current plans of the templates to register.
// Index: plans_current.
func (r *registration) rivals(ctx context.Context, tx pgx.Tx) (map[int]*rival, error) {
	rows, err := tx.Query(ctx, `
		select n.at, p.plan_id, p.content_hash = n.hash, p.content_hash, p.registered_by, p.created_at
		from unnest($1::text[], $2::text[], $3::text[], $4::bytea[]) with ordinality n(namespace, name, version, hash, at)
		join tasker.namespaces s on s.name = n.namespace
		join tasker.plans p on p.namespace_id = s.namespace_id and p.name = n.name and p.version = n.version and p.current`,
		r.namespaces, r.names, r.versions, r.hashes)
	if err != nil {
		return nil, err
	}
	found := map[int]*rival{}
	var at int
	var v rival
	_, err = pgx.ForEachRow(rows, []any{&at, &v.plan, &v.same, &v.hash, &v.by, &v.at}, func() error {
		one := v
		one.hash = slices.Clone(v.hash)
		found[at-1] = &one
		return nil
	})
	return found, err
}

// lock locks the plans that may be replaced against the creation of tasks, and returns
// those that no task has used. A locked one is about to be used: a registration that
// would reject it does not wait for that transaction.
func (r *registration) lock(ctx context.Context, tx pgx.Tx, found map[int]*rival) (free map[int32]bool, err error) {
	var wanted []int32
	for _, v := range found {
		if !v.same {
			wanted = append(wanted, v.plan)
		}
	}
	if wanted == nil {
		return nil, nil
	}
	slices.Sort(wanted)
	query := `select plan_id from tasker.plans where plan_id = any ($1) order by plan_id for update`
	if r.refuses() {
		query += ` skip locked`
	}
	rows, err := tx.Query(ctx, query, wanted)
	if err != nil {
		return nil, err
	}
	locked, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		return nil, err
	}
	// A statement of its own: the locking one may not see uses committed while it waited.
	rows, err = tx.Query(ctx, `select p from unnest($1::int[]) p where not exists (select from tasker.plan_uses where plan_id = p)`, nonNil(locked))
	if err != nil {
		return nil, err
	}
	unused, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	free = make(map[int32]bool, len(unused))
	for _, plan := range unused {
		free[plan] = true
	}
	return free, err
}

// registerCallables adds the callables of templates that are new.
// Index: callables_named.
const registerCallables = `
insert into tasker.callables (namespace_id, callable, method, resolver)
select distinct s.namespace_id, d.callable, d.method, d.resolver
from unnest($1::text[], $2::text[]) n(namespace, steps)
join tasker.namespaces s on s.name = n.namespace
cross join lateral jsonb_to_recordset(n.steps::jsonb) d(callable text, method text, resolver text)
where d.callable is not null
on conflict do nothing`

// insert makes the templates the current ones of their versions, replacing the plans in
// give.
func (r *registration) insert(ctx context.Context, tx pgx.Tx, give []int32) error {
	b := &pgx.Batch{}
	b.Queue(`update tasker.plans set current = false where plan_id = any ($1::int[])`, nonNil(give))
	b.Queue(registerCallables, nonNil(r.namespaces), nonNil(r.steps))
	b.Queue(`
		insert into tasker.plans (namespace_id, name, version, environment, content_hash, template, steps, callables, registered_by, deprecated_at, current)
		select s.namespace_id, n.name, n.version, $7, n.hash, n.template::jsonb,
		       array(select d.step ->> 'name' from jsonb_array_elements(n.steps::jsonb) with ordinality d(step, at) order by d.at),
		       array(select coalesce(c.callable_id, 0) from jsonb_array_elements(n.steps::jsonb) with ordinality d(step, at)
		             left join tasker.callables c on c.namespace_id = s.namespace_id
		                  and md5(c.callable || E'\x1f' || c.method || E'\x1f' || c.resolver) =
		                      md5((d.step ->> 'callable') || E'\x1f' || (d.step ->> 'method') || E'\x1f' || (d.step ->> 'resolver'))
		             order by d.at), $8,
		       (select max(o.deprecated_at) from tasker.plans o where o.namespace_id = s.namespace_id and o.name = n.name and o.version = n.version), true
		from unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::text[])
		     n(namespace, name, version, hash, template, steps)
		join tasker.namespaces s on s.name = n.namespace
		on conflict (namespace_id, name, version, environment, content_hash) do update set current = true
		where not plans.current`,
		nonNil(r.namespaces), nonNil(r.names), nonNil(r.versions), nonNil(r.hashes), nonNil(r.documents), nonNil(r.steps), r.who.Environment, r.who.ID)
	return tx.SendBatch(ctx, b).Close()
}
