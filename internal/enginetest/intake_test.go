package enginetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// intake is an engine with a template for each way to take tasks in. Its
// handler fails while broken.
type intake struct {
	*enginetest.Engine
	t        *testing.T
	broken   atomic.Bool
	attempts sync.Map // IsLastAttempt in handlers, by task and attempt
}

var intakeTemplates = map[string]string{
	"strict":  "identity_strategy: STRICT",
	"keyed":   "identity_strategy: CALLER_PROVIDED",
	"unique":  "identity: {strategy: always_unique}",
	"window":  "identity: {window: 1h}",
	"daily":   "identity: {calendar: day, time_zone: Europe/Berlin}",
	"short":   "identity: {strategy: caller_provided, key_lifetime: 90s}",
	"urgent":  "priority_level: 2",
	"twostep": "",
}

func newIntake(t *testing.T, options ...enginetest.Option) *intake {
	in := &intake{t: t}
	in.Engine = enginetest.Start(t, func(w *worker.Worker) error {
		for name, keys := range intakeTemplates {
			text := fmt.Sprintf("name: %s\nnamespace_name: test\nversion: 1.0.0\n%s\nsteps:\n  - name: a\n    handler: {callable: test.work}\n"+
				"    retry: {max_attempts: 2, backoff: fixed, backoff_base_ms: 5}\n", name, keys)
			if name == "twostep" {
				text += "  - {name: b, dependencies: [a], handler: {callable: test.work}}\n  - {name: c, dependencies: [a], handler: {callable: test.work}}\n"
			}
			template, _, err := template.Parse("t.yaml", []byte(text))
			if err != nil {
				return err
			}
			if err := w.RegisterTemplate(template); err != nil {
				return err
			}
		}
		return w.Register("test.work", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			in.attempts.Store(fmt.Sprintf("%s/%d", ctx.TaskUUID(), ctx.Attempt()), ctx.IsLastAttempt())
			if in.broken.Load() {
				return nil, errors.New("broken")
			}
			return ctx.Attempt(), nil
		}))
	}, options...)
	return in
}

func (in *intake) request(name, key string) orchestration.Request {
	return orchestration.Request{Namespace: "test", Name: name, Version: "1.0.0", Context: json.RawMessage(`{"n":1}`), IdempotencyKey: key}
}

type outcome struct {
	created orchestration.Created
	err     error
}

// crowd makes a request fifty times at once, over two orchestrators.
func (in *intake) crowd(two [2]*orchestration.Orchestrator, r orchestration.Request) []outcome {
	outcomes := make([]outcome, 50)
	var wg sync.WaitGroup
	for i := range outcomes {
		wg.Go(func() { outcomes[i].created, outcomes[i].err = two[i%2].Create(context.Background(), r) })
	}
	wg.Wait()
	return outcomes
}

// TestACrowdAsksForOneTask: fifty requests at once, on two orchestrators, for
// each strategy, with and without a key.
func TestACrowdAsksForOneTask(t *testing.T) {
	t.Parallel()
	in := newIntake(t)
	two := [2]*orchestration.Orchestrator{in.Orchestrator, in.AnotherOrchestrator()}
	rows := func(name string) int {
		return in.DB.QueryInt(t, `select count(*) from tasker.tasks join tasker.plans using (plan_id) where name = $1`, name)
	}
	for _, tt := range []struct {
		name, key            string
		created, dup, refuse int
	}{
		{"strict", "", 1, 49, 0}, {"keyed", "", 0, 0, 50}, {"unique", "", 50, 0, 0},
		{"strict", "k", 1, 49, 0}, {"keyed", "k", 1, 49, 0}, {"unique", "k", 1, 49, 0},
		{"window", "", 1, 49, 0}, {"daily", "", 1, 49, 0},
	} {
		before := rows(tt.name)
		var created, dup, refused int
		var made, existing uuid.UUID
		for _, o := range in.crowd(two, in.request(tt.name, tt.key)) {
			var duplicate *orchestration.DuplicateError
			var invalid *orchestration.InvalidError
			switch {
			case o.err == nil:
				created++
				made = o.created.UUID
			case errors.As(o.err, &duplicate):
				dup++
				existing = duplicate.Existing
			case errors.As(o.err, &invalid):
				refused++
				require.ErrorContains(t, o.err, "the template test/keyed/1.0.0 knows its tasks by the keys")
				require.ErrorContains(t, o.err, "send idempotency_key")
			default:
				require.NoError(t, o.err)
			}
		}
		require.Equal(t, []int{tt.created, tt.dup, tt.refuse}, []int{created, dup, refused}, "%s %q", tt.name, tt.key)
		require.Equal(t, tt.created, rows(tt.name)-before, "%s %q", tt.name, tt.key)
		if tt.key != "" {
			require.Equal(t, made, existing)
		} else {
			require.Equal(t, uuid.Nil, existing)
		}
	}
}

