package check_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/test/chaos/internal/check"
	"github.com/tasker-go/tasker/test/chaos/internal/ledger"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// sound is a run with one linear task, whose second step was rescued once.
func sound() check.Facts {
	id := uuid.New()
	f := check.Facts{
		Ordered: []workload.Accepted{{Order: workload.Order{Key: "k", Flow: workload.Linear}, Task: id}},
		Tasks:   []check.Task{{ID: id, Key: "k", Flow: "linear", State: "complete"}},
		Checked: 1, Stopped: map[string]bool{},
	}
	add := func(step string, attempt int, token int64, outcome int, parents map[string]int64) {
		at := began.Add(time.Duration(len(f.Attempts)) * time.Second)
		a := check.Attempt{Task: id, Flow: "linear", Step: step, Attempt: attempt, Token: token, Outcome: outcome,
			Claimed: at, Reported: at.Add(500 * time.Millisecond), Applied: at.Add(600 * time.Millisecond)}
		x := ledger.Execution{Instance: "w.1", Task: id, Step: step, Attempt: attempt, Token: token, Parents: parents, Start: at.Add(time.Millisecond)}
		if outcome == check.Success {
			a.Result = &workload.Result{Token: token, Attempt: attempt, Parents: parents}
			x.End, x.Outcome = at.Add(400*time.Millisecond), ledger.Succeeded
		}
		f.Attempts, f.Executions = append(f.Attempts, a), append(f.Executions, x)
	}
	add("one", 1, 10, check.Success, map[string]int64{})
	add("two", 1, 11, check.LeaseLost, map[string]int64{"one": 10})
	add("two", 2, 12, check.Success, map[string]int64{"one": 10})
	add("three", 1, 13, check.Success, map[string]int64{"two": 12})
	add("four", 1, 14, check.Success, map[string]int64{"three": 13})
	return f
}

func TestASoundRun(t *testing.T) {
	require.Empty(t, check.Check(sound()))
}

func TestWhatIsWrongIsFound(t *testing.T) {
	for _, c := range []struct {
		name  string
		rule  check.Rule
		spoil func(f *check.Facts)
	}{
		{"the task is gone", check.NothingLost, func(f *check.Facts) { f.Tasks = nil; f.Checked = 0 }},
		{"two tasks for one order", check.NothingLost, func(f *check.Facts) {
			twin := f.Tasks[0]
			twin.ID = uuid.New()
			f.Tasks = append(f.Tasks, twin)
		}},
		{"the task of a job is gone", check.NothingLost, func(f *check.Facts) { f.Ordered[0].Task = uuid.Nil; f.Tasks = nil; f.Checked = 0 }},
		{"two tasks for one job", check.NothingLost, func(f *check.Facts) {
			f.Ordered[0].Task = uuid.Nil
			f.Tasks = append(f.Tasks, check.Task{ID: uuid.New(), Key: "k", Flow: "linear", State: "complete"})
		}},
		{"a row without its success", check.Together, func(f *check.Facts) { f.Booked = []int64{10} }},
		{"another task than was said", check.NothingLost, func(f *check.Facts) { f.Ordered[0].Task = uuid.New() }},
		{"the task did not end", check.EverythingEnds, func(f *check.Facts) { f.Tasks[0].State = "steps_in_process" }},
		{"the task failed", check.EverythingEnds, func(f *check.Facts) { f.Tasks[0].State = "error" }},
		{"a step is missing", check.EveryStepOnce, func(f *check.Facts) { f.Attempts, f.Executions = f.Attempts[:4], f.Executions[:4] }},
		{"the fenced attempt was accepted too", check.EveryStepOnce, func(f *check.Facts) { f.Attempts[1].Outcome = check.Success }},
		{"a success that was never executed", check.OneClaim, func(f *check.Facts) { f.Executions = f.Executions[:4] }},
		{"a success that the handler did not have", check.OneClaim, func(f *check.Facts) { f.Executions[4].Outcome = ledger.Failed }},
		{"a success of an execution that was cut off", check.OneClaim, func(f *check.Facts) { f.Executions[4].Outcome = "" }},
		{"the result of the fenced attempt", check.OneClaim, func(f *check.Facts) { f.Attempts[2].Result = &workload.Result{Token: 11, Attempt: 1} }},
		{"one token, two executions", check.OneClaim, func(f *check.Facts) { f.Executions = append(f.Executions, f.Executions[0]) }},
		{"one token, two records", check.OneClaim, func(f *check.Facts) { f.Attempts = append(f.Attempts, f.Attempts[1]) }},
		{"reported before it ended", check.OneClaim, func(f *check.Facts) { f.Executions[0].End = began.Add(time.Second) }},
		{"claimed before the fence", check.Fenced, func(f *check.Facts) { f.Attempts[2].Claimed = f.Attempts[1].Reported.Add(-time.Millisecond) }},
		{"claimed after the end", check.Fenced, func(f *check.Facts) {
			f.Attempts[1].Outcome, f.Attempts[2].Outcome = check.Success, check.LeaseLost
		}},
		{"an attempt without a new number", check.Fenced, func(f *check.Facts) { f.Attempts[2].Attempt = 1 }},
		{"handed the fenced result", check.HandedOn, func(f *check.Facts) { f.Executions[3].Parents = map[string]int64{"two": 11} }},
		{"handed nothing", check.HandedOn, func(f *check.Facts) { f.Executions[3].Parents = nil }},
		{"an unknown execution", check.EverythingKnown, func(f *check.Facts) {
			f.Executions = append(f.Executions, ledger.Execution{Instance: "w.1", Task: f.Tasks[0].ID, Step: "one", Token: 99, Attempt: 1, Parents: map[string]int64{}})
		}},
		{"something is left", check.NothingLeft, func(f *check.Facts) { f.Left = []string{"a row"} }},
		{"the records contradict each other", check.Integrity, func(f *check.Facts) { f.Integrity = []string{"step 1"} }},
		{"not all were checked", check.Integrity, func(f *check.Facts) { f.Checked = 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := sound()
			c.spoil(&f)
			var rules []check.Rule
			for _, v := range check.Check(f) {
				rules = append(rules, v.Rule)
			}
			require.Contains(t, rules, c.rule)
		})
	}
}

