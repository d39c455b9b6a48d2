package operators

import (
	"context"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// Left is what is there when operators have stopped and everything has had its time.
type Left struct {
	// Rows describe living tasks, and messages and dependencies that nothing answers.
	Rows       []string
	Checked    int               // tasks of which the records were checked
	Violations []store.Violation // of those
}

// OK reports whether all is as it must be.
func (l *Left) OK() bool { return len(l.Rows) == 0 && len(l.Violations) == 0 }

// String is what is left, for people.
func (l *Left) String() string {
	text := fmt.Sprintf("%d tasks checked, %d rows are left, %d records contradict the rules", l.Checked, len(l.Rows), len(l.Violations))
	for _, row := range l.Rows[:min(len(l.Rows), maxFailed)] {
		text += "\nleft: " + row
	}
	for _, v := range l.Violations[:min(len(l.Violations), maxFailed)] {
		text += "\n" + v.TaskUUID.String() + ": " + v.Problem
	}
	return text
}

// Settling says how to look at what is left.
type Settling struct {
	Client *client.Client
	// Rows describes what is left, as in Left.
	Rows     func(ctx context.Context) ([]string, error)
	Store    *store.Store
	Rules    workflow.Rules // of the orchestrators
	Patience time.Duration  // for the last task to end
}

// Settle lets everything come to its end and checks what is on record of every
// task.
func Settle(ctx context.Context, s Settling) (*Left, error) {
	// An operator may have been cut off between a pause and its end.
	if _, err := s.Client.ResumeNamespace(ctx, namespace, client.Why{Actor: actor, Reason: reason}); err != nil {
		return nil, fmt.Errorf("resume the namespace: %w", err)
	}
	left := &Left{}
	for deadline := time.Now().Add(s.Patience); ; {
		rows, err := s.Rows(ctx)
		if err != nil {
			return nil, fmt.Errorf("look at what is left: %w", err)
		}
		left.Rows = rows
		if len(rows) == 0 || time.Now().After(deadline) {
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	report, err := s.Store.CheckIntegrity(ctx, s.Rules)
	left.Checked, left.Violations = report.Tasks, report.Violations
	return left, err
}
