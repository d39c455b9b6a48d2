package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func migrate(ctx context.Context, dsn string) error {
	m, err := store.NewMigrator(dsn)
	if err != nil {
		return err
	}
	_, err = m.Up(ctx)
	return err
}

// open returns a store over a fresh, migrated database.
func open(t testing.TB) (*store.Store, *pgtest.DB) {
	t.Helper()
	hash, err := store.SchemaHash()
	require.NoError(t, err)
	db := pgtest.NewMigrated(t, hash, migrate)
	s, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 8, HoldTimeout: time.Minute}) // for busy machines
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s, db
}

const diamondYAML = `
name: diamond
namespace_name: shapes
version: 1.0.0
steps:
  - name: start
    handler: {callable: start}
  - name: left
    dependencies: [start]
    handler: {callable: left}
    retry: {retryable: true, max_attempts: 3, backoff: fixed, backoff_base_ms: 100}
  - name: right
    dependencies: [start]
    handler: {callable: right}
  - name: end
    dependencies: [left, right]
    handler: {callable: end}
`

func plan(t testing.TB, s *store.Store, yaml string) *store.Plan {
	t.Helper()
	tmpl, _, err := template.Parse("test.yaml", []byte(yaml))
	require.NoError(t, err)
	_, err = s.RegisterTemplates(t.Context(), store.Registrant{Environment: "test"}, []*workflow.Template{tmpl.Resolve("test")})
	require.NoError(t, err)
	p, err := s.PlanNamed(t.Context(), tmpl.Namespace, tmpl.Name, tmpl.Version)
	require.NoError(t, err)
	return p
}

func newTask(p *store.Plan) store.NewTask {
	return store.NewTask{UUID: uuid.Must(uuid.NewV7()), Plan: p, Context: json.RawMessage(`{"n":1}`),
		CorrelationID: uuid.Must(uuid.NewV7()), Initiator: "test"}
}

// create creates tasks and passes their signals to the store, as a worker does.
func create(t testing.TB, s *store.Store, p *store.Plan, n int) []uuid.UUID {
	t.Helper()
	_, err := s.Callables(t.Context())
	require.NoError(t, err)
	ids := createUnsignalled(t, s, p, n)
	receiveLanes(s, store.CreateSignals([]store.NewTask{newTask(p)}))
	return ids
}

func receiveLanes(s *store.Store, signals []signal.Signal) {
	for _, sent := range signals {
		s.HearLanes(sent)
	}
}

func createUnsignalled(t testing.TB, s *store.Store, p *store.Plan, n int) []uuid.UUID {
	t.Helper()
	tasks := make([]store.NewTask, n)
	ids := make([]uuid.UUID, n)
	for i := range tasks {
		tasks[i] = newTask(p)
		ids[i] = tasks[i].UUID
	}
	created, err := s.CreateTasks(t.Context(), tasks)
	require.NoError(t, err)
	for i := range created {
		require.False(t, created[i].Duplicate)
		require.Equal(t, ids[i], created[i].UUID)
	}
	return ids
}

var rules = workflow.Rules{MaxCrashes: 3, Backoff: workflow.BackoffDefaults{
	Delays: []time.Duration{time.Second}, Multiplier: 2, Max: time.Minute}}

// applyAll applies all reports until none is left.
func applyAll(t testing.TB, s *store.Store) (finished int) {
	t.Helper()
	for {
		taken, err := s.TakeReported(t.Context(), 100, true)
		require.NoError(t, err)
		if len(taken.Tasks) == 0 {
			return finished
		}
		var changes []store.Change
		for i := range taken.Tasks {
			task := &taken.Tasks[i]
			var in []workflow.Input
			for _, r := range task.Reported {
				if r.Outcome == workflow.OutcomeLeaseLost {
					in = append(in, workflow.LeaseLost{Step: r.Step, Attempt: r.Attempt, Final: !r.Retryable})
					continue
				}
				in = append(in, workflow.Reported{Step: r.Step, Attempt: r.Attempt,
					Success: r.Outcome == workflow.OutcomeSuccess, Retryable: r.Retryable, RetryAfter: r.RetryAfter, Result: r.Result})
			}
			progress, effects, err := workflow.Advance(task.Plan.Plan, task.State, task.Progress, rules, in...)
			require.NoError(t, err)
			changes = append(changes, store.Change{Task: task, Progress: progress, Effects: effects, Actor: "test"})
		}
		done, err := taken.Commit(t.Context(), uuid.Nil, changes)
		require.NoError(t, err)
		finished += done.Finished
	}
}

func claim(t testing.TB, s *store.Store, p *store.Plan, limit int) []store.Claimed {
	t.Helper()
	claimed, _, err := s.Claim(t.Context(), store.ClaimRequest{Worker: uuid.Nil, Callables: p.Callables, Limit: limit, Lease: time.Minute}, true)
	require.NoError(t, err)
	return claimed
}

