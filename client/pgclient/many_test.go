package pgclient_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/client/pgclient"
	"github.com/tasker-go/tasker/workflow"
)

// statements counts the statements of a connection.
type statements struct{ n int }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n++
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func requests(from, n int) []client.TaskRequest {
	list := make([]client.TaskRequest, n)
	for i := range list {
		list[i] = request(from + i)
	}
	return list
}

func TestTheNumberOfStatementsDoesNotGrow(t *testing.T) {
	t.Parallel()
	e := engine(t)
	counted := &statements{}
	cfg, err := pgx.ParseConfig(e.DB.DSN)
	require.NoError(t, err)
	cfg.Tracer = counted
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	count := func(tasks *pgclient.Client, list []client.TaskRequest) int {
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		counted.n = 0
		results, err := tasks.CreateTasksTx(t.Context(), tx, list)
		n := counted.n
		require.NoError(t, err)
		require.Len(t, results, len(list))
		for i := range results {
			require.NoError(t, results[i].Err)
		}
		require.NoError(t, tx.Commit(t.Context()))
		return n
	}
	known := pgclient.New(pgclient.AnnounceNotify)
	count(known, requests(0, 1))
	count(known, requests(1, 1)) // the client has cached that the template is in use
	for _, n := range []int{1, 10, 500} {
		fresh := count(pgclient.New(pgclient.AnnounceNotify), requests(1000*n, n))
		again := count(known, requests(1000*n+500, n))
		require.Equal(t, []int{5, 3}, []int{fresh, again}, "%d tasks: the template twice, a look for duplicates, the tasks, a signal", n)
	}
	require.Equal(t, 2+2*511, e.DB.QueryInt(t, `select count(*) from tasker.tasks`))
	require.Zero(t, count(known, nil))
}

func TestManyTasksExistWithTheirTransaction(t *testing.T) {
	t.Parallel()
	e, tasks := engine(t), pgclient.New(pgclient.AnnounceNotify)
	kept, undone := begin(t, e), begin(t, e)
	made, err := tasks.CreateTasksTx(t.Context(), kept, requests(1, 20))
	require.NoError(t, err)
	never, err := tasks.CreateTasksTx(t.Context(), undone, requests(21, 20))
	require.NoError(t, err)
	require.NoError(t, undone.Rollback(t.Context()))
	require.NoError(t, kept.Commit(t.Context()))
	for i := range made {
		task := e.Await(made[i].TaskUUID)
		require.Equal(t, workflow.TaskComplete, task.State)
		require.JSONEq(t, fmt.Sprintf(`{"order":%d}`, i+1), string(task.Context), "in order")
		_, err = e.Store.Task(t.Context(), never[i].TaskUUID)
		require.Error(t, err)
	}
	require.Equal(t, 20, e.DB.QueryInt(t, `select count(*) from tasker.tasks`))
}

