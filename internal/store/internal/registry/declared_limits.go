package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// Templates declare limits of the callables of their steps. Of the versions of a template the
// highest registered one counts; a limit that an operator or another template has set stays as
// it is. All happens in the transaction of the registration, with the turn of each callable
// whose limit changes; a limit that a version declares no more is removed as by an operator.

// declaring is a version of a template and what the registry has of its limits.
type declaring struct {
	DeclaredBy, Version string
}

func (t *registeredTemplate) declaredBy() string { return t.Namespace + "/" + t.Name }

// newestDeclaring are the templates of a registration that are the highest versions of theirs,
// with respect to the versions whose limits are in force (some).
// Index: none; limits are few.
var newestDeclaring = pg.Compile(`
select d.at, exists (select from tasker.limits l where l.declared_by = d.declared_by) as some from (
    select distinct on (d.declared_by) d.* from ` + stmt.OrderedList[declaring]("d") + `
    order by d.declared_by, tasker.version_key(d.version) desc, d.version collate "C" desc) d
where not exists (select from tasker.limits l where l.declared_by = d.declared_by and tasker.version_key(l.declared_version) > tasker.version_key(d.version))
order by d.at`)

// declaredCallable is a callable of a template and its limit.
type declaredCallable struct {
	CallableID int32
	Handler    workflow.HandlerReference `sql:",inline"`
	Limited    bool
	Removing   bool
	DeclaredBy string // "": an operator has set the limit
	Version    string // that declared it
	limitrule.Rule
}

// Index: callables_named is not needed: a namespace has few callables; the primary key.
var declaredCallables = pg.Compile(`
select c.callable_id, c.callable, c.method, c.resolver, l.callable_id is not null as limited, coalesce(l.removing, false) as removing, coalesce(l.declared_by, '') as declared_by,
       coalesce(l.declared_version, '') as version, coalesce(l.key_path, '{}') as key_path, coalesce(l.key_tag, '') as key_tag, l.max_running, l.per_second,
       coalesce(l.burst, 1) as burst, coalesce(l.ordered, false) as ordered, coalesce(l.overtake, false) as overtake, coalesce(l.weights, '{}') as weights, coalesce(l.beyond, 'wait') as beyond
from tasker.namespaces n join tasker.callables c on c.namespace_id = n.namespace_id left join tasker.limits l on l.callable_id = c.callable_id
where n.name = @namespace and (l.declared_by = @declared_by or (c.callable, c.method, c.resolver) in (
    select d.callable, d.method, d.resolver from jsonb_to_recordset(@steps::jsonb) d(callable text, method text, resolver text)))
order by c.callable_id`)

// declareLimits makes the limits of registered templates true. kept says which are not in
// force, and why.
func (r *registration) declareLimits(ctx context.Context, tx pgx.Tx, refused []VersionConflict) (kept []string, err error) {
	out := map[VersionConflict]bool{}
	for _, c := range refused {
		out[VersionConflict{Namespace: c.Namespace, Name: c.Name, Version: c.Version}] = true
	}
	list := make([]declaring, len(r.rows))
	for i := range r.rows {
		list[i] = declaring{r.rows[i].declaredBy(), r.rows[i].Version}
	}
	type candidate struct {
		At   int // in the registration, from 1 on
		Some bool
	}
	newest, err := stmt.All[candidate](ctx, tx, newestDeclaring.With(pg.Args{"d": list}))
	for i := 0; i < len(newest) && err == nil; i++ {
		t, from := &r.rows[newest[i].At-1], r.templates[newest[i].At-1]
		if out[VersionConflict{Namespace: t.Namespace, Name: t.Name, Version: t.Version}] || !newest[i].Some && !declares(from) {
			continue
		}
		var of []string
		of, err = r.declare(ctx, tx, t, from)
		kept = append(kept, of...)
	}
	return kept, err
}

func declares(t *workflow.Template) bool {
	return slices.ContainsFunc(t.Steps, func(s workflow.StepTemplate) bool { return s.Limit != nil })
}

// declare makes the limits of one template true.
func (r *registration) declare(ctx context.Context, tx pgx.Tx, row *registeredTemplate, t *workflow.Template) (kept []string, err error) {
	wanted := map[[3]string]*workflow.StepTemplate{}
	for i := range t.Steps {
		if h := &t.Steps[i].Handler; t.Steps[i].Limit != nil {
			wanted[[3]string{h.Callable, h.Method, h.Resolver}] = &t.Steps[i]
		}
	}
	change := limitChange{actor: r.who.ID, reason: "declared by a template", declaredBy: row.declaredBy(), version: row.Version}
	callables, err := stmt.All[declaredCallable](ctx, tx, declaredCallables.With(pg.Args{"namespace": row.Namespace, "declared_by": row.declaredBy(), "steps": row.Steps}))
	for i := 0; i < len(callables) && err == nil; i++ {
		c := &callables[i]
		step := wanted[[3]string{c.Handler.Callable, c.Handler.Method, c.Handler.Resolver}]
		mine := c.Limited && c.DeclaredBy == row.declaredBy()
		var why string
		switch {
		case step == nil && mine && !c.Removing:
			if _, err = pg.Run(ctx, tx, TurnOf(c.CallableID)); err == nil {
				err = change.end(ctx, tx, c.CallableID)
			}
		case step == nil:
		case c.Limited && !mine && !c.Removing:
			why = cmp.Or(c.DeclaredBy, "an operator") + " has set another one"
			if c.same(step.Limit) {
				why = ""
			}
		case !mine || c.Removing || c.Version != row.Version || !c.same(step.Limit):
			l := Limit{Namespace: row.Namespace, Handler: c.Handler, Rule: *step.Limit}
			if _, err = pg.Run(ctx, tx, TurnOf(c.CallableID)); err == nil {
				err = l.set(ctx, tx, c.CallableID, change)
			}
			if errors.Is(err, ErrOtherKey) {
				why, err = "the limit in force has another key: remove it, and register the template again", nil
			}
		}
		if why != "" {
			kept = append(kept, fmt.Sprintf("step %s of %s %s: %s", step.Name, row.declaredBy(), row.Version, why))
		}
	}
	return kept, err
}

// same says whether a rule in force is the one that is declared.
func (c *declaredCallable) same(declared *limitrule.Rule) bool {
	a, b := c.Rule, *declared
	a.Burst, b.Burst = max(a.Burst, 1), max(b.Burst, 1)
	a.Beyond, b.Beyond = cmp.Or(a.Beyond, limitrule.Wait), cmp.Or(b.Beyond, limitrule.Wait)
	if !slices.Equal(a.KeyPath, b.KeyPath) || !maps.Equal(a.Weights, b.Weights) {
		return false
	}
	a.KeyPath, b.KeyPath, a.Weights, b.Weights = nil, nil, nil, nil
	return reflect.DeepEqual(a, b)
}
