package orchestration

import (
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/store"
)

// SchemaMode says what an orchestrator does with a context that breaks the input
// schema of its template.
type SchemaMode string

// The modes.
const (
	SchemaEnforce SchemaMode = "enforce" // the request is rejected
	SchemaWarn    SchemaMode = "warn"    // it is accepted, and logged
	SchemaOff     SchemaMode = "off"     // contexts are not validated
)

// policy is the schema policy of requests.
func (m SchemaMode) policy(log *zap.Logger) *submission.SchemaPolicy {
	switch m {
	case SchemaWarn:
		return &submission.SchemaPolicy{Warn: func(plan *store.Plan, problems string) {
			t := plan.Template
			log.Warn("a context breaks the input schema of its template", zap.String("namespace", t.Namespace), zap.String("template", t.Name),
				zap.String("version", t.Version), zap.String("problems", problems))
		}}
	case SchemaOff:
		return &submission.SchemaPolicy{}
	}
	return nil
}
