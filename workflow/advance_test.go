package workflow

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var testRules = Rules{MaxCrashes: 2, Backoff: BackoffDefaults{
	Delays: []time.Duration{time.Second, 5 * time.Second}, Multiplier: 2, Max: time.Minute}}

// graph compiles steps given as name: parents, all with three attempts.
func graph(t require.TestingT, steps ...[]string) *Plan {
	tmpl := &Template{Name: "g", Namespace: "n", Version: "1"}
	for _, s := range steps {
		tmpl.Steps = append(tmpl.Steps, StepTemplate{Name: s[0], Kind: KindStandard, Dependencies: s[1:],
			Retry: RetryPolicy{Retryable: true, MaxAttempts: 3, Backoff: BackoffFixed, BaseMS: 1000}})
	}
	p, err := Compile(tmpl)
	require.NoError(t, err)
	return p
}

func diamond(t require.TestingT) *Plan {
	return graph(t, []string{"start"}, []string{"left", "start"}, []string{"right", "start"}, []string{"end", "left", "right"})
}

// history is a task driven by hand.
type history struct {
	t        require.TestingT
	plan     *Plan
	state    TaskState
	progress *Progress
	last     *Effects
}

func begin(t require.TestingT, p *Plan) *history {
	h := &history{t: t, plan: p, state: TaskPending, progress: NewProgress(p)}
	h.do(Created{})
	return h
}

func (h *history) do(inputs ...Input) *Effects {
	progress, effects, err := Advance(h.plan, h.state, h.progress, testRules, inputs...)
	require.NoError(h.t, err)
	h.progress, h.last, h.state = progress, effects, effects.State
	return effects
}

func (h *history) ok(name string) *Effects {
	no, found := h.plan.StepNumber(name)
	require.True(h.t, found)
	return h.do(Reported{Step: no, Attempt: int(h.progress.Steps[no].Attempts) + 1, Success: true, RetryAfter: -1})
}

func (h *history) fails(name string, retryable bool) *Effects {
	no, found := h.plan.StepNumber(name)
	require.True(h.t, found)
	return h.do(Reported{Step: no, Attempt: int(h.progress.Steps[no].Attempts) + 1, Retryable: retryable, RetryAfter: -1})
}

func (h *history) putNames() (names []string) {
	for _, p := range h.last.Put {
		names = append(names, h.plan.Steps[p.Step].Name)
	}
	return names
}

func TestDiamondInOrder(t *testing.T) {
	h := begin(t, diamond(t))
	require.Equal(t, []string{"start"}, h.putNames())
	require.Equal(t, TaskPending, h.state)
	h.ok("start")
	require.Equal(t, []string{"left", "right"}, h.putNames())
	require.Equal(t, TaskStepsInProcess, h.state)
	h.ok("right")
	require.Empty(t, h.putNames(), "end waits for left")
	h.ok("left")
	require.Equal(t, []string{"end"}, h.putNames())
	require.True(t, h.ok("end").Finished)
	require.Equal(t, TaskComplete, h.state)
}

func TestBothBranchesInOneBreath(t *testing.T) {
	h := begin(t, diamond(t))
	h.ok("start")
	e := h.do(Reported{Step: 1, Attempt: 1, Success: true}, Reported{Step: 2, Attempt: 1, Success: true})
	require.Len(t, e.End, 2)
	require.Equal(t, []string{"end"}, h.putNames())
}

func TestRetryUntilExhausted(t *testing.T) {
	h := begin(t, graph(t, []string{"only"}))
	for range 2 {
		e := h.fails("only", true)
		require.Equal(t, []RetryStep{{Step: 0, DueIn: time.Second, Outcome: OutcomeFailed}}, e.Retry)
		require.Equal(t, TaskWaitingForRetry, h.state)
	}
	e := h.fails("only", true)
	require.Equal(t, []EndStep{{Step: 0, Outcome: OutcomeError, Reason: ReasonExhausted}}, e.End)
	require.Equal(t, TaskError, h.state)
	require.Equal(t, []TaskChange{
		{TaskWaitingForRetry, TaskBlockedByFailures, "step only: max_retries_exceeded"},
		{TaskBlockedByFailures, TaskError, "step only: max_retries_exceeded"}}, e.Changes)
}

func TestFailureForGoodLetsTheOtherBranchFinish(t *testing.T) {
	h := begin(t, diamond(t))
	h.ok("start")
	require.False(t, h.fails("left", false).Finished)
	require.Equal(t, TaskStepsInProcess, h.state)
	require.True(t, h.ok("right").Finished)
	require.Equal(t, TaskError, h.state)
	require.Equal(t, StatusWaiting, h.progress.Steps[3].Status, "end never ran")
}

