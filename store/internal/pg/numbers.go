package pg

import (
	"context"
	"encoding/json"
	"fmt"
)

// The states of the board's rows.
const (
	BoardScheduled int16 = iota + 1 // or waiting
	BoardClaimable
	BoardInProgress
	boardReported
)

// EngineQueue is the queue of steps that the engine runs: no worker claims from it,
// whatever the task's namespace.
const EngineQueue = 0

// The kinds of messages about tasks, as in the column.
const (
	MessageEnded        int16 = iota + 1 // it has ended and has dependents
	messageStop                          // cancel it, its step was called off
	MessageDependencies                  // check its dependencies
	MessageFailed                        // cancel it, a dependency has failed
)

// The advisory locks of the product have one class; their objects are callables, or this.
const (
	TurnLock        = 0x7461736b
	EventTurnObject = -3
)

// WorkerStatus is the fleet's judgement of a worker. The numbers are stored.
type WorkerStatus int16

// The statuses. A dead worker stays dead: its process registers again under a new UUID.
const (
	WorkerActive WorkerStatus = iota + 1
	WorkerStale
	WorkerDead
)

var workerStatusNames = [...]string{WorkerActive: "active", WorkerStale: "stale", WorkerDead: "dead"}

// String is the name used in JSON and metrics.
func (s WorkerStatus) String() string {
	if s <= 0 || int(s) >= len(workerStatusNames) {
		return fmt.Sprintf("unknown worker status %d", int(s))
	}
	return workerStatusNames[s]
}

// Resolution is the outcome of a dead letter. The numbers are stored.
type Resolution int16

// The resolutions.
const (
	ResolutionPending Resolution = iota + 1
	ResolutionManuallyResolved
	ResolutionPermanentlyFailed
	ResolutionCancelled
)

var resolutionNames = [...]string{
	ResolutionPending: "pending", ResolutionManuallyResolved: "manually_resolved",
	ResolutionPermanentlyFailed: "permanently_failed", ResolutionCancelled: "cancelled",
}

// AllResolutions lists all resolutions.
func AllResolutions() []Resolution {
	return []Resolution{ResolutionPending, ResolutionManuallyResolved, ResolutionPermanentlyFailed, ResolutionCancelled}
}

// String is the snake_case name.
func (r Resolution) String() string {
	if r <= 0 || int(r) >= len(resolutionNames) {
		return fmt.Sprintf("unknown resolution %d", int(r))
	}
	return resolutionNames[r]
}

// OperatorAction is an action of an operator, or a dry run of one.
type OperatorAction struct {
	Actor            string
	Action           string // such as cancel or pause_namespace
	Reason           string
	Target           any // the selection, written as JSON
	Matched, Changed int // numbers of selected and changed items
	DryRun           bool
}

var recordAction = Compile(`
insert into tasker.operator_actions (actor, action, reason, target, matched, changed, dry_run)
values (@actor, @action, @reason, @target, @matched, @changed, @dry_run)`)

// InsertAction is RecordAction on a connection or in a transaction.
func InsertAction(ctx context.Context, db Execer, a OperatorAction) error {
	target := []byte(`{}`)
	if a.Target != nil {
		var err error
		if target, err = json.Marshal(a.Target); err != nil {
			return fmt.Errorf("encode the target of the action: %w", err)
		}
	}
	_, err := Run(ctx, db, recordAction.With(Args{"actor": a.Actor, "action": a.Action, "reason": a.Reason, "target": string(target),
		"matched": a.Matched, "changed": a.Changed, "dry_run": a.DryRun}))
	return err
}
