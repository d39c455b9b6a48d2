package submission

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/workflow"
)

// OptionalUUID reads an identifier as people give it. The error is an
// *InvalidError.
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

// Dependencies reads the tasks that one depends on, as people give them, and what
// becomes of it where one of them fails. The error is an *InvalidError.
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

// maxDelaySeconds keeps a delay inside of time.Duration; the bound of a request
// is far below.
const maxDelaySeconds = 1e9

// Start reads a start as people give it: an instant, which is for the
// database's clock to judge (now is only for its bounds), or a number of seconds.
// The error is an *InvalidError.
func (r *Request) Start(startAt *time.Time, delaySeconds *float64, now time.Time) error {
	switch {
	case startAt != nil && delaySeconds != nil:
		return &InvalidError{Problems: []string{"give start_at or delay_seconds, not both"}}
	case startAt != nil:
		// No finer than the database has it, so that both compare alike.
		at := startAt.Truncate(time.Microsecond)
		r.StartAt, r.startsAbout = &at, startAt.Sub(now)
	case delaySeconds != nil && *delaySeconds < 0:
		return &InvalidError{Problems: []string{"delay_seconds must not be negative"}}
	case delaySeconds != nil:
		r.StartIn = time.Duration(min(*delaySeconds, maxDelaySeconds) * float64(time.Second))
	}
	return nil
}

// Urgency reads a priority as people give it, as such or as a level of
// workflow.MinPriorityLevel (first) to MaxPriorityLevel. The error is an
// *InvalidError.
func (r *Request) Urgency(priority, level *int) error {
	switch {
	case level == nil:
		r.Priority = priority
	case priority != nil:
		return &InvalidError{Problems: []string{"give priority or priority_level, not both"}}
	case *level < workflow.MinPriorityLevel || *level > workflow.MaxPriorityLevel:
		return &InvalidError{Problems: []string{fmt.Sprintf("priority_level must be between %d, which goes first, and %d",
			workflow.MinPriorityLevel, workflow.MaxPriorityLevel)}}
	default:
		p := workflow.PriorityOfLevel(*level)
		r.Priority = &p
	}
	return nil
}

// Retries reads retries as people give them: a number of executions, and delays
// such as 10s, 5m or 2d. The error is an *InvalidError.
func (r *Request) Retries(maxAttempts *int, delays []string) error {
	if maxAttempts != nil {
		if r.MaxAttempts = *maxAttempts; r.MaxAttempts < 1 {
			r.MaxAttempts = -1 // Check finds the words
		}
	}
	if len(delays) > workflow.MaxRetryDelays {
		return &InvalidError{Problems: []string{fmt.Sprintf("retry_delays must have at most %d entries", workflow.MaxRetryDelays)}}
	}
	for i, text := range delays {
		delay, ok := workflow.ParseDelay(text)
		if !ok {
			return &InvalidError{Problems: []string{fmt.Sprintf("retry_delays[%d] is %q; it has to be a duration such as 10s, 5m or 2d", i, clip(strings.ToValidUTF8(text, "?")))}}
		}
		r.RetryDelays = append(r.RetryDelays, delay)
	}
	return nil
}

// DeadlineIn turns a deadline into the time until then; nil is none, 0. The
// error is an *InvalidError.
func DeadlineIn(deadline *time.Time, now time.Time) (time.Duration, error) {
	if deadline == nil {
		return 0, nil
	}
	if in := deadline.Sub(now); in > 0 {
		return in, nil
	}
	return 0, &InvalidError{Problems: []string{"the deadline has passed"}}
}
