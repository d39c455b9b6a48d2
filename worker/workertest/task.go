package workertest

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/events"
	"github.com/tasker-go/tasker/workflow"
)

// Task is the task that Play and PlayOn execute.
type Task struct {
	Namespace, Name, Version string // of a registered template; empty: those of the only one
	Environment              string // whose overrides hold
	Context                  any    // default {}
	Priority                 *int
	StartIn                  time.Duration
	// Now is when the task is created; default: the beginning of 2030, in UTC.
	Now time.Time
	// Events are sent while the task runs, Verdicts given to its approvals.
	Events   []Event
	Verdicts []Verdict
	// Limit is how long PlayOn waits for the end; default: a minute. Play waits for nothing.
	Limit time.Duration
}

// Event is sent to the task and the tasks that are its steps. As in the engine it is kept
// for the next step that waits for it, if none waits yet.
type Event struct {
	Name, Key string        // without a key it goes to steps that wait without one
	Payload   any           // default null
	After     time.Duration // since the creation of the task
}

// Verdict decides an approval.
type Verdict struct {
	Step           string
	Approved       bool
	Actor, Comment string        // Actor: default "workertest"
	Data           any           // nil: none
	After          time.Duration // since the step began to wait
}

// Outcome is how a task ended, or where it stands if it cannot move any more: it is
// blocked by failures, or waits for events or verdicts that the test does not send.
type Outcome struct {
	State   workflow.TaskState
	Reason  string        // of the latest change of the state; "" without one
	Took    time.Duration // from its creation to its latest change, on its own clock
	Steps   []StepOutcome // that exist, in the order of the template; batches at the end
	Waiting []string      // names of steps that wait for an event or a verdict
	// Attempts are those of all steps in the order in which they ended, with those of tasks
	// that are steps.
	Attempts []Attempt
	Next     []worker.NextTask // that handlers continued with; they are not executed
	Events   []events.Event    // that handlers' steps published, of tasks that are steps too
}

// StepOutcome is how a step ended.
type StepOutcome struct {
	Name     string
	State    workflow.StepState
	Attempts int
	Result   json.RawMessage // nil: none
	Failure  *Failure        // of the latest attempt, if it failed
	Isolated []Isolated
	Task     *Outcome // of a step of type task: the latest one
}

// Attempt is one attempt of a step.
type Attempt struct {
	Task, Step string        // names of the template and of the step
	No         int           // 1 for the first
	Executions int           // of the handler: one more than its yields; 0: the engine ran it
	Ended      time.Duration // since the creation of the first task
	Outcome    workflow.AttemptOutcome
}

// String names the attempt as "step#2 failed after 1s".
func (a Attempt) String() string {
	return fmt.Sprintf("%s#%d %s after %v", a.Step, a.No, a.Outcome, a.Ended)
}

// Step returns a step by its name; ok is false if it does not exist.
func (o *Outcome) Step(name string) (s StepOutcome, ok bool) {
	if i := slices.IndexFunc(o.Steps, func(s StepOutcome) bool { return s.Name == name }); i >= 0 {
		return o.Steps[i], true
	}
	return s, false
}

// Results are the results of the steps that have one, by name.
func (o *Outcome) Results() map[string]string {
	results := map[string]string{}
	for i := range o.Steps {
		if o.Steps[i].Result != nil {
			results[o.Steps[i].Name] = string(o.Steps[i].Result)
		}
	}
	return results
}
