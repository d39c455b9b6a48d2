package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/test/chaos/internal/ledger"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
)

// Rule is an invariant.
type Rule string

// The rules.
const (
	NothingLost     Rule = "every accepted order is a task, and just one"
	EverythingEnds  Rule = "every task ends, as its workflow says"
	EveryStepOnce   Rule = "every step of a complete task has one success"
	OneClaim        Rule = "every accepted result belongs to one claim, and its handler said so"
	Fenced          Rule = "claims of a step follow each other, and none follows its end"
	HandedOn        Rule = "handlers are handed the accepted results of their parents"
	EverythingKnown Rule = "every execution is on record, unless its worker handed it back"
	NothingLeft     Rule = "nothing is left on the board"
	Integrity       Rule = "the records obey the rules of the product"
	Together        Rule = "a handler's writes in its transaction exist exactly if its claim succeeded"
	RunsToTheEnd    Rule = "daemons end when they are stopped, and not before"
	FoundByPolls    Rule = "what is ready while the broker fails is found within the poll bound"
	HeardAgain      Rule = "daemons hear signals again after the last fault"
)

// Violation is a rule that did not hold.
type Violation struct {
	Rule Rule
	What string
}

// String is the violation in a sentence.
func (v Violation) String() string { return string(v.Rule) + ": " + v.What }

// maxViolations bounds the violations kept.
const maxViolations = 200

// checker indexes the facts for the checks.
type checker struct {
	Facts
	flows     map[string]workload.Workflow
	attempts  map[uuid.UUID][]*Attempt
	byToken   map[int64]*Attempt
	executed  map[int64]*ledger.Execution
	violation []Violation
}

// Check returns the violations, at most 200.
func Check(f Facts) []Violation {
	c := checker{Facts: f, flows: map[string]workload.Workflow{}, attempts: map[uuid.UUID][]*Attempt{},
		byToken: map[int64]*Attempt{}, executed: map[int64]*ledger.Execution{}}
	for _, w := range workload.Workflows() {
		c.flows[w.Name] = w
	}
	c.index()
	c.orders()
	for i := range c.Tasks {
		c.task(&c.Tasks[i])
	}
	for i := range c.Executions {
		c.execution(&c.Executions[i])
	}
	c.bookings()
	for _, left := range c.Left {
		c.fail(NothingLeft, "%s", left)
	}
	for _, problem := range c.Integrity {
		c.fail(Integrity, "%s", problem)
	}
	if c.Checked != len(c.Tasks) {
		c.fail(Integrity, "%d of %d tasks were checked", c.Checked, len(c.Tasks))
	}
	return c.violation
}

func (c *checker) fail(rule Rule, format string, args ...any) {
	if len(c.violation) < maxViolations {
		c.violation = append(c.violation, Violation{rule, fmt.Sprintf(format, args...)})
	}
}

func (c *checker) index() {
	for i := range c.Attempts {
		a := &c.Attempts[i]
		if other := c.byToken[a.Token]; other != nil && a.Token != 0 {
			c.fail(OneClaim, "token %d stands for %v and for %v", a.Token, describe(other), describe(a))
		}
		c.byToken[a.Token] = a
		c.attempts[a.Task] = append(c.attempts[a.Task], a)
	}
	for i := range c.Executions {
		x := &c.Executions[i]
		for _, token := range x.Tokens() {
			if other := c.executed[token]; other != nil {
				c.fail(OneClaim, "token %d was executed by %s and by %s", token, other.Instance, x.Instance)
			}
			c.executed[token] = x
		}
	}
}

func describe(a *Attempt) string {
	return fmt.Sprintf("attempt %d (token %d) of %s/%s of task %s", a.Attempt, a.Token, a.Flow, a.Step, a.Task)
}

