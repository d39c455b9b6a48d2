package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/admission"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
)

// SubmissionLimit has the rules for how often tasks of a template are submitted.
type SubmissionLimit struct {
	Namespace, Template string
	admission.Rules     `sql:"-"`
	ChangedAt           time.Time
	ChangedBy           string
}

// storedSubmissionLimit is a SubmissionLimit as it is read.
type storedSubmissionLimit struct {
	Namespace, Template string
	Rules               json.RawMessage
	ChangedAt           time.Time
	ChangedBy           string
}

func (l *storedSubmissionLimit) limit() (SubmissionLimit, error) {
	limit := SubmissionLimit{Namespace: l.Namespace, Template: l.Template, ChangedAt: l.ChangedAt, ChangedBy: l.ChangedBy}
	if err := json.Unmarshal(l.Rules, &limit.Rules); err != nil {
		return limit, fmt.Errorf("read the limits of %s/%s: %w", l.Namespace, l.Template, err)
	}
	return limit, nil
}

const submissionLimitColumns = `n.name as namespace, l.template, l.rules, l.changed_at, l.changed_by`

// Index: the primary keys; the unique names.
var (
	listSubmissionLimits = pg.Compile(`
select ` + submissionLimitColumns + ` from tasker.submission_limits l join tasker.namespaces n using (namespace_id)
where @namespace::text = '' or n.name = @namespace order by n.name, l.template limit 10000`)

	setSubmissionLimit = pg.Compile(`
with n as (
    select namespace_id, name from tasker.namespaces n
    where name = @namespace and exists (select from tasker.plans p where p.namespace_id = n.namespace_id and p.name = @template)
), l as (
    insert into tasker.submission_limits as l (namespace_id, template, rules, changed_by)
    select namespace_id, @template, @rules::jsonb, @actor::text from n
    on conflict (namespace_id, template) do update
    set rules = excluded.rules, changed_at = clock_timestamp(), changed_by = excluded.changed_by
    returning l.*
)
select ` + submissionLimitColumns + ` from l join n using (namespace_id)`)

	deleteSubmissionLimit = pg.Compile(`
delete from tasker.submission_limits l using tasker.namespaces n
where n.namespace_id = l.namespace_id and n.name = @namespace and l.template = @template
returning ` + submissionLimitColumns)
)

// SubmissionLimits lists the limits by namespace and template, 10,000 at most; an empty
// namespace is all.
func (s *Registry) SubmissionLimits(ctx context.Context, namespace string) ([]SubmissionLimit, error) {
	stored, err := pg.ReadAll[storedSubmissionLimit](ctx, s.db, "submission_limits", "list the submission limits", listSubmissionLimits.With(pg.Args{"namespace": namespace}))
	limits := make([]SubmissionLimit, len(stored))
	for i := range stored {
		if limits[i], err = stored[i].limit(); err != nil {
			break
		}
	}
	return limits, err
}

// SetSubmissionLimit sets the rules of a template, or without any deletes them, and records
// it: every creation that begins after it is subject to them. The error wraps ErrNotFound
// where there is no such template, or no limit to delete.
func (s *Registry) SetSubmissionLimit(ctx context.Context, namespace, template string, rules admission.Rules, by pg.OperatorAction) error {
	_, _, err := pg.Recorded(ctx, s.db, "set_submission_limit", "set the submission limit", by, "",
		func(ctx context.Context, tx pgx.Tx) (storedSubmissionLimit, map[string]any, error) {
			change, args := deleteSubmissionLimit, pg.Args{"namespace": namespace, "template": template}
			if rules != (admission.Rules{}) {
				text, err := json.Marshal(rules)
				if err != nil {
					return storedSubmissionLimit{}, nil, fmt.Errorf("write the rules: %w", err)
				}
				change, args["rules"], args["actor"] = setSubmissionLimit, string(text), by.Actor
			}
			l, err := pg.OneOf[storedSubmissionLimit](ctx, tx, change.With(args))
			return l, map[string]any{"namespace": namespace, "template": template, "rules": l.Rules}, err
		})
	return err
}
