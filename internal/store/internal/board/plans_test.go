package board

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/plantest"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestHotStatementsStayOnTheirIndexes(t *testing.T) { plantest.Hot(t, hotStatements) }

func TestPlansMadeOnSmallTablesHold(t *testing.T) { plantest.SmallTables(t, hotStatements) }

// TestPlansMadeAmongTheDeadHold leaves out statements that begin at the beginning of an
// index, or between lanes: reading the dead rows there is the purpose of the frontier.
func TestPlansMadeAmongTheDeadHold(t *testing.T) {
	plantest.AmongTheDead(t, hotStatements, []string{"claimAll", "firstTimes", "horizon", "attention", "queueDepth", "oldestClaimable", "unservedLanes", "callableLoads", "promoteDue", "expireLeases"})
}

func TestOtherStatementsStayOnTheirIndexes(t *testing.T) {
	plantest.Grown(t, plantest.Fixture.FillOperations, otherStatements)
}

// TestPlansHoldWhileTasksAreFollowed: among them those of tasker.record_transition.
func TestPlansHoldWhileTasksAreFollowed(t *testing.T) {
	follow := func(f plantest.Fixture, t *testing.T, db *pgtest.DB) {
		db.Exec(t, `select setval('tasker.following', 2)`)
		db.Exec(t, `insert into tasker.followed (scope, until) select 't:' || test_id(i), now() + interval '1 h' from generate_series($1::int, $2::int) i`,
			f.From+1, f.From+f.Finished+f.Waiting)
	}
	plantest.Grown(t, follow, func(f plantest.Fixture, t *testing.T, db *pgtest.DB, items int) (list []plantest.Statement) {
		for _, s := range hotStatements(f, t, db, min(items, 20)) {
			if strings.Contains(s.Call.SQL, "tasker.record_transition") {
				list = append(list, s)
			}
		}
		return list
	})
}

// TestAgeingReadsTheBeginningsOfLanes: among waiting steps all of which are due.
func TestAgeingReadsTheBeginningsOfLanes(t *testing.T) {
	waited := func(_ plantest.Fixture, t *testing.T, db *pgtest.DB) {
		db.Exec(t, `update tasker.board set enqueued_at = now() - interval '1 h', lane = case when seq % 500 = 0 then 100 else lane end where state = 2`)
	}
	plantest.Grown(t, waited, func(_ plantest.Fixture, _ *testing.T, _ *pgtest.DB, items int) []plantest.Statement {
		everywhere := lanesFrom{}.arguments()
		return []plantest.Statement{
			plantest.Of("age", age.With(everywhere.And(pg.Args{"bound_ms": int64(60_000), "ordered": []int32{}, "limit": items, "skip": 0})), items, 1),
			plantest.Of("agePreview", agePreview.With(everywhere.And(pg.Args{"bound_ms": int64(60_000), "ordered": []int32{}, "limit": items, "skip": 0})), items, 1),
			plantest.Of("age what is young", age.With(everywhere.And(pg.Args{"bound_ms": int64(7_200_000), "ordered": []int32{}, "limit": items, "skip": 0})), items, 0),
		}
	})
}

// linesOfKeys gives a callable a limit with thousands of keys, in whose lines three of four steps wait.
func linesOfKeys(f plantest.Fixture, t *testing.T, db *pgtest.DB) {
	keys := min(f.Waiting/6, 10_000)
	db.Exec(t, `insert into tasker.limits (callable_id, changed_by, key_path, max_running, per_second, burst, ordered, overtake, weights)
		values (1, 'ana', '{n}', 7, 1000, 100, false, false, '{}') on conflict do nothing`)
	db.Exec(t, `update tasker.callables set paused_at = now() where callable_id = 1`)
	db.Exec(t, `insert into tasker.limit_keys (callable_id, key, turn, weight, tokens, tokens_at, waiting)
		select 1, 'k' || i, i % 10, 1, 100, now(), true from generate_series(1, $1::int) i on conflict do nothing`, keys)
	db.Exec(t, `update tasker.board set callable = -(select min(line) + seq % $1 from tasker.limit_keys) where state = 2 and callable = 1 and seq % 4 > 0 and tags is null`, keys)
	db.Exec(t, `update tasker.board set limit_line = (select min(line) + seq % $1 from tasker.limit_keys) where state = 3`, keys)
}