// orders: every accepted order is one task, and there are no other tasks.
func (c *checker) orders() {
	byKey := map[string][]*Task{}
	for i := range c.Tasks {
		byKey[c.Tasks[i].Key] = append(byKey[c.Tasks[i].Key], &c.Tasks[i])
	}
	for _, o := range c.Ordered {
		switch made := byKey[o.Key]; {
		case len(made) == 0:
			c.fail(NothingLost, "order %s was accepted as task %s, which does not exist", o.Key, o.Task)
		case len(made) > 1:
			c.fail(NothingLost, "order %s became %d tasks", o.Key, len(made))
		case made[0].ID != o.Task && o.Task != uuid.Nil:
			c.fail(NothingLost, "order %s was accepted as task %s and is task %s", o.Key, o.Task, made[0].ID)
		case made[0].Flow != o.Flow.Name:
			c.fail(NothingLost, "order %s for %s became a %s", o.Key, o.Flow.Name, made[0].Flow)
		}
	}
	if len(c.Tasks) != len(c.Ordered) {
		c.fail(NothingLost, "%d orders became %d tasks", len(c.Ordered), len(c.Tasks))
	}
}

func (c *checker) task(t *Task) {
	flow := c.flows[t.Flow]
	if t.State != flow.End {
		c.fail(EverythingEnds, "task %s (%s) is %s, not %s", t.ID, t.Flow, t.State, flow.End)
	}
	steps := map[string][]*Attempt{}
	for _, a := range c.attempts[t.ID] {
		steps[a.Step] = append(steps[a.Step], a)
	}
	succeeded := 0
	for name, attempts := range steps {
		slices.SortFunc(attempts, func(a, b *Attempt) int { return cmp.Compare(a.Token, b.Token) })
		if name != "" { // the end of the task
			succeeded += c.step(t, attempts)
		}
	}
	if t.State == flow.End && succeeded != flow.Succeeding() {
		c.fail(EveryStepOnce, "task %s (%s) has %d steps that succeeded, not %d", t.ID, t.Flow, succeeded, flow.Succeeding())
	}
}

// step checks the attempts of one step in the order of their claims, and returns 1 if it
// succeeded.
func (c *checker) step(t *Task, attempts []*Attempt) (succeeded int) {
	for i, a := range attempts {
		if i > 0 {
			c.follows(attempts[i-1], a)
		}
		x := c.executed[a.Token]
		switch {
		case a.Outcome == Success:
			succeeded++
			c.success(a, x)
		case a.ProcessLost && (x == nil || x.Remote): // its daemon says so, whatever the process does
		case a.Outcome == Failed || a.Outcome == Error && a.Reason != "worker_lost" && a.Reason != "poison":
			// A transaction may fail after its handler has ended well.
			undone := x != nil && x.Outcome == ledger.Succeeded && c.flows[a.Flow].Books(a.Step)
			if !undone && (x == nil || x.Outcome != ledger.Failed && x.Outcome != ledger.Told) {
				c.fail(OneClaim, "%s failed, and its handler did not report that", describe(a))
			}
		}
	}
	if succeeded > 1 {
		c.fail(EveryStepOnce, "step %s of task %s (%s) succeeded %d times", attempts[0].Step, t.ID, t.Flow, succeeded)
	}
	return min(succeeded, 1)
}

// bookings: a row and the success of its claim both exist, or neither does.
func (c *checker) bookings() {
	booked := make(map[int64]bool, len(c.Booked))
	for _, token := range c.Booked {
		booked[token] = true
		if a := c.byToken[token]; a == nil || a.Outcome != Success || !c.flows[a.Flow].Books(a.Step) {
			c.fail(Together, "claim %d has written its row, but its success is not on record", token)
		}
	}
	for i := range c.Attempts {
		if a := &c.Attempts[i]; a.Outcome == Success && c.flows[a.Flow].Books(a.Step) && !booked[a.Token] {
			c.fail(Together, "%s succeeded, but its row does not exist", describe(a))
		}
	}
}

// follows: a claim begins after the end of the previous one, and none after the end of
// the step.
func (c *checker) follows(before, after *Attempt) {
	if before.Outcome == Success || before.Outcome == Error {
		c.fail(Fenced, "%s follows on %s, which was the end", describe(after), describe(before))
	}
	if after.Claimed.Before(before.Reported) {
		c.fail(Fenced, "%s was claimed %v before the end of %s", describe(after), before.Reported.Sub(after.Claimed), describe(before))
	}
	spared := before.Outcome == LeaseLost && before.Reason == "not_blamed" // it has used no attempt
	if after.Attempt < before.Attempt || after.Attempt == before.Attempt && !spared {
		c.fail(Fenced, "%s follows on %s and has no higher number", describe(after), describe(before))
	}
}

