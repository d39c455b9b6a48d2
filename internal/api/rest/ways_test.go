package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/client/pgclient"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// The templates of TestEveryWayToCreateATask: one to be created, one whose handler
// creates it, one whose handler continues with it.
var waysYAML = []string{`
name: made
namespace_name: ways
version: 1.0.0
input_schema: {type: object, properties: {amount: {type: number}, v: {type: [string, number, boolean, object, 'null']}}}
steps: [{name: only, handler: {callable: ways.made}, retry: {retryable: true, max_attempts: 2}}]
`, `
name: creator
namespace_name: ways
version: 1.0.0
steps: [{name: only, handler: {callable: ways.create}, retry: {retryable: false}}]
`, `
name: continued
namespace_name: ways
version: 1.0.0
steps: [{name: only, handler: {callable: ways.continue}, retry: {retryable: false}}]
`}

// ways is an engine with everything that creates tasks.
type ways struct {
	t     *testing.T
	e     *enginetest.Engine
	c     *client.Client
	base  string
	web   *http.Client
	asked sync.Map // the handlers' requests, by the number in their context
}

func newWays(t *testing.T) *ways {
	w := &ways{t: t}
	request := func(ctx *worker.StepContext) (worker.TaskRequest, error) {
		n, err := worker.Field[string](ctx, "asked")
		r, _ := w.asked.Load(n)
		asked, ok := r.(worker.TaskRequest)
		return asked, errors.Join(err, map[bool]error{false: errors.New("no request")}[ok])
	}
	w.e = enginetest.Start(t, func(to *worker.Worker) error {
		for _, text := range waysYAML {
			tmpl, _, err := template.Parse("ways.yaml", []byte(text))
			if err = errors.Join(err, to.RegisterTemplate(tmpl)); err != nil {
				return err
			}
		}
		return errors.Join(
			to.Register("ways.made", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return 1, nil })),
			to.Register("ways.create", worker.InTx(func(ctx *worker.StepContext, tx pgx.Tx) (any, error) {
				r, err := request(ctx)
				if err != nil {
					return nil, worker.Permanent(err)
				}
				created, err := ctx.CreateTask(tx, r)
				return created.UUID, err
			})),
			to.Register("ways.continue", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
				r, err := request(ctx)
				if err != nil {
					return nil, worker.Permanent(err)
				}
				return worker.Continue[any](nil, r)
			})))
	})
	s, err := rest.NewOrchestrator(bounded(t, rest.Config{Address: "127.0.0.1:0"}), rest.Orchestrator{Engine: enginetest.Supervised{Orchestrator: w.e.Orchestrator}, Store: w.e.Store, ID: "test"})
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(t, s.Stop(context.Background()))
	})
	w.base, w.web = "http://"+s.Addr().String(), &http.Client{Transport: transport}
	w.c = client.New(client.Config{BaseURL: w.base, HTTP: w.web})
	return w
}

// asking is a request with every field set; fields that exclude each other are in
// different variants.
func (w *ways) asking(variant int) client.TaskRequest {
	w.t.Helper()
	sleeper, err := w.c.CreateTask(w.t.Context(), client.TaskRequest{Name: "made", Namespace: "ways", Version: "1.0.0",
		Context: json.RawMessage(`{"sleeps":"` + uuid.NewString() + `"}`), DelaySeconds: pointer(3600.0)})
	require.NoError(w.t, err)
	r := client.TaskRequest{
		Name: "made", Namespace: "ways", Version: "1.0.0", Context: json.RawMessage(`{"n": "` + uuid.NewString() + `"}`),
		Initiator: "ana", SourceSystem: "shop", Reason: "to see it arrive", Tags: []string{"red", "round"},
		CorrelationID: pointer(uuid.NewString()), ParentCorrelationID: pointer(uuid.NewString()),
		IdempotencyKey: uuid.NewString(), ConflictPolicy: client.ConflictUseExisting,
		Deadline:  &client.Time{Time: time.Now().Add(4 * time.Hour)},
		DependsOn: []string{sleeper.TaskUUID}, OnDependencyFailure: submission.DependencyIgnored,
		MaxAttempts: pointer(7), RetryDelays: []string{"11s", "2m"},
	}
	if variant == 0 {
		r.Priority, r.StartAt = pointer(40), &client.Time{Time: time.Now().Add(3 * time.Hour).Truncate(time.Millisecond)}
	} else {
		r.PriorityLevel, r.DelaySeconds = pointer(2), pointer(7200.0)
	}
	return r
}

