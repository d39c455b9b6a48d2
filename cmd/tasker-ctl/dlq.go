package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/wording"
)

func (a *app) dlq() command {
	r := resource[client.DLQEntry]{app: a, facts: a.entryFacts}
	urgent, stale := limits.DefaultQueueLimit, limits.DefaultQueueLimit
	return command{
		use: "dlq", short: "Inspect the dead-letter queue and replay its entries",
		long: `The dead-letter queue holds tasks that an operator should inspect: they failed
for good, lost their workers, or made no progress for too long. An entry is a
record of the investigation. To repair a task, act on its steps (task reset-step,
resolve-step, complete-step) or replay it; its entry then closes by itself.
Where an ENTRY is wanted, the UUID of its task will do: then it is the newest one.`,
		commands: []command{
			a.dlqList(r.list), a.dlqUpdate(), a.dlqAdd(), a.dlqReplay(), a.dlqPurge(),
			{use: "queue", lists: true, aliases: []string{"investigation-queue"}, short: "List pending entries, the most urgent first",
				flags: limit(&urgent, limits.MaxDLQLimit, "how many"),
				run:   ask(a, with((*api).InvestigationQueue, &urgent), listing(a, queueFacts))},
			{use: "stats", lists: true, short: "Count the entries by reason",
				run: ask(a, plainly((*api).DLQStats), listing(a, a.statsFacts))},
			{use: "staleness", lists: true, short: "List unfinished tasks by the time until they count as stale",
				flags: limit(&stale, limits.MaxDLQLimit, "how many"),
				run:   ask(a, with((*api).Staleness, &stale), listing(a, stalenessFacts))},
			{use: "get TASK", aliases: []string{"show"}, short: "Show the newest entry of a task with the task as it was then",
				long: `Shows the newest entry of a task with the task as it was then. An entry is found by
its own UUID as well, while it is among the newest thousand.`,
				run: ask(a, entryOf, func(e *client.DLQEntry) {
					r.show(e)
					a.printf("\nsnapshot:\n%s\n", indented(e.TaskSnapshot))
				})},
		},
	}
}

// entryArgument is an entry by its UUID, or the newest one of a task by that of the task.
// The beginning of one is looked for among both of the newest entries.
var entryArgument = argument{
	parse: entryIDs.parse,
	offer: offers(with((*api).DLQEntries, &client.DLQListOptions{ResolutionStatus: client.ResolutionPending, Limit: limits.MaxDLQLimit}),
		func(l []client.DLQEntry) []client.DLQEntry { return l },
		func(e *client.DLQEntry) string { return described(e.DLQEntryUUID, e.DLQReason+" of task "+e.TaskUUID) }),
	find: func(ctx context.Context, c *api, before []string, text string) (string, error) {
		text, err := entryIDs.find(ctx, c, before, text)
		if err != nil {
			return "", err
		}
		e, err := c.DLQEntryOfTask(ctx, text)
		if isA[*client.Error](err) {
			return text, nil // it is no task, or entries may not be read
		}
		if err != nil {
			return "", err
		}
		return e.DLQEntryUUID, nil
	},
}

var entryIDs = uuidArgument("entry", "tasker-ctl dlq list shows what there is",
	func(ctx context.Context, c *api, _ []string) (ids []string, err error) {
		list, err := c.DLQEntries(ctx, client.DLQListOptions{Limit: limits.MaxDLQLimit})
		for i := range list {
			ids = append(ids, list[i].DLQEntryUUID, list[i].TaskUUID)
		}
		return ids, err
	})

// entryOf is the newest entry of a task, or one of the newest with a UUID.
func entryOf(ctx context.Context, c *api, args []string) (*client.DLQEntry, error) {
	e, missing := c.DLQEntryOfTask(ctx, args[0])
	if !client.IsNotFound(missing) {
		return e, missing
	}
	list, err := c.DLQEntries(ctx, client.DLQListOptions{Limit: limits.MaxDLQLimit})
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].DLQEntryUUID == args[0] {
			return &list[i], nil
		}
	}
	return nil, missing
}

