package store

import "fmt"

// The states of the board's rows.
const (
	boardScheduled int16 = iota + 1 // or waiting
	boardClaimable
	boardInProgress
	boardReported
)

// engineQueue is the queue of steps that the engine runs: no worker claims from it,
// whatever the task's namespace.
const engineQueue = 0

// The kinds of messages about tasks, as in the column.
const (
	messageEnded        int16 = iota + 1 // it has ended and has dependents
	messageStop                          // cancel it, its step was called off
	messageDependencies                  // check its dependencies
	messageFailed                        // cancel it, a dependency has failed
)

// The advisory locks of the product have one class; their objects are callables, or this.
const (
	turnLock        = 0x7461736b
	eventTurnObject = -3
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

// allResolutions lists all resolutions.
func allResolutions() []Resolution {
	return []Resolution{ResolutionPending, ResolutionManuallyResolved, ResolutionPermanentlyFailed, ResolutionCancelled}
}

// String is the snake_case name.
func (r Resolution) String() string {
	if r <= 0 || int(r) >= len(resolutionNames) {
		return fmt.Sprintf("unknown resolution %d", int(r))
	}
	return resolutionNames[r]
}
