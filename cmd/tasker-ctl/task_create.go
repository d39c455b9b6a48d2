package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/workflow"
)

const (
	// maxInput bounds what is read; the server's own bound is 1 MiB.
	maxInput      = 2 << 20
	defaultReason = "CLI task creation"
)

// createOptions are the flags of `task create`.
type createOptions struct {
	name, namespace, version   string
	input, description, reason string
	priority, priorityLevel    int
	maxAttempts                int
	retryDelays                []string
	startAt                    string
	useExisting                bool
	correlationID              string
	idempotencyKey             string
	tags, dependsOn            []string
	dependencyFailure          string
	delay, wait                time.Duration
}

func newTaskCreateCommand(a *app) *cobra.Command {
	var o createOptions
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a task from a template",
		Long: `Creates a task. With --wait it then waits for the task to end and shows the
results of its steps: the exit code is 0 when it completed, 1 when it ended
otherwise or has not ended in that time. A warning says when no live worker has a
handler for a step that could run.
A repeated call with the same --idempotency-key creates nothing and exits with 4,
naming the task that exists, or shows that with --use-existing; without a key the
template says what counts as the same task, the same input unless told otherwise.`,
		Example: "  tasker-ctl task create --name process_refund -n payments -i '{\"order\": 7}'\n" +
			"  tasker-ctl task create --name import --input @products.json --wait 2m\n" +
			"  jq -n '{order: 7}' | tasker-ctl task create --name process_refund -n payments -i -",
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			request, err := o.request(a, cmd.Flags().Changed)
			if err != nil {
				return err
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			return unreachable(orchestrator, a.createTask(cmd.Context(), c, request, o.wait))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.name, "name", "", "name of the template (required)")
	f.StringVarP(&o.namespace, "namespace", "n", "default", "namespace of the template")
	f.StringVarP(&o.version, "version", "v", "", "version of the template (default the highest that is not deprecated)")
	f.StringVarP(&o.input, "input", "i", "", "input as a JSON object, @file, or - for stdin (required)")
	f.StringVarP(&o.description, "description", "d", "", "what the task is for; sent as its reason")
	f.IntVarP(&o.priority, "priority", "p", 0, "priority, -100 to 100; higher goes first (default the template's, or 0)")
	f.IntVar(&o.priorityLevel, "priority-level", 0, "in place of the priority: 1, which goes first, to 10")
	f.StringVarP(&o.correlationID, "correlation-id", "c", "", "`UUID` to find everything that belongs together by")
	f.StringVar(&o.idempotencyKey, "idempotency-key", "", "`key` under which repeated calls create one task")
	f.BoolVar(&o.useExisting, "use-existing", false, "with an --idempotency-key: take the task that exists for it")
	f.StringArrayVar(&o.tags, "tag", nil, "tag of the task; may be repeated")
	f.StringVar(&o.reason, "reason", "", "why the task is created (default \""+defaultReason+"\")")
	f.StringArrayVar(&o.dependsOn, "depends-on", nil, "`UUID` of a task that has to end before; may be repeated")
	f.StringVar(&o.dependencyFailure, "on-dependency-failure", "", "what becomes of the task when that fails: fail (it is cancelled) or continue")
	f.DurationVar(&o.delay, "delay", 0, "do not start before this time has passed")
	f.StringVar(&o.startAt, "start-at", "", "do not start before this `time` (RFC 3339)")
	f.IntVar(&o.maxAttempts, "max-attempts", 0, "executions of each retryable step (default the template's)")
	f.StringSliceVar(&o.retryDelays, "retry-delays", nil, "exact delays before each further execution, such as 10s,5m,2d; in place of the template's")
	f.DurationVar(&o.wait, "wait", 0, "wait so long for the task to end")
	required(cmd, "name", "input")
	completeFlag(cmd, "name", a.completeNames)
	completeFlag(cmd, "namespace", a.completeNamespaces)
	completeFlag(cmd, "version", a.completeTemplates(func(t client.TemplateSummary) string { return t.Version }))
	return cmd
}