func succeed(c store.Claimed, result string) store.Report {
	return store.Report{ClaimKey: key(c), Success: true, Result: json.RawMessage(result), RetryAfter: -1}
}

func key(c store.Claimed) store.ClaimKey {
	return c.Key()
}

func report(t testing.TB, s *store.Store, reports ...store.Report) []bool {
	t.Helper()
	accepted, err := s.Report(t.Context(), reports)
	require.NoError(t, err)
	return accepted
}

func TestDiamondRunsFromBoardToLedger(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	ids := create(t, s, p, 3)

	for _, want := range [][]string{{"start"}, {"left", "right"}, {"end"}} {
		claimed := claim(t, s, p, 100)
		require.Len(t, claimed, 3*len(want))
		var reports []store.Report
		for _, c := range claimed {
			name := p.Steps[c.Step].Name
			require.Contains(t, want, name)
			require.JSONEq(t, `{"n":1}`, string(c.Context))
			require.Len(t, c.ParentResults, len(p.Steps[c.Step].Parents))
			for _, parent := range p.Steps[c.Step].Parents {
				require.JSONEq(t, fmt.Sprintf(`{"from":%q}`, p.Steps[parent].Name), string(c.ParentResults[parent]))
			}
			reports = append(reports, succeed(c, fmt.Sprintf(`{"from":%q}`, name)))
		}
		for _, ok := range report(t, s, reports...) {
			require.True(t, ok)
		}
		applyAll(t, s)
	}
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.board where slot = 0`))
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.board where step_no is not null`))
	require.Equal(t, 12, db.QueryInt(t, `select count(*) from tasker.step_attempts where outcome = 1`))
	for _, id := range ids {
		task, err := s.Task(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, workflow.TaskComplete, task.State)
		require.Equal(t, 4, task.Counts().Complete)
		require.JSONEq(t, `{"from":"end"}`, string(task.Steps[3].Result))
	}
	require.Equal(t, 12, db.QueryInt(t, `select count(*) from tasker.v_workflow_steps where state = 'complete'`))
	require.Equal(t, 3, db.QueryInt(t, `select count(*) from tasker.v_tasks where state = 'complete'`))
	require.Equal(t, 9, db.QueryInt(t, `select count(*) from tasker.v_task_transitions`))
	require.Equal(t, 48, db.QueryInt(t, `select count(*) from tasker.v_step_transitions`))
	require.Equal(t, 12, db.QueryInt(t, `select count(*) from tasker.v_step_result_audit where success`))
	noViolations(t, s)
}

func noViolations(t testing.TB, s *store.Store) {
	t.Helper()
	report, err := s.CheckIntegrity(t.Context(), rules)
	require.NoError(t, err)
	require.Empty(t, report.Violations)
}

func TestStaleTokenChangesNothing(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	create(t, s, p, 1)
	old := claim(t, s, p, 1)[0]
	db.Exec(t, `update tasker.board set lease_until = now() - interval '1 s' where state = 3`)
	expired, err := s.ExpireLeases(t.Context(), store.UpTo(10), 10)
	require.NoError(t, err)
	require.Equal(t, 1, expired.Lost)
	require.Equal(t, []bool{false}, report(t, s, succeed(old, `1`)), "the lease has been ended")
	applyAll(t, s)

	again := claim(t, s, p, 1)
	require.Len(t, again, 1, "the step is claimable at once")
	require.Equal(t, 2, again[0].Attempt)
	require.Equal(t, []bool{false}, report(t, s, succeed(old, `1`)), "a newer claim holds the step")
	lost, err := s.WorkerHeartbeat(t.Context(), store.Daemon{UUID: uuid.Must(uuid.NewV7())}, []store.ClaimKey{key(old), key(again[0])}, time.Minute)
	require.NoError(t, err)
	require.Equal(t, []int64{old.Token}, lost)
	require.Equal(t, []bool{true}, report(t, s, succeed(again[0], `2`)))
	applyAll(t, s)
	require.Equal(t, 1, db.QueryInt(t, `select count(*) from tasker.step_attempts where outcome = 4`))
	noViolations(t, s)
}