// An invalid request does not affect the other tasks, and the transaction can continue.
func TestEachRequestIsForItself(t *testing.T) {
	t.Parallel()
	e, tasks := engine(t), pgclient.New(pgclient.AnnounceNothing)
	before := begin(t, e)
	keyed, byContext := request(1), request(2)
	keyed.IdempotencyKey = "order-1"
	first, err := tasks.CreateTasksTx(t.Context(), before, []client.TaskRequest{keyed, byContext})
	require.NoError(t, err)
	require.NoError(t, before.Commit(t.Context()))

	existing, unknown, high, orphan, sure := keyed, request(3), request(4), request(5), request(6)
	existing.ConflictPolicy = client.ConflictUseExisting
	unknown.Name = "sail"
	high.Priority = &[]int{101}[0]
	orphan.DependsOn = []string{first[0].TaskUUID.String(), uuid.NewString()}
	sure.DependsOn = []string{first[0].TaskUUID.String()}
	fresh, same := request(7), request(8)
	fresh.IdempotencyKey, same.IdempotencyKey = "order-7", "order-7"
	useFirst := same
	useFirst.ConflictPolicy = client.ConflictUseExisting
	badContext := request(9)
	badContext.Context = json.RawMessage(`{"order":"nine"}`)

	tx := begin(t, e)
	got, err := tasks.CreateTasksTx(t.Context(), tx, []client.TaskRequest{
		fresh, keyed, byContext, existing, unknown, high, orphan, sure, same, useFirst, badContext, request(10), request(10)})
	require.NoError(t, err)
	require.Len(t, got, 13)
	for _, i := range []int{0, 7, 11} {
		require.NoError(t, got[i].Err)
		require.False(t, got[i].Existing)
		require.NotZero(t, got[i].RequestedAt)
	}
	duplicates := map[int]uuid.UUID{1: first[0].TaskUUID, 2: uuid.Nil, 8: got[0].TaskUUID, 12: uuid.Nil}
	for i, holder := range duplicates {
		var duplicate *pgclient.DuplicateError
		require.ErrorAs(t, got[i].Err, &duplicate, "%d", i)
		require.Equal(t, holder, duplicate.Existing, "%d", i)
	}
	for i, holder := range map[int]uuid.UUID{3: first[0].TaskUUID, 9: got[0].TaskUUID} {
		require.NoError(t, got[i].Err)
		require.Equal(t, pgclient.Created{TaskUUID: holder, Existing: true}, got[i].Created)
	}
	var template *pgclient.UnknownTemplateError
	require.ErrorAs(t, got[4].Err, &template)
	for i, want := range map[int]string{5: "priority must be", 6: "depends_on: 1 tasks to depend on do not exist", 10: "context"} {
		var invalid *pgclient.InvalidError
		require.ErrorAs(t, got[i].Err, &invalid, "%d", i)
		require.ErrorContains(t, invalid, want)
	}
	for i := range got {
		require.Equal(t, got[i].Err != nil, got[i].TaskUUID == uuid.Nil, "%d", i)
	}
	_, err = tx.Exec(t.Context(), `insert into orders values (2)`)
	require.NoError(t, err, "none of them was a failed statement")
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, 5, e.DB.QueryInt(t, `select count(*) from tasker.tasks`))
	require.Equal(t, workflow.TaskComplete, e.Await(got[7].TaskUUID).State)
}

// More missing dependencies than one lookup returns.
func TestManyTasksToDependOnAreMissing(t *testing.T) {
	t.Parallel()
	e, tasks := engine(t), pgclient.New(pgclient.AnnounceNothing)
	list := requests(0, 250)
	for i := range list {
		if i != 200 {
			list[i].DependsOn = []string{uuid.NewString()}
		}
	}
	tx := begin(t, e)
	got, err := tasks.CreateTasksTx(t.Context(), tx, list)
	require.NoError(t, err)
	for i := range got {
		if i == 200 {
			require.NoError(t, got[i].Err)
		} else {
			require.ErrorContains(t, got[i].Err, "depends_on: 1 tasks")
		}
	}
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, 1, e.DB.QueryInt(t, `select count(*) from tasker.tasks`))
}

func TestTooManyTasksAtOnce(t *testing.T) {
	t.Parallel()
	var invalid *pgclient.InvalidError
	_, err := pgclient.New(pgclient.AnnounceNothing).CreateTasksTx(t.Context(), nil, make([]client.TaskRequest, client.MaxBatchTasks+1))
	require.ErrorAs(t, err, &invalid)
	require.EqualError(t, err, "invalid number of tasks 10001: want at most 10000")
}

// An error of the database is one of the call, and of no request.
func TestAnAbortedTransaction(t *testing.T) {
	t.Parallel()
	e := engine(t)
	tx := begin(t, e)
	_, err := tx.Exec(t.Context(), `select 1 / 0`)
	require.Error(t, err)
	results, err := pgclient.New(pgclient.AnnounceNothing).CreateTasksTx(t.Context(), tx, requests(0, 3))
	require.ErrorContains(t, err, "current transaction is aborted")
	require.Nil(t, results)
}
