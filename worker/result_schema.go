package worker

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/schema"
	"github.com/tasker-go/tasker/worker/internal/engine"
)

// Values of Config.ResultSchema.
const (
	schemaEnforce = "enforce"
	schemaWarn    = "warn"
	schemaOff     = "off"
)

// codeResultSchema is the error_code of a step whose result breaks its result_schema.
const codeResultSchema = "RESULT_SCHEMA"

// mismatchLogInterval is how often a worker logs results that break their schemas; the
// metric counts all of them.
const mismatchLogInterval = time.Second

// mismatches remembers when one was logged.
type mismatches struct{ logged atomic.Int64 }

// due reports whether to log one now.
func (m *mismatches) due(now time.Time) bool {
	last := m.logged.Load()
	return (last == 0 || now.UnixNano()-last >= int64(mismatchLogInterval)) && m.logged.CompareAndSwap(last, now.UnixNano())
}

// checkSchema holds the result of the handler, whatever its language, against the
// result_schema of the step. The error is permanent: no schema changes with another attempt.
// A batch without work has no result that a schema could be about.
func (c *StepContext) checkSchema(doc json.RawMessage) error {
	if c.run.cfg.ResultSchema == schemaOff || c.x.Claim.Batch != nil && c.x.Claim.Batch.NoOp {
		return nil
	}
	violations, err := c.step.CheckSchema(&c.x.Ctx, c.run.cfg.checker, doc)
	if over := schema.TooManySteps(err); over != nil {
		violations = []schema.Violation{{Message: over.Error()}}
	} else if err != nil {
		return fmt.Errorf("check the result of step %q: %w", c.StepName(), err)
	}
	if len(violations) == 0 {
		return nil
	}
	c.run.cfg.Metrics.ResultSchemaViolations.WithLabelValues(c.run.cfg.Metrics.Named("namespace", c.Namespace()), c.run.cfg.ResultSchema).Inc()
	first := violations[0]
	if c.run.cfg.ResultSchema == schemaWarn {
		if c.run.mismatches.due(time.Now()) {
			c.Logger().Warn("the result of a step does not fit its result_schema", zap.String("path", first.Path), zap.String("problem", first.Message))
		}
		return nil
	}
	err = engine.Errorf(engine.TypeResultMismatch, "the result of step %q does not fit its result_schema: %q %s", c.StepName(), first.Path, first.Message)
	return Permanent(WithCode(WithDetails(err, map[string]any{"violations": violations}), codeResultSchema))
}
