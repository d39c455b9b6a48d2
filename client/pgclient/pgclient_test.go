package pgclient_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/client/pgclient"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const yaml = `
name: ship
namespace_name: shop
version: 1.0.0
input_schema: {type: object, required: [order], properties: {order: {type: integer}}}
steps:
  - {name: only, handler: {callable: ship}}
`

func engine(t *testing.T) *enginetest.Engine {
	t.Helper()
	e := enginetest.Start(t, func(w *worker.Worker) error {
		tmpl, _, err := template.Parse("ship.yaml", []byte(yaml))
		if err == nil {
			err = w.RegisterTemplate(tmpl)
		}
		if err != nil {
			return err
		}
		return w.Register("ship", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return "shipped", nil }))
	})
	e.DB.Exec(t, `create table orders (n int)`)
	return e
}

func begin(t *testing.T, e *enginetest.Engine) pgx.Tx {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), e.DB.DSN)
	require.NoError(t, err)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	_, err = tx.Exec(t.Context(), `insert into orders values (1)`)
	require.NoError(t, err)
	return tx
}

func request(order int) client.TaskRequest {
	return client.TaskRequest{Namespace: "shop", Name: "ship", Version: "1.0.0", Context: json.RawMessage(fmt.Sprintf(`{"order":%d}`, order)), Initiator: "test"}
}

func TestATaskExistsWithItsTransaction(t *testing.T) {
	t.Parallel()
	e, tasks := engine(t), pgclient.New(pgclient.AnnounceNotify)
	correlation := uuid.NewString()
	kept, undone := begin(t, e), begin(t, e)
	r := request(1)
	r.CorrelationID, r.Tags, r.Reason = &correlation, []string{"a"}, "to ship it"
	made, err := tasks.CreateTaskTx(t.Context(), kept, r)
	require.NoError(t, err)
	require.Equal(t, correlation, made.CorrelationID.String())
	require.WithinDuration(t, time.Now(), made.RequestedAt, time.Minute)
	never, err := tasks.CreateTaskTx(t.Context(), undone, request(2))
	require.NoError(t, err)
	require.NoError(t, undone.Rollback(t.Context()))
	require.NoError(t, kept.Commit(t.Context()))
	task := e.Await(made.TaskUUID)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.Equal(t, []string{"a"}, task.Tags)
	_, err = e.Store.Task(t.Context(), never.TaskUUID)
	require.Error(t, err)
	require.Equal(t, 1, e.DB.QueryInt(t, `select count(*) from orders`))
}

func TestADuplicateLeavesTheTransactionUsable(t *testing.T) {
	t.Parallel()
	e, tasks := engine(t), pgclient.New(pgclient.AnnounceNothing)
	keyed, byContext := request(1), request(2)
	keyed.IdempotencyKey = "order-1"
	first := begin(t, e)
	made, err := tasks.CreateTaskTx(t.Context(), first, keyed)
	require.NoError(t, err)
	_, err = tasks.CreateTaskTx(t.Context(), first, byContext)
	require.NoError(t, err)

	// Over the API no request waits for the transaction.
	var busy *orchestration.BusyError
	_, err = e.Orchestrator.Create(t.Context(), orchestration.Request{Namespace: "shop", Name: "ship", Version: "1.0.0", Context: keyed.Context, IdempotencyKey: "order-1"})
	require.ErrorAs(t, err, &busy)
	require.NoError(t, first.Commit(t.Context()))

	tx := begin(t, e)
	var duplicate *pgclient.DuplicateError
	_, err = tasks.CreateTaskTx(t.Context(), tx, keyed)
	require.ErrorAs(t, err, &duplicate)
	require.Equal(t, made.TaskUUID, duplicate.Existing)
	_, err = tasks.CreateTaskTx(t.Context(), tx, byContext)
	require.ErrorAs(t, err, &duplicate)
	require.Equal(t, uuid.Nil, duplicate.Existing, "a guessed context must not reveal identifiers")
	_, err = tx.Exec(t.Context(), `insert into orders values (2)`)
	require.NoError(t, err)
	_, err = tasks.CreateTaskTx(t.Context(), tx, request(3))
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, 3, e.DB.QueryInt(t, `select count(*) from orders`))
	require.Equal(t, 3, e.DB.QueryInt(t, `select count(*) from tasker.tasks`))
}

// What the API rejects is rejected here, with the same words: it is the same code.
func TestTheRulesAreThoseOfTheAPI(t *testing.T) {
	t.Parallel()
	e, tasks := engine(t), pgclient.New(pgclient.AnnounceNothing)
	tx := begin(t, e)
	high, negative, word := 101, -1.0, "no uuid"
	past, soon := client.Time{Time: time.Now().Add(-time.Hour)}, client.Time{Time: time.Now().Add(time.Hour)}
	for want, change := range map[string]func(r *client.TaskRequest){
		"Template not found: shop/sail/1.0.0":   func(r *client.TaskRequest) { r.Name = "sail" },
		"name must not be empty":                func(r *client.TaskRequest) { r.Name = "" },
		"context must be a JSON object":         func(r *client.TaskRequest) { r.Context = json.RawMessage(`[]`) },
		"context":                               func(r *client.TaskRequest) { r.Context = json.RawMessage(`{"order":"one"}`) },
		"context must have at most":             func(r *client.TaskRequest) { r.Context = json.RawMessage(`{"a":"` + strings.Repeat("x", 1<<20) + `"}`) },
		"priority must be between":              func(r *client.TaskRequest) { r.Priority = &high },
		"idempotency_key must have at most":     func(r *client.TaskRequest) { r.IdempotencyKey = strings.Repeat("k", 300) },
		"correlation_id must be a UUID":         func(r *client.TaskRequest) { r.CorrelationID = &word },
		"give start_at or delay_seconds":        func(r *client.TaskRequest) { r.StartAt, r.DelaySeconds = &soon, &negative },
		"delay_seconds must not be negative":    func(r *client.TaskRequest) { r.DelaySeconds = &negative },
		"the deadline has passed":               func(r *client.TaskRequest) { r.Deadline = &past },
		"the deadline must be after the start":  func(r *client.TaskRequest) { r.StartAt, r.Deadline = &soon, &soon },
		"tags[0] must not be empty":             func(r *client.TaskRequest) { r.Tags = []string{""} },
		"initiator must be text without":        func(r *client.TaskRequest) { r.Initiator = "\x00" },
		"depends_on must be a UUID":             func(r *client.TaskRequest) { r.DependsOn = []string{word} },
		"depends_on: 1 tasks to depend on do":   func(r *client.TaskRequest) { r.DependsOn = []string{uuid.NewString()} },
		"on_dependency_failure must be fail or": func(r *client.TaskRequest) { r.OnDependencyFailure = word },
		"parent_correlation_id must be a UUID":  func(r *client.TaskRequest) { r.ParentCorrelationID = &word },
		"reason must have at most 500 characte": func(r *client.TaskRequest) { r.Reason = strings.Repeat("x", 501) },
	} {
		r := request(1)
		change(&r)
		_, err := tasks.CreateTaskTx(t.Context(), tx, r)
		require.ErrorContains(t, err, want)
		var invalid *pgclient.InvalidError
		var unknown *pgclient.UnknownTemplateError
		if strings.HasPrefix(want, "Template") {
			require.ErrorAs(t, err, &unknown)
		} else {
			require.ErrorAs(t, err, &invalid)
		}
	}
	_, err := tx.Exec(t.Context(), `insert into orders values (2)`)
	require.NoError(t, err, "none of them was a failed statement")

	delayed := request(1)
	delayed.StartAt, delayed.Priority = &soon, &[]int{100}[0]
	made, err := tasks.CreateTaskTx(t.Context(), tx, delayed)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	task := e.Read(made.TaskUUID)
	require.WithinDuration(t, soon.Time, *task.StartAt, 10*time.Second)
	require.Equal(t, 100, task.Priority)
}

// The grants that the comment of the package names are enough.
func TestARoleOfItsOwn(t *testing.T) {
	t.Parallel()
	e, tasks := engine(t), pgclient.New(pgclient.AnnounceNotify)
	role := "shop_" + e.DB.Name
	e.DB.Exec(t, `create role `+role)
	t.Cleanup(func() { e.DB.Exec(t, `drop owned by `+role+`; drop role `+role) })
	for _, grant := range []string{
		"usage on schema tasker", "usage on sequence tasker.step_seq", "select on tasker.namespaces, tasker.plans",
		"select, insert, update on tasker.task_identities", "select, insert on tasker.tasks, tasker.board", "insert on tasker.task_counts", "execute on function tasker.plan_for_use, tasker.is_followed, tasker.record_transition, tasker.task_standing", "insert on orders",
	} {
		e.DB.Exec(t, `grant `+grant+` to `+role)
	}
	tx := begin(t, e)
	_, err := tx.Exec(t.Context(), `set local role `+role)
	require.NoError(t, err)
	r := request(1)
	r.IdempotencyKey = "k"
	made, err := tasks.CreateTaskTx(t.Context(), tx, r)
	require.NoError(t, err)
	var duplicate *pgclient.DuplicateError
	_, err = tasks.CreateTaskTx(t.Context(), tx, r)
	require.ErrorAs(t, err, &duplicate, "also within one transaction")
	require.Equal(t, made.TaskUUID, duplicate.Existing)
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, workflow.TaskComplete, e.Await(made.TaskUUID).State)

	for _, grant := range []string{"update on tasker.tasks, tasker.board", "insert on tasker.task_dependencies, tasker.task_messages"} {
		e.DB.Exec(t, `grant `+grant+` to `+role)
	}
	tx = begin(t, e)
	_, err = tx.Exec(t.Context(), `set local role `+role)
	require.NoError(t, err)
	after := request(2)
	after.DependsOn = []string{made.TaskUUID.String()}
	made, err = tasks.CreateTaskTx(t.Context(), tx, after)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, workflow.TaskComplete, e.Await(made.TaskUUID).State)
}