func pointer[T any](v T) *T { return &v }

// arrivals check for each field of a request whether the task has it. ConflictPolicy is
// checked by a repetition that finds the task.
var arrivals = map[string]func(w *ways, id uuid.UUID, r *client.TaskRequest, again func() uuid.UUID){
	"Name": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) { w.is(id, "n.template", r.Name) },
	"Namespace": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) {
		w.is(id, "n.namespace", r.Namespace)
	},
	"Version": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) {
		w.is(id, "n.version", r.Version)
	},
	"Context": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) {
		require.JSONEq(w.t, string(r.Context), w.value(id, "t.context"))
	},
	"Initiator": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) {
		w.is(id, "t.initiator", r.Initiator)
	},
	"SourceSystem": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) {
		w.is(id, "t.source_system", r.SourceSystem)
	},
	"Reason": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) { w.is(id, "t.reason", r.Reason) },
	"Tags": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) {
		require.Subset(w.t, w.e.Read(id).Tags, r.Tags)
	},
	"Priority": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) {
		w.is(id, "t.priority", fmt.Sprint(*r.Priority))
	},
	"PriorityLevel": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) {
		w.is(id, "t.priority", fmt.Sprint((5-*r.PriorityLevel)*20))
	},
	"CorrelationID": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) {
		w.is(id, "t.correlation_id", *r.CorrelationID)
	},
	"ParentCorrelationID": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) {
		w.is(id, "t.parent_correlation_id", *r.ParentCorrelationID)
	},
	"IdempotencyKey": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) {
		w.is(id, "t.idempotency_key", r.IdempotencyKey)
	},
	"ConflictPolicy": func(w *ways, id uuid.UUID, _ *client.TaskRequest, again func() uuid.UUID) {
		require.Equal(w.t, id, again())
	},
	"StartAt": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) {
		require.WithinDuration(w.t, r.StartAt.Time, *w.e.Read(id).StartAt, time.Millisecond)
	},
	"DelaySeconds": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) {
		w.is(id, "extract(epoch from t.start_at - t.requested_at)::int", fmt.Sprint(*r.DelaySeconds))
	},
	"Deadline": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) {
		at, err := time.Parse(time.RFC3339Nano, w.value(id, "to_json(t.deadline) #>> '{}'"))
		require.NoError(w.t, err)
		require.WithinDuration(w.t, r.Deadline.Time, at, time.Minute, "it counts from when the request was read")
	},
	"DependsOn": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) {
		w.is(id, "array_to_string(t.depends_on, ',')", r.DependsOn[0])
	},
	"OnDependencyFailure": func(w *ways, id uuid.UUID, _ *client.TaskRequest, _ func() uuid.UUID) {
		w.is(id, "(select bool_and(lenient) from tasker.task_dependencies d where d.task_uuid = t.task_uuid)", "true")
	},
	"MaxAttempts": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) {
		require.Equal(w.t, *r.MaxAttempts, w.e.Read(id).Progress.Retry.MaxAttempts)
	},
	"RetryDelays": func(w *ways, id uuid.UUID, _ *client.TaskRequest, _ func() uuid.UUID) {
		require.Equal(w.t, []int64{11_000, 120_000}, w.e.Read(id).Progress.Retry.DelaysMS)
	},
}

