package decision_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/worker/decision"
)

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for want, outcome := range map[string]decision.Outcome{
		`{"decision_point_outcome":{"type":"create_steps","step_names":["a"]}}`:                  decision.Next("a"),
		`{"decision_point_outcome":{"type":"create_steps","step_names":["a","b"]},"why":"both"}`: decision.Create("a", "b").With("why", "both"),
		`{"decision_point_outcome":{"type":"no_branches"}}`:                                      decision.None(),
	} {
		got, err := json.Marshal(outcome)
		require.NoError(t, err)
		require.JSONEq(t, want, string(got))
	}
}
