package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tasker-go/tasker/internal/wording"
)

// The bounds of the names and keys of events, in bytes.
const (
	MaxEventName = 255
	maxEventKey  = 512
)

// CheckEventName validates the name of an event.
func CheckEventName(name string) error {
	if strings.TrimSpace(name) == "" {
		return errors.New("it is empty")
	}
	return checkEventText(name, MaxEventName)
}

// CheckEventKey validates the key of an event. The empty key is valid: there is none.
func CheckEventKey(key string) error { return checkEventText(key, maxEventKey) }

func checkEventText(text string, limit int) error {
	switch {
	case len(text) > limit:
		return fmt.Errorf("it has %d bytes; up to %d are allowed", len(text), limit)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return errors.New("it may not contain line breaks or control characters")
	}
	return nil
}

// Beginning describes the begin of a step that the engine runs itself: what it waits for,
// and how it ends when its time is over.
type Beginning struct {
	Kind  StepKind
	For   time.Duration // until it is due; 0: Until, or never
	Until time.Time     // zero: For, or never
	// Due is the end of the step when it is due.
	Due StepEnd

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

// StepEnd is how a step that the engine runs ends.
type StepEnd struct {
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
func Failed(errorType, message string, retryable bool) StepEnd {
	document, _ := json.Marshal(map[string]any{"message": message, "error_type": errorType, "retryable": retryable}) // texts and a bool
	return StepEnd{Error: document, Retryable: retryable}
}

// Succeeded is a success with a result.
func Succeeded(result any) (StepEnd, error) {
	document, err := json.Marshal(result)
	if err != nil {
		return StepEnd{}, fmt.Errorf("write the result: %w", err)
	}
	return StepEnd{Result: document}, nil
}

// Begin describes the begin of a step of a kind that the engine runs. The error is for
// operators: the step asks for something that does not exist, and a retry would too.
func Begin(t *Template, step *PlanStep, scope *Scope, priority int) (Beginning, error) {
	b := Beginning{Kind: step.Kind}
	switch step.Kind {
	case KindSleep:
		return b, b.sleep(step.Wait, scope)
	case KindWaitForEvent, KindApproval:
		return b, b.wait(step, scope)
	case KindTask:
		return b, b.task(t, step.Task, scope, priority)
	}
	return b, fmt.Errorf("a step of type %s is run by workers", step.Kind)
}

func (b *Beginning) sleep(w *WaitSettings, scope *Scope) error {
	if w == nil {
		return errors.New("it does not say how long it waits")
	}
	b.Due = StepEnd{Result: json.RawMessage(`{}`)}
	if w.Until != "" {
		text, err := scope.text(w.Until)
		if err != nil {
			return err
		}
		b.Until, err = time.Parse(time.RFC3339, text)
		if err != nil || b.Until.Year() < 1970 {
			return fmt.Errorf("wait.until: %.64q is not a moment such as 2030-01-31T09:00:00Z", text)
		}
		return nil
	}
	text, err := scope.text(w.For)
	if err == nil {
		b.For, err = ParseSpan(text)
	}
	if err != nil {
		return fmt.Errorf("wait.for: %w", err)
	}
	return nil
}

func (b *Beginning) wait(step *PlanStep, scope *Scope) (err error) {
	w := step.Wait
	if w == nil {
		w = &WaitSettings{}
	}
	b.Event, b.Prompt = w.Event, w.Prompt
	if w.Key != "" {
		if b.Key, err = scope.text(w.Key); err != nil {
			return fmt.Errorf("wait.key: %w", err)
		}
		if err := CheckEventKey(b.Key); err != nil {
			return fmt.Errorf("wait.key: %w", err)
		}
		if b.Key == "" {
			return fmt.Errorf("wait.key: %s is empty", wording.Clip(w.Key, 128))
		}
	}
	if w.Timeout == "" {
		return nil
	}
	if b.For, err = ParseSpan(w.Timeout); err != nil {
		return fmt.Errorf("wait.timeout: %w", err)
	}
	switch {
	case w.OnTimeout != WaitContinues:
		what := "no decision within " + w.Timeout
		if step.Kind == KindWaitForEvent {
			what = fmt.Sprintf("the event %s did not come within %s", w.Event, w.Timeout)
		}
		b.Due = Failed(errorTypeTimeout, what, true)
	case step.Kind == KindApproval:
		b.Due = StepEnd{Result: json.RawMessage(`{"approved":false,"timed_out":true}`)}
	default:
		b.Due = StepEnd{Result: json.RawMessage(`{"timed_out":true}`)}
	}
	return nil
}

func (b *Beginning) task(t *Template, settings *TaskSettings, scope *Scope, priority int) error {
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
		d, err := ParseSpan(settings.Timeout)
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

// Refers reports whether the step needs the context or results of the task to
// begin.
func (s *StepTemplate) Refers() bool {
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
func (s *StepTemplate) Decide(d Decision) (StepEnd, error) {
	if !d.Approved && (s.Wait == nil || s.Wait.OnRejection != WaitContinues) {
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

// WaitSettings say what a step of KindSleep, KindWaitForEvent or KindApproval
// waits for.
type WaitSettings struct {
	// For is how long a step of KindSleep waits: a duration or a reference.
	For string `json:"for,omitempty"`
	// Until is when a step of KindSleep ends: RFC 3339 or a reference. A time in the past
	// ends it at once.
	Until string `json:"until,omitempty"`
	// Event is the name of the event that a step of KindWaitForEvent waits for.
	Event string `json:"event,omitempty"`
	// Key identifies the event among those of one name: a text or a reference. Without
	// it the step waits for an event that is sent to its task.
	Key string `json:"key,omitempty"`
	// Prompt is the text for the approver.
	Prompt string `json:"prompt,omitempty"`
	// Timeout bounds the wait, as a duration; empty: no bound.
	Timeout string `json:"timeout,omitempty"`
	// OnTimeout and OnRejection decide the end of the step: WaitFails (the default) or
	// WaitContinues.
	OnTimeout   string `json:"on_timeout,omitempty"`
	OnRejection string `json:"on_rejection,omitempty"`
}

// The values of WaitSettings.OnTimeout and OnRejection; the empty string means
// WaitFails.
const (
	WaitFails     = "fail"     // the step fails; its retry block says whether it waits again
	WaitContinues = "continue" // the step completes, and its result says so
)

// TaskSettings describe the task that a step of KindTask runs.
type TaskSettings struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"` // empty: the template's
	Version   string `json:"version"`
	// Context is the context of the task; texts in it may be references. Nil: the
	// context of the parent task.
	Context json.RawMessage `json:"context,omitempty"`
	// Priority is the priority of the task; nil: the parent's.
	Priority *int `json:"priority,omitempty"`
	// Timeout bounds the task, as a duration, after which it is cancelled and the step
	// fails; empty: none.
	Timeout string `json:"timeout,omitempty"`
}

// ByEngine reports whether the engine itself runs steps of the kind: no worker claims them
// and no handler is needed.
func (k StepKind) ByEngine() bool {
	return k == KindSleep || k == KindWaitForEvent || k == KindApproval || k == KindTask
}

// The bounds of a span: shorter or longer ones are a mistake.
const (
	minSpan = time.Millisecond
	maxSpan = 366 * 24 * time.Hour
)

// ParseSpan reads a length of time, as ParseDelay does: from 1 ms to 366 days.
func ParseSpan(text string) (time.Duration, error) {
	span, ok := ParseDelay(strings.TrimSpace(text))
	switch {
	case !ok:
		return 0, fmt.Errorf("%.32q is not a duration such as 90s, 1h30m or 2d", text)
	case span < minSpan || span > maxSpan:
		return 0, fmt.Errorf("%.32q is not from 1ms to 366d", text)
	}
	return span, nil
}