// value reads an expression of a task as text.
func (w *ways) value(id uuid.UUID, expression string) string {
	w.t.Helper()
	return w.e.DB.QueryString(w.t, `select coalesce((`+expression+`)::text, '') from tasker.tasks t
		join (select plan_id, name as template, version, (select name from tasker.namespaces s where s.namespace_id = p.namespace_id) as namespace
		      from tasker.plans p) n using (plan_id) where t.task_uuid = $1`, id)
}

func (w *ways) is(id uuid.UUID, expression, want string) {
	w.t.Helper()
	require.Equal(w.t, want, w.value(id, expression), expression)
}

// way is one way to create a task.
type way struct {
	create func(w *ways, r client.TaskRequest) uuid.UUID
	// without are the fields of a request that this way does not offer, or
	// does not take from its caller, each with the reason.
	without map[string]string
}

// notBySQL are the fields without an argument of the functions of SQL.
var notBySQL = map[string]string{
	"PriorityLevel": "priority says the same", "DependsOn": "for the API and the Go client", "OnDependencyFailure": "see DependsOn",
	"MaxAttempts": "for the API and the Go client", "RetryDelays": "see MaxAttempts",
}

// with is both maps in one.
func with(some, more map[string]string) map[string]string {
	all := maps.Clone(some)
	maps.Copy(all, more)
	return all
}

