package store_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/domainevent"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

const publishingYAML = `
name: publishing
namespace_name: shop
version: 1.0.0
steps:
  - name: pay
    handler: {callable: pay}
    retry: {retryable: true, max_attempts: 2, backoff: none}
    publishes_events:
      - {name: pay.done, condition: success, schema: {}}
      - {name: pay.failed, condition: failure, schema: {}}
      - {name: pay.again, condition: retryable_failure, schema: {}}
      - {name: pay.over, condition: permanent_failure, schema: {}}
      - {name: pay.any, condition: always, delivery_mode: broadcast, schema: {}}
      - {name: pay.local, condition: always, delivery_mode: fast, schema: {}}
      - {name: pay.shaped, condition: always, publisher: shaper, schema: {}}
  - name: next
    dependencies: [pay]
    handler: {callable: next}
`

// messages are the published events of a database, in the order of their
// positions.
func messages(t testing.TB, db *pgtest.DB) (list []string) {
	t.Helper()
	rows, err := db.Pool(t).Query(t.Context(), `select name || ' ' || payload::text from tasker.domain_events order by position`)
	require.NoError(t, err)
	list, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return list
}

func encodedEvents(t testing.TB, m store.MadeEvents) json.RawMessage {
	t.Helper()
	doc, err := m.Encode()
	require.NoError(t, err)
	return doc
}

func TestEventsFollowHowAttemptsEnd(t *testing.T) {
	t.Parallel()
	const failure = `{"error": {"message": "no", "retryable": true, "error_type": "Odd"}, "error_code": "Odd", "error_message": "no"}`
	shaped := store.MadeEvents{6: {Payload: json.RawMessage(`{"shaped": 1}`), Metadata: json.RawMessage(`{"by": "hand"}`)}}
	failing := func(c store.Claimed, retryable bool) store.Report {
		r := fail(c, retryable, "no")
		r.Error = json.RawMessage(`{"message": "no", "error_type": "Odd", "retryable": true}`)
		return r
	}
	for _, c := range []struct {
		name   string
		report func(store.Claimed) store.Report
		made   store.MadeEvents
		want   []string
	}{
		{"success", func(c store.Claimed) store.Report { return succeed(c, `{"n": 1}`) }, shaped,
			[]string{`pay.done {"n": 1}`, `pay.any {"n": 1}`, `pay.shaped {"shaped": 1}`}},
		{"it runs again", func(c store.Claimed) store.Report { return failing(c, true) }, shaped,
			[]string{`pay.failed ` + failure, `pay.again ` + failure, `pay.any ` + failure, `pay.shaped {"shaped": 1}`}},
		{"for good", func(c store.Claimed) store.Report { return failing(c, false) }, shaped,
			[]string{`pay.failed ` + failure, `pay.over ` + failure, `pay.any ` + failure, `pay.shaped {"shaped": 1}`}},
		{"vetoed and refused", func(c store.Claimed) store.Report { return succeed(c, `7`) },
			store.MadeEvents{0: {Skip: "schema"}, 6: {Skip: "veto"}}, []string{`pay.any 7`}},
		{"a publisher that has made nothing", func(c store.Claimed) store.Report { return succeed(c, `null`) }, nil,
			[]string{`pay.done null`, `pay.any null`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, db := open(t)
			p := plan(t, s, publishingYAML)
			task := create(t, s, p, 1)[0]
			claimed := claim(t, s, p, 1)
			require.Len(t, claimed, 1)
			r := c.report(claimed[0])
			r.Events = encodedEvents(t, c.made)
			require.Equal(t, []bool{true}, report(t, s, r))
			require.Empty(t, messages(t, db), "a report publishes nothing: its outcome is not decided yet")
			applyAll(t, s)
			require.Equal(t, c.want, messages(t, db))
			require.True(t, db.QueryBool(t, `select bool_and(task_uuid = $1 and step_name = 'pay' and step_no = 0 and attempt = 1 and version = '1.0'
				and fired_by = case name when 'pay.shaped' then 'shaper' else 'pay' end and (metadata is not null) = (name = 'pay.shaped')
				and correlation_id = (select coalesce(correlation_id, task_uuid) from tasker.tasks)) from tasker.domain_events`, task))
			require.True(t, db.QueryBool(t, `select bool_and(events is null) is not false from tasker.board`), "nothing is left")
			require.Equal(t, "pay shop "+claimed[0].TaskUUID.String(), db.QueryString(t, `select distinct concat_ws(' ', message->'metadata'->>'step_name',
				message->'metadata'->>'namespace', message->'metadata'->>'task_uuid') from tasker.v_domain_events`))
		})
	}
}

