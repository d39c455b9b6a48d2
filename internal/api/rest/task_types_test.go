package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// fakeTypes has one task type, mail/email.send.
type fakeTypes struct{ *fakeOperator }

func typed(template *workflow.Template) (*store.Plan, error) {
	plan, err := workflow.Compile(template)
	return &store.Plan{Plan: plan, ID: 2, Queue: 2}, err
}

func emailType() *store.Plan {
	template, _, err := template.Parse("t.yaml", []byte("name: email.send\nnamespace_name: mail\nversion: '2'\npriority: 40\n"+
		"identity: {strategy: always_unique, key_lifetime: 7d}\ninput_schema: {type: object}\n"+
		"steps:\n  - {name: email.send, handler: mail.send, timeout_seconds: 5, tags: [smtp], retry: {max_attempts: 4, backoff: fixed, backoff_base_ms: 500}}\n"))
	if err != nil {
		panic(err)
	}
	plan, err := typed(template)
	if err != nil {
		panic(err)
	}
	return plan
}

func (f fakeTypes) of(plan *store.Plan) store.TaskType {
	return store.TaskType{Plan: plan, CreatedAt: began, UpdatedAt: *at(1), CreatedBy: "ana", UpdatedBy: "bob"}
}

func (f fakeTypes) RegisterTaskType(_ context.Context, template *workflow.Template, why orchestration.Why) (store.TaskType, error) {
	if err := f.note("register type", []any{template, why}); err != nil {
		return store.TaskType{}, err
	}
	plan, err := typed(template)
	return f.of(plan), err
}

func (f fakeTypes) TaskType(_ context.Context, namespace, name string) (store.TaskType, error) {
	if err := f.note("read", nil); err != nil {
		return store.TaskType{}, err
	}
	if namespace+"/"+name != "mail/email.send" {
		return store.TaskType{}, fmt.Errorf("read the task type: %w", store.ErrNotFound)
	}
	return f.of(emailType()), nil
}

func (f fakeTypes) TaskTypes(_ context.Context, namespace string, limit, offset int) ([]store.TaskType, error) {
	return []store.TaskType{f.of(emailType())}, f.note("types", []any{namespace, limit, offset})
}

func (f fakeTypes) DeleteTaskType(ctx context.Context, namespace, name string, why orchestration.Why) (store.TaskType, error) {
	if err := f.note("delete type", why); err != nil {
		return store.TaskType{}, err
	}
	return f.TaskType(ctx, namespace, name)
}

func (f fakeTypes) PlanOfType(_ context.Context, queue, name string) (*store.Plan, error) {
	if err := f.note("read", nil); err != nil {
		return nil, err
	}
	if name != "email.send" || queue != "" && queue != "mail" {
		return nil, &orchestration.UnknownTypeError{Namespace: queue, Type: name}
	}
	return emailType(), nil
}

func TestTaskTypesOverTheAPI(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	h.do(http.MethodPut, "/v1/task-types/email.send", `{"namespace":"mail","version":"2","handler":"mail.send","payload_schema":{"type":"object","required":["to"]},`+
		`"priority_level":3,"max_attempts":4,"retry":{"backoff":"fixed","backoff_base_ms":500},"timeout_seconds":5,"tags":["smtp"],`+
		`"identity":{"key_lifetime":"7d"},"actor":"ana","reason":"new"}`).golden(t, "task_type")
	template := o.calls[0].with.([]any)[0].(*workflow.Template)
	require.Equal(t, workflow.IdentityPolicy{Strategy: workflow.IdentityAlwaysUnique, KeyLifetime: "7d"}, *template.Identity)
	require.Equal(t, orchestration.Why{Actor: "ana", Reason: "new"}, o.calls[0].with.([]any)[1])

	require.Equal(t, http.StatusOK, h.do(http.MethodPut, "/v1/task-types/plain", `{}`).StatusCode)
	template = o.calls[1].with.([]any)[0].(*workflow.Template)
	require.Equal(t, "default/plain:1.0.0 plain", template.Namespace+"/"+template.Name+":"+template.Version+" "+template.Steps[0].Handler.Callable)
	require.Equal(t, 3, template.Steps[0].Retry.MaxAttempts)
	require.Equal(t, workflow.IdentityAlwaysUnique, template.Identity.Strategy, "a queue has no duplicates by default")

	h.get("/v1/task-types?namespace=mail&limit=7&offset=3").golden(t, "task_types")
	require.Equal(t, []any{"mail", 7, 3}, o.calls[2].with)
	h.get("/v1/task-types/email.send?namespace=mail").golden(t, "task_type_read")
	require.Contains(t, h.get("/v1/task-types/email.send").refused(t, 404, "NOT_FOUND").Message, "default/email.send")
	require.Equal(t, http.StatusOK, h.do(http.MethodDelete, "/v1/task-types/email.send?namespace=mail&actor=ana", "").StatusCode)
	h.do(http.MethodDelete, "/v1/task-types/other?namespace=mail", "").refused(t, 404, "NOT_FOUND")
	for _, query := range []string{"limit=0", "limit=1001", "limit=x", "offset=-1", "namespace=%00"} {
		h.get("/v1/task-types?"+query).refused(t, 400, "BAD_REQUEST")
	}
}

