package submission

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tasker-go/tasker/store"
)

// SchemaPolicy lets contexts pass that break the input schema of their template.
// The nil *SchemaPolicy refuses them with an *InvalidError.
type SchemaPolicy struct {
	// Warn is told what is wrong with a context; nil: contexts are not validated.
	Warn func(plan *store.Plan, problems string)
}

// Quiet is a policy that lets the same pass and tells nobody, for what is only
// looked at.
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
