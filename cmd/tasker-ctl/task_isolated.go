package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
)

// newTaskBatchesCommand shows batches, and has below it what concerns the items
// that they could not process.
func newTaskBatchesCommand(a *app) *cobra.Command {
	cmd := a.taskCommand("batches", "Show how far the batches of a task are", (*app).showBatches)
	cmd.AddCommand(newTaskIsolatedCommand(a), newTaskReplayIsolatedCommand(a))
	return cmd
}

// itemFlags select isolated items.
type itemFlags struct {
	worker, batch string
	retryable     bool
	limit         int
}

func (f *itemFlags) flags(cmd *cobra.Command, limit, most int) {
	cmd.Flags().StringVarP(&f.worker, "worker-step", "w", "", "of the batches of this step")
	cmd.Flags().StringVar(&f.batch, "batch", "", "of the batch of this name (process_rows_003)")
	cmd.Flags().BoolVar(&f.retryable, "retryable", false, "only those that may work next time; --retryable=false: the others")
	cmd.Flags().IntVarP(&f.limit, "limit", "l", limit, fmt.Sprintf("how many at most, up to %d", most))
}

func (f *itemFlags) check(most int) error {
	if f.limit < 1 || f.limit > most {
		return usagef("--limit must be between 1 and %d", most)
	}
	return nil
}

// chosen is a flag that makes a difference when it is not given.
func chosen(cmd *cobra.Command, name string, value bool) *bool {
	if !cmd.Flags().Changed(name) {
		return nil
	}
	return &value
}

func newTaskIsolatedCommand(a *app) *cobra.Command {
	var f itemFlags
	var replayed bool
	var after string
	cmd := a.taskCommand("isolated", "List items that batches of a task could not process", nil)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.check(client.MaxIsolatedItems); err != nil {
			return err
		}
		return a.withTask(args[0], func(c *client.Client, id string) error {
			list, err := c.IsolatedItems(cmd.Context(), id, client.IsolatedOptions{Worker: f.worker, Batch: f.batch, Retryable: chosen(cmd, "retryable", f.retryable),
				Replayed: chosen(cmd, "replayed", replayed), After: after, Limit: f.limit})
			if err != nil {
				return err
			}
			return a.emit(list, func() { a.showIsolated(list) })
		})
	}
	f.flags(cmd, client.DefaultIsolatedItems, client.MaxIsolatedItems)
	cmd.Flags().BoolVar(&replayed, "replayed", false, "only those that a task was made for; --replayed=false: the others")
	cmd.Flags().StringVar(&after, "after", "", "where the page before ended")
	return cmd
}

func (a *app) showIsolated(list *client.IsolatedItems) {
	if len(list.Items) == 0 {
		a.printf("There are no such items.\n")
		return
	}
	t := a.newTable("BATCH", "ITEM", "ERROR", "MAY WORK", "REPLAYED AS")
	for i := range list.Items {
		item := &list.Items[i]
		as, may := "-", "no"
		if item.ReplayedAs != nil {
			as = *item.ReplayedAs
		}
		if item.Error.Retryable {
			may = "yes"
		}
		t.row(item.Batch, oneLine(string(item.Item)), oneLine(item.Error.Message), may, as)
	}
	t.write(a.stdout)
	if list.Next != nil {
		a.printf("There are more: --after %s\n", *list.Next)
	}
}

func newTaskReplayIsolatedCommand(a *app) *cobra.Command {
	var f itemFlags
	var why whyFlags
	var again, dry bool
	cmd := a.taskCommand("replay", "Create a task that processes isolated items again", nil)
	cmd.Long = `Creates a task of the same template whose batches are given exactly the isolated
items. What the old task did before its batches counts as done in the new one,
and does not run again; what follows the batches does. Items that a replay has
had already are left out, unless --again is given.`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.check(client.MaxIsolatedReplay); err != nil {
			return err
		}
		return a.withTask(args[0], func(c *client.Client, id string) error {
			r := client.IsolatedReplay{Reason: why.reason, Actor: why.actor, Worker: f.worker, Batch: f.batch,
				Retryable: chosen(cmd, "retryable", f.retryable), Again: again, Limit: f.limit, DryRun: dry}
			return a.replayIsolated(cmd.Context(), c, id, r)
		})
	}
	f.flags(cmd, client.MaxIsolatedReplay, client.MaxIsolatedReplay)
	why.flags(cmd, "actor", true)
	cmd.Flags().BoolVar(&again, "again", false, "those as well that a replay has had already")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only tell how many items there would be")
	return cmd
}

func (a *app) replayIsolated(ctx context.Context, c *client.Client, id string, r client.IsolatedReplay) error {
	done, err := c.ReplayIsolated(ctx, id, r)
	if err != nil {
		return notAllowed(err)
	}
	return a.emit(done, func() {
		switch {
		case done.Items == 0:
			a.printf("There is nothing to replay.\n")
		case done.TaskUUID == nil:
			a.printf("%s in %s would be replayed\n", counted(done.Items, "item"), countedBatches(done.Batches))
		default:
			a.printf("created task %s: %s in %s\n", *done.TaskUUID, counted(done.Items, "item"), countedBatches(done.Batches))
		}
		if done.More {
			a.printf("There are more; replay once more for those.\n")
		}
	})
}

func countedBatches(n int) string {
	if n == 1 {
		return "1 batch"
	}
	return fmt.Sprintf("%d batches", n)
}