func TestWhatAStoppedWorkerGaveBackIsNoViolation(t *testing.T) {
	f := sound()
	f.Executions = append(f.Executions, ledger.Execution{Instance: "w.2", Task: f.Tasks[0].ID, Step: "one", Token: 9, Attempt: 1, Parents: map[string]int64{}})
	require.NotEmpty(t, check.Check(f))
	f.Stopped["w.2"] = true
	require.Empty(t, check.Check(f))
}

// wentOn is sound, with a step whose process went on at another worker, under token 15.
func wentOn() check.Facts {
	f := sound()
	f.Executions[3].Remote, f.Executions[3].Adopted, f.Attempts[3].Token = true, []int64{15}, 15
	return f
}

func TestAClaimThatWentOnElsewhere(t *testing.T) {
	require.Empty(t, check.Check(wentOn()))
	remote := func(token int64) ledger.Execution {
		return ledger.Execution{Instance: "executor-a.1", Step: "one", Token: token, Attempt: 1, Remote: true, Parents: map[string]int64{}}
	}
	for _, c := range []struct {
		name  string
		rule  check.Rule // "" for none
		spoil func(*check.Facts)
	}{
		{"a success under the former token", check.Fenced, func(f *check.Facts) { f.Attempts[3].Token = 13 }},
		{"an end under the former token, too", check.Fenced, func(f *check.Facts) {
			f.Attempts = append(f.Attempts, f.Attempts[3])
			f.Attempts[5].Token, f.Attempts[5].Outcome = 13, check.LeaseLost
		}},
		{"the result of another execution", check.OneClaim, func(f *check.Facts) { f.Attempts[3].Result.Token = 15 }},
		{"another execution under the new token", check.OneClaim, func(f *check.Facts) {
			x := f.Executions[3]
			x.Token, x.Adopted = 15, nil
			f.Executions = append(f.Executions, x)
		}},
		{"handed a result that names the new token", check.HandedOn, func(f *check.Facts) { f.Executions[4].Parents["three"] = 15 }},
		{"not on record, and nothing took its place", check.EverythingKnown, func(f *check.Facts) {
			x := remote(99)
			x.Task = f.Tasks[0].ID
			f.Executions = append(f.Executions, x)
		}},
		{"not on record, and a later claim has its attempt", "", func(f *check.Facts) {
			x := remote(9)
			x.Task = f.Tasks[0].ID
			f.Executions = append(f.Executions, x)
		}},
		{"lost with its process", "", func(f *check.Facts) {
			f.Attempts[1].Outcome, f.Attempts[1].ProcessLost, f.Executions[1].Remote = check.Failed, true, true
		}},
		{"lost with a process that it did not run in", check.OneClaim, func(f *check.Facts) { f.Attempts[1].Outcome, f.Attempts[1].ProcessLost = check.Failed, true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := wentOn()
			c.spoil(&f)
			violations := check.Check(f)
			if c.rule == "" {
				require.Empty(t, violations)
				return
			}
			var rules []check.Rule
			for _, v := range violations {
				rules = append(rules, v.Rule)
			}
			require.Contains(t, rules, c.rule)
		})
	}
}
