package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/admission"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

// SubmissionLimit has the rules for how often tasks of a template are submitted.
type SubmissionLimit struct {
	Namespace, Template string
	// Version is the one whose template declares the rules, the highest that does; "": an
	// operator has set them, for all.
	Version string
	admission.Rules
	ChangedAt time.Time
	ChangedBy string
}

// Index: the primary keys; the unique names; plans_highest.
var (
	listSubmissionLimits = pg.Compile(`
select n.name as namespace, l.template, coalesce(d.version, '') as version, coalesce(l.rules, d.rules) as rules, l.changed_at, l.changed_by
from tasker.submission_limits l join tasker.namespaces n using (namespace_id)
left join lateral (
    select p.version, p.template -> 'submission' as rules from tasker.plans p
    where p.namespace_id = l.namespace_id and p.name = l.template and p.current and p.deprecated_at is null and p.template ? 'submission'
    order by p.version_key desc, p.version collate "C" desc limit 1) d on l.rules is null
where (@namespace::text = '' or n.name = @namespace) and coalesce(l.rules, d.rules) is not null order by n.name, l.template limit 10000`)

	setSubmissionLimit = pg.Compile(`
insert into tasker.submission_limits as l (namespace_id, template, rules, changed_by)
select n.namespace_id, @template, @rules::jsonb, @actor::text from tasker.namespaces n
where n.name = @namespace and exists (select from tasker.plans p where p.namespace_id = n.namespace_id and p.name = @template)
on conflict (namespace_id, template) do update
set rules = excluded.rules, changed_at = clock_timestamp(), changed_by = excluded.changed_by
returning rules`)

	// A statement of its own: the next one must see what was registered while it waited.
	lockSubmissionLimit = pg.Compile(`
select l.rules from tasker.submission_limits l join tasker.namespaces n using (namespace_id)
where n.name = @namespace and l.template = @template and l.rules is not null for update of l`)
	endSubmissionLimit = pg.Compile(`
with l as materialized (
    select l.ctid as at, exists (select from tasker.plans p
        where p.namespace_id = l.namespace_id and p.name = l.template and p.template ? 'submission') as declared
    from tasker.submission_limits l join tasker.namespaces n using (namespace_id) where n.name = @namespace and l.template = @template
), deleted as (
    delete from tasker.submission_limits where ctid in (select at from l where not declared)
)
update tasker.submission_limits set rules = null, changed_at = clock_timestamp(), changed_by = @actor
where ctid in (select at from l where declared)`)

	// declareLimits puts templates that declare rules among those with limits.
	declareLimits = pg.Compile(`
insert into tasker.submission_limits (namespace_id, template, changed_by)
select distinct s.namespace_id, n.name, @registered_by::text from ` + stmt.List[registeredTemplate]("n") + `
join tasker.namespaces s on s.name = n.namespace where n.template::jsonb ? 'submission'
on conflict (namespace_id, template) do update set template = excluded.template`)
)

// SubmissionLimits lists the limits by namespace and template, 10,000 at most; an empty
// namespace is all.
func (s *Registry) SubmissionLimits(ctx context.Context, namespace string) ([]SubmissionLimit, error) {
	type row struct {
		Namespace, Template, Version string
		Rules                        json.RawMessage
		ChangedAt                    time.Time
		ChangedBy                    string
	}
	rows, err := pg.ReadAll[row](ctx, s.db, "submission_limits", "list the submission limits", listSubmissionLimits.With(pg.Args{"namespace": namespace}))
	limits := make([]SubmissionLimit, len(rows))
	for i, r := range rows {
		limits[i] = SubmissionLimit{Namespace: r.Namespace, Template: r.Template, Version: r.Version, ChangedAt: r.ChangedAt, ChangedBy: r.ChangedBy}
		if err := json.Unmarshal(r.Rules, &limits[i].Rules); err != nil {
			return nil, fmt.Errorf("read the limits of %s/%s: %w", r.Namespace, r.Template, err)
		}
	}
	return limits, err
}

// SetSubmissionLimit sets the rules of a template, which count instead of those that its
// versions declare, or without any deletes them, and records it: every creation that begins
// after it is subject to them. The error wraps ErrNotFound where there is no such template,
// or no limit to delete.
func (s *Registry) SetSubmissionLimit(ctx context.Context, namespace, template string, rules admission.Rules, by pg.OperatorAction) error {
	_, _, err := pg.Recorded(ctx, s.db, "set_submission_limit", "set the submission limit", by, "",
		func(ctx context.Context, tx pgx.Tx) (changed json.RawMessage, target map[string]any, err error) {
			args := pg.Args{"namespace": namespace, "template": template}
			if rules == (admission.Rules{}) {
				changed, err = pg.OneOf[json.RawMessage](ctx, tx, lockSubmissionLimit.With(args))
				if err == nil {
					_, err = pg.Run(ctx, tx, endSubmissionLimit.With(args.And(pg.Args{"actor": by.Actor})))
				}
			} else {
				text, failed := json.Marshal(rules)
				if failed != nil {
					return nil, nil, fmt.Errorf("write the rules: %w", failed)
				}
				changed, err = pg.OneOf[json.RawMessage](ctx, tx, setSubmissionLimit.With(args.And(pg.Args{"rules": string(text), "actor": by.Actor})))
			}
			return changed, map[string]any{"namespace": namespace, "template": template, "rules": changed}, err
		})
	return err
}
