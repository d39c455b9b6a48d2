package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// unfoldingGraph compiles steps given as kind:name parent…; the kind "join" is a plain step
// that joins existing parents.
func unfoldingGraph(t require.TestingT, steps ...string) *Plan {
	tmpl := &Template{Name: "u", Namespace: "n", Version: "1"}
	for _, text := range steps {
		words := strings.Fields(text)
		kind, name, _ := strings.Cut(words[0], ":")
		s := StepTemplate{Name: name, Kind: KindStandard, Dependencies: words[1:], Retry: RetryPolicy{Retryable: true, MaxAttempts: 2, Backoff: BackoffNone}}
		if kind == "join" {
			s.Join = JoinExisting
		} else if k, ok := parseStepKind(kind); ok {
			s.Kind = k
		}
		if s.Kind == KindBatchable {
			s.Handler.Initialization = map[string]any{"worker_template_name": "w_" + name}
		}
		if s.Kind == KindBatchWorker {
			s.Batch = &BatchSettings{Parallelism: 2, FailureStrategy: FailFast}
		}
		tmpl.Steps = append(tmpl.Steps, s)
	}
	p, err := Compile(tmpl)
	require.NoError(t, err)
	return p
}

func create(names ...string) json.RawMessage {
	if len(names) == 0 {
		return nothingToCreate
	}
	list, _ := json.Marshal(names)
	return json.RawMessage(`{"decision_point_outcome":{"type":"create_steps","step_names":` + string(list) + `}}`)
}

func batches(worker string, n int) json.RawMessage {
	var cursors []string
	for i := range n {
		cursors = append(cursors, fmt.Sprintf(`{"batch_id":"%03d","start_cursor":%d,"end_cursor":%d,"batch_size":1}`, i+1, i, i+1))
	}
	return json.RawMessage(fmt.Sprintf(`{"batch_processing_outcome":{"type":"create_batches","worker_template_name":%q,"worker_count":%d,"cursor_configs":[%s],"total_items":%d}}`,
		worker, n, strings.Join(cursors, ","), n))
}

// decides reports the success of a step with a result.
func (h *history) decides(name string, result json.RawMessage) *Effects {
	no, found := h.plan.StepNumber(name)
	require.True(h.t, found)
	return h.do(Reported{Step: no, Attempt: int(h.progress.Steps[no].Attempts) + 1, Success: true, RetryAfter: -1, Result: result})
}

