package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
)

func newTaskChainCommand(a *app) *cobra.Command {
	var limit int
	cmd := a.taskCommand("chain", "Show the tasks that a task continues, and those that continue it",
		func(a *app, ctx context.Context, c *client.Client, id string) error {
			if limit < 1 || limit > client.MaxChainLimit {
				return usagef("--limit must be between 1 and %d", client.MaxChainLimit)
			}
			chain, err := c.Chain(ctx, id, limit)
			if err != nil {
				return err
			}
			return a.emit(chain, func() { a.showChain(chain) })
		})
	cmd.Long = `Shows the tasks that a task continues, and those that continue it, the oldest
first. A handler names the task that comes next when it ends its step. Tasks that
retention has deleted are missing.`
	cmd.Flags().IntVarP(&limit, "limit", "l", client.DefaultChainLimit, "how many links in each direction, up to 500")
	return cmd
}

// showChain marks the task that was asked for.
func (a *app) showChain(chain *client.Chain) {
	if chain.MoreBefore {
		a.printf("… more before; see them with --limit\n")
	}
	t := a.newTable("", "TASK", "TEMPLATE", "STATUS", "CREATED", "CONTINUES")
	for i := range chain.Tasks {
		task := &chain.Tasks[i]
		mark := " "
		if task.TaskUUID == chain.TaskUUID {
			mark = "▶"
		}
		t.row(mark, task.TaskUUID, templateName(task), stateCell(task.Status), instant(&task.CreatedAt), task.ContinuesTaskUUID)
	}
	t.write(a.stdout)
	if chain.MoreAfter {
		a.printf("… more behind; see them with --limit\n")
	}
}