func (a *app) dlqList(show func([]client.DLQEntry)) command {
	o := client.DLQListOptions{Limit: limits.DefaultDLQLimit}
	return command{
		use: "list", lists: true, short: "List entries, newest first",
		flags: all(
			opt(&o.ResolutionStatus, "status,s", "only with this status: pending, manually_resolved, permanently_failed or cancelled",
				among(resolutionWords...)),
			opt(&o.DLQReason, "dlq-reason", "only with this reason", among(dlqReasonWords...)),
			a.namespace(&o.Namespace, "only tasks of this namespace"),
			a.templateFlag(&o.TaskName, "only tasks of this template"),
			limit(&o.Limit, limits.MaxDLQLimit, "how many"),
			opt(&o.Offset, "offset", "how many to leave out first", between(0, limits.MaxDLQOffset), also("o")),
		),
		run: ask(a, with((*api).DLQEntries, &o), show),
	}
}

func (a *app) entryFacts(e *client.DLQEntry) facts {
	var then struct {
		Namespace string `json:"namespace"`
		TaskName  string `json:"task_name"`
	}
	_ = json.Unmarshal(e.TaskSnapshot, &then) // without one there is no name
	template, problem := strings.Trim(then.Namespace+"/"+then.TaskName, "/"), ""
	if e.Error != nil {
		problem = prefixed(e.StepName, ": ") + e.Error.Message
	}
	return facts{
		{"Entry", e.DLQEntryUUID},
		{"Task", e.TaskUUID},
		{"Template", template},
		{"error?", problem},
		{"state then", stateCell(e.OriginalState)},
		{"Reason", dlqReason(e)},
		{"Detail", e.Detail},
		{"since", e.DLQTimestamp},
		{"Status", stateCell(e.ResolutionStatus)},
		{"AGE", a.since(e.DLQTimestamp.Time)},
		{"resolved", e.ResolutionTimestamp},
		{"BY", e.ResolvedBy},
		{"ERROR", wording.Clip(oneLine(problem), 60)},
		{"resolved by", e.ResolvedBy},
		{"notes", e.ResolutionNotes},
		{"replayed as", e.ReplayedAs},
		{"metadata", wording.Clip(shownJSON(e.Metadata), 200)},
	}
}

// detailPermanent is the detail of an entry whose task failed for good at once.
const detailPermanent = "permanent"

// dlqReason is why a task has an entry. The reasons of the API are those of Tasker, which
// has none for a permanent failure and calls it MaxRetriesExceeded.
func dlqReason(e *client.DLQEntry) string {
	if e.DLQReason == client.ReasonMaxRetriesExceeded && e.Detail == detailPermanent {
		return "PermanentFailure"
	}
	return e.DLQReason
}

func queueFacts(e *client.DLQQueueEntry) facts {
	return facts{{"SCORE", fmt.Sprintf("%.0f", e.PriorityScore)}, {"ENTRY", e.DLQEntryUUID},
		{"TASK", e.TaskUUID}, {"NAMESPACE", e.NamespaceName}, {"TEMPLATE", e.TaskName},
		{"REASON", e.DLQReason}, {"STATE", stateCell(valueOf(e.CurrentState))},
		{"WAITING", seconds(duration(e.MinutesInDLQ * 60))}}
}

func (a *app) statsFacts(s *client.DLQStats) facts {
	oldest, within := "", ""
	if s.OldestEntry != nil {
		oldest = a.since(s.OldestEntry.Time)
	}
	if s.AvgResolutionTimeMinutes != nil {
		within = seconds(duration(*s.AvgResolutionTimeMinutes * 60))
	}
	return facts{{"REASON", s.DLQReason}, {"TOTAL", s.TotalEntries}, {"PENDING", s.Pending},
		{"RESOLVED", s.ManuallyResolved}, {"FAILED", s.PermanentFailures},
		{"CANCELLED", s.Cancelled}, {"OLDEST", oldest}, {"RESOLVED WITHIN", within}}
}

func stalenessFacts(e *client.StalenessEntry) facts {
	return facts{{"HEALTH", stateCell(e.HealthStatus)}, {"TASK", e.TaskUUID},
		{"NAMESPACE", e.NamespaceName}, {"TEMPLATE", e.TaskName},
		{"STATE", stateCell(e.CurrentState)}, {"OF", e.Detail}, {"MINUTES", e.TimeInStateMinutes},
		{"THRESHOLD", e.StalenessThresholdMinutes}, {"PRIORITY", e.Priority}}
}

