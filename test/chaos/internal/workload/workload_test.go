package workload_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/test/chaos/internal/workload"
)

func TestTemplatesAreWhatTheWorkflowsSay(t *testing.T) {
	share := 0
	for _, w := range workload.Workflows() {
		share += w.Share
		template, err := w.Template()
		require.NoError(t, err)
		require.Equal(t, workload.Namespace, template.Namespace)
		weight := 0.0
		for _, s := range template.Steps {
			require.ElementsMatch(t, w.Parents(s.Name), s.Dependencies, "%s/%s", w.Name, s.Name)
			weight += w.Weight(s.Name)
		}
		require.LessOrEqual(t, weight, 4.001, "%s: for any width the weight is its depth", w.Name)
	}
	require.Equal(t, 20, share, "a hand")
}

func TestWhatIsIdeal(t *testing.T) {
	for name, want := range map[string][2]int{"linear": {4, 4}, "diamond": {4, 4}, "fanout": {52, 52}, "retrying": {5, 3}, "slow": {4, 4}, "doomed": {3, 2}, "booked": {3, 3}} {
		w, ok := workload.ByName(name)
		require.True(t, ok)
		require.Equal(t, want, [2]int{w.Ideal(), w.Succeeding()}, name)
	}
}

func TestOrdersComeFromTheSeed(t *testing.T) {
	orders := workload.Orders(3, 200, 10*time.Second, workload.Workflows())
	require.Equal(t, orders, workload.Orders(3, 200, 10*time.Second, workload.Workflows()))
	flows, keys := map[string]int{}, map[string]bool{}
	for i, o := range orders {
		flows[o.Flow.Name]++
		keys[o.Key] = true
		require.Equal(t, time.Duration(i)*50*time.Millisecond, o.Due)
	}
	require.Len(t, keys, 200)
	require.Equal(t, map[string]int{"linear": 40, "diamond": 40, "fanout": 10, "retrying": 40, "slow": 20, "doomed": 30, "booked": 20}, flows)
}