// TestLimitsReadTheBeginningsOfLines, whatever waits behind them.
func TestLimitsReadTheBeginningsOfLines(t *testing.T) {
	const sorted = 50
	plantest.Grown(t, linesOfKeys, func(f plantest.Fixture, _ *testing.T, _ *pgtest.DB, items int) []plantest.Statement {
		everywhere := lanesFrom{}.arguments()
		one := []int32{1}
		sort := pg.Args{"class": int32(pg.SortLock), "callables": one, "limit": sorted, "m": twoLanes(int64(f.Youngest())), "except": pg.UUIDs{}}
		beside := pg.Args{"callable": one[0], "limit": sorted, "m": sort["m"], "except": pg.UUIDs{}}
		fully, marked := pg.Args{"fully": true}, pg.Args{"fully": false}
		return []plantest.Statement{
			plantest.Of("sortLimited", sortLimited.With(marked.And(sort)), sorted, 0),
			plantest.Of("sortLimited fully", sortLimited.With(fully.And(sort)), sorted, 0),
			plantest.Of("sortBeside", sortBeside.With(marked.And(beside)), sorted, 0),
			plantest.Of("sortBeside fully", sortBeside.With(fully.And(beside)), sorted, 0),
			plantest.Of("claimKeys", claimKeys.With(limitedClaim(items, 0)), items, 0),
			plantest.Of("claimKeys ahead", claimKeys.With(limitedClaim(items, items-10)), items, 0),
			plantest.Of("linesOf", linesOf.With(pg.Args{"i": someKeys(items), "callable": one[0], "key_path": []string{"n"}, "key_tag": ""}), items, items),
			plantest.Of("markWaiting", markWaiting.With(pg.Args{"f": someLines(items)}), items, 0),
			plantest.Of("unmarked", unmarked.With(pg.Args{"after": int32(allLines), "limit": items}), items, 1),
			plantest.Of("ageInKeys", ageInKeys.With(pg.Args{"bound_ms": int64(7_200_000), "limit": 1000, "skip": 0}), 10_000, 0),
			plantest.Of("limitsWait", limitsWait.With(pg.Args{"hot": one, "callables": one}), 100, 1),
			plantest.Of("queueDepth", queueDepth.With(everywhere.And(pg.Args{"limit": 100})), 10_000, 2),
			plantest.Of("oldestClaimable", oldestClaimable.With(everywhere.And(pg.Args{"limit": 1})), 10_000, 1),
			plantest.Of("callableLoads", callableLoads.With(everywhere.And(pg.Args{"alive_ms": int64(30_000), "limit": 100, "lease_from": longAgo, "by_time": "shortest_expected", "unknown_lane": 100, "paused": false})), 10_000, 1),
			plantest.Of("unservedLanes", unservedLanes.With(everywhere.And(pg.Args{"alive_ms": int64(30_000), "limit": 100})), 10_000, 1),
		}
	})
}

// TestForgettingKeysReadsThem, and what is in their lines, whatever waits and runs.
func TestForgettingKeysReadsThem(t *testing.T) {
	idle := func(f plantest.Fixture, t *testing.T, db *pgtest.DB) {
		linesOfKeys(f, t, db)
		db.Exec(t, `update tasker.limit_keys set waiting = false, tokens_at = now() - interval '8 days'`)
	}
	plantest.Grown(t, idle, func(_ plantest.Fixture, _ *testing.T, db *pgtest.DB, items int) []plantest.Statement {
		first, lines := db.QueryInt(t, `select min(line) from tasker.limit_keys`), make([]int32, items)
		for i := range lines {
			lines[i] = int32(first + i) // #nosec G115 -- few
		}
		return []plantest.Statement{
			plantest.Of("keysBehind", keysBehind.With(pg.Args{"after": int32(first + 100), "limit": items}), items, items), // #nosec G115 -- few
			plantest.Of("forgetKeys", forgetKeys.With(pg.Args{"lines": lines}), items, 0),
		}
	})
}

// someKeys are keys of linesOfKeys.
func someKeys(count int) []nthKey {
	list := make([]nthKey, count)
	for i := range list {
		list[i] = nthKey{int32(i), fmt.Sprintf("k%d", 1+i)} // #nosec G115 -- few
	}
	return list
}

