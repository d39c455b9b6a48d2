package store_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// version is a template of one step; its content differs by the callable.
func version(t testing.TB, number, callable string) *workflow.Template {
	t.Helper()
	tmpl, _, err := template.Parse("test.yaml", fmt.Appendf(nil,
		"{name: versioned, namespace_name: shapes, version: %q, steps: [{name: only, handler: {callable: %s}}]}", number, callable))
	require.NoError(t, err)
	return tmpl.Resolve("test")
}

func register(t testing.TB, s *store.Store, how store.Immutability, by string, tmpl ...*workflow.Template) store.Registered {
	t.Helper()
	done, err := s.RegisterTemplates(t.Context(), store.Registrant{ID: by, Environment: "test", Immutable: how}, tmpl)
	require.NoError(t, err)
	return done
}

// callableOf is the callable of new tasks' steps of a version.
func callableOf(t testing.TB, s *store.Store, number string) string {
	t.Helper()
	s.ForgetPlanNames()
	p, err := s.PlanNamed(t.Context(), "shapes", "versioned", number)
	require.NoError(t, err)
	return p.Steps[0].Handler.Callable
}

func use(t testing.TB, s *store.Store, number string) *store.Plan {
	t.Helper()
	p, err := s.PlanNamed(t.Context(), "shapes", "versioned", number)
	require.NoError(t, err)
	p, err = s.UsePlan(t.Context(), p)
	require.NoError(t, err)
	return p
}

// TestTemplatesNamed: the current versions of names, in all namespaces, without those that
// are deprecated.
func TestTemplatesNamed(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	elsewhere, _, err := template.Parse("test.yaml", []byte("{name: versioned, namespace_name: lines, version: 7, steps: [{name: only, handler: {callable: a}}]}"))
	require.NoError(t, err)
	register(t, s, "", "first", version(t, "1", "old"), version(t, "2", "new"), version(t, "3", "newest"), elsewhere.Resolve("test"))
	_, err = s.DeprecateVersion(t.Context(), "shapes", "versioned", "2", true, store.OperatorAction{Actor: "ana", Reason: "a test", Action: "deprecate_template"})
	require.NoError(t, err)
	other, _, err := template.Parse("test.yaml", []byte(
		"{name: other, namespace_name: lines, version: 1, steps: [{name: only, handler: {callable: a}}]}"))
	require.NoError(t, err)
	register(t, s, "", "second", other.Resolve("test"))
	list, err := s.TemplatesNamed(t.Context(), []string{"versioned", "nothing", "other"})
	require.NoError(t, err)
	require.Len(t, list, 4)
	require.Equal(t, []store.NamedTemplate{{Name: "other", Namespace: "lines", Version: "1"},
		{Name: "versioned", Namespace: "lines", Version: "7"}}, list[:2])
	require.ElementsMatch(t, []store.NamedTemplate{{Name: "versioned", Namespace: "shapes", Version: "1"},
		{Name: "versioned", Namespace: "shapes", Version: "3"}}, list[2:])
	list, err = s.TemplatesNamed(t.Context(), []string{"nothing"})
	require.NoError(t, err)
	require.Empty(t, list)
}

func TestVersionsThatTasksHaveUsedAreImmutable(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	old, changed := version(t, "1", "old"), version(t, "1", "changed")
	hash := func(tmpl *workflow.Template) string { return fmt.Sprintf("%x", tmpl.ContentHash()) }

	require.Empty(t, register(t, s, "", "first", changed))
	require.Empty(t, register(t, s, "", "second", old), "no task has used the other content")
	require.Equal(t, "old", callableOf(t, s, "1"))
	v, err := s.TemplateVersion(t.Context(), use(t, s, "1").ID)
	require.NoError(t, err)
	require.Equal(t, hash(old), v.Hash)
	require.Equal(t, "second", v.RegisteredBy)
	require.True(t, v.Used)
	require.False(t, v.RegisteredAt.IsZero())

	require.Empty(t, register(t, s, "", "third", old), "the same content is no conflict")
	for _, how := range []store.Immutability{"", store.VersionsRefuse} {
		done := register(t, s, how, "third", changed, version(t, "2", "other"))
		require.Len(t, done.Refused, 1)
		require.Empty(t, done.Replaced)
		refused := done.Refused[0]
		require.Equal(t, []string{hash(changed), hash(old), "second"}, []string{refused.Brought, refused.Registered, refused.RegisteredBy})
		require.Contains(t, refused.String(), "shapes/versioned:1: brought "+hash(changed)+", registered "+hash(old)+" (by second at ")
		require.Equal(t, "old", callableOf(t, s, "1"))
		require.Equal(t, "other", callableOf(t, s, "2"), "the valid templates of the same registration count")
	}
	done := register(t, s, store.VersionsWarn, "fourth", changed)
	require.Empty(t, done.Refused)
	require.Equal(t, hash(old), done.Replaced[0].Registered)
	require.Equal(t, "changed", callableOf(t, s, "1"))
	require.Empty(t, register(t, s, store.VersionsOff, "fifth", old))
	require.Equal(t, "old", callableOf(t, s, "1"))
	require.Len(t, register(t, s, "", "sixth", changed).Refused, 1, "tasks have used the now current content")
}

