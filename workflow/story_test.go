package workflow_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// TestStories plays the text files of testdata/stories: what happened to a task, and
// below it what Advance decided. `go test ./workflow -run TestStories -rewrite` writes
// the decisions anew.
//
// Commands: task (YAML of the template follows; the task is created), success STEP
// (the result follows where it matters), failure STEP [permanent] [after=5s], lost
// STEP (the lease of its worker has ended), cancel, reset STEP, resolve STEP, show.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		var s story
		datadriven.RunTest(t, path, s.play)
	})
}

// story is one task.
type story struct {
	plan     *workflow.Plan
	state    workflow.TaskState
	progress *workflow.Progress
}

func (s *story) play(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "task":
		tmpl, _, err := template.Parse(d.Pos, []byte("name: story\nnamespace_name: stories\nversion: 1.0.0\n"+d.Input))
		require.NoError(t, err, d.Pos)
		s.plan, err = workflow.Compile(tmpl)
		require.NoError(t, err, d.Pos)
		s.state, s.progress = workflow.TaskPending, workflow.NewProgress(s.plan)
		return s.advance(workflow.Created{})
	case "show":
		return s.show()
	}
	in, err := s.input(t, d)
	if err != nil {
		return err.Error() + "\n"
	}
	return s.advance(in)
}

// input is what a command tells of.
func (s *story) input(t *testing.T, d *datadriven.TestData) (workflow.Input, error) {
	t.Helper()
	step := -1
	if len(d.CmdArgs) > 0 {
		if step = s.number(d.CmdArgs[0].Key); step < 0 && d.Cmd != "cancel" {
			return nil, fmt.Errorf("the task has no step %s", d.CmdArgs[0].Key)
		}
	}
	attempt := 0
	if step >= 0 {
		attempt = int(s.progress.Steps[step].Attempts) + 1
	}
	switch d.Cmd {
	case "success":
		return workflow.Reported{Step: step, Attempt: attempt, Success: true, RetryAfter: -1, Result: json.RawMessage(d.Input)}, nil
	case "failure":
		in := workflow.Reported{Step: step, Attempt: attempt, Retryable: !d.HasArg("permanent"), RetryAfter: -1}
		d.MaybeScanArgs(t, "after", &in.RetryAfter)
		return in, nil
	case "lost":
		return workflow.LeaseLost{Step: step, Attempt: attempt}, nil
	case "cancel":
		return workflow.Operation{Action: workflow.ActionCancel, Reason: "an operator cancelled it"}, nil
	case "reset":
		return workflow.Operation{Action: workflow.ActionReset, Step: step}, nil
	case "resolve":
		return workflow.Operation{Action: workflow.ActionResolve, Step: step}, nil
	}
	return nil, fmt.Errorf("invalid command %q: want task, success, failure, lost, cancel, reset, resolve or show", d.Cmd)
}

func (s *story) advance(in workflow.Input) string {
	progress, effects, err := workflow.Advance(s.plan, s.state, s.progress, workflow.StoryRules, in)
	if err != nil {
		return err.Error() + "\n"
	}
	s.progress, s.state = progress, effects.State
	return s.tell(effects)
}

// tell is what was decided, one line each.
func (s *story) tell(e *workflow.Effects) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for _, end := range e.End {
		line("%s ends: %s%s", s.name(end.Step), end.Outcome, because(end.Reason))
	}
	for _, r := range e.Retry {
		line("%s runs again in %v: %s", s.name(r.Step), r.DueIn, r.Outcome)
	}
	for _, d := range e.Decided {
		for _, no := range d.Created {
			line("%s is created", s.name(no))
		}
	}
	for _, put := range e.Put {
		if put.DueIn > 0 {
			line("%s becomes claimable in %v", s.name(put.Step), put.DueIn)
		} else {
			line("%s is claimable", s.name(put.Step))
		}
	}
	for _, no := range e.Remove {
		line("%s is taken off the board", s.name(no))
	}
	for _, c := range e.Changes {
		line("task: %s -> %s%s", c.From, c.To, because(c.Reason))
	}
	if e.DeadLetter != nil {
		line("dead letter: %s%s", e.DeadLetter.Reason, because(e.DeadLetter.Detail))
	}
	if b.Len() == 0 {
		return "nothing to do\n"
	}
	return b.String()
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// show is how the steps stand.
func (s *story) show() string {
	var b strings.Builder
	fmt.Fprintf(&b, "task: %s\n", s.state)
	for no := range s.progress.Steps {
		if s.plan.Step(s.progress, no) == nil {
			continue
		}
		p := &s.progress.Steps[no]
		fmt.Fprintf(&b, "%s: %s", s.name(no), p.Status)
		if p.Status == workflow.StatusWaiting {
			fmt.Fprintf(&b, " for %d", p.Remaining)
		}
		if p.Attempts > 0 {
			fmt.Fprintf(&b, ", attempts %d", p.Attempts)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// name is that of a step; batches are called by their worker and their place, as part/1.
func (s *story) name(no int) string {
	if no < len(s.plan.Steps) {
		return s.plan.Steps[no].Name
	}
	for i := range s.progress.Groups {
		if g := &s.progress.Groups[i]; g.Has(no) {
			return fmt.Sprintf("%s/%d", s.plan.Steps[g.Template].Name, no-g.First+1)
		}
	}
	return fmt.Sprint("step ", no)
}

// number is the inverse of name; negative: none.
func (s *story) number(name string) int {
	for no := range s.progress.Steps {
		if s.plan.Step(s.progress, no) != nil && s.name(no) == name {
			return no
		}
	}
	return -1
}