var (
	resolutionWords = []string{client.ResolutionPending, client.ResolutionManuallyResolved,
		client.ResolutionPermanentlyFailed, client.ResolutionCancelled}
	dlqReasonWords = []string{client.ReasonStalenessTimeout, client.ReasonMaxRetriesExceeded, client.ReasonDependencyCycleDetected,
		client.ReasonWorkerUnavailable, client.ReasonManualDLQ}
)

func (a *app) dlqUpdate() command {
	var u client.DLQUpdate
	return command{
		use: "update ENTRY", short: "Change an investigation; its task is not touched",
		flags: all(
			opt(&u.ResolutionStatus, "status,s", "pending, manually_resolved, permanently_failed or cancelled", among(resolutionWords...)),
			opt(&u.ResolutionNotes, "notes", "what was found", also("n")),
			opt(&u.ResolvedBy, "actor,b", "who did it", also("resolved-by")),
			opt(&u.Metadata, "metadata", "a JSON object or @file; its keys are added to those there", anObject),
		),
		check: func([]string) error {
			if u.ResolutionStatus == nil && u.ResolutionNotes == nil && u.ResolvedBy == nil && u.Metadata == nil {
				return usagef("dlq update needs --status, --notes, --actor or --metadata")
			}
			return nil
		},
		run: ask(a, ofWith((*api).UpdateDLQEntry, &u), func(done *client.DLQUpdated) {
			a.printf("entry %s: %s\n", done.DLQEntryUUID, oneLine(done.Message))
		}),
	}
}

func (a *app) dlqAdd() command {
	var add client.DLQAdd
	return command{
		use: "add TASK", short: "Create an entry for a task by hand; the task is not touched",
		long: `Creates an entry for a task by hand; the task itself is not touched. A task that
has a pending entry keeps it, and the reason and metadata are added to that.`,
		flags: all(
			why(&add.Reason, &add.Actor, needed),
			opt(&add.Metadata, "metadata", "a JSON object or @file to keep with it", anObject),
		),
		run: ask(a, with((*api).AddDLQEntry, &add, &add.TaskUUID), func(e *client.DLQEntry) {
			a.printf("entry %s: %s\n", e.DLQEntryUUID, e.DLQReason)
		}),
	}
}

// maxReplay bounds what one command replays.
const maxReplay = 1_000_000

// replaying is what `dlq replay` is asked for: one entry, or all that match.
type replaying struct {
	request client.DLQReplay
	filter  client.DLQFilter
	all     bool
	really  really
}

func (a *app) dlqReplay() command {
	r := replaying{request: client.DLQReplay{Limit: limits.DefaultReplayLimit, PerSecond: limits.DefaultReplayRate}}
	return command{
		use: "replay [ENTRY]", short: "Create tasks that repeat those of dead-letter entries",
		long: `Creates a new task like the one of ENTRY, or like those of all pending entries
that match a filter, oldest first and no faster than --per-second. The entries
are closed and name the new tasks. An entry that was replayed is not replayed
again.

A filter needs --yes; --dry-run shows which entries match.`,
		example: "  tasker-ctl dlq replay 019d… -r 'gateway is back'\n" +
			"  tasker-ctl dlq replay -n payments --dlq-reason max_retries_exceeded --per-second 20 -r 'gateway is back' --yes",
		flags: all(
			a.namespace(&r.filter.Namespace, "only tasks of this namespace"),
			a.templateFlag(&r.filter.TaskName, "only tasks of this template"),
			opt(&r.filter.DLQReason, "dlq-reason", "only entries with this reason", among(dlqReasonWords...)),
			createdFlags(&r.filter.Since, &r.filter.Until),
			opt(&r.all, "all", "all pending entries"),
			opt(&r.request.Limit, "limit,l", "how many at most", between(1, maxReplay)),
			opt(&r.request.PerSecond, "per-second", "how many per second, up to 1000", aRate),
			opt(&r.request.Context, "input,i", "for one entry: another input as a JSON object, @file, or - for stdin", anObject),
			why(&r.request.Reason, &r.request.Actor, needed),
			r.really.flags(),
		),
		check: r.check,
		run: func(ctx context.Context, c *api, args []string) error {
			if len(args) == 1 {
				r.request.DLQEntryUUID = args[0]
			}
			done, err := r.replay(ctx, a, c)
			if done == nil {
				return err
			}
			if shown := a.emit(done, func() { a.showBulk(done) }); shown != nil {
				return shown
			}
			return err
		},
	}
}

