package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/sourcegraph/conc"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/admission"
	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

func setRules(t *testing.T, s *store.Store, p *store.Plan, rules admission.Rules) {
	t.Helper()
	require.NoError(t, s.SetSubmissionLimit(t.Context(), p.Template.Namespace, p.Template.Name, rules,
		store.OperatorAction{Actor: "ana", Action: "set_submission_limit", Reason: "too fast"}))
}

// submitted is a task that comes from outside.
func submitted(p *store.Plan, key, context string) store.NewTask {
	task := keyed(p, key)
	task.Limited, task.Context = true, json.RawMessage(context)
	return task
}

func submit(t *testing.T, s *store.Store, tasks ...store.NewTask) []store.CreatedTask {
	t.Helper()
	answers, err := s.CreateTasks(t.Context(), tasks)
	require.NoError(t, err)
	return answers
}

// orchestrators are three stores of one database.
func orchestrators(t *testing.T) ([]*store.Store, *pgtest.DB) {
	t.Helper()
	first, db := open(t)
	stores := []*store.Store{first}
	for range 2 {
		another, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 8, HoldTimeout: time.Minute})
		require.NoError(t, err)
		t.Cleanup(another.Close)
		stores = append(stores, another)
	}
	return stores, db
}

// Three orchestrators create at once, one by one, in batches and in numbers that are copied
// elsewhere: the throttle holds for each key.
func TestAThrottleHoldsAcrossOrchestrators(t *testing.T) {
	t.Parallel()
	stores, db := orchestrators(t)
	p := plan(t, stores[0], diamondYAML)
	const most = 50
	setRules(t, stores[0], p, admission.Rules{Throttle: &admission.Throttle{Max: most, PeriodMS: 24 * 3600_000, Key: keyAt("customer", "id")}})
	var created, refused atomic.Int64
	work := pool.New()
	for o, s := range stores {
		for part, n := range []int{1, 7, 40, 120} {
			work.Go(func() {
				var tasks []store.NewTask
				for i := range n {
					tasks = append(tasks, submitted(p, fmt.Sprint(o, part, i), fmt.Sprintf(`{"customer":{"id":%d}}`, i%2)))
				}
				for _, a := range submit(t, s, tasks...) {
					switch {
					case a.Throttled:
						refused.Add(1)
					case !a.Duplicate && !a.Busy:
						created.Add(1)
					}
				}
			})
		}
	}
	work.Wait()
	require.EqualValues(t, 2*most, created.Load(), "neither more nor fewer")
	require.EqualValues(t, 3*(1+7+40+120)-2*most, refused.Load())
	require.Equal(t, 2*most, db.QueryInt(t, `select count(*) from tasker.board where slot = 0`))
	noViolations(t, stores[0])
}

