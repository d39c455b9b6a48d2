package main

import (
	"context"
	"slices"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/limits"
)

func (a *app) workers() command {
	return command{
		use: "worker", short: "List the workers, and check their health",
		commands: []command{
			a.workerList("list"),
			{use: "status WORKER", short: "Show what is known of a worker",
				run: ask(a, registered, func(w *client.WorkerState) { a.workerResource().show(w); a.showRefused(w) })},
			a.workerHealth(),
		},
	}
}

// workerList has two names: it is a verb of workers, and a part of the system.
func (a *app) workerList(name string) command {
	o := client.WorkerListOptions{Limit: limits.DefaultWorkerLimit}
	return command{
		use: name, lists: true, short: "List the registered workers",
		long: `Lists the registered workers, those with the latest heartbeat first. A worker
without heartbeats becomes stale and then dead; other workers then claim the
steps of a dead one. Below the list stand the templates for which a worker brings
other content than the one that tasks have used: the worker runs without these.`,
		flags: all(
			opt(&o.Status, "status,s", "only with this status: active, stale or dead", among("active", "stale", "dead")),
			opt(&o.Namespace, "namespace,n", "only workers that serve this namespace", a.offering(byNamespace)),
			limit(&o.Limit, limits.MaxWorkerLimit, "how many"),
		),
		run: askList(a, with((*api).Workers, &o), "workers", func(list []client.WorkerState) {
			a.workerResource().list(list)
			for i := range list {
				a.showRefused(&list[i])
			}
		}),
	}
}

func (a *app) workerResource() resource[client.WorkerState] {
	return resource[client.WorkerState]{app: a, noun: "worker", facts: func(w *client.WorkerState) facts {
		return facts{{"Id", w.WorkerID}, {"Status", workerCell(w)},
			{"SINCE", a.since(w.StatusSince.Time)}, {"since", w.StatusSince}, {"mode", w.Mode}, {"Heartbeat", ago(w.HeartbeatAgeSeconds)},
			{"started", w.StartedAt}, {"stopped?", w.StoppedAt},
			{"Namespaces", w.Namespaces}, {"Tags", w.Tags}, {"Host", w.Hostname},
			{"Address", w.Address}, {"Version", w.Version}, {"UUID", w.WorkerUUID}, {"uuid", w.WorkerUUID}}
	}}
}

func workerCell(w *client.WorkerState) cell {
	switch {
	case w.StoppedAt != nil:
		return stateCell("stopped")
	case w.Status == "stale":
		return cell{w.Status, yellow}
	case w.Status == "active" && w.Draining:
		return stateCell("draining")
	case w.Status == "active":
		return cell{w.Status, green}
	}
	return stateCell(w.Status)
}

// showRefused lists the templates that a worker runs without.
func (a *app) showRefused(w *client.WorkerState) {
	for _, r := range w.RefusedTemplates {
		a.printf("\n%s brings another %s/%s:%s than the one that tasks have used\n  its content %s\n  in use      %s\n",
			oneLine(w.WorkerID), r.Namespace, r.Name, r.Version, r.Brought, r.Registered)
	}
}

var workerArgument = argument{offer: offers(allWorkers,
	func(l []client.WorkerState) []client.WorkerState { return l }, func(w *client.WorkerState) string { return w.WorkerID })}

func allWorkers(ctx context.Context, c *api, _ []string) ([]client.WorkerState, error) {
	return c.Workers(ctx, client.WorkerListOptions{Limit: limits.MaxWorkerLimit})
}

// registered finds a worker by its id or its UUID. An id is that of several processes
// where one has followed the other; then it is the one with the latest heartbeat.
func registered(ctx context.Context, c *api, args []string) (*client.WorkerState, error) {
	list, err := allWorkers(ctx, c, nil)
	if err != nil {
		return nil, err
	}
	return workerNamed(list, args[0])
}

func workerNamed(list []client.WorkerState, name string) (*client.WorkerState, error) {
	i := slices.IndexFunc(list, func(w client.WorkerState) bool { return w.WorkerID == name || w.WorkerUUID == name })
	if digits := prefixDigits(name); i < 0 && len(digits) >= leastDigits {
		return workerBegun(list, digits)
	}
	if i < 0 {
		return nil, hinted{coded{usagef("there is no worker %s", name), exitNotFound}, "tasker-ctl worker list shows what there is"}
	}
	return &list[i], nil
}

// workerBegun is the worker whose UUID begins with digits.
func workerBegun(list []client.WorkerState, digits string) (*client.WorkerState, error) {
	ids := namesOf(list, func(w *client.WorkerState) string { return w.WorkerUUID })
	id, err := uniqueOf("worker", digits, "tasker-ctl worker list shows what there is", ids)
	if err != nil {
		return nil, err
	}
	return &list[slices.Index(ids, id)], nil
}

func (a *app) workerHealth() command {
	var every bool
	return command{
		use: "health [WORKER]", short: "Check the health of a worker, or of all",
		long: `Checks the health of the worker at --worker-url, or of WORKER, or with --all of all
workers that are not dead, at the addresses that they have registered. Those get
no credentials; a worker that wants some tells less. The exit code is that of
tasker-ctl system health.`,
		flags: opt(&every, "all,a", "all workers that are not dead"),
		check: oneOrAll("WORKER", &every),
		local: func(ctx context.Context, args []string) error {
			if !every && len(args) == 0 {
				return a.checkHealth(ctx, worker)
			}
			list, err := a.workersToCheck(ctx, args)
			if err != nil {
				return err
			}
			return a.health(ctx, list, atOnce)
		},
	}
}

// workersToCheck are the one that is named, or all that may answer.
func (a *app) workersToCheck(ctx context.Context, args []string) ([]checkup, error) {
	c, err := a.client(ctx, orchestrator)
	if err != nil {
		return nil, err
	}
	all, err := allWorkers(ctx, c, nil)
	if err != nil {
		return nil, unreachable(orchestrator, err)
	}
	var workers []client.WorkerState
	if len(args) > 0 {
		w, err := workerNamed(all, args[0])
		if err != nil {
			return nil, err
		}
		workers = append(workers, *w)
	} else {
		workers = slices.DeleteFunc(all, func(w client.WorkerState) bool { return w.Status == "dead" || w.StoppedAt != nil })
	}
	at, err := a.peers(worker)
	if err != nil {
		return nil, err
	}
	list := make([]checkup, len(workers))
	for i, w := range workers {
		list[i] = checkup{name: w.WorkerID, daemon: worker, named: true}
		if w.Address != "" {
			list[i].client = at(w.Address)
		}
	}
	return list, nil
}
