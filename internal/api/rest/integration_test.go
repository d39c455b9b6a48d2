package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

const chainYAML = `
name: chain
namespace_name: shapes
version: 1.0.0
steps:
  - name: first
    handler: {callable: test.ok}
  - name: second
    dependencies: [first]
    handler: {callable: test.mood}
    retry: {max_attempts: 2, backoff: fixed, backoff_base_ms: 10}
`

const waitingYAML = `
name: waiting
namespace_name: shapes
version: 1.0.0
steps:
  - {name: paid, type: wait_for_event, wait: {event: paid, key: $.context.order}}
  - {name: approve, type: approval, depends_on: [paid], wait: {prompt: May it?}}
  - {name: sub, type: task, depends_on: [approve], task: {name: chain, version: 1.0.0, context: {mood: $.steps.approve.data.mood}}}
`

// moody fails permanently, or blocks, as the context says.
func moody(ctx *worker.StepContext) (any, error) {
	wish, err := worker.FieldOr(ctx, "mood", "")
	if err != nil {
		return nil, err
	}
	switch wish {
	case "bad":
		return nil, worker.Permanent(errors.New("in a bad mood"))
	case "slow":
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return map[string]int{"n": 2}, nil
}

// realHouse serves a real engine on a real database.
func realHouse(t *testing.T) (*client.Client, *rest.Server, *enginetest.Engine) {
	t.Helper()
	e := enginetest.Start(t, func(w *worker.Worker) error {
		tmpl, _, err := template.Parse("chain.yaml", []byte(chainYAML))
		if err != nil {
			return err
		}
		waiting, _, err := template.Parse("waiting.yaml", []byte(waitingYAML))
		if err != nil {
			return err
		}
		return errors.Join(w.RegisterTemplate(tmpl), w.RegisterTemplate(waiting),
			w.Register("test.ok", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return 1, nil })),
			w.Register("test.mood", worker.HandlerFunc(moody)))
	})
	s, err := rest.NewOrchestrator(bounded(t, rest.Config{Address: "127.0.0.1:0", MaxWait: time.Minute}),
		rest.Orchestrator{Engine: enginetest.Supervised{Orchestrator: e.Orchestrator}, Store: e.Store, ID: "test",
			Verify: func(ctx context.Context, id uuid.UUID) ([]string, error) {
				_, err := e.Store.CheckTask(ctx, e.Rules, id)
				return nil, err
			}})
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(t, s.Stop(context.Background()))
	})
	return client.New(client.Config{BaseURL: "http://" + s.Addr().String(), HTTP: &http.Client{Transport: transport}}), s, e
}

func mood(mood string) client.TaskRequest {
	return client.TaskRequest{Name: "chain", Namespace: "shapes", Version: "1.0.0", Initiator: "ana", SourceSystem: "test", Reason: "why not",
		Tags: []string{"t"}, Context: json.RawMessage(`{"mood":"` + mood + `"}`), IdempotencyKey: uuid.NewString()}
}

