package main

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
)

func newDLQCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Look into the dead-letter queue, and replay what is in it",
		Long: `The dead-letter queue holds tasks that people should look at: they failed for
good, lost their workers, or did not move for too long. An entry is a record of
the investigation. To repair a task, act on its steps (task reset-step,
resolve-step, complete-step) or replay it; its entry then closes by itself.`,
	}
	cmd.AddCommand(newDLQListCommand(a), newDLQGetCommand(a), newDLQQueueCommand(a), newDLQStatsCommand(a), newDLQStalenessCommand(a),
		newDLQUpdateCommand(a), newDLQAddCommand(a), newDLQReplayCommand(a), newDLQPurgeCommand(a))
	return cmd
}

var (
	resolutionWords = []string{client.ResolutionPending, client.ResolutionManuallyResolved, client.ResolutionPermanentlyFailed, client.ResolutionCancelled}
	dlqReasonWords  = []string{client.ReasonStalenessTimeout, client.ReasonMaxRetriesExceeded, client.ReasonDependencyCycleDetected,
		client.ReasonWorkerUnavailable, client.ReasonManualDLQ}
)

// wordOf finds a word of the API in the spelling that somebody uses:
// manually_resolved and manually-resolved are ManuallyResolved.
func wordOf(flag, text string, words []string) (string, error) {
	if text == "" {
		return "", nil
	}
	plain := strings.NewReplacer("_", "", "-", "")
	for _, word := range words {
		if strings.EqualFold(plain.Replace(text), word) {
			return word, nil
		}
	}
	return "", usagef("%s must be one of %s, not %q", flag, strings.Join(words, ", "), text)
}

