package workflow

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOutcomesThatAreBareTexts(t *testing.T) {
	t.Parallel()
	for _, result := range []string{`{"decision_point_outcome":"no_branches","x":1}`, `"no_branches"`} {
		o, err := parseDecisionOutcome(json.RawMessage(result))
		require.NoError(t, err)
		require.Empty(t, o.Steps)
		require.NotEmpty(t, o.Odd)
	}
	o, err := parseBatchOutcome(json.RawMessage(`"no_batches"`))
	require.NoError(t, err)
	require.NotEmpty(t, o.Odd)
	for _, result := range []string{`"no_batches"`, `{"decision_point_outcome":"no_batches"}`, `"create_steps"`, `{}`, ``} {
		_, err := parseDecisionOutcome(json.RawMessage(result))
		require.Error(t, err, result)
	}
}
