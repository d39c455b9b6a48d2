package main

import (
	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/wording"
)

func (a *app) approval() command {
	r := resource[client.Approval]{app: a, facts: a.approvalFacts}
	o := client.ApprovalListOptions{Limit: 100}
	return command{
		use: "approval", aliases: []string{"approvals"}, short: "Approve or reject waiting steps",
		long: `A step of type approval waits until an operator decides. Its token allows one
decision.`,
		commands: []command{
			{use: "list", lists: true, short: "List steps that wait for a decision, the oldest first",
				flags: all(
					a.namespace(&o.Namespace, "only of this namespace"),
					opt(&o.TaskUUID, "task", "only of this task, by its `UUID`", a.aTask),
					limit(&o.Limit, 1000, "how many"),
				),
				run: askList(a, with((*api).Approvals, &o), "approvals", r.list)},
			{use: "show TOKEN", aliases: []string{"get"}, short: "Show what is to be decided", run: ask(a, of((*api).Approval), r.show)},
			a.decide(true, "approved", command{use: "approve TOKEN", short: "Let the step complete"}),
			a.decide(false, "rejected", command{use: "reject TOKEN", short: "Reject the step; the template says whether it fails"}),
		},
	}
}

// tokenArgument is what a step waits for.
var tokenArgument = uuidArgument("token", "tasker-ctl approval list shows what there is",
	offers(with((*api).Approvals, &client.ApprovalListOptions{Limit: 1000}),
		func(l []client.Approval) []client.Approval { return l }, func(x *client.Approval) string { return x.Token }))

func (a *app) approvalFacts(x *client.Approval) facts {
	return facts{
		{"Token", x.Token},
		{"prompt", x.Prompt},
		{"template", x.Namespace + "/" + x.TaskName},
		{"TASK", x.Namespace + "/" + x.TaskName},
		{"task", x.TaskUUID},
		{"Step", x.StepName},
		{"WAITS", a.since(x.Since.Time)},
		{"since", x.Since},
		{"Until", x.Until},
		{"PROMPT", wording.Clip(x.Prompt, 60)},
	}
}

func (a *app) decide(approved bool, done string, d command) command {
	v := client.Verdict{Approved: approved, Actor: defaultActor}
	d.flags = all(
		opt(&v.Comment, "comment,m", "a comment, kept with the decision"),
		opt(&v.Actor, "actor,b", "who decides"),
		opt(&v.Data, "data", "JSON for the steps after it, @file, or - for stdin"),
	)
	d.run = ask(a, ofWith((*api).Decide, &v), func(x *client.Approval) {
		a.printf("step %s of task %s: %s by %s\n", x.StepName, x.TaskUUID, done, v.Actor)
	})
	return d
}

func (a *app) sendEvent() command {
	var e client.ExternalEvent
	return command{
		use: "send-event NAME", short: "Deliver an event to the steps that wait for it",
		long: `Delivers an event to all steps of type wait_for_event that wait for its name and
key, or to those of one task. With --key, an event without a waiting step is kept
for the first step that waits for it.`,
		example: "  tasker-ctl task send-event payment.received -n shop --key 4711 --payload '{\"amount\": 12.5}'\n" +
			"  tasker-ctl task send-event go --task 019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f10",
		flags: all(
			a.namespace(&e.Namespace, "namespace of the steps"),
			opt(&e.Key, "key,k", "what distinguishes events of one name"),
			opt(&e.TaskUUID, "task", "the task that it is sent to, by its `UUID`", a.aTask),
			opt(&e.Payload, "payload", "any JSON, @file, or - for stdin"),
			opt(&e.ID, "id", "the sender's own id: a second event with it changes nothing"),
		),
		check: func(args []string) error {
			e.Name = args[0]
			switch {
			case e.TaskUUID != "" && (e.Key != "" || e.Namespace != ""):
				return usagef("give --task, or --namespace and --key")
			case e.TaskUUID == "" && (e.Key == "" || e.Namespace == ""):
				return usagef("name the waiting steps by --task, or by --namespace and --key")
			}
			return nil
		},
		run: ask(a, with((*api).SendEvent, &e), func(r *client.EventReceipt) {
			switch {
			case r.Duplicate:
				a.printf("an event with this id was received before: %s\n", r.EventUUID)
			case r.Delivered > 0:
				a.printf("event %s: delivered to %s\n", r.EventUUID, counted(r.Delivered, "step"))
			default:
				a.printf("event %s: no step waits for it; kept until %s\n", r.EventUUID, instant(&r.ExpiresAt))
			}
		}),
	}
}
