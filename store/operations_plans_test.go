package store

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/workflow"
)

// TestOperationStatementsStayOnTheirIndexes checks the plans of the statements of sweeps
// and operators: on large tables, and with plans made while the tables were small.
func TestOperationStatementsStayOnTheirIndexes(t *testing.T) {
	if testing.Short() {
		t.Skip("fills large tables")
	}
	db := openPlans(t)
	small := fixture{finished: 100, waiting: 60}
	small.fill(t, db)
	small.fillOperations(t, db)
	old := newExplainer(t, db.DSN, "force_generic_plan")
	for _, c := range small.operationStatements(t, db, 1) {
		old.execute(t, c)
	}
	big := fixture{from: small.finished + small.waiting, finished: 20_000, waiting: 60_000, grown: true}
	big.fill(t, db)
	big.fillOperations(t, db)
	check := func(t *testing.T, e *explainer, items int) {
		for _, c := range big.operationStatements(t, db, items) {
			if e == old && c.name == "pastDeadline" {
				continue // reads and sorts all passed deadlines until the table is analyzed
			}
			t.Run(fmt.Sprintf("%s/%d", c.name, items), func(t *testing.T) { e.check(t, c) })
		}
	}
	t.Run("planned when small", func(t *testing.T) { check(t, old, 100) })
	db.Exec(t, `analyze`)
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		t.Run(mode, func(t *testing.T) { check(t, newExplainer(t, db.DSN, mode), 100) })
	}
}

// fillOperations gives every tenth ended task a closed dead letter and every tenth
// waiting one an open one; it spreads deadlines, identities and workers.
func (f fixture) fillOperations(t *testing.T, db *pgtest.DB) {
	first, ended, last := f.from+1, f.from+f.finished, f.from+f.finished+f.waiting
	db.Exec(t, `insert into tasker.dlq_entries (task_uuid, dlq_timestamp, queue, plan_id, original_state, reason, resolution,
			resolution_timestamp, detail, task_snapshot)
		select test_id(i), now() - (10000000 - i) * interval '1 ms', 1, 1, 10, 1 + i / 10 % 5, case when i <= $2 then 2 + i / 10 % 3 else 1 end,
			case when i <= $2 then now() - (10000000 - i) * interval '1 ms' end, 'd', '{}'
		from generate_series($1::int, $3::int) i where i % 10 = 0`, first, ended, last)
	db.Exec(t, `update tasker.board b set dead_letter = true from tasker.dlq_entries d where d.task_uuid = b.task_uuid and b.slot = 0 and d.resolution = 1`)
	db.Exec(t, `update tasker.board set task_state = 1, deadline = now() + (i - $2) * interval '1 s' from generate_series($1::int, $2::int) i
		where i % 5 = 0 and task_uuid = test_id(i) and slot = 0`, ended+1, last)
	db.Exec(t, `update tasker.board set checkpoint = jsonb_build_object('cursor', 1, 'items_processed', 1, 'timestamp', '2020-01-01T00:00:00Z', 'history', '[]'::jsonb)
		where state = 3 and seq between $1 and $2 and seq % 40 < 20`, ended+1, last)
	db.Exec(t, `insert into tasker.task_identities (identity, task_uuid, expires_at)
		select substring(sha256(i::text::bytea) for 16), test_id(i), case when i % 3 = 0 then 'infinity' else now() + (i - $2) * interval '1 s' end
		from generate_series($1::int, $3::int) i`, first, (first+last)/2, last)
	db.Exec(t, `insert into tasker.workers (worker_uuid, worker_id, hostname, version, mode, namespaces, status, status_since, heartbeat_at)
		select test_id(i), 'w', 'h', 'v', 'm', '{}', case when i % 100 = 0 then 1 else 3 end, now() - i * interval '1 hour',
			now() - case when i % 100 = 0 then interval '40 s' else i * interval '1 hour' end
		from generate_series($1::int, $2::int) i where i % 10 = 0`, first, last)
	db.Exec(t, `insert into tasker.schedules (schedule_uuid, namespace_id, name, template, version, cron, time_zone, context, priority, tags, catch_up,
			max_catch_up, overlap, jitter_seconds, next_run_at, last_task_uuid, paused_at, paused_by)
		select test_id(i), 1, 's' || i, 'p', '1.0.0', '@daily', 'UTC', '{}', 0, '{}', 1, 1, 2, 0, now() + (i - $2) * interval '1 s', test_id(i),
			case when i % 3 = 0 then now() end, case when i % 3 = 0 then 'a' end
		from generate_series($1::int, $3::int) i where i % 4 = 0`, first, (first+last)/2, last)
	db.Exec(t, `with linked as (
			update tasker.tasks t set continues_task_uuid = test_id(i - 1) from generate_series($2::int - 50, $2::int) i where t.task_uuid = test_id(i) returning i)
		insert into tasker.task_events (task_uuid, from_state, to_state, actor, metadata)
		select test_id(i - 1), 4, 4, 'w', jsonb_build_object('continued_by', test_id(i), 'step', 0, 'token', i) from linked where i > $1`, first, last)
	db.Exec(t, `insert into tasker.operator_actions (actor, action, reason, target, matched, changed, dry_run, at)
		select 'a', 'b', 'c', '{}', 1, 1, false, now() - ($2 - i) * interval '1 s' from generate_series($1::int, $2::int) i`, first, last)
}

