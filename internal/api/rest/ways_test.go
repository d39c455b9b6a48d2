package rest_test

import (
	"bytes"
	"cmp"
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
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/client/grpcclient"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/api/grpc"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/schema"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/internal/taskmaster"
	"github.com/tasker-go/tasker/poller"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// The templates of TestEveryWayToCreateATask: those to be created, in the namespace ways,
// and those whose handlers create others, in one of their own.
var waysYAML = slices.Concat([]string{`
name: made
namespace_name: ways
version: 1.0.0
input_schema: ` + madeSchema + `
steps: [{name: only, handler: {callable: ways.made}, retry: {retryable: true, max_attempts: 2}}]
`}, makers("creator", "creators", "continued"), versions, identities())

const madeSchema = `{"type": "object", "properties": {"amount": {"type": "number"}, "v": {"type": ["string", "number", "boolean", "object", "null"]}}}`

// makers are templates whose handlers have their names.
func makers(names ...string) (list []string) {
	for _, name := range names {
		list = append(list, fmt.Sprintf(`
name: %s
namespace_name: makers
version: 1.0.0
steps: [{name: only, handler: {callable: ways.%[1]s}, retry: {retryable: false}}]
`, name))
	}
	return list
}

// ways is an engine with everything that creates tasks.
type ways struct {
	t      *testing.T
	e      *enginetest.Engine
	db     *pgxpool.Pool  // of programs
	c      *client.Client // over REST
	rpc    *client.Client // over gRPC
	base   string
	web    *http.Client
	asked  *sync.Map     // the requests of handlers, by the number in their context
	gate   chan struct{} // closed: handlers that hold their steps go on
	typed  *sync.Once    // registers the task types
	whole  bool          // requests have every field set, which is checked
	before *int          // tasks that a way had to create before it could create one
	stored string        // where the task has its context, as SQL
}

// in is the same engine for a part of the test of one way.
func (w *ways) in(t *testing.T, by *way) *ways {
	part := *w
	part.t, part.stored = t, cmp.Or(by.stored, "t.context")
	return &part
}

func newWays(t *testing.T) *ways {
	w := &ways{t: t, asked: &sync.Map{}, gate: make(chan struct{}), typed: &sync.Once{}, before: new(int)}
	w.e = enginetest.Start(t, func(to *worker.Worker) error {
		return errors.Join(enginetest.RegisterTemplates(to, waysYAML...),
			to.Register("ways.made", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return 1, nil })),
			to.Register("ways.held", worker.HandlerFunc(w.held)),
			to.Register("ways.creator", worker.InTx(func(ctx *worker.StepContext, tx pgx.Tx) (any, error) {
				r, err := requestsOf(w, ctx)
				if err != nil {
					return nil, worker.Permanent(err)
				}
				created, err := ctx.CreateTask(tx, r[0])
				return created.UUID, err
			})),
			to.Register("ways.creators", worker.InTx(func(ctx *worker.StepContext, tx pgx.Tx) (any, error) {
				r, err := requestsOf(w, ctx)
				made := make([]createdBy, len(r))
				for i := range r {
					created, err := ctx.CreateTask(tx, r[i])
					if made[i] = (createdBy{ID: created.UUID, Existing: created.Existing}); err != nil {
						made[i].Error = err.Error()
					}
				}
				return made, err
			})),
			to.Register("ways.continued", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
				r, err := requestsOf(w, ctx)
				if err != nil {
					return nil, worker.Permanent(err)
				}
				return worker.Continue[any](nil, r[0])
			})))
	})
	t.Cleanup(w.release)
	w.db = w.e.DB.Pool(t)
	defaults, err := config.Defaults()
	require.NoError(t, err)
	queues, err := taskmaster.New(taskmaster.Config{Store: w.e.Store, Engine: w.e.Orchestrator, Publisher: w.e.Bus, Actor: "test",
		Liveness: store.LivenessLimits{Stale: time.Minute, Dead: time.Hour}, BaseDelay: time.Millisecond, MaxWaiting: 1,
		System: enginetest.Completed(t, coordinator.Config{SystemID: "queues", Mode: deploymode.PollingOnly,
			Poller: poller.Config{Interval: time.Second, RelaxedInterval: time.Hour}})})
	require.NoError(t, err)
	s, err := rest.NewOrchestrator(bounded(t, rest.Config{Address: "127.0.0.1:0"}), rest.Orchestrator{
		Engine: enginetest.Supervised{Orchestrator: w.e.Orchestrator}, Store: w.e.Store, ID: "test", Queues: queues})
	require.NoError(t, err)
	cfg := grpc.Configure(defaults.Orchestration.GRPC, defaults.Orchestration.Web)
	cfg.Address = "127.0.0.1:0"
	over, err := grpc.NewOrchestrator(cfg, s)
	require.NoError(t, err)
	require.NoError(t, errors.Join(s.Start(t.Context()), over.Start(t.Context())))
	rpc, err := grpcclient.New(client.Config{BaseURL: "http://" + over.Addr().String()}, grpcclient.Options{})
	require.NoError(t, err)
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(t, errors.Join(rpc.Close(), over.Stop(context.Background()), s.Stop(context.Background())))
	})
	w.base, w.web = "http://"+s.Addr().String(), &http.Client{Transport: transport}
	w.c, w.rpc = client.New(client.Config{BaseURL: w.base, HTTP: w.web}), client.New(client.Config{Transport: rpc, MaxRetries: -1})
	w.deprecate("versioned")
	return w
}

