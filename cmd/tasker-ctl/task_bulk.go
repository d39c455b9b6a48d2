package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/workflow"
)

// bulkActions are those that `task action` has, in the order of its help.
var bulkActions = []string{client.ActionCancel, client.ActionFail, client.ActionResolve, client.ActionReset, client.ActionComplete,
	client.ActionRunAgain, client.ActionReprioritise, client.ActionReleaseLease}

// bulkOptions are the flags of `task action`.
type bulkOptions struct {
	why                         whyFlags
	filter                      client.BulkFilter
	createdBefore, createdAfter string
	priority                    int
	result                      string
	limit                       int
	really                      reallyFlags
}

// reallyFlags keep commands on many things from doing more than is meant.
type reallyFlags struct{ dryRun, yes bool }

func (r *reallyFlags) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&r.dryRun, "dry-run", false, "only show what would be done")
	cmd.Flags().BoolVar(&r.yes, "yes", false, "yes, do it")
}

// check refuses to act unless that is said in words; what is what the command
// does.
func (r *reallyFlags) check(what string) error {
	if r.dryRun == r.yes {
		return hinted{usagef("%s", what), "look first with --dry-run, then confirm with --yes"}
	}
	return nil
}

func newTaskBulkCommand(a *app) *cobra.Command {
	var o bulkOptions
	cmd := &cobra.Command{
		Use:   "action ACTION",
		Short: "Do the same to all tasks that match a filter",
		Long: `Does the same to all tasks that match a filter, the oldest first. A task must
match everything that is given, and something must be given. Nothing is done
without --yes; --dry-run shows which tasks are meant. Tasks whose state does not
allow the action are counted as skipped.

Actions: ` + strings.Join(bulkActions, ", ") + `.
Those on steps (reset_for_retry, complete_manually, run_again, release_lease, and
resolve where steps are meant) need --step.`,
		Example: "  tasker-ctl task action cancel -n payments --tag demo --dry-run -r 'wrong import'\n" +
			"  tasker-ctl task action reset_for_retry --name refund -s error --step charge -r 'gateway is back' --yes",
		Args: arguments("ACTION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := o.request(a, strings.ReplaceAll(args[0], "-", "_"))
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("priority") {
				request.Priority = &o.priority
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			done, err := c.ActOnTasks(cmd.Context(), request)
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(done, func() { a.showBulk(done, "task") })
		},
		ValidArgsFunction: oneOfWords(bulkActions...),
	}
	o.flags(cmd)
	completeFlag(cmd, "status", oneOfWords(taskStateWords()...))
	completeFlag(cmd, "namespace", a.completeNamespaces)
	completeFlag(cmd, "name", a.completeNames)
	return cmd
}

func (o *bulkOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&o.filter.Namespace, "namespace", "n", "", "only of this namespace")
	f.StringVar(&o.filter.Name, "name", "", "only of this template")
	f.StringVar(&o.filter.Version, "version", "", "only of this version of it")
	f.StringSliceVarP(&o.filter.States, "status", "s", nil, "only in these states; may be repeated")
	f.StringVar(&o.filter.Tag, "tag", "", "only with this tag")
	f.StringVar(&o.createdBefore, "created-before", "", "only older ones: a `time` (RFC 3339) or so long ago (24h)")
	f.StringVar(&o.createdAfter, "created-after", "", "only newer ones, likewise")
	f.StringVar(&o.filter.StepName, "step", "", "the step that the action is about")
	f.IntVarP(&o.priority, "priority", "p", 0, "for reprioritise: -100 to 100")
	f.StringVar(&o.result, "result", "", "for complete_manually: the result as JSON or @file")
	f.IntVarP(&o.limit, "limit", "l", client.DefaultBulkLimit, "how many tasks at most, up to 10000")
	o.why.flags(cmd, "actor", true)
	o.really.flags(cmd)
}

// request checks the flags and makes the body of the call.
func (o *bulkOptions) request(a *app, action string) (client.BulkAction, error) {
	r := client.BulkAction{Action: action, Filter: o.filter, Reason: o.why.reason, Actor: o.why.actor, DryRun: &o.really.dryRun, Limit: o.limit}
	known := false
	for _, name := range bulkActions {
		known = known || name == action
	}
	if !known {
		return r, usagef("unknown action %q: it must be one of %s", action, strings.Join(bulkActions, ", "))
	}
	for _, state := range o.filter.States {
		if _, ok := workflow.ParseTaskState(state); !ok {
			return r, usagef("unknown status %q: it must be one of %s", state, strings.Join(taskStateWords(), ", "))
		}
	}
	var err error
	if r.Filter.CreatedBefore, err = a.moment("--created-before", o.createdBefore); err != nil {
		return r, err
	}
	if r.Filter.CreatedAfter, err = a.moment("--created-after", o.createdAfter); err != nil {
		return r, err
	}
	switch {
	case !namesTasks(r.Filter):
		return r, usagef("task action needs a filter: --namespace, --name, --version, --status, --tag, --created-before or --created-after")
	case o.limit < 1 || o.limit > client.MaxBulkLimit:
		return r, usagef("--limit must be between 1 and %d", client.MaxBulkLimit)
	}
	if err := checkPriority(o.priority); err != nil {
		return r, err
	}
	if o.result != "" {
		if r.Result, err = a.readJSON("--result", o.result); err != nil {
			return r, err
		}
	}
	return r, o.really.check("task action " + action + " may change many tasks")
}

func namesTasks(f client.BulkFilter) bool {
	return f.Namespace != "" || f.Name != "" || f.Version != "" || len(f.States) > 0 || f.Tag != "" || f.CreatedBefore != nil || f.CreatedAfter != nil
}

// moment reads a time, or how long ago it was; nil when there is none.
func (a *app) moment(flag, text string) (*client.Time, error) {
	if text == "" {
		return nil, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return &client.Time{Time: a.now().Add(-ago).UTC()}, nil
	}
	var t client.Time
	if err := t.UnmarshalText([]byte(text)); err != nil {
		return nil, usagef("%s must be a time such as 2026-03-21T10:00:00Z or an age such as 24h, not %q", flag, text)
	}
	return &t, nil
}

// showBulk tells what became of many things; noun is what they are.
func (a *app) showBulk(r *client.BulkResult, noun string) {
	for _, id := range r.Tasks {
		a.printf("%s\n", id)
	}
	if more := r.Matched - len(r.Tasks); more > 0 && len(r.Tasks) > 0 {
		a.printf("and %d more\n", more)
	}
	if r.DryRun {
		a.printf("%s match; nothing was done\n", counted(r.Matched, noun))
		return
	}
	a.printf("done to %d of %s; %d skipped\n", r.Changed, counted(r.Matched, noun), r.Skipped)
}