func TestWholeLifeOfATask(t *testing.T) {
	t.Parallel()
	c, _, _ := realHouse(t)
	ctx := t.Context()
	task, err := c.CreateTask(ctx, mood("good"))
	require.NoError(t, err)
	require.Equal(t, "ana", task.Initiator)
	require.EqualValues(t, 2, task.TotalSteps)
	task, err = c.Task(ctx, task.TaskUUID, 30*time.Second)
	require.NoError(t, err)
	require.Equal(t, "complete", task.Status)
	require.NotNil(t, task.CompletedAt)
	require.EqualValues(t, 2, task.CompletedSteps)
	require.Equal(t, []string{"t"}, task.Tags)

	steps, err := c.Steps(ctx, task.TaskUUID)
	require.NoError(t, err)
	require.Len(t, steps, 2)
	second, err := c.Step(ctx, task.TaskUUID, steps[1].StepUUID)
	require.NoError(t, err)
	require.Equal(t, steps[1], *second)
	var result client.StepResult
	require.NoError(t, json.Unmarshal(second.Results, &result))
	require.True(t, result.Success)
	require.JSONEq(t, `{"n":2}`, string(result.Result))

	audit, err := c.StepAudit(ctx, task.TaskUUID, second.StepUUID)
	require.NoError(t, err)
	require.Len(t, audit, 1)
	require.True(t, audit[0].Success)
	require.NotEmpty(t, audit[0].WorkerUUID)
	require.NotNil(t, audit[0].ExecutionTimeMS)
	require.Contains(t, string(audit[0].Result), `"n":2`)
	timeline, err := c.Timeline(ctx, task.TaskUUID)
	require.NoError(t, err)
	require.Len(t, timeline.Attempts, 2)
	require.Len(t, timeline.Events, 2, "the plain way")
	require.NotNil(t, timeline.Seconds)
	verified, err := c.VerifyTask(ctx, task.TaskUUID)
	require.NoError(t, err)
	require.True(t, verified.OK)

	list, err := c.Tasks(ctx, client.TaskListOptions{Namespace: "shapes", Status: "complete", Initiator: "ana", SourceSystem: "test"})
	require.NoError(t, err)
	require.Equal(t, 1, list.Pagination.TotalCount)
	require.Empty(t, list.Tasks[0].Steps)
	none, err := c.Tasks(ctx, client.TaskListOptions{Status: "cancelled"})
	require.NoError(t, err)
	require.Empty(t, none.Tasks)

	_, err = c.CancelTask(ctx, task.TaskUUID, client.Why{})
	require.ErrorContains(t, err, "Cannot cancel a completed task")
	_, err = c.CancelTask(ctx, uuid.NewString(), client.Why{})
	require.True(t, client.IsNotFound(err))
}

func TestFailureDuplicateAndCancel(t *testing.T) {
	t.Parallel()
	c, _, _ := realHouse(t)
	ctx := t.Context()
	bad, err := c.CreateTask(ctx, mood("bad"))
	require.NoError(t, err)
	bad, err = c.Task(ctx, bad.TaskUUID, 30*time.Second)
	require.NoError(t, err)
	require.Equal(t, "error", bad.Status)
	require.Equal(t, "blocked_by_failures", bad.ExecutionStatus)
	steps, err := c.Steps(ctx, bad.TaskUUID)
	require.NoError(t, err)
	var result client.StepResult
	require.NoError(t, json.Unmarshal(steps[1].Results, &result))
	require.Equal(t, "error", result.Status)
	require.Equal(t, "in a bad mood", result.Error.Message)

	slow := mood("slow")
	running, err := c.CreateTask(ctx, slow)
	require.NoError(t, err)
	_, err = c.CreateTask(ctx, slow)
	require.True(t, client.IsConflict(err))
	var refusal *client.Error
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, running.TaskUUID, refusal.TaskUUID)
	now, err := c.Task(ctx, running.TaskUUID, 50*time.Millisecond)
	require.NoError(t, err)
	require.False(t, now.Terminal())
	cancelled, err := c.CancelTask(ctx, running.TaskUUID, client.Why{})
	require.NoError(t, err)
	require.Equal(t, "cancelled", cancelled.Status)

	later := mood("good")
	delay := 3600.0
	later.DelaySeconds = &delay
	waiting, err := c.CreateTask(ctx, later)
	require.NoError(t, err)
	require.Zero(t, waiting.ReadySteps)
	require.False(t, waiting.Terminal())
}

