package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/wire"
)

func TestQuotas(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := newSession(t)
	s.env["DATABASE_URL"] = db.DSN
	run := func(args ...string) outcome {
		t.Helper()
		return s.run(t.Context(), "", args...)
	}
	require.Zero(t, run("migrate", "up").code)
	db.Exec(t, `insert into tasker.namespaces (name) values ('shop')`)
	set := run("quota", "set", "shop", "--max-tasks", "20", "--reason", "one tenant", "--actor", "ana")
	require.Zero(t, set.code, set.stderr)
	require.Contains(t, set.stdout, "quota of shop: 20 tasks, as of ")
	var list wire.QuotaList
	require.NoError(t, json.Unmarshal([]byte(run("-o", "json", "quota", "list").stdout), &list))
	require.Len(t, list.Quotas, 1)
	require.Equal(t, 20, list.Quotas[0].MaxTasks)
	require.Equal(t, "ana", list.Quotas[0].ChangedBy)
	require.Contains(t, run("quota", "list").stdout, "shop")
	set = run("quota", "set", "shop", "--max-tasks", "20", "--applies-to", "sub-tasks,Schedules,sub_tasks", "--reason", "fan-out", "--actor", "ana")
	require.Contains(t, set.stdout, "quota of shop: 20 tasks, for schedules, sub_tasks too, as of ", set.stderr)
	require.Contains(t, run("quota", "list").stdout, "schedules,sub_tasks")
	require.Contains(t, run("quota", "delete", "shop", "-r", "over").stdout, "quota of shop: 20 tasks")
	require.Equal(t, "set_quota ana one tenant shop, set_quota ana fan-out shop, delete_quota cli-operator over shop", db.QueryString(t,
		`select string_agg(concat_ws(' ', action, actor, reason, target->>'namespace'), ', ' order by at) from tasker.operator_actions`))

	for _, args := range [][]string{{"quota", "delete", "shop"}, {"quota", "set", "nowhere", "--max-tasks", "1", "-r", "why"}} {
		require.Equal(t, exitNotFound, run(args...).code, args)
	}
	for _, args := range [][]string{{"quota", "set", "shop", "-r", "why"}, {"quota", "set", "shop", "--max-tasks", "-1", "-r", "why"},
		{"quota", "set", "shop", "--max-tasks", "1", "-r", "why", "--applies-to", "replays"}} {
		require.Equal(t, exitUsage, run(args...).code, args)
	}
}
