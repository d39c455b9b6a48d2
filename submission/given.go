package submission

import (
	"time"

	"github.com/google/uuid"
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

// maxDelaySeconds keeps a delay inside of time.Duration; the bound of a request
// is far below.
const maxDelaySeconds = 1e9

// StartIn turns a start as people give it, an instant or a number of seconds,
// into the delay of the first steps. An instant that has passed is now. The
// error is an *InvalidError.
func StartIn(startAt *time.Time, delaySeconds *float64, now time.Time) (time.Duration, error) {
	switch {
	case startAt != nil && delaySeconds != nil:
		return 0, &InvalidError{Problems: []string{"give start_at or delay_seconds, not both"}}
	case startAt != nil:
		return max(startAt.Sub(now), 0), nil
	case delaySeconds != nil && *delaySeconds < 0:
		return 0, &InvalidError{Problems: []string{"delay_seconds must not be negative"}}
	case delaySeconds != nil:
		return time.Duration(min(*delaySeconds, maxDelaySeconds) * float64(time.Second)), nil
	}
	return 0, nil
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
