package submission

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/schema"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// Checks checks contexts against input schemas within a budget; *schema.Checker implements it.
type Checks interface {
	Check(ctx context.Context, s *schema.Schema, value any) ([]schema.Violation, error)
}

// SchemaLimits are those of checks against schemas (common.schema_checks). The zero value has those
// of a nil *schema.Checker.
type SchemaLimits struct {
	MaxSteps      int           // of one check
	MaxTime       time.Duration // of one check
	MaxConcurrent int           // large checks
	MaxWaiting    int           // large checks
}

// LimitsOf translates common.schema_checks.
func LimitsOf(c config.SchemaChecks) SchemaLimits {
	return SchemaLimits{MaxSteps: c.MaxSteps, MaxTime: c.MaxTime, MaxConcurrent: c.MaxConcurrent, MaxWaiting: c.MaxWaiting}
}

// NewChecker returns a checker that counts what it gives up.
func NewChecker(l SchemaLimits, m *telemetry.Metrics) *schema.Checker {
	if l == (SchemaLimits{}) {
		return nil
	}
	m = m.OrDiscard()
	return schema.NewChecker(schema.CheckerConfig{Budget: schema.Budget{Steps: l.MaxSteps, Time: l.MaxTime}, AtOnce: l.MaxConcurrent, MaxWaiting: l.MaxWaiting,
		Waits:   func(n int) { m.SchemaChecksWaiting.Set(float64(n)) },
		GivenUp: func(reason string) { m.SchemaChecksGivenUp.WithLabelValues(reason).Inc() }})
}

// SchemaPolicy admits contexts that break the input schema of their template. The nil
// *SchemaPolicy rejects them with an *InvalidError.
type SchemaPolicy struct {
	// Warn receives the faults of a context; nil: contexts are not validated.
	Warn func(plan *store.Plan, problems string)
}

// Quiet is the same policy without warnings, for previews.
func (p *SchemaPolicy) Quiet() *SchemaPolicy {
	if p == nil {
		return nil
	}
	return &SchemaPolicy{}
}

// check validates a context against the input schema of a plan. A context whose check takes too many
// steps breaks the schema; other errors of the check say nothing about the context.
func (p *SchemaPolicy) check(ctx context.Context, by Checks, document json.RawMessage, plan *store.Plan) error {
	if plan.InputSchema == nil || p != nil && p.Warn == nil {
		return nil
	}
	if by == nil {
		by = (*schema.Checker)(nil)
	}
	violations, err := by.Check(ctx, plan.InputSchema, document)
	var problems []string
	if over := schema.TooManySteps(err); over != nil {
		problems = []string{"context: " + over.Error()}
	} else if err != nil {
		return err
	}
	for _, v := range violations {
		problems = append(problems, fmt.Sprintf("context%s: %s", v.Path, v.Message))
	}
	if problems == nil {
		return nil
	}
	if p == nil {
		return &InvalidError{Problems: problems}
	}
	p.Warn(plan, strings.Join(problems, "; "))
	return nil
}