func someLines(count int) []sortedLine {
	list := make([]sortedLine, count)
	for i := range list {
		list[i].Line = int32(1 + i) // #nosec G115 -- few
	}
	return list
}

func limitedClaim(limit, ahead int) pg.Args {
	return (&ClaimRequest{Worker: uuid.New(), Callables: []int32{1}, Limit: limit, Ahead: ahead, Lease: time.Minute}).limited()
}

// TestLimitsWithoutKeysReadTheLineOfTheirCallable from its marks, or its beginning.
func TestLimitsWithoutKeysReadTheLineOfTheirCallable(t *testing.T) {
	prepare := func(_ plantest.Fixture, t *testing.T, db *pgtest.DB) {
		db.Exec(t, `insert into tasker.limits (callable_id, changed_by, max_running, per_second, burst, ordered, overtake, weights)
			values (1, 'ana', 1000000, 1000000, 1000000, false, false, '{}') on conflict do nothing`)
		db.Exec(t, `update tasker.callables set paused_at = now() where callable_id = 1`)
		db.Exec(t, `insert into tasker.limit_keys (callable_id, key, turn, weight, tokens, tokens_at, waiting) values (1, '', 0, 1, 1000000, now(), false) on conflict do nothing`)
		db.Exec(t, `update tasker.board set limit_line = (select line from tasker.limit_keys) where state = 3`)
		db.Exec(t, `update tasker.limit_keys set running_from = (select max(token) - 100 from tasker.board where state = 3)`)
	}
	plantest.Grown(t, prepare, func(f plantest.Fixture, _ *testing.T, _ *pgtest.DB, items int) []plantest.Statement {
		one := []int32{1}
		claim := limitedClaim(items, items-10).And(pg.Args{"m": twoLanes(int64(f.Youngest()))})
		return []plantest.Statement{
			plantest.Of("claimDirect", claimDirect.With(claim), 2*items, 0),
			plantest.Of("claimDirectFully", claimDirectFully.With(claim), 2*items, 0),
			plantest.Of("firstKeys", firstKeys.With(pg.Args{"callables": one}), 1, 0),
			plantest.Of("firstDirect", firstDirect.With(pg.Args{"callables": one, "tags": []string{}, "losses": 1, "except": pg.UUIDs{}}), 1, 1),
			plantest.Of("limitsWait", limitsWait.With(pg.Args{"hot": one, "callables": one}), 100, 1),
		}
	})
}

// beyondArgs are the arguments of a look at the first keys that wait, and of the actions on them.
func beyondArgs(t *testing.T, db *pgtest.DB, keys int) (look, act pg.Args) {
	var lines []int32
	require.NoError(t, db.Pool(t).QueryRow(t.Context(), `select array_agg(line) || 0 from (
		select line from tasker.limit_keys where callable_id = 1 and waiting order by from_turn, line limit $1) k`, keys).Scan(&lines))
	require.Greater(t, len(lines), 1)
	one := pg.Args{"callables": []int32{1}, "superseded": []int32{1}, "limit": 2}
	return one.And(pg.Args{"keys": keys}), one.And(pg.Args{"lines": lines})
}

// TestBeyondReadsTheBeginningsOfLines: of keys all of which are full.
func TestBeyondReadsTheBeginningsOfLines(t *testing.T) {
	full := func(f plantest.Fixture, t *testing.T, db *pgtest.DB) {
		linesOfKeys(f, t, db)
		db.Exec(t, `update tasker.limits set max_running = 0, per_second = null, beyond = 'drop'`)
	}
	plantest.Grown(t, full, func(_ plantest.Fixture, t *testing.T, db *pgtest.DB, items int) []plantest.Statement {
		look, act := beyondArgs(t, db, items)
		return []plantest.Statement{
			plantest.Of("overLimit", overLimit.With(look), items, 0),
			plantest.Of("actBeyond", actBeyond.With(act), 2*items, 1),
		}
	})
}