func TestAStaleReportPublishesNothing(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, publishingYAML)
	create(t, s, p, 1)
	first := claim(t, s, p, 1)[0]
	db.Exec(t, `update tasker.board set lease_until = now() - interval '1 s' where state = 3`)
	_, err := s.ExpireLeases(t.Context(), store.UpTo(10), 10)
	require.NoError(t, err)
	applyAll(t, s)
	require.Empty(t, messages(t, db), "a lost lease is not the end of a handler")
	second := claim(t, s, p, 1)[0]
	late := succeed(first, `{"late": true}`)
	late.Events = encodedEvents(t, store.MadeEvents{6: {Payload: json.RawMessage(`1`)}})
	require.Equal(t, []bool{false}, report(t, s, late))
	applyAll(t, s)
	require.Empty(t, messages(t, db))
	require.Equal(t, []bool{true}, report(t, s, succeed(second, `{}`)))
	require.Equal(t, []bool{false}, report(t, s, succeed(second, `{}`)), "once more, after an answer that was lost")
	applyAll(t, s)
	require.Equal(t, []string{`pay.done {}`, `pay.any {}`}, messages(t, db))
}

// TestAStepThatLosesItsLastWorkerHasFailed: no publisher can make that event, and it
// contains nothing of a handler.
func TestAStepThatLosesItsLastWorkerHasFailed(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, publishingYAML)
	create(t, s, p, 1)
	for range 2 {
		require.Len(t, claim(t, s, p, 1), 1)
		db.Exec(t, `update tasker.board set lease_until = now() - interval '1 s' where state = 3`)
		_, err := s.ExpireLeases(t.Context(), store.UpTo(10), 10)
		require.NoError(t, err)
		applyAll(t, s)
	}
	const lost = ` {"error": {"message": "worker_lost", "retryable": false, "error_type": "worker_lost"}, "error_code": "worker_lost", "error_message": "worker_lost"}`
	require.Equal(t, []string{"pay.failed" + lost, "pay.over" + lost, "pay.any" + lost, "pay.shaped" + lost}, messages(t, db))
}

// TestADeadOrchestratorPublishesNothing: the next one publishes what it has not
// committed, once.
func TestADeadOrchestratorPublishesNothing(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, publishingYAML)
	create(t, s, p, 5)
	for _, c := range claim(t, s, p, 5) {
		require.Equal(t, []bool{true}, report(t, s, succeed(c, `{}`)))
	}
	dying, err := store.Open(t.Context(), store.Options{URL: db.DSN, ApplicationName: "dying", MaxConns: 1})
	require.NoError(t, err)
	defer dying.Close()
	taken, err := dying.TakeReported(t.Context(), 100, true)
	require.NoError(t, err)
	require.Len(t, taken.Tasks, 5)
	changes := decide(t, taken.Tasks)
	db.Exec(t, `select pg_terminate_backend(pid, 60000) from pg_stat_activity where application_name = 'dying'`)
	_, err = taken.Commit(t.Context(), uuid.Nil, changes)
	require.Error(t, err)
	require.Empty(t, messages(t, db))
	applyAll(t, s)
	require.Len(t, messages(t, db), 10)
	require.Equal(t, 5, db.QueryInt(t, `select count(distinct task_uuid)::int from tasker.domain_events`))
}

func TestACommitTellsWhatItHasPublished(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, publishingYAML)
	create(t, s, p, 3)
	for _, c := range claim(t, s, p, 3) {
		report(t, s, succeed(c, `{}`))
	}
	taken, err := s.TakeReported(t.Context(), 100, true)
	require.NoError(t, err)
	done, err := taken.Commit(t.Context(), uuid.Nil, decide(t, taken.Tasks))
	require.NoError(t, err)
	require.Len(t, done.Published, 6)
	for i, e := range done.Published {
		require.Equal(t, []string{"pay.done", "pay.any"}[i%2], e.Name)
		require.Equal(t, "shop", e.Namespace)
		require.True(t, db.QueryBool(t, `select count(*) = 1 from tasker.domain_events
			where event_uuid = $1 and position = $2 and task_uuid = $3 and name = $4 and correlation_id = $5`, e.UUID, e.Position, e.Task, e.Name, e.CorrelationID))
	}
}