// TestACrowdUsesWhatExists: all requests get the same task.
func TestACrowdUsesWhatExists(t *testing.T) {
	t.Parallel()
	in := newIntake(t)
	two := [2]*orchestration.Orchestrator{in.Orchestrator, in.AnotherOrchestrator()}
	r := in.request("strict", "k")
	r.Conflict = submission.ConflictUseExisting
	fresh, seen := 0, map[uuid.UUID]bool{}
	for _, o := range in.crowd(two, r) {
		require.NoError(t, o.err)
		seen[o.created.UUID] = true
		if !o.created.Existing {
			fresh++
		}
	}
	require.Len(t, seen, 1)
	require.Equal(t, 1, fresh)

	// The same within one request for many.
	other := in.request("strict", "k2")
	other.Conflict = submission.ConflictUseExisting
	results := in.Orchestrator.CreateMany(t.Context(), []orchestration.Request{other, r, other, in.request("strict", "k2"), in.request("unique", ""), in.request("unique", "")})
	require.NoError(t, results[0].Err)
	require.False(t, results[0].Existing)
	require.True(t, results[1].Existing && seen[results[1].UUID])
	require.True(t, results[2].Existing)
	require.Equal(t, results[0].UUID, results[2].UUID)
	var duplicate *orchestration.DuplicateError
	require.ErrorAs(t, results[3].Err, &duplicate)
	require.Equal(t, results[0].UUID, duplicate.Existing)
	require.NoError(t, results[4].Err)
	require.NoError(t, results[5].Err)
}

// TestAWindowThatIsOverIsTakenOnce: when the window of an identity is over, one of the
// crowd gets it, and a new window begins.
func TestAWindowThatIsOverIsTakenOnce(t *testing.T) {
	t.Parallel()
	in := newIntake(t)
	two := [2]*orchestration.Orchestrator{in.Orchestrator, in.AnotherOrchestrator()}
	for _, name := range []string{"window", "daily"} {
		_, err := in.Orchestrator.Create(t.Context(), in.request(name, ""))
		require.NoError(t, err)
		for range 3 {
			// The window ends at this moment, by the database's clock.
			require.EqualValues(t, 1, in.DB.Exec(t, `update tasker.task_identities set expires_at = clock_timestamp() where expires_at < 'infinity'
				and task_uuid in (select task_uuid from tasker.tasks join tasker.plans using (plan_id) where name = $1)
				and expires_at > clock_timestamp()`, name))
			created := 0
			for _, o := range in.crowd(two, in.request(name, "")) {
				if o.err == nil {
					created++
					continue
				}
				var duplicate *orchestration.DuplicateError
				require.ErrorAs(t, o.err, &duplicate)
			}
			require.Equal(t, 1, created, name)
		}
	}
}

func TestIdentitiesEndByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	in := newIntake(t)
	end := func(name, key, as string) bool {
		created, err := in.Orchestrator.Create(t.Context(), in.request(name, key))
		require.NoError(t, err)
		return in.DB.QueryBool(t, `select i.expires_at = `+as+` from tasker.task_identities i join tasker.tasks t using (task_uuid) where task_uuid = $1`, created.UUID)
	}
	require.True(t, end("strict", "", "'infinity'"))
	require.True(t, end("strict", "k", "'infinity'"))
	require.True(t, end("window", "", "t.requested_at + interval '1 hour'"))
	require.True(t, end("window", "k", "t.requested_at + interval '1 hour'"))
	require.True(t, end("short", "k", "t.requested_at + interval '90 s'"))
	require.True(t, end("daily", "", "((t.requested_at at time zone 'Europe/Berlin')::date + 1)::timestamp at time zone 'Europe/Berlin'"))
	require.True(t, end("unique", "", "t.requested_at + interval '1 hour'"))
}

