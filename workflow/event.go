package workflow

import (
	"context"
	"encoding/json"

	"github.com/tasker-go/tasker/internal/schema"
)

// Event is a declared domain event, ready to be published. It is immutable and
// safe for concurrent use.
type Event struct {
	*EventPublication
	schema *schema.Schema
}

// Durable reports whether the event is kept in the database for consumers.
func (e *Event) Durable() bool { return e.DeliveryMode != "fast" }

// Fast reports whether the event goes to the subscribers of workers.
func (e *Event) Fast() bool { return e.DeliveryMode == "fast" || e.DeliveryMode == "broadcast" }

// Follows reports whether the event is published after an attempt with this outcome. A lost
// lease and a cancellation are no outcomes of a handler; a step that fails for good because
// its workers were lost has failed all the same.
func (e *Event) Follows(o AttemptOutcome) bool {
	switch o {
	case OutcomeSuccess:
		return e.Condition == "success" || e.Condition == "always"
	case OutcomeFailed:
		return e.Condition == "retryable_failure" || e.Condition == "failure" || e.Condition == "always"
	case OutcomeError:
		return e.Condition == "permanent_failure" || e.Condition == "failure" || e.Condition == "always"
	}
	return false
}

// Check returns how a payload breaks the declared schema; nil: it is valid, or there is no
// usable schema. The error is that of the checker.
func (e *Event) Check(ctx context.Context, by *schema.Checker, payload json.RawMessage) ([]schema.Violation, error) {
	return by.Check(ctx, e.schema, payload)
}

// FiredBy names the source of the event: its publisher, else the step's handler.
func (e *Event) FiredBy(s *StepTemplate) string {
	if e.Publisher != "" {
		return e.Publisher
	}
	if s.Kind.ByEngine() {
		return "engine"
	}
	return s.Handler.Callable
}

// EventFailure is the description of a failure in the payload of an event.
type EventFailure struct {
	Message   string          `json:"message"`
	Type      string          `json:"error_type"`
	Code      string          `json:"error_code,omitempty"`
	Retryable bool            `json:"retryable"`
	Context   json.RawMessage `json:"context,omitempty"`
}

// compileEvents prepares the events of a step. Reading the template has warned of unusable
// schemas; their payloads are not checked.
func compileEvents(s *StepTemplate) []Event {
	if len(s.PublishesEvents) == 0 {
		return nil
	}
	events := make([]Event, len(s.PublishesEvents))
	for i := range s.PublishesEvents {
		events[i].EventPublication = &s.PublishesEvents[i]
		events[i].schema, _ = schema.Read(s.PublishesEvents[i].Schema)
	}
	return events
}

// failed returns the outcome of a failed attempt out of attempts, and why it is the last
// one if it is.
func (s *PlanStep) failed(attempt, attempts int, retryable bool) (AttemptOutcome, string) {
	switch {
	case !retryable || !s.Retry.Retryable:
		return OutcomeError, ReasonPermanent
	case attempt >= attempts:
		return OutcomeError, ReasonExhausted
	}
	return OutcomeFailed, ""
}

// Outcome predicts what Advance will make of a report, except for results that ask for
// impossible steps. attempts is how many the step may have (AttemptsOf).
func (s *PlanStep) Outcome(attempt, attempts int, success, retryable bool) AttemptOutcome {
	if success {
		return OutcomeSuccess
	}
	o, _ := s.failed(attempt, attempts, retryable)
	return o
}

// OutcomeOf returns how the effects end the reported attempt of a step; 0: they do not,
// because it had ended before.
func (e *Effects) OutcomeOf(step int) (o AttemptOutcome, reason string) {
	for i := range e.End {
		if e.End[i].Step == step {
			return e.End[i].Outcome, e.End[i].Reason
		}
	}
	for i := range e.Retry {
		if e.Retry[i].Step == step {
			return e.Retry[i].Outcome, ""
		}
	}
	return 0, ""
}
