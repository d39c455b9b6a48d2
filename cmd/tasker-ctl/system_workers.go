package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
)

func newSystemWorkersCommand(a *app) *cobra.Command {
	var o client.WorkerListOptions
	words := []string{"active", "stale", "dead"}
	cmd := &cobra.Command{
		Use:   "workers",
		Short: "List the workers that the registry knows",
		Long: `Lists the workers that the registry knows, those with the last sign of life
first. A worker that gives none becomes stale and then dead; what a dead one held
is given to others. Below the list stand the templates of which a worker brings
other content than the one that tasks have used: the worker runs without these.`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Status, err = wordOf("--status", o.Status, words); err != nil {
				return err
			}
			if o.Limit < 1 || o.Limit > client.MaxWorkerLimit {
				return usagef("--limit must be between 1 and %d", client.MaxWorkerLimit)
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			list, err := c.Workers(cmd.Context(), o)
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(list, func() { a.showWorkers(list.Workers) })
		},
	}
	cmd.Flags().StringVarP(&o.Status, "status", "s", "", "only those: active, stale or dead")
	cmd.Flags().StringVarP(&o.Namespace, "namespace", "n", "", "only those that serve this namespace")
	cmd.Flags().IntVarP(&o.Limit, "limit", "l", client.DefaultWorkerLimit, "how many, up to 1000")
	completeFlag(cmd, "status", oneOfWords(words...))
	completeFlag(cmd, "namespace", a.completeNamespaces)
	return cmd
}

func (a *app) showWorkers(workers []client.WorkerState) {
	t := a.newTable("ID", "STATUS", "SINCE", "HEARTBEAT", "NAMESPACES", "TAGS", "HOST", "ADDRESS", "VERSION", "UUID")
	for i := range workers {
		w := &workers[i]
		status := cell{w.Status, green}
		switch {
		case w.StoppedAt != nil:
			status = cell{"stopped", dim}
		case w.Status == "stale":
			status.style = yellow
		case w.Status == "dead":
			status.style = red
		case w.Draining:
			status = cell{"draining", yellow}
		}
		t.row(w.WorkerID, status, a.since(w.StatusSince.Time), seconds(duration(w.HeartbeatAgeSeconds))+" ago",
			strings.Join(w.Namespaces, ","), strings.Join(w.Tags, ","), w.Hostname, w.Address, w.Version, w.WorkerUUID)
	}
	t.write(a.stdout)
	for i := range workers {
		for _, r := range workers[i].RefusedTemplates {
			a.printf("\n%s brings another %s/%s:%s than the one that tasks have used\n  its content %s\n  in use      %s\n",
				oneLine(workers[i].WorkerID), r.Namespace, r.Name, r.Version, r.Brought, r.Registered)
		}
	}
}
