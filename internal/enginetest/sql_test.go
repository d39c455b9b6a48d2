package enginetest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/execution"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/workflow"
)

// sendBySQL calls tasker.send_event.
func sendBySQL(ctx context.Context, db enginetest.Rows, e *orchestration.Event) (delivered int, duplicate bool, err error) {
	var payload *string
	if e.Payload != nil {
		text := string(e.Payload)
		payload = &text
	}
	err = db.QueryRow(ctx, `select delivered, duplicate from tasker.send_event($1, $2, $3, $4, $5, $6)`, e.Namespace, e.Name, e.Key, payload, e.TaskUUID, e.ID).Scan(&delivered, &duplicate)
	return delivered, duplicate, err
}

// An event sent by SQL reaches the steps that wait for it when its transaction commits, and
// those that will.
func TestEventsBySQL(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	pool := w.DB.Pool(t)
	event := func(key string) *orchestration.Event {
		return &orchestration.Event{Namespace: "waits", Name: "payment.received", Key: key, ID: "id-" + key, Payload: json.RawMessage(`{"amount": 1}`)}
	}
	kept, duplicate, err := sendBySQL(t.Context(), pool, event("early"))
	require.NoError(t, err)
	require.False(t, duplicate)
	require.Zero(t, kept)
	waits := w.Submit("waits", "paid", `{"order": "late"}`)
	w.untilWaiting(waits, "paid")
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	n, _, err := sendBySQL(t.Context(), tx, event("late"))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NotNil(t, w.step(waits, "paid").Waiting, "it was rolled back")
	n, _, err = sendBySQL(t.Context(), pool, event("late"))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	task := w.Await(waits)
	require.Equal(t, workflow.TaskComplete, task.State)
	got := result(t, task, "paid")
	require.Equal(t, map[string]any{"amount": 1.0}, got["payload"])
	require.Equal(t, []any{"payment.received", "late"}, []any{got["event"], got["key"]})
	require.Regexp(t, `^2[0-9-]+T[0-9:.]+Z$`, got["received_at"])

	require.Equal(t, workflow.TaskComplete, w.Await(w.Submit("waits", "paid", `{"order": "early"}`)).State)
	n, duplicate, err = sendBySQL(t.Context(), pool, event("late"))
	require.NoError(t, err)
	require.True(t, duplicate)
	require.Equal(t, 1, n)
	again, err := w.Orchestrator.ReceiveEvent(t.Context(), *event("late"))
	require.NoError(t, err)
	require.True(t, again.Duplicate)

	told := w.Submit("waits", "told", `{}`)
	w.untilWaiting(told, "told")
	n, _, err = sendBySQL(t.Context(), pool, &orchestration.Event{Name: "go", TaskUUID: &told})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, workflow.TaskComplete, w.Await(told).State)
	_, _, err = sendBySQL(t.Context(), pool, &orchestration.Event{Name: "go", TaskUUID: &told})
	require.Equal(t, "55000", stateOf(t, err))
	missing := uuid.Must(uuid.NewV7())
	_, _, err = sendBySQL(t.Context(), pool, &orchestration.Event{Name: "go", TaskUUID: &missing})
	require.Equal(t, "P0002", stateOf(t, err))
	_, _, err = sendBySQL(t.Context(), pool, &orchestration.Event{Namespace: "nowhere", Name: "go", Key: "k"})
	require.Equal(t, "P0002", stateOf(t, err))
}

func stateOf(t *testing.T, err error) string {
	t.Helper()
	var failed *pgconn.PgError
	require.ErrorAs(t, err, &failed)
	return failed.Code
}

// Events that Go refuses SQL refuses in the same words.
func TestRefusedEventsBySQL(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	pool, id := w.DB.Pool(t), uuid.Must(uuid.NewV7())
	deep := json.RawMessage(strings.Repeat("[", 101) + "1" + strings.Repeat("]", 101))
	for name, e := range map[string]orchestration.Event{
		"no key": {Namespace: "waits", Name: "go"}, "no name": {Namespace: "waits", Key: "k"}, "blank": {Namespace: "waits", Name: " \t\u00a0", Key: "k"},
		"key and task": {Name: "go", Key: "k", TaskUUID: &id}, "no namespace": {Name: "go", Key: "k"}, "namespace and task": {Namespace: "waits", Name: "go", TaskUUID: &id},
		"line break": {Namespace: "waits", Name: "go\n", Key: "k"}, "control": {Namespace: "waits", Name: "go", Key: "k\u0085"}, "long name": {Namespace: "waits", Name: strings.Repeat("é", 128), Key: "k"},
		"long key": {Namespace: "waits", Name: "go", Key: strings.Repeat("k", 513)}, "long id": {Namespace: "waits", Name: "go", Key: "k", ID: strings.Repeat("k", 256)},
		"long namespace": {Namespace: strings.Repeat("w", 65), Name: "go", Key: "k"}, "deep": {Namespace: "waits", Name: "go", Key: "k", Payload: deep},
		"several": {Namespace: "waits", Name: "\n", Key: "\n", ID: "\x1f"},
	} {
		_, want := w.Orchestrator.ReceiveEvent(t.Context(), e)
		var invalid *orchestration.InvalidError
		require.ErrorAs(t, want, &invalid, name)
		_, _, err := sendBySQL(t.Context(), pool, &e)
		require.Equal(t, "22023", stateOf(t, err), name)
		var failed *pgconn.PgError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, invalid.Error(), failed.Message, name)
	}
	_, err := pool.Exec(t.Context(), `select tasker.send_event('waits', 'go', 'k', keep => '1 s')`)
	require.Equal(t, "22023", stateOf(t, err))
}

