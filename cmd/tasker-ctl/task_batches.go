package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
)

// batchBar is the width of the bar of a group, in characters.
const batchBar = 30

// showBatches tells how far the batches of a task are.
func (a *app) showBatches(ctx context.Context, c *client.Client, id string) error {
	list, err := c.Batches(ctx, id)
	if err != nil {
		return err
	}
	return a.emit(list, func() {
		if len(list.Groups) == 0 {
			a.printf("The task has no batches.\n")
		}
		for i := range list.Groups {
			if i > 0 {
				a.printf("\n")
			}
			a.showBatchGroup(&list.Groups[i])
		}
	})
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
	t := a.newTable("BATCH", "FROM", "TO", "ITEMS", "STATE", "ATTEMPTS")
	for _, b := range g.Batches {
		t.row(b.Name, string(b.Start), string(b.End), b.Items, stateCell(b.State), b.Attempts)
	}
	t.write(a.stdout)
}

func progressBar(done, total int) string {
	full := 0
	if total > 0 {
		full = done * batchBar / total
	}
	return fmt.Sprintf("%s%s", strings.Repeat("█", full), strings.Repeat("░", batchBar-full))
}
