package store

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
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
	many := func(v int16) (list []int16) {
		for range items {
			list = append(list, v)
		}
		return list
	}
	texts := strings.Fields(strings.Repeat("d ", items))
	steps := make([]*int16, items)
	for i := range steps {
		steps[i] = new(int16)
	}
	day := func(ago int) uuid.UUID { // a border of the fixture's day
		return uuid.MustParse(db.QueryString(t, `select tasker.uuid_floor(now() - $1 * interval '1 day')::text`, ago))
	}
	chained := func(before int) uuid.UUID {
		return uuid.MustParse(db.QueryString(t, `select test_id($1)::text`, f.from+f.finished+f.waiting-before))
	}
	reasons, resolutions := numbers(workflow.DeadLetterReasons()), numbers(Resolutions())
	stale := StaleThresholds{WaitingForDependencies: time.Minute, WaitingForRetry: time.Minute, StepsInProcess: time.Minute, MaxLifetime: time.Hour}
	walked := min(staleWalk, f.waiting)
	scheduled := ids(`select schedule_uuid from tasker.schedules where schedule_uuid > test_id($1) order by 1 limit $2`, f.from)
	nextRuns, identities := make([]*time.Time, items), make([][]byte, items)
	for i := range nextRuns {
		at, identity := time.Now(), workflow.KeyIdentity("big", "p", fmt.Sprint(i))
		nextRuns[i], identities[i] = &at, identity[:]
	}
	leases := f.from + f.waiting/20
	groups, made := groupColumns{}, batchColumns{}
	for _, id := range split {
		groups.add(id, &workflow.Group{Template: 1, First: 2, Count: 3})
		require.NoError(t, made.add(id, []workflow.NewBatch{{Step: 5, Template: 1, First: 5, Name: "b"}}))
	}
	endless := sha256.Sum256(strconv.AppendInt(nil, int64(f.from+3-f.from%3), 10))
	return []hotStatement{
		{"recordDeadLetters", recordDeadLetters, []any{quiet, many(4), many(2), texts, steps}, items, items},
		{"recordDeadLetters again", recordDeadLetters, []any{pending, many(4), many(2), texts, steps}, 2 * items, items},
		{"closeDeadLetters", closeDeadLetters, []any{pending, many(4), texts}, items, items},
		{"describeStale", describeStale, []any{pending, many(4), many(4)}, items, 0},
		{"lockDeadLetterTask", lockDeadLetterTask, []any{entry}, 1, 1},
		{"updateDeadLetter", updateDeadLetter, []any{entry, 2, "n", "b", `{}`, nil}, 1, 1},
		{"markDeadLetterTask", markDeadLetterTask, []any{entry}, 1, 0},
		{"oneDeadLetter", oneDeadLetter, []any{entry}, 1, 1},
		{"latestDeadLetter", latestDeadLetter, []any{uuid.UUID(pending[0])}, 1, 1},
		{"listDeadLetters", listDeadLetters, []any{resolutions, reasons, nil, nil, "", "", items, 0}, 20 * items, items},
		{"oldestDeadLetters", oldestDeadLetters, []any{[]int16{1}, reasons, nil, nil, "big", "p", items, 0}, 5 * items, items},
		{"investigationQueue", investigationQueue, []any{reasons, items, 1}, 5 * items, items},
		{"deadLetterStats", deadLetterStats, []any{reasons, resolutions, items}, 20 * items, 0},
		{"purgeDeadLetters", purgeDeadLetters, []any{int64(1000), items}, items, items},
		{"staleTasks", staleTasks, stale.arguments(uuid.Nil, items, 1), walked, 0},
		{"stalenessMonitor", stalenessMonitor, stale.arguments(uuid.Nil, items, 0), walked, items},
		{"stalledSteps", stalledSteps, []any{int64(60_000), items}, leases, items},
		{"pastDeadline", pastDeadline, []any{items}, items, items},
		{"stuck", stuck, append([]any{longAgo, longAgo, int64(0), int64(0), int64(1000)},
			lanesFrom{callables: []int32{1, 1}, lanes: []int16{200, 201}, from: []int64{0, 0}}.arguments()...), 2, 1},
		{"judgeWorkers", judgeWorkers, []any{int64(30_000), int64(120_000), items}, max(items, (f.from+f.waiting)/100), 0},
		{"endLeasesOfDead", endLeasesOfDead, []any{items, uuids{uuid.Max}}, leases, 0},
		{"claimDueSchedules", claimDueSchedules, []any{items, []uuid.UUID{}}, items, items},
		{"claimSchedule", claimSchedule, []any{scheduled[0]}, 1, 1},
		{"advanceSchedules", advanceSchedules, []any{bytesOf(scheduled), nextRuns, nextRuns, identities, make([]*string, items), make([]*string, items)}, items, items},
		{"horizon with schedules", horizon, []any{longAgo, longAgo}, 1, 1},
		{"editContexts", editContexts, []any{quiet, strings.Fields(strings.Repeat("{\"n\":1} ", items))}, 2 * items, items},
		{"continueTask", continueTask, []any{quiet[0], quiet[min(1, items-1)], 0, "s", int64(1), "w", false}, 1, 1},
		{"chainBefore", chainBefore, []any{chained(0), 51}, 51, 51},
		{"chainAfter", chainAfter, []any{chained(51), 51}, 51, 51},
		{"taskOfIdentity", taskOfIdentity, []any{endless[:16]}, 1, 1},
		{"takeSweep", takeSweep, []any{"s", uuid.Max, int64(1), int64(1), true}, 1, 1},
		{"ledgerDays", ledgerDays, []any{int64(0)}, 20, 0},
		{"readDayEnds", readDayEnds, []any{day(2), -2, int64(0), day(0), 10 * items, int64(0)}, 10 * items, 1},
		{"readDefaultEnds", readDefaultEnds, []any{uuid.Nil, -2, int64(0), day(0), 10 * items, int64(0)}, 10 * items, 0},
		{"lockEnds", lockEnds, []any{ended}, items, items},
		{"clearNumbers", clearNumbers, groups.arguments(), 3 * items, 3 * items},
		{"forgetBatches", forgetBatches, groups.arguments(), 3 * items, 3 * items},
		{"recordBatches", recordBatches, made.arguments(), items, items},
		{"readBatches", readBatches, []any{bytesOf(split)}, 3 * items, 3 * items},
		{"readBatchAttempts", readBatchAttempts, []any{bytesOf(split), true}, 3 * items, 0},
		{"readBatchResults", readBatchResults, []any{split[0], 1, -1, items}, 3, min(3, items)},
		{"madeGroups", madeGroups, []any{split}, 6 * items, 0},
		{"runsOfNumbers", runsOfNumbers, []any{split[0]}, 6, 3},
		{"stepAttempts", stepAttempts, []any{ended[0], nil}, 1, 1},
		{"stepAttempts of one", stepAttempts, []any{ended[0], 0}, 1, 1},
		{"deleteTasks", deleteTasks, []any{ended}, items, 1},
		{"dropDay", dropDay, []any{"20000101", day(30), day(29), time.Unix(0, 0), dropLockTimeout}, 1, 1},
		{"deleteIdentities", deleteIdentities, []any{items}, items, 0},
		{"deleteActions", deleteActions, []any{int64(1000), items}, items, 0},
	}
}