func TestTheHighestVersionThatIsNotDeprecatedIsChosen(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	highest := func() string {
		s.ForgetPlanNames()
		p, err := s.PlanNamed(t.Context(), "shapes", "versioned", "")
		require.NoError(t, err)
		return p.Template.Version
	}
	// In this order each is higher than all before; the last one is registered first.
	order := []string{"0.0.9", "0.9", "1.0.0-alpha", "1.0.0-alpha.1", "1.0-rc.2", "1.0-rc.10", "1.0", "1.0.0", "1.0.0+build.7", "v1.0.1", "1.2.0", "1.10.0", "2024-01", "2024", "latest"}
	for i := range order {
		register(t, s, "", "w", version(t, order[len(order)-1-i], "c"))
	}
	for i := len(order) - 1; i >= 0; i-- {
		require.Equal(t, order[i], highest())
		signals, err := s.DeprecateVersion(t.Context(), "shapes", "versioned", order[i], true, store.OperatorAction{Actor: "ana", Action: "deprecate_template", Reason: "old"})
		require.NoError(t, err)
		require.NotEmpty(t, signals)
		require.Equal(t, "c", callableOf(t, s, order[i]), "it can still be named")
	}
	s.ForgetPlanNames()
	_, err := s.PlanNamed(t.Context(), "shapes", "versioned", "")
	require.ErrorIs(t, err, store.ErrNotFound)

	register(t, s, "", "w", version(t, "1.2.0", "changed"))
	_, err = s.PlanNamed(t.Context(), "shapes", "versioned", "")
	require.ErrorIs(t, err, store.ErrNotFound, "other content of a deprecated version is deprecated")
	_, err = s.DeprecateVersion(t.Context(), "shapes", "versioned", "1.2.0", false, store.OperatorAction{Actor: "ana", Action: "undeprecate_template", Reason: "not yet"})
	require.NoError(t, err)
	require.Equal(t, "1.2.0", highest())
	_, err = s.DeprecateVersion(t.Context(), "shapes", "versioned", "7", true, store.OperatorAction{})
	require.ErrorIs(t, err, store.ErrNotFound)
}

// TestTwoContentsOfAVersionRace: two workers register different content of a new version
// at the same time, while three orchestrators create tasks of it.
func TestTwoContentsOfAVersionRace(t *testing.T) {
	t.Parallel()
	first, db := open(t)
	stores := []*store.Store{first}
	for range 4 {
		s, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 4})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		stores = append(stores, s)
	}
	register(t, first, "", "w", version(t, "0", "a"))
	for round := range 40 {
		number := fmt.Sprint(round + 1)
		var contents [2]*workflow.Template
		for i, callable := range []string{"a", "b"} {
			contents[i] = version(t, number, callable)
		}
		begin := make(chan struct{})
		var mu sync.Mutex
		created := map[int32]int{}
		refused := map[int]int{}
		var group conc.WaitGroup
		for i, s := range stores[:2] {
			group.Go(func() {
				<-begin
				for range 3 { // pods that restart
					done, err := s.RegisterTemplates(t.Context(), store.Registrant{ID: fmt.Sprint(i)}, contents[i:i+1])
					if err != nil {
						panic(err)
					}
					mu.Lock()
					refused[i] += len(done.Refused)
					mu.Unlock()
				}
			})
		}
		for _, s := range stores[2:] {
			group.Go(func() {
				<-begin
				for made := 0; made < 5; {
					plan, err := s.PlanNamed(t.Context(), "shapes", "versioned", number)
					if err != nil {
						continue // not registered yet
					}
					if plan, err = s.UsePlan(t.Context(), plan); err != nil {
						panic(err)
					}
					if _, err := s.CreateTasks(t.Context(), []store.NewTask{newTask(plan)}); err != nil {
						panic(err)
					}
					made++
					mu.Lock()
					created[plan.ID]++
					mu.Unlock()
				}
			})
		}
		close(begin)
		group.Wait()
		require.Len(t, created, 1, "version %s has tasks of both contents: %v", number, created)
		require.False(t, refused[0] > 0 && refused[1] > 0, "both were refused: %v", refused)
		require.Contains(t, created, use(t, first, number).ID)
		require.Equal(t, use(t, first, number).Steps[0].Handler.Callable, callableOf(t, stores[4], number))
		for i := range contents {
			holds := callableOf(t, first, number) == []string{"a", "b"}[i]
			require.Equal(t, holds, len(register(t, first, "", "late", contents[i]).Refused) == 0)
		}
	}
	noViolations(t, first)
}