func (f fixture) operationStatements(t *testing.T, db *pgtest.DB, items int) []hotStatement {
	pool := db.Pool(t)
	ids := func(query string, args ...any) (list []uuid.UUID) {
		rows, err := pool.Query(t.Context(), query, append(args, items)...)
		require.NoError(t, err)
		list, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		require.NoError(t, err)
		require.Len(t, list, items)
		return list
	}
	bytesOf := func(list []uuid.UUID) (out uuids) {
		for _, id := range list {
			out = append(out, id)
		}
		return out
	}
	youngest := f.from + f.finished
	quiet := bytesOf(ids(`select task_uuid from tasker.board where slot = 0 and dead_letter is null and task_uuid > test_id($1) order by 1 limit $2`, youngest))
	pending := bytesOf(ids(`select task_uuid from tasker.dlq_entries where resolution = 1 and task_uuid > test_id($1) order by 1 limit $2`, youngest))
	ended := ids(`select task_uuid from tasker.step_attempts where task_uuid > test_id($1) order by 1 limit $2`, f.from)
	split := ids(`select distinct task_uuid from tasker.batches where task_uuid > test_id($1) order by 1 limit $2`, youngest)
	entry := db.QueryString(t, `select dlq_entry_uuid::text from tasker.dlq_entries where task_uuid = $1`, uuid.UUID(pending[0]))
	letters := func(tasks uuids) (list []openedLetter) {
		for _, id := range tasks {
			list = append(list, openedLetter{TaskUUID: id, OriginalState: workflow.TaskStepsInProcess, Reason: workflow.DeadLetterExhausted, Detail: "d", No: new(int)})
		}
		return list
	}
	var closed []closedLetter
	var late []staleness
	var edited []editedTask
	for i := range items {
		closed = append(closed, closedLetter{pending[i], ResolutionCancelled, "d"})
		late = append(late, staleness{pending[i], 4, 4})
		edited = append(edited, editedTask{quiet[i], `{"n":1}`})
	}
	day := func(ago int) uuid.UUID { // a border of the fixture's day
		return uuid.MustParse(db.QueryString(t, `select tasker.uuid_floor(now() - $1 * interval '1 day')::text`, ago))
	}
	chained := func(before int) uuid.UUID {
		return uuid.MustParse(db.QueryString(t, `select test_id($1)::text`, f.from+f.finished+f.waiting-before))
	}
	reasons, resolutions := numbers(workflow.DeadLetterReasons()), numbers(allResolutions())
	stale := StaleThresholds{WaitingForDependencies: time.Minute, WaitingForRetry: time.Minute, StepsInProcess: time.Minute, MaxLifetime: time.Hour}
	walked := min(staleWalk, f.waiting)
	scheduled := ids(`select schedule_uuid from tasker.schedules where schedule_uuid > test_id($1) order by 1 limit $2`, f.from)
	advances := make([]advance, items)
	for i := range advances {
		identity := workflow.KeyIdentity("big", "p", fmt.Sprint(i))
		advances[i] = advance{ScheduleUUID: scheduled[i], NextRunAt: time.Now(), LastRunAt: time.Now(), Identity: identity[:]}
	}
	leases := f.from + f.waiting/20
	var groups []group
	var made []newBatch
	for _, id := range split {
		groups = append(groups, group{id, 1, 2, 3})
		made = append(made, newBatch{TaskUUID: id, StepNo: 5, TemplateNo: 1, FirstNo: 5, Name: "b", Cursor: []byte(`{}`)})
	}
	endless := sha256.Sum256(strconv.AppendInt(nil, int64(f.from+3-f.from%3), 10))
	return []hotStatement{
		{"recordDeadLetters", recordDeadLetters.With(args{"o": letters(quiet)}), items, items},
		{"recordDeadLetters again", recordDeadLetters.With(args{"o": letters(pending)}), 2 * items, items},
		{"closeDeadLetters", closeDeadLetters.With(args{"o": closed}), items, items},
		{"describeStale", describeStale.With(args{"o": late}), items, 0},
		{"lockDeadLetterTask", lockDeadLetterTask.With(args{"entry": entry}), 1, 1},
		{"updateDeadLetter", updateDeadLetter.With(args{"entry": entry, "resolution": 2, "notes": "n", "resolved_by": "b", "metadata": `{}`, "replayed_as": nil}), 1, 1},
		{"markDeadLetterTask", markDeadLetterTask.With(args{"entry": entry}), 1, 0},
		{"oneDeadLetter", oneDeadLetter.With(args{"entry": entry}), 1, 1},
		{"latestDeadLetter", latestDeadLetter.With(args{"task": uuid.UUID(pending[0])}), 1, 1},
		{"listDeadLetters", listDeadLetters.With(args{"resolutions": resolutions, "reasons": reasons, "since": nil, "until": nil, "namespace": "", "name": "", "limit": items, "offset": 0}), 20 * items, items},
		{"oldestDeadLetters", oldestDeadLetters.With(args{"resolutions": []int16{1}, "reasons": reasons, "since": nil, "until": nil, "namespace": "big", "name": "p", "limit": items, "offset": 0}), 5 * items, items},
		{"investigationQueue", investigationQueue.With(args{"reasons": reasons, "limit": items, "resolution": 1}), 5 * items, items},
		{"deadLetterStats", deadLetterStats.With(args{"reasons": reasons, "resolutions": resolutions, "limit": items}), 20 * items, 0},
		{"purgeDeadLetters", purgeDeadLetters.With(args{"older_ms": int64(1000), "limit": items}), items, items},
		{"staleTasks", staleTasks.With(stale.arguments(uuid.Nil, items, 1)), walked, 0},
		{"stalenessMonitor", stalenessMonitor.With(stale.arguments(uuid.Nil, items, 0)), walked, items},
		{"stalledSteps", stalledSteps.With(args{"since_ms": int64(60_000), "limit": items}), leases, items},
		{"pastDeadline", pastDeadline.With(args{"limit": items}), items, items},
		{"stuck", stuck.With(twoLanes(0).arguments().And(overdueArgs(1000))), 2, 1},
		{"judgeWorkers", compile(judgeWorkers).With(args{"stale_ms": int64(30_000), "dead_ms": int64(120_000), "limit": items}), max(items, (f.from+f.waiting)/100), 0},
		{"endLeasesOfDead", endLeasesOfDead.With(args{"limit": items, "dead": uuids{uuid.Max}}), leases, 0},
		{"claimDueSchedules", claimDueSchedules.With(args{"limit": items, "except": []uuid.UUID{}}), items, items},
		{"claimSchedule", claimSchedule.With(args{"schedule": scheduled[0]}), 1, 1},
		{"advanceSchedules", advanceSchedules.With(args{"f": advances}), items, items},
		{"horizon with schedules", horizon.With(args{"due_from": longAgo, "lease_from": longAgo}), 1, 1},
		{"editContexts", editContexts.With(args{"n": edited}), 2 * items, items},
		{"continueTask", continueTask.With(args{"task": quiet[0], "next": quiet[min(1, items-1)], "step": 0, "step_name": "s", "token": int64(1), "actor": "w", "duplicate": false}), 1, 1},
		{"chainBefore", chainBefore.With(args{"task": chained(0), "limit": 51}), 51, 51},
		{"chainAfter", chainAfter.With(args{"task": chained(51), "limit": 51}), 51, 51},
		{"taskOfIdentity", taskOfIdentity.With(args{"identity": endless[:16]}), 1, 1},
		{"takeSweep", takeSweep.With(args{"name": "s", "holder": uuid.Max, "interval_ms": int64(1), "lease_ms": int64(1), "now": true}), 1, 1},
		{"ledgerDays", ledgerDays.With(args{"ttl_ms": int64(0)}), 20, 0},
		{"readDayEnds", readDayEnds.With(args{"task": day(2), "step": -2, "token": int64(0), "upto": day(0), "limit": 10 * items, "ttl_ms": int64(0)}), 10 * items, 1},
		{"readDefaultEnds", readDefaultEnds.With(args{"task": uuid.Nil, "step": -2, "token": int64(0), "upto": day(0), "limit": 10 * items, "ttl_ms": int64(0)}), 10 * items, 0},
		{"lockEnds", lockEnds.With(args{"tasks": ended}), items, items},
		{"clearNumbers", clearNumbers.With(args{"g": groups}), 3 * items, 3 * items},
		{"forgetBatches", forgetBatches.With(args{"g": groups}), 3 * items, 3 * items},
		{"recordBatches", recordBatches.With(args{"d": made}), items, items},
		{"readBatches", readBatches.With(args{"tasks": bytesOf(split)}), 3 * items, 3 * items},
		{"readBatchAttempts", readBatchAttempts.With(args{"tasks": bytesOf(split), "results": true}), 3 * items, 0},
		{"readBatchResults", readBatchResults.With(args{"task": split[0], "template": 1, "after": -1, "limit": items}), 3, min(3, items)},
		{"madeGroups", madeGroups.With(args{"tasks": split}), 6 * items, 0},
		{"runsOfNumbers", runsOfNumbers.With(args{"task": split[0]}), 6, 3},
		{"stepAttempts", stepAttempts.With(args{"task": ended[0], "step": nil}), 1, 1},
		{"stepAttempts of one", stepAttempts.With(args{"task": ended[0], "step": 0}), 1, 1},
		{"deleteTasks", deleteTasks.With(args{"tasks": ended}), items, 1},
		{"dropDay", dropDay.With(args{"day": "20000101", "lo": day(30), "hi": day(29), "began": time.Unix(0, 0), "patience": dropLockTimeout}), 1, 1},
		{"deleteIdentities", deleteIdentities.With(args{"limit": items}), items, 0},
		{"deleteActions", deleteActions.With(args{"ttl_ms": int64(1000), "limit": items}), items, 0},
	}
}