var allWays = map[string]way{
	"POST /v1/tasks": {create: (*ways).post},
	"POST /v1/tasks/batch": {create: func(w *ways, r client.TaskRequest) uuid.UUID {
		batch, err := w.c.CreateTasks(w.t.Context(), []client.TaskRequest{r})
		require.NoError(w.t, err)
		require.Nil(w.t, batch.Results[0].Error)
		return uuid.MustParse(batch.Results[0].TaskUUID)
	}},
	"pgclient": {create: func(w *ways, r client.TaskRequest) uuid.UUID {
		conn, err := pgx.Connect(w.t.Context(), w.e.DB.DSN)
		require.NoError(w.t, err)
		defer func() { _ = conn.Close(w.t.Context()) }()
		tx, err := conn.Begin(w.t.Context())
		require.NoError(w.t, err)
		made, err := pgclient.New(pgclient.AnnounceNothing).CreateTaskTx(w.t.Context(), tx, r)
		require.NoError(w.t, err)
		require.NoError(w.t, tx.Commit(w.t.Context()))
		return made.TaskUUID
	}},
	"tasker.create_task": {create: func(w *ways, r client.TaskRequest) uuid.UUID {
		id, err := enginetest.CreateBySQL(w.t.Context(), w.e.DB.Pool(w.t), &r)
		require.NoError(w.t, err)
		return id
	}, without: notBySQL},
	"tasker.enqueue": {create: func(w *ways, r client.TaskRequest) uuid.UUID {
		_, err := w.c.PutTaskType(w.t.Context(), "typed", client.TaskTypeRequest{Namespace: "ways", Handler: "ways.made"})
		require.NoError(w.t, err)
		e := client.EnqueueRequest{Type: "typed", Payload: r.Context, Queue: r.Namespace}
		alike(w.t, r, &e)
		id, err := enginetest.EnqueueBySQL(w.t.Context(), w.e.DB.Pool(w.t), &e)
		require.NoError(w.t, err)
		return id
	}, without: with(notBySQL, map[string]string{"Name": "the type's", "Version": "the type's"})},
	"StepContext.CreateTask": {create: func(w *ways, r client.TaskRequest) uuid.UUID {
		task := w.handled("creator", r)
		var id uuid.UUID
		require.NoError(w.t, json.Unmarshal(task, &id))
		return id
	}},
	"worker.Continue": {create: func(w *ways, r client.TaskRequest) uuid.UUID {
		w.handled("continued", r)
		return uuid.MustParse(w.e.DB.QueryString(w.t, `select task_uuid::text from tasker.tasks where idempotency_key = $1`, r.IdempotencyKey))
	}, without: map[string]string{
		"ConflictPolicy": "an existing task with the key is always the next one",
	}},
	"POST /v1/enqueue": {create: func(w *ways, r client.TaskRequest) uuid.UUID {
		_, err := w.c.PutTaskType(w.t.Context(), "typed", client.TaskTypeRequest{Namespace: "ways", Handler: "ways.made"})
		require.NoError(w.t, err)
		e := client.EnqueueRequest{Type: "typed", Payload: r.Context, Queue: r.Namespace}
		alike(w.t, r, &e)
		made, err := w.c.Enqueue(w.t.Context(), e)
		require.NoError(w.t, err)
		return uuid.MustParse(made.ID)
	}, without: map[string]string{
		"Name": "the type's", "Version": "the type's",
	}},
	"schedule": {create: func(w *ways, r client.TaskRequest) uuid.UUID {
		s := client.ScheduleRequest{Template: r.Name, Cron: "@yearly", CatchUp: client.CatchUpSkip, Overlap: client.OverlapAllow, MaxCatchUp: 1,
			TimeZone: "UTC", JitterSeconds: 1, Actor: "ana", Priority: 40, MaxAttempts: *r.MaxAttempts}
		alike(w.t, r, &s)
		s.Name = "s-" + uuid.NewString()
		made, err := w.c.CreateSchedule(w.t.Context(), s)
		require.NoError(w.t, err)
		run, err := w.c.RunSchedule(w.t.Context(), made.ScheduleID, client.Why{Actor: "ana", Reason: "now"})
		require.NoError(w.t, err)
		return uuid.MustParse(run.TaskUUID)
	}, without: map[string]string{
		"Initiator": "the schedule", "SourceSystem": "the schedule", "Reason": "the due time",
		"PriorityLevel": "schedules have priority only", "CorrelationID": "each run has its own", "ParentCorrelationID": "the schedule's id",
		"IdempotencyKey": "one per run", "ConflictPolicy": "a run is made once", "StartAt": "cron says when", "DelaySeconds": "jitter_seconds does that",
		"Deadline": "an instant is useless for repeated tasks", "DependsOn": "overlap says what a run waits for", "OnDependencyFailure": "see DependsOn",
	}},
	"replay": {create: func(w *ways, r client.TaskRequest) uuid.UUID {
		made, err := w.e.Orchestrator.Replay(w.t.Context(), w.post(r), orchestration.Replay{Actor: r.Initiator, Reason: r.Reason})
		require.NoError(w.t, err)
		return made.UUID
	}, without: map[string]string{
		"CorrelationID": "the new task's own", "ParentCorrelationID": "the correlation id of the old task",
		"IdempotencyKey": "one per investigation", "ConflictPolicy": "a repetition is always a duplicate",
		"StartAt": "it starts now", "DelaySeconds": "it starts now", "Deadline": "that of the old task has passed",
		"DependsOn": "the old dependencies have ended, or do not matter to the operator", "OnDependencyFailure": "see DependsOn",
	}},
}

func (w *ways) post(r client.TaskRequest) uuid.UUID {
	w.t.Helper()
	task, err := w.c.CreateTask(w.t.Context(), r)
	require.NoError(w.t, err)
	return uuid.MustParse(task.TaskUUID)
}

// handled runs a handler that creates a task, and returns its result.
func (w *ways) handled(template string, r client.TaskRequest) json.RawMessage {
	n := uuid.NewString()
	w.asked.Store(n, engineRequest(w.t, r))
	task := w.e.Run("ways", template, `{"asked":"`+n+`"}`)
	require.Equal(w.t, workflow.TaskComplete, task.State, "%s", task.Steps[0].Error)
	return task.Steps[0].Result
}

