package workflow

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// refused asserts that an action is not allowed.
func (h *history) refused(in Input) {
	_, _, err := Advance(h.plan, h.state, h.progress, testRules, in)
	var notAllowed *NotAllowedError
	require.ErrorAs(h.t, err, &notAllowed, "%#v", in)
}

// TestRefusalsAreReported: operators read these words, for one task and in bulk results.
func TestRefusalsAreReported(t *testing.T) {
	started, cancelled, complete := begin(t, diamond(t)), begin(t, diamond(t)), begin(t, diamond(t))
	cancelled.do(Operation{Action: ActionCancel})
	for _, name := range []string{"start", "left", "right", "end"} {
		complete.ok(name)
	}
	undoing := begin(t, saga(t, 2))
	undoing.ok("do0")
	undoing.fails("do1", false)
	for _, c := range []struct {
		h    *history
		in   Input
		want string
	}{
		{started, Operation{Action: ActionReset, Step: 0}, "step start in state on_board does not allow reset_for_retry"},
		{started, Operation{Action: ActionRunAgain, Step: 3}, "step end in state pending does not allow run_again"},
		{failed(t), Operation{Action: ActionReset, Step: 0}, "step start in state complete does not allow reset_for_retry"},
		{failed(t), Operation{Action: ActionResolve, Step: 1}, "step left in state complete does not allow resolve_manually"},
		{failed(t), Operation{Action: ActionComplete, Step: 1}, "step left in state complete does not allow complete_manually"},
		{failed(t), Operation{Action: ActionCancel}, "a task in state error does not allow cancel"},
		{failed(t), Operation{Action: ActionFail}, "a task in state error does not allow fail"},
		{failed(t), Operation{Action: ActionResolve, Step: -1}, "a task in state error does not allow resolve_manually"},
		{cancelled, Operation{Action: ActionCancel}, "a task in state cancelled does not allow cancel"},
		{cancelled, Operation{Action: ActionReset, Step: 0}, "a task in state cancelled does not allow reset_for_retry"},
		{complete, Operation{Action: ActionResolve, Step: 0}, "a task in state complete does not allow resolve_manually"},
		{complete, Operation{Action: ActionComplete, Step: 0}, "a task in state complete does not allow complete_manually"},
		{undoing, Operation{Action: ActionCancel}, "a task in state compensating does not allow cancel"},
		{undoing, Operation{Action: ActionReset, Step: must(undoing.plan.StepNumber("do1"))}, "step do1 in state compensating does not allow reset_for_retry"},
	} {
		_, _, err := Advance(c.h.plan, c.h.state, c.h.progress, testRules, c.in)
		var notAllowed *NotAllowedError
		require.ErrorAs(t, err, &notAllowed, c.want)
		require.EqualError(t, notAllowed, c.want)
	}
	_, _, err := Advance(complete.plan, complete.state, complete.progress, testRules, LeaseLost{})
	require.EqualError(t, err, "advance: the task has ended as complete")
}

func failed(t require.TestingT) *history {
	h := begin(t, diamond(t))
	h.ok("start")
	h.ok("left")
	h.fails("right", false)
	require.Equal(t, TaskError, h.state)
	return h
}

func TestResetBringsAFailedTaskBack(t *testing.T) {
	h := failed(t)
	require.Equal(t, &DeadLetter{Reason: DeadLetterExhausted, Detail: ReasonPermanent, Step: 2}, h.last.DeadLetter)
	e := h.do(Operation{Action: ActionReset, Step: 2})
	require.Equal(t, TaskStepsInProcess, h.state)
	require.Equal(t, []string{"right"}, h.putNames())
	require.Zero(t, h.progress.Steps[2].Attempts)
	require.Nil(t, e.DeadLetter)
	h.ok("right")
	h.ok("end")
	require.Equal(t, TaskComplete, h.state)
	h.refused(Operation{Action: ActionResolve, Step: 3})
	_, _, err := Advance(h.plan, h.state, h.progress, testRules, Operation{Action: ActionReset, Step: 2})
	require.Error(t, err, "only a failed task can be reset")
}

func TestStepsAreSettledByHand(t *testing.T) {
	for name, in := range map[string]Input{"resolve": Operation{Action: ActionResolve, Step: 2}, "complete": Operation{Action: ActionComplete, Step: 2}} {
		h := failed(t)
		h.do(in)
		require.Equal(t, []string{"end"}, h.putNames(), name)
		h.refused(in)
	}
	h := begin(t, diamond(t))
	require.Equal(t, []int{0}, h.do(Operation{Action: ActionResolve, Step: 0}).Remove, "a running step is called off")
	require.Equal(t, []string{"left", "right"}, h.putNames())
	h.do(Operation{Action: ActionResolve, Step: 3}) // it still waits
	h.ok("left")
	h.ok("right")
	require.Equal(t, TaskComplete, h.state, "nothing is left to do")
}

func TestRunAgainRenewsWhatDependsOnIt(t *testing.T) {
	h := begin(t, diamond(t))
	h.refused(Operation{Action: ActionRunAgain, Step: 1})
	for _, name := range []string{"start", "left", "right", "end"} {
		h.ok(name)
	}
	h.do(Operation{Action: ActionRunAgain, Step: 1})
	require.Equal(t, TaskStepsInProcess, h.state)
	require.Equal(t, []string{"left"}, h.putNames())
	require.Equal(t, StatusComplete, h.progress.Steps[2].Status, "the other branch stays")
	require.Equal(t, StatusWaiting, h.progress.Steps[3].Status)
	h.ok("left")
	h.ok("end")
	require.Equal(t, TaskComplete, h.state)

	h.do(Operation{Action: ActionRunAgain, Step: 0})
	h.do(Operation{Action: ActionCancel})
	h.do(Operation{Action: ActionRunAgain, Step: 0})
	require.Equal(t, []string{"start"}, h.putNames(), "what was cancelled is renewed with it")
}

