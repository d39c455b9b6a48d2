package submission

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tasker-go/tasker/internal/store"
)

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

// check validates a context against the input schema of a plan.
func (p *SchemaPolicy) check(context json.RawMessage, plan *store.Plan) error {
	if p != nil && p.Warn == nil {
		return nil
	}
	violations := plan.InputSchema.Validate(context)
	if len(violations) == 0 {
		return nil
	}
	problems := make([]string, len(violations))
	for i, v := range violations {
		problems[i] = fmt.Sprintf("context%s: %s", v.Path, v.Message)
	}
	if p == nil {
		return &InvalidError{Problems: problems}
	}
	p.Warn(plan, strings.Join(problems, "; "))
	return nil
}