func TestAThrottle(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	setRules(t, s, p, admission.Rules{Throttle: &admission.Throttle{Max: 3, PeriodMS: 3_600_000}})
	tasks := []store.NewTask{submitted(p, "a", `{}`), submitted(p, "b", `{"n":1}`), submitted(p, "c", `{}`), submitted(p, "d", `{}`)}
	answers := submit(t, s, tasks...)
	require.False(t, answers[2].Throttled)
	require.True(t, answers[3].Throttled)
	require.InDelta(t, 20*time.Minute, answers[3].RefusedFor, float64(time.Minute), "when a third of the period is over")
	again := submit(t, s, submitted(p, "a", `{}`))[0]
	require.True(t, again.Duplicate, "a repetition takes no place")
	require.Equal(t, tasks[0].UUID, again.UUID)
	require.False(t, submit(t, s, keyed(p, "schedule"))[0].Throttled, "what no limit concerns")

	// Time passes, for the rows.
	pass := func(d string) {
		db.Exec(t, `update tasker.submission_keys set free_at = free_at - $1::text::interval, expires_at = expires_at - $1::text::interval`, d)
	}
	pass("20 minutes")
	answers = submit(t, s, submitted(p, "e", `{}`), submitted(p, "f", `{}`))
	require.Equal(t, []bool{false, true}, []bool{answers[0].Throttled, answers[1].Throttled}, "one place has come free")
	pass("2 hours")
	gone, err := s.Retain(t.Context(), store.RetentionLimits{Batch: 10}, false)
	require.NoError(t, err)
	require.Equal(t, 1, gone.SubmissionKeys, "the row of a key that is idle")

	setRules(t, s, p, admission.Rules{Throttle: &admission.Throttle{Max: 3, PeriodMS: 3_600_000, Burst: 1, Beyond: "delay"}})
	tasks = []store.NewTask{submitted(p, "g", `{}`), submitted(p, "h", `{}`), submitted(p, "i", `{}`)}
	submit(t, s, tasks...)
	for i, task := range tasks {
		require.Equal(t, i*20, db.QueryInt(t, `select round(extract(epoch from coalesce(start_at, requested_at) - requested_at) / 60) from tasker.tasks where task_uuid = $1`, task.UUID))
	}
	require.Equal(t, 2, db.QueryInt(t, `select count(*) from tasker.board b join tasker.tasks t using (task_uuid) where b.state = 1 and b.due_at = t.start_at`))
	noViolations(t, s)

	limits, err := s.SubmissionLimits(t.Context(), "shapes")
	require.NoError(t, err)
	require.Equal(t, 1, limits[0].Throttle.Burst)
	setRules(t, s, p, admission.Rules{})
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.submission_keys`))
	require.False(t, submit(t, s, submitted(p, "j", `{}`))[0].Throttled)
	by := store.OperatorAction{Actor: "ana", Action: "set_submission_limit"}
	require.ErrorIs(t, s.SetSubmissionLimit(t.Context(), "shapes", p.Template.Name, admission.Rules{}, by), store.ErrNotFound)
	require.ErrorIs(t, s.SetSubmissionLimit(t.Context(), "shapes", "nothing", admission.Rules{Throttle: &admission.Throttle{Max: 1, PeriodMS: 1}}, by), store.ErrNotFound)
}

func debounce(t *testing.T, s *store.Store, p *store.Plan, d admission.Debounce) {
	t.Helper()
	setRules(t, s, p, admission.Rules{Debounce: &d})
}

func contextOf(t *testing.T, db *pgtest.DB, id uuid.UUID) string {
	t.Helper()
	context := db.QueryString(t, `select context::text from tasker.tasks where task_uuid = $1`, id)
	require.Equal(t, context, db.QueryString(t, `select coalesce(context::text, $2) from tasker.board where task_uuid = $1 and slot = 0`, id, context))
	return context
}

func TestADebounce(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	debounce(t, s, p, admission.Debounce{QuietMS: 3_600_000, MaxWaitMS: 7_200_000, Key: keyAt("doc")})
	waits := func(id uuid.UUID) int {
		return db.QueryInt(t, `select round(extract(epoch from b.due_at - clock_timestamp()) / 60)
			from tasker.board b join tasker.tasks t using (task_uuid) where b.task_uuid = $1 and b.step_no is not null and b.state = 1 and t.start_at = b.due_at`, id)
	}
	first := submitted(p, "a", `{"doc":1,"v":1}`)
	opened := submit(t, s, first)[0]
	require.True(t, opened.Debounced && !opened.RequestedAt.IsZero())
	require.Equal(t, 60, waits(first.UUID))
	db.Exec(t, `update tasker.submission_keys set first_at = first_at - interval '90 minutes'`)

	// In one batch: another key, in two versions, and the task that waits.
	other := submitted(p, "b", `{"doc":2,"v":1}`)
	answers := submit(t, s, other, submitted(p, "c", `{"doc":1,"v":2}`), submitted(p, "d", `{"doc":2,"v":2}`))
	require.Equal(t, []uuid.UUID{other.UUID, first.UUID, other.UUID}, []uuid.UUID{answers[0].UUID, answers[1].UUID, answers[2].UUID})
	require.JSONEq(t, `{"doc":1,"v":2}`, contextOf(t, db, first.UUID))
	require.JSONEq(t, `{"doc":2,"v":2}`, contextOf(t, db, other.UUID))
	require.Equal(t, 60, waits(first.UUID), "never earlier than it was")
	require.Equal(t, 2, db.QueryInt(t, `select count(*) from tasker.board where slot = 0`))

	// The keys of all that became the task are taken by it; a repeated request changes nothing.
	again := submit(t, s, submitted(p, "c", `{"doc":1,"v":1}`))[0]
	require.True(t, again.Duplicate)
	require.Equal(t, first.UUID, again.UUID)
	require.JSONEq(t, `{"doc":1,"v":2}`, contextOf(t, db, first.UUID))

	large := fmt.Sprintf(`{"doc": 1, "v": %q}`, strings.Repeat("x", 600))
	require.True(t, submit(t, s, submitted(p, "e", large))[0].Debounced)
	require.True(t, db.QueryBool(t, `select context is null from tasker.board where task_uuid = $1 and slot = 0`, first.UUID), "carried along no more")
	require.JSONEq(t, large, contextOf(t, db, first.UUID))

	debounce(t, s, p, admission.Debounce{QuietMS: 3_600_000, Key: keyAt("doc"), Keep: "first"})
	require.Equal(t, other.UUID, submit(t, s, submitted(p, "f", `{"doc":2,"v":3}`))[0].UUID)
	require.JSONEq(t, `{"doc":2,"v":2}`, contextOf(t, db, other.UUID))

	// It has begun: the next submission is a task of its own.
	db.Exec(t, `update tasker.board set due_at = now() where task_uuid = $1 and due_at is not null`, other.UUID)
	db.Exec(t, `update tasker.submission_keys set starts_at = (select due_at from tasker.board b where b.task_uuid = $1 and due_at is not null) where task_uuid = $1`, other.UUID)
	promoted, err := s.PromoteDue(t.Context(), store.UpTo(10))
	require.NoError(t, err)
	require.Equal(t, 1, promoted.Steps)
	next := submitted(p, "g", `{"doc":2,"v":4}`)
	require.Equal(t, next.UUID, submit(t, s, next)[0].UUID)
	require.JSONEq(t, `{"doc":2,"v":2}`, contextOf(t, db, other.UUID))
	noViolations(t, s)
}

// A task that is known by its context has that of the latest submission, also where an earlier
// one had the same.
func TestADebounceOfContexts(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	debounce(t, s, p, admission.Debounce{QuietMS: 3_600_000})
	of := func(context string) store.NewTask {
		task := submitted(p, context, context) // known by it, and not by a key
		task.IdempotencyKey = ""
		return task
	}
	first := of(`{"v":1}`)
	for _, task := range []store.NewTask{first, of(`{"v":2}`), of(`{"v":1}`)} {
		answer := submit(t, s, task)[0]
		require.Equal(t, first.UUID, answer.UUID)
		require.True(t, answer.Debounced && !answer.Duplicate)
		require.JSONEq(t, string(task.Context), contextOf(t, db, first.UUID))
	}
	for _, a := range submit(t, s, of(`{"v":3}`), of(`{"v":3}`)) {
		require.Equal(t, first.UUID, a.UUID)
		require.True(t, a.Debounced)
	}
	noViolations(t, s)
}

// Submissions from three orchestrators and the start of the task race: the last submission
// answered before a task begins is what that task has, and none is lost.
func TestADebounceRacesAgainstTheStart(t *testing.T) {
	t.Parallel()
	stores, db := orchestrators(t)
	p := plan(t, stores[0], diamondYAML)
	debounce(t, stores[0], p, admission.Debounce{QuietMS: 1, MaxWaitMS: 5})
	ctx, stop := context.WithCancel(t.Context())
	var starter conc.WaitGroup
	starter.Go(func() {
		for ctx.Err() == nil {
			_, err := stores[0].PromoteDue(t.Context(), store.UpTo(10))
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	const each = 60
	got := make([][]uuid.UUID, len(stores))
	for half := range 2 {
		work := pool.New()
		for o, s := range stores {
			work.Go(func() {
				for i := half * each / 2; i < (half+1)*each/2; i++ {
					answers, err := s.CreateTasks(t.Context(), []store.NewTask{submitted(p, fmt.Sprint(o, "-", i), fmt.Sprintf(`{"o":%d,"i":%d}`, o, i))})
					if err != nil || answers[0].Duplicate || answers[0].Busy {
						t.Error(err, answers)
						return
					}
					got[o] = append(got[o], answers[0].UUID)
				}
			})
		}
		work.Wait()
		pgtest.Eventually(t, 20*time.Second, func() (bool, string) {
			return !db.QueryBool(t, `select exists (select from tasker.board where due_at is not null)`), "a task that no submission follows has not begun"
		})
	}
	stop()
	starter.Wait()
	for o, ids := range got {
		for i, id := range ids {
			// Of the submissions of one sender the context of a task is never an older one than its last.
			last := i == len(ids)-1 || ids[i+1] != id
			if last {
				require.True(t, db.QueryBool(t, `select (context ->> 'o')::int <> $2 or (context ->> 'i')::int = $3 from tasker.tasks where task_uuid = $1`, id, o, i))
			}
		}
	}
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.task_identities i where not exists (select from tasker.board b where b.task_uuid = i.task_uuid)`))
	tasks := db.QueryInt(t, `select count(*) from tasker.board where slot = 0`)
	require.Greater(t, tasks, 1, "some have begun in between")
	require.Less(t, tasks, len(stores)*each, "some have become one")
	noViolations(t, stores[0])
}

