package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
)

func newDLQUpdateCommand(a *app) *cobra.Command {
	var status, notes, by, metadata string
	cmd := &cobra.Command{
		Use:   "update ENTRY",
		Short: "Change an investigation; its task is not touched",
		Args:  arguments("ENTRY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := entryUUID(args[0])
			if err != nil {
				return err
			}
			var u client.DLQUpdate
			if status, err = wordOf("--status", status, resolutionWords); err != nil {
				return err
			}
			for _, f := range []struct {
				flag  string
				value *string
				to    **string
			}{{"status", &status, &u.ResolutionStatus}, {"notes", &notes, &u.ResolutionNotes}, {"resolved-by", &by, &u.ResolvedBy}} {
				if cmd.Flags().Changed(f.flag) {
					*f.to = f.value
				}
			}
			if metadata != "" {
				if u.Metadata, err = a.readObject(metadata); err != nil {
					return err
				}
			}
			if u.ResolutionStatus == nil && u.ResolutionNotes == nil && u.ResolvedBy == nil && u.Metadata == nil {
				return usagef("dlq update needs --status, --notes, --resolved-by or --metadata")
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			done, err := c.UpdateDLQEntry(cmd.Context(), id, u)
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(done, func() { a.printf("entry %s: %s\n", done.DLQEntryUUID, oneLine(done.Message)) })
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	f.StringVarP(&status, "status", "s", "", "pending, manually_resolved, permanently_failed or cancelled")
	f.StringVarP(&notes, "notes", "n", "", "what was found")
	f.StringVarP(&by, "resolved-by", "b", "", "who did it")
	f.StringVar(&metadata, "metadata", "", "a JSON object or @file; its keys are added to those there")
	completeFlag(cmd, "status", oneOfWords(resolutionWords...))
	return cmd
}

func newDLQAddCommand(a *app) *cobra.Command {
	var why whyFlags
	var metadata string
	cmd := &cobra.Command{
		Use:   "add TASK",
		Short: "Put a task into the queue by hand; the task is not touched",
		Long: `Puts a task into the queue by hand; the task itself is not touched. One that has
a pending entry keeps it, and what is told is added to that.`,
		Args: arguments("TASK"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			add := client.DLQAdd{Reason: why.reason, Actor: why.actor}
			if metadata != "" {
				if add.Metadata, err = a.readObject(metadata); err != nil {
					return err
				}
			}
			return a.withTask(args[0], func(c *client.Client, id string) error {
				add.TaskUUID = id
				e, err := c.AddDLQEntry(cmd.Context(), add)
				if err != nil {
					return err
				}
				return a.emit(e, func() { a.printf("entry %s: %s\n", e.DLQEntryUUID, e.DLQReason) })
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	why.flags(cmd, "actor", true)
	cmd.Flags().StringVar(&metadata, "metadata", "", "a JSON object or @file to keep with it")
	return cmd
}

// replayOptions are the flags of `dlq replay`.
type replayOptions struct {
	why                     whyFlags
	reason, namespace, task string
	since, until            string
	all                     bool
	input                   string
	limit                   int
	perSecond               float64
	really                  reallyFlags
}

// maxReplay bounds what one command replays.
const maxReplay = 1_000_000

func newDLQReplayCommand(a *app) *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:   "replay [ENTRY]",
		Short: "Create tasks that do again what those in the queue did",
		Long: `Creates a new task like the one of ENTRY, or like those of all pending entries
that match a filter, oldest first and no faster than --per-second. The entries
are closed and name the new tasks. An entry that was replayed is not replayed
again.

Many are replayed with --yes only; --dry-run shows which are meant.`,
		Example: "  tasker-ctl dlq replay 019d… -r 'gateway is back'\n" +
			"  tasker-ctl dlq replay -n payments --dlq-reason max_retries_exceeded --per-second 20 -r 'gateway is back' --yes",
		Args: arguments("[ENTRY]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			var done *client.BulkResult
			if len(args) == 1 {
				done, err = o.one(cmd.Context(), a, c, args[0])
			} else {
				done, err = o.many(cmd.Context(), a, c)
			}
			if done == nil {
				return unreachable(orchestrator, err)
			}
			if shown := a.emit(done, func() { a.showReplay(done) }); shown != nil {
				return shown
			}
			return unreachable(orchestrator, err)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", "", "only tasks of this namespace")
	f.StringVar(&o.task, "task-name", "", "only tasks of this template")
	f.StringVar(&o.reason, "dlq-reason", "", "only those that are there for this reason")
	f.StringVar(&o.since, "since", "", "only those there since then: a `time` (RFC 3339) or so long ago (24h)")
	f.StringVar(&o.until, "until", "", "only those there before then, likewise")
	f.BoolVar(&o.all, "all", false, "all that are pending")
	f.IntVarP(&o.limit, "limit", "l", client.DefaultReplayLimit, "how many at most")
	f.Float64Var(&o.perSecond, "per-second", client.DefaultReplayRate, "how many a second, up to 1000")
	f.StringVarP(&o.input, "input", "i", "", "for one entry: another input as a JSON object, @file, or - for stdin")
	o.why.flags(cmd, "actor", true)
	o.really.flags(cmd)
	completeFlag(cmd, "dlq-reason", oneOfWords(dlqReasonWords...))
	completeFlag(cmd, "namespace", a.completeNamespaces)
	return cmd
}

func (a *app) showReplay(done *client.BulkResult) {
	if done.ReplayedAs != "" {
		a.printf("created task %s\n", done.ReplayedAs)
		return
	}
	a.showBulk(done, "task")
}

func (o *replayOptions) one(ctx context.Context, a *app, c *client.Client, entry string) (*client.BulkResult, error) {
	id, err := entryUUID(entry)
	if err != nil {
		return nil, err
	}
	if o.namespace != "" || o.task != "" || o.reason != "" || o.since != "" || o.until != "" || o.all {
		return nil, usagef("dlq replay takes an ENTRY or a filter, not both")
	}
	r := client.DLQReplay{DLQEntryUUID: id, Reason: o.why.reason, Actor: o.why.actor, DryRun: &o.really.dryRun}
	if o.input != "" {
		if r.Context, err = a.readObject(o.input); err != nil {
			return nil, err
		}
	}
	done, err := c.ReplayDLQ(ctx, r)
	return done, err
}

// replayParts is how long one request of a replay may take.
const replayParts = 20 * time.Second

// many replays in parts that the server has the time for. What was done before
// an error is told with it.
func (o *replayOptions) many(ctx context.Context, a *app, c *client.Client) (*client.BulkResult, error) {
	r, err := o.request(a)
	if err != nil {
		return nil, err
	}
	total := &client.BulkResult{DryRun: o.really.dryRun, Tasks: []string{}}
	part := min(client.MaxReplayLimit, max(1, int(o.perSecond*replayParts.Seconds())))
	for left := o.limit; left > 0; left -= part {
		r.Limit = min(left, part)
		if o.really.dryRun {
			r.Limit = min(left, client.MaxReplayLimit)
		}
		done, err := c.ReplayDLQ(ctx, r)
		if err != nil {
			if total.Changed == 0 {
				return nil, err
			}
			return total, fmt.Errorf("after %s: %w", counted(total.Changed, "task"), err)
		}
		total.Matched += done.Matched
		total.Changed += done.Changed
		total.Skipped += done.Skipped
		total.Tasks = append(total.Tasks, done.Tasks[:min(len(done.Tasks), client.MaxBulkTasks-len(total.Tasks))]...)
		if done.DryRun || done.Changed == 0 || done.Matched < r.Limit {
			break
		}
	}
	return total, nil
}

// request checks the flags of a replay of many.
func (o *replayOptions) request(a *app) (r client.DLQReplay, err error) {
	filter := client.DLQFilter{Namespace: o.namespace, TaskName: o.task}
	if filter.DLQReason, err = wordOf("--dlq-reason", o.reason, dlqReasonWords); err != nil {
		return r, err
	}
	if filter.Since, err = a.moment("--since", o.since); err != nil {
		return r, err
	}
	if filter.Until, err = a.moment("--until", o.until); err != nil {
		return r, err
	}
	if o.all {
		filter.ResolutionStatus = client.ResolutionPending
	}
	switch {
	case filter == (client.DLQFilter{}):
		return r, usagef("dlq replay needs an ENTRY, a filter or --all")
	case o.input != "":
		return r, usagef("--input is for one entry")
	case o.limit < 1 || o.limit > maxReplay:
		return r, usagef("--limit must be between 1 and %d", maxReplay)
	case !(o.perSecond > 0 && o.perSecond <= client.MaxReplayRate):
		return r, usagef("--per-second must be above 0 and at most %g", client.MaxReplayRate)
	}
	r = client.DLQReplay{Filter: &filter, Reason: o.why.reason, Actor: o.why.actor, PerSecond: o.perSecond, DryRun: &o.really.dryRun}
	return r, o.really.check("dlq replay may create many tasks")
}

func newDLQPurgeCommand(a *app) *cobra.Command {
	var why whyFlags
	var really reallyFlags
	var age time.Duration
	var limit int
	cmd := &cobra.Command{
		Use:     "purge",
		Short:   "Forget closed entries, the oldest first; pending ones stay",
		Example: "  tasker-ctl dlq purge --older-than 720h -r 'audit is done' --dry-run",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case age < 0:
				return usagef("--older-than must not be negative")
			case limit < 1 || limit > client.MaxPurgeLimit:
				return usagef("--limit must be between 1 and %d", client.MaxPurgeLimit)
			}
			if err := really.check("dlq purge forgets entries for good"); err != nil {
				return err
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			closed := int64(age / time.Second)
			done, err := c.PurgeDLQ(cmd.Context(), client.DLQPurge{OlderThanSeconds: &closed, Limit: limit, Reason: why.reason, Actor: why.actor, DryRun: &really.dryRun})
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(done, func() {
				if done.DryRun {
					a.printf("%d closed entries would be forgotten\n", done.Purged)
					return
				}
				a.printf("forgot %d closed entries\n", done.Purged)
			})
		},
	}
	cmd.Flags().DurationVar(&age, "older-than", 0, "only those closed so long ago (required)")
	cmd.Flags().IntVarP(&limit, "limit", "l", client.DefaultPurgeLimit, "how many at most, up to 10000")
	required(cmd, "older-than")
	why.flags(cmd, "actor", true)
	really.flags(cmd)
	return cmd
}
