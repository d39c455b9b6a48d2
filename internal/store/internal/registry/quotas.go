package registry

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
)

// Quota is how many live tasks a namespace may have before new ones are refused.
type Quota struct {
	Namespace string
	MaxTasks  int
	// AppliesTo are those of QuotaKinds that the quota rejects beside submissions.
	AppliesTo []string
	// Tasks is the most that can be alive, apart from tasks that are never refused and were
	// created since CountedAt; nil: none was created under the quota.
	Tasks     *int64
	CountedAt *time.Time
	ChangedAt time.Time
	ChangedBy string
}

// The kinds of tasks that the engine creates, which a quota may apply to.
const (
	QuotaSubTasks  = "sub_tasks"
	QuotaNextTasks = "next_tasks"
	QuotaSchedules = "schedules"
)

// QuotaKinds are all of them.
var QuotaKinds = []string{QuotaSubTasks, QuotaNextTasks, QuotaSchedules}

const quotaColumns = `n.name as namespace, q.max_tasks, q.applies_to, case when q.counted_at > '-infinity' then q.counted + q.admitted end as tasks,
       nullif(q.counted_at, '-infinity') as counted_at, q.changed_at, q.changed_by`

// Index: the primary keys; the unique name.
var (
	listQuotas = pg.Compile(`
select ` + quotaColumns + ` from tasker.quotas q join tasker.namespaces n using (namespace_id) order by n.name limit 10000`)

	setQuota = pg.Compile(`
with n as (
    select namespace_id, name from tasker.namespaces where name = @namespace
), q as (
    insert into tasker.quotas as q (namespace_id, max_tasks, applies_to, counted, changed_by)
    select namespace_id, @max_tasks::int, @applies_to::text[], 1000000000, @actor::text from n -- the first creation counts
    on conflict (namespace_id) do update
    set max_tasks = excluded.max_tasks, applies_to = excluded.applies_to, changed_at = clock_timestamp(), changed_by = excluded.changed_by
    returning q.*
)
select ` + quotaColumns + ` from q join n using (namespace_id)`)

	deleteQuota = pg.Compile(`
with additions as (
    delete from tasker.quota_additions a using tasker.namespaces n where n.namespace_id = a.namespace_id and n.name = @namespace
)
delete from tasker.quotas q using tasker.namespaces n where n.namespace_id = q.namespace_id and n.name = @namespace
returning ` + quotaColumns)
)

// Quotas lists the quotas by namespace, 10,000 at most.
func (s *Registry) Quotas(ctx context.Context) ([]Quota, error) {
	return pg.ReadAll[Quota](ctx, s.db, "quotas", "list the quotas", listQuotas.With(nil))
}

// SetQuota gives a namespace a quota and records it: every creation that begins after it
// is subject to it. appliesTo are of QuotaKinds. The error wraps ErrNotFound where there is no
// such namespace.
func (s *Registry) SetQuota(ctx context.Context, namespace string, maxTasks int, appliesTo []string, by pg.OperatorAction) (Quota, error) {
	set := map[string]any{"namespace": namespace, "max_tasks": maxTasks}
	if len(appliesTo) > 0 {
		set["applies_to"] = appliesTo
	}
	q, _, err := pg.Recorded(ctx, s.db, "set_quota", "set the quota", by, "", func(ctx context.Context, tx pgx.Tx) (Quota, map[string]any, error) {
		q, err := pg.OneOf[Quota](ctx, tx, setQuota.With(pg.Args{"namespace": namespace, "max_tasks": maxTasks,
			"applies_to": append([]string{}, appliesTo...), "actor": by.Actor}))
		return q, set, err
	})
	return q, err
}

// DeleteQuota takes the quota of a namespace away, and records it. The error wraps
// ErrNotFound where there is none.
func (s *Registry) DeleteQuota(ctx context.Context, namespace string, by pg.OperatorAction) (Quota, error) {
	q, _, err := pg.Recorded(ctx, s.db, "delete_quota", "delete the quota", by, "", func(ctx context.Context, tx pgx.Tx) (Quota, map[string]any, error) {
		q, err := pg.OneOf[Quota](ctx, tx, deleteQuota.With(pg.Args{"namespace": namespace}))
		return q, map[string]any{"namespace": namespace}, err
	})
	return q, err
}