// TestSupersededStepsAreReadAlone, beside many steps that have run and wait to run again.
func TestSupersededStepsAreReadAlone(t *testing.T) {
	waiting := func(f plantest.Fixture, t *testing.T, db *pgtest.DB) {
		linesOfKeys(f, t, db)
		db.Exec(t, `update tasker.limits set beyond = 'cancel_running', max_running = 1`)
		db.Exec(t, `update tasker.board set limit_line = (select min(line) + seq % (select count(*) from tasker.limit_keys) from tasker.limit_keys) where state in (1, 2) and seq % 2 = 0`)
		db.Exec(t, `update tasker.board set limit_line = -limit_line where ctid = any (array(
			select ctid from tasker.board where state in (1, 2) and limit_line > 0 and slot > 0 limit 100))`)
	}
	plantest.Grown(t, waiting, func(_ plantest.Fixture, t *testing.T, db *pgtest.DB, items int) []plantest.Statement {
		look, act := beyondArgs(t, db, items)
		return []plantest.Statement{
			plantest.Of("claimKeys", claimKeys.With(limitedClaim(items, 0)), 2*items, 0),
			plantest.Of("overLimit", overLimit.With(look), 2*items, 0),
			plantest.Of("actBeyond", actBeyond.With(act), 2*items, 1),
		}
	})
}

func TestPlansMadeWithFewTemplatesHold(t *testing.T) {
	t.Run("hot", func(t *testing.T) { plantest.FewTemplates(t, plantest.Nothing, hotStatements) })
	t.Run("other", func(t *testing.T) { plantest.FewTemplates(t, plantest.Fixture.FillOperations, otherStatements) })
}

// twoLanes are those of the plantest.Fixture, from a mark.
func twoLanes(mark int64) lanesFrom {
	return lanesFrom{{laneKey{1, 200}, mark}, {laneKey{1, 201}, mark}}
}

// overdueArgs are those of overdue from the beginning of every list.
func overdueArgs(patience int64) pg.Args {
	return Without{}.args().And(pg.Args{"due_from": longAgo, "lease_from": longAgo, "lone": int64(0), "apart": int64(0), "patience_ms": patience})
}

