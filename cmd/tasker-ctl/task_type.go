package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
)

func newTypeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "type",
		Aliases: []string{"types"},
		Short:   "Register task types: templates of one step, without a file",
		Long: `A task type is a template of one step that is registered over the API: a name, the
handler that does the work, and defaults. Its namespace is its queue. Tasks of it
are created with tasker-ctl enqueue.`,
	}
	cmd.AddCommand(newTypeRegisterCommand(a), newTypeListCommand(a), newTypeShowCommand(a), newTypeDeleteCommand(a))
	return cmd
}

// typeOptions are the flags of `type register`.
type typeOptions struct {
	request                              client.TaskTypeRequest
	schema                               string
	priority, priorityLevel, maxAttempts int
	identity                             client.TypeIdentity
	backoff                              string
	delays                               []int64
	why                                  whyFlags
}

func newTypeRegisterCommand(a *app) *cobra.Command {
	var o typeOptions
	cmd := &cobra.Command{
		Use:   "register NAME",
		Short: "Register a task type, or change it",
		Long: `Registers a task type, or changes it: the version that was registered last is the
one that is enqueued. Tasks that exist keep what they began with.`,
		Example: "  tasker-ctl type register email.send -n mail --handler mail.send --max-attempts 5 --timeout 30\n" +
			"  tasker-ctl type register charge -n payments --payload-schema @charge.json --identity caller_provided --key-lifetime 7d",
		Args: arguments("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := o.body(a, cmd.Flags().Changed)
			if err != nil {
				return err
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			t, err := c.PutTaskType(cmd.Context(), args[0], request)
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(t, func() { a.printf("registered task type %s\n", typeName(t)) })
		},
	}
	o.flags(a, cmd)
	return cmd
}

func (o *typeOptions) flags(a *app, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&o.request.Namespace, "namespace", "n", client.DefaultTypeNamespace, "namespace of the type: its queue")
	f.StringVarP(&o.request.Version, "version", "v", client.DefaultTypeVersion, "version of the type")
	f.StringVarP(&o.request.Description, "description", "d", "", "what it is for")
	f.StringVar(&o.request.Handler, "handler", "", "name of the handler (default the type's)")
	f.StringVar(&o.schema, "payload-schema", "", "JSON Schema of the payload, @file, or - for stdin")
	f.IntVarP(&o.priority, "priority", "p", 0, "priority of the tasks, -100 to 100; higher goes first")
	f.IntVar(&o.priorityLevel, "priority-level", 0, "in place of the priority: 1, which goes first, to 10")
	f.IntVar(&o.maxAttempts, "max-attempts", 0, "executions of a task, the first included (default 3)")
	f.StringVar(&o.backoff, "backoff", "", "exponential, linear, fixed, fibonacci, list or none (default exponential)")
	f.Int64SliceVar(&o.delays, "backoff-delays-ms", nil, "the delays of --backoff list, in milliseconds")
	f.IntVar(&o.request.TimeoutSeconds, "timeout", 0, "limit of one execution in seconds (default the worker's)")
	f.StringArrayVar(&o.request.Tags, "tag", nil, "tag that a worker must carry; may be repeated")
	f.StringVar(&o.identity.Strategy, "identity", "", "strict, caller_provided or always_unique (default always_unique)")
	f.StringVar(&o.identity.Window, "window", "", "how long duplicates are refused, such as 24h (default for ever)")
	f.StringVar(&o.identity.KeyLifetime, "key-lifetime", "", "how long idempotency keys count, such as 7d (default for ever)")
	o.why.flags(cmd, "actor", false)
	completeFlag(cmd, "namespace", a.completeNamespaces)
	completeFlag(cmd, "identity", oneOfWords("strict", "caller_provided", "always_unique"))
}

// body makes the body of the call of the flags that are given.
func (o *typeOptions) body(a *app, given func(flag string) bool) (client.TaskTypeRequest, error) {
	r := o.request
	r.Actor, r.Reason = o.why.actor, o.why.reason
	if given("priority") {
		r.Priority = &o.priority
	}
	if given("priority-level") {
		r.PriorityLevel = &o.priorityLevel
	}
	if given("max-attempts") {
		r.MaxAttempts = &o.maxAttempts
	}
	if r.Priority != nil && r.PriorityLevel != nil {
		return r, usagef("give --priority or --priority-level, not both")
	}
	if o.backoff != "" || len(o.delays) > 0 {
		r.Retry = &client.TypeRetry{Backoff: o.backoff, BackoffDelaysMS: o.delays}
	}
	if o.identity != (client.TypeIdentity{}) {
		r.Identity = &o.identity
	}
	var err error
	if o.schema != "" {
		r.PayloadSchema, err = a.readObject(o.schema)
	}
	return r, err
}

func typeName(t *client.TaskType) string {
	return oneLine(t.Namespace + "/" + t.Name + ":" + t.Version)
}

