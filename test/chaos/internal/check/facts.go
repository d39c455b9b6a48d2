// Package check compares the product's records with the orders and with the handlers' own
// ledger.
//
// Reading order: facts.go (what is known), check.go (the rules), load.go (where the facts
// come from).
package check

import (
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/test/chaos/internal/ledger"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
)

// Facts are the data known at the end of a run.
type Facts struct {
	Ordered    []workload.Accepted
	Executions []ledger.Execution
	// Stopped are the instances of workers that were asked to stop, and so may have
	// handed back steps that had begun.
	Stopped map[string]bool

	Tasks    []Task
	Attempts []Attempt
	// Booked are the claims that have written a row in the transaction of their
	// end.
	Booked []int64
	// Left is the content of the board, in words.
	Left []string
	// Integrity is the result of the product's own check, and Checked the number of tasks
	// checked.
	Integrity []string
	Checked   int
}

// Task is a task on record.
type Task struct {
	ID    uuid.UUID
	Key   string // idempotency key
	Flow  string
	State string
	Began time.Time // when it was accepted
	Ended time.Time // zero: not ended
}

// The outcomes of attempts, as they are stored.
const (
	Success   = 1
	Failed    = 2
	Error     = 3
	LeaseLost = 4
	Cancelled = 5
)

// Attempt is the end of a claim on record.
type Attempt struct {
	Task                       uuid.UUID
	Flow, Step                 string
	Attempt                    int
	Token                      int64
	Outcome                    int
	Reason                     string
	ProcessLost                bool // it failed since the process was lost that ran it
	Claimed, Reported, Applied time.Time
	Result                     *workload.Result // of a success
}