func hotStatements(f plantest.Fixture, t *testing.T, db *pgtest.DB, perStatement int) []plantest.Statement {
	pool := db.Pool(t)
	keys := func(state int) []ClaimKey {
		rows, err := pool.Query(t.Context(), `select task_uuid, slot, step_no, coalesce(token, 0) from tasker.board
			where state = $1 and seq > $3 order by seq limit $2`, state, perStatement, f.Youngest())
		require.NoError(t, err)
		list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ClaimKey])
		require.NoError(t, err)
		require.Len(t, list, perStatement)
		return list
	}
	mark := int64(f.Youngest())
	plan := &registry.Plan{Plan: plantest.Compiled(t), ID: 1, Queue: 1, Callables: []int32{1, 2}}
	worker := uuid.Must(uuid.NewV7())
	held := InLockOrder(keys(3))
	var tasks pg.UUIDs
	var steps []StepKey
	var rows []RowKey
	for _, k := range held {
		tasks, steps, rows = append(tasks, k.TaskUUID), append(steps, StepKey{k.TaskUUID, k.Step}), append(rows, RowKey{k.TaskUUID, int16(k.Slot)})
	}
	reports, checkpoints := make([]Report, perStatement), make([]Checkpoint, perStatement)
	order := make([]int, perStatement)
	for i, k := range keys(3) {
		reports[i], order[i] = Report{ClaimKey: k, Success: true, Result: json.RawMessage(`{"n": 1}`), RetryAfter: -1}, i
		checkpoints[i] = Checkpoint{ClaimKey: k, Cursor: json.RawMessage(`500`), Items: 500, Accumulated: json.RawMessage(`{"sum": 1}`)}
	}
	isolating := slices.Clone(reports)
	for i := range isolating {
		isolating[i].Isolated = json.RawMessage(`[{"item": 1, "error": {}}]`)
	}
	fresh := make([]NewTask, perStatement)
	for i := range fresh {
		identity := dedup.KeyIdentity("big", "p", fmt.Sprint(i))
		fresh[i] = NewTask{UUID: uuid.Must(uuid.NewV7()), Plan: plan, Context: json.RawMessage(`{}`),
			CorrelationID: worker, Identity: &identity}
	}
	created, _ := Creation(fresh, DistinctIdentities(fresh), nil)
	judged, _ := creation(createLimited, fresh, DistinctIdentities(fresh), nil)

	lanes := twoLanes(mark)
	everywhere, beyond := lanes.arguments(), twoLanes(1<<60)
	claim := ClaimRequest{Worker: worker, Lease: time.Minute, Limit: perStatement}
	ahead := claim
	ahead.Ahead = perStatement / 2
	full := func(scan *scanStatement, from lanesFrom, req *ClaimRequest) stmt.Call {
		return scan.of(req, from.arguments().And(pg.Args{"callables": []int32{2, 1, 3}}))
	}
	tagged := claim
	tagged.Tags = []string{"gpu"}
	processor := pg.Args{"processor": worker, "id": "p", "hostname": "h", "version": "v", "mode": "m", "address": "h:1", "signals": []byte(`{}`), "rules": nil, "rules_ms": 1000}
	list := []plantest.Statement{
		plantest.Of("claimSteps from the board", claimFromBoard.fromMarks.of(&claim, pg.Args{"l": lanes}), perStatement, perStatement),
		plantest.Of("claimSteps from the ledger", claimFromLedger.fromMarks.of(&claim, pg.Args{"l": lanes}), perStatement, perStatement),
		plantest.Of("claim of what is not there", claimFromBoard.fromMarks.of(&claim, pg.Args{"l": beyond}), perStatement, 0),
		plantest.Of("claim from the frontier of what is not there", full(&claimFromBoard.full, beyond, &claim), perStatement, 0),
		plantest.Of("claim from the frontier", full(&claimFromBoard.full, lanes, &claim), perStatement, perStatement),
		plantest.Of("firstClaimable", firstClaimable.With(everywhere), 2, 2),
		plantest.Of("claimAll", full(&claimFromLedger.full, lanesFrom{}, &tagged), perStatement, perStatement),
		plantest.Of("claim ahead", claimFromBoard.fromMarks.of(&ahead, pg.Args{"l": lanes}), perStatement, perStatement),
		plantest.Of("claim ahead from the frontier", full(&claimFromBoard.full, lanes, &ahead), perStatement, perStatement),
		plantest.Of("beginClaims", beginClaims.With(pg.Args{"worker": worker, "token": mark, "before": mark - 1000}), 1, 1),
		plantest.Of("reportSteps", reportSteps.With(pg.Args{"r": reportRows(reports, order)}), perStatement, perStatement),
		plantest.Of("keepIsolated", keepIsolated.With(pg.Args{"r": isolatedRows(isolating, order)}), 2*perStatement, 0),
		plantest.Of("readIsolated", readIsolated.With(pg.Args{"task": tasks[0], "after_step": 0, "after_no": 0, "worker": nil, "batch": "", "retryable": nil, "replayed": nil, "limit": perStatement}), perStatement, 0),
		plantest.Of("saveCheckpoints", savedCheckpoints(checkpoints, order, 20, time.Minute), perStatement, perStatement),
		plantest.Of("resumeSteps", resumeSteps.With(pg.Args{"r": steps}), perStatement, 0),
		plantest.Of("fetchInputs", FetchInputs.With(inClaimsOf(rows)), perStatement, perStatement),
		plantest.Of("handBack", handBack.With(pg.Args{"r": held}), perStatement, perStatement),
		plantest.Of("releaseLeases", releaseLeases.With(pg.Args{"r": held}), perStatement, perStatement),
		plantest.Of("take_reported", takeReported.With(pg.Args{"lone": mark, "apart": mark, "limit": perStatement}), 2*perStatement, 0),
		plantest.Of("take_reported with traces", takeTraced.With(pg.Args{"lone": mark, "apart": mark, "limit": perStatement}), 2*perStatement, 0),
		plantest.Of("cancelledAttempts", cancelledAttempts.With(pg.Args{"tasks": tasks}), perStatement, 0),
		plantest.Of("firstReported", firstReported.With(pg.Args{"lone": mark, "apart": mark}), 1, 1),
		plantest.Of("firstTimes", firstTimes.With(pg.Args{"due_from": longAgo, "lease_from": longAgo}), 1, 1),
		plantest.Of("takeTasks", takeTasks.With(pg.Args{"tasks": tasks}), perStatement, perStatement),
		plantest.Of("promoteDue", promoteDue.With(pg.UpTo(perStatement).Args().And(pg.Args{"from": longAgo})), perStatement, 0),
		plantest.Of("expireLeases", expireLeases.With(pg.UpTo(perStatement).Args().And(pg.Args{"from": longAgo, "max_losses": 10})), perStatement, perStatement),
		plantest.Of("claimSuspect", claimSuspect.With(pg.Args{"worker": worker, "callables": []int32{2, 1, 3}, "tags": []string{}, "limit": 1, "lease_ms": int64(60_000), "except": pg.UUIDs{}}), 1, 0),
		plantest.Of("loseClaims", loseClaims.With(pg.Args{"r": []lostClaim{{held[0], false}}, "max_losses": 10}), 1, 1),
		plantest.Of("horizon", horizon.With(Without{}.args().And(pg.Args{"due_from": longAgo, "lease_from": longAgo})), 1, 1),
		plantest.Of("processorAlive", processorAlive.With(processor), 1, 1),
		plantest.Of("attention", attention.With(processor.And(everywhere).And(overdueArgs(10_000))), 2, 0),
		plantest.Of("unservedLanes", unservedLanes.With(everywhere.And(pg.Args{"alive_ms": int64(30_000), "limit": perStatement})), perStatement, 1),
		plantest.Of("callableLoads", callableLoads.With(everywhere.And(pg.Args{"alive_ms": int64(30_000), "limit": perStatement, "lease_from": longAgo, "by_time": "shortest_expected", "unknown_lane": 100, "paused": false})), 2*perStatement, 1),
		plantest.Of("unservedSteps", unservedSteps.With(pg.Args{"alive_ms": int64(30_000), "task": tasks[0]}), 2, 0),
		plantest.Of("createTasks", created, perStatement, perStatement),
		plantest.Of("createLimited", judged, perStatement, perStatement),
		plantest.Of("judgesPlans", judgesPlans.With(pg.Args{"plans": []int32{plan.ID}}), 1, 0),
		plantest.Of("oldestClaimable", oldestClaimable.With(everywhere.And(pg.Args{"limit": 1})), perStatement, 1),
		plantest.Of("age", age.With(everywhere.And(pg.Args{"bound_ms": int64(1), "ordered": []int32{}, "limit": perStatement, "skip": 0})), perStatement, 0), // nothing has waited
		plantest.Of("queueDepth", queueDepth.With(everywhere.And(pg.Args{"limit": perStatement})), perStatement, 2),                                          // the other queue is empty
	}
	list = append(list, plantest.Of("claimPut", claimPut.With(pg.Args{"worker": worker, "lease_ms": int64(60_000), "k": rows}), 2*perStatement, 0))
	var p publishing
	for _, id := range tasks {
		p.events = append(p.events, newEvent{TaskUUID: id, NamespaceID: 1, Attempt: 1, Outcome: workflow.OutcomeSuccess, Name: "a.b", StepName: "a", FiredBy: "a"})
	}
	list = append(list, plantest.Of("readEvents", readEvents.With(pg.Args{"k": steps}), perStatement, 0),
		plantest.Of("publishEvents", publishEvents.With(pg.Args{"o": p.events}), perStatement, perStatement))
	return append(append(list, settleStatements(t, plan, keys(3))...), applyStatements(t, plan, keys(4))...)
}