// A submission waits for a start that is under way, and then opens a task of its own.
func TestASubmissionWaitsForTheStart(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	debounce(t, s, p, admission.Debounce{QuietMS: 3_600_000})
	first, next := submitted(p, "a", `{"v":1}`), submitted(p, "b", `{"v":2}`)
	submit(t, s, first)
	starting := beginOn(t, db, pgx.TxOptions{})
	_, err := starting.Exec(t.Context(), `update tasker.board set state = 2, due_at = null, enqueued_at = now() where task_uuid = $1 and step_no is not null`, first.UUID)
	require.NoError(t, err)
	var answers []store.CreatedTask
	var work conc.WaitGroup
	work.Go(func() { answers, err = s.CreateTasks(t.Context(), []store.NewTask{next}) })
	pgtest.Eventually(t, 20*time.Second, func() (bool, string) {
		return db.QueryBool(t, `select exists (select from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock' and now() - query_start > '400 ms')`), "nothing waits"
	})
	require.NoError(t, starting.Commit(t.Context()))
	work.Wait()
	require.NoError(t, err)
	require.Equal(t, next.UUID, answers[0].UUID)
	require.JSONEq(t, `{"v":1}`, contextOf(t, db, first.UUID))
	noViolations(t, s)
}

func keyAt(path ...string) limitrule.Key { return limitrule.Key{KeyPath: path} }