func TestTaskTypesAreHeldToWhatTemplatesAre(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	for body, says := range map[string]string{
		`{"namespace":"no queue"}`:                           "may contain only letters",
		`{"payload_schema":{"type":"nothing"}}`:              "payload_schema",
		`{"payload_schema":[1]}`:                             "payload_schema",
		`{"max_attempts":40000}`:                             "retry.max_attempts is 40000",
		`{"max_attempts":2,"retry":{"max_attempts":3}}`:      "contradict",
		`{"retry":{"backoff":"sometimes"}}`:                  "retry.backoff",
		`{"timeout_seconds":-1}`:                             "timeout_seconds",
		`{"priority":101}`:                                   "priority is 101",
		`{"priority":1,"priority_level":1}`:                  "keep one of them",
		`{"identity":{"strategy":"sometimes"}}`:              "identity.strategy",
		`{"identity":{"calendar":"day","time_zone":"Mars"}}`: "time zone",
		`{"actor":"` + strings.Repeat("x", 300) + `"}`:       "actor must have at most",
	} {
		r := h.do(http.MethodPut, "/v1/task-types/email.send", body).refused(t, 400, "BAD_REQUEST")
		require.Contains(t, r.Message, says, body)
		require.NotContains(t, r.Message, "steps[0]", body)
	}
	h.do(http.MethodPut, "/v1/task-types/"+strings.Repeat("x", 65), `{}`).refused(t, 400, "BAD_REQUEST")
	h.do(http.MethodPut, "/v1/task-types/email.send", `{"tags":"x"}`).refused(t, 422, "UNPROCESSABLE_ENTITY")
	require.Empty(t, o.calls)
	o.err = store.ErrNoTaskType
	require.Contains(t, h.do(http.MethodPut, "/v1/task-types/email.send", `{}`).refused(t, 409, "CONFLICT").Message, "is not a task type")
}

func TestEnqueueOverTheAPI(t *testing.T) {
	t.Parallel()
	h := newHouse(t, operated(&fakeOperator{}))
	r := h.do(http.MethodPost, "/v1/enqueue", `{"type":"email.send","payload":{"to":"ana"},"idempotency_key":"k","max_attempts":5,"priority_level":1}`)
	require.Equal(t, http.StatusCreated, r.StatusCode, "%s", r.body)
	require.JSONEq(t, `{"id":"`+taskID.String()+`","status":"pending","queue":"mail"}`, string(r.body))
	got := h.engine.created[0]
	require.Equal(t, "mail/email.send:2", got.Namespace+"/"+got.Name+":"+got.Version)
	require.JSONEq(t, `{"to":"ana"}`, string(got.Context))
	require.EqualValues(t, "use_existing", got.Conflict)
	require.Equal(t, 5, got.MaxAttempts)
	require.Equal(t, 80, *got.Priority)

	h.engine.existing = true
	r = h.do(http.MethodPost, "/v1/enqueue", `{"type":"email.send","payload":{},"queue":"mail","idempotency_key":"k"}`)
	require.Equal(t, http.StatusOK, r.StatusCode)
	require.Equal(t, "true", r.Header.Get("Idempotent-Replayed"))
	require.JSONEq(t, `{"id":"`+taskID.String()+`","status":"steps_in_process","queue":"mail","existing":true}`, string(r.body))

	require.Contains(t, h.do(http.MethodPost, "/v1/enqueue", `{"type":"sms.send","payload":{}}`).refused(t, 400, "BAD_REQUEST").Message, "Unknown task type: sms.send")
	h.do(http.MethodPost, "/v1/enqueue", `{"type":"email.send","payload":{},"queue":"sms"}`).refused(t, 400, "BAD_REQUEST")
	h.do(http.MethodPost, "/v1/enqueue", `{"payload":{}}`).refused(t, 422, "UNPROCESSABLE_ENTITY")
	h.do(http.MethodPost, "/v1/enqueue", `{"type":"email.send"}`).refused(t, 422, "UNPROCESSABLE_ENTITY")
	h.engine.createErr = &orchestration.InvalidError{Problems: []string{"context/to: is required", "tags[0] must not be empty"}}
	require.Equal(t, "payload/to: is required; tags[0] must not be empty",
		h.do(http.MethodPost, "/v1/enqueue", `{"type":"email.send","payload":{}}`).refused(t, 400, "BAD_REQUEST").Message)
	h.get("/v1/enqueue/"+taskID.String()).refused(t, 404, "NOT_FOUND") // the fake's task has several steps
	h.get("/v1/enqueue/none").refused(t, 400, "INVALID_UUID")
}