func newDLQListCommand(a *app) *cobra.Command {
	var o client.DLQListOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List entries, newest first",
		Args:  arguments(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.ResolutionStatus, err = wordOf("--status", o.ResolutionStatus, resolutionWords); err != nil {
				return err
			}
			if o.DLQReason, err = wordOf("--dlq-reason", o.DLQReason, dlqReasonWords); err != nil {
				return err
			}
			if err := checkLimit(o.Limit); err != nil {
				return err
			}
			if o.Offset < 0 || o.Offset > client.MaxDLQOffset {
				return usagef("--offset must be between 0 and %d", client.MaxDLQOffset)
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			entries, err := c.DLQEntries(cmd.Context(), o)
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(entries, func() { a.showDLQ(entries) })
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.ResolutionStatus, "status", "s", "", "only those: pending, manually_resolved, permanently_failed or cancelled")
	f.StringVar(&o.DLQReason, "dlq-reason", "", "only those that are there for this reason")
	f.StringVarP(&o.Namespace, "namespace", "n", "", "only tasks of this namespace")
	f.StringVar(&o.TaskName, "task-name", "", "only tasks of this template")
	f.IntVarP(&o.Limit, "limit", "l", client.DefaultDLQLimit, "how many, up to 1000")
	f.IntVarP(&o.Offset, "offset", "o", 0, "how many to leave out first")
	completeFlag(cmd, "status", oneOfWords(resolutionWords...))
	completeFlag(cmd, "dlq-reason", oneOfWords(dlqReasonWords...))
	completeFlag(cmd, "namespace", a.completeNamespaces)
	return cmd
}

func checkLimit(limit int) error {
	if limit < 1 || limit > client.MaxDLQLimit {
		return usagef("--limit must be between 1 and %d", client.MaxDLQLimit)
	}
	return nil
}

func (a *app) showDLQ(entries []client.DLQEntry) {
	t := a.newTable("ENTRY", "TASK", "REASON", "DETAIL", "STATUS", "AGE", "BY")
	for i := range entries {
		e := &entries[i]
		t.row(e.DLQEntryUUID, e.TaskUUID, e.DLQReason, e.Detail, resolutionCell(e.ResolutionStatus), a.since(e.DLQTimestamp.Time), text(e.ResolvedBy))
	}
	t.write(a.stdout)
}

func resolutionCell(status string) cell {
	switch status {
	case client.ResolutionPending:
		return cell{status, yellow}
	case client.ResolutionManuallyResolved:
		return cell{status, green}
	case client.ResolutionPermanentlyFailed:
		return cell{status, red}
	}
	return cell{status, dim}
}

func newDLQGetCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "get TASK",
		Aliases: []string{"show"},
		Short:   "Show the newest entry of a task with the task as it was then",
		Args:    arguments("TASK"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTask(args[0], func(c *client.Client, id string) error {
				e, err := c.DLQEntryOfTask(cmd.Context(), id)
				if err != nil {
					return err
				}
				return a.emit(e, func() { a.showDLQEntry(e) })
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

func (a *app) showDLQEntry(e *client.DLQEntry) {
	t := a.newPairs()
	t.row("entry", e.DLQEntryUUID)
	t.row("task", e.TaskUUID)
	t.row("state then", stateCell(e.OriginalState))
	t.row("reason", e.DLQReason)
	t.row("detail", e.Detail)
	t.row("since", instant(&client.Time{Time: e.DLQTimestamp.Time}))
	t.row("status", resolutionCell(e.ResolutionStatus))
	var resolved *client.Time
	if e.ResolutionTimestamp != nil {
		resolved = &client.Time{Time: e.ResolutionTimestamp.Time}
	}
	t.row("resolved", instant(resolved))
	t.row("resolved by", text(e.ResolvedBy))
	t.row("notes", text(e.ResolutionNotes))
	t.row("replayed as", text(e.ReplayedAs))
	t.row("metadata", clip(shownJSON(e.Metadata), 200))
	t.write(a.stdout)
	a.printf("\nsnapshot:\n%s\n", indented(e.TaskSnapshot))
}

func newDLQQueueCommand(a *app) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:     "queue",
		Aliases: []string{"investigation-queue"},
		Short:   "List pending entries, the most urgent first",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			entries, err := c.InvestigationQueue(cmd.Context(), limit)
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(entries, func() {
				t := a.newTable("SCORE", "ENTRY", "TASK", "NAMESPACE", "TEMPLATE", "REASON", "STATE", "WAITING")
				for i := range entries {
					e := &entries[i]
					t.row(fmt.Sprintf("%.0f", e.PriorityScore), e.DLQEntryUUID, e.TaskUUID, text(e.NamespaceName), text(e.TaskName), e.DLQReason,
						stateCell(text(e.CurrentState)), seconds(duration(e.MinutesInDLQ*60)))
				}
				t.write(a.stdout)
			})
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "l", client.DefaultQueueLimit, "how many, up to 1000")
	return cmd
}

func newDLQStatsCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "stats",
		Short: "Count the entries by reason",
		Args:  arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			stats, err := c.DLQStats(cmd.Context())
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(stats, func() {
				t := a.newTable("REASON", "TOTAL", "PENDING", "RESOLVED", "FAILED", "CANCELLED", "OLDEST", "RESOLVED WITHIN")
				for i := range stats {
					s := &stats[i]
					oldest, within := any(nil), any(nil)
					if s.OldestEntry != nil {
						oldest = a.since(s.OldestEntry.Time)
					}
					if s.AvgResolutionTimeMinutes != nil {
						within = seconds(duration(*s.AvgResolutionTimeMinutes * 60))
					}
					t.row(s.DLQReason, s.TotalEntries, s.Pending, s.ManuallyResolved, s.PermanentFailures, s.Cancelled, oldest, within)
				}
				t.write(a.stdout)
			})
		},
	}
}

func newDLQStalenessCommand(a *app) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "staleness",
		Short: "List living tasks by how long they may still stand still",
		Args:  arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			entries, err := c.Staleness(cmd.Context(), limit)
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(entries, func() {
				t := a.newTable("HEALTH", "TASK", "NAMESPACE", "TEMPLATE", "STATE", "OF", "MINUTES", "THRESHOLD", "PRIORITY")
				for i := range entries {
					e := &entries[i]
					t.row(stateCell(e.HealthStatus), e.TaskUUID, text(e.NamespaceName), text(e.TaskName), stateCell(e.CurrentState),
						e.Detail, e.TimeInStateMinutes, e.StalenessThresholdMinutes, e.Priority)
				}
				t.write(a.stdout)
			})
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "l", client.DefaultQueueLimit, "how many, up to 1000")
	return cmd
}

// entryUUID checks the UUID of an entry.
func entryUUID(id string) (string, error) {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return "", usagef("%q is not the UUID of an entry", id)
	}
	return parsed.String(), nil
}