// The state and the results that SQL shows are those of the API, while a task waits and when
// it has ended.
func TestResultsBySQL(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	pool := w.DB.Pool(t)
	type shown struct {
		State   string
		Results map[string]any
		Reason  *string
	}
	read := func(id uuid.UUID) (s shown) {
		rows, err := pool.Query(t.Context(), `select state, results, reason from tasker.task_result($1)`, id)
		require.NoError(t, err)
		s, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[shown])
		require.NoError(t, err)
		return s
	}
	id := w.Submit("waits", "told", `{}`)
	w.untilWaiting(id, "told")
	task := w.Read(id)
	half := read(id)
	require.Equal(t, execution.VisibleState(task.State, task.Counts()).String(), half.State)
	require.Len(t, half.Results, 1)
	require.Contains(t, half.Results, "first")
	w.send(orchestration.Event{Name: "go", TaskUUID: &id})
	w.Await(id)
	whole := read(id)
	require.Equal(t, "complete", whole.State)
	require.Len(t, whole.Results, 2)
	require.Nil(t, whole.Reason)

	failed := w.Submit("waits", "hurried", `{}`)
	task = w.Await(failed)
	require.Equal(t, workflow.TaskError, task.State)
	end := read(failed)
	require.Equal(t, "error", end.State)
	require.Empty(t, end.Results)
	_, err := pool.Exec(t.Context(), `select * from tasker.task_result($1)`, uuid.New())
	require.Equal(t, "P0002", stateOf(t, err))
}

// SQL finds the fault of a document that Go finds, at its place.
func TestBoundsOfDocumentsBySQL(t *testing.T) {
	t.Parallel()
	pool, ctx, faults := enginetest.Migrated(t).Pool(t), t.Context(), map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("0,", n), ",") + "]" }
		doc := rapid.SampledFrom([]string{
			`1`, `"short"`, `{}`, `[]`, `null`, `{"a": "` + strings.Repeat("é", 300) + `"}`,
			`"` + strings.Repeat("é", 10_001) + `"`, list(1001), strings.Repeat("[", 89) + strings.Repeat("]", 89), strings.Repeat("[", 95) + strings.Repeat("]", 95), strings.Repeat("9", 309), "1" + strings.Repeat("0", 308), "-" + strings.Repeat("8", 320) + ".5",
			`"` + strings.Repeat("[", 20) + `"`, `"` + strings.Repeat("{", 400) + `"`,
		}).Draw(t, "inside")
		for range rapid.IntRange(0, 12).Draw(t, "levels") {
			if key := rapid.SampledFrom([]string{"", "", "a", "a long key with öüäß characters", strings.Repeat("k", 41), strings.Repeat("ü", 20) + "x", "x" + strings.Repeat("ü", 20)}).Draw(t, "key"); key != "" {
				doc = `{"` + key + `": ` + doc + `, "zz": "b"}`
			} else {
				doc = `[true, 2, ` + doc + `]`
			}
		}
		want := ""
		if err := submission.CheckValue("context", json.RawMessage(doc)); err != nil {
			want = err.Error()
		}
		var got string
		require.NoError(t, pool.QueryRow(ctx, `select coalesce(tasker.value_problem('context', $1::text::jsonb), '')`, doc).Scan(&got))
		require.Equal(t, want, got, "%.200s", doc)
		faults[want]++
	})
	require.Greater(t, len(faults), 2, "the documents are too much alike")
}