func newTypeListCommand(a *app) *cobra.Command {
	var o client.TaskTypeListOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List task types by namespace and name",
		Args:  arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Limit < 1 || o.Limit > 1000 || o.Offset < 0 {
				return usagef("--limit must be between 1 and 1000, --offset not negative")
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			list, err := c.TaskTypes(cmd.Context(), o)
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(list, func() { a.showTypes(list) })
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.Namespace, "namespace", "n", "", "only of this namespace")
	f.IntVarP(&o.Limit, "limit", "l", 100, "how many, up to 1000")
	f.IntVar(&o.Offset, "offset", 0, "from the how-many-th on")
	completeFlag(cmd, "namespace", a.completeNamespaces)
	return cmd
}

func (a *app) showTypes(list *client.TaskTypeList) {
	t := a.newTable("TYPE", "HANDLER", "PRIORITY", "ATTEMPTS", "IDENTITY", "CHANGED", "BY")
	for i := range list.TaskTypes {
		v := &list.TaskTypes[i]
		t.row(typeName(v), v.Handler, v.Priority, number(v.Retry.MaxAttempts), v.Identity.Strategy, instant(&v.UpdatedAt), v.UpdatedBy)
	}
	t.write(a.stdout)
}

func newTypeShowCommand(a *app) *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:     "show NAME",
		Aliases: []string{"get"},
		Short:   "Show a task type",
		Args:    arguments("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			t, err := c.TaskType(cmd.Context(), namespace, args[0])
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(t, func() { a.showType(t) })
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", client.DefaultTypeNamespace, "namespace of the type")
	return cmd
}

func (a *app) showType(v *client.TaskType) {
	t := a.newPairs()
	t.row("type", typeName(v))
	t.row("description", v.Description)
	t.row("handler", v.Handler)
	t.row("priority", fmt.Sprintf("%d (level %d)", v.Priority, v.PriorityLevel))
	t.row("attempts", number(v.Retry.MaxAttempts))
	t.row("backoff", v.Retry.Backoff)
	t.row("identity", v.Identity.Strategy)
	if v.Identity.KeyLifetime != "" {
		t.row("key lifetime", v.Identity.KeyLifetime)
	}
	if len(v.PayloadSchema) > 0 {
		t.row("payload", string(v.PayloadSchema))
	}
	t.row("created", instant(&v.CreatedAt))
	t.row("by", v.CreatedBy)
	t.row("changed", instant(&v.UpdatedAt))
	t.row("by", v.UpdatedBy)
	t.write(a.stdout)
}

func newTypeDeleteCommand(a *app) *cobra.Command {
	var namespace string
	var why whyFlags
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Forget a task type; its tasks go on",
		Args:  arguments("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return hinted{usagef("type delete forgets the task type"), "confirm with --yes"}
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			t, err := c.DeleteTaskType(cmd.Context(), namespace, args[0], client.Why{Reason: why.reason, Actor: why.actor})
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(t, func() { a.printf("task type %s: deleted\n", typeName(t)) })
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", client.DefaultTypeNamespace, "namespace of the type")
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, do it")
	why.flags(cmd, "actor", false)
	return cmd
}

func newEnqueueCommand(a *app) *cobra.Command {
	var r client.EnqueueRequest
	var payload string
	var priorityLevel, maxAttempts int
	cmd := &cobra.Command{
		Use:   "enqueue TYPE",
		Short: "Create a task of a task type",
		Long: `Creates a task of a type that was registered with tasker-ctl type. With a --key that
a task has already, that task is shown and none is created.`,
		Example: "  tasker-ctl enqueue email.send -i '{\"to\": \"ana\"}' --key welcome-7",
		Args:    arguments("TYPE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Type, r.Initiator, r.SourceSystem = args[0], "tasker-ctl", "cli"
			if cmd.Flags().Changed("priority-level") {
				r.PriorityLevel = &priorityLevel
			}
			if cmd.Flags().Changed("max-attempts") {
				r.MaxAttempts = &maxAttempts
			}
			var err error
			var object json.RawMessage
			if object, err = a.readObject(payload); err != nil {
				return err
			}
			r.Payload = object
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			made, err := c.Enqueue(cmd.Context(), r)
			if err != nil {
				return unreachable(orchestrator, explainCreate(err))
			}
			return a.emit(made, func() {
				verb := "created"
				if made.Existing {
					verb = "there is"
				}
				a.printf("%s task %s in queue %s (%s)\n", verb, made.ID, made.Queue, made.Status)
			})
		},
	}
	f := cmd.Flags()
	f.StringVarP(&payload, "input", "i", "{}", "payload as a JSON object, @file, or - for stdin")
	f.StringVarP(&r.Queue, "queue", "n", "", "namespace of the type, where several have one of this name")
	f.StringVar(&r.IdempotencyKey, "key", "", "idempotency key: repeated calls create one task")
	f.IntVar(&priorityLevel, "priority-level", 0, "1, which goes first, to 10 (default the type's)")
	f.IntVar(&maxAttempts, "max-attempts", 0, "executions, the first included (default the type's)")
	f.StringSliceVar(&r.RetryDelays, "retry-delays", nil, "exact delays before each further execution, such as 10s,5m")
	f.StringArrayVar(&r.Tags, "tag", nil, "tag of the task; may be repeated")
	completeFlag(cmd, "queue", a.completeNamespaces)
	return cmd
}
