package enginetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// identities are templates whose identities end with events of their tasks.
func identities(w *worker.Worker, run worker.HandlerFunc) error {
	wrong := w.Register("run", run)
	for _, until := range []string{"never", "ended", "succeeded", "claimed"} {
		line := "identity: {until: " + until + "}"
		if until == "never" {
			line = "identity: {window: 24h}"
		}
		tmpl, _, err := template.Parse(until+".yaml", fmt.Appendf(nil, `
name: %s
namespace_name: once
version: 1.0.0
%s
steps:
  - name: run
    handler: {callable: run}
    retry: {retryable: false}
`, until, line))
		wrong = errors.Join(wrong, err)
		if err == nil {
			wrong = errors.Join(wrong, w.RegisterTemplate(tmpl))
		}
	}
	return wrong
}

// submitted creates a task with a key, or returns the duplicate.
func submitted(t *testing.T, o *orchestration.Orchestrator, template, key, context string) (uuid.UUID, *submission.DuplicateError) {
	t.Helper()
	created, err := o.Create(t.Context(), orchestration.Request{Namespace: "once", Name: template, Context: json.RawMessage(context), IdempotencyKey: key})
	var duplicate *submission.DuplicateError
	if errors.As(err, &duplicate) {
		return uuid.Nil, duplicate
	}
	require.NoError(t, err)
	return created.UUID, nil
}

// TestAnIdentityEndsWithItsTask as the template says: with its end, its success, or its first claim. Of a task that the
// retention has deleted nothing is left.
func TestAnIdentityEndsWithItsTask(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"key", "context"} {
		for _, fails := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %v", by, fails), func(t *testing.T) {
				t.Parallel()
				begun, release := make(chan struct{}, 100), make(chan struct{})
				var once sync.Once
				goOn := func() { once.Do(func() { close(release) }) }
				defer goOn()
				e := enginetest.Start(t, func(w *worker.Worker) error {
					return identities(w, func(ctx *worker.StepContext) (any, error) {
						begun <- struct{}{}
						select {
						case <-release:
						case <-ctx.Done():
						}
						if fails {
							return nil, worker.Permanent(errors.New("no"))
						}
						return 1, nil
					})
				})
				key := ""
				if by == "key" {
					key = "k"
				}
				_, err := e.DB.Pool(t).Exec(t.Context(), `update tasker.namespaces set paused_at = now(), paused_by = 'test' where name = 'once'`)
				require.NoError(t, err)
				first := map[string]uuid.UUID{}
				for _, until := range []string{"never", "ended", "succeeded", "claimed"} {
					first[until], _ = submitted(t, e.Orchestrator, until, key, `{"n":1}`)
					_, duplicate := submitted(t, e.Orchestrator, until, key, `{"n":1}`)
					require.NotNil(t, duplicate, until)
					if key != "" {
						require.Equal(t, first[until], duplicate.Existing)
						require.Equal(t, workflow.TaskPending, duplicate.State)
						require.ErrorContains(t, duplicate, "(pending)")
					}
				}
				_, err = e.DB.Pool(t).Exec(t.Context(), `update tasker.namespaces set paused_at = null, paused_by = null where name = 'once'`)
				require.NoError(t, err)
				for range first {
					<-begun
				}
				for until := range first {
					again, duplicate := submitted(t, e.Orchestrator, until, key, `{"n":1}`)
					require.Equal(t, until == "claimed", duplicate == nil, until)
					if duplicate == nil {
						first[until] = again
					}
				}
				goOn()
				for _, id := range first {
					e.Await(id)
				}
				for until, id := range first {
					_, duplicate := submitted(t, e.Orchestrator, until, key, `{"n":1}`)
					over := until == "ended" || until == "claimed" || until == "succeeded" && !fails
					require.Equal(t, over, duplicate == nil, "%s %v", until, fails)
					if over {
						continue
					}
					e.Deletes = true
					for _, table := range []string{"step_attempts", "task_events", "tasks"} { // as the retention does
						_, err = e.DB.Pool(t).Exec(t.Context(), `delete from tasker.`+table+` where task_uuid = $1`, id)
						require.NoError(t, err)
					}
					results := e.Orchestrator.CreateMany(t.Context(), []orchestration.Request{
						{Namespace: "once", Name: until, Context: json.RawMessage(`{"n":1}`), IdempotencyKey: key},
						{Namespace: "once", Name: until, Context: json.RawMessage(`{"n":2}`), IdempotencyKey: "other"}})
					require.NoError(t, errors.Join(results[0].Err, results[1].Err), until)
					require.NotEqual(t, id, results[0].UUID)
					require.False(t, results[0].Existing)
				}
			})
		}
	}
}

