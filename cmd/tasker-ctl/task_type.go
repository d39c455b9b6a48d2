package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/limits"
)

func (a *app) taskType() command {
	r := resource[client.TaskType]{a, "task type", typeName, typeFacts}
	o := client.TaskTypeListOptions{Limit: 100}
	shown, deleted := limits.DefaultTypeNamespace, limits.DefaultTypeNamespace
	return command{
		use: "type", aliases: []string{"types"}, short: "Register task types: templates of one step, without a file",
		long: `A task type is a template of one step that is registered over the API: a name, the
handler that does the work, and defaults. Its namespace is its queue. Tasks of it
are created with tasker-ctl enqueue.`,
		commands: []command{
			a.typeRegister(),
			{use: "list", lists: true, short: "List task types by namespace and name",
				flags: all(
					a.namespace(&o.Namespace, "only of this namespace"),
					limit(&o.Limit, 1000, "how many"),
					opt(&o.Offset, "offset", "starting at offset N", notNegative),
				),
				run: askList(a, with((*api).TaskTypes, &o), "task_types", r.list)},
			{use: "show NAME", aliases: []string{"get"}, short: "Show a task type",
				flags: a.namespace(&shown, "namespace of the type"),
				run: ask(a, func(ctx context.Context, c *api, args []string) (*client.TaskType, error) {
					return c.TaskType(ctx, shown, args[0])
				}, r.show)},
			change(a, command{
				use: "delete NAME", short: "Delete a task type; its tasks continue", flags: a.namespace(&deleted, "namespace of the type"),
			}, func(c *api, ctx context.Context, name string, w client.Why) (*client.TaskType, error) {
				return c.DeleteTaskType(ctx, deleted, name, w)
			}, r.said("deleted")).
				confirmed("yes, do it", "type delete deletes the task type", "confirm with --yes"),
		},
	}
}

func (a *app) typeRegister() command {
	r := client.TaskTypeRequest{Namespace: limits.DefaultTypeNamespace, Version: limits.DefaultTypeVersion}
	var retry client.TypeRetry
	var identity client.TypeIdentity
	return command{
		use: "register NAME", short: "Register a task type, or change it",
		long: `Registers a task type, or changes it: the version that was registered last is the
one that is enqueued. Existing tasks keep the version they started with.`,
		example: "  tasker-ctl type register email.send -n mail --callable mail.send --max-attempts 5 --execution-timeout 30s\n" +
			"  tasker-ctl type register charge -n payments --payload-schema @charge.json --identity caller_provided --key-lifetime 7d",
		flags: all(
			a.namespace(&r.Namespace, "namespace of the type: its queue"),
			opt(&r.Version, "version", "version of the type", also("v")),
			opt(&r.Description, "description,d", "what it is for"),
			calledFlag(&r.Handler, "what its step calls (default the name of the type)"),
			opt(&r.PayloadSchema, "payload-schema", "JSON Schema of the payload, @file, or - for stdin", anObject),
			opt(&r.Priority, "priority", "priority of the tasks, -100 to 100; higher goes first", aPriority, also("p")),
			opt(&r.PriorityLevel, "priority-level", "in place of the priority: 1, which goes first, to 10", aPriorityLevel),
			opt(&r.MaxAttempts, "max-attempts", "executions of a task, the first included (default 3)"),
			opt(&retry.Backoff, "backoff", "exponential, linear, fixed, fibonacci, list or none (default exponential)"),
			opt(&retry.BackoffDelaysMS, "backoff-delays-ms", "the delays of --backoff list, in milliseconds"),
			opt((*wholeSeconds)(&r.TimeoutSeconds), "execution-timeout",
				"limit of one execution, such as 30s (default the worker's)", also("timeout")),
			opt(&r.Tags, "tag", "tag that a worker must carry; may be repeated"),
			opt(&identity.Strategy, "identity", "strict, caller_provided or always_unique (default always_unique)",
				offering(oneOfWords("strict", "caller_provided", "always_unique"))),
			opt(&identity.Window, "window", "how long duplicates are refused, such as 24h (default for ever)"),
			opt(&identity.KeyLifetime, "key-lifetime", "how long idempotency keys count, such as 7d (default for ever)"),
			why(&r.Reason, &r.Actor),
		),
		either: [][2]string{{"priority", "priority-level"}},
		check: func([]string) error {
			if retry.Backoff != "" || len(retry.BackoffDelaysMS) > 0 {
				r.Retry = &retry
			}
			if identity != (client.TypeIdentity{}) {
				r.Identity = &identity
			}
			return nil
		},
		run: ask(a, ofWith((*api).PutTaskType, &r), func(t *client.TaskType) { a.printf("registered task type %s\n", typeName(t)) }),
	}
}

func typeName(t *client.TaskType) string {
	return oneLine(t.Namespace + "/" + t.Name + ":" + t.Version)
}

func typeFacts(v *client.TaskType) facts {
	return facts{
		{"Type", typeName(v)},
		{"description", v.Description},
		{"Handler", v.Handler},
		{"PRIORITY", v.Priority},
		{"priority", fmt.Sprintf("%d (level %d)", v.Priority, v.PriorityLevel)},
		{"Attempts", v.Retry.MaxAttempts},
		{"backoff", v.Retry.Backoff},
		{"Identity", v.Identity.Strategy},
		{"key lifetime?", v.Identity.KeyLifetime},
		{"payload?", string(v.PayloadSchema)},
		{"created", v.CreatedAt},
		{"by", v.CreatedBy},
		{"Changed", v.UpdatedAt},
		{"By", v.UpdatedBy},
	}
}

func (a *app) enqueue() command {
	r := client.EnqueueRequest{Payload: json.RawMessage("{}"), Initiator: "tasker-ctl", SourceSystem: "cli"}
	return command{
		use: "enqueue TYPE", short: "Create a task of a task type",
		long: `Creates a task of a type that was registered with tasker-ctl type. Where a task
with the --key exists, that task is shown and none is created.`,
		example: "  tasker-ctl enqueue email.send -i '{\"to\": \"ana\"}' --idempotency-key welcome-7",
		flags: all(
			opt(&r.Payload, "input,i", "payload as a JSON object, @file, or - for stdin", anObject),
			opt(&r.Queue, "namespace,n", "namespace of the type, where several types have this name", a.offering(byNamespace), also("queue")),
			keyFlag(&r.IdempotencyKey, "`key` under which repeated calls create one task"),
			opt(&r.PriorityLevel, "priority-level", "1, which goes first, to 10 (default the type's)", aPriorityLevel),
			opt(&r.MaxAttempts, "max-attempts", "executions, the first included (default the type's)"),
			opt(&r.RetryDelays, "retry-delays", "exact delays before each further execution, such as 10s,5m", withCommas),
			opt(&r.Tags, "tag", "tag of the task; may be repeated"),
		),
		explain: explainCreate,
		run: ask(a, with((*api).Enqueue, &r, &r.Type), func(made *client.Enqueued) {
			verb := "created"
			if made.Existing {
				verb = "found"
			}
			a.printf("%s task %s in queue %s (%s)\n", verb, made.ID, made.Queue, made.Status)
		}),
	}
}
