package store_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
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
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// keyless is a submission that is known by its context.
func keyless(p *store.Plan, context string) store.NewTask {
	task := submitted(p, context, context)
	task.IdempotencyKey = ""
	return task
}

// A batch is judged like its submissions one by one: whose context the task has, which of
// them it answers, and what repeats an identity.
func TestABatchIsDebouncedLikeItsSubmissionsOneByOne(t *testing.T) {
	t.Parallel()
	for name, contexts := range map[string][]string{
		"another in between": {`{"v":1}`, `{"v":2}`, `{"v":1}`},
		"the last is new":    {`{"v":1}`, `{"v":2}`, `{"v":1}`, `{"v":3}`},
		"keys":               {`{"v":1,"k":1}`, `{"v":1,"k":2}`, `{"v":2,"k":1}`, `{"v":1,"k":1}`, `{"v":3,"k":2}`, `{"v":1,"k":2}`},
		"with keys":          {`a {"v":1}`, `b {"v":2}`, `a {"v":3}`, `{"v":2}`, `b {"v":4}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var outcomes [2][]string
			for way := range outcomes {
				s, db := open(t)
				p := plan(t, s, diamondYAML)
				debounce(t, s, p, admission.Debounce{QuietMS: 3_600_000, Key: keyAt("k")})
				for _, waiting := range []bool{false, true} { // a task that the statement creates, and one that exists
					tasks, place := []store.NewTask{}, map[uuid.UUID]int{}
					for i, context := range contexts {
						key, document, keyed := strings.Cut(context, " ")
						task := keyless(p, context)
						if keyed {
							task = submitted(p, fmt.Sprint(waiting, key), document)
						}
						tasks, place[task.UUID] = append(tasks, task), i+1
					}
					var answers []store.CreatedTask
					if way == 0 {
						answers = submit(t, s, tasks...)
					} else {
						for _, task := range tasks {
							answers = append(answers, submit(t, s, task)...)
						}
					}
					for _, a := range answers {
						outcomes[way] = append(outcomes[way], fmt.Sprint(place[a.UUID], !a.RequestedAt.IsZero(), a.Duplicate, a.Debounced, contextOf(t, db, a.UUID)))
					}
				}
				noViolations(t, s)
			}
			n := len(contexts) // between submissions one by one the context changes
			for i := range outcomes[0] {
				if last := i%n == n-1; last {
					require.Equal(t, outcomes[1][i], outcomes[0][i])
				}
				one, many := strings.SplitN(outcomes[1][i], " {", 2), strings.SplitN(outcomes[0][i], " {", 2)
				require.Equal(t, one[0], many[0], i)
			}
		})
	}
}

// A repetition within a batch whose first one is refused is refused, too.
func TestARepetitionOfARefusedSubmissionIsRefused(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, diamondYAML)
	setRules(t, s, p, admission.Rules{Throttle: &admission.Throttle{Max: 1, PeriodMS: 3_600_000}})
	answers := submit(t, s, submitted(p, "a", `{}`), submitted(p, "b", `{}`), submitted(p, "b", `{}`), keyless(p, `{"c":1}`), keyless(p, `{"c":1}`))
	for _, a := range answers[1:] {
		require.True(t, a.Throttled && !a.Duplicate, "%+v", a)
		require.Positive(t, a.RefusedFor)
	}
	setQuota(t, s, 1)
	setRules(t, s, p, admission.Rules{})
	answers = submit(t, s, submitted(p, "b", `{}`), submitted(p, "b", `{}`))
	require.Positive(t, answers[1].RefusedFor)
	require.False(t, answers[1].Throttled || answers[1].Duplicate)
}

// cutting is a way to a database whose next answer can get lost with the connection.
func cutting(t *testing.T, db *pgtest.DB) (dsn string, cut *atomic.Bool) {
	t.Helper()
	cfg, err := pgx.ParseConfig(db.TCPDSN)
	require.NoError(t, err)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	cut = &atomic.Bool{}
	var work conc.WaitGroup
	t.Cleanup(func() { _ = l.Close(); work.Wait() })
	work.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := (&net.Dialer{}).DialContext(context.WithoutCancel(t.Context()), "tcp", fmt.Sprintf("%s:%d", cfg.Host, cfg.Port))
			if err != nil {
				_ = near.Close()
				t.Error(err)
				return
			}
			work.Go(func() { _, _ = io.Copy(far, near); _ = far.Close() })
			work.Go(func() {
				defer func() { _ = near.Close() }()
				for b := make([]byte, 64<<10); ; {
					n, err := far.Read(b)
					if err != nil || bytes.HasSuffix(b[:n], []byte("Z\x00\x00\x00\x05I")) && cut.CompareAndSwap(true, false) {
						return
					}
					if _, err := near.Write(b[:n]); err != nil {
						return
					}
				}
			})
		}
	})
	return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", cfg.User, cfg.Password, l.Addr(), cfg.Database), cut
}

// The answer of a creation is lost, and the store tries it again: it is answered as the
// first time, and takes no second place.
func TestALostAnswer(t *testing.T) {
	t.Parallel()
	near, db := open(t)
	p := plan(t, near, diamondYAML)
	dsn, cut := cutting(t, db)
	s, err := store.Open(t.Context(), store.Options{URL: dsn, MaxConns: 1})
	require.NoError(t, err)
	defer s.Close()
	again := func(tasks ...store.NewTask) []store.CreatedTask {
		t.Helper()
		cut.Store(true)
		answers := submit(t, s, tasks...)
		require.False(t, cut.Load(), "an answer was lost")
		return answers
	}
	setRules(t, near, p, admission.Rules{Throttle: &admission.Throttle{Max: 3, PeriodMS: 86_400_000}, Debounce: &admission.Debounce{QuietMS: 3_600_000, Key: keyAt("k")}})
	submit(t, s, submitted(p, "prepares the statement", `{"k":0}`))
	opened := []store.NewTask{submitted(p, "a", `{"k":1,"v":1}`), keyless(p, `{"k":1,"v":2}`), submitted(p, "b", `{"k":1,"v":3}`)}
	answers := again(opened...)
	require.False(t, answers[0].RequestedAt.IsZero(), "it is created")
	for _, a := range answers {
		require.Equal(t, opened[0].UUID, a.UUID)
		require.False(t, a.Duplicate, "%+v", a)
	}
	require.JSONEq(t, `{"k":1,"v":3}`, contextOf(t, db, opened[0].UUID))
	for _, task := range []store.NewTask{submitted(p, "c", `{"k":1,"v":4}`), keyless(p, `{"k":1,"v":5}`)} {
		a := again(task)[0]
		require.Equal(t, opened[0].UUID, a.UUID)
		require.True(t, a.Debounced && !a.Duplicate, "%+v", a)
		require.JSONEq(t, string(task.Context), contextOf(t, db, opened[0].UUID))
	}
	last := again(keyless(p, `{"k":2}`))[0]
	require.False(t, last.RequestedAt.IsZero() || last.Duplicate, "%+v", last)
	require.True(t, submit(t, s, submitted(p, "d", `{"k":3}`))[0].Throttled, "three have places")
	require.Equal(t, 3, db.QueryInt(t, `select count(*) from tasker.tasks`))

	// A client that repeats a request with its key is told of the task.
	repeated := submit(t, s, submitted(p, "c", `{"k":1,"v":4}`))[0]
	require.True(t, repeated.Duplicate)
	require.Equal(t, opened[0].UUID, repeated.UUID)
	noViolations(t, near)
}

// Three orchestrators create the same keys of several templates in different orders, in
// batches, with repetitions, while steps begin, an operator changes the rules and templates
// are registered: none waits for another one for ever, and each key is limited exactly.
func TestLimitedBatchesInDifferentOrders(t *testing.T) {
	t.Parallel()
	stores, db := orchestrators(t)
	const most, keys, rounds, senders = 5, 4, 6, 2
	var plans []*store.Plan
	for _, name := range []string{"c", "a", "b"} {
		plans = append(plans, plan(t, stores[0], strings.Replace(diamondYAML, "name: diamond", "name: "+name, 1)+
			"\nsubmission: {debounce: {quiet_ms: 1, max_wait_ms: 5, key_path: [k]}}\n"))
	}
	throttled := plan(t, stores[0], diamondYAML)
	rules := admission.Rules{Throttle: &admission.Throttle{Max: most, PeriodMS: 86_400_000, Key: keyAt("k")}}
	setRules(t, stores[0], throttled, rules)
	setQuota(t, stores[0], 1_000_000)
	free := plan(t, stores[0], strings.Replace(diamondYAML, "name: diamond", "name: free", 1))

	ctx, stop := context.WithCancel(t.Context())
	var beside conc.WaitGroup
	for _, work := range []func() error{
		func() error { _, err := stores[0].PromoteDue(t.Context(), store.UpTo(10)); return err },
		func() error {
			return stores[1].SetSubmissionLimit(t.Context(), "shapes", "diamond", rules, store.OperatorAction{Actor: "ana", Action: "set_submission_limit"})
		},
		func() error {
			_, err := stores[2].RegisterTemplates(t.Context(), store.Registrant{Environment: "test"}, []*workflow.Template{plans[0].Template, plans[2].Template, plans[1].Template})
			return err
		},
		func() error {
			_, err := stores[2].Retain(t.Context(), store.RetentionLimits{Batch: 10}, false)
			return err
		},
	} {
		beside.Go(func() {
			for ctx.Err() == nil {
				if err := work(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var created atomic.Int64
	work := pool.New()
	for o, s := range stores {
		for sender := range senders {
			work.Go(func() {
				random := rand.New(rand.NewPCG(uint64(o), uint64(sender))) // #nosec G404 -- orders, no secrets
				for round := range rounds {
					var tasks []store.NewTask
					for k := range keys {
						for _, p := range plans {
							tasks = append(tasks, keyless(p, fmt.Sprintf(`{"k":%d,"v":%d,"t":%q}`, k, random.IntN(3), p.Template.Name)),
								submitted(p, fmt.Sprint(p.Template.Name, round, random.IntN(4)), fmt.Sprintf(`{"k":%d}`, k)))
						}
						tasks = append(tasks, submitted(throttled, fmt.Sprint(o, sender, round, k), fmt.Sprintf(`{"k":%d}`, k)), submitted(free, fmt.Sprint(round, k), `{}`))
					}
					random.Shuffle(len(tasks), func(i, j int) { tasks[i], tasks[j] = tasks[j], tasks[i] })
					answers, err := s.CreateTasks(t.Context(), tasks)
					if err != nil {
						t.Error(err)
						return
					}
					for i, a := range answers {
						if tasks[i].Plan.Template.Name == "diamond" && !a.RequestedAt.IsZero() {
							created.Add(1)
						}
					}
				}
			})
		}
	}
	work.Wait()
	stop()
	beside.Wait()
	require.EqualValues(t, most*keys, created.Load(), "neither more nor fewer")
	require.Equal(t, rounds*keys, db.QueryInt(t, `select count(*) from tasker.tasks t join tasker.plans p using (plan_id) where p.name = 'free'`))
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.task_identities i where not exists (select from tasker.tasks t where t.task_uuid = i.task_uuid)`), "none is lost")
	require.Zero(t, db.QueryInt(t, `select count(*) from (select p.name, t.context ->> 'k', count(*) filter (where b.state = 1) as waiting
		from tasker.tasks t join tasker.plans p using (plan_id) join tasker.board b using (task_uuid) where p.name in ('a', 'b', 'c') and b.step_no is not null
		group by 1, 2) k where waiting > 1`), "one of a key waits")
	noViolations(t, stores[0])
	for _, s := range stores {
		s.Close() // servers report what they have counted when they end
	}
	pgtest.Eventually(t, 20*time.Second, func() (bool, string) {
		return !db.QueryBool(t, `select exists (select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid())`), "connections are left"
	})
	require.Zero(t, db.QueryInt(t, `select deadlocks from pg_stat_database where datname = current_database()`))
}