// Templates without limits go on as before beside one that has some, and the key of a rule
// is found like that of a limit of a callable.
func TestLimitsConcernTheirTemplateAlone(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	other := plan(t, s, strings.Replace(diamondYAML, "name: diamond", "name: other", 1))
	setRules(t, s, p, admission.Rules{Throttle: &admission.Throttle{Max: 1, PeriodMS: 3_600_000, Key: limitrule.Key{KeyTag: "tenant:"}}})
	tagged := func(key string, tags ...string) store.NewTask {
		task := submitted(p, key, `{}`)
		task.Tags = tags
		return task
	}
	tasks := []store.NewTask{tagged("a", "x", "tenant:a"), tagged("b", "tenant:b"), tagged("c", "tenant:a"), tagged("d"), tagged("e", "tenant")}
	for i := range 100 {
		tasks = append(tasks, submitted(other, fmt.Sprint(i), `{}`))
	}
	for _, answers := range [][]store.CreatedTask{submit(t, s, tasks...), submit(t, s, tasks...)} { // the second time the plans are known
		for i, a := range answers {
			require.Equal(t, i == 2 || i == 4, a.Throttled, i)
		}
	}
	require.Equal(t, 103, db.QueryInt(t, `select count(*) from tasker.tasks`))
	require.True(t, p.Limited.Load())
	require.False(t, other.Limited.Load())
	setRules(t, s, p, admission.Rules{})
	require.False(t, submit(t, s, tagged("f", "tenant:a"))[0].Throttled)
	require.False(t, p.Limited.Load(), "and what is remembered ends with the limits")
	noViolations(t, s)
}