// aRate is how many tasks are created per second.
var aRate = checked(fmt.Sprintf("above 0 and at most %g", limits.MaxReplayRate), func(value string) bool {
	rate, err := strconv.ParseFloat(value, 64)
	return err == nil && rate > 0 && rate <= limits.MaxReplayRate
})

// check finds out whether one entry is meant or many.
func (r *replaying) check(args []string) error {
	if r.all {
		r.filter.ResolutionStatus = client.ResolutionPending
	}
	filtered := r.filter != client.DLQFilter{}
	r.request.DryRun = &r.really.dryRun
	switch {
	case len(args) == 1 && filtered:
		return usagef("dlq replay takes an ENTRY or a filter, not both")
	case len(args) == 1:
		r.request.Limit, r.request.PerSecond = 0, 0
		return nil
	case !filtered:
		return usagef("dlq replay needs an ENTRY, a filter or --all")
	case r.request.Context != nil:
		return usagef("--input is for one entry")
	}
	r.request.Filter = &r.filter
	return r.really.check("dlq replay may create many tasks")
}

// replayParts is how long one request of a replay may take.
const replayParts = 20 * time.Second

// replay repeats one task, or many in parts that the server has the time for.
// What was done before an error is returned with it.
func (r *replaying) replay(ctx context.Context, a *app, c *api) (*client.BulkResult, error) {
	if r.request.Filter == nil {
		return c.ReplayDLQ(ctx, r.request)
	}
	total := &client.BulkResult{DryRun: r.really.dryRun, Tasks: []string{}}
	part := min(limits.MaxReplayLimit, max(1, int(r.request.PerSecond*replayParts.Seconds())))
	if r.really.dryRun {
		part = limits.MaxReplayLimit
	}
	request, bar := r.request, progress{app: a, noun: "task", total: int64(r.request.Limit)}
	defer bar.end()
	for left := r.request.Limit; left > 0; left -= part {
		request.Limit = min(left, part)
		done, err := c.ReplayDLQ(ctx, request)
		if err != nil {
			if total.Changed == 0 {
				return nil, err
			}
			return total, fmt.Errorf("after %s: %w", counted(total.Changed, "task"), err)
		}
		bar.at(int64(total.Matched+done.Matched), total.Changed+done.Changed)
		total.Matched += done.Matched
		total.Changed += done.Changed
		total.Skipped += done.Skipped
		total.Tasks = append(total.Tasks, done.Tasks[:min(len(done.Tasks), limits.MaxBulkTasks-len(total.Tasks))]...)
		if done.DryRun || done.Changed == 0 || done.Matched < request.Limit {
			break
		}
	}
	return total, nil
}

func (a *app) dlqPurge() command {
	var age time.Duration
	var r really
	p := client.DLQPurge{Limit: limits.DefaultPurgeLimit, DryRun: &r.dryRun}
	return command{
		use: "purge", short: "Delete closed entries, the oldest first; pending ones stay",
		example: "  tasker-ctl dlq purge --older-than 720h --dry-run",
		flags: all(
			opt(&age, "older-than", "only entries closed at least this long ago", needed, notNegative),
			limit(&p.Limit, limits.MaxPurgeLimit, "how many at most"),
			why(&p.Reason, &p.Actor, needed),
			r.flags(),
		),
		check: func([]string) error {
			p.OlderThanSeconds = new(int64(age / time.Second))
			return r.check("dlq purge deletes entries for good")
		},
		run: ask(a, with((*api).PurgeDLQ, &p), func(done *client.DLQPurged) {
			if done.DryRun {
				a.printf("would delete %s\n", counted(done.Purged, "closed entry"))
				return
			}
			a.printf("deleted %s\n", counted(done.Purged, "closed entry"))
		}),
	}
}