// TestBatchesPublishUnderTheirOwnNames: an instance has the events of its step.
func TestBatchesPublishUnderTheirOwnNames(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, `
name: b
namespace_name: shop
version: 1.0.0
steps:
  - {name: split, type: batchable, handler: {callable: split}}
  - name: part
    type: batch_worker
    dependencies: [split]
    handler: {callable: part}
    publishes_events: [{name: part.done, schema: {}}]
`)
	create(t, s, p, 1)
	c := claim(t, s, p, 1)[0]
	report(t, s, succeed(c, `{"batch_processing_outcome": {"type": "create_batches", "worker_template_name": "part", "worker_count": 2, "total_items": 4,
		"cursor_configs": [{"batch_id": "001", "start_cursor": 0, "end_cursor": 2, "batch_size": 2}, {"batch_id": "002", "start_cursor": 2, "end_cursor": 4, "batch_size": 2}]}}`))
	applyAll(t, s)
	parts := claim(t, s, p, 10)
	require.Len(t, parts, 2)
	for _, c := range parts {
		report(t, s, succeed(c, fmt.Sprint(c.Step)))
	}
	applyAll(t, s)
	require.Equal(t, "part_001 part_002", db.QueryString(t, `select string_agg(step_name, ' ' order by step_name) from tasker.domain_events`))
}

// TestPositionsRiseInTheOrderOfCommits: two orchestrators publish at once, and a reader
// at the greatest position never misses a smaller one.
func TestPositionsRiseInTheOrderOfCommits(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, publishingYAML)
	const tasks = 400
	create(t, s, p, tasks)
	for range 4 {
		var reports []store.Report
		for _, c := range claim(t, s, p, tasks/4) {
			reports = append(reports, succeed(c, `{}`))
		}
		require.NotContains(t, report(t, s, reports...), false)
	}
	// The order in which a reader that continues from its position sees the rows.
	var seen []int64
	read := func() {
		rows, err := db.Pool(t).Query(t.Context(), `select position from tasker.domain_events where position > $1 order by position`, append([]int64{0}, seen...)[len(seen)])
		require.NoError(t, err)
		more, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		require.NoError(t, err)
		seen = append(seen, more...)
	}
	var writers sync.WaitGroup
	over, failed := make(chan struct{}), make(chan error, 2)
	for range 2 {
		writers.Go(func() {
			for {
				taken, err := s.TakeReported(t.Context(), 5, true)
				if err != nil {
					failed <- err
					return
				}
				if len(taken.Tasks) == 0 {
					if taken.Skipped > 0 {
						continue
					}
					return
				}
				if _, err := taken.Commit(t.Context(), uuid.Nil, decide(t, taken.Tasks)); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	go func() { writers.Wait(); close(over) }()
	for done := false; !done; read() {
		select {
		case <-over:
			done = true
		default:
		}
	}
	select {
	case err := <-failed:
		require.NoError(t, err)
	default:
	}
	require.Len(t, seen, 2*tasks, "the reader has skipped none")
	require.Equal(t, 2*tasks, db.QueryInt(t, `select count(*)::int from tasker.domain_events`))
}

// TestEventsHaveAPartitionForEachDay.
func TestEventsHaveAPartitionForEachDay(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, publishingYAML)
	create(t, s, p, 1)
	report(t, s, succeed(claim(t, s, p, 1)[0], `{}`))
	applyAll(t, s)
	require.Equal(t, "domain_events_"+time.Now().UTC().Format("20060102"), db.QueryString(t, `select max(tableoid::regclass::text) from tasker.domain_events`)[len("tasker."):])
	require.Zero(t, db.QueryInt(t, `select tasker.ensure_partitions(7)`), "they are there")
	require.Equal(t, domainevent.Version, db.QueryString(t, `select max(version) from tasker.domain_events`))
}

// An operator acts on another step while a report with events waits to be applied: the
// worker's events are published nevertheless.
func TestEventsOfAReportOutliveAnAction(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, publishingYAML)
	task := create(t, s, p, 1)[0]
	reported := succeed(claim(t, s, p, 1)[0], `7`)
	reported.Events = encodedEvents(t, store.MadeEvents{0: {Skip: "veto"}, 6: {Payload: json.RawMessage(`{"shaped": 1}`)}})
	report(t, s, reported)
	taken, err := s.TakeTasks(t.Context(), []uuid.UUID{task}, store.Taking{Spread: true})
	require.NoError(t, err)
	c := change(t, &taken.Tasks[0], append(inputsOf(&taken.Tasks[0]), workflow.Operation{Action: workflow.ActionComplete, Step: 1, Result: json.RawMessage(`1`)})...)
	c.Action = &store.Performed{Kind: workflow.ActionComplete, Step: 1, Reason: "by hand", Result: json.RawMessage(`1`)}
	_, err = taken.Commit(t.Context(), uuid.Nil, []store.Change{c})
	require.NoError(t, err)
	require.Equal(t, []string{`pay.any 7`, `pay.shaped {"shaped": 1}`}, messages(t, db))
	require.Equal(t, workflow.TaskComplete, read(t, s, task).State)
}