func TestABatchOnTheRealOne(t *testing.T) {
	t.Parallel()
	c, _, e := realHouse(t)
	ctx := t.Context()
	before, err := c.CreateTask(ctx, mood("good"))
	require.NoError(t, err)
	const tasks = 520 // more than one transaction takes
	requests := make([]client.TaskRequest, 0, tasks+4)
	for range tasks {
		requests = append(requests, mood("good"))
	}
	again, unknown, deep, late := mood("good"), mood("good"), mood("good"), mood("good")
	again.IdempotencyKey, unknown.Name = requests[0].IdempotencyKey, "nothing"
	deep.Context = json.RawMessage(strings.Repeat(`{"a":`, 150) + `1` + strings.Repeat(`}`, 150))
	late.StartAt = &client.Time{Time: time.Now().Add(time.Hour)}
	requests = append(requests, again, unknown, deep, late)
	batch, err := c.CreateTasks(ctx, requests)
	require.NoError(t, err)
	require.Equal(t, tasks+1, batch.Created)
	require.Equal(t, 3, batch.Failed)
	require.Equal(t, "CONFLICT", batch.Results[tasks].Error.Code)
	require.Equal(t, batch.Results[0].TaskUUID, batch.Results[tasks].Error.TaskUUID)
	require.Equal(t, "NOT_FOUND", batch.Results[tasks+1].Error.Code)
	require.Equal(t, "BAD_REQUEST", batch.Results[tasks+2].Error.Code)
	require.Equal(t, tasks+2, e.DB.QueryInt(t, `select count(*) from tasker.tasks`))

	for _, i := range []int{0, tasks - 1} {
		task, err := c.Task(ctx, batch.Results[i].TaskUUID, 30*time.Second)
		require.NoError(t, err)
		require.Equal(t, "complete", task.Status)
		require.Equal(t, "ana", task.Initiator)
	}
	waiting, err := c.Task(ctx, batch.Results[tasks+3].TaskUUID, 0)
	require.NoError(t, err)
	require.Equal(t, "pending", waiting.Status)

	repeated, err := c.CreateTasks(ctx, requests[:3])
	require.NoError(t, err)
	require.Zero(t, repeated.Created)
	for i, r := range repeated.Results {
		require.Equal(t, batch.Results[i].TaskUUID, r.Error.TaskUUID)
	}
	require.NotEqual(t, before.TaskUUID, batch.Results[0].TaskUUID)
	_, err = c.CreateTasks(ctx, nil)
	var refusal *client.Error
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, http.StatusUnprocessableEntity, refusal.Status, "null is not a list")
}

func TestTemplatesFleetAndHealthOfTheRealOne(t *testing.T) {
	t.Parallel()
	c, _, _ := realHouse(t)
	ctx := t.Context()
	list, err := c.Templates(ctx, "shapes")
	require.NoError(t, err)
	require.Equal(t, 2, list.TotalCount)
	detail, err := c.Template(ctx, "shapes", "chain", "1.0.0")
	require.NoError(t, err)
	require.Equal(t, 2, detail.Steps[1].DefaultMaxAttempts)
	var template workflow.Template
	require.NoError(t, json.Unmarshal(detail.Configuration, &template))
	require.Equal(t, []string{"first"}, template.Steps[1].Dependencies)
	_, err = c.Template(ctx, "shapes", "chain", "9")
	require.True(t, client.IsNotFound(err))
	fleet, err := c.Fleet(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, fleet.Replicas)
	require.Empty(t, fleet.Warning)

	_, err = c.Live(ctx)
	require.NoError(t, err)
	_, err = c.Ready(ctx)
	require.NoError(t, err)
	health, err := c.DetailedHealth(ctx)
	require.NoError(t, err)
	require.Contains(t, health.EventSystems, "task_readiness")
}

// realWorker shows a worker to its API.
type realWorker struct{ *worker.Worker }

func (w realWorker) Health() map[string]coordinator.Health {
	return map[string]coordinator.Health{"worker": *w.Worker.Health().Events}
}
func (realWorker) Loops() []lifecycle.LoopHealth { return nil }
func (realWorker) Saturation() float64           { return 0 }

// workerHouse serves the worker of a real engine.
func workerHouse(t *testing.T, w *worker.Worker) *client.Client {
	t.Helper()
	s, err := rest.NewWorker(bounded(t, rest.Config{Address: "127.0.0.1:0"}), rest.Worker{ID: "test", Type: "general", Status: realWorker{w}})
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(t, s.Stop(context.Background()))
	})
	return client.New(client.Config{BaseURL: "http://" + s.Addr().String(), HTTP: &http.Client{Transport: transport}})
}

