package main

import (
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/limits"
)

// batchBar is the width of the bar of a group, in characters.
const batchBar = 30

// taskBatches shows batches, and has below it what concerns the items that they
// could not process.
func (a *app) taskBatches() command {
	return command{
		use: "batches TASK", short: "Show the progress of the batches of a task",
		run:      ask(a, of((*api).Batches), a.showBatches),
		commands: []command{a.isolatedList(), a.isolatedReplay()},
	}
}

func (a *app) showBatches(list *client.Batches) {
	if len(list.Groups) == 0 {
		a.printf("The task has no batches.\n")
	}
	for i := range list.Groups {
		if i > 0 {
			a.printf("\n")
		}
		a.showBatchGroup(&list.Groups[i])
	}
}

func (a *app) showBatchGroup(g *client.BatchGroup) {
	a.printf("%s of %s  %s %d of %d complete", g.Worker, g.Batchable, progressBar(g.Complete, g.Total), g.Complete, g.Total)
	for _, n := range []struct {
		count int
		what  string
	}{{g.InProgress, "running"}, {g.Pending, "waiting"}, {g.WaitingForRetry, "backing off"}, {g.Failed, "failed"}, {g.Cancelled, "cancelled"}} {
		if n.count > 0 {
			a.printf(", %d %s", n.count, n.what)
		}
	}
	a.printf("\n%d of %d items", g.CompletedItems, g.TotalItems)
	if g.IsolatedItems > 0 {
		a.printf(", %d of them isolated", g.IsolatedItems)
	}
	if g.PerSecond != nil {
		a.printf(", %.1f items/s", *g.PerSecond)
	}
	if g.SecondsLeft != nil {
		a.printf(", about %s left", time.Duration(*g.SecondsLeft*float64(time.Second)).Round(time.Second))
	}
	a.printf("\n\n")
	listing(a, func(b *client.Batch) facts {
		return facts{{"BATCH", b.Name}, {"FROM", string(b.Start)}, {"TO", string(b.End)},
			{"ITEMS", b.Items}, {"STATE", stateCell(b.State)}, {"ATTEMPTS", b.Attempts}}
	})(g.Batches)
}

func progressBar(done, total int) string {
	full := 0
	if total > 0 {
		full = done * batchBar / total
	}
	return strings.Repeat("█", full) + strings.Repeat("░", batchBar-full)
}

// itemFlags select isolated items.
func itemFlags(worker, batch *string, retryable **bool, n *int, most int) flags {
	return all(
		opt(worker, "worker-step,w", "of the batches of this step"),
		opt(batch, "batch", "of the batch of this name (process_rows_003)"),
		opt(retryable, "retryable", "only items that may succeed on another attempt; --retryable=false: the others"),
		limit(n, most, "how many at most"),
	)
}

func (a *app) isolatedList() command {
	o := client.IsolatedOptions{Limit: limits.DefaultIsolatedItems}
	return command{
		use: "isolated TASK", lists: true, short: "List items that batches of a task could not process",
		flags: all(
			itemFlags(&o.Worker, &o.Batch, &o.Retryable, &o.Limit, limits.MaxIsolatedItems),
			opt(&o.Replayed, "replayed", "only items that a replay task has; --replayed=false: the others"),
			opt(&o.After, "after", "where the previous page ended"),
		),
		run: ask(a, ofWith((*api).IsolatedItems, &o), a.showIsolated),
	}
}

func (a *app) showIsolated(list *client.IsolatedItems) {
	if len(list.Items) == 0 {
		a.printf("There are no such items.\n")
		return
	}
	listing(a, func(i *client.IsolatedItem) facts {
		return facts{{"BATCH", i.Batch}, {"ITEM", string(i.Item)}, {"ERROR", i.Error.Message},
			{"MAY WORK", i.Error.Retryable}, {"REPLAYED AS", i.ReplayedAs}}
	})(list.Items)
	if list.Next != nil {
		a.printf("There are more: --after %s\n", *list.Next)
	}
}

func (a *app) isolatedReplay() command {
	r := client.IsolatedReplay{Limit: limits.MaxIsolatedReplay}
	return command{
		use: "replay TASK", short: "Create a task that processes isolated items again",
		long: `Creates a task of the same template whose batches are given exactly the isolated
items. What the old task did before its batches counts as done in the new one,
and does not run again; what follows the batches does. Items that were replayed
already are left out, unless --again is given.`,
		flags: all(
			itemFlags(&r.Worker, &r.Batch, &r.Retryable, &r.Limit, limits.MaxIsolatedReplay),
			why(&r.Reason, &r.Actor, needed),
			opt(&r.Again, "again", "also items that were replayed already"),
			opt(&r.DryRun, dryRun, "only show how many items there would be"),
		),
		explain: notAllowed,
		run:     ask(a, ofWith((*api).ReplayIsolated, &r), a.showIsolatedReplay),
	}
}

func (a *app) showIsolatedReplay(done *client.IsolatedReplayed) {
	what := counted(done.Items, "item") + " in " + counted(done.Batches, "batch")
	switch {
	case done.Items == 0:
		a.printf("There is nothing to replay.\n")
	case done.TaskUUID == nil:
		a.printf("%s would be replayed\n", what)
	default:
		a.printf("created task %s: %s\n", *done.TaskUUID, what)
	}
	if done.More {
		a.printf("There are more; replay once more for those.\n")
	}
}
