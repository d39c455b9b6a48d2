package rest_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/client/pgclient"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/workflow"
)

// doors are the ways by which JSON enters, each with a function that sends a document and
// returns why it was rejected; nil: accepted.
func (w *ways) doors() map[string]func(doc json.RawMessage) error {
	ctx := w.t.Context()
	made := func(doc json.RawMessage) client.TaskRequest {
		return client.TaskRequest{Name: "made", Namespace: "ways", Version: "1.0.0", Context: doc, IdempotencyKey: uuid.NewString()}
	}
	end := func() string {
		task, err := w.c.CreateTask(ctx, made(json.RawMessage(`{"first":1}`)))
		require.NoError(w.t, err)
		w.e.Await(uuid.MustParse(task.TaskUUID))
		return task.TaskUUID
	}
	return map[string]func(doc json.RawMessage) error{
		"create": func(doc json.RawMessage) error { _, err := w.c.CreateTask(ctx, made(doc)); return err },
		"create by context": func(doc json.RawMessage) error {
			r := made(doc)
			r.IdempotencyKey = ""
			_, err := w.c.CreateTask(ctx, r)
			return err
		},
		"batch": func(doc json.RawMessage) error {
			batch, err := w.c.CreateTasks(ctx, []client.TaskRequest{made(doc)})
			if err == nil && batch.Results[0].Error != nil {
				require.Equal(w.t, "BAD_REQUEST", batch.Results[0].Error.Code)
				return &client.Error{Status: http.StatusBadRequest, Message: batch.Results[0].Error.Message}
			}
			return err
		},
		"enqueue": func(doc json.RawMessage) error {
			_, err := w.c.PutTaskType(ctx, "kept", client.TaskTypeRequest{Namespace: "ways", Handler: "ways.made"})
			require.NoError(w.t, err)
			_, err = w.c.Enqueue(ctx, client.EnqueueRequest{Type: "kept", Payload: doc})
			return err
		},
		"task type": func(doc json.RawMessage) error {
			_, err := w.c.PutTaskType(ctx, "t-"+uuid.NewString()[:8], client.TaskTypeRequest{Namespace: "ways", PayloadSchema: json.RawMessage(`{"default":` + string(doc) + `}`)})
			return err
		},
		"schedule": func(doc json.RawMessage) error {
			_, err := w.c.CreateSchedule(ctx, client.ScheduleRequest{Name: "s-" + uuid.NewString(), Namespace: "ways", Template: "made", Version: "1.0.0", Cron: "@yearly", Context: doc})
			return err
		},
		"event": func(doc json.RawMessage) error {
			_, err := w.c.SendEvent(ctx, client.ExternalEvent{Name: "paid", Namespace: "ways", Key: uuid.NewString(), Payload: doc})
			return err
		},
		"metadata of an investigation": func(doc json.RawMessage) error {
			_, err := w.c.AddDLQEntry(ctx, client.DLQAdd{TaskUUID: end(), Reason: "look", Actor: "ana", Metadata: doc})
			return err
		},
		"context of a replay": func(doc json.RawMessage) error {
			_, err := w.e.Orchestrator.Replay(ctx, uuid.MustParse(end()), orchestration.Replay{Actor: "ana", Reason: "again", Edit: &submission.ContextEdit{Context: doc}})
			return err
		},
		"pgclient": func(doc json.RawMessage) error {
			conn, err := pgx.Connect(ctx, w.e.DB.DSN)
			require.NoError(w.t, err)
			defer func() { _ = conn.Close(ctx) }()
			tx, err := conn.Begin(ctx)
			require.NoError(w.t, err)
			_, err = pgclient.New(pgclient.AnnounceNothing).CreateTaskTx(ctx, tx, made(doc))
			_, broken := tx.Exec(ctx, `select 1`)
			require.NoError(w.t, broken, "the transaction of the caller can continue")
			return err
		},
		"sql": func(doc json.RawMessage) error {
			r := made(doc)
			_, err := enginetest.CreateBySQL(ctx, w.e.DB.Pool(w.t), &r)
			var failed *pgconn.PgError
			if errors.As(err, &failed) { // what is no jsonb does not get as far as the function
				require.Contains(w.t, []string{"22023", "22P02", "22P05", "22021", "22003"}, failed.Code, "%s", failed.Message)
				return &submission.InvalidError{Problems: []string{failed.Message}}
			}
			return err
		},
		"handler": func(doc json.RawMessage) error {
			n := uuid.NewString()
			r := made(doc)
			w.asked.Store(n, []submission.Request{{Namespace: r.Namespace, Name: r.Name, Version: r.Version, Context: doc, IdempotencyKey: r.IdempotencyKey}})
			if task := w.e.Run("makers", "creator", `{"asked":"`+n+`"}`); task.State != workflow.TaskComplete {
				require.NotContains(w.t, string(task.Steps[0].Error), "SQLSTATE", "%s", task.Steps[0].Error)
				return &submission.InvalidError{Problems: []string{string(task.Steps[0].Error)}}
			}
			return nil
		},
	}
}