// existing are the steps of the plan that exist.
func (h *history) existing() string {
	var list []string
	for no := range h.plan.Steps {
		if h.progress.Steps[no].Status != StatusNotCreated {
			list = append(list, h.plan.Steps[no].Name)
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func TestWhatADecisionCreates(t *testing.T) {
	approval := []string{"standard:v", "decision:d v", "standard:a d", "standard:b d", "standard:b2 b", "deferred:j a b2", "standard:after j"}
	for _, c := range []struct {
		name   string
		plan   []string
		chosen []string
		exist  string // in the end
		reason string // why the decision failed
	}{
		{"one branch", approval, []string{"a"}, "a after d j v", ""},
		{"the other, with what follows", approval, []string{"b"}, "after b b2 d j v", ""},
		{"both", approval, []string{"a", "b", "a"}, "a after b b2 d j v", ""},
		{"none", approval, nil, "after d j v", ""},
		{"a step further down", approval, []string{"b2"}, "", `without "b"`},
		{"itself", approval, []string{"d"}, "", "does not depend on the decision"},
		{"one above", approval, []string{"v"}, "", "does not depend on the decision"},
		{"the join itself", approval, []string{"j"}, "after d j v", ""},
		{"a plain join of both", []string{"standard:v", "decision:d v", "standard:a d", "standard:b d", "standard:j a b"}, []string{"a"}, "", "join: existing"},
		{"a plain join of both, chosen", []string{"standard:v", "decision:d v", "standard:a d", "standard:b d", "standard:j a b"}, []string{"a", "b"}, "a b d j v", ""},
		{"a branch that needs an earlier step too", []string{"standard:v", "decision:d v", "standard:a d", "standard:n v a", "standard:b d"}, []string{"b"}, "b d v", ""},
		{"a join on the way that was not taken", []string{"standard:v", "decision:d v", "standard:a d", "standard:b d", "deferred:j b"}, []string{"a"}, "a d v", ""},
		{"a join that names the decision", []string{"standard:v", "decision:d v", "standard:a d", "standard:b d", "deferred:j d b"}, []string{"a"}, "a d j v", ""},
		{"a plain step with join: existing", []string{"standard:v", "decision:d v", "standard:a d", "standard:b d", "join:j a b"}, []string{"b"}, "b d j v", ""},
	} {
		h := begin(t, unfoldingGraph(t, c.plan...))
		h.ok("v")
		e := h.decides("d", create(c.chosen...))
		if c.reason != "" {
			require.Equal(t, TaskError, h.state, c.name)
			require.Contains(t, e.End[0].Reason, c.reason, c.name)
			require.True(t, strings.HasPrefix(e.End[0].Reason, reasonInvalidOutcome), c.name)
			require.NotNil(t, e.DeadLetter, c.name)
			continue
		}
		h.finish()
		require.Equal(t, TaskComplete, h.state, c.name)
		require.Equal(t, c.exist, h.existing(), c.name)
	}
}

// finish reports every step on the board as a success.
func (h *history) finish() {
	for n := 0; !h.state.Terminal(); n++ {
		require.Less(h.t, n, 1000, "the task does not end")
		no := slices.IndexFunc(h.progress.Steps, func(s StepProgress) bool { return s.Status == StatusOnBoard })
		require.GreaterOrEqual(h.t, no, 0, "nothing can move")
		h.do(Reported{Step: no, Attempt: int(h.progress.Steps[no].Attempts) + 1, Success: true, RetryAfter: -1, Result: nothingToCreate})
	}
}

func TestAJoinWaitsForEveryDecisionThatLeadsToIt(t *testing.T) {
	plan := unfoldingGraph(t, "standard:v", "decision:d v", "decision:e v", "standard:a d", "standard:b e", "deferred:j a b")
	for _, order := range [][]string{{"d", "e"}, {"e", "d"}} {
		h := begin(t, plan)
		h.ok("v")
		branch := map[string]string{"d": "a", "e": "b"}
		h.decides(order[0], create(branch[order[0]]))
		h.ok(branch[order[0]])
		require.Empty(t, h.last.Put, "the other decision may still create a parent")
		h.decides(order[1], create(branch[order[1]]))
		require.Equal(t, []string{branch[order[1]]}, h.putNames())
		h.ok(branch[order[1]])
		require.Equal(t, []string{"j"}, h.putNames())
	}
	h := begin(t, plan)
	h.ok("v")
	h.decides("d", create("a"))
	h.ok("a")
	h.decides("e", create())
	require.Equal(t, []string{"j"}, h.putNames(), "no parent can come any more")
}

func TestNestedDecisions(t *testing.T) {
	plan := unfoldingGraph(t, "standard:v", "decision:d v", "standard:a d", "decision:e d", "standard:f e", "standard:g e", "deferred:j a f g")
	require.Equal(t, 2, plan.Steps[must(plan.StepNumber("g"))].Depth)
	h := begin(t, plan)
	h.ok("v")
	h.decides("d", create("e"))
	require.Equal(t, []string{"e"}, h.putNames())
	h.decides("e", create("f", "g"))
	h.finish()
	require.Equal(t, "d e f g j v", h.existing())

	h = begin(t, plan)
	h.ok("v")
	h.decides("d", create("a"))
	h.ok("a")
	require.Equal(t, []string{"j"}, h.putNames(), "what the second decision would have created is ruled out with it")

	_, effects, err := Advance(plan, h.state, begin(t, plan).progress, Rules{MaxCrashes: 1, Creation: Creation{MaxDecisionDepth: 1}},
		Reported{Step: 0, Attempt: 1, Success: true})
	require.NoError(t, err)
	require.NotEmpty(t, effects.Put)
}

func must(no int, ok bool) int {
	if !ok {
		panic("no such step")
	}
	return no
}

func TestLimitsOfDecisions(t *testing.T) {
	plan := unfoldingGraph(t, "standard:v", "decision:d v", "standard:a d", "standard:b d")
	for _, c := range []struct {
		rules  Rules
		reason string
	}{
		{Rules{MaxCrashes: 1, Creation: Creation{MaxDecisionSteps: 1}}, "names 2 steps"},
		{Rules{MaxCrashes: 1, Creation: Creation{RefuseDecisions: true}}, "turned off"},
		{Rules{MaxCrashes: 1, Creation: Creation{MaxDecisionSteps: 2, MaxDecisionDepth: 1}}, ""},
	} {
		h := begin(t, plan)
		h.ok("v")
		_, effects, err := Advance(plan, h.state, h.progress, c.rules, Reported{Step: 1, Attempt: 1, Success: true, Result: create("a", "b")})
		require.NoError(t, err)
		if c.reason == "" {
			require.Equal(t, []Decided{{Step: 1, Created: []int{2, 3}, Depth: 1}}, effects.Decided)
			continue
		}
		require.Contains(t, effects.End[0].Reason, c.reason)
	}
}

func TestBatchesComeOnTheBoardAFewAtATime(t *testing.T) {
	plan := unfoldingGraph(t, "batchable:b", "batch_worker:w_b b", "deferred:j w_b", "standard:after j")
	h := begin(t, plan)
	e := h.decides("b", batches("w_b", 5))
	require.Len(t, e.Batches, 5)
	require.Equal(t, "w_b_001", e.Batches[0].Name)
	require.Len(t, e.Put, 2, "as many as the template's parallelism")
	require.Equal(t, "after b j", h.existing())
	require.Equal(t, []Group{{Batchable: 0, Template: 1, First: 4, Count: 5}}, h.progress.Groups)
	again, err := DecodeProgress(h.progress.Encode())
	require.NoError(t, err)
	require.Equal(t, h.progress, again)
	for done := range 5 {
		onBoard := 0
		for _, s := range h.progress.Steps {
			if s.Status == StatusOnBoard {
				onBoard++
			}
		}
		require.Equal(t, min(2, 5-done), onBoard)
		h.do(Reported{Step: 4 + done, Attempt: 1, Success: true})
	}
	require.Equal(t, []string{"j"}, h.putNames())
	require.True(t, h.progress.Groups[0].Settled)
	h.finish()
	require.Equal(t, TaskComplete, h.state)
}

func TestAPlaceholderWhereThereIsNothingToDo(t *testing.T) {
	h := begin(t, unfoldingGraph(t, "batchable:b", "batch_worker:w_b b", "deferred:j w_b"))
	e := h.decides("b", nothingToCreate)
	require.Len(t, e.Batches, 1)
	require.True(t, e.Batches[0].NoOp)
	require.Equal(t, "w_b_000", e.Batches[0].Name)
	h.finish()
	require.Equal(t, "b j", h.existing())
}

// TestABareTextCreatesNothing, not even the placeholder.
func TestABareTextCreatesNothing(t *testing.T) {
	for _, result := range []string{`"no_batches"`, `{"batch_processing_outcome":"no_batches"}`} {
		h := begin(t, unfoldingGraph(t, "batchable:b", "batch_worker:w_b b", "deferred:j w_b"))
		e := h.decides("b", json.RawMessage(result))
		require.Empty(t, e.Batches)
		require.Equal(t, TaskComplete, h.state)
		require.Equal(t, "b", h.existing())
	}
}

// TestAWorkerThatNeedsNoSecondName gets its placeholder: only templates in Tasker's form,
// whose batch_config has a worker_template, name it at the batchable step again.
func TestAWorkerThatNeedsNoSecondName(t *testing.T) {
	for template, batches := range map[string]int{"": 1, "w": 0} {
		plan := unfoldingGraph(t, "batchable:b", "batch_worker:w b", "deferred:j w")
		plan.Steps[0].Handler.Initialization = nil
		plan.Steps[1].Batch.WorkerTemplate = template
		h := begin(t, plan)
		e := h.decides("b", json.RawMessage(`{"batch_processing_outcome":{"type":"no_batches"}}`))
		require.Len(t, e.Batches, batches)
	}
}

func TestAFailedBatchCallsTheOthersOff(t *testing.T) {
	h := begin(t, unfoldingGraph(t, "batchable:b", "batch_worker:w_b b", "deferred:j w_b"))
	h.decides("b", batches("w_b", 4))
	h.do(Reported{Step: 3, Attempt: 1})
	require.Equal(t, TaskError, h.state)
	require.Equal(t, []int{4}, h.last.Remove, "the one that was on the board")
	require.Equal(t, StatusCancelled, h.progress.Steps[6].Status)

	h.do(Operation{Action: ActionReset, Step: 3})
	require.Equal(t, TaskStepsInProcess, h.state)
	h.finish()
	require.Equal(t, TaskComplete, h.state, "those called off run too")
}

func TestRunAgainDecidesAnew(t *testing.T) {
	plan := unfoldingGraph(t, "standard:v", "decision:d v", "standard:a d", "batchable:b d", "batch_worker:w_b b", "deferred:j a w_b")
	h := begin(t, plan)
	h.ok("v")
	h.decides("d", create("b"))
	h.decides("b", batches("w_b", 3))
	h.finish()
	require.Equal(t, "b d j v", h.existing())

	h.do(Operation{Action: ActionRunAgain, Step: 0})
	require.Equal(t, "d v", h.existing(), "what the decision had created is forgotten")
	require.Empty(t, h.progress.Groups)
	h.ok("v")
	h.decides("d", create("a"))
	h.finish()
	require.Equal(t, "a d j v", h.existing())

	h.do(Operation{Action: ActionRunAgain, Step: 1})
	h.decides("d", create("b"))
	h.decides("b", batches("w_b", 2))
	require.Equal(t, 6, h.progress.Groups[0].First, "the numbers of forgotten batches are given out again")
	h.finish()
	require.Equal(t, TaskComplete, h.state)

	h.do(Operation{Action: ActionRunAgain, Step: 7})
	require.Equal(t, TaskStepsInProcess, h.state)
	require.Equal(t, StatusComplete, h.progress.Steps[6].Status, "only the batch that was named")
	require.Equal(t, StatusWaiting, h.progress.Steps[must(plan.StepNumber("j"))].Status)
	h.finish()
	require.Equal(t, TaskComplete, h.state)
}

func TestFailedBatchesRunAgainTogether(t *testing.T) {
	plan := unfoldingGraph(t, "batchable:b", "batch_worker:w_b b", "deferred:j w_b", "standard:after j")
	plan.Steps[1].Batch.FailureStrategy = IsolateFailed
	h := begin(t, plan)
	h.decides("b", batches("w_b", 4))
	for no := 4; no < 8; no++ {
		h.do(Reported{Step: no, Attempt: 1, Success: no < 6})
	}
	h.finish()
	require.Equal(t, TaskComplete, h.state)
	require.Equal(t, StatusTolerated, h.progress.Steps[7].Status)

	h.do(Operation{Action: ActionRunAgain, Step: 1})
	require.Equal(t, TaskStepsInProcess, h.state)
	require.Len(t, h.last.Put, 2, "those that had failed")
	require.Equal(t, StatusComplete, h.progress.Steps[5].Status)
	h.finish()
	require.Equal(t, 4, h.progress.tally().Complete-3, "all batches, what splits, joins and follows")
	_, _, err := Advance(plan, h.state, h.progress, testRules, Operation{Action: ActionRunAgain, Step: 1})
	var refused *NotAllowedError
	require.ErrorAs(t, err, &refused, "none has failed any more")
}

func TestDecisionsByHand(t *testing.T) {
	plan := unfoldingGraph(t, "standard:v", "decision:d v", "standard:a d", "deferred:j a")
	h := begin(t, plan)
	h.ok("v")
	_, _, err := Advance(plan, h.state, h.progress, testRules, Operation{Action: ActionComplete, Step: 1, Result: json.RawMessage(`{}`)})
	var invalid *InvalidOutcomeError
	require.ErrorAs(t, err, &invalid)
	require.ErrorContains(t, err, "decision_point_outcome")
	h.do(Operation{Action: ActionComplete, Step: 1, Result: create("a")})
	require.Equal(t, []string{"a"}, h.putNames())
	h.finish()
	require.Equal(t, "a d j v", h.existing())

	h = begin(t, plan)
	h.ok("v")
	h.do(Operation{Action: ActionResolve, Step: 1})
	require.Equal(t, []string{"j"}, h.putNames(), "resolved without a result: no branches")
}

// randomUnfoldingPlan draws a graph with steps of all kinds.
func randomUnfoldingPlan(t *rapid.T) *Plan {
	n := rapid.IntRange(2, 12).Draw(t, "steps")
	steps := []string{"standard:s0"}
	kinds := map[string]string{"s0": "standard"}
	order := []string{"s0"}
	for i := 1; i < n; i++ {
		kind := rapid.SampledFrom([]string{"standard", "standard", "decision", "decision", "deferred", "join", "batchable"}).Draw(t, "kind")
		name := fmt.Sprint("s", i)
		var parents []string
		for _, p := range order {
			if rapid.IntRange(0, 3).Draw(t, "edge") == 0 {
				parents = append(parents, p)
			}
		}
		if len(parents) == 0 && kind != "standard" {
			parents = []string{rapid.SampledFrom(order).Draw(t, "parent")}
		}
		steps = append(steps, kind+":"+name+" "+strings.Join(parents, " "))
		kinds[name], order = kind, append(order, name)
		if kind == "batchable" {
			steps = append(steps, "batch_worker:w_"+name+" "+name)
			order = append(order, "w_"+name)
		}
	}
	p := unfoldingGraph(t, steps...)
	for i := range p.Steps {
		if b := p.Steps[i].Batch; b != nil {
			b.FailureStrategy = rapid.SampledFrom([]string{FailFast, ContinueOnFailure, IsolateFailed}).Draw(t, "strategy")
			b.Parallelism = rapid.IntRange(1, 3).Draw(t, "parallelism")
		}
	}
	return p
}

// outcomeFor draws a result for a step; for a decision mostly an allowed one.
func (s *simulation) outcomeFor(t *rapid.T, no int) json.RawMessage {
	step := s.plan.Step(s.progress, no)
	switch step.Kind {
	case KindDecision:
		var names []string
		for child, below := range s.plan.descendants(step.No) {
			if below && rapid.IntRange(0, 2).Draw(t, "chosen") > 0 && slices.Contains(s.plan.Steps[child].Parents, step.No) {
				names = append(names, s.plan.Steps[child].Name)
			}
		}
		return create(names...)
	case KindBatchable:
		if n := rapid.IntRange(0, mostBatches).Draw(t, "batches"); n > 0 {
			return batches("w_"+step.Name, n)
		}
		return nothingToCreate
	}
	return nil
}

// unfoldingEvent draws what happens next to a step on the board.
func (s *simulation) unfoldingEvent(t *rapid.T) Input {
	steps := make([]int, 0, len(s.board))
	for no := range s.board {
		steps = append(steps, no)
	}
	slices.Sort(steps)
	no := rapid.SampledFrom(steps).Draw(t, "step")
	s.board[no]++
	in := Reported{Step: no, Attempt: s.board[no], RetryAfter: -1}
	switch rapid.IntRange(0, 9).Draw(t, "what") {
	case 0:
		in.Retryable = true
	case 1:
	default:
		in.Success, in.Result = true, s.outcomeFor(t, no)
	}
	return in
}

// unfoldingInvariants hold after every event of every history.
func (s *simulation) unfoldingInvariants() {
	tally := s.progress.tally()
	require.Equal(s.t, len(s.board), tally.OnBoard+tally.Scheduled, "the board holds what the statuses say")
	standing := newUnfolding(s.plan, s.progress)
	require.NoError(s.t, standing.run())
	for no, g := range s.progress.Steps {
		step := s.plan.Step(s.progress, no)
		if step == nil || g.Status == StatusNotCreated {
			require.NotContains(s.t, s.board, no, "it does not exist")
			continue
		}
		if g.Status == StatusWaiting {
			require.Equal(s.t, standing.unmet(step), g.Remaining, "step %s: the counter equals what the statuses say", step.Name)
		}
		if g.Status == StatusComplete {
			require.Equal(s.t, 1, s.accepted[no], "complete means exactly one accepted success")
		}
		if _, on := s.board[no]; !on {
			continue
		}
		for _, parent := range step.Parents { // what a step on the board relies on
			if standing.exists[parent] || !step.joinsExisting() {
				require.True(s.t, standing.satisfied(parent), "%s is on the board before %s", step.Name, s.plan.Steps[parent].Name)
			} else {
				require.False(s.t, standing.possible[parent], "%s is on the board and %s may still come", step.Name, s.plan.Steps[parent].Name)
			}
		}
	}
	if s.state.Terminal() {
		require.Empty(s.t, s.board, "an ended task has nothing on the board")
	} else if s.state != TaskBlockedByFailures {
		require.NotEmpty(s.t, s.board, "a live task can move")
	}
	s.numbersAreBounded()
	again, err := DecodeProgress(s.progress.Encode())
	require.NoError(s.t, err)
	require.Equal(s.t, s.progress, again)
}

// mostBatches is how many batches outcomeFor asks for at most.
const mostBatches = 4

// numbersAreBounded: each batch has a number of its own, unused numbers are empty, and there
// are no more of them than the plan can need at once.
func (s *simulation) numbersAreBounded() {
	owner := map[int]int{}
	for i := range s.progress.Groups {
		for no := s.progress.Groups[i].First; no < s.progress.Groups[i].First+s.progress.Groups[i].Count; no++ {
			require.NotContains(s.t, owner, no, "two batches have one number")
			require.GreaterOrEqual(s.t, no, len(s.plan.Steps), "a batch has the number of a step of the plan")
			owner[no] = i
		}
	}
	for no := len(s.plan.Steps); no < len(s.progress.Steps); no++ {
		if _, taken := owner[no]; !taken {
			require.Zero(s.t, s.progress.Steps[no], "the number %d is unused", no)
		}
	}
	workers := 0
	for i := range s.plan.Steps {
		if s.plan.Steps[i].Kind == KindBatchWorker {
			workers++
		}
	}
	require.LessOrEqual(s.t, len(s.progress.Steps)-len(s.plan.Steps), max(2*workers-1, 0)*mostBatches)
}

func (s *simulation) followUnfolding(e *Effects) {
	for _, p := range e.Put {
		require.NotContains(s.t, s.board, p.Step, "put twice")
		s.board[p.Step] = 0
	}
	for _, r := range e.Retry {
		require.Contains(s.t, s.board, r.Step)
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
}

// TestRandomUnfolding lets random workflows decide and split at random: no step waits for an
// impossible one, and none runs before a possible parent.
func TestRandomUnfolding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &simulation{history: begin(t, randomUnfoldingPlan(t)), board: map[int]int{}, accepted: map[int]int{}}
		s.followUnfolding(s.last)
		s.unfoldingInvariants()
		for n := 0; !s.state.Terminal() && s.state != TaskBlockedByFailures; n++ {
			require.Less(t, n, 300, "every history ends")
			before := s.progress.Clone()
			in, kept := s.unfoldingEvent(t), s.progress
			s.followUnfolding(s.do(in))
			require.Equal(t, before.Steps, kept.Steps, "Advance leaves its arguments alone")
			s.unfoldingInvariants()
		}
	})
}

// TestRandomActionsOnUnfolding has operators act on them too.
func TestRandomActionsOnUnfolding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &simulation{history: begin(t, randomUnfoldingPlan(t)), board: map[int]int{}, accepted: map[int]int{}}
		s.followUnfolding(s.last)
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			if len(s.board) > 0 && rapid.IntRange(0, 3).Draw(t, "report") > 0 {
				s.followUnfolding(s.do(s.unfoldingEvent(t)))
			} else {
				s.actOnUnfolding(t)
			}
			s.unfoldingInvariants()
		}
	})
}

