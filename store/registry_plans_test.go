package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
)

// TestPlansMadeWithFewTemplatesHold: a fleet begins with one or two templates, and its
// connections keep the plans made then. With thousands of templates a statement that
// reads all to find one would do so for each of its tasks.
func TestPlansMadeWithFewTemplatesHold(t *testing.T) {
	t.Parallel()
	const items = 20
	small := fixture{finished: 100, waiting: 200}
	big := fixture{from: small.finished + small.waiting, finished: 1000, waiting: 5000, grown: true}
	for name, set := range map[string]struct {
		more       func(fixture, *testing.T, *pgtest.DB)
		statements func(fixture, *testing.T, *pgtest.DB, int) []hotStatement
	}{
		"steps":      {func(fixture, *testing.T, *pgtest.DB) {}, fixture.hotStatements},
		"operations": {fixture.fillOperations, fixture.operationStatements},
		"waits":      {fixture.fillWaits, fixture.waitStatements},
		"registry":   {fixture.fillRegistryUse, fixture.registryStatements},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openPlans(t)
			small.fill(t, db)
			set.more(small, t, db)
			old := newExplainer(t, db.DSN, "force_generic_plan")
			for _, c := range set.statements(small, t, db, 1) {
				old.execute(t, c)
			}
			fillRegistry(t, db)
			big.fill(t, db)
			set.more(big, t, db)
			for _, c := range set.statements(big, t, db, items) {
				t.Run(c.name, func(t *testing.T) { old.checkRegistry(t, c) })
			}
		})
	}
}

const otherTemplates = 3000

// fillRegistry adds other namespaces and many versions of the fixture's template. In
// every index they precede those that are looked up.
func fillRegistry(t *testing.T, db *pgtest.DB) {
	db.Exec(t, `insert into tasker.namespaces (namespace_id, name) overriding system value
		select -i, 'a' || i from generate_series(1, $1::int) i`, otherTemplates)
	db.Exec(t, `insert into tasker.plans (plan_id, namespace_id, name, version, environment, content_hash, steps, template, current) overriding system value
		select -i, 1, 'p', '0.0.' || i, 'test', sha256(i::text::bytea), '{a,b}', '{}', true from generate_series(1, $1::int) i`, otherTemplates)
}

// fillRegistryUse adds rows that refer to namespaces.
func (f fixture) fillRegistryUse(t *testing.T, db *pgtest.DB) {
	f.fillOperations(t, db)
	f.fillWaits(t, db)
	db.Exec(t, `insert into tasker.event_consumers (namespace_id, name, patterns, position)
		select 1, 'c' || i, '{}', 0 from generate_series($1::int, $2::int) i`, f.from+1, f.from+20)
}

// checkRegistry executes a statement and bounds the templates and namespaces that it
// reads.
func (e *explainer) checkRegistry(t *testing.T, c hotStatement) {
	everywhere := slices.Contains([]string{"queueDepth", "attention", "stuck"}, c.name)
	if c.name == "queueDepth" {
		c.touched += otherTemplates
	}
	plans, took := e.explain(t, c)
	rows := map[string]float64{}
	for i := range plans {
		plans[i].walk(func(n *planNode) { rows[n.Relation] += n.rows() })
	}
	t.Logf("%.0f templates, %.0f namespaces, %v", rows["plans"], rows["namespaces"], took.Round(100*time.Microsecond))
	for _, table := range []string{"plans", "namespaces"} {
		limit := 2 * c.items
		if table == "namespaces" && everywhere { // the others, and their signals
			limit += 2 * otherTemplates
		}
		if rows[table] > float64(limit) {
			t.Errorf("walks over %.0f rows of %s in\n%s", rows[table], table, e.plans)
		}
	}
}

// registryStatements are those that look up templates and namespaces, and are checked
// only here.
func (f fixture) registryStatements(t *testing.T, db *pgtest.DB, items int) []hotStatement {
	first := f.from + f.finished + 1
	task := uuid.MustParse(db.QueryString(t, `select test_id($1)::text`, first))
	scheduled := uuid.MustParse(db.QueryString(t, `select min(schedule_uuid::text) from tasker.schedules where schedule_uuid > test_id($1)`, f.from))
	approval := uuid.MustParse(db.QueryString(t, fmt.Sprintf(`with a as (
		update tasker.board set awaits = 'a' || awaits, claimed_at = now() where slot = 9 and awaits like 'e%%'
			and task_uuid in (select task_uuid from tasker.board where slot = 9 and awaits like 'e%%' and task_uuid >= test_id(%d) order by 1 limit %d)
		returning task_uuid) select min(task_uuid::text) from a`, first, items)))
	require.NotEqual(t, uuid.Nil, approval)
	return []hotStatement{
		{"plansByName", plansByName.With(args{"w": slices.Repeat([]versionName{{"big", "p", "1.0.0"}}, items)}), items, items},
		{"planNamed", planNamed.With(args{"namespace": "big", "name": "p", "version": "1.0.0"}), 1, 1},
		{"readPlan", readPlan.With(args{"plan_id": 1}), 1, 1},
		{"approvals of all", listApprovals.With(args{"limit": items, "namespace": ""}), items, items},
		{"approvals of a namespace", listApprovals.With(args{"limit": items, "namespace": "big"}), items, items},
		{"approvals of a task", taskApprovals.With(args{"limit": items, "namespace": "big", "task": approval}), 1, 1},
		{"listTaskEvents", listTaskEvents.With(args{"namespace": "big", "after": int64(0), "patterns": []string{}, "scan": items, "limit": items, "task": task}), 1, 1},
		{"addressOfTask", addressOfTask.With(args{"task": task}), 1, 1},
		{"reprioritise", reprioritise.With(args{"task": task, "priority": 1, "lane": 200, "started_lane": 200, "actor": "a", "reason": "r"}), 1, 1},
		{"scheduled", lockSchedule.With(args{"schedule": scheduled}), 1, 1},
		{"pauseSchedule", pauseSchedule.With(args{"schedule": scheduled, "actor": "a", "reason": "r"}), 1, 1},
		{"readSchedule", readSchedule.With(args{"schedule": scheduled}), 1, 1},
		{"readConsumer", readConsumer.With(args{"name": fmt.Sprint("c", f.from+1)}), 1, 1},
		{"readConsumers", readConsumers.With(args{"limit": items}), items, items},
		{"watchTask", watchTask.With(args{"task": task}), 1, 1},
	}
}