// success: the result is the one that the handler of this claim returned.
func (c *checker) success(a *Attempt, x *ledger.Execution) {
	switch {
	case x == nil:
		c.fail(OneClaim, "%s succeeded and was never executed", describe(a))
	case x.Outcome != ledger.Succeeded:
		c.fail(OneClaim, "%s succeeded; its handler said %q", describe(a), x.Outcome)
	case x.Task != a.Task || x.Step != a.Step || x.Attempt != a.Attempt:
		c.fail(OneClaim, "%s was executed as attempt %d of %s of task %s", describe(a), x.Attempt, x.Step, x.Task)
	case x.Fence() != a.Token:
		c.fail(Fenced, "%s succeeded, and had gone on under token %d", describe(a), x.Fence())
	case a.Result == nil || a.Result.Token != x.Token || a.Result.Attempt != a.Attempt:
		c.fail(OneClaim, "%s has the result of another claim: %+v", describe(a), a.Result)
	case a.Reported.Before(x.End.Add(-clockSlack)):
		c.fail(OneClaim, "%s was reported %v before its handler ended", describe(a), x.End.Sub(a.Reported))
	}
}

// clockSlack is how far apart two readings of the machine's one clock may be.
const clockSlack = 5 * time.Millisecond

// execution: it is on record, and got the accepted results.
func (c *checker) execution(x *ledger.Execution) {
	a := c.byToken[x.Fence()]
	for _, token := range x.Tokens()[:len(x.Adopted)] {
		if ended := c.byToken[token]; ended != nil {
			c.fail(Fenced, "%s is on record, and %s had gone on with it under token %d", describe(ended), x.Instance, x.Fence())
		}
	}
	switch {
	case a == nil && !c.Stopped[x.Instance] && !c.replaced(x):
		c.fail(EverythingKnown, "%s executed attempt %d (token %d) of %s of task %s; no such claim is on record (it ended as %q)",
			x.Instance, x.Attempt, x.Token, x.Step, x.Task, x.Outcome)
	case a != nil && (a.Task != x.Task || a.Step != x.Step):
		c.fail(EverythingKnown, "%s executed %s of task %s under the token of %s", x.Instance, x.Step, x.Task, describe(a))
	}
	for parent, token := range x.Parents {
		from := c.accepted(token)
		if from == nil || from.Task != x.Task || from.Step != parent || from.Outcome != Success {
			c.fail(HandedOn, "attempt %d (token %d) of %s of task %s was handed a result of %s from claim %d, which is not the accepted one",
				x.Attempt, x.Token, x.Step, x.Task, parent, token)
		}
	}
	if flow, ok := c.flowOf(x.Task); ok && len(x.Parents) != len(flow.Parents(x.Step)) {
		c.fail(HandedOn, "attempt %d (token %d) of %s of task %s was handed %d results, not %d",
			x.Attempt, x.Token, x.Step, x.Task, len(x.Parents), len(flow.Parents(x.Step)))
	}
}

// accepted is the claim of the execution that began under a token, which its result names;
// nil if it is not on record.
func (c *checker) accepted(token int64) *Attempt {
	if x := c.executed[token]; x != nil && x.Token == token {
		return c.byToken[x.Fence()]
	}
	return nil
}

// replaced reports whether a claim of an executor ended without a record, as it may: a later
// one has its attempt. Its worker handed it back, or another one adopted it and could not
// tell the process.
func (c *checker) replaced(x *ledger.Execution) bool {
	return x.Remote && slices.ContainsFunc(c.attempts[x.Task], func(a *Attempt) bool {
		return a.Step == x.Step && a.Attempt == x.Attempt && a.Token > x.Fence()
	})
}

func (c *checker) flowOf(task uuid.UUID) (workload.Workflow, bool) {
	if list := c.attempts[task]; len(list) > 0 {
		flow, ok := c.flows[list[0].Flow]
		return flow, ok
	}
	return workload.Workflow{}, false
}