func TestPolicyBlockWaitsForAnOperator(t *testing.T) {
	p := diamond(t)
	p.Template.OnFailure = OnFailureBlock
	h := begin(t, p)
	require.False(t, h.fails("start", false).Finished)
	require.Equal(t, TaskBlockedByFailures, h.state)
}

func TestHandlersWishBeatsTheFormula(t *testing.T) {
	h := begin(t, graph(t, []string{"only"}))
	e := h.do(Reported{Step: 0, Attempt: 1, Retryable: true, RetryAfter: 7 * time.Second})
	require.Equal(t, 7*time.Second, e.Retry[0].DueIn)
}

func TestLostLeases(t *testing.T) {
	h := begin(t, graph(t, []string{"only"}))
	e := h.do(LeaseLost{Step: 0, Attempt: 1})
	require.Equal(t, []RetryStep{{Step: 0, Outcome: OutcomeLeaseLost}}, e.Retry, "claimable again at once")
	e = h.do(LeaseLost{Step: 0, Attempt: 2})
	require.Equal(t, ReasonPoison, e.End[0].Reason, "two crashes are the limit here")

	p := graph(t, []string{"once"})
	p.Steps[0].Retry.Retryable = false
	h = begin(t, p)
	e = h.do(LeaseLost{Step: 0, Attempt: 1})
	require.Equal(t, ReasonWorkerLost, e.End[0].Reason, "its side effects are unknown")
}

func TestCancelVoidsWhatComesWithIt(t *testing.T) {
	h := begin(t, diamond(t))
	h.ok("start")
	e := h.do(Reported{Step: 1, Attempt: 1, Success: true}, Operation{Action: ActionCancel, Reason: "no"}, Reported{Step: 2, Attempt: 1, Success: true})
	require.Equal(t, TaskCancelled, h.state)
	require.Empty(t, e.Put)
	require.Equal(t, []int{2}, e.Remove)
	require.Equal(t, []EndStep{{Step: 1, Outcome: OutcomeSuccess}}, e.End)
}

func TestDelayedStart(t *testing.T) {
	p := diamond(t)
	g, e, err := Advance(p, TaskPending, NewProgress(p), testRules, Created{StartIn: time.Hour})
	require.NoError(t, err)
	require.Equal(t, []PutStep{{Step: 0, DueIn: time.Hour}}, e.Put)
	require.Equal(t, StatusScheduled, g.Steps[0].Status)
	require.Equal(t, TaskPending, e.State)
}

func TestBrokenContracts(t *testing.T) {
	p := diamond(t)
	for _, in := range []Input{
		Reported{Step: 9, Success: true}, Reported{Step: -1}, Reported{Step: 3, Success: true}, LeaseLost{Step: 1},
	} {
		_, _, err := Advance(p, TaskPending, NewProgress(p), testRules, in)
		require.Error(t, err, "%#v", in)
	}
	_, _, err := Advance(p, TaskComplete, NewProgress(p), testRules, Operation{Action: ActionCancel})
	require.Error(t, err)
	g := NewProgress(p)
	same, e, err := Advance(p, TaskPending, g, testRules)
	require.NoError(t, err)
	require.Same(t, g, same)
	require.Empty(t, e.Put, "nothing in, nothing out")
}

// randomPlan draws any acyclic graph of up to 12 steps.
func randomPlan(t *rapid.T) *Plan {
	n := rapid.IntRange(1, 12).Draw(t, "steps")
	tmpl := &Template{Name: "r", Namespace: "n", Version: "1"}
	if rapid.Bool().Draw(t, "block") {
		tmpl.OnFailure = OnFailureBlock
	}
	for i := range n {
		s := StepTemplate{Name: fmt.Sprint("s", i), Kind: KindStandard, Retry: RetryPolicy{
			Retryable: rapid.Bool().Draw(t, "retryable"), MaxAttempts: rapid.IntRange(1, 3).Draw(t, "attempts"),
			Backoff: rapid.SampledFrom([]BackoffStrategy{BackoffNone, BackoffFixed, BackoffExponential}).Draw(t, "backoff")}}
		for parent := range i {
			if rapid.IntRange(0, 2).Draw(t, "edge") == 0 {
				s.Dependencies = append(s.Dependencies, fmt.Sprint("s", parent))
			}
		}
		tmpl.Steps = append(tmpl.Steps, s)
	}
	p, err := Compile(tmpl)
	require.NoError(t, err)
	return p
}

