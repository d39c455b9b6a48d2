package workflow

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/internal/schema"
)

// resultSchema is the result_schema of a step. It is compiled with the first result that is
// checked: only workers check, and most programs read plans for something else.
type resultSchema struct {
	doc      json.RawMessage
	once     sync.Once
	compiled *schema.Schema
}

// newResultSchema returns nil for a step without a schema, and for one that the engine runs:
// its result is not a handler's.
func newResultSchema(s *StepTemplate) *resultSchema {
	if len(s.ResultSchema) == 0 || s.Kind.ByEngine() {
		return nil
	}
	return &resultSchema{doc: s.ResultSchema}
}

// use returns the compiled schema. Reading the template has warned of an unusable one, which
// checks nothing.
func (r *resultSchema) use() *schema.Schema {
	r.once.Do(func() { r.compiled, _ = schema.Read(r.doc) })
	return r.compiled
}

// CheckSchema returns how the result of a handler breaks the step's result_schema; nil: it
// fits, or there is no usable schema. The outcome by which a decision or a batchable step
// creates others is addressed to the engine, which checks it by itself: the schema is about
// the rest of the result. The error is that of the checker.
func (s *PlanStep) CheckSchema(ctx context.Context, by *schema.Checker, result json.RawMessage) ([]schema.Violation, error) {
	if s.results == nil {
		return nil, nil
	}
	var value any = result
	switch s.Kind {
	case KindDecision:
		value = without(result, DecisionOutcomeKey)
	case KindBatchable:
		value = without(result, BatchOutcomeKey)
	}
	return by.Check(ctx, s.results.use(), value)
}

// without returns a document without a field of the object that it may be.
func without(doc json.RawMessage, field string) any {
	value, err := jsonscan.Decode(doc)
	if err != nil {
		return doc // and so Validate says what is wrong
	}
	if object, ok := value.(map[string]any); ok {
		delete(object, field)
	}
	return value
}
