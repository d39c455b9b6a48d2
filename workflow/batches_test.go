package workflow

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// splitters are independent steps that make batches.
func splitters(t require.TestingT, n int) *Plan {
	var steps []string
	for i := range n {
		steps = append(steps, fmt.Sprintf("batchable:b%d", i), fmt.Sprintf("batch_worker:w_b%d b%d", i, i))
	}
	return unfoldingGraph(t, steps...)
}

// TestStepsThatMakeBatchesRunAnyNumberOfTimes: the numbers of a task do not grow with the
// runs and their batches.
func TestStepsThatMakeBatchesRunAnyNumberOfTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers, most := rapid.IntRange(1, 4).Draw(t, "workers"), rapid.IntRange(1, 12).Draw(t, "most")
		plan := splitters(t, workers)
		h := begin(t, plan)
		decide := func(i int) {
			h.decides(fmt.Sprint("b", i), batches(fmt.Sprint("w_b", i), rapid.IntRange(1, most).Draw(t, "batches")))
		}
		for i := range workers {
			decide(i)
		}
		for range rapid.IntRange(1, 60).Draw(t, "runs") {
			i := rapid.IntRange(0, workers-1).Draw(t, "runs again")
			h.do(Operation{Action: ActionRunAgain, Step: must(plan.StepNumber(fmt.Sprint("b", i)))})
			decide(i)
			require.LessOrEqual(t, len(h.progress.Steps), len(plan.Steps)+(2*workers-1)*most)
		}
		again, err := DecodeProgress(h.progress.Encode())
		require.NoError(t, err)
		require.Equal(t, h.progress, again)
		h.finish()
		require.Equal(t, TaskComplete, h.state)
	})
}

// TestTheLargestBatchesRunAnyNumberOfTimes: with a step that makes the maximum of batches.
func TestTheLargestBatchesRunAnyNumberOfTimes(t *testing.T) {
	h := begin(t, splitters(t, 1))
	result := batches("w_b0", 10_000)
	for range 5 { // three of them had room beside each other
		h.decides("b0", result)
		require.Equal(t, TaskStepsInProcess, h.state)
		require.Len(t, h.progress.Steps, 10_002)
		h.do(Operation{Action: ActionRunAgain, Step: 0})
	}
}

func TestThereMayBeTooManyBatches(t *testing.T) {
	h := begin(t, splitters(t, 4))
	for _, name := range []string{"b0", "b1", "b2"} {
		h.decides(name, batches("w_"+name, 10_000))
	}
	e := h.decides("b3", batches("w_b3", 1_993))
	require.Equal(t, reasonInvalidOutcome+": 1993 batches are asked for; the task has no room for so many among its 32000 numbers", e.End[0].Reason)

	h.do(Operation{Action: ActionRunAgain, Step: must(h.plan.StepNumber("b1"))})
	h.do(Operation{Action: ActionRunAgain, Step: must(h.plan.StepNumber("b3"))})
	h.decides("b3", batches("w_b3", 1_993))
	require.Equal(t, 10_008, h.progress.groupOf(must(h.plan.StepNumber("w_b3"))).First, "where others were")
}

// TestADecisionGivesNoNumberOutThatItHasForgotten: steps taken off and put on the board are
// distinguished by their numbers.
func TestADecisionGivesNoNumberOutThatItHasForgotten(t *testing.T) {
	h := begin(t, splitters(t, 2))
	h.decides("b0", batches("w_b0", 3))
	e := h.do(Operation{Action: ActionRunAgain, Step: 0}, Reported{Step: 1, Attempt: 1, Success: true, Result: batches("w_b1", 2)})
	require.Equal(t, []int{4, 5}, e.Remove)
	require.Equal(t, 7, h.progress.Groups[0].First)
	h.decides("b0", batches("w_b0", 3))
	require.Equal(t, 4, h.progress.Groups[1].First, "the next decision does")
}

// TestBatchesGetTheNumbersThatTheyHad if they are known.
func TestBatchesGetTheNumbersThatTheyHad(t *testing.T) {
	plan := splitters(t, 2)
	first, why := 10, error(nil)
	rules := testRules
	rules.BatchesAt = func(worker, count int) (int, error) {
		require.Equal(t, []int{must(plan.StepNumber("w_b0")), 3}, []int{worker, count})
		return first, why
	}
	h := begin(t, plan)
	report := Reported{Step: 0, Attempt: 1, Success: true, Result: batches("w_b0", 3)}
	progress, effects, err := Advance(plan, h.state, h.progress, rules, report)
	require.NoError(t, err)
	require.Equal(t, []Group{{Batchable: 0, Template: 2, First: 10, Count: 3}}, progress.Groups)
	require.Len(t, progress.Steps, 13)
	require.Equal(t, 12, effects.Batches[2].Step)

	h.decides("b1", batches("w_b1", 4)) // 4 to 7
	for _, first = range []int{3, 7, 4, MaxStepNumber - 2} {
		_, effects, err = Advance(plan, h.state, h.progress, rules, report)
		require.NoError(t, err)
		require.Contains(t, effects.End[0].Reason, fmt.Sprintf("batches were numbered %d to %d", first, first+2))
	}
	why = errors.New("unknown number")
	_, effects, err = Advance(plan, h.state, h.progress, rules, report)
	require.NoError(t, err)
	require.Contains(t, effects.End[0].Reason, "unknown number")
}