// TestTheZoneOfACalendarIsTheServers: a zone unknown to the database is rejected when the
// template is registered, not when a task is created.
func TestTheZoneOfACalendarIsTheServers(t *testing.T) {
	t.Parallel()
	in := newIntake(t)
	plan, err := in.Store.PlanNamed(t.Context(), "test", "daily", "1.0.0")
	require.NoError(t, err)
	template := *plan.Template
	template.Identity = &workflow.IdentityPolicy{Calendar: workflow.CalendarDay, TimeZone: "Mars/Olympus"}
	_, err = in.Store.RegisterTemplates(t.Context(), store.Registrant{Environment: "test"}, []*workflow.Template{&template})
	require.ErrorContains(t, err, "Mars/Olympus")
	_, err = in.Orchestrator.Create(t.Context(), in.request("daily", ""))
	require.NoError(t, err, "the previous version is in force")
}

func TestATaskIsFoundByItsKey(t *testing.T) {
	t.Parallel()
	in := newIntake(t)
	created, err := in.Orchestrator.Create(t.Context(), in.request("short", "k"))
	require.NoError(t, err)
	find := func(name, key string) (uuid.UUID, error) {
		return in.Store.TaskOfIdentity(t.Context(), dedup.KeyIdentity("test", name, key))
	}
	found, err := find("short", "k")
	require.NoError(t, err)
	require.Equal(t, created.UUID, found)
	for _, other := range [][2]string{{"short", "K"}, {"keyed", "k"}} {
		_, err = find(other[0], other[1])
		require.ErrorIs(t, err, store.ErrNotFound)
	}
	in.DB.Exec(t, `update tasker.task_identities set expires_at = clock_timestamp()`)
	_, err = find("short", "k")
	require.ErrorIs(t, err, store.ErrNotFound, "its time is over")
}

func TestTemplatesHavePriorities(t *testing.T) {
	t.Parallel()
	in := newIntake(t)
	own := in.request("urgent", "own")
	own.Priority = ptr(-3)
	for want, r := range map[int]orchestration.Request{60: in.request("urgent", "k"), -3: own, 0: in.request("strict", "k")} {
		created, err := in.Orchestrator.Create(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, want, created.Priority)
		require.Equal(t, want, in.Await(created.UUID).Priority)
	}
}

func TestTheStartIsTheDatabasesBusiness(t *testing.T) {
	t.Parallel()
	in := newIntake(t)
	var now time.Time
	require.NoError(t, in.DB.Pool(t).QueryRow(t.Context(), `select clock_timestamp()`).Scan(&now))
	for i, name := range []string{"strict", "twostep"} {
		past := in.request(name, "past")
		past.StartAt = ptr(now.Add(-time.Duration(i+1) * 400 * 24 * time.Hour))
		created, err := in.Orchestrator.Create(t.Context(), past)
		require.NoError(t, err)
		task := in.Await(created.UUID)
		require.Equal(t, workflow.TaskComplete, task.State)
		require.Nil(t, task.StartAt)

		later := in.request(name, "later")
		later.StartAt = ptr(now.Add(time.Hour).Truncate(time.Microsecond))
		created, err = in.Orchestrator.Create(t.Context(), later)
		require.NoError(t, err)
		task = in.Read(created.UUID)
		require.WithinDuration(t, *later.StartAt, *task.StartAt, 0)
		require.WithinDuration(t, *later.StartAt, *task.Steps[0].NextRetryAt, 0, "to the microsecond")
		in.DB.Exec(t, `update tasker.board set due_at = clock_timestamp() where task_uuid = $1 and state = 1`, created.UUID)
		in.Bus.Publish(signal.Signal{Topic: signal.TopicDue})
		require.Equal(t, workflow.TaskComplete, in.Await(created.UUID).State)
	}
	soon := in.request("strict", "soon")
	soon.StartAt = ptr(now.Add(time.Second))
	created, err := in.Orchestrator.Create(t.Context(), soon)
	require.NoError(t, err)
	require.Equal(t, workflow.TaskComplete, in.Await(created.UUID).State)
	require.True(t, in.DB.QueryBool(t, `select min(claimed_at) >= $2 from tasker.step_attempts where task_uuid = $1`, created.UUID, *soon.StartAt))
}