// engineRequest is a handler's request. Every field of it must be set.
func engineRequest(t *testing.T, r client.TaskRequest) worker.TaskRequest {
	to := worker.TaskRequest{Namespace: r.Namespace, Name: r.Name, Version: r.Version, Context: r.Context, Initiator: r.Initiator,
		SourceSystem: r.SourceSystem, Reason: r.Reason, Tags: r.Tags, IdempotencyKey: r.IdempotencyKey, Conflict: submission.ConflictPolicy(r.ConflictPolicy),
		CorrelationID: pointer(uuid.MustParse(*r.CorrelationID)), ParentCorrelationID: pointer(uuid.MustParse(*r.ParentCorrelationID)),
		DeadlineIn: time.Until(r.Deadline.Time), DependsOn: []uuid.UUID{uuid.MustParse(r.DependsOn[0])}, OnDependencyFailure: r.OnDependencyFailure,
		MaxAttempts: *r.MaxAttempts, RetryDelays: []time.Duration{11 * time.Second, 2 * time.Minute}, Priority: r.Priority, Schema: &submission.SchemaPolicy{}, Bounds: submission.Bounds{Depth: 100}, Watched: true}
	if r.PriorityLevel != nil {
		to.Priority = pointer((5 - *r.PriorityLevel) * 20)
	}
	var other string
	if r.StartAt != nil {
		to.StartAt, other = &r.StartAt.Time, "StartIn"
	} else {
		to.StartIn, other = time.Duration(*r.DelaySeconds)*time.Second, "StartAt"
	}
	for field, value := range reflect.ValueOf(to).Fields() {
		require.True(t, !field.IsExported() || field.Name == other || !value.IsZero(), "this test does not know the field %s", field.Name)
	}
	return to
}

// alike copies the fields of a request that another kind of request has under the same
// name and type, all of which must be set then.
func alike(t *testing.T, r client.TaskRequest, to any) {
	from, into := reflect.ValueOf(r), reflect.ValueOf(to).Elem()
	for field, value := range into.Fields() {
		if same := from.FieldByName(field.Name); same.IsValid() && same.Type() == field.Type {
			into.FieldByIndex(field.Index).Set(same)
		}
		either := slices.Contains([]string{"Priority", "PriorityLevel", "StartAt", "DelaySeconds"}, field.Name)
		require.True(t, either || field.Name == "DryRun" || field.Name == "Name" || !value.IsZero(), "this test does not know the field %s", field.Name)
	}
}

// TestEveryWayToCreateATask: every field of a request reaches the task, whichever way it
// is created, or the way is documented not to offer it.
func TestEveryWayToCreateATask(t *testing.T) {
	t.Parallel()
	for name, way := range allWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWays(t)
			checked := map[string]bool{}
			for variant := range 2 {
				r := w.asking(variant)
				id := way.create(w, r)
				for field, value := range reflect.ValueOf(r).Fields() {
					if value.IsZero() || way.without[field.Name] != "" {
						continue
					}
					require.Contains(t, arrivals, field.Name, "this test does not know how the field arrives")
					arrivals[field.Name](w, id, &r, func() uuid.UUID { return way.create(w, r) })
					checked[field.Name] = true
				}
			}
			for field := range reflect.TypeFor[client.TaskRequest]().Fields() {
				require.NotEqual(t, way.without[field.Name] != "", checked[field.Name], "%s is neither checked nor excused, or both", field.Name)
			}
		})
	}
}

// TestEveryWayTakesTheSameDocuments: only the bytes and the depth of a context are bounded.
func TestEveryWayTakesTheSameDocuments(t *testing.T) {
	t.Parallel()
	documents := map[string]string{
		"many elements": "[" + strings.Repeat("0,", 5000) + "0]",
		"a long text":   `"` + strings.Repeat("é", 15_000) + `"`,
		"deep":          strings.Repeat("[", 99) + strings.Repeat("]", 99),
		"exact numbers": `[9007199254740993, 123456789012345678901234567890, 1.000000000000000001]`,
	}
	for name, by := range allWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWays(t)
			for what, doc := range documents {
				r := w.asking(0)
				r.Context = json.RawMessage(`{"n": "` + uuid.NewString() + `", "doc": ` + doc + `}`)
				require.Equal(t, "true", w.value(by.create(w, r), "t.context -> 'doc' = '"+doc+"'::jsonb"), "%s: %s", name, what)
			}
		})
	}
}