// applyStatements has every statement of a commit, as Commit makes it.
func applyStatements(t *testing.T, plan *registry.Plan, keys []ClaimKey) []plantest.Statement {
	var w writes
	progress, inline := workflow.NewProgress(plan.Plan), 0
	for _, k := range keys {
		task := &TakenTask{UUID: k.TaskUUID, Plan: plan}
		w.gone = append(w.gone, goneRow{TaskUUID: k.TaskUUID, Slot: k.Slot, Outcome: workflow.OutcomeSuccess})
		w.retried = append(w.retried, retriedStep{TaskUUID: k.TaskUUID, Slot: k.Slot, Outcome: workflow.OutcomeFailed, DueIn: time.Second, Lane: 200})
		change := &Change{Task: task, Progress: progress, Effects: &workflow.Effects{Put: []workflow.PutStep{{Step: 0}}}}
		w.putRows(change)
		m := movedTask{TaskUUID: k.TaskUUID, State: workflow.TaskStepsInProcess, Progress: progress.Encode()}
		if k.Slot == 0 {
			m.Outcome = workflow.OutcomeSuccess
			inline++
		}
		m.step(change, workflow.PutStep{Step: 1})
		w.moved = append(w.moved, m)
		w.events = append(w.events, taskEvent{k.TaskUUID, workflow.TaskStepsInProcess, workflow.TaskError, "a", "r", nil})
	}
	b := &pgx.Batch{}
	w.queue(b, uuid.Nil)
	names := []string{"leaveBoard", "retrySteps", "putSteps", "moveTasks", "recordEvents"}
	require.Len(t, b.QueuedQueries, len(names))
	var list []plantest.Statement
	for i, q := range b.QueuedQueries {
		touched := len(keys)
		if names[i] == "moveTasks" { // it returns the attempts of steps in the rows of their tasks
			touched = inline
		}
		list = append(list, plantest.Of(names[i], stmt.Call{SQL: q.SQL, Args: q.Arguments}, len(keys), touched))
	}
	return list
}