func TestRetryGoesThroughTheDueList(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	id := create(t, s, p, 1)[0]
	report(t, s, succeed(claim(t, s, p, 1)[0], `1`))
	applyAll(t, s)
	for _, c := range claim(t, s, p, 10) {
		r := succeed(c, `2`)
		if p.Steps[c.Step].Name == "left" {
			r.Success, r.Result, r.Error, r.Retryable = false, nil, json.RawMessage(`{"message":"no"}`), true
		}
		report(t, s, r)
	}
	applyAll(t, s)
	require.Empty(t, claim(t, s, p, 10), "the failed step backs off")
	task, err := s.Task(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, workflow.TaskWaitingForRetry, task.State)
	left, _ := p.StepNumber("left")
	require.Equal(t, workflow.StepWaitingForRetry, task.Steps[left].State)
	require.NotNil(t, task.Steps[left].NextRetryAt)

	h, err := s.Horizon(t.Context(), store.Without{})
	require.NoError(t, err)
	require.LessOrEqual(t, h.NextDue, 100*time.Millisecond)
	require.GreaterOrEqual(t, h.NextDue, time.Duration(0))
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		promoted, err := s.PromoteDue(t.Context(), store.UpTo(10))
		require.NoError(t, err)
		return promoted.Steps == 1, "nothing is due yet"
	})
	c := claim(t, s, p, 10)
	require.Len(t, c, 1)
	require.Equal(t, 2, c[0].Attempt)
	report(t, s, succeed(c[0], `3`))
	applyAll(t, s)
	report(t, s, succeed(claim(t, s, p, 10)[0], `4`))
	require.Equal(t, 1, applyAll(t, s))
	require.Equal(t, 1, db.QueryInt(t, `select count(*) from tasker.step_attempts where outcome = 2`))
	noViolations(t, s)
}

func TestDuplicatesAreAnsweredWithTheHolder(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	identity := dedup.KeyIdentity("shapes", "diamond", "k")
	first, second := newTask(p), newTask(p)
	first.Identity, second.Identity = &identity, &identity
	other := newTask(p)
	created, err := s.CreateTasks(t.Context(), []store.NewTask{first, second, other})
	require.NoError(t, err)
	require.Equal(t, []store.CreatedTask{{UUID: first.UUID, RequestedAt: created[0].RequestedAt}, {UUID: first.UUID, Duplicate: true, State: workflow.TaskPending},
		{UUID: other.UUID, RequestedAt: created[0].RequestedAt}}, created)
	third := newTask(p)
	third.Identity = &identity
	created, err = s.CreateTasks(t.Context(), []store.NewTask{third})
	require.NoError(t, err)
	require.Equal(t, []store.CreatedTask{{UUID: first.UUID, Duplicate: true, State: workflow.TaskPending}}, created)
	require.Equal(t, 2, db.QueryInt(t, `select count(*) from tasker.tasks`))

	db.Exec(t, `update tasker.task_identities set expires_at = now() - interval '1 s'`)
	created, err = s.CreateTasks(t.Context(), []store.NewTask{third})
	require.NoError(t, err)
	require.False(t, created[0].Duplicate, "the window has passed")
}

