package events

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tasker-go/tasker/workflow"
)

// Subscriber receives fast events in its process. One goroutine calls its functions, one
// event after the other; ctx ends with the bus's time limit.
type Subscriber struct {
	// Name identifies the subscriber in logs and metrics.
	Name string
	// Patterns are names in which * stands for any characters: payment.*, *, or
	// the name itself.
	Patterns []string
	// Handle handles an event. An error is counted and, unless that is turned off,
	// logged; there is no retry.
	Handle func(ctx context.Context, e Event) error

	// The rest may be nil. Before is called before Handle; its error skips Handle. After
	// is called after a Handle that succeeded, Failed after one that failed or panicked.
	Before func(ctx context.Context, e Event) error
	After  func(ctx context.Context, e Event)
	Failed func(ctx context.Context, e Event, err error)
}

// check reports missing or invalid fields.
func (s *Subscriber) check() error {
	var wrong []error
	if s.Name == "" {
		wrong = append(wrong, errors.New("it has no name"))
	}
	if s.Handle == nil {
		wrong = append(wrong, errors.New("it has no Handle"))
	}
	if len(s.Patterns) == 0 || len(s.Patterns) > workflow.MaxEventPatterns {
		wrong = append(wrong, fmt.Errorf("it must have 1 to %d patterns; * is for every event", workflow.MaxEventPatterns))
	}
	for _, p := range s.Patterns {
		if err := workflow.CheckEventPattern(p); err != nil {
			wrong = append(wrong, err)
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("subscribe %q: %w", s.Name, err)
	}
	return nil
}

func (s *Subscriber) wants(name string) bool {
	return slices.ContainsFunc(s.Patterns, func(p string) bool { return workflow.EventMatches(p, name) })
}

// handle processes one event.
func (s *Subscriber) handle(ctx context.Context, e Event) error {
	if s.Before != nil {
		if err := s.Before(ctx, e); err != nil {
			return err
		}
	}
	if err := s.Handle(ctx, e); err != nil {
		return err
	}
	if s.After != nil {
		s.After(ctx, e)
	}
	return nil
}