// settleStatements are the statements of Settle for the steps in progress in the rows of
// their tasks, and that of CreateAndClaim.
func settleStatements(t *testing.T, plan *registry.Plan, held []ClaimKey) (list []plantest.Statement) {
	req := ClaimRequest{Worker: uuid.Must(uuid.NewV7()), Callables: []int32{1}, Limit: len(held), Lease: time.Minute}
	progress := workflow.NewProgress(plan.Plan)
	progress.Steps[0].Status, progress.Steps[1].Status = workflow.StatusComplete, workflow.StatusOnBoard
	var both []Settlement
	for _, k := range held {
		if k.Slot != 0 {
			continue
		}
		for _, e := range []workflow.Effects{
			{End: []workflow.EndStep{{Step: k.Step, Outcome: workflow.OutcomeSuccess}}, Put: []workflow.PutStep{{Step: 1}}, State: workflow.TaskStepsInProcess},
			{End: []workflow.EndStep{{Step: k.Step, Outcome: workflow.OutcomeSuccess}}, State: workflow.TaskComplete, Finished: true},
		} {
			both = append(both, Settlement{Claim: &Claimed{TaskUUID: k.TaskUUID, Step: k.Step, Token: k.Token, Queue: 1,
				ParentResults: map[int]json.RawMessage{0: []byte(`1`)}, Task: &Standing{State: workflow.TaskStepsInProcess, Progress: progress}},
				Result: []byte(`1`),
				Plan:   plan, Progress: progress, Effects: &e})
		}
	}
	if len(both) == 0 {
		return nil
	}
	names := [2]string{"settleMoves", "settleEnds"}
	for kind, name := range names {
		one := slices.Collect(func(yield func(Settlement) bool) {
			for i := kind; i < len(both); i += 2 {
				yield(both[i])
			}
		})
		w := newSettling(req, one)
		before := bytes.Repeat([]byte{0}, 14) // as the plantest.Fixture has it
		for i := range w.ended {
			w.ended[i].Before, w.ended[i].FromState = before, workflow.TaskStepsInProcess
		}
		for i := range w.moved {
			w.moved[i].Before, w.moved[i].FromState = before, workflow.TaskStepsInProcess
		}
		b := &pgx.Batch{}
		w.queue(b, make([]Settled, len(one)))
		require.Len(t, b.QueuedQueries, 1)
		list = append(list, plantest.Of(name, stmt.Call{SQL: b.QueuedQueries[0].SQL, Args: b.QueuedQueries[0].Arguments}, len(one), len(one)))
	}
	tasks := make(pg.UUIDs, 0, len(held))
	for _, k := range held {
		tasks = append(tasks, k.TaskUUID)
	}
	return append(list,
		plantest.Of("lockSettled", lockSettled.With(pg.Args{"tasks": tasks}), len(held), len(held)),
		plantest.Of("claimCreated", claimCreated.With(pg.Args{"tasks": tasks, "worker": req.Worker, "lease_ms": int64(60_000)}), len(held), 0))
}