// request checks the flags and makes the body of the call. given tells which
// flags there are.
func (o *createOptions) request(a *app, given func(flag string) bool) (client.TaskRequest, error) {
	r := client.TaskRequest{
		Name: o.name, Namespace: o.namespace, Version: o.version,
		Initiator: "tasker-ctl", SourceSystem: "cli",
		Reason:         firstOf(o.reason, o.description, defaultReason),
		Tags:           o.tags,
		IdempotencyKey: o.idempotencyKey, RetryDelays: o.retryDelays,
		DependsOn: o.dependsOn, OnDependencyFailure: o.dependencyFailure,
	}
	if o.useExisting {
		r.ConflictPolicy = client.ConflictUseExisting
	}
	for _, id := range o.dependsOn {
		if _, err := uuid.Parse(id); err != nil {
			return r, usagef("--depends-on must be a UUID, not %q", id)
		}
	}
	for flag, field := range map[string]struct {
		to    **int
		value *int
	}{"priority": {&r.Priority, &o.priority}, "priority-level": {&r.PriorityLevel, &o.priorityLevel}, "max-attempts": {&r.MaxAttempts, &o.maxAttempts}} {
		if given(flag) {
			*field.to = field.value
		}
	}
	switch {
	case o.name == "" || o.namespace == "":
		return r, usagef("--name and --namespace must not be empty")
	case o.priority < workflow.MinPriority || o.priority > workflow.MaxPriority:
		return r, usagef("--priority must be between %d and %d", workflow.MinPriority, workflow.MaxPriority)
	case r.Priority != nil && r.PriorityLevel != nil:
		return r, usagef("give --priority or --priority-level, not both")
	case r.PriorityLevel != nil && (o.priorityLevel < workflow.MinPriorityLevel || o.priorityLevel > workflow.MaxPriorityLevel):
		return r, usagef("--priority-level must be between %d and %d", workflow.MinPriorityLevel, workflow.MaxPriorityLevel)
	case o.useExisting && o.idempotencyKey == "":
		return r, usagef("--use-existing needs an --idempotency-key")
	case o.startAt != "" && o.delay > 0:
		return r, usagef("give --start-at or --delay, not both")
	case o.wait < 0 || o.delay < 0:
		return r, usagef("--wait and --delay must not be negative")
	}
	if o.correlationID != "" {
		id, err := uuid.Parse(o.correlationID)
		if err != nil {
			return r, usagef("--correlation-id must be a UUID, not %q", o.correlationID)
		}
		canonical := id.String()
		r.CorrelationID = &canonical
	}
	if o.delay > 0 {
		s := o.delay.Seconds()
		r.DelaySeconds = &s
	}
	if o.startAt != "" {
		at, err := time.Parse(time.RFC3339, o.startAt)
		if err != nil {
			return r, usagef("--start-at must look like 2026-07-01T12:00:00Z, not %q", o.startAt)
		}
		r.StartAt = &client.Time{Time: at}
	}
	var err error
	r.Context, err = a.readObject(o.input)
	return r, err
}

// readObject reads a JSON object from a flag's value.
func (a *app) readObject(value string) (json.RawMessage, error) {
	data, err := a.readInput(value, maxInput)
	if err != nil {
		return nil, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, usagef("the input is not JSON: %v at byte %d", err, syntax.Offset)
		}
		return nil, usagef("the input must be a JSON object")
	}
	if object == nil {
		return nil, usagef("the input must be a JSON object")
	}
	return json.RawMessage(strings.TrimSpace(string(data))), nil
}

// createTask creates the task and, when asked to, waits for its end.
func (a *app) createTask(ctx context.Context, c *client.Client, r client.TaskRequest, wait time.Duration) error {
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
func (a *app) awaitEnd(ctx context.Context, c *client.Client, id string, limit time.Duration) (*client.Task, error) {
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