// Another program's transaction that creates the first tasks of a version blocks no
// other, and its end does not change rejections in the meantime.
func TestVersionsUsedInTransactionsOfOthers(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	register(t, s, "", "w", version(t, "1", "old"))
	plans := store.NewTxPlans()
	first, second := beginOn(t, db, pgx.TxOptions{}), beginOn(t, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	for _, tx := range []pgx.Tx{first, second} {
		p, err := plans.On(tx).PlanNamed(t.Context(), "shapes", "versioned", "")
		require.NoError(t, err)
		again, err := plans.On(tx).UsePlan(t.Context(), p)
		require.NoError(t, err)
		require.Same(t, p, again)
		_, err = store.CreateTasksIn(t.Context(), tx, store.AnnounceNothing, newTask(p))
		require.NoError(t, err)
		require.Len(t, register(t, s, "", "w", version(t, "1", "changed")).Refused, 1, "a task of it is about to exist")
	}
	require.NoError(t, first.Rollback(t.Context()))
	require.NoError(t, second.Rollback(t.Context()))
	third := beginOn(t, db, pgx.TxOptions{})
	p, err := plans.On(third).PlanNamed(t.Context(), "shapes", "versioned", "1")
	require.NoError(t, err)
	require.Empty(t, register(t, s, "", "w", version(t, "1", "changed")), "no task of it exists")
	fresh, err := plans.On(third).UsePlan(t.Context(), p)
	require.NoError(t, err)
	require.NotEqual(t, p.ID, fresh.ID, "the cached plan was replaced before its use")
	require.Equal(t, "changed", fresh.Steps[0].Handler.Callable)
	_, err = store.CreateTasksIn(t.Context(), third, store.AnnounceNothing, newTask(fresh))
	require.NoError(t, err)
	require.NoError(t, third.Commit(t.Context()))
	require.Len(t, register(t, s, "", "w", version(t, "1", "old")).Refused, 1)
}

// A role that creates tasks in its own transactions cannot write to the registry, and
// need not.
func TestVersionsUsedByAPlainRole(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	register(t, s, "", "w", version(t, "1", "old"))
	role := "plain_" + strings.ToLower(t.Name())
	pool := db.Pool(t)
	_, err := pool.Exec(t.Context(), "create role "+role)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, err := pool.Exec(ctx, "drop owned by "+role+"; drop role "+role)
		require.NoError(t, err)
	})
	_, err = pool.Exec(t.Context(), `grant usage on schema tasker to `+role+`; grant select on tasker.namespaces, tasker.plans to `+role+`;
		grant usage on sequence tasker.step_seq to `+role+`; grant select, insert, update on tasker.task_identities to `+role+`;
		grant select, insert on tasker.tasks, tasker.board to `+role+`; grant insert on tasker.task_counts to `+role+`;
		grant execute on function tasker.plan_for_use, tasker.is_followed, tasker.record_transition, tasker.task_standing to `+role)
	require.NoError(t, err)
	tx := beginOn(t, db, pgx.TxOptions{})
	_, err = tx.Exec(t.Context(), "set local role "+role)
	require.NoError(t, err)
	plans := store.NewTxPlans()
	p, err := plans.On(tx).PlanNamed(t.Context(), "shapes", "versioned", "")
	require.NoError(t, err)
	_, err = plans.On(tx).UsePlan(t.Context(), p)
	require.NoError(t, err)
	_, err = store.CreateTasksIn(t.Context(), tx, store.AnnounceNothing, newTask(p))
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	require.Len(t, register(t, s, "", "w", version(t, "1", "changed")).Refused, 1)
}