// otherStatements are those of messages, dead letters and actions.
func otherStatements(f plantest.Fixture, t *testing.T, db *pgtest.DB, items int) []plantest.Statement {
	youngest := f.From + f.Finished
	quiet := plantest.IDs(t, db, items, `select task_uuid from tasker.board where slot = 0 and dead_letter is null and task_uuid > test_id($1) order by 1 limit $2`, youngest)
	pending := plantest.IDs(t, db, items, `select task_uuid from tasker.dlq_entries where resolution = 1 and task_uuid > test_id($1) order by 1 limit $2`, youngest)
	split := plantest.IDs(t, db, items, `select distinct task_uuid from tasker.batches where task_uuid > test_id($1) order by 1 limit $2`, youngest)
	letters := func(tasks []uuid.UUID) (list []OpenedLetter) {
		for _, id := range tasks {
			list = append(list, OpenedLetter{TaskUUID: id, OriginalState: workflow.TaskStepsInProcess, Reason: workflow.DeadLetterExhausted, Detail: "d", No: new(int)})
		}
		return list
	}
	var closed []closedLetter
	var edited []editedTask
	var groups []group
	var made []newBatch
	for i := range items {
		closed = append(closed, closedLetter{pending[i], pg.ResolutionCancelled, "d"})
		edited = append(edited, editedTask{quiet[i], `{"n":1}`})
		groups = append(groups, group{split[i], 1, 2, 3})
		made = append(made, newBatch{TaskUUID: split[i], StepNo: 5, TemplateNo: 1, FirstNo: 5, Name: "b", Cursor: []byte(`{}`)})
	}
	endless := sha256.Sum256(strconv.AppendInt(nil, int64(f.From+3-f.From%3), 10))
	return []plantest.Statement{
		plantest.Of("queueSteps", queueSteps.With(pg.Args{"tasks": quiet}), items, 0),
		plantest.Of("repeatClaims", repeatClaims.With(pg.Args{"h": []HeldClaim{{TaskUUID: quiet[0], Token: 1}}, "worker": uuid.Max, "namespaces": nil, "limit": items, "skip": 0, "lease_ms": int64(60_000)}), f.From+f.Waiting/20, 0),
		plantest.Of("retagTasks", retagTasks.With(pg.Args{"tasks": quiet}), items, 0),
		plantest.Of("recordDeadLetters", RecordDeadLetters.With(pg.Args{"o": letters(quiet)}), items, items),
		plantest.Of("recordDeadLetters again", RecordDeadLetters.With(pg.Args{"o": letters(pending)}), 2*items, items),
		plantest.Of("closeDeadLetters", closeDeadLetters.With(pg.Args{"o": closed}), items, items),
		plantest.Of("stuck", stuck.With(twoLanes(0).arguments().And(overdueArgs(1000))), 2, 1),
		plantest.Of("horizon with schedules", horizon.With(Without{}.args().And(pg.Args{"due_from": longAgo, "lease_from": longAgo})), 1, 1),
		plantest.Of("editContexts", editContexts.With(pg.Args{"n": edited}), 2*items, items),
		plantest.Of("continueTask", continueTask.With(pg.Args{"task": quiet[0], "next": quiet[min(1, items-1)], "step": 0, "step_name": "s", "token": int64(1), "actor": "w", "duplicate": false}), 1, 1),
		plantest.Of("taskOfIdentity", taskOfIdentity.With(pg.Args{"identity": endless[:16]}), 1, 1),
		plantest.Of("namedTasks", namedTasks.With(pg.Args{"tasks": quiet, "identities": [][]byte{endless[:16]}}), items+1, items+1),
		plantest.Of("clearNumbers", clearNumbers.With(pg.Args{"g": groups}), 3*items, 3*items),
		plantest.Of("forgetBatches", forgetBatches.With(pg.Args{"g": groups}), 3*items, 3*items),
		plantest.Of("recordBatches", recordBatches.With(pg.Args{"d": made}), items, items),
		plantest.Of("runsOfNumbers", runsOfNumbers.With(pg.Args{"task": split[0]}), 6, 3),
		plantest.Of("dependencyQueues", dependencyQueues.With(pg.Args{"tasks": quiet}), items, items),
		plantest.Of("missingTasks", missingTasks.With(pg.Args{"tasks": quiet}), items, 0),
		plantest.Of("reprioritise", reprioritise.With(pg.Args{"ordered": []int32{}, "task": quiet[0], "priority": 1, "lane": 200, "started_lane": 200, "actor": "a", "reason": "r"}), 1, 1),
		plantest.Of("watchTask", watchTask.With(pg.Args{"task": quiet[0]}), 1, 1),
	}
}