// TestATaskHasRetriesOfItsOwn: exact delays instead of the template's, and as many
// retries as delays, also after a change of the orchestrators.
func TestATaskHasRetriesOfItsOwn(t *testing.T) {
	t.Parallel()
	in := newIntake(t, func(c *orchestration.Config, _ *worker.Config) {
		c.Rules.Backoff.Jitter, c.Rules.Backoff.Max = 1, time.Second
	})
	in.broken.Store(true)
	r := in.request("twostep", "k")
	r.RetryDelays = []time.Duration{time.Hour, 2 * time.Hour, 3 * time.Hour}
	created, err := in.Orchestrator.Create(t.Context(), r)
	require.NoError(t, err)
	id := created.UUID
	for attempt, delay := range r.RetryDelays {
		in.Until(id, func(now *store.Task) bool {
			return now.Steps[0].Attempts == attempt+1 && now.Steps[0].NextRetryAt != nil
		})
		require.Equal(t, []int64{3_600_000, 7_200_000, 10_800_000}, in.Read(id).Progress.Retry.DelaysMS)
		require.True(t, in.DB.QueryBool(t, `select b.due_at between a.reported_at + $3 * interval '1 s' and a.reported_at + ($3 + 60) * interval '1 s'
			from tasker.board b join tasker.step_attempts a using (task_uuid)
			where b.task_uuid = $1 and b.state = 1 and a.step_no = 0 and a.attempt = $2`, id, attempt+1, int(delay.Seconds())))
		last, ok := in.attempts.Load(fmt.Sprintf("%s/%d", id, attempt+1))
		require.True(t, ok)
		require.Equal(t, false, last, "the handler knows that there is another attempt")
		if attempt == 0 { // the orchestrator is replaced by a new one
			require.NoError(t, in.Orchestrator.Stop(t.Context()))
			in.Orchestrator = in.AnotherOrchestrator()
		}
		in.DB.Exec(t, `update tasker.board set due_at = clock_timestamp() where task_uuid = $1 and state = 1`, id)
		in.Bus.Publish(signal.Signal{Topic: signal.TopicDue})
	}
	task := in.Await(id)
	require.Equal(t, workflow.TaskError, task.State)
	require.Equal(t, 4, task.Steps[0].Attempts, "the first, and one for each delay")
	last, _ := in.attempts.Load(fmt.Sprintf("%s/%d", id, 4))
	require.Equal(t, true, last)

	// An operator's reset keeps its retries.
	reset := in.Read(id)
	first := ptr(store.StepUUID(id, 0))
	require.NoError(t, in.Orchestrator.Act(t.Context(), id, by(orchestration.ActionResetForRetry, first)))
	in.Until(id, func(now *store.Task) bool { return now.Steps[0].Attempts == 1 && now.Steps[0].NextRetryAt != nil })
	require.Equal(t, reset.Progress.Retry, in.Read(id).Progress.Retry)
	replayed, err := in.Orchestrator.Replay(t.Context(), id, orchestration.Replay{Actor: "ana", Reason: "once more"})
	require.NoError(t, err)
	require.Equal(t, reset.Progress.Retry, in.Read(replayed.UUID).Progress.Retry, "a replay has the same retries")
	in.broken.Store(false)
	for _, task := range []uuid.UUID{id, replayed.UUID} {
		in.Until(task, func(now *store.Task) bool {
			in.DB.Exec(t, `update tasker.board set due_at = clock_timestamp() where task_uuid = $1 and state = 1`, task)
			in.Bus.Publish(signal.Signal{Topic: signal.TopicDue})
			return now.State == workflow.TaskComplete
		})
	}
	require.NoError(t, in.Orchestrator.Act(t.Context(), id, by(orchestration.ActionRunAgain, first)))
	require.Equal(t, workflow.TaskComplete, in.Await(id).State)
	require.Equal(t, reset.Progress.Retry, in.Read(id).Progress.Retry)
}

func TestATaskHasAttemptsOfItsOwn(t *testing.T) {
	t.Parallel()
	in := newIntake(t)
	in.broken.Store(true)
	for _, attempts := range []int{1, 2, 5} {
		r := in.request("strict", fmt.Sprint(attempts))
		r.MaxAttempts = attempts
		created, err := in.Orchestrator.Create(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, attempts, in.Await(created.UUID).Steps[0].Attempts)
		last, _ := in.attempts.Load(fmt.Sprintf("%s/%d", created.UUID, attempts))
		require.Equal(t, true, last)
	}
}