// simulation is the board as store keeps it, built only from the effects.
type simulation struct {
	*history
	board    map[int]int // step → attempts begun
	accepted map[int]int // successes per step
}

func (s *simulation) follow(e *Effects) {
	for _, p := range e.Put {
		require.NotContains(s.t, s.board, p.Step, "put twice")
		for _, parent := range s.plan.Steps[p.Step].Parents {
			require.True(s.t, s.progress.Steps[parent].Status.satisfies(), "ready before its parents")
		}
		s.board[p.Step] = 0
	}
	for _, r := range e.Retry {
		require.Contains(s.t, s.board, r.Step)
		require.GreaterOrEqual(s.t, r.DueIn, time.Duration(0))
	}
	for _, x := range e.End {
		require.Contains(s.t, s.board, x.Step)
		delete(s.board, x.Step)
		if x.Outcome == OutcomeSuccess {
			s.accepted[x.Step]++
		}
	}
	for _, no := range e.Remove {
		require.Contains(s.t, s.board, no)
		delete(s.board, no)
	}
	for _, c := range e.Changes {
		require.True(s.t, taskPath(c.From, c.To), "%s → %s is no path", c.From, c.To)
	}
}

// invariants are the properties that hold after every step of every history.
func (s *simulation) invariants() {
	tally := s.progress.tally()
	require.Len(s.t, s.plan.Steps, tally.Total)
	require.Equal(s.t, len(s.board), tally.OnBoard+tally.Scheduled, "the board holds what the statuses say")
	for no, g := range s.progress.Steps {
		require.LessOrEqual(s.t, int(g.Attempts), s.plan.Steps[no].Retry.MaxAttempts)
		unsatisfied := 0
		for _, parent := range s.plan.Steps[no].Parents {
			if !s.progress.Steps[parent].Status.satisfies() {
				unsatisfied++
			}
		}
		require.EqualValues(s.t, unsatisfied, g.Remaining, "the counter equals what the statuses say")
		want := 0
		if g.Status == StatusComplete {
			want = 1
		}
		require.Equal(s.t, want, s.accepted[no], "complete means exactly one accepted success")
	}
	if s.state.Terminal() {
		require.Empty(s.t, s.board, "an ended task has nothing on the board")
	} else if s.state != TaskBlockedByFailures {
		require.NotEmpty(s.t, s.board, "a live task can move")
	}
	again, err := DecodeProgress(s.progress.Encode())
	require.NoError(s.t, err)
	require.Equal(s.t, s.progress, again)
}

// event draws what happens next to a step on the board.
func (s *simulation) event(t *rapid.T) Input {
	steps := make([]int, 0, len(s.board))
	for no := range s.board {
		steps = append(steps, no)
	}
	slices.Sort(steps)
	no := rapid.SampledFrom(steps).Draw(t, "step")
	s.board[no]++
	switch rapid.IntRange(0, 9).Draw(t, "what") {
	case 0:
		return LeaseLost{Step: no, Attempt: s.board[no]}
	case 1, 2:
		return Reported{Step: no, Attempt: s.board[no], Retryable: true, RetryAfter: -1, Seed: 7}
	case 3:
		return Reported{Step: no, Attempt: s.board[no], RetryAfter: -1}
	default:
		return Reported{Step: no, Attempt: s.board[no], Success: true, RetryAfter: -1}
	}
}

func TestRandomHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := randomPlan(t)
		s := &simulation{history: begin(t, p), board: map[int]int{}, accepted: map[int]int{}}
		s.follow(s.last)
		s.invariants()
		cancelAt := rapid.IntRange(0, 80).Draw(t, "cancel at")
		for n := 0; !s.state.Terminal() && s.state != TaskBlockedByFailures; n++ {
			require.Less(t, n, 200, "every history ends")
			if n == cancelAt {
				s.follow(s.do(Operation{Action: ActionCancel, Reason: "random"}))
			} else {
				before := s.progress.Clone()
				in := s.event(t)
				kept := s.progress
				s.follow(s.do(in))
				require.Equal(t, before, kept, "Advance leaves its arguments alone")
			}
			s.invariants()
		}
	})
}

// randomRules draws all of Rules.
func randomRules(t *rapid.T) Rules {
	number := func(name string) int { return rapid.IntRange(0, 3).Draw(t, name) }
	return Rules{Backoff: testRules.Backoff, MaxCrashes: number("crashes"), Creation: Creation{
		MaxDecisionSteps: number("steps"), MaxDecisionDepth: number("depth"), MaxBatches: number("batches"), MaxParallelBatches: number("parallel"),
		RefuseDecisions: rapid.Bool().Draw(t, "no decisions"), RefuseBatches: rapid.Bool().Draw(t, "no batches")}}
}