// A role that has namespaces finds nothing of others: what is foreign and what is absent is answered alike, by
// each function that the role for SQL may call.
func TestARoleForSQLUsesItsNamespacesAlone(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	ctx := t.Context()
	_, err := w.Orchestrator.RegisterTaskType(ctx, typeTemplate(t, "letters", "email", "1", "{max_attempts: 4}"), ana)
	require.NoError(t, err)
	_, err = w.Orchestrator.RegisterTaskType(ctx, typeTemplate(t, "post", "email", "1", "{max_attempts: 4}"), ana)
	require.NoError(t, err)
	told := w.Submit("waits", "told", `{}`)
	w.untilWaiting(told, "told")

	role := "member_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	w.DB.Exec(t, `create role `+role+` in role tasker_client`)
	t.Cleanup(func() { w.DB.Exec(t, `drop role `+role) })
	call := func(sql string, args ...any) error {
		conn, err := w.DB.Pool(t).Acquire(ctx)
		require.NoError(t, err)
		defer conn.Release()
		_, err = conn.Exec(ctx, `set session authorization `+role)
		require.NoError(t, err)
		defer func() {
			_, err := conn.Exec(ctx, `reset session authorization`)
			require.NoError(t, err)
		}()
		_, err = conn.Exec(ctx, sql, args...)
		return err
	}
	// Each with an object of the namespace waits or letters, and with one that is nowhere.
	calls := map[string]struct {
		sql             string
		foreign, absent []any
	}{
		"create_task":     {`select tasker.create_task($1, $2, '{}')`, []any{"waits", "told"}, []any{"waits", "nowhere"}},
		"enqueue":         {`select tasker.enqueue($2, '{"a":1}', $1)`, []any{"letters", "email"}, []any{"letters", "nowhere"}},
		"send_event":      {`select tasker.send_event(namespace => $1, name => $2, key => 'k')`, []any{"waits", "go"}, []any{"nowhere", "go"}},
		"send_event/task": {`select tasker.send_event(name => $1, task_uuid => $2)`, []any{"go", told}, []any{"go", uuid.New()}},
		"task_result":     {`select tasker.task_result($1)`, []any{told}, []any{uuid.New()}},
	}
	functions := map[string]bool{}
	for name := range calls {
		functions[strings.TrimSuffix(name, "/task")] = true
	}
	require.Equal(t, len(functions), w.DB.QueryInt(t, `select count(*) from pg_proc p where p.pronamespace = 'tasker'::regnamespace
		and has_function_privilege('tasker_client', p.oid, 'execute')`), "a function for programs is missing here")

	gives := func(role string, namespaces ...string) {
		w.DB.Exec(t, `delete from tasker.sql_namespaces`)
		w.DB.Exec(t, `insert into tasker.sql_namespaces select $1, unnest($2::text[])`, role, namespaces)
	}
	rules := map[string]func(){
		"another namespace":      func() { gives(role, "post") },
		"none":                   func() { gives(role, "") },
		"what tasker_client has": func() { gives("tasker_client", "post") },
		"its own rather than tasker_client": func() {
			gives("tasker_client", "*")
			w.DB.Exec(t, `insert into tasker.sql_namespaces values ($1, 'post')`, role)
		},
	}
	for rule, set := range rules {
		set()
		for name, c := range calls {
			foreign, absent := call(c.sql, c.foreign...), call(c.sql, c.absent...)
			require.Error(t, absent, name)
			require.Error(t, foreign, "%s with %s", name, rule)
			var is, want *pgconn.PgError
			require.ErrorAs(t, foreign, &is)
			require.ErrorAs(t, absent, &want)
			shape := func(e *pgconn.PgError, args []any) []string {
				text := e.Message
				for _, a := range args {
					text = strings.ReplaceAll(text, fmt.Sprint(a), "…")
				}
				return []string{e.Code, text, e.Detail, e.Hint}
			}
			require.Equal(t, shape(want, c.absent), shape(is, c.foreign), "%s with %s", name, rule)
		}
	}
	gives(role, "post")
	require.NoError(t, call(`select tasker.enqueue('email', '{"a":2}')`), "a type of its own namespace, though another has one of the name")
	require.Equal(t, 1, w.DB.QueryInt(t, `select count(*) from tasker.tasks t join tasker.namespaces n on n.namespace_id = t.queue where n.name = 'post'`))

	for rule, set := range map[string]func(){"all": func() { gives(role, "*") }, "both": func() { gives(role, "waits", "letters") }, "no rule": func() { gives(role) },
		"rules for others": func() { gives("somebody", "post") }} {
		set()
		w.DB.Exec(t, `delete from tasker.task_identities`)
		require.NoError(t, call(calls["create_task"].sql, "waits", "told"), rule)
		require.NoError(t, call(calls["enqueue"].sql, "letters", "email"), rule)
		require.NoError(t, call(calls["send_event"].sql, "waits", "go"), rule)
		require.NoError(t, call(calls["task_result"].sql, told), rule)
	}
}