// A mode set over the API is the one by which every event system of both daemons then
// finds work.
func TestModesSwitchBothDaemons(t *testing.T) {
	t.Parallel()
	orchestrator, _, e := realHouse(t)
	daemons := map[string]*client.Client{"orchestrator": orchestrator, "worker": workerHouse(t, e.Worker)}
	polls := func() (total uint64) { return e.Worker.Health().Events.Found["poller"] }
	for _, step := range []struct {
		mode              string
		listens, isPolled bool
	}{{"PollingOnly", false, true}, {"EventDrivenOnly", true, false}, {"Hybrid", true, true}, {"PollingOnly", false, true}} {
		for name, daemon := range daemons {
			mode, err := daemon.SetMode(t.Context(), step.mode)
			require.NoError(t, err, name)
			require.Equal(t, step.mode, mode)
			mode, err = daemon.Mode(t.Context())
			require.NoError(t, err)
			require.Equal(t, step.mode, mode)
			health, err := daemon.DetailedHealth(t.Context())
			require.NoError(t, err)
			require.NotEmpty(t, health.EventSystems)
			for id, system := range health.EventSystems {
				require.Equal(t, step.mode, system.Mode, "%s: %s", name, id)
				require.Equal(t, step.listens, system.Listener != nil, "%s: %s", name, id)
				require.Equal(t, step.isPolled, system.Poller.Pace != "off", "%s: %s", name, id)
			}
		}
		before := polls()
		run := func() {
			task, err := orchestrator.CreateTask(t.Context(), mood("good"))
			require.NoError(t, err)
			task, err = orchestrator.Task(t.Context(), task.TaskUUID, 30*time.Second)
			require.NoError(t, err)
			require.Equal(t, "complete", task.Status, "in the mode %s", step.mode)
		}
		run()
		switch {
		case !step.listens:
			// The look at a change of mode may still find the first task; only polls find
			// later ones.
			for n := 0; polls() == before; n++ {
				require.Less(t, n, 50, "only polls can find them")
				run()
			}
		case !step.isPolled:
			// Work of earlier polls may be counted late.
			for n := 0; polls() != before; n++ {
				require.Less(t, n, 50, "no poll can find them")
				before = polls()
				run()
			}
		}
	}
}

// Values that the database cannot store must be rejected before it.
func TestNoBodyReachesTheDatabaseThatItCannotKeep(t *testing.T) {
	t.Parallel()
	_, s, e := realHouse(t)
	body := func(name, context, more string) string {
		return `{"name":` + name + `,"namespace":"shapes","version":"1.0.0","context":` + context +
			`,"initiator":"i","source_system":"s","reason":"r"` + more + `}`
	}
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"NUL in the context":      {body(`"chain"`, `{"a":"\u0000"}`, ""), 400},
		"NUL in a key":            {body(`"chain"`, `{"\u0000":1}`, ""), 400},
		"half a surrogate pair":   {body(`"chain"`, `{"a":"\ud800"}`, ""), 400},
		"not UTF-8":               {body(`"chain"`, "{\"a\":\"\xc3\"}", ""), 400},
		"a number out of range":   {body(`"chain"`, `{"a":1e999999}`, ""), 400},
		"a long number":           {body(`"chain"`, `{"a":`+strings.Repeat("9", 5000)+`}`, ""), 400},
		"deep":                    {body(`"chain"`, strings.Repeat(`{"a":`, 150)+`1`+strings.Repeat(`}`, 150), ""), 400},
		"very deep":               {body(`"chain"`, strings.Repeat(`[`, 20000)+strings.Repeat(`]`, 20000), ""), 400},
		"more than 1 MiB":         {body(`"chain"`, `{"a":["`+strings.Repeat(strings.Repeat("x", 9999)+`","`, 110)+`"]}`, ""), 400},
		"no object":               {body(`"chain"`, `[1]`, ""), 400},
		"an empty name":           {body(`""`, `{}`, ""), 400},
		"a long name":             {body(`"`+strings.Repeat("n", 65)+`"`, `{}`, ""), 400},
		"NUL in the name":         {body(`"a\u0000"`, `{}`, ""), 400},
		"NUL in a tag":            {body(`"chain"`, `{}`, `,"tags":["\u0000"]`), 400},
		"a long key":              {body(`"chain"`, `{}`, `,"idempotency_key":"`+strings.Repeat("k", 300)+`"`), 400},
		"a priority out of range": {body(`"chain"`, `{}`, `,"priority":101`), 400},
		"a start in a century":    {body(`"chain"`, `{}`, `,"start_at":"2126-01-01T00:00:00Z"`), 400},
		"an unknown template":     {body(`"nothing"`, `{}`, ""), 404},
		"an odd but good one":     {body(`"chain"`, `{"a":"😀\u001f","b":1e-400,"":null}`, `,"tags":[]`), 200},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, request(http.MethodPost, "/v1/tasks", c.body))
			require.Equal(t, c.status, w.Code, "%s", w.Body)
		})
	}
	require.Equal(t, 1, e.DB.QueryInt(t, `select count(*) from tasker.tasks`))
}
