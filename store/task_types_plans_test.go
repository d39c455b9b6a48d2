package store

import (
	"testing"
)

// TestTaskTypeStatementsStayOnTheirIndexes: also with plans made while there were few
// types.
func TestTaskTypeStatementsStayOnTheirIndexes(t *testing.T) {
	t.Parallel()
	db := openPlans(t)
	db.Exec(t, `insert into tasker.namespaces (name) values ('big'), ('other')`)
	fill := func(first, last int) {
		db.Exec(t, `with named as (
				insert into tasker.plans (namespace_id, name, version, environment, content_hash, steps, template, current)
				select 1 + i % 2, 't' || i, '1.0.0', '', sha256(i::text::bytea), '{a}', '{}', true from generate_series($1::int, $2::int) i returning *
			) insert into tasker.task_types (namespace_id, name, version, created_by, updated_by) select namespace_id, name, version, 'a', 'a' from named`,
			first, last)
	}
	statements := []hotStatement{
		{"planOfType", planOfType.With(args{"namespace": "big", "name": "t2"}), 1, 1},
		{"planOfType anywhere", planOfType.With(args{"namespace": "", "name": "t2"}), 2, 1},
		{"putTaskType", putTaskType.With(args{"namespace": "big", "name": "t2", "version": "1.0.0", "actor": "b"}), 1, 0},
		{"foreignTemplate", foreignTemplate.With(args{"namespace": "big", "name": "t2"}), 1, 1},
		{"deleteTaskType", deleteTaskType.With(args{"namespace": "big", "name": "none"}), 1, 0},
	}
	fill(1, 6)
	old := newExplainer(t, db.DSN, "force_generic_plan")
	for _, c := range statements {
		old.execute(t, c)
	}
	fill(7, 5000)
	for _, c := range statements {
		t.Run("planned when small/"+c.name, func(t *testing.T) { old.check(t, c) })
	}
	db.Exec(t, `analyze`)
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		e := newExplainer(t, db.DSN, mode)
		for _, c := range statements {
			t.Run(mode+"/"+c.name, func(t *testing.T) { e.check(t, c) })
		}
	}
}
