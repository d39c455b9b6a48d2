package store_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/sourcegraph/conc"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

func limitedTasks(p *store.Plan, name string, n int) []store.NewTask {
	tasks := make([]store.NewTask, n)
	for i := range tasks {
		tasks[i] = keyed(p, fmt.Sprint(name, i))
		tasks[i].Limited = true
	}
	return tasks
}

func setQuota(t *testing.T, s *store.Store, most int) {
	t.Helper()
	q, err := s.SetQuota(t.Context(), "shapes", most, nil, store.OperatorAction{Actor: "ana", Action: "set_quota", Reason: "too many"})
	require.NoError(t, err)
	require.Equal(t, most, q.MaxTasks)
}

// outcomes counts created and refused tasks.
func outcomes(t *testing.T, s *store.Store, tasks []store.NewTask) (created, refused int) {
	t.Helper()
	answers, err := s.CreateTasks(t.Context(), tasks)
	require.NoError(t, err)
	for _, a := range answers {
		switch {
		case a.RefusedFor > 0:
			require.LessOrEqual(t, a.RefusedFor, time.Second)
			refused++
		case !a.Duplicate && !a.Busy:
			created++
		}
	}
	return created, refused
}

// Three orchestrators create at once, one by one, in batches and by COPY: the quota holds.
func TestAQuotaHoldsAcrossOrchestrators(t *testing.T) {
	t.Parallel()
	first, db := open(t)
	p := plan(t, first, diamondYAML)
	const most = 150
	setQuota(t, first, most)
	stores := []*store.Store{first}
	for range 2 {
		another, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 8, HoldTimeout: time.Minute})
		require.NoError(t, err)
		t.Cleanup(another.Close)
		stores = append(stores, another)
	}
	var created, refused atomic.Int64
	work := pool.New()
	for o, s := range stores {
		for part, n := range []int{1, 7, 40, 120} {
			work.Go(func() {
				c, r := outcomes(t, s, limitedTasks(p, fmt.Sprintf("%d-%d-", o, part), n))
				created.Add(int64(c))
				refused.Add(int64(r))
			})
		}
	}
	work.Wait()
	require.EqualValues(t, most, created.Load(), "neither more nor fewer")
	require.EqualValues(t, 3*(1+7+40+120)-most, refused.Load())
	require.Equal(t, most, db.QueryInt(t, `select count(*) from tasker.board where slot = 0`))
	noViolations(t, first)
}

func TestPlacesOfEndedTasksAreGivenAgain(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, diamondYAML)
	setQuota(t, s, 3)
	tasks := limitedTasks(p, "a", 4)
	created, refused := outcomes(t, s, tasks)
	require.Equal(t, []int{3, 1}, []int{created, refused})

	again, err := s.CreateTasks(t.Context(), limitedTasks(p, "a", 1))
	require.NoError(t, err)
	require.True(t, again[0].Duplicate, "a repetition needs no place")
	require.Equal(t, tasks[0].UUID, again[0].UUID)
	free := keyed(p, "schedule")
	created, _ = outcomes(t, s, []store.NewTask{free})
	require.Equal(t, 1, created, "what the quota does not concern")

	cancel(t, s, tasks[0].UUID, "no")
	cancel(t, s, free.UUID, "no")
	pgtest.Eventually(t, 10*time.Second, func() (bool, string) {
		created, refused := outcomes(t, s, limitedTasks(p, "b", 1))
		return created == 1, fmt.Sprint(refused, " refused")
	})
	_, refused = outcomes(t, s, limitedTasks(p, "c", 1))
	require.Equal(t, 1, refused)

	setQuota(t, s, 4)
	created, refused = outcomes(t, s, limitedTasks(p, "d", 2))
	require.Equal(t, []int{1, 1}, []int{created, refused}, "a higher quota is in force at once")
	list, err := s.Quotas(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.EqualValues(t, 4, *list[0].Tasks)
	_, err = s.DeleteQuota(t.Context(), "shapes", store.OperatorAction{Actor: "ana", Action: "delete_quota"})
	require.NoError(t, err)
	created, _ = outcomes(t, s, limitedTasks(p, "e", 5))
	require.Equal(t, 5, created)
	_, err = s.DeleteQuota(t.Context(), "shapes", store.OperatorAction{Actor: "ana", Action: "delete_quota"})
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = s.SetQuota(t.Context(), "nowhere", 1, nil, store.OperatorAction{Actor: "ana", Action: "set_quota"})
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Equal(t, workflow.TaskPending, read(t, s, tasks[1].UUID).State)
}

// A count of a large board takes longer than identities are waited for: creations wait on.
func TestACreationWaitsForTheQuota(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	setQuota(t, s, 3)
	for name, create := range map[string]func(tasks []store.NewTask) ([]store.CreatedTask, error){
		"create": func(tasks []store.NewTask) ([]store.CreatedTask, error) { return s.CreateTasks(t.Context(), tasks) },
		"create and claim": func(tasks []store.NewTask) ([]store.CreatedTask, error) {
			answers, _, err := s.CreateAndClaim(t.Context(), tasks, store.ClaimRequest{Worker: uuid.New(), Limit: 1, Lease: time.Minute})
			return answers, err
		},
	} {
		counting := beginOn(t, db, pgx.TxOptions{})
		_, err := counting.Exec(t.Context(), `select from tasker.quotas for update`)
		require.NoError(t, err)
		var answers []store.CreatedTask
		var work conc.WaitGroup
		work.Go(func() { answers, err = create(limitedTasks(p, name, 1)) })
		pgtest.Eventually(t, 20*time.Second, func() (bool, string) {
			return db.QueryBool(t, `select exists (select from pg_stat_activity
				where datname = current_database() and wait_event_type = 'Lock' and now() - query_start > '400 ms')`), "nothing waits"
		})
		require.NoError(t, counting.Rollback(t.Context()))
		work.Wait()
		require.NoError(t, err, name)
		require.False(t, answers[0].Busy || answers[0].RefusedFor > 0 || answers[0].Duplicate, name)
	}
}
