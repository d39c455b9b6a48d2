package orchestration

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// Ending is the outcome of a reported end.
type Ending struct {
	// Accepted is false if the claim is lost; then nothing has changed.
	Accepted bool
	// State is that of the task after the decision. Zero: the end is recorded, and an
	// orchestrator decides in a moment.
	State workflow.TaskState
}

// End records the ends of executions and decides at once what follows, in one transaction and
// two round trips whatever their number. The answer has one entry per report, in order. After
// an error, all or none of them may be recorded: recorded ones are not accepted when sent again.
func (o *Orchestrator) End(ctx context.Context, reports []store.Report) ([]Ending, error) {
	endings := make([]Ending, len(reports))
	taken, accepted, err := o.store.ReportAndTake(ctx, reports)
	if err != nil {
		taken.Release()
		if !store.LockTimeout(err) {
			return nil, fmt.Errorf("end %d steps: %w", len(reports), err)
		}
		accepted = make([]bool, len(reports)) // it was rolled back: a row is held by another transaction
	} else if err := o.commitEnds(ctx, taken, reports, accepted, endings); refused(ctx, err) {
		o.log.Warn("the database rejected the decisions about ended steps; they are left to the next look", zap.Int("steps", len(reports)), zap.Error(err))
		accepted = make([]bool, len(reports)) // it was rolled back
	} else if err != nil {
		return nil, err
	}
	return endings, o.reportRest(ctx, reports, accepted, endings)
}

// commitEnds decides about the tasks whose ends were accepted.
func (o *Orchestrator) commitEnds(ctx context.Context, taken *store.Taken, reports []store.Report, accepted []bool, endings []Ending) error {
	defer taken.Release()
	if len(taken.Tasks) == 0 {
		return nil
	}
	changes := make([]store.Change, 0, len(taken.Tasks))
	for i := range taken.Tasks {
		t := &taken.Tasks[i]
		if len(t.Reported) == 0 || t.Broken != nil || t.Unreadable != nil {
			continue
		}
		c, err := o.advance(t, o.cfg.Daemon.ID, inputs(t)...)
		if err != nil {
			o.log.Debug("the end of a step is left to the next look", zap.Stringer("task_uuid", t.UUID), zap.Error(err))
			continue
		}
		changes = append(changes, c)
	}
	done, err := taken.Commit(ctx, o.cfg.Daemon.UUID, changes)
	if err != nil {
		return fmt.Errorf("end %d steps: %w", len(reports), err)
	}
	o.publish(done.Signals)
	o.applied(changes, done)
	states := make(map[uuid.UUID]workflow.TaskState, len(changes))
	for i := range changes {
		states[changes[i].Task.UUID] = changes[i].Effects.State
	}
	for i := range reports {
		if accepted[i] {
			endings[i] = Ending{true, states[reports[i].TaskUUID]}
		}
	}
	return nil
}

// reportRest reports the ends that were not accepted: an action may have moved the step, or
// its row was locked.
func (o *Orchestrator) reportRest(ctx context.Context, reports []store.Report, accepted []bool, endings []Ending) error {
	var rest []store.Report
	var places []int
	for i := range reports {
		if !accepted[i] {
			rest, places = append(rest, reports[i]), append(places, i)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	late, err := o.store.Report(ctx, rest)
	if err != nil {
		return fmt.Errorf("report %d steps: %w", len(rest), err)
	}
	for i, ok := range late {
		endings[places[i]].Accepted = ok
	}
	o.publish(store.ReportSignals())
	return nil
}