func TestCancelTakesEverythingOffTheBoard(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	id := create(t, s, p, 1)[0]
	running := claim(t, s, p, 1)[0]
	taken, err := s.TakeTask(t.Context(), id)
	require.NoError(t, err)
	task := &taken.Tasks[0]
	progress, effects, err := workflow.Advance(task.Plan.Plan, task.State, task.Progress, rules, workflow.Operation{Action: workflow.ActionCancel, Reason: "test"})
	require.NoError(t, err)
	_, err = taken.Commit(t.Context(), uuid.Nil, []store.Change{{Task: task, Progress: progress, Effects: effects, Actor: "test"}})
	require.NoError(t, err)
	require.Equal(t, []bool{false}, report(t, s, succeed(running, `1`)))
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.board where step_no is not null`))
	require.Equal(t, 1, db.QueryInt(t, `select count(*) from tasker.step_attempts where outcome = 5`))
	_, err = s.TakeTask(t.Context(), id)
	require.ErrorIs(t, err, store.ErrTaskEnded)
	_, err = s.TakeTask(t.Context(), uuid.Must(uuid.NewV7()))
	require.ErrorIs(t, err, store.ErrNotFound)
	noViolations(t, s)
}

func TestMarksFindNewWorkWithoutAFullScan(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, diamondYAML)
	urgent := newTask(p)
	urgent.Priority = 7
	_, err := s.CreateTasks(t.Context(), []store.NewTask{urgent})
	require.NoError(t, err)
	fast := func(limit int) int {
		claimed, _, err := s.Claim(t.Context(), store.ClaimRequest{Callables: p.Callables, Limit: limit, Lease: time.Minute}, false)
		require.NoError(t, err)
		return len(claimed)
	}
	require.Zero(t, fast(5), "its lane is not known yet")
	create(t, s, p, 1)
	require.Equal(t, 1, fast(5), "that lane was signalled")
	require.Len(t, claim(t, s, p, 5), 1, "a full scan finds the lane")
	_, err = s.CreateTasks(t.Context(), []store.NewTask{func() store.NewTask { n := newTask(p); n.Priority = 7; return n }()})
	require.NoError(t, err)
	create(t, s, p, 3)
	require.Equal(t, 2, fast(2))
	require.Equal(t, 2, fast(5))
	require.Zero(t, fast(5))
}

func TestHandBackDoesNotCountAnAttempt(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, diamondYAML)
	create(t, s, p, 1)
	c := claim(t, s, p, 1)[0]
	signals, err := s.HandBack(t.Context(), []store.ClaimKey{key(c)})
	require.NoError(t, err)
	require.Equal(t, []signal.Signal{{Topic: signal.WorkerTopic("shapes"), Payload: fmt.Sprintf("%d.%d", p.Callables[0], laneBy(0, false))}}, signals)
	again := claim(t, s, p, 1)[0]
	require.Equal(t, 1, again.Attempt)
	require.NotEqual(t, c.Token, again.Token)
}

func TestSchemaIsCheckedAndMigrationsTakeTurns(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s, err := store.Open(t.Context(), store.Options{URL: db.DSN})
	require.NoError(t, err)
	defer s.Close()
	require.ErrorIs(t, s.CheckSchema(t.Context()), store.ErrSchema)
	errs := make(chan error, 4)
	for range cap(errs) {
		go func() { errs <- migrate(t.Context(), db.DSN) }()
	}
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
	require.NoError(t, s.CheckSchema(t.Context()))
	m, err := store.NewMigrator(db.DSN)
	require.NoError(t, err)
	list, err := m.Status(t.Context())
	require.NoError(t, err)
	for range list {
		_, err = m.Down(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, migrate(t.Context(), db.DSN), "the way back leaves nothing behind")
}

// TestMigratingWithTheURLOfAPool: one URL serves both, and its settings of the
// pool must not reach the server.
func TestMigratingWithTheURLOfAPool(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(pgtest.New(t).DSN)
	require.NoError(t, err)
	q := u.Query()
	q.Set("pool_max_conns", "5")
	q.Set("pool_max_conn_lifetime", "1h")
	q.Set("pool_health_check_period", "10s")
	u.RawQuery = q.Encode()
	require.NoError(t, migrate(t.Context(), u.String()))
	s, err := store.Open(t.Context(), store.Options{URL: u.String()})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.CheckSchema(t.Context()))

	q.Set("pool_max_conns", "many")
	u.RawQuery = q.Encode()
	_, err = store.NewMigrator(u.String())
	require.Error(t, err)
}

func TestSlowAcquiresAreLogged(t *testing.T) {
	t.Parallel()
	_, db := open(t)
	for slow, want := range map[time.Duration]bool{0: false, 1: true, time.Hour: false} {
		slowSeen := false
		s, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 1, SlowAcquire: slow, OnSlowAcquire: func(time.Duration) { slowSeen = true }})
		require.NoError(t, err)
		_, err = s.QueueDepth(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, want, slowSeen, slow)
		s.Close()
	}
}

// A look that finds due work reports since when it has been due.
func TestHorizonTellsSinceWhen(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	h, err := s.Horizon(t.Context(), store.Without{})
	require.NoError(t, err)
	require.Zero(t, h.Since)
	require.Negative(t, h.Next())
	p := plan(t, s, diamondYAML)
	ids := create(t, s, p, 3)
	require.Len(t, claim(t, s, p, 1), 1)
	db.Exec(t, `update tasker.board set lease_until = clock_timestamp() - interval '2 hours' where state = 3`)
	db.Exec(t, `update tasker.board set state = 1, enqueued_at = null, due_at = clock_timestamp() - interval '1 hour'
		where task_uuid = (select task_uuid from tasker.board where state = 2 limit 1)`)
	db.Exec(t, `update tasker.board set queue = 0, callable = 0, enqueued_at = clock_timestamp() - interval '3 hours' where state = 2`)
	db.Exec(t, `insert into tasker.task_messages (task_uuid, kind, sent_at) values ($1, 1, clock_timestamp() - interval '4 hours')`, ids[0])
	h, err = s.Horizon(t.Context(), store.Without{})
	require.NoError(t, err)
	for hours, since := range map[int]time.Duration{1: h.Since.Due, 2: h.Since.Lease, 3: h.Since.Engine, 4: h.Since.Messages} {
		require.InDelta(t, float64(hours), since.Hours(), 0.1)
	}
	require.Zero(t, h.NextDue)
	require.Zero(t, h.NextLease)
	require.True(t, h.Engine && h.Messages)
	require.Negative(t, h.NextSchedule)

	db.Exec(t, `update tasker.board set due_at = clock_timestamp() + interval '1 hour' where state = 1`)
	h, err = s.Horizon(t.Context(), store.Without{})
	require.NoError(t, err)
	require.Zero(t, h.Since.Due, "it lies in the future")
	require.InDelta(t, 1, h.NextDue.Hours(), 0.1)
}