// TestTaskTypesFromEndToEnd: over the API, with a worker that ran before.
func TestTaskTypesFromEndToEnd(t *testing.T) {
	t.Parallel()
	c, e := operatedHouse(t)
	ctx := t.Context()
	_, err := c.Enqueue(ctx, client.EnqueueRequest{Type: "mood", Payload: json.RawMessage(`{}`)})
	require.ErrorContains(t, err, "Unknown task type: mood")
	made, err := c.PutTaskType(ctx, "mood", client.TaskTypeRequest{Namespace: "shapes", Handler: "test.mood",
		PayloadSchema: json.RawMessage(`{"type":"object","properties":{"mood":{"type":"string"}}}`), Actor: "ana"})
	require.NoError(t, err)
	require.Equal(t, "ana", made.CreatedBy)
	require.Equal(t, 1, e.DB.QueryInt(t, `select count(*) from tasker.operator_actions where action = 'register_task_type' and actor = 'ana'`))

	in := client.EnqueueRequest{Type: "mood", Payload: json.RawMessage(`{"mood":"good"}`), IdempotencyKey: "k"}
	first, err := c.Enqueue(ctx, in)
	require.NoError(t, err)
	require.False(t, first.Existing)
	require.Equal(t, "shapes", first.Queue)
	done, err := c.EnqueuedTask(ctx, first.ID, 30*time.Second)
	require.NoError(t, err)
	require.Equal(t, "complete", done.Status)
	require.JSONEq(t, `{"n":2}`, string(done.Result))
	again, err := c.Enqueue(ctx, in)
	require.NoError(t, err)
	require.Equal(t, client.Enqueued{ID: first.ID, Status: "complete", Queue: "shapes", Existing: true}, *again)
	in.Payload, in.IdempotencyKey = json.RawMessage(`{"mood":7}`), ""
	_, err = c.Enqueue(ctx, in)
	var refusal *client.Error
	require.ErrorAs(t, err, &refusal)
	require.Contains(t, refusal.Message, "payload/mood")

	templates, err := c.Templates(ctx, "shapes")
	require.NoError(t, err)
	require.Len(t, templates.Templates, 3, "it is an ordinary template")
	_, err = c.PutTaskType(ctx, "chain", client.TaskTypeRequest{Namespace: "shapes"})
	require.True(t, client.IsConflict(err), "the name of a workflow: %v", err)
	list, err := c.TaskTypes(ctx, client.TaskTypeListOptions{Namespace: "shapes"})
	require.NoError(t, err)
	require.Equal(t, []client.TaskType{*made}, list)
	_, err = c.DeleteTaskType(ctx, "shapes", "mood", client.Why{Actor: "ana", Reason: "over"})
	require.NoError(t, err)
	_, err = c.TaskType(ctx, "shapes", "mood")
	require.True(t, client.IsNotFound(err))
	in.Payload = json.RawMessage(`{}`)
	_, err = c.Enqueue(ctx, in)
	require.ErrorContains(t, err, "Unknown task type: mood")
	_, err = c.CreateTask(ctx, client.TaskRequest{Name: "mood", Namespace: "shapes", Version: "1.0.0", Context: json.RawMessage(`{}`)})
	require.True(t, client.IsNotFound(err), "nor by another way")
}
