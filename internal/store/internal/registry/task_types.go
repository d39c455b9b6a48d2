package registry

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// Errors of task types.
var (
	// ErrNoTaskType: the name belongs to a template that is not a task type.
	ErrNoTaskType = errors.New("the template of this name is not a task type")
	// ErrVersionUsed: tasks have used the version with other content.
	ErrVersionUsed = errors.New("tasks have used this version with other content")
	// ErrTaskTypeAmbiguous: several namespaces have a task type of this name.
	ErrTaskTypeAmbiguous = errors.New("several namespaces have a task type of this name")
)

// TaskType is a template of one step that was registered over the API.
type TaskType struct {
	Plan                 *Plan // of the version that is enqueued
	CreatedAt, UpdatedAt time.Time
	CreatedBy, UpdatedBy string
}

const taskTypeColumns = planColumns + `, t.created_at, t.updated_at, t.created_by, t.updated_by
from tasker.task_types t join tasker.namespaces n using (namespace_id)
cross join lateral (
    select * from tasker.plans where namespace_id = t.namespace_id and name = t.name and current
    order by deprecated_at is null desc, version_key desc, version collate "C" desc limit 1) p`

var (
	// putTaskType makes a template a task type and returns who registered it last.
	// Index: the primary key; the unique name of the namespace.
	putTaskType = pg.Compile(`
insert into tasker.task_types (namespace_id, name, version, created_by, updated_by)
select namespace_id, @name, @version, @actor, @actor from tasker.namespaces where name = @namespace
on conflict (name, namespace_id) do update set version = excluded.version, updated_by = excluded.updated_by, updated_at = now()`)

	// foreignTemplate checks whether the name belongs to a template that is not a type.
	// Index: plans_current; the primary key.
	foreignTemplate = pg.Compile(`
select exists (select from tasker.plans p join tasker.namespaces n using (namespace_id)
               where n.name = @namespace and p.name = @name and p.current
                 and not exists (select from tasker.task_types t where t.namespace_id = p.namespace_id and t.name = p.name))`)

	// deleteTaskType deletes a type and hides its templates from new tasks; existing
	// tasks have their plans by number.
	deleteTaskType = pg.Compile(`
with gone as (
    delete from tasker.task_types t using tasker.namespaces n where n.namespace_id = t.namespace_id and n.name = @namespace and t.name = @name
    returning t.namespace_id, t.name
)
update tasker.plans p set current = false from gone g where p.namespace_id = g.namespace_id and p.name = g.name and p.current`)

	readTaskType  = pg.Compile(`select ` + taskTypeColumns + ` where t.name = @name and n.name = @namespace`)
	listTaskTypes = pg.Compile(`select ` + taskTypeColumns + ` where @namespace = '' or n.name = @namespace order by n.name, t.name limit @limit offset @offset`)
)

// taskTypeRow is a row of taskTypeColumns.
type taskTypeRow struct {
	planRow
	CreatedAt, UpdatedAt time.Time
	CreatedBy, UpdatedBy string
}

func (s *Registry) taskType(r taskTypeRow) (t TaskType, err error) {
	t = TaskType{CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, CreatedBy: r.CreatedBy, UpdatedBy: r.UpdatedBy}
	t.Plan, err = s.known.plans.compile(r.planRow)
	return t, err
}

// oneTaskType reads one task type, or ErrNotFound.
func (s *Registry) oneTaskType(ctx context.Context, db stmt.Querier, namespace, name string) (TaskType, error) {
	row, err := pg.OneOf[taskTypeRow](ctx, db, readTaskType.With(pg.Args{"namespace": namespace, "name": name}))
	if err != nil {
		return TaskType{}, err
	}
	return s.taskType(row)
}

// PutTaskType registers the template of a task type and records the operator. The
// signals, here and below, are to publish, unless the store sends them itself. The error
// wraps ErrNoTaskType if the name belongs to another template, and ErrVersionUsed if the
// version is immutable and has other content.
func (s *Registry) PutTaskType(ctx context.Context, template *workflow.Template, who Registrant, by pg.OperatorAction) (TaskType, []signal.Signal, error) {
	r, err := newRegistration(who, []*workflow.Template{template})
	if err != nil {
		return TaskType{}, nil, err
	}
	return s.changeTaskType(ctx, "put_task_type", "register the task type", template.Namespace, template.Name, by, func(tx pgx.Tx) (TaskType, error) {
		if err := r.take(ctx, tx); err != nil {
			return TaskType{}, err
		}
		foreign, err := stmt.One[bool](ctx, tx, foreignTemplate.With(pg.Args{"namespace": template.Namespace, "name": template.Name}))
		if err != nil {
			return TaskType{}, err
		}
		if foreign {
			return TaskType{}, ErrNoTaskType
		}
		registered, err := r.write(ctx, tx)
		if err != nil {
			return TaskType{}, err
		}
		if len(registered.Refused) > 0 {
			return TaskType{}, ErrVersionUsed
		}
		if _, err := pg.Run(ctx, tx, putTaskType.With(pg.Args{"namespace": template.Namespace, "name": template.Name,
			"version": template.Version, "actor": by.Actor})); err != nil {
			return TaskType{}, err
		}
		return s.oneTaskType(ctx, tx, template.Namespace, template.Name)
	})
}

