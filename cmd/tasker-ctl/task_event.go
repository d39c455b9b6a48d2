package main

import (
	"encoding/json"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
)

func newSendEventCommand(a *app) *cobra.Command {
	var e client.ExternalEvent
	var payload string
	cmd := &cobra.Command{
		Use:   "send-event NAME",
		Short: "Deliver an event to the steps that wait for it",
		Long: `Delivers an event to all steps of type wait_for_event that wait for its name and
key, or to those of one task. With --key, an event that nobody waits for is kept for
the first step that will.`,
		Example: "  tasker-ctl task send-event payment.received -n shop --key 4711 --payload '{\"amount\": 12.5}'\n" +
			"  tasker-ctl task send-event go --task 019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f10",
		Args: arguments("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			e.Name = args[0]
			switch {
			case e.TaskUUID != "" && (e.Key != "" || e.Namespace != ""):
				return usagef("give --task, or --namespace and --key")
			case e.TaskUUID == "" && (e.Key == "" || e.Namespace == ""):
				return usagef("who waits for it is said by --task, or by --namespace and --key")
			case e.TaskUUID != "":
				if _, err := uuid.Parse(e.TaskUUID); err != nil {
					return usagef("--task must be a UUID, not %q", e.TaskUUID)
				}
			}
			if payload != "" {
				data, err := a.readInput(payload, maxInput)
				if err != nil {
					return err
				}
				if !json.Valid(data) {
					return usagef("--payload is not JSON")
				}
				e.Payload = data
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			r, err := c.SendEvent(cmd.Context(), e)
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(r, func() {
				switch {
				case r.Duplicate:
					a.printf("an event with this id had come before: %s\n", r.EventUUID)
				case r.Delivered > 0:
					a.printf("event %s: delivered to %s\n", r.EventUUID, counted(r.Delivered, "step"))
				default:
					a.printf("event %s: nobody waits for it; kept until %s\n", r.EventUUID, instant(&r.ExpiresAt))
				}
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	f.StringVarP(&e.Namespace, "namespace", "n", "", "namespace of the steps")
	f.StringVarP(&e.Key, "key", "k", "", "what tells events of one name apart")
	f.StringVar(&e.TaskUUID, "task", "", "the task that it is sent to, by its `UUID`")
	f.StringVar(&payload, "payload", "", "any JSON, @file, or - for stdin")
	f.StringVar(&e.ID, "id", "", "the sender's own id: a second event with it changes nothing")
	completeFlag(cmd, "namespace", a.completeNamespaces)
	return cmd
}