// TestSuccessesNeedNoConfiguration: a worker decides about them without the rules of an
// orchestrator, as long as they create no steps.
func TestSuccessesNeedNoConfiguration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := randomRules(t)
		s := &simulation{history: begin(t, randomPlan(t)), board: map[int]int{}, accepted: map[int]int{}}
		s.follow(s.last)
		for n := 0; !s.state.Terminal() && s.state != TaskBlockedByFailures; n++ {
			in := s.event(t)
			if reported, ok := in.(Reported); ok && reported.Success {
				s.sameBy(rules, Rules{}, in)
			}
			s.follow(s.do(in))
		}
	})
}

// TestSuccessesThatCreateNeedTheRulesOfCreation and no others, even if these refuse the
// creation.
func TestSuccessesThatCreateNeedTheRulesOfCreation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := randomRules(t)
		s := &simulation{history: begin(t, randomUnfoldingPlan(t)), board: map[int]int{}, accepted: map[int]int{}}
		s.followUnfolding(s.last)
		for n := 0; !s.state.Terminal() && s.state != TaskBlockedByFailures; n++ {
			in := s.unfoldingEvent(t)
			if reported, ok := in.(Reported); ok && reported.Success {
				s.sameBy(rules, Rules{Creation: rules.Creation}, in)
			}
			s.followUnfolding(s.do(in))
		}
	})
}

// sameBy requires that the input has the same effects by both rules, unless it fails a step
// by both.
func (s *simulation) sameBy(one, other Rules, in Input) {
	failed := func(e *Effects) bool {
		return len(e.Retry) > 0 || slices.ContainsFunc(e.End, func(end EndStep) bool { return end.Outcome != OutcomeSuccess })
	}
	progress, effects, err := Advance(s.plan, s.state, s.progress, one, in)
	require.NoError(s.t, err)
	same, sameEffects, err := Advance(s.plan, s.state, s.progress, other, in)
	require.NoError(s.t, err)
	if failed(effects) {
		require.True(s.t, failed(sameEffects))
		return
	}
	require.Equal(s.t, progress, same)
	require.Equal(s.t, effects, sameEffects)
}

func TestReportsTogetherEqualReportsOneByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := randomPlan(t)
		h := begin(t, p)
		var inputs []Input
		for _, put := range h.last.Put {
			inputs = append(inputs, Reported{Step: put.Step, Attempt: 1, Success: rapid.Bool().Draw(t, "ok"), Retryable: true, RetryAfter: -1})
		}
		together, effects, err := Advance(p, h.state, h.progress, testRules, inputs...)
		require.NoError(t, err)
		for i, in := range inputs {
			h.do(in)
			if h.state.Terminal() {
				require.Equal(t, len(inputs)-1, i, "one by one ends only with the last")
			}
		}
		require.Equal(t, h.progress, together)
		require.Equal(t, h.state, effects.State)
	})
}

func TestPartsOfADecisionDoNotMeet(t *testing.T) {
	h := begin(t, fanIn(t, 7))
	g, e, err := Advance(h.plan, h.state, h.progress, testRules, Reported{Step: 0, Attempt: 1, Success: true})
	require.NoError(t, err)
	before, kept := g.Clone(), *e
	e.Put = append(e.Put, PutStep{Step: 1}, PutStep{Step: 2}, PutStep{Step: 3})
	e.End = append(e.End, EndStep{Step: 4}, EndStep{Step: 5})
	e.Changes = append(e.Changes, TaskChange{}, TaskChange{})
	g.Steps = append(g.Steps, StepProgress{}, StepProgress{}, StepProgress{})
	require.Equal(t, before.Steps, g.Steps[:len(before.Steps)])
	require.Equal(t, []EndStep{{Step: 0, Outcome: OutcomeSuccess}}, kept.End)
	require.Equal(t, []TaskChange{{From: TaskPending, To: TaskStepsInProcess}}, kept.Changes)
}

// tally counts the steps that exist, and those with some statuses.
type tally struct{ Total, OnBoard, Scheduled, Complete int }

func (g *Progress) tally() (t tally) {
	n := map[Status]int{}
	for _, s := range g.Steps {
		n[s.Status]++
	}
	return tally{len(g.Steps) - n[StatusNotCreated], n[StatusOnBoard], n[StatusScheduled], n[StatusComplete]}
}