func TestATaskEndsByHand(t *testing.T) {
	h := begin(t, diamond(t))
	h.ok("start")
	require.ElementsMatch(t, []int{1, 2}, h.do(Operation{Action: ActionResolve, Step: -1, Reason: "done on paper"}).Remove)
	require.Equal(t, TaskResolvedManually, h.state)

	h = begin(t, diamond(t))
	h.ok("start")
	e := h.do(Operation{Action: ActionFail, Reason: "stale", DeadLetter: DeadLetterStaleness})
	require.Equal(t, TaskError, h.state)
	require.Equal(t, &DeadLetter{Reason: DeadLetterStaleness, Detail: "stale", Step: -1}, e.DeadLetter)
	h.do(Operation{Action: ActionReset, Step: 1})
	h.ok("left")
	require.Equal(t, TaskError, h.state, "right has failed too")
	h.do(Operation{Action: ActionReset, Step: 2})
	h.ok("right")
	h.ok("end")
	require.Equal(t, TaskComplete, h.state)
}

// TestRandomActions has operators act on random histories: the invariants hold, and a
// refused action changes nothing.
func TestRandomActions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &simulation{history: begin(t, randomPlan(t)), board: map[int]int{}, accepted: map[int]int{}}
		s.follow(s.last)
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			if len(s.board) > 0 && rapid.IntRange(0, 2).Draw(t, "report") > 0 {
				s.follow(s.do(s.event(t)))
			} else {
				s.act(t)
			}
			s.invariants()
		}
	})
}

func (s *simulation) act(t *rapid.T) {
	no := rapid.IntRange(0, len(s.plan.Steps)-1).Draw(t, "acted on")
	in := rapid.SampledFrom([]Operation{{Action: ActionReset, Step: no}, {Action: ActionResolve, Step: no}, {Action: ActionComplete, Step: no}, {Action: ActionRunAgain, Step: no}, {Action: ActionResolve, Step: -1}, {Action: ActionFail}, {Action: ActionCancel}}).Draw(t, "action")
	before := s.progress.Clone()
	progress, effects, err := Advance(s.plan, s.state, s.progress, testRules, in)
	require.Equal(t, before, s.progress, "Advance leaves its arguments alone")
	var notAllowed *NotAllowedError
	if errors.As(err, &notAllowed) || s.state.Terminal() && !in.reopens(s.state) {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	for at := range s.plan.Steps {
		if before.Steps[at].Status == StatusComplete && progress.Steps[at].Status != StatusComplete {
			s.accepted[at] = 0 // it runs again
		}
	}
	if in.Action == ActionComplete {
		s.accepted[in.Step]++
	}
	s.progress, s.state, s.last = progress, effects.State, effects
	s.follow(effects)
}

// TestActionsInTheSameBreathAsReports: an operator acts on a step that a report of the same
// transaction has just put on the board or is about to retry.
func TestActionsInTheSameBreathAsReports(t *testing.T) {
	done := Reported{Step: 0, Attempt: 1, Success: true}
	for name, c := range map[string]struct {
		inputs []Input
		put    []int
	}{
		"resolved":         {[]Input{done, Operation{Action: ActionResolve, Step: 1}}, []int{2}},
		"completed":        {[]Input{done, Operation{Action: ActionComplete, Step: 1}}, []int{2}},
		"both, and behind": {[]Input{done, Operation{Action: ActionComplete, Step: 1}, Operation{Action: ActionComplete, Step: 2}}, []int{3}},
		"run again":        {[]Input{done, Operation{Action: ActionRunAgain, Step: 0}}, []int{0}},
	} {
		h := begin(t, diamond(t))
		e := h.do(c.inputs...)
		var put []int
		for _, p := range e.Put {
			put = append(put, p.Step)
		}
		require.Equal(t, c.put, put, name)
		require.Empty(t, e.Remove, "%s: what never stood there cannot leave", name)
	}
	h := begin(t, diamond(t))
	e := h.do(Reported{Step: 0, Attempt: 1, Retryable: true, RetryAfter: -1}, Operation{Action: ActionResolve, Step: 0})
	require.Empty(t, e.Retry)
	require.Empty(t, e.Remove)
	require.Equal(t, []EndStep{{Step: 0, Outcome: OutcomeFailed}}, e.End, "the attempt has failed, and is recorded as that")
}

// An action is applied together with a report: the step that the report put on the board was
// never there, and its attempt keeps its outcome.
func TestActionsBesideAReport(t *testing.T) {
	reports := map[string]Reported{
		"success": {Step: 1, Attempt: 1, Success: true},
		"failure": {Step: 1, Attempt: 1, Retryable: true},
	}
	for name, in := range map[string]Input{"cancel": Operation{Action: ActionCancel, Reason: "no"}, "fail": Operation{Action: ActionFail, Reason: "stale"}, "resolve": Operation{Action: ActionResolve, Step: -1}} {
		for how, report := range reports {
			t.Run(name+" "+how, func(t *testing.T) {
				h := begin(t, diamond(t))
				h.ok("start")
				want := EndStep{Step: 1, Outcome: OutcomeSuccess}
				if !report.Success {
					want.Outcome = OutcomeFailed
				}
				e := h.do(report, in)
				require.Equal(t, []EndStep{want}, e.End)
				require.Equal(t, []int{2}, e.Remove, "right alone was on the board beside it")
				require.Empty(t, e.Put)
				require.Empty(t, e.Retry)
			})
		}
	}
}