// refused asserts that the error blames the sender.
func refused(t *testing.T, err error, doc string) {
	t.Helper()
	var answer *client.Error
	var invalid *submission.InvalidError
	switch {
	case errors.As(err, &answer):
		require.Contains(t, []int{http.StatusBadRequest, http.StatusUnprocessableEntity}, answer.Status, "%.40q: %s", doc, err)
	default:
		require.ErrorAs(t, err, &invalid, "%.40q", doc)
	}
	require.NotContains(t, err.Error(), "SQLSTATE")
}

// TestWhatCannotBeStoredIsRefusedAtEveryDoor: by the same definition, in words, and
// before a statement is sent.
func TestWhatCannotBeStoredIsRefusedAtEveryDoor(t *testing.T) {
	t.Parallel()
	w := newWays(t)
	for door, bring := range w.doors() {
		t.Run(door, func(t *testing.T) {
			for _, value := range []string{`1.000000000000000001`, `1e-16383`, `"\ud83d\ude00"`, `-0.0`, strings.Repeat("1", 300) + "." + strings.Repeat("1", 300)} {
				require.NoError(t, bring(json.RawMessage(`{"v":`+value+`}`)), "%.40q", value)
			}
			for _, value := range []string{`1e-20000`, `1e400`, `0e99999999999`, `"\u0000"`, `"\ud83d"`, `"\ude00"`, "\"\xff\"", "\"\xed\xa0\x80\""} {
				refused(t, bring(json.RawMessage(`{"v":`+value+`}`)), value)
			}
		})
	}
	t.Run("data after the document", func(t *testing.T) {
		refused(t, w.doors()["pgclient"](json.RawMessage(`{"v":1} {`)), "two")
	})
	t.Run("two numbers equal as doubles", func(t *testing.T) {
		create := w.doors()["create by context"]
		require.NoError(t, create(json.RawMessage(`{"amount":2.000000000000000001}`)))
		require.NoError(t, create(json.RawMessage(`{"amount":2.000000000000000002}`)))
		var answer *client.Error
		require.ErrorAs(t, create(json.RawMessage(`{"amount":2.0000000000000000020}`)), &answer)
		require.Equal(t, http.StatusConflict, answer.Status)
	})
}

// TestTextOfAddressesIsText: paths and queries contain text that the database can
// compare, or are rejected.
func TestTextOfAddressesIsText(t *testing.T) {
	t.Parallel()
	w := newWays(t)
	for _, bad := range []string{"\xff", "\x00", "\xed\xa0\x80"} {
		q := url.QueryEscape(bad)
		for _, address := range []string{
			"/v1/tasks?namespace=" + q, "/v1/tasks?status=" + q, "/v1/tasks?correlation_id=" + q, "/v1/tasks?name=" + q, "/v1/tasks?tag=" + q,
			"/v1/tasks/" + q, "/v1/tasks/by-key?namespace=ways&name=made&idempotency_key=" + q, "/v1/tasks/by-key?namespace=" + q + "&name=made&idempotency_key=k",
			"/v1/templates?namespace=" + q, "/v1/templates/" + q + "/made/1.0.0", "/v1/templates/ways/" + q + "/1.0.0", "/v1/templates/ways/made/" + q,
			"/v1/schedules?namespace=" + q, "/v1/schedules?name=" + q, "/v1/schedules?template=" + q, "/v1/dlq?namespace=" + q, "/v1/dlq?reason=" + q,
			"/v1/workers?namespace=" + q, "/v1/task-types?namespace=" + q, "/v1/task-types/" + q, "/v1/namespaces/" + q, "/v1/approvals?namespace=" + q, "/v1/approvals/" + q,
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.base+address, nil)
			require.NoError(t, err)
			answer, err := w.web.Do(r)
			require.NoError(t, err)
			body, err := io.ReadAll(answer.Body)
			require.NoError(t, errors.Join(err, answer.Body.Close()))
			require.Less(t, answer.StatusCode, 500, "%s: %s", address, body)
		}
	}
}