// requestsOf are the requests that a handler is to make.
func requestsOf(w *ways, ctx *worker.StepContext) ([]worker.TaskRequest, error) {
	n, err := worker.Field[string](ctx, "asked")
	r, _ := w.asked.Load(n)
	asked, ok := r.([]worker.TaskRequest)
	return asked, errors.Join(err, map[bool]error{false: errors.New("no request")}[ok])
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
	"Name": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) {
		require.Contains(w.t, []string{r.Name, typeOf(r.Name)}, w.value(id, "n.template"))
	},
	"Namespace": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) {
		w.is(id, "n.namespace", r.Namespace)
	},
	"Version": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) {
		w.is(id, "n.version", r.Version)
	},
	"Context": func(w *ways, id uuid.UUID, r *client.TaskRequest, _ func() uuid.UUID) {
		require.JSONEq(w.t, string(r.Context), w.value(id, w.stored))
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
	create func(w *ways, r client.TaskRequest) (uuid.UUID, error)
	// without are the fields of a request that this way does not offer, or
	// does not take from its caller, each with the reason.
	without map[string]string
	// accepted are fields that something else had to accept before, each with the reason.
	accepted map[string]string
	// excused are the cases, by their names, that this way treats otherwise, each with the
	// reason.
	excused map[string]string
	// says are the words with which this way refuses a case, where they differ.
	says map[string]string
	// stored is where the task has the context of the request, as SQL; empty: its context.
	stored string
	// finds says that a taken key is answered with its task unless the request says
	// otherwise.
	finds bool
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

// allWays are the ways to create a task that can be had in this package. What else creates
// tasks sends them by one of these: tasker-ctl by REST (TestEveryCommandAgainstRealDaemons in
// cmd/tasker-ctl), the bridges of brokers like the plain queues and POST /v1/enqueue
// (TestMessagesBecomeTasks in internal/bridge/amqpqueue, TestJobsOfAllLanesBecomeTasks in
// internal/bridge/redisqueue), handlers in other languages in their reports
// (TestPythonHandlers and TestTypeScriptHandlers in daemon).
var allWays = map[string]way{
	"POST /v1/tasks": {create: (*ways).post},
	"POST /v1/tasks/batch": {create: func(w *ways, r client.TaskRequest) (uuid.UUID, error) {
		return one(batch(w, []client.TaskRequest{r}))
	}},
	"gRPC": {create: func(w *ways, r client.TaskRequest) (uuid.UUID, error) {
		for field := range reflect.TypeFor[client.TaskRequest]().Fields() {
			if notByGRPC[field.Name] != "" {
				reflect.ValueOf(&r).Elem().FieldByIndex(field.Index).SetZero()
			}
		}
		made, err := w.rpc.CreateTask(w.t.Context(), r)
		if err != nil {
			return uuid.Nil, err
		}
		return uuid.Parse(made.TaskUUID)
	}, without: notByGRPC, excused: map[string]string{
		"exact numbers": "a Struct has doubles, so that the client refuses them", "no version": "tasker.v1 requires one",
	}, says: map[string]string{
		"a context that is no object": "only objects for context", "a number that is too large": "no exact number 1e400",
	}},
	"pgclient": {create: func(w *ways, r client.TaskRequest) (uuid.UUID, error) {
		return one(inTx(w, []client.TaskRequest{r}))
	}},
	"tasker.create_task": {create: func(w *ways, r client.TaskRequest) (uuid.UUID, error) {
		return enginetest.CreateBySQL(w.t.Context(), w.db, &r)
	}, without: notBySQL, says: ofUUIDs},
	"tasker.enqueue": {create: func(w *ways, r client.TaskRequest) (uuid.UUID, error) {
		e := w.enqueued(r)
		return enginetest.EnqueueBySQL(w.t.Context(), w.db, &e)
	}, without: with(notBySQL, map[string]string{"Version": "the type's"}), excused: ofTypes, says: ofUUIDs, finds: true},
	"StepContext.CreateTask": {create: func(w *ways, r client.TaskRequest) (id uuid.UUID, err error) {
		task, err := w.handled("creator", r)
		if err == nil {
			err = json.Unmarshal(task, &id)
		}
		return id, err
	}, excused: ofGo},
	"worker.Continue": {create: func(w *ways, r client.TaskRequest) (uuid.UUID, error) {
		if _, err := w.handled("continued", r); err != nil {
			return uuid.Nil, err
		}
		return uuid.MustParse(w.e.DB.QueryString(w.t, `select task_uuid::text from tasker.tasks where idempotency_key = $1
			order by requested_at desc limit 1`, r.IdempotencyKey)), nil
	}, without: map[string]string{
		"ConflictPolicy": "an existing task with the key is always the next one",
	}, excused: with(ofGo, map[string]string{"a repeated context": "without a key the next task is never a duplicate"}), says: map[string]string{
		"no name": "Template not found: ways/continued", "no namespace": "Template not found: makers/made", // those of the task of the handler
	}, finds: true},
	"POST /v1/enqueue": {create: func(w *ways, r client.TaskRequest) (uuid.UUID, error) {
		made, err := w.c.Enqueue(w.t.Context(), w.enqueued(r))
		if err != nil {
			return uuid.Nil, err
		}
		return uuid.Parse(made.ID)
	}, without: map[string]string{
		"Version": "the type's",
	}, excused: ofTypes, finds: true},
	"POST /tasks/v1": {create: func(w *ways, r client.TaskRequest) (uuid.UUID, error) {
		var made struct{ ID uuid.UUID }
		return made.ID, w.send("/tasks/v1", queued(r), &made)
	}, without: map[string]string{
		"Name": "the queue's", "Version": "the queue's", "Initiator": "the principal", "SourceSystem": "no field", "Reason": "no field",
		"PriorityLevel": "priority says the same", "CorrelationID": "the header's", "ParentCorrelationID": "no field",
		"ConflictPolicy": "an existing task with the key is always the answer", "StartAt": "no field", "DependsOn": "no field",
		"OnDependencyFailure": "see DependsOn", "RetryDelays": "the queue's",
	}, excused: map[string]string{
		"deep": "the payload is within the context", "an unknown namespace": "a queue begins with its first task", "no namespace": "the queue default",
		"a context against the schema": "a payload may be anything", "a context that is no object": "a payload may be anything",
		"a repeated context": "a task is known by its key alone",
	}, says: map[string]string{
		"a tag that is too long": `labels\[1\] must have`, "an empty tag": `labels\[0\] must not`, "a control character": `labels\[0\] must be text`,
		"too many tags": "labels must have", "a key that is too long": "idempotencyKey must have", "no attempt": "maxAttempts must be",
		"too many attempts": "maxAttempts must be", "a negative delay": "delaySeconds must not", "a text that cannot be stored": `^payload\.v `,
		"a number that is too large": `^payload\.v `,
	}, stored: "t.context -> 'payload'", finds: true},
	"step of type task": {create: func(w *ways, r client.TaskRequest) (uuid.UUID, error) {
		return w.step(r, json.RawMessage(`{}`))
	}, without: notByStep, excused: with(ofSteps, map[string]string{
		"deep": "a template is nested less", "a number that is too large": "a template has it as a text",
	}), says: with(ofTemplates, map[string]string{
		"a context that is no object": `task\.context has to be a mapping or a reference, not a list`, "a context of 101 levels": "nested too deeply",
		"a context of more than a megabyte": "may have up to 1048576", "a text that cannot be stored": "may not contain the NUL character",
	})},
	"step of type task, with the context of its task": {create: func(w *ways, r client.TaskRequest) (uuid.UUID, error) {
		its := r.Context
		r.Context = nil
		return w.step(r, its)
	}, without: notByStep, excused: ofSteps, says: ofTemplates},
	"schedule": {create: (*ways).schedule, without: map[string]string{
		"Initiator": "the schedule", "SourceSystem": "the schedule", "Reason": "the due time",
		"PriorityLevel": "schedules have priority only", "CorrelationID": "each run has its own", "ParentCorrelationID": "the schedule's id",
		"IdempotencyKey": "one per run", "ConflictPolicy": "a run is made once", "StartAt": "cron says when", "DelaySeconds": "jitter_seconds does that",
		"Deadline": "an instant is useless for repeated tasks", "DependsOn": "overlap says what a run waits for", "OnDependencyFailure": "see DependsOn",
	}, excused: map[string]string{
		"a repeated context": "a run has the key of its schedule", "no attempt": "0 is the template's",
	}},
	"replay": {create: func(w *ways, r client.TaskRequest) (uuid.UUID, error) {
		old, how := r, orchestration.Replay{Actor: r.Initiator, Reason: r.Reason}
		if !w.whole { // the context, the actor and the reason are of the replay
			old.Context, old.Initiator, old.Reason = json.RawMessage(`{"n": "`+uuid.NewString()+`"}`), "ana", "to be replayed"
			how.Edit = &submission.ContextEdit{Context: r.Context}
		}
		id, err := w.post(old)
		require.NoError(w.t, err)
		*w.before++
		made, err := w.e.Orchestrator.Replay(w.t.Context(), id, how)
		return made.UUID, err
	}, without: map[string]string{
		"CorrelationID": "the new task's own", "ParentCorrelationID": "the correlation id of the old task",
		"IdempotencyKey": "one per investigation", "ConflictPolicy": "a repetition is always a duplicate",
		"StartAt": "it starts now", "DelaySeconds": "it starts now", "Deadline": "that of the old task has passed",
		"DependsOn": "the old dependencies have ended, or do not matter to the operator", "OnDependencyFailure": "see DependsOn",
	}, accepted: map[string]string{
		"Name": "that of the old task", "Namespace": "see Name", "Version": "see Name", "SourceSystem": "see Name", "Tags": "see Name",
		"Priority": "see Name", "PriorityLevel": "see Name", "MaxAttempts": "see Name", "RetryDelays": "see Name",
	}, excused: map[string]string{"a repeated context": "an operator repeats a task on purpose"}, says: map[string]string{
		"an initiator that is too long": "actor must have at most 255 characters",
	}},
}

// notByGRPC are the fields that a request of tasker.v1 does not have.
var notByGRPC = map[string]string{
	"PriorityLevel": "priority says the same", "IdempotencyKey": "no field", "ConflictPolicy": "see IdempotencyKey", "StartAt": "no field",
	"DelaySeconds": "no field", "Deadline": "no field", "DependsOn": "no field", "OnDependencyFailure": "see DependsOn",
	"MaxAttempts": "no field", "RetryDelays": "no field",
}

// notByStep are the fields that the settings of a step do not have.
var notByStep = map[string]string{
	"PriorityLevel": "priority says the same", "Initiator": "the workflow", "SourceSystem": "the engine", "Reason": "names the step",
	"Tags": "the step has none", "CorrelationID": "that of the task of the step", "ParentCorrelationID": "see CorrelationID",
	"IdempotencyKey": "one per attempt", "ConflictPolicy": "an attempt begins once", "StartAt": "a step before can sleep", "DelaySeconds": "see StartAt",
	"Deadline": "the step has a timeout", "DependsOn": "steps depend on steps", "OnDependencyFailure": "see DependsOn",
	"MaxAttempts": "the template's", "RetryDelays": "see MaxAttempts",
}

// ofSteps are the cases that steps treat otherwise, ofTemplates the words of what refuses
// their templates.
var (
	ofSteps     = map[string]string{"no namespace": "that of the template of the step", "a repeated context": "an attempt begins once"}
	ofTemplates = map[string]string{
		"no name": `task\.name is empty`, "a namespace that is too long": "is not a namespace: .* up to 49",
		"a name that is too long":    `task\.name has 65 characters; up to 64`,
		"a version that is too long": `task\.version has 51 characters; up to 50`, "a priority out of range": `task\.priority is 101; it has to be from -100 to 100`,
	}
)

// ofTypes are the cases that task types treat otherwise.
var ofTypes = map[string]string{
	"no namespace": "the only queue that has the type", "a repeated context": "the default of a type is always_unique",
}

// ofUUIDs are the words of PostgreSQL, which refuses these before it calls a function.
var ofUUIDs = map[string]string{
	"a correlation id that is no UUID": "UUID|uuid", "a parent that is no UUID": "UUID|uuid", "a text that cannot be stored": "Unicode",
}

// ofGo are the cases that the types of a request in Go do not have.
var ofGo = map[string]string{
	"a level of priority out of range": "it has no levels", "a correlation id that is no UUID": "it is a UUID", "a parent that is no UUID": "it is a UUID",
	"a dependency that is no UUID": "it is a UUID", "a delay that is no duration": "it is a duration", "no attempt": "0 is the template's",
}

// send posts a request without the client.
func (w *ways) send(path string, body, into any) error {
	doc, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.base+path, bytes.NewReader(doc))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := w.web.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode >= http.StatusMultipleChoices {
		var failed struct{ Detail string }
		return cmp.Or(json.NewDecoder(answer.Body).Decode(&failed), errors.New(failed.Detail))
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// queued is a request for a task of a plain queue.
func queued(r client.TaskRequest) map[string]any {
	body := map[string]any{"queue": r.Namespace, "payload": r.Context, "labels": r.Tags, "priority": r.Priority, "maxAttempts": r.MaxAttempts,
		"deadline": r.Deadline, "delaySeconds": r.DelaySeconds, "idempotencyKey": r.IdempotencyKey}
	maps.DeleteFunc(body, func(_ string, v any) bool { return reflect.ValueOf(v).IsZero() })
	return body
}

func (w *ways) post(r client.TaskRequest) (uuid.UUID, error) {
	task, err := w.c.CreateTask(w.t.Context(), r)
	if err != nil {
		return uuid.Nil, err
	}
	return uuid.Parse(task.TaskUUID)
}

// step runs a task with a context and a step that is the task to be created.
func (w *ways) step(r client.TaskRequest, context json.RawMessage) (uuid.UUID, error) {
	name := "p" + strings.ReplaceAll(uuid.NewString(), "-", "")
	doc, err := json.Marshal(map[string]any{"name": name, "namespace_name": "makers", "version": "1.0.0", "steps": []any{map[string]any{
		"name": "only", "type": "task",
		"task": workflow.TaskSettings{Name: r.Name, Namespace: r.Namespace, Version: r.Version, Priority: r.Priority, Context: r.Context}}}})
	if err != nil {
		return uuid.Nil, err
	}
	parent, _, err := template.Parse("parent.json", doc)
	if err != nil {
		return uuid.Nil, err
	}
	who := store.Registrant{ID: "test", Immutable: store.VersionsRefuse}
	if _, err := w.e.Store.RegisterTemplates(w.t.Context(), who, []*workflow.Template{parent}); err != nil {
		return uuid.Nil, err
	}
	made, err := w.e.Orchestrator.Create(w.t.Context(), orchestration.Request{Namespace: "makers", Name: name, Context: context})
	if err != nil {
		return uuid.Nil, err
	}
	id, child, failed := made.UUID, "", false
	w.e.Until(id, func(task *store.Task) bool {
		child = w.e.DB.QueryString(w.t, `select coalesce(max(task_uuid::text), '') from tasker.tasks where correlation_id = $1 and task_uuid <> $1`, id)
		failed = task.State == workflow.TaskError
		return child != "" || failed
	})
	if failed && child == "" {
		return uuid.Nil, failureOf(w.e.Read(id))
	}
	return uuid.Parse(child)
}

// schedule runs a schedule.
func (w *ways) schedule(r client.TaskRequest) (uuid.UUID, error) {
	s := client.ScheduleRequest{Template: r.Name, Cron: "@yearly", CatchUp: client.CatchUpSkip, Overlap: client.OverlapAllow, MaxCatchUp: 1,
		TimeZone: "UTC", JitterSeconds: 1, Actor: "ana"}
	if r.Priority != nil {
		s.Priority = *r.Priority
	}
	if r.MaxAttempts != nil {
		s.MaxAttempts = *r.MaxAttempts
	}
	w.alike(r, &s)
	s.Name, s.Reason = "s-"+uuid.NewString(), "to try it"
	made, err := w.c.CreateSchedule(w.t.Context(), s)
	if err != nil {
		return uuid.Nil, err
	}
	run, err := w.c.RunSchedule(w.t.Context(), made.ScheduleID, client.Why{Actor: "ana", Reason: "now"})
	if err != nil {
		return uuid.Nil, err
	}
	return uuid.Parse(run.TaskUUID)
}

// handled runs a handler that creates a task, and returns its result.
func (w *ways) handled(template string, r ...client.TaskRequest) (json.RawMessage, error) {
	n, asked := uuid.NewString(), make([]worker.TaskRequest, len(r))
	for i := range r {
		asked[i] = w.engineRequest(r[i])
	}
	w.asked.Store(n, asked)
	task := w.e.Run("makers", template, `{"asked":"`+n+`"}`)
	if task.State != workflow.TaskComplete {
		return nil, failureOf(task)
	}
	return task.Steps[0].Result, nil
}

// failureOf is the error of the first step of a task.
func failureOf(task *store.Task) error {
	var failed struct{ Message string }
	return cmp.Or(json.Unmarshal(task.Steps[0].Error, &failed), errors.New(failed.Message))
}

// typeOf names the task type that is like a template.
func typeOf(template string) string {
	if template == "" {
		return ""
	}
	return template + "-type"
}

// enqueued is a request for a task of a type.
func (w *ways) enqueued(r client.TaskRequest) client.EnqueueRequest {
	w.typed.Do(w.registerTypes)
	e := client.EnqueueRequest{Type: typeOf(r.Name), Payload: r.Context, Queue: r.Namespace}
	w.alike(r, &e)
	return e
}

// engineRequest is a handler's request. Every field of it must be set where those of r are.
func (w *ways) engineRequest(r client.TaskRequest) worker.TaskRequest {
	to := worker.TaskRequest{Namespace: r.Namespace, Name: r.Name, Version: r.Version, Context: r.Context, Initiator: r.Initiator,
		SourceSystem: r.SourceSystem, Reason: r.Reason, Tags: r.Tags, IdempotencyKey: r.IdempotencyKey, Conflict: submission.ConflictPolicy(r.ConflictPolicy),
		OnDependencyFailure: r.OnDependencyFailure, Priority: r.Priority}
	for id, into := range map[*string]**uuid.UUID{r.CorrelationID: &to.CorrelationID, r.ParentCorrelationID: &to.ParentCorrelationID} {
		if id != nil {
			*into = pointer(uuid.MustParse(*id))
		}
	}
	for _, id := range r.DependsOn {
		to.DependsOn = append(to.DependsOn, uuid.MustParse(id))
	}
	for _, text := range r.RetryDelays {
		delay, err := time.ParseDuration(text)
		require.NoError(w.t, err)
		to.RetryDelays = append(to.RetryDelays, delay)
	}
	if r.Deadline != nil {
		to.DeadlineIn = time.Until(r.Deadline.Time)
	}
	if r.MaxAttempts != nil {
		to.MaxAttempts = *r.MaxAttempts
	}
	if r.PriorityLevel != nil {
		to.Priority = pointer((5 - *r.PriorityLevel) * 20)
	}
	other := "StartAt"
	if r.StartAt != nil {
		to.StartAt, other = &r.StartAt.Time, "StartIn"
	}
	if r.DelaySeconds != nil {
		to.StartIn = time.Duration(*r.DelaySeconds * float64(time.Second))
	}
	if !w.whole {
		return to
	}
	to.Schema, to.Bounds, to.Watched = &submission.SchemaPolicy{}, submission.Bounds{Depth: 100}, true
	to.Checks = (*schema.Checker)(nil) // without limits of its own
	for field, value := range reflect.ValueOf(to).Fields() {
		require.True(w.t, !field.IsExported() || field.Name == other || !value.IsZero(), "this test does not know the field %s", field.Name)
	}
	return to
}

// alike copies the fields of a request that another kind of request has under the same
// name and type, all of which must be set where those of r are.
func (w *ways) alike(r client.TaskRequest, to any) {
	from, into := reflect.ValueOf(r), reflect.ValueOf(to).Elem()
	for field, value := range into.Fields() {
		if same := from.FieldByName(field.Name); same.IsValid() && same.Type() == field.Type {
			into.FieldByIndex(field.Index).Set(same)
		}
		either := !w.whole || slices.Contains([]string{"Priority", "PriorityLevel", "StartAt", "DelaySeconds"}, field.Name)
		require.True(w.t, either || field.Name == "DryRun" || field.Name == "Name" || !value.IsZero(), "this test does not know the field %s", field.Name)
	}
}

// TestEveryWayToCreateATask follows the same rules. The parts of the test share an engine.
func TestEveryWayToCreateATask(t *testing.T) {
	t.Parallel()
	for name, by := range allWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWays(t)
			for _, part := range []struct {
				name string
				try  func(*ways, *way)
			}{
				{"fields", everyField}, {"documents", sameDocuments}, {"refusals", sameRefusals}, {"versions", sameVersions}, {"identities", sameIdentities},
			} {
				t.Run(part.name, func(t *testing.T) { part.try(w.in(t, &by), &by) })
			}
		})
	}
}

