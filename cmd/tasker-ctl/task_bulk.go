package main

import (
	"reflect"
	"strings"

	"github.com/tasker-go/tasker/client"
)

// bulkActions are those that `task action` has, in the order of its help.
var bulkActions = []string{client.ActionCancel, client.ActionFail, client.ActionResolve, client.ActionReset, client.ActionComplete,
	client.ActionRunAgain, client.ActionReprioritise, client.ActionReleaseLease}

func (a *app) taskBulk() command {
	var r really
	b := client.BulkAction{Limit: client.DefaultBulkLimit, DryRun: &r.dryRun}
	f := &b.Filter
	return command{
		use: "action ACTION", short: "Act on all tasks that match a filter",
		long: `Acts on all tasks that match a filter, the oldest first. A task must match every
flag of the filter, and at least one must be given. Nothing is changed without
--yes; --dry-run shows which tasks match. Tasks whose state does not allow the
action are counted as skipped.

Actions: ` + strings.Join(bulkActions, ", ") + `.
Those on steps (reset_for_retry, complete_manually, run_again, release_lease, and
resolve of a step) need --step.`,
		example: "  tasker-ctl task action cancel -n payments --tag demo --dry-run -r 'wrong import'\n" +
			"  tasker-ctl task action reset_for_retry --name refund -s error --step charge -r 'gateway is back' --yes",
		flags: all(
			a.namespace(&f.Namespace, "only of this namespace"),
			opt(&f.Name, "name", "only of this template", a.offering(byName)),
			opt(&f.Version, "version", "only of this version of it"),
			opt(&f.States, "status,s", "only in these states; may be repeated", withCommas, among(taskStateWords()...)),
			opt(&f.Tag, "tag", "only with this tag"),
			opt(&f.CreatedBefore, "created-before", "only older ones: a `time` (RFC 3339) or an age (24h)"),
			opt(&f.CreatedAfter, "created-after", "only newer ones, likewise"),
			opt(&f.StepName, "step", "the step that the action is about"),
			opt(&b.Priority, "priority,p", "for reprioritise: -100 to 100", aPriority),
			opt(&b.Result, "result", "for complete_manually: the result as JSON or @file"),
			limit(&b.Limit, client.MaxBulkLimit, "how many tasks at most"),
			why(&b.Reason, &b.Actor, needed),
			r.flags(),
		),
		check: func(args []string) error {
			b.Action = args[0]
			if reflect.DeepEqual(*f, client.BulkFilter{StepName: f.StepName}) {
				return usagef("task action needs a filter: --namespace, --name, --version, --status, --tag, --created-before or --created-after")
			}
			return r.check("task action " + b.Action + " may change many tasks")
		},
		run: ask(a, with((*api).ActOnTasks, &b), a.showBulk),
	}
}

// showBulk reports the outcome for many tasks.
func (a *app) showBulk(r *client.BulkResult) {
	for _, id := range r.Tasks {
		a.printf("%s\n", id)
	}
	if more := r.Matched - len(r.Tasks); more > 0 && len(r.Tasks) > 0 {
		a.printf("and %d more\n", more)
	}
	if r.DryRun {
		verb := "match"
		if r.Matched == 1 {
			verb = "matches"
		}
		a.printf("%s %s; nothing was changed\n", counted(r.Matched, "task"), verb)
		return
	}
	a.printf("changed %d of %s; %d skipped\n", r.Changed, counted(r.Matched, "task"), r.Skipped)
}
