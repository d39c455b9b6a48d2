package enginestep

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tasker-go/tasker/internal/domainevent"
	"github.com/tasker-go/tasker/internal/span"
	"github.com/tasker-go/tasker/internal/wording"
	"github.com/tasker-go/tasker/workflow"
)

// Beginning describes the begin of a step that the engine runs itself: what it waits for,
// and how it ends when its time is over.
type Beginning struct {
	Kind  workflow.StepKind
	For   time.Duration // until it is due; 0: Until, or never
	Until time.Time     // zero: For, or never
	// Due is the end of the step when it is due.
	Due End

	Event, Key string  // of KindWaitForEvent; an empty key: events for its task
	Prompt     string  // of KindApproval
	Task       SubTask // of KindTask
}

// SubTask is the task that a step runs.
type SubTask struct {
	Namespace, Name, Version string
	Context                  json.RawMessage
	Priority                 int
}

// End is how a step that the engine runs ends.
type End struct {
	Result    json.RawMessage // of a success; nil: it has failed
	Error     json.RawMessage // of a failure
	Retryable bool
}

// Error types of steps that the engine runs, as in their errors.
const (
	errorTypeTimeout   = "WaitTimeout"
	errorTypeRejected  = "ApprovalRejected"
	ErrorTypeSubTask   = "TaskFailed"
	ErrorTypeCannotRun = "CannotBegin" // the step asks for the impossible
)

// Failed is a failure with a message for operators.
func Failed(errorType, message string, retryable bool) End {
	document, _ := json.Marshal(map[string]any{"message": message, "error_type": errorType, "retryable": retryable}) // texts and a bool
	return End{Error: document, Retryable: retryable}
}

// Succeeded is a success with a result.
func Succeeded(result any) (End, error) {
	document, err := json.Marshal(result)
	if err != nil {
		return End{}, fmt.Errorf("write the result: %w", err)
	}
	return End{Result: document}, nil
}

// Begin describes the begin of a step of a kind that the engine runs. The error is for
// operators: the step asks for something that does not exist, and a retry would too.
func Begin(t *workflow.Template, step *workflow.PlanStep, scope *Scope, priority int) (Beginning, error) {
	b := Beginning{Kind: step.Kind}
	switch step.Kind {
	case workflow.KindSleep:
		return b, b.sleep(step.Wait, scope)
	case workflow.KindWaitForEvent, workflow.KindApproval:
		return b, b.wait(step, scope)
	case workflow.KindTask:
		return b, b.task(t, step.Task, scope, priority)
	}
	return b, fmt.Errorf("a step of type %s is run by workers", step.Kind)
}

func (b *Beginning) sleep(w *workflow.WaitSettings, scope *Scope) error {
	if w == nil {
		return errors.New("it does not say how long it waits")
	}
	b.Due = End{Result: json.RawMessage(`{}`)}
	if w.Until != "" {
		text, err := scope.text(w.Until)
		if err != nil {
			return err
		}
		if b.Until, err = span.Moment(text); err == nil && b.Until.Year() < 1970 {
			err = fmt.Errorf("invalid time %q: want one since 1970", text)
		}
		if err != nil {
			return fmt.Errorf("wait.until: %w", err)
		}
		return nil
	}
	text, err := scope.text(w.For)
	if err == nil {
		b.For, err = span.Parse(text)
	}
	if err != nil {
		return fmt.Errorf("wait.for: %w", err)
	}
	return nil
}

func (b *Beginning) wait(step *workflow.PlanStep, scope *Scope) (err error) {
	w := step.Wait
	if w == nil {
		w = &workflow.WaitSettings{}
	}
	b.Event, b.Prompt = w.Event, w.Prompt
	if w.Key != "" {
		if b.Key, err = scope.text(w.Key); err != nil {
			return fmt.Errorf("wait.key: %w", err)
		}
		if err := domainevent.CheckKey(b.Key); err != nil {
			return fmt.Errorf("wait.key: %w", err)
		}
		if b.Key == "" {
			return fmt.Errorf("wait.key: %s is empty", wording.Clip(w.Key, 128))
		}
	}
	if w.Timeout == "" {
		return nil
	}
	if b.For, err = span.Parse(w.Timeout); err != nil {
		return fmt.Errorf("wait.timeout: %w", err)
	}
	switch {
	case w.OnTimeout != workflow.WaitContinues:
		what := "no decision within " + w.Timeout
		if step.Kind == workflow.KindWaitForEvent {
			what = fmt.Sprintf("the event %s did not come within %s", w.Event, w.Timeout)
		}
		b.Due = Failed(errorTypeTimeout, what, true)
	case step.Kind == workflow.KindApproval:
		b.Due = End{Result: json.RawMessage(`{"approved":false,"timed_out":true}`)}
	default:
		b.Due = End{Result: json.RawMessage(`{"timed_out":true}`)}
	}
	return nil
}

func (b *Beginning) task(t *workflow.Template, settings *workflow.TaskSettings, scope *Scope, priority int) error {
	if settings == nil {
		return errors.New("it does not say which task it is")
	}
	b.Task = SubTask{Namespace: settings.Namespace, Name: settings.Name, Version: settings.Version, Context: scope.Context, Priority: priority}
	if b.Task.Namespace == "" {
		b.Task.Namespace = t.Namespace
	}
	if settings.Priority != nil {
		b.Task.Priority = *settings.Priority
	}
	if settings.Timeout != "" {
		d, err := span.Parse(settings.Timeout)
		if err != nil {
			return fmt.Errorf("task.timeout: %w", err)
		}
		b.For, b.Due = d, Failed(errorTypeTimeout, fmt.Sprintf("the task %s did not end within %s", settings.Name, settings.Timeout), true)
	}
	if settings.Context == nil {
		return nil
	}
	value, err := decoded(settings.Context)
	if err == nil {
		value, err = scope.expand(value)
	}
	if err != nil {
		return fmt.Errorf("task.context: %w", err)
	}
	if _, ok := value.(map[string]any); !ok {
		return fmt.Errorf("task.context: an object is needed, not %s", jsonTypeName(value))
	}
	if b.Task.Context, err = json.Marshal(value); err != nil {
		return fmt.Errorf("task.context: %w", err)
	}
	return nil
}

// Refers reports whether a step needs the context or results of the task to
// begin.
func Refers(s *workflow.PlanStep) bool {
	if w := s.Wait; w != nil {
		return IsReference(w.For) || IsReference(w.Until) || IsReference(w.Key)
	}
	if s.Task == nil || s.Task.Context == nil {
		return s.Task != nil
	}
	return strings.Contains(string(s.Task.Context), referencePrefix)
}

// Decision is the verdict on a step of KindApproval.
type Decision struct {
	Approved  bool
	Actor     string
	Comment   string
	Data      json.RawMessage // nil: none
	DecidedAt time.Time
}

// Decide returns the end of a step of KindApproval with a decision.
func Decide(s *workflow.PlanStep, d Decision) (End, error) {
	if !d.Approved && (s.Wait == nil || s.Wait.OnRejection != workflow.WaitContinues) {
		message := "rejected by " + d.Actor
		if d.Comment != "" {
			message += ": " + d.Comment
		}
		return Failed(errorTypeRejected, message, false), nil
	}
	result := map[string]any{"approved": d.Approved, "actor": d.Actor, "decided_at": d.DecidedAt.UTC()}
	if d.Comment != "" {
		result["comment"] = d.Comment
	}
	if d.Data != nil {
		result["data"] = d.Data
	}
	return Succeeded(result)
}
