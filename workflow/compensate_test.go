package workflow

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// saga is a chain of steps, each with a compensation.
func saga(t require.TestingT, n int) *Plan {
	tmpl := &Template{Name: "saga", Namespace: "n", Version: "1"}
	retry := RetryPolicy{Retryable: true, MaxAttempts: 2, Backoff: BackoffNone}
	for i := range n {
		do := StepTemplate{Name: fmt.Sprint("do", i), Kind: KindStandard, Retry: retry, Compensation: fmt.Sprint("undo", i)}
		if i > 0 {
			do.Dependencies = []string{fmt.Sprint("do", i-1)}
		}
		tmpl.Steps = append(tmpl.Steps, StepTemplate{Name: fmt.Sprint("undo", i), Kind: KindCompensation, Retry: retry}, do)
	}
	p, err := Compile(tmpl)
	require.NoError(t, err)
	return p
}

// undoAll lets all compensations succeed and returns their order.
func (h *history) undoAll() (order []string) {
	for !h.state.Terminal() {
		require.Len(h.t, h.last.Put, 1, "one after the other")
		name := h.plan.Steps[h.last.Put[0].Step].Name
		order = append(order, name)
		h.ok(name)
	}
	return order
}

func TestASagaThatFailsIsUndoneInReverse(t *testing.T) {
	p := saga(t, 6)
	for fails := range 6 {
		h := begin(t, p)
		var want []string
		for i := range fails {
			h.ok(fmt.Sprint("do", i))
			want = append(want, fmt.Sprint("undo", i))
		}
		slices.Reverse(want)
		e := h.fails(fmt.Sprint("do", fails), false)
		if fails == 0 {
			require.Equal(t, TaskError, h.state, "there is nothing to undo")
			continue
		}
		require.Equal(t, TaskStepsInProcess, h.state)
		require.Equal(t, TaskError, h.progress.Ending)
		require.Nil(t, e.DeadLetter, "the entry is created at the end")
		again, err := DecodeProgress(h.progress.Encode())
		require.NoError(t, err)
		require.Equal(t, h.progress, again)
		require.Equal(t, want, h.undoAll())
		require.Equal(t, TaskError, h.state)
		require.NotNil(t, h.last.DeadLetter)
		require.Equal(t, StatusComplete, h.progress.Steps[must(p.StepNumber("do0"))].Status, "it stays what it was")
	}
}

func TestACancelledSagaIsUndone(t *testing.T) {
	p := saga(t, 3)
	h := begin(t, p)
	h.ok("do0")
	h.ok("do1")
	e := h.do(Operation{Action: ActionCancel, Reason: "changed my mind"})
	require.Equal(t, []int{must(p.StepNumber("do2"))}, e.Remove)
	require.Equal(t, reasonCompensating+"changed my mind", e.Changes[len(e.Changes)-1].Reason)
	_, _, err := Advance(p, h.state, h.progress, testRules, Operation{Action: ActionCancel})
	require.ErrorContains(t, err, "compensating")
	require.Equal(t, []string{"undo1", "undo0"}, h.undoAll())
	require.Equal(t, TaskCancelled, h.state)

	h = begin(t, p)
	require.True(t, h.do(Operation{Action: ActionCancel}).Finished, "nothing was done yet")
	h = begin(t, p)
	for i := range 3 {
		h.ok(fmt.Sprint("do", i))
	}
	require.Equal(t, TaskComplete, h.state, "nothing is undone when all is well")
}

// A saga is cancelled while a report of its only step waits: the step that would have come
// next was never on the board.
func TestASagaIsCalledOffBesideAReport(t *testing.T) {
	for name, in := range map[string]Input{"cancel": Operation{Action: ActionCancel, Reason: "no"}, "fail": Operation{Action: ActionFail, Reason: "stale"}} {
		for outcome, success := range map[AttemptOutcome]bool{OutcomeSuccess: true, OutcomeFailed: false} {
			t.Run(fmt.Sprint(name, " ", outcome), func(t *testing.T) {
				p := saga(t, 3)
				h := begin(t, p)
				h.ok("do0")
				do1 := must(p.StepNumber("do1"))
				e := h.do(Reported{Step: do1, Attempt: 1, Success: success, Retryable: true}, in)
				require.Equal(t, []EndStep{{Step: do1, Outcome: outcome}}, e.End)
				require.Empty(t, e.Remove)
				require.Empty(t, e.Retry)
				want := []string{"undo0"}
				if success {
					want = []string{"undo1", "undo0"}
				}
				require.Equal(t, want, h.undoAll())
			})
		}
	}
}