func (s *simulation) actOnUnfolding(t *rapid.T) {
	no := rapid.IntRange(0, len(s.progress.Steps)-1).Draw(t, "acted on")
	if s.plan.Step(s.progress, no) == nil {
		return
	}
	in := rapid.SampledFrom([]Operation{{Action: ActionReset, Step: no}, {Action: ActionResolve, Step: no}, {Action: ActionComplete, Step: no, Result: s.outcomeFor(t, no)}, {Action: ActionRunAgain, Step: no}, {Action: ActionFail}, {Action: ActionCancel}}).Draw(t, "action")
	before := s.progress.Clone()
	progress, effects, err := Advance(s.plan, s.state, s.progress, testRules, in)
	var notAllowed *NotAllowedError
	var invalid *InvalidOutcomeError
	if errors.As(err, &notAllowed) || errors.As(err, &invalid) || s.state.Terminal() && !in.reopens(s.state) {
		require.Error(t, err)
		require.Equal(t, before.Steps, s.progress.Steps, "what is refused changes nothing")
		return
	}
	require.NoError(t, err)
	for at := range before.Steps {
		if before.Steps[at].Status == StatusComplete && progress.Steps[at].Status != StatusComplete {
			s.accepted[at] = 0 // it runs again
		}
	}
	if in.Action == ActionComplete {
		s.accepted[in.Step]++
	}
	s.progress, s.state, s.last = progress, effects.State, effects
	s.followUnfolding(effects)
}