// Creations look at governed alone: it knows of quotas that programs of the version before
// set, and forgets what has ended, whatever comes at once.
func TestGovernedNamespaces(t *testing.T) {
	t.Parallel()
	stores, db := orchestrators(t)
	p := plan(t, stores[0], diamondYAML)
	rules := func() int { return db.QueryInt(t, `select coalesce((select sum(rules) from tasker.governed), 0)`) }
	db.Exec(t, `insert into tasker.quotas (namespace_id, max_tasks, changed_by) values ($1, 1, 'before')`, p.Queue)
	setRules(t, stores[0], p, admission.Rules{Throttle: &admission.Throttle{Max: 1, PeriodMS: 1}})
	require.Equal(t, 2, rules())
	answers := submit(t, stores[0], submitted(p, "a", `{}`), submitted(p, "b", `{}`))
	require.Positive(t, answers[1].RefusedFor)
	work := pool.New()
	for _, s := range stores {
		for range 2 {
			work.Go(func() {
				for range 10 {
					_, err := s.SetQuota(t.Context(), "shapes", 9, nil, store.OperatorAction{Actor: "ana", Action: "set_quota"})
					if err == nil {
						_, err = s.DeleteQuota(t.Context(), "shapes", store.OperatorAction{Actor: "ana", Action: "delete_quota"})
					}
					if err != nil && !errors.Is(err, store.ErrNotFound) {
						t.Error(err)
					}
				}
			})
		}
	}
	work.Wait()
	require.Equal(t, 1, rules(), "the limits")
	setRules(t, stores[0], p, admission.Rules{})
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.governed`))

	setQuota(t, stores[0], 7)
	m, err := store.NewMigrator(db.DSN)
	require.NoError(t, err)
	for version := int64(0); version != 114; {
		version, err = m.Down(t.Context())
		require.NoError(t, err)
	}
	_, err = m.Up(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, rules(), "of before the migration")
}

// Tasks of a template with limits are not claimed with their creation, those beside them are.
func TestCreateAndClaimWithLimits(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, strings.Replace(diamondYAML, "name: diamond", "name: free", 1))
	limited := plan(t, s, diamondYAML)
	setRules(t, s, limited, admission.Rules{Throttle: &admission.Throttle{Max: 2, PeriodMS: 86_400_000, Burst: 1, Beyond: "delay"}})
	tasks := []store.NewTask{submitted(limited, "a", `{}`), submitted(p, "b", `{}`), submitted(limited, "c", `{}`), submitted(limited, "a", `{}`)}
	answers, claimed, err := s.CreateAndClaim(t.Context(), tasks, taker(p, 9))
	require.NoError(t, err)
	for i, a := range answers {
		require.Equal(t, i == 3, a.Duplicate, i)
		require.Equal(t, i == 3, a.RequestedAt.IsZero(), i)
	}
	require.Len(t, claimed, 1)
	require.Equal(t, tasks[1].UUID, claimed[0].TaskUUID)
	require.Equal(t, answers[0].UUID, answers[3].UUID)
	noViolations(t, s)
}

// What a template declares counts until an operator sets something else, and again after it.
func TestLimitsOfATemplate(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	declared := func(version string, limit int) *store.Plan {
		return plan(t, s, fmt.Sprintf("%s\nsubmission: {throttle: {max: %d, period_ms: 3600000}}\n", strings.Replace(diamondYAML, "version: 1.0.0", "version: "+version, 1), limit))
	}
	one, two := declared("1.1.0", 1), declared("1.2.0", 2)
	none := plan(t, s, diamondYAML)
	throttled := func(p *store.Plan, key string) bool { return submit(t, s, submitted(p, key, `{}`))[0].Throttled }
	listed := func() store.SubmissionLimit {
		limits, err := s.SubmissionLimits(t.Context(), "shapes")
		require.NoError(t, err)
		require.Len(t, limits, 1)
		return limits[0]
	}
	require.Equal(t, "1.2.0", listed().Version)
	require.Equal(t, 2, listed().Throttle.Max)
	require.False(t, throttled(one, "a"))
	require.True(t, throttled(one, "b"))
	require.False(t, throttled(none, "c"))
	setRules(t, s, none, admission.Rules{Throttle: &admission.Throttle{Max: 1000, PeriodMS: 1}})
	require.Empty(t, listed().Version)
	pgtest.Eventually(t, 20*time.Second, func() (bool, string) { return !throttled(one, "d"), "places come free at the new rate" })
	declared("1.2.0", 2) // as each daemon does when it starts
	require.Empty(t, listed().Version)
	setRules(t, s, none, admission.Rules{})
	require.Equal(t, "1.2.0", listed().Version)
	require.False(t, throttled(one, "e"))
	require.True(t, throttled(one, "f"))
	require.True(t, throttled(two, "g"), "its versions have the places of a key together")

	tmpl := *one.Template
	tmpl.Submission = json.RawMessage(`{"throttle": {"max": 0}}`)
	_, err := s.RegisterTemplates(t.Context(), store.Registrant{Environment: "test"}, []*workflow.Template{&tmpl})
	require.ErrorContains(t, err, "throttle.max must be between 1 and 1000000")
	noViolations(t, s)
}
