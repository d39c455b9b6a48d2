package operators

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/client"
)

// act is an operator's action.
type act struct {
	kind   string
	weight int
	do     func(p *operator, ctx context.Context, c *client.Client) error
}

// acts lists all actions with their frequency.
func acts() []act {
	return []act{
		{"create", 120, (*operator).create},
		{"cancel", 12, onTask(client.ActionCancel)},
		{"fail", 10, onTask(client.ActionFail)},
		{"resolve", 6, onTask(client.ActionResolve)},
		{"reprioritise", 8, onTask(client.ActionReprioritise)},
		{"replay", 5, onTask(client.ActionReplay)},
		{"dead_letter", 3, onTask(client.ActionDeadLetter)},
		{"step reset_for_retry", 16, onStep(client.ActionReset)},
		{"step resolve", 14, onStep(client.ActionResolve)},
		{"step complete_manually", 14, onStep(client.ActionComplete)},
		{"step run_again", 20, onStep(client.ActionRunAgain)},
		{"step release_lease", 8, onStep(client.ActionReleaseLease)},
		{"bulk", 3, (*operator).bulk},
		{"decide", 12, (*operator).decide},
		{"event", 16, (*operator).event},
		{"pause", 2, (*operator).pause},
		{"replay dead letters", 2, (*operator).replayLetters},
		{"schedule", 1, (*operator).schedule},
	}
}

// The actor and reason of actions.
const (
	actor  = "operator"
	reason = "a random run"
)

// create makes a task, which may depend on others, and may be cancelled within
// 20 ms.
func (p *operator) create(ctx context.Context, c *client.Client) error {
	r := client.TaskRequest{Name: roots[p.rng.IntN(len(roots))], Namespace: namespace, Version: version, Initiator: actor, SourceSystem: "test", Reason: reason,
		Context: fmt.Appendf(nil, `{"key":%q,"n":%d}`, p.newKey(), p.rng.Uint64())}
	if p.chance(3) {
		for range 1 + p.rng.IntN(3) {
			if on := p.task(p.rng); on != "" {
				r.DependsOn = append(r.DependsOn, on)
			}
		}
		if p.chance(2) {
			r.OnDependencyFailure = "continue"
		}
	}
	if p.chance(10) {
		r.DelaySeconds = new(p.rng.Float64() / 10)
	}
	task, err := c.CreateTask(ctx, r)
	if err != nil {
		return err
	}
	p.created(task.TaskUUID)
	if !p.chance(3) {
		return nil
	}
	p.wait(ctx, 20*time.Millisecond)
	_, err = p.client().ActOnTask(ctx, task.TaskUUID, client.TaskAction{Action: client.ActionCancel, Actor: actor, Reason: reason})
	return err
}

// errNothing says that there is no task to act on yet.
var errNothing = &client.Error{Status: 404, Message: "there is nothing to act on"}

func onTask(action string) func(p *operator, ctx context.Context, c *client.Client) error {
	return func(p *operator, ctx context.Context, c *client.Client) error {
		task := p.task(p.rng)
		if task == "" {
			return errNothing
		}
		a := client.TaskAction{Action: action, Actor: actor, Reason: reason}
		switch action {
		case client.ActionReprioritise:
			a.Priority = new(p.rng.IntN(201) - 100)
		case client.ActionReplay:
			a.ContextPatch = p.edit()
		}
		answer, err := c.ActOnTask(ctx, task, a)
		if err == nil && action == client.ActionReplay {
			p.created(answer.TaskUUID)
		}
		return err
	}
}

// edit changes the context of a task, in half of the cases.
func (p *operator) edit() json.RawMessage {
	if p.chance(2) {
		return nil
	}
	return fmt.Appendf(nil, `{"edited":%d}`, p.rng.IntN(100))
}

func onStep(action string) func(p *operator, ctx context.Context, c *client.Client) error {
	return func(p *operator, ctx context.Context, c *client.Client) error {
		task := p.task(p.rng)
		if task == "" {
			return errNothing
		}
		steps, err := c.Steps(ctx, task)
		if err != nil || len(steps) == 0 {
			return errors.Join(err, errNothing)
		}
		a := client.TaskAction{Action: action, StepUUID: steps[p.rng.IntN(len(steps))].StepUUID, Actor: actor, Reason: reason}
		switch action {
		case client.ActionComplete:
			a.Result = json.RawMessage(`{"by":"hand"}`)
		case client.ActionReset, client.ActionRunAgain:
			a.ContextPatch = p.edit()
		}
		_, err = c.ActOnTask(ctx, task, a)
		return err
	}
}

func (p *operator) bulk(ctx context.Context, c *client.Client) error {
	a := client.BulkAction{
		Filter: client.BulkFilter{Namespace: namespace, Name: roots[p.rng.IntN(len(roots))]},
		Actor:  actor, Reason: reason, DryRun: new(false), Limit: 1 + p.rng.IntN(150),
	}
	switch p.rng.IntN(4) {
	case 0:
		a.Action = client.ActionFail
	case 1:
		a.Action, a.Filter.States = client.ActionResolve, []string{"waiting_for_retry", "waiting_for_dependencies", "steps_in_process"}
	default:
		a.Action = client.ActionCancel
	}
	_, err := c.ActOnTasks(ctx, a)
	return err
}

func (p *operator) decide(ctx context.Context, c *client.Client) error {
	list, err := c.Approvals(ctx, client.ApprovalListOptions{Namespace: namespace, Limit: 20})
	if err != nil || len(list) == 0 {
		return errors.Join(err, errNothing)
	}
	_, err = c.Decide(ctx, list[p.rng.IntN(len(list))].Token, client.Verdict{Approved: p.chance(2), Actor: actor})
	return err
}

func (p *operator) event(ctx context.Context, c *client.Client) error {
	_, err := c.SendEvent(ctx, client.ExternalEvent{Name: "news", Namespace: namespace, Key: p.newKey(), Payload: json.RawMessage(`{"good":true}`)})
	return err
}

// pause stops the claims of the namespace for up to 100 ms.
func (p *operator) pause(ctx context.Context, c *client.Client) error {
	why := client.Why{Actor: actor, Reason: reason}
	if _, err := c.PauseNamespace(ctx, namespace, why); err != nil {
		return err
	}
	p.wait(ctx, 100*time.Millisecond)
	_, err := p.client().ResumeNamespace(ctx, namespace, why)
	return err
}

func (p *operator) replayLetters(ctx context.Context, c *client.Client) error {
	_, err := c.ReplayDLQ(ctx, client.DLQReplay{
		Filter: &client.DLQFilter{ResolutionStatus: "Pending"},
		Actor:  actor, Reason: reason, PerSecond: 1000, Limit: 5, DryRun: new(false),
	})
	return err
}

// schedule makes a schedule, runs it at once, lets it run, and deletes it.
func (p *operator) schedule(ctx context.Context, c *client.Client) error {
	s, err := c.CreateSchedule(ctx, client.ScheduleRequest{Name: fmt.Sprintf("s%d", p.rng.Uint64()), Namespace: namespace, Template: roots[p.rng.IntN(len(roots))], Version: version,
		Cron: "@every 1s", Context: json.RawMessage(`{"key":"scheduled"}`), Overlap: "allow", Actor: actor, Reason: reason})
	if err != nil {
		return err
	}
	why := client.Why{Actor: actor, Reason: reason}
	_, err = p.client().RunSchedule(ctx, s.ScheduleID, why)
	p.wait(ctx, 1500*time.Millisecond)
	_, gone := p.client().DeleteSchedule(ctx, s.ScheduleID, why)
	return errors.Join(err, gone)
}
