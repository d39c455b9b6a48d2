package main

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
)

func newApprovalCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "approval",
		Aliases: []string{"approvals"},
		Short:   "Decide about steps that wait for somebody to say yes or no",
		Long: `A step of type approval waits until somebody decides about it. Who knows its token
may do so, once.`,
	}
	cmd.AddCommand(newApprovalListCommand(a), newApprovalShowCommand(a),
		newDecideCommand(a, true, "approve", "Let the step complete"), newDecideCommand(a, false, "reject", "Say no"))
	return cmd
}

func newApprovalListCommand(a *app) *cobra.Command {
	var o client.ApprovalListOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List steps that wait for a decision, the oldest first",
		Args:  arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Limit < 1 || o.Limit > 1000 {
				return usagef("--limit must be between 1 and 1000")
			}
			if _, err := uuid.Parse(o.TaskUUID); err != nil && o.TaskUUID != "" {
				return usagef("--task must be a UUID, not %q", o.TaskUUID)
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			list, err := c.Approvals(cmd.Context(), o)
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(list, func() {
				t := a.newTable("TOKEN", "TASK", "STEP", "WAITS", "UNTIL", "PROMPT")
				for i := range list.Approvals {
					x := &list.Approvals[i]
					t.row(x.Token, x.Namespace+"/"+x.TaskName, x.StepName, a.since(x.Since.Time), instant(x.Until), clip(x.Prompt, 60))
				}
				t.write(a.stdout)
			})
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.Namespace, "namespace", "n", "", "only of this namespace")
	f.StringVar(&o.TaskUUID, "task", "", "only of this task, by its `UUID`")
	f.IntVarP(&o.Limit, "limit", "l", 100, "how many, up to 1000")
	completeFlag(cmd, "namespace", a.completeNamespaces)
	return cmd
}

// approvalCommand is a command about one approval.
func (a *app) approvalCommand(name, short string, do func(ctx context.Context, c *client.Client, token string) error) *cobra.Command {
	return &cobra.Command{
		Use:   name + " TOKEN",
		Short: short,
		Args:  arguments("TOKEN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			token, err := uuid.Parse(args[0])
			if err != nil {
				return hinted{usagef("%q is not the token of an approval", oneLine(args[0])), "tasker-ctl approval list shows what there is"}
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			return unreachable(orchestrator, do(cmd.Context(), c, token.String()))
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

func newApprovalShowCommand(a *app) *cobra.Command {
	cmd := a.approvalCommand("show", "Show what is to be decided", func(ctx context.Context, c *client.Client, token string) error {
		x, err := c.Approval(ctx, token)
		if err != nil {
			return err
		}
		return a.emit(x, func() {
			t := a.newPairs()
			t.row("token", x.Token)
			t.row("prompt", x.Prompt)
			t.row("template", x.Namespace+"/"+x.TaskName)
			t.row("task", x.TaskUUID)
			t.row("step", x.StepName)
			t.row("since", instant(&x.Since))
			t.row("until", instant(x.Until))
			t.write(a.stdout)
		})
	})
	cmd.Aliases = []string{"get"}
	return cmd
}

var past = map[bool]string{true: "approved", false: "rejected"}

func newDecideCommand(a *app, approved bool, name, short string) *cobra.Command {
	v := client.Verdict{Approved: approved}
	var data string
	cmd := a.approvalCommand(name, short, func(ctx context.Context, c *client.Client, token string) error {
		v.Data = nil
		if data != "" {
			read, err := a.readInput(data, maxInput)
			if err != nil {
				return err
			}
			if !json.Valid(read) {
				return usagef("--data is not JSON")
			}
			v.Data = read
		}
		x, err := c.Decide(ctx, token, v)
		if err != nil {
			return err
		}
		return a.emit(x, func() { a.printf("step %s of task %s: %s by %s\n", x.StepName, x.TaskUUID, past[approved], v.Actor) })
	})
	if !approved {
		cmd.Short += "; the template says whether the step fails"
	}
	f := cmd.Flags()
	f.StringVarP(&v.Comment, "comment", "m", "", "what to say with it")
	f.StringVarP(&v.Actor, "actor", "b", defaultActor, "who decides")
	f.StringVar(&data, "data", "", "JSON for the steps behind it, @file, or - for stdin")
	return cmd
}
