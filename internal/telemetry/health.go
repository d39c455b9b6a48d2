package telemetry

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tasker-go/tasker/deploymode"
)

// Check is the outcome of one health check.
type Check struct {
	Status  deploymode.Level
	Message string // for operators; may be empty
	// Duration of the check itself.
	Duration time.Duration
}

// MarshalJSON writes the duration in whole milliseconds, as on the wire.
func (c Check) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Status     deploymode.Level `json:"status"`
		Message    string           `json:"message,omitempty"`
		DurationMS int64            `json:"duration_ms"`
	}{c.Status, c.Message, c.Duration.Milliseconds()})
}

// RunCheck times f and turns its error into an unhealthy check. f must honour
// the deadline of ctx.
func RunCheck(ctx context.Context, f func(ctx context.Context) error) Check {
	begin := time.Now()
	err := f(ctx)
	c := Check{Status: deploymode.Healthy, Duration: time.Since(begin)}
	if err != nil {
		c.Status, c.Message = deploymode.Unhealthy, err.Error()
	}
	return c
}