// TestAnIdentityThatIsOverGoesToOneTask, however many orchestrators and transactions of programs want it at once.
func TestAnIdentityThatIsOverGoesToOneTask(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, func(w *worker.Worker) error {
		return identities(w, func(*worker.StepContext) (any, error) { return 1, nil })
	})
	all := []*orchestration.Orchestrator{e.Orchestrator, e.AnotherOrchestrator(), e.AnotherOrchestrator()}
	for round := range 5 {
		key := fmt.Sprint("k", round)
		first, _ := submitted(t, e.Orchestrator, "ended", key, `{}`)
		e.Await(first)
		_, err := e.DB.Pool(t).Exec(t.Context(), `update tasker.namespaces set paused_at = now(), paused_by = 'test' where name = 'once'`)
		require.NoError(t, err)
		var mu sync.Mutex
		var created []uuid.UUID
		var wg conc.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				request := orchestration.Request{Namespace: "once", Name: "ended", Context: json.RawMessage(`{}`), IdempotencyKey: key}
				var made []orchestration.CreateResult
				if o := all[i%3]; i%2 == 0 {
					made = o.CreateMany(context.WithoutCancel(t.Context()), []orchestration.Request{request, request})
				} else {
					one, err := o.Create(context.WithoutCancel(t.Context()), request)
					made = []orchestration.CreateResult{{Created: one, Err: err}}
				}
				mu.Lock()
				defer mu.Unlock()
				for _, r := range made {
					if r.Err == nil {
						created = append(created, r.UUID)
					}
				}
			})
		}
		wg.Wait()
		require.Len(t, created, 1)
		_, err = e.DB.Pool(t).Exec(t.Context(), `update tasker.namespaces set paused_at = null, paused_by = null where name = 'once'`)
		require.NoError(t, err)
		e.Await(created[0])
	}
}

// TestAnIdentityEndsForSQLToo.
func TestAnIdentityEndsForSQLToo(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, func(w *worker.Worker) error {
		return identities(w, func(ctx *worker.StepContext) (any, error) {
			if bad, _ := ctx.InputValue("bad"); bad == true {
				return nil, worker.Permanent(errors.New("no"))
			}
			return 1, nil
		})
	})
	pool := e.DB.Pool(t)
	bySQL := func(until, key, doc string) (id uuid.UUID, err error) {
		err = pool.QueryRow(t.Context(), `select tasker.create_task('once', $1, $2, idempotency_key => $3)`, until, doc, key).Scan(&id)
		return id, err
	}
	for _, until := range []string{"never", "ended", "succeeded", "claimed"} {
		for _, doc := range []string{`{}`, `{"bad": true}`} {
			first, err := bySQL(until, "k"+doc, doc)
			require.NoError(t, err)
			e.Await(first)
			second, err := bySQL(until, "k"+doc, doc)
			over := until == "ended" || until == "claimed" || until == "succeeded" && doc == `{}`
			require.Equal(t, over, err == nil, "%s %s: %v", until, doc, err)
			if over {
				e.Await(second)
				continue
			}
			e.Deletes = true
			for _, table := range []string{"step_attempts", "task_events", "tasks"} { // as the retention does
				_, err = pool.Exec(t.Context(), `delete from tasker.`+table+` where task_uuid = $1`, first)
				require.NoError(t, err)
			}
			second, err = bySQL(until, "k"+doc, doc)
			require.NoError(t, err)
			require.NotEqual(t, first, second)
			e.Await(second)
		}
	}
}
