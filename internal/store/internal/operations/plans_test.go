package operations

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store/internal/board"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/plantest"
	"github.com/tasker-go/tasker/workflow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestStatementsStayOnTheirIndexes checks the plans of all of them. That of pastDeadline
// reads and sorts all passed deadlines until the table is analyzed.
func TestStatementsStayOnTheirIndexes(t *testing.T) {
	plantest.Grown(t, plantest.Fixture.FillOperations, statements, "pastDeadline")
}

func TestPlansMadeWithFewTemplatesHold(t *testing.T) {
	plantest.FewTemplates(t, plantest.Fixture.FillOperations, statements)
}

func statements(f plantest.Fixture, t *testing.T, db *pgtest.DB, perStatement int) []plantest.Statement {
	items, youngest, worker := perStatement, f.From+f.Finished, uuid.Must(uuid.NewV7())
	rows, err := db.Pool(t).Query(t.Context(), `select task_uuid, slot, step_no, token from tasker.board where state = 3 and seq > $2 order by seq limit $1`, items, f.Youngest())
	require.NoError(t, err)
	held, err := pgx.CollectRows(rows, pgx.RowToStructByPos[board.ClaimKey])
	require.NoError(t, err)
	held = board.InLockOrder(held)
	pending := plantest.IDs(t, db, items, `select task_uuid from tasker.dlq_entries where resolution = 1 and task_uuid > test_id($1) order by 1 limit $2`, youngest)
	ended := plantest.IDs(t, db, items, `select task_uuid from tasker.step_attempts where task_uuid > test_id($1) order by 1 limit $2`, f.From)
	waiting := plantest.IDs(t, db, items, `select task_uuid from tasker.board where slot = 0 and task_uuid > test_id($1) order by 1 limit $2`, f.From)
	entry := db.QueryString(t, `select dlq_entry_uuid::text from tasker.dlq_entries where task_uuid = $1`, pending[0])
	var late []staleness
	for i := range items {
		late = append(late, staleness{pending[i], 4, 4})
	}
	day := func(ago int) uuid.UUID { // a border of the plantest.Fixture's day
		return uuid.MustParse(db.QueryString(t, `select tasker.uuid_floor(now() - $1 * interval '1 day')::text`, ago))
	}
	reasons, resolutions := numbers(workflow.DeadLetterReasons()), numbers(pg.AllResolutions())
	stale := StaleThresholds{WaitingForDependencies: time.Minute, WaitingForRetry: time.Minute, StepsInProcess: time.Minute, MaxLifetime: time.Hour}
	db.Exec(t, `insert into tasker.queue_workers (worker_id, queue, lives_until, death_noted)
		select 'w' || i, 'big', now() + (i % 100 - 50) * interval '1 s', i % 7 > 0 from generate_series(1, 10000) i on conflict do nothing; analyze tasker.queue_workers`)
	db.Exec(t, `insert into tasker.api_keys (hash, name, permissions, namespaces, created_by)
		select sha256(('k' || i)::bytea), 'k' || i, '{tasks:read}', '{}', 'a' from generate_series(1, 2000) i on conflict do nothing`)
	db.Exec(t, `insert into tasker.browser_sessions (hash, principal, opened_by, key_uuid, permissions, namespaces, created_at, expires_at)
		select sha256(('s' || i)::bytea), 'p' || i % 1000, 'api_key', k.key_uuid, '{tasks:read}', case when i % 2 = 0 then '{}'::text[] else '{big}' end,
			now() - i * interval '1 s', now() + (i % 1000 - 500) * interval '1 hour'
		from generate_series(1, 10000) i join tasker.api_keys k on k.name = 'k' || (1 + i % 2000) on conflict do nothing;
		analyze tasker.api_keys; analyze tasker.browser_sessions`)
	idle := pg.Args{"idle_ms": time.Hour.Milliseconds()}
	key := db.QueryString(t, `select key_uuid::text from tasker.api_keys limit 1`)
	one, token := db.QueryString(t, `select id::text from tasker.browser_sessions limit 1`), sha256.Sum256([]byte("s7"))
	long := time.Now().Add(-time.Hour)
	audited := func(f AuditFilter) pg.Args { return f.args().And(pg.Args{"look": items}) }
	walked, leases := min(staleWalk, f.Waiting), f.From+f.Waiting/20
	return []plantest.Statement{
		plantest.Of("workerHeartbeat", workerHeartbeat.With(pg.Args{"worker": worker, "id": "w", "hostname": "h", "version": "v", "mode": "m", "namespaces": []string{"big"},
			"h": held, "lease_ms": int64(60_000), "tags": []string{}, "refused": []byte(`[]`), "address": "h:1", "callables": []int32{1}, "handlers": []string{"a"}, "load": []byte(`{}`), "signals": []byte(`{}`)}), perStatement, 0),
		plantest.Of("describeStale", describeStale.With(pg.Args{"o": late}), items, 0),
		plantest.Of("lockDeadLetterTask", lockDeadLetterTask.With(pg.Args{"entry": entry}), 1, 1),
		plantest.Of("updateDeadLetter", updateDeadLetter.With(pg.Args{"entry": entry, "resolution": 2, "notes": "n", "resolved_by": "b", "metadata": `{}`, "replayed_as": nil}), 1, 1),
		plantest.Of("markDeadLetterTask", markDeadLetterTask.With(pg.Args{"entry": entry}), 1, 0),
		plantest.Of("oneDeadLetter", oneDeadLetter.With(pg.Args{"entry": entry}), 1, 1),
		plantest.Of("latestDeadLetter", latestDeadLetter.With(pg.Args{"task": pending[0]}), 1, 1),
		plantest.Of("pendingReason", pendingReason.With(pg.Args{"task": pending[0]}), 1, 1),
		plantest.Of("listDeadLetters", listDeadLetters.With(pg.Args{"resolutions": resolutions, "reasons": reasons, "since": nil, "until": nil, "namespace": "", "name": "", "limit": items, "offset": 0}), 20*items, items),
		plantest.Of("oldestDeadLetters", oldestDeadLetters.With(pg.Args{"resolutions": []int16{1}, "reasons": reasons, "since": nil, "until": nil, "namespace": "big", "name": "p", "limit": items, "offset": 0}), 5*items, items),
		plantest.Of("investigationQueue", investigationQueue.With(pg.Args{"reasons": reasons, "limit": items, "resolution": 1}), 5*items, items),
		plantest.Of("deadLetterStats", deadLetterStats.With(pg.Args{"reasons": reasons, "resolutions": resolutions, "limit": items}), 20*items, 0),
		plantest.Of("purgeDeadLetters", closedDeadLetters.remove.With(pg.Args{"older_ms": int64(1000), "limit": items, "skip": 0}), items, items),
		plantest.Of("staleTasks", staleTasks.With(stale.arguments(uuid.Nil, items, 1)), walked, 0),
		plantest.Of("stalenessMonitor", stalenessMonitor.With(stale.arguments(uuid.Nil, items, 0)), walked, items),
		plantest.Of("stalledSteps", stalledSteps.With(pg.Args{"since_ms": int64(60_000), "limit": items}), leases, items),
		plantest.Of("stillStale", stillStale.With(stale.bounds().And(pg.Args{"tasks": waiting})), items, 0),
		plantest.Of("stillPastDeadline", stillPastDeadline.With(pg.Args{"tasks": waiting}), items, 0),
		plantest.Of("pastDeadline", pastDeadline.With(pg.Args{"limit": items}), items, items),
		plantest.Of("judgeWorkers", pg.Compile(judgeWorkers).With(pg.Args{"stale_ms": int64(30_000), "dead_ms": int64(120_000), "skip": 0, "limit": items}), max(items, (f.From+f.Waiting)/100), 0),
		plantest.Of("endLeasesOfDead", endLeasesOfDead.With(pg.Args{"limit": items, "skip": 0, "dead": pg.UUIDs{uuid.Max}}), leases, 0),
		plantest.Of("inheritClaims", inheritClaims.With(pg.Args{"limit": items, "dead": pg.UUIDs{uuid.Max}, "own": []int32{1}, "grace_ms": int64(1000)}), leases, 1),
		plantest.Of("takeSweep", takeSweep.With(pg.Args{"name": "s", "holder": uuid.Max, "interval_ms": int64(1), "lease_ms": int64(1), "now": true}), 1, 1),
		plantest.Of("ledgerDays", ledgerDays.With(pg.Args{"ttl_ms": int64(0)}), 20, 0),
		plantest.Of("readDayEnds", readDayEnds.With(pg.Args{"task": day(2), "step": -2, "token": int64(0), "upto": day(0), "limit": 10 * items, "ttl_ms": int64(0)}), 10*items, 1),
		plantest.Of("readDefaultEnds", readDefaultEnds.With(pg.Args{"task": uuid.Nil, "step": -2, "token": int64(0), "upto": day(0), "limit": 10 * items, "ttl_ms": int64(0)}), 10*items, 0),
		plantest.Of("lockEnds", lockEnds.With(pg.Args{"tasks": ended}), items, items),
		plantest.Of("deleteTasks", deleteTasks.With(pg.Args{"tasks": ended}), items, 1),
		plantest.Of("dropDay", dropDay.With(pg.Args{"day": "20000101", "lo": day(30), "hi": day(29), "began": time.Unix(0, 0), "patience": dropLockTimeout}), 1, 1),
		plantest.Of("deleteIdentities", expiredIdentities.remove.With(pg.Args{"limit": items, "skip": 0}), items, 0),
		plantest.Of("registerQueueWorker", registerQueueWorker.With(stale30.ages().And(pg.Args{"id": "w7", "queue": "big", "tags": []string{"a"}, "instance": "i", "namespaces": nil})), 1, 1),
		plantest.Of("queueWorkerHeartbeat", queueWorkerHeartbeat.With(stale30.ages().And(pg.Args{"id": "w7"})), 1, 1),
		plantest.Of("readQueueWorkers", readQueueWorkers.With(pg.Args{"ids": []string{"w7", "w8"}, "stale_ms": int64(1)}), 2, 2),
		plantest.Of("listQueueWorkers", listQueueWorkers.With(pg.Args{"queue": "big", "limit": items, "stale_ms": int64(1)}), items, items),
		plantest.Of("heldByWorker", heldByWorker.With(pg.Args{"h": heldClaims(held), "claims": worker}), items, 0),
		plantest.Of("noteQueueDeaths", noteQueueDeaths.With(pg.Args{"limit": items, "skip": 0}), 10*items, items),
		plantest.Of("goneQueueWorkers", goneQueueWorkers.remove.With(pg.Args{"ttl_ms": int64(1000), "limit": items, "skip": 0}), items, items),
		plantest.Of("oldQueueTasks", oldQueueTasks.With(pg.Args{"ttl_ms": int64(1000), "after": uuid.Nil, "limit": items}), items, 0),
		plantest.Of("auditOfAll", auditOfAll.With(audited(AuditFilter{Limit: items})), 2*items, items+1),
		plantest.Of("auditOfTime", auditOfAll.With(audited(AuditFilter{Since: new(long), Until: new(long.Add(time.Minute)), Limit: items})), 60, 0),
		plantest.Of("auditOfNamespace", auditOfNamespace.With(audited(AuditFilter{Namespace: "big", Limit: items})), 2*items, items+1),
		plantest.Of("auditOfActor", auditOfActor.With(audited(AuditFilter{Actor: "a7", Limit: items, Before: &AuditPlace{At: time.Now()}})), 2*items, items+1),
		plantest.Of("auditOfAction", auditOfAction.With(audited(AuditFilter{Action: "b7", Limit: items})), 2*items, items+1),
		plantest.Of("auditOfFew", auditOfActor.With(audited(AuditFilter{Actor: "a7", Action: "never", Limit: items})), items, 0),
		plantest.Of("oneKey", oneKey.With(pg.Args{"key": key}), 1, 1),
		plantest.Of("lockKey", lockKey.With(pg.Args{"key": key}), 1, 1),
		plantest.Of("rotateKey", rotateKey.With(pg.Args{"key": key, "hash": token[:], "actor": "a", "life_ms": nil}), 1, 1),
		plantest.Of("expireKey", expireKey.With(pg.Args{"key": key, "grace_ms": int64(1)}), 1, 1),
		plantest.Of("useBrowserSession", useBrowserSession.With(idle.And(pg.Args{"hash": token[:]})), 3, 1),
		plantest.Of("endByHash", endByHash.With(pg.Args{"hash": token[:]}), 1, 1),
		plantest.Of("endBrowserSession", endBrowserSession.With(pg.Args{"id": one}), 1, 1),
		plantest.Of("oneBrowserSession", oneBrowserSession.With(pg.Args{"id": one}), 1, 1),
		plantest.Of("endOldest", endOldest.With(idle.And(pg.Args{"principal": "p7", "opened_by": "api_key", "most": 3})), 20, 0),
		plantest.Of("listBrowserSessions", listBrowserSessions.With(idle.And(pg.Args{"principal": "p907", "opened_by": "api_key", "within": nil, "limit": items})), 20, 10),
		plantest.Of("listAllSessions", listAllSessions.With(idle.And(pg.Args{"within": nil, "limit": items})), 20*items, items),
		plantest.Of("listSessionsOf", listSessionsOf.With(idle.And(pg.Args{"principal": "p907", "within": []string{"big"}, "limit": items})), 20, 0),
		plantest.Of("deleteBrowserSessions", endedSessions.remove.With(pg.Args{"limit": items, "skip": 0}), items, items),
		plantest.Of("deleteActions", oldActions.remove.With(pg.Args{"ttl_ms": int64(1000), "limit": items, "skip": 0}), items, 0),
	}
}

var stale30 = LivenessLimits{Stale: 30 * time.Second, Dead: 2 * time.Minute}

func heldClaims(keys []board.ClaimKey) (list []board.HeldClaim) {
	for _, k := range keys {
		list = append(list, board.HeldClaim{TaskUUID: k.TaskUUID, Token: k.Token})
	}
	return list
}
