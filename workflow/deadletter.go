package workflow

// DeadLetterReason is why a dead-letter entry was created. The numbers are stored.
type DeadLetterReason int16

// The reasons of the API; the detail of an entry says what exactly happened.
const (
	DeadLetterStaleness         DeadLetterReason = iota + 1 // it did not move, or passed its deadline
	DeadLetterExhausted                                     // a step failed for good
	DeadLetterCycle                                         // its steps wait for each other
	DeadLetterWorkerUnavailable                             // no worker ran a step to its end
	DeadLetterManual                                        // an operator created it
)

var deadLetterNames = [...]string{
	DeadLetterStaleness: "staleness_timeout", DeadLetterExhausted: "max_retries_exceeded",
	DeadLetterCycle: "dependency_cycle_detected", DeadLetterWorkerUnavailable: "worker_unavailable",
	DeadLetterManual: "manual_dlq",
}

// DeadLetterReasons lists all reasons.
func DeadLetterReasons() []DeadLetterReason {
	return []DeadLetterReason{DeadLetterStaleness, DeadLetterExhausted, DeadLetterCycle, DeadLetterWorkerUnavailable, DeadLetterManual}
}

// String is the snake_case name used in JSON and metrics.
func (r DeadLetterReason) String() string { return nameOf(deadLetterNames[:], int(r), "reason") }