// DeleteTaskType deletes a task type and returns it: no more tasks of it are created,
// existing ones continue. Other processes may cache its plan for some seconds. The error
// wraps ErrNotFound if it does not exist.
func (s *Registry) DeleteTaskType(ctx context.Context, namespace, name string, by pg.OperatorAction) (TaskType, []signal.Signal, error) {
	return s.changeTaskType(ctx, "delete_task_type", "delete the task type", namespace, name, by, func(tx pgx.Tx) (TaskType, error) {
		was, err := s.oneTaskType(ctx, tx, namespace, name)
		if err != nil {
			return was, err
		}
		if _, err = pg.Run(ctx, tx, deleteTaskType.With(pg.Args{"namespace": namespace, "name": name})); err == nil {
			r := registration{who: Registrant{ID: by.Actor}}
			_, err = r.declare(ctx, tx, &registeredTemplate{Namespace: namespace, Name: name, Steps: json.RawMessage("[]")}, &workflow.Template{})
		}
		return was, err
	})
}

// changeTaskType runs a change of one task type with its record, and signals that cached
// plan names are stale.
func (s *Registry) changeTaskType(ctx context.Context, flow, doing, namespace, name string, by pg.OperatorAction,
	change func(tx pgx.Tx) (TaskType, error)) (TaskType, []signal.Signal, error) {
	defer s.ForgetPlanNames() // also of a transaction that was rolled back
	return pg.Recorded(ctx, s.db, flow, doing, by, signal.TopicControl, func(_ context.Context, tx pgx.Tx) (TaskType, map[string]any, error) {
		t, err := change(tx)
		return t, map[string]any{"namespace": namespace, "name": name}, err
	})
}

// TaskType reads one task type; the error wraps ErrNotFound if it does not exist.
func (s *Registry) TaskType(ctx context.Context, namespace, name string) (TaskType, error) {
	return pg.Read(ctx, s.db, "task_type", "read the task type", func(ctx context.Context, db *pg.Conn) (TaskType, error) {
		return s.oneTaskType(ctx, db, namespace, name)
	})
}

// MaxTaskTypesShown bounds the list of task types.
const MaxTaskTypesShown = 1000

// TaskTypes lists the task types of a namespace, or of all, by namespace and
// name: from the one at offset on, up to limit.
func (s *Registry) TaskTypes(ctx context.Context, namespace string, limit, offset int) ([]TaskType, error) {
	rows, err := pg.ReadAll[taskTypeRow](ctx, s.db, "task_types", "list the task types",
		listTaskTypes.With(pg.Args{"namespace": namespace, "limit": limit, "offset": offset}))
	list := make([]TaskType, len(rows))
	for i := range rows {
		if list[i], err = s.taskType(rows[i]); err != nil {
			return nil, pg.Classify("list the task types", err)
		}
	}
	return list, err
}

// planOfType finds the plan of the highest version of a task type that is not deprecated,
// in all namespaces if none is named.
// Index: the primary keys, plans_highest.
var planOfType = pg.Compile(`select ` + planColumns + `
from tasker.task_types t join tasker.namespaces n using (namespace_id)
cross join lateral (
    select * from tasker.plans where namespace_id = t.namespace_id and name = t.name and current and deprecated_at is null
    order by version_key desc, version collate "C" desc limit 1) p
where t.name = @name and (@namespace = '' or n.name = @namespace) limit 2`)

// typeVersion stands for the enqueued version of a task type in the cache: no template
// has it.
const typeVersion = "\x00type"

// PlanOfType returns the plan of a task type. With an empty namespace the type must be
// unique; otherwise the error wraps ErrTaskTypeAmbiguous. It wraps ErrNotFound if the
// type does not exist.
func (s *Registry) PlanOfType(ctx context.Context, namespace, name string) (*Plan, error) {
	return s.known.plans.find(planKey{namespace, name, typeVersion}, func() (*Plan, error) {
		return pg.Read(ctx, s.db, "plan_of_type", "look for the task type", func(ctx context.Context, db *pg.Conn) (*Plan, error) {
			found, err := stmt.All[planRow](ctx, db, planOfType.With(pg.Args{"namespace": namespace, "name": name}))
			switch {
			case err != nil:
				return nil, err
			case len(found) == 0:
				return nil, pg.ErrNotFound
			case len(found) > 1:
				return nil, ErrTaskTypeAmbiguous
			}
			return s.known.plans.compile(found[0])
		})
	})
}
