package operators

import (
	"context"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// Left is the state after operators have stopped and tasks had time to end.
type Left struct {
	// Rows describe living tasks, and unanswered messages and dependencies.
	Rows       []string
	Checked    int               // tasks whose records were checked
	Violations []store.Violation // of those
}

// OK reports whether nothing is wrong.
func (l *Left) OK() bool { return len(l.Rows) == 0 && len(l.Violations) == 0 }

// String formats the findings.
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

// Settling describes the checks.
type Settling struct {
	Client *client.Client
	// Rows describes the remaining rows, as in Left.
	Rows     func(ctx context.Context) ([]string, error)
	Store    *store.Store
	Rules    workflow.Rules // of the orchestrators
	Patience time.Duration  // for the last task to end
}

// Settle waits until all tasks have ended and checks the records of every task.
func Settle(ctx context.Context, s Settling) (*Left, error) {
	// An operator may have been stopped between a pause and its end.
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
		if err := lifecycle.Pause(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	report, err := s.Store.CheckIntegrity(ctx, s.Rules)
	left.Checked, left.Violations = report.Tasks, report.Violations
	return left, err
}
