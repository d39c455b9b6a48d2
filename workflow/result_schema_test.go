package workflow_test

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/workflow"
)

func TestCheckSchema(t *testing.T) {
	t.Parallel()
	const closed = `{"type":"object","additionalProperties":false,"properties":{"n":{"type":"integer"}}}`
	for name, tt := range map[string]struct {
		kind           workflow.StepKind
		schema, result string
		fits           bool
	}{
		"none":                 {workflow.KindStandard, ``, `{"x":1}`, true},
		"unusable":             {workflow.KindStandard, `{"type":"nothing"}`, `{"x":1}`, true},
		"fits":                 {workflow.KindStandard, closed, `{"n":1}`, true},
		"does not":             {workflow.KindStandard, closed, `{"x":1}`, false},
		"no result":            {workflow.KindStandard, closed, `null`, false},
		"a large number":       {workflow.KindBatchWorker, closed, `{"n":123456789012345678901234567890}`, true},
		"a decision":           {workflow.KindDecision, closed, `{"n":1,"decision_point_outcome":{"type":"no_branches"}}`, true},
		"a decision with more": {workflow.KindDecision, closed, `{"x":1,"decision_point_outcome":{"type":"no_branches"}}`, false},
		"another's outcome":    {workflow.KindDecision, closed, `{"n":1,"batch_processing_outcome":{"type":"no_batches"}}`, false},
		"batches":              {workflow.KindBatchable, closed, `{"batch_processing_outcome":{"type":"no_batches"}}`, true},
		"a join":               {workflow.KindDeferredConvergence, closed, `[]`, false},
		"of the engine":        {workflow.KindSleep, closed, `{"x":1}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := workflow.Compile(&workflow.Template{Steps: []workflow.StepTemplate{{Name: "a", Kind: tt.kind, ResultSchema: json.RawMessage(tt.schema)}}})
			require.NoError(t, err)
			var wg sync.WaitGroup
			for range 4 { // the first check compiles it
				wg.Go(func() {
					found, err := p.Steps[0].CheckSchema(t.Context(), nil, json.RawMessage(tt.result))
					if err != nil || (len(found) == 0) != tt.fits {
						t.Error(found, err)
					}
				})
			}
			wg.Wait()
		})
	}
}
