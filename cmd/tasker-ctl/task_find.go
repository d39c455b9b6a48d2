package main

import (
	"time"

	"github.com/spf13/cobra"
)

func newTaskFindCommand(a *app) *cobra.Command {
	var namespace, name, key string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "find",
		Short: "Show the task that has an idempotency key",
		Long: `Shows the task that was created with an idempotency key, whatever became of it. A
key belongs to a template of a namespace, whichever its version, and counts until
its lifetime is over (see the templates' key_lifetime).`,
		Example: "  tasker-ctl task find -n payments --name process_refund --key order-7",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait < 0 {
				return usagef("--wait must not be negative")
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			task, err := c.TaskByKey(cmd.Context(), namespace, name, key, wait)
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.showFound(cmd.Context(), c, task)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&namespace, "namespace", "n", "default", "namespace of the template")
	f.StringVar(&name, "name", "", "name of the template (required)")
	f.StringVar(&key, "key", "", "the idempotency key (required)")
	f.DurationVar(&wait, "wait", 0, "wait so long for the task to end")
	required(cmd, "name", "key")
	completeFlag(cmd, "name", a.completeNames)
	completeFlag(cmd, "namespace", a.completeNamespaces)
	return cmd
}
