package operations

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

// AuditRecord is the record of an operator's action.
type AuditRecord struct {
	ActionID         int64
	At               time.Time
	Actor            string
	Action           string
	Reason           string
	Target           json.RawMessage
	Matched, Changed int
	DryRun           bool
}

// AuditPlace is a place in the order of records.
type AuditPlace struct {
	At       time.Time
	ActionID int64
}

// AuditFilter selects records; zero values select all.
type AuditFilter struct {
	Actor, Action string
	Namespace     string     // what is of this namespace alone
	Since, Until  *time.Time // from then on; before then
	Before        *AuditPlace
	Limit         int
}

// AuditPage is a part of the list of records, newest first. It may be short of its limit though more
// follow.
type AuditPage struct {
	Records []AuditRecord
	Next    *AuditPlace // nil: no more follow
}

// auditLook bounds the records that are read for one page: what few of many fit takes several requests.
const auditLook = 5000

// Each list reads the records that one of its conditions selects, in the order of an index, up to a
// bound, and of these shows those that the others do. The last row is where the look has ended.
// Index: operator_actions_by_namespace, operator_actions_by_actor, operator_actions_by_action; operator_actions_at.
var (
	auditOfNamespace = auditList(`target ->> 'namespace' = @namespace and`)
	auditOfActor     = auditList(`actor = @actor and`)
	auditOfAction    = auditList(`action = @action and`)
	auditOfAll       = auditList(``)
)

// auditList is the list whose look has a condition.
func auditList(condition string) *stmt.Statement {
	return pg.Compile(`
with looked as materialized (
    select action_id, at, actor, action, reason, target, matched, changed, dry_run from tasker.operator_actions
    where ` + condition + ` at >= @since::timestamptz and at < @until::timestamptz and (at, action_id) < (@place_at::timestamptz, @place_id::bigint)
    order by at desc, action_id desc limit @look
), shown as (
    select *, true as fits from looked
    where (@actor::text = '' or actor = @actor) and (@action::text = '' or action = @action)
      and (@namespace::text = '' or target ->> 'namespace' = @namespace)
    order by at desc, action_id desc limit @limit
), ended as (
    select *, false as fits from looked where (select count(*) from looked) >= @look order by at, action_id limit 1
)
select action_id, at, actor, action, reason, target, matched, changed, dry_run, fits from shown
union all
select action_id, at, '', '', '', '{}', 0, 0, false, fits from ended order by fits desc, at desc, action_id desc`)
}

// The bounds of times where a filter has none. Both are beyond all records.
var (
	firstAudit = time.Unix(0, 0).UTC()
	lastAudit  = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
)

// list is the statement for a filter. That of a namespace reads nothing else: the place at which a
// page ends is shown.
func (f *AuditFilter) list() *stmt.Statement {
	switch {
	case f.Namespace != "":
		return auditOfNamespace
	case f.Actor != "":
		return auditOfActor
	case f.Action != "":
		return auditOfAction
	}
	return auditOfAll
}

func (f *AuditFilter) args() pg.Args {
	since, until, place := firstAudit, lastAudit, AuditPlace{At: lastAudit}
	if f.Since != nil {
		since = *f.Since
	}
	if f.Until != nil {
		until = *f.Until
	}
	if f.Before != nil {
		place = *f.Before
	}
	return pg.Args{"actor": f.Actor, "action": f.Action, "namespace": f.Namespace, "since": since, "until": until,
		"place_at": place.At, "place_id": place.ActionID, "limit": f.Limit + 1, "look": auditLook}
}

// Audit lists records of operators' actions, newest first.
func (s *Operations) Audit(ctx context.Context, f AuditFilter) (page AuditPage, err error) {
	type row struct {
		AuditRecord
		Fits bool
	}
	rows, err := pg.ReadAll[row](ctx, s.db, "audit", "list the actions of operators", f.list().With(f.args()))
	if err != nil {
		return page, err
	}
	for i := range rows {
		switch r := &rows[i]; {
		case r.Fits && len(page.Records) == f.Limit:
			last := page.Records[f.Limit-1]
			page.Next = &AuditPlace{last.At, last.ActionID}
			return page, nil
		case r.Fits:
			page.Records = append(page.Records, r.AuditRecord)
		default:
			page.Next = &AuditPlace{r.At, r.ActionID}
		}
	}
	return page, nil
}
