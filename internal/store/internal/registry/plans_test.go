package registry

import (
	"testing"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/plantest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestPlansMadeWithFewTemplatesHold(t *testing.T) {
	plantest.FewTemplates(t, plantest.Nothing, func(plantest.Fixture, *testing.T, *pgtest.DB, int) []plantest.Statement {
		return []plantest.Statement{
			plantest.Of("planNamed", planNamed.With(pg.Args{"namespace": "big", "name": "p", "version": "1.0.0"}), 1, 1),
			plantest.Of("readPlan", readPlan.With(pg.Args{"plan_id": 1}), 1, 1),
		}
	})
}

// TestTaskTypeStatementsStayOnTheirIndexes: also with plans made while there were few
// types.
func TestTaskTypeStatementsStayOnTheirIndexes(t *testing.T) {
	t.Parallel()
	db := plantest.Open(t)
	db.Exec(t, `insert into tasker.namespaces (name) values ('big'), ('other')`)
	fill := func(first, last int) {
		db.Exec(t, `with named as (
				insert into tasker.plans (namespace_id, name, version, environment, content_hash, steps, template, current)
				select 1 + i % 2, 't' || i, '1.0.0', '', sha256(i::text::bytea), '{a}', '{}', true from generate_series($1::int, $2::int) i returning *
			) insert into tasker.task_types (namespace_id, name, version, created_by, updated_by) select namespace_id, name, version, 'a', 'a' from named`,
			first, last)
	}
	statements := []plantest.Statement{
		plantest.Of("planOfType", planOfType.With(pg.Args{"namespace": "big", "name": "t2"}), 1, 1),
		plantest.Of("planOfType anywhere", planOfType.With(pg.Args{"namespace": "", "name": "t2"}), 2, 1),
		plantest.Of("putTaskType", putTaskType.With(pg.Args{"namespace": "big", "name": "t2", "version": "1.0.0", "actor": "b"}), 1, 0),
		plantest.Of("foreignTemplate", foreignTemplate.With(pg.Args{"namespace": "big", "name": "t2"}), 1, 1),
		plantest.Of("deleteTaskType", deleteTaskType.With(pg.Args{"namespace": "big", "name": "none"}), 1, 0),
	}
	fill(1, 6)
	old := plantest.NewExplainer(t, db.DSN, "force_generic_plan")
	for _, c := range statements {
		old.Execute(t, c)
	}
	fill(7, 5000)
	for _, c := range statements {
		t.Run("planned when small/"+c.Name, func(t *testing.T) { old.Check(t, c) })
	}
	db.Exec(t, `analyze`)
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		e := plantest.NewExplainer(t, db.DSN, mode)
		for _, c := range statements {
			t.Run(mode+"/"+c.Name, func(t *testing.T) { e.Check(t, c) })
		}
	}
}
