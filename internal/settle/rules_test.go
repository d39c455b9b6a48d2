package settle

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/workflow"
)

func TestDecisionsThatAreNotCounted(t *testing.T) {
	t.Parallel()
	for _, uncounted := range []bool{false, true} {
		m := telemetry.NewMetrics(prometheus.NewRegistry())
		r := Recorder{Metrics: m, Log: zap.NewNop(), Decisions: Decisions{Uncounted: uncounted}}
		r.decided(&store.Change{}, &workflow.Decided{Created: []int{1, 2}, Batches: 2}, "n")
		require.Equal(t, !uncounted, testutil.CollectAndCount(m.StepsCreated)+testutil.CollectAndCount(m.BatchesCreated) == 2)
	}
}

// TestRulesOfOthersAreNotGuessedAt: a worker does not decide by a document that it
// does not understand in full.
func TestRulesOfOthersAreNotGuessedAt(t *testing.T) {
	t.Parallel()
	creation := workflow.Creation{MaxDecisionSteps: 3, MaxDecisionDepth: 2, MaxBatches: 7, RefuseBatches: true, MaxParallelBatches: 4}
	decisions := Decisions{WarnSteps: 5, Log: true}
	document, err := Publish(creation, decisions)
	require.NoError(t, err)
	var a agreed
	log := zap.NewNop()
	require.Equal(t, &Rules{rulesVersion, creation, decisions}, a.read(string(document), log))
	require.Nil(t, a.read("", log), "no rules, or they differ")
	require.Nil(t, a.read(`{"version": 1, "max_decision_steps": 3, "max_of_what_comes": 4}`, log))
	require.Nil(t, a.read(`{"version": 2}`, log))
	require.Nil(t, a.read(`null`, log))
	require.NotNil(t, a.read(`{"version": 1}`, log))
}
