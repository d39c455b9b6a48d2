package store

import (
	"context"
	"encoding/json"
	"fmt"
)

// OperatorAction is an action of an operator, or a dry run of one.
type OperatorAction struct {
	Actor            string
	Action           string // such as cancel or pause_namespace
	Reason           string
	Target           any // the selection, written as JSON
	Matched, Changed int // numbers of selected and changed items
	DryRun           bool
}

var recordAction = compile(`
insert into tasker.operator_actions (actor, action, reason, target, matched, changed, dry_run)
values (@actor, @action, @reason, @target, @matched, @changed, @dry_run)`)

// insertAction is RecordAction on a connection or in a transaction.
func insertAction(ctx context.Context, db execer, a OperatorAction) error {
	target := []byte(`{}`)
	if a.Target != nil {
		var err error
		if target, err = json.Marshal(a.Target); err != nil {
			return fmt.Errorf("encode the target of the action: %w", err)
		}
	}
	_, err := run(ctx, db, recordAction.With(args{"actor": a.Actor, "action": a.Action, "reason": a.Reason, "target": string(target),
		"matched": a.Matched, "changed": a.Changed, "dry_run": a.DryRun}))
	return err
}
