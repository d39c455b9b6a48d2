package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/client"
)

const (
	// maxInput bounds what is read; the server's own bound is 1 MiB.
	maxInput      = 2 << 20
	defaultReason = "CLI task creation"
)

func (a *app) taskCreate() command {
	r := client.TaskRequest{Namespace: "default", Initiator: "tasker-ctl", SourceSystem: "cli"}
	var description string
	var useExisting bool
	var delay, wait time.Duration
	return command{
		use: "create", short: "Create a task from a template", similar: []string{"new", "add", "submit", "start"},
		long: `Creates a task. With --wait it then waits for the task to end and shows the
results of its steps: the exit code is 0 when it completed, 1 when it ended
otherwise or has not ended in that time. A warning says when no live worker has a
handler for a step that could run.
A repeated call with the same --idempotency-key creates nothing and exits with 4,
naming the task that exists, or shows that with --use-existing; without a key the
template says what counts as the same task, by default the same input.`,
		example: "  tasker-ctl task create --name process_refund -n payments -i '{\"order\": 7}'\n" +
			"  tasker-ctl task create --name import --input @products.json --wait 2m\n" +
			"  jq -n '{order: 7}' | tasker-ctl task create --name process_refund -n payments -i -",
		flags: all(
			opt(&r.Name, "name", "name of the template", needed, notEmpty, a.offering(byName)),
			opt(&r.Namespace, "namespace,n", "namespace of the template", notEmpty, a.offering(byNamespace)),
			opt(&r.Version, "version,v", "version of the template (default the highest that is not deprecated)", a.offering(byVersion)),
			opt(&r.Context, "input,i", "input as a JSON object, @file, or - for stdin", needed, anObject),
			opt(&description, "description,d", "what the task is for; sent as its reason"),
			opt(&r.Priority, "priority,p", "priority, -100 to 100; higher goes first (default the template's, or 0)", aPriority),
			opt(&r.PriorityLevel, "priority-level", "in place of the priority: 1, which goes first, to 10", aPriorityLevel),
			opt(&r.CorrelationID, "correlation-id,c", "`UUID` to find everything that belongs together by", aUUID),
			opt(&r.IdempotencyKey, "idempotency-key", "`key` under which repeated calls create one task"),
			opt(&useExisting, "use-existing", "with an --idempotency-key: show the task that exists for it"),
			opt(&r.Tags, "tag", "tag of the task; may be repeated"),
			opt(&r.Reason, "reason", "why the task is created (default \""+defaultReason+"\")"),
			opt(&r.DependsOn, "depends-on", "`UUID` of a task that must end first; may be repeated", aUUID),
			opt(&r.OnDependencyFailure, "on-dependency-failure", "when such a task fails: fail (cancel this task) or continue"),
			opt(&delay, "delay", "do not start before this time has passed", notNegative),
			opt(&r.StartAt, "start-at", "do not start before this `time` (RFC 3339)", ahead),
			opt(&r.MaxAttempts, "max-attempts", "executions of each retryable step (default the template's)"),
			opt(&r.RetryDelays, "retry-delays", "exact delays before each further execution, such as 10s,5m,2d; in place of the template's", withCommas),
			waitFlag(&wait),
		),
		either: [][2]string{{"priority", "priority-level"}, {"start-at", "delay"}},
		check: func([]string) error {
			r.Reason = cmp.Or(r.Reason, description, defaultReason)
			if delay > 0 {
				r.DelaySeconds = new(delay.Seconds())
			}
			if !useExisting {
				return nil
			}
			r.ConflictPolicy = client.ConflictUseExisting
			if r.IdempotencyKey == "" {
				return usagef("--use-existing needs an --idempotency-key")
			}
			return nil
		},
		run: func(ctx context.Context, c *api, _ []string) error { return a.createTask(ctx, c, r, wait) },
	}
}

// createTask creates the task and, when asked to, waits for its end.
func (a *app) createTask(ctx context.Context, c *api, r client.TaskRequest, wait time.Duration) error {
	task, err := c.CreateTask(ctx, r)
	if err != nil {
		return explainCreate(err)
	}
	what := "created task"
	if r.ConflictPolicy == client.ConflictUseExisting {
		what = "task" // it may have been there
	}
	if wait == 0 {
		return a.emit(task, func() { a.printf("%s %s (%s)\n", what, task.TaskUUID, task.Status) })
	}
	if a.global.output == formatTable {
		a.printf("%s %s\n", what, task.TaskUUID)
	}
	id := task.TaskUUID
	if why := a.unserved(ctx, c, task); why != "" {
		a.warnf("%s; the task waits for one", why)
	}
	if task, err = a.awaitEnd(ctx, c, id, wait); err != nil {
		return fmt.Errorf("wait for task %s: %w", id, err)
	}
	if err := a.emit(task, func() { a.printf("task %s: %s\n", id, task.Status) }); err != nil {
		return err
	}
	if !task.Terminal() {
		why := suffixed(": ", a.unserved(ctx, c, task))
		return failure(fmt.Sprintf("task %s has not ended after %s%s; tasker-ctl task watch %s follows it", id, wait, why, id))
	}
	a.showOutcome(ctx, c, task)
	return a.outcome(ctx, c, task)
}

// explainCreate adds what can be done about a refused creation.
func explainCreate(err error) error {
	var told *client.Error
	if !errors.As(err, &told) {
		return err
	}
	switch {
	case client.IsNotFound(err):
		return hinted{err, "tasker-ctl template list shows what there is"}
	case client.IsConflict(err) && told.TaskUUID != "":
		return hinted{err, "it is task " + told.TaskUUID}
	case client.IsConflict(err):
		return hinted{err, "the same template and input count as the same task; change the input or give an --idempotency-key"}
	}
	return err
}

// awaitEnd returns the task when it has ended, or as it is after the limit.
func (a *app) awaitEnd(ctx context.Context, c *api, id string, limit time.Duration) (*client.Task, error) {
	p := a.newPoll(c, id)
	end := a.now().Add(limit)
	for {
		left := end.Sub(a.now())
		task, err := p.next(ctx, min(max(left, 0), longestWait))
		if err != nil || task.Terminal() || !a.now().Before(end) {
			return task, err
		}
	}
}
