package store

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
)

// usePlan marks the current plan of a version as used.
// Index: plans_current, plan_uses_plan.
const usePlan = `select plan_id, settled from tasker.plan_for_use($1, $2, $3)`

// planForUse returns the plan that tasks of plan's version are created by, and
// whether that is so even if the transaction is rolled back.
func planForUse(ctx context.Context, db querier, plan *Plan) (chosen int32, settled bool, err error) {
	rows, err := db.Query(ctx, usePlan, plan.Queue, plan.Template.Name, plan.Template.Version)
	if err != nil {
		return 0, false, err
	}
	type use struct {
		plan    int32
		settled bool
	}
	u, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (u use, err error) { return u, row.Scan(&u.plan, &u.settled) })
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	return u.plan, u.settled, err
}

// UsePlan must be called before tasks are created with a plan that PlanNamed returned.
// After it no registration changes the content of its version, unless the fleet allows
// that. It returns the plan to use, which is another one if a registration has replaced
// it, or ErrNotFound if the version was deleted.
func (s *Store) UsePlan(ctx context.Context, plan *Plan) (*Plan, error) {
	if plan.used.Load() {
		return plan, nil
	}
	err := s.repeatable(ctx, "use_plan", "use the plan", func(ctx context.Context, db *conn) error {
		chosen, _, err := planForUse(ctx, db, plan)
		if err == nil && chosen != plan.ID {
			plan, err = s.planOn(ctx, db, chosen)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	plan.used.Store(true)
	return plan, nil
}

// TemplateVersion is the registry's data about a version besides its content.
type TemplateVersion struct {
	Hash         string // SHA-256 of the content, in hex
	RegisteredBy string // "" if unknown
	RegisteredAt time.Time
	Used         bool       // by tasks
	DeprecatedAt *time.Time // nil: not deprecated
}

// TemplateVersion reads the registry's data about a plan; the error wraps ErrNotFound if
// it does not exist.
// Index: the primary key, plan_uses_plan.
func (s *Store) TemplateVersion(ctx context.Context, plan int32) (v TemplateVersion, err error) {
	err = s.repeatable(ctx, "template_version", "read the template version", func(ctx context.Context, db *conn) error {
		var hash []byte
		err := db.QueryRow(ctx, `
			select content_hash, registered_by, created_at, exists (select from tasker.plan_uses u where u.plan_id = p.plan_id), deprecated_at
			from tasker.plans p where plan_id = $1`, plan).Scan(&hash, &v.RegisteredBy, &v.RegisteredAt, &v.Used, &v.DeprecatedAt)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotFound
		}
		v.Hash = hex.EncodeToString(hash)
		return err
	})
	return v, err
}

// DeprecateVersion excludes a template version from the choice for requests without a
// version, or includes it again, and records the operator. The signals are to publish,
// unless the store sends them itself. The error wraps ErrNotFound if the version does not
// exist.
func (s *Store) DeprecateVersion(ctx context.Context, namespace, name, version string, deprecated bool, by OperatorAction) (signals []signal.Signal, err error) {
	by.Target, by.Matched = map[string]any{"namespace": namespace, "name": name, "version": version}, 1
	err = s.call(ctx, "deprecate_version", "deprecate the template version", func(ctx context.Context, db *conn) error {
		return s.inTxThenNotify(ctx, db, func(tx pgx.Tx) ([]signal.Signal, error) {
			// A version registered concurrently would miss it.
			if err := (*registration)(nil).take(ctx, tx); err != nil {
				return nil, err
			}
			tag, err := tx.Exec(ctx, `
				update tasker.plans p set deprecated_at = case when $4 then coalesce(p.deprecated_at, now()) end
				from tasker.namespaces n
				where n.name = $1 and p.namespace_id = n.namespace_id and p.name = $2 and p.version = $3
				  and exists (select from tasker.plans c where c.namespace_id = p.namespace_id and c.name = p.name and c.version = p.version and c.current)`,
				namespace, name, version, deprecated)
			if err != nil {
				return nil, err
			}
			if tag.RowsAffected() == 0 {
				return nil, fmt.Errorf("%w: template %s/%s:%s", ErrNotFound, namespace, name, version)
			}
			by.Changed = 1
			signals = []signal.Signal{{Topic: signal.TopicControl}}
			return signals, insertAction(ctx, tx, by)
		})
	})
	s.ForgetPlanNames() // also of a transaction that was rolled back
	return signals, err
}
