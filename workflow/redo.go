package workflow

import "fmt"

// ActionReplayIsolated is the name, in the records, of processing isolated items of a task
// again in a new one.
const ActionReplayIsolated = "replay_isolated"

// RedoError says why a task cannot be repeated from its batches. Its text is for the
// operator.
type RedoError struct{ Problem string }

// Error implements error.
func (e *RedoError) Error() string { return e.Problem }

// RedoBatches returns the operations that bring a new task of the plan to where an old one
// has made a group of batches: steps completed in the old one, except the step that made the
// batches and its dependents, are done in the new one too, and do not run again. Operations
// that complete a step need its result; the last one completes the step that makes the
// batches. The error is a *RedoError.
func (p *Plan) RedoBatches(old *Progress, g *Group) ([]Operation, error) {
	below := p.descendants(g.Batchable)
	var list []Operation
	for no := range p.Steps { // parents have smaller numbers
		step, status := &p.Steps[no], old.Steps[no].Status
		switch {
		case no == g.Batchable, below[no], status == StatusNotCreated, step.Kind == KindCompensation:
			continue
		case step.Compensation != "":
			return nil, &RedoError{fmt.Sprintf("step %s has a compensation, and what it did belongs to the old task: a new one must not undo it", step.Name)}
		case status == StatusComplete && step.Kind != KindBatchable:
			list = append(list, Operation{Action: ActionComplete, Step: no})
		case status.Satisfies(): // other batches are not repeated
			list = append(list, Operation{Action: ActionResolve, Step: no})
		default:
			return nil, &RedoError{fmt.Sprintf("step %s is %s; what does not follow the batches must be complete", step.Name, status)}
		}
	}
	return append(list, Operation{Action: ActionComplete, Step: g.Batchable}), nil
}
