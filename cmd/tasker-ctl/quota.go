package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/wire"
)

func (a *app) quotas() command {
	return command{
		use: "quota", aliases: []string{"quotas"}, short: "List, set and delete the quotas of namespaces",
		long: `Manages how many tasks of a namespace may be alive before the API refuses new
ones with 429. The commands work on the database itself, which each creation
reads: that of --database-url, else of DATABASE_URL, else of the configuration.`,
		commands: []command{
			a.onStore(command{use: "list", lists: true, short: "List the quotas by namespace"}, a.listQuotas),
			a.quotaSet(), a.quotaDelete(),
		},
	}
}

func shownQuota(q *store.Quota) wire.Quota {
	return wire.Quota{Namespace: q.Namespace, MaxTasks: q.MaxTasks, AppliesTo: q.AppliesTo, Tasks: q.Tasks, CountedAt: shownTime(q.CountedAt),
		ChangedAt: client.Time{Time: q.ChangedAt}, ChangedBy: q.ChangedBy}
}

func (a *app) listQuotas(ctx context.Context, s *store.Store, _ []string) error {
	quotas, err := s.Quotas(ctx)
	if err != nil {
		return err
	}
	list := wire.QuotaList{Quotas: make([]wire.Quota, len(quotas))}
	for i := range quotas {
		list.Quotas[i] = shownQuota(&quotas[i])
	}
	return a.emit(list, func() {
		listing(a, func(q *wire.Quota) facts {
			return facts{{"NAMESPACE", q.Namespace}, {"MAX TASKS", q.MaxTasks}, {"APPLIES TO", strings.Join(q.AppliesTo, ",")}, {"TASKS", q.Tasks}, {"COUNTED", q.CountedAt},
				{"CHANGED", q.ChangedAt}, {"BY", q.ChangedBy}}
		})(list.Quotas)
	})
}

func (a *app) quotaSet() command {
	var most int
	var kinds []string
	var w client.Why
	return a.onStore(command{
		use: "set NAMESPACE", short: "Bound the tasks of a namespace that have not ended",
		long: `Bounds the tasks of a namespace that have not ended; 0 refuses every new one.
Every creation over the API that begins afterwards is subject to it, and with
--applies-to also tasks that the engine creates: sub_tasks and schedules wait
for a place, a step whose next task has none runs again.`,
		flags: all(opt(&most, "max-tasks", "how many may be alive", needed, between(0, wire.MaxQuota)),
			opt(&kinds, "applies-to", "what it also rejects: "+oneOf(store.QuotaKinds), withCommas, eachAmong(store.QuotaKinds)),
			why(&w.Reason, &w.Actor, needed)),
	}, func(ctx context.Context, s *store.Store, args []string) error {
		q, err := s.SetQuota(ctx, args[0], most, kinds, store.OperatorAction{Action: "set_quota", Actor: w.Actor, Reason: w.Reason})
		return a.quotaChanged(&q, err, args[0], "there is no namespace %s", "tasker-ctl namespace list shows what there is")
	})
}

func (a *app) quotaDelete() command {
	var w client.Why
	return a.onStore(command{use: "delete NAMESPACE", short: "Delete the quota of a namespace", flags: why(&w.Reason, &w.Actor)},
		func(ctx context.Context, s *store.Store, args []string) error {
			q, err := s.DeleteQuota(ctx, args[0], store.OperatorAction{Action: "delete_quota", Actor: w.Actor, Reason: w.Reason})
			return a.quotaChanged(&q, err, args[0], "the namespace %s has no quota", "tasker-ctl quota list shows what there is")
		})
}

// quotaChanged shows a quota after a change; missing says what is not there.
func (a *app) quotaChanged(q *store.Quota, err error, namespace, missing, hint string) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return hinted{coded{usagef(missing, oneLine(namespace)), exitNotFound}, hint}
	case err != nil:
		return err
	}
	return a.emit(shownQuota(q), func() {
		also := ""
		if len(q.AppliesTo) > 0 {
			also = ", for " + strings.Join(q.AppliesTo, ", ") + " too"
		}
		a.printf("quota of %s: %d tasks%s, as of %s\n", oneLine(q.Namespace), q.MaxTasks, also, q.ChangedAt.UTC().Format(time.RFC3339))
	})
}