// everyField of a request reaches the task, or the way is documented not to offer it.
func everyField(w *ways, by *way) {
	w.whole = true
	checked := map[string]bool{}
	for variant := range 2 {
		r := w.asking(variant)
		create := func() uuid.UUID {
			id, err := by.create(w, r)
			require.NoError(w.t, err)
			return id
		}
		id := create()
		for field, value := range reflect.ValueOf(r).Fields() {
			if value.IsZero() || by.without[field.Name] != "" {
				continue
			}
			require.Contains(w.t, arrivals, field.Name, "this test does not know how the field arrives")
			arrivals[field.Name](w, id, &r, create)
			checked[field.Name] = true
		}
	}
	for field := range reflect.TypeFor[client.TaskRequest]().Fields() {
		require.NotEqual(w.t, by.without[field.Name] != "", checked[field.Name], "%s is neither checked nor excused, or both", field.Name)
	}
}

// sameDocuments are taken: only the bytes and the depth of a context are bounded.
func sameDocuments(w *ways, by *way) {
	for what, doc := range map[string]string{
		"many elements": "[" + strings.Repeat("0,", 5000) + "0]",
		"a long text":   `"` + strings.Repeat("é", 15_000) + `"`,
		"deep":          strings.Repeat("[", 99) + strings.Repeat("]", 99),
		"exact numbers": `[9007199254740993, 123456789012345678901234567890, 1.000000000000000001]`,
	} {
		if by.excused[what] != "" {
			continue
		}
		r := w.asking(0)
		r.Context = json.RawMessage(`{"n": "` + uuid.NewString() + `", "doc": ` + doc + `}`)
		id, err := by.create(w, r)
		require.NoError(w.t, err, what)
		require.Equal(w.t, "true", w.value(id, w.stored+" -> 'doc' = '"+doc+"'::jsonb"), what)
	}
}