func TestUndoingThatFails(t *testing.T) {
	p := saga(t, 3)
	h := begin(t, p)
	h.ok("do0")
	h.ok("do1")
	h.fails("do2", false)
	h.fails("undo1", true)
	require.Equal(t, TaskStepsInProcess, h.state, "it has retries of its own")
	h.fails("undo1", true)
	require.Equal(t, TaskError, h.state, "what was done before is not undone past it")
	require.NotNil(t, h.last.DeadLetter)
	require.Equal(t, must(p.StepNumber("undo1")), h.last.DeadLetter.Step)

	for _, in := range []Input{Operation{Action: ActionReset, Step: must(p.StepNumber("do2"))}, Operation{Action: ActionResolve, Step: must(p.StepNumber("do2"))}} {
		_, _, err := Advance(p, h.state, h.progress, testRules, in)
		require.ErrorContains(t, err, "compensating", "what it relies on is being undone")
	}
	h.do(Operation{Action: ActionReset, Step: must(p.StepNumber("undo1"))})
	require.Equal(t, []string{"undo1", "undo0"}, h.undoAll())
	require.Equal(t, TaskError, h.state)

	h.do(Operation{Action: ActionRunAgain, Step: must(p.StepNumber("do2"))})
	require.Equal(t, []string{"do0"}, h.putNames(), "an undone step runs again")
	require.Zero(t, h.progress.Ending)
	for i := range 3 {
		h.ok(fmt.Sprint("do", i))
	}
	require.Equal(t, TaskComplete, h.state)

	h = begin(t, p)
	h.ok("do0")
	h.do(Operation{Action: ActionFail, Reason: "stale"})
	require.Equal(t, TaskStepsInProcess, h.state)
	h.do(Operation{Action: ActionFail, Reason: "now"})
	require.Equal(t, TaskError, h.state, "the second time it ends at once")
}

// TestRandomSagas lets random graphs fail at random: each completed step with a
// compensation is undone once, after everything that depends on it.
func TestRandomSagas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plain := randomPlan(t)
		tmpl := *plain.Template
		tmpl.OnFailure = OnFailureFail
		tmpl.Steps = slices.Clone(tmpl.Steps)
		for i := range plain.Template.Steps {
			if rapid.Bool().Draw(t, "can be undone") {
				name := "undo_" + tmpl.Steps[i].Name
				tmpl.Steps[i].Compensation = name
				tmpl.Steps = append(tmpl.Steps, StepTemplate{Name: name, Kind: KindCompensation, Retry: RetryPolicy{Retryable: true, MaxAttempts: 100, Backoff: BackoffNone}})
			}
		}
		p, err := Compile(&tmpl)
		require.NoError(t, err)
		s := &simulation{history: begin(t, p), board: map[int]int{}, accepted: map[int]int{}}
		s.followUnfolding(s.last)
		cancelAt := rapid.IntRange(0, 30).Draw(t, "cancel at")
		var undone []int
		for n := 0; !s.state.Terminal(); n++ {
			require.Less(t, n, 300, "every history ends")
			var in Input = Operation{Action: ActionCancel, Reason: "random"}
			if n != cancelAt || s.progress.Ending != 0 {
				in = s.unfoldingEvent(t)
				if r, ok := in.(Reported); ok && p.Steps[r.Step].Kind == KindCompensation {
					r.Retryable = true // it does not fail for good here
					in = r
					if r.Success {
						undone = append(undone, r.Step)
					}
				}
			}
			s.followUnfolding(s.do(in))
			s.unfoldingInvariants()
		}
		want := 0
		for no := range p.Steps {
			if p.Steps[no].Undo >= 0 && s.progress.Steps[no].Status == StatusComplete && s.state != TaskComplete {
				want++
				require.Contains(t, undone, p.Steps[no].Undo)
			}
		}
		require.Len(t, undone, want, "undone once, and nothing else is")
		for i, undo := range undone {
			for _, earlier := range undone[:i] {
				require.Greater(t, p.Steps[earlier].Parents[0], p.Steps[undo].Parents[0], "in reverse")
			}
		}
	})
}
