package submission

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/priorities"
	"github.com/tasker-go/tasker/internal/span"
)

// OptionalUUID parses an optional identifier. The error is an *InvalidError.
func OptionalUUID(field string, text *string) (*uuid.UUID, error) {
	if text == nil {
		return nil, nil //nolint:nilnil // none is a choice
	}
	id, err := uuid.Parse(*text)
	if err != nil {
		return nil, &InvalidError{Problems: []string{field + " must be a UUID"}}
	}
	return &id, nil
}

// Dependencies parses the tasks that the task depends on and the policy for their failure.
// The error is an *InvalidError.
func (r *Request) Dependencies(tasks []string, onFailure string) error {
	r.OnDependencyFailure = onFailure
	for i := range tasks {
		id, err := OptionalUUID("depends_on", &tasks[i])
		if err != nil {
			return err
		}
		r.DependsOn = append(r.DependsOn, *id)
	}
	return nil
}

// maxDelaySeconds keeps a delay within time.Duration; the bound of a request is far below.
const maxDelaySeconds = 1e9

// Start reads the start: an instant, to be compared with the database's clock (now is only
// for its bounds), or a number of seconds. The error is an *InvalidError.
func (r *Request) Start(startAt *time.Time, delaySeconds *float64, now time.Time) error {
	switch {
	case startAt != nil && delaySeconds != nil:
		return &InvalidError{Problems: []string{"give start_at or delay_seconds, not both"}}
	case startAt != nil:
		// The database's resolution, so that both compare alike.
		at := startAt.Truncate(time.Microsecond)
		r.StartAt, r.startsAbout = &at, startAt.Sub(now)
	case delaySeconds != nil && *delaySeconds < 0:
		return &InvalidError{Problems: []string{"delay_seconds must not be negative"}}
	case delaySeconds != nil:
		r.StartIn = time.Duration(min(*delaySeconds, maxDelaySeconds) * float64(time.Second))
	}
	return nil
}

// Urgency reads a priority, or a level from priorities.MinLevel (first) to
// MaxPriorityLevel. The error is an *InvalidError.
func (r *Request) Urgency(priority, level *int) error {
	switch {
	case level == nil:
		r.Priority = priority
	case priority != nil:
		return &InvalidError{Problems: []string{"give priority or priority_level, not both"}}
	case *level < priorities.MinLevel || *level > priorities.MaxLevel:
		return &InvalidError{Problems: []string{fmt.Sprintf("priority_level must be between %d, which goes first, and %d",
			priorities.MinLevel, priorities.MaxLevel)}}
	default:
		p := priorities.OfLevel(*level)
		r.Priority = &p
	}
	return nil
}

// Retries reads a number of executions, and delays such as 10s, 5m or 2d. The error is an
// *InvalidError.
func (r *Request) Retries(maxAttempts *int, delays []string) error {
	if maxAttempts != nil {
		if r.MaxAttempts = *maxAttempts; r.MaxAttempts < 1 {
			r.MaxAttempts = -1 // Check reports it
		}
	}
	if len(delays) > limits.MaxRetryDelays {
		return &InvalidError{Problems: []string{fmt.Sprintf("retry_delays must have at most %d entries", limits.MaxRetryDelays)}}
	}
	for i, text := range delays {
		delay, ok := span.ParseDelay(text)
		if !ok {
			return &InvalidError{Problems: []string{fmt.Sprintf("retry_delays[%d] is %q; want a duration such as 10s, 5m or 2d", i, clip(strings.ToValidUTF8(text, "?")))}}
		}
		r.RetryDelays = append(r.RetryDelays, delay)
	}
	return nil
}

// DeadlineIn converts a deadline to the time until then; nil: 0, none. The error is an
// *InvalidError.
func DeadlineIn(deadline *time.Time, now time.Time) (time.Duration, error) {
	if deadline == nil {
		return 0, nil
	}
	if in := deadline.Sub(now); in > 0 {
		return in, nil
	}
	return 0, &InvalidError{Problems: []string{"the deadline has passed"}}
}
