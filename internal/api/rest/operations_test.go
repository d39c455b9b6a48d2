package rest_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/backpressure"
	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/taskmaster"
	"github.com/tasker-go/tasker/internal/wire"
)

const (
	pausePath    = "/v1/namespaces/shapes/pause"
	breakersPath = "/v1/admin/breakers"
	sweepPath    = "/v1/sweeps/liveness/run"
)

func TestNamespaces(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	h.get("/v1/namespaces").golden(t, "namespaces")
	h.get("/v1/limits").golden(t, "limits")
	o.taken()
	var n client.Namespace
	h.do(http.MethodPut, pausePath, `{"reason":"down","actor":"ana"}`).into(t, &n)
	require.True(t, n.Paused)
	h.do(http.MethodDelete, pausePath, "").into(t, &n)
	h.do(http.MethodDelete, pausePath+"?actor=ana&reason=up", "").into(t, &n)
	h.do(http.MethodDelete, pausePath, `{"actor":"ben"}`).into(t, &n)
	require.Equal(t, []acted{{"pause", []string{"shapes", "ana", "down"}}, {"namespaces", nil},
		{"resume", []string{"shapes", "orchestrator-1", "resumed over the API"}}, {"namespaces", nil},
		{"resume", []string{"shapes", "ana", "up"}}, {"namespaces", nil},
		{"resume", []string{"shapes", "ben", "resumed over the API"}}, {"namespaces", nil}}, o.taken())
	for body, want := range map[string]int{`{}`: 422, `{"reason":"r"}`: 422, `{"reason":"","actor":"a"}`: 400, `{"reason":1,"actor":"a"}`: 422, `{`: 400} {
		require.Equal(t, want, h.do(http.MethodPut, pausePath, body).StatusCode, body)
	}
	for _, name := range []string{strings.Repeat("x", 65), "%00", "%ff"} {
		h.do(http.MethodPut, "/v1/namespaces/"+name+"/pause", `{"reason":"r","actor":"a"}`).refused(t, 404, "NOT_FOUND")
		h.do(http.MethodDelete, "/v1/namespaces/"+name+"/pause", "").refused(t, 404, "NOT_FOUND")
	}
	require.Empty(t, o.taken())
	require.Contains(t, h.do(http.MethodDelete, "/v1/namespaces/nowhere/pause", "").refused(t, 404, "NOT_FOUND").Message, "Namespace not found")
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	const path = "/v1/namespaces/shapes/policies/draw"
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	h.get("/v1/policies").golden(t, "policies")
	h.do(http.MethodPut, path, `{"policy":"fifo","reason":"fair","actor":"ana"}`).golden(t, "policies")
	h.do(http.MethodDelete, path+"?actor=ana", "").golden(t, "policies")
	require.Equal(t, []acted{{"policies", ""}, {"policy fifo", []string{"shapes", "ana", "fair", "draw"}}, {"policies", "shapes"},
		{"policy ", []string{"shapes", "ana", "removed over the API", "draw"}}, {"policies", "shapes"}}, o.taken())
	for _, body := range []string{`{"policy":"lifo","reason":"r","actor":"a"}`, `{"reason":"r","actor":"a"}`} {
		h.do(http.MethodPut, path, body).refused(t, 400, "BAD_REQUEST")
	}
	h.do(http.MethodPut, path, `{"policy":"fifo","actor":"a"}`).refused(t, 422, "UNPROCESSABLE_ENTITY")
	h.get("/v1/policies?namespace=%00").refused(t, 400, "BAD_REQUEST")
	h.do(http.MethodPut, "/v1/namespaces/shapes/policies/%00", `{"policy":"fifo","reason":"r","actor":"a"}`).refused(t, 400, "BAD_REQUEST")
	h.do(http.MethodDelete, "/v1/namespaces/%ff/policies/draw", "").refused(t, 404, "NOT_FOUND")
	require.Empty(t, o.taken())
	require.Contains(t, h.do(http.MethodDelete, "/v1/namespaces/nowhere/policies/draw", "").refused(t, 404, "NOT_FOUND").Message, "Policy not found")
	require.Contains(t, h.do(http.MethodPut, "/v1/namespaces/nowhere/policies/draw", `{"policy":"fifo","reason":"r","actor":"a"}`).refused(t, 404, "NOT_FOUND").Message, "Callable not found")
}

func TestPredictions(t *testing.T) {
	t.Parallel()
	h := newHouse(t, operated(&fakeOperator{}))
	h.get("/v1/tasks/"+taskID.String()+"/predictions").golden(t, "predictions")
	h.get("/v1/tasks/"+correlationID.String()+"/predictions").refused(t, 404, "NOT_FOUND")
	for _, body := range []string{`"features":["a","b","c","d","e","f","g","h","i"]`, `"features":[""]`, `"class":"` + strings.Repeat("x", 201) + `"`} {
		h.do(http.MethodPut, "/v1/namespaces/shapes/policies/draw", `{"policy":"shortest_expected",`+body+`,"reason":"r","actor":"a"}`).refused(t, 400, "BAD_REQUEST")
	}
}

func TestWorkers(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	h.get("/v1/workers").golden(t, "workers")
	require.Equal(t, 200, h.get("/v1/workers?status=stale&namespace=n&limit=7").StatusCode)
	require.Equal(t, []acted{{"workers", store.WorkerFilter{Limit: 100}}, {"workers", store.WorkerFilter{Status: store.WorkerStale, Namespace: "n", Limit: 7}}}, o.taken())
	for _, query := range []string{"status=lost", "limit=0", "limit=1001", "namespace=%00", "namespace=" + strings.Repeat("x", 65)} {
		h.get("/v1/workers?"+query).refused(t, 400, "BAD_REQUEST")
	}
	require.Empty(t, o.taken())
}

func TestSweeps(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	h.get("/v1/sweeps").golden(t, "sweeps")
	h.do(http.MethodPost, sweepPath, `{}`).golden(t, "sweep_run")
	var run client.SweepRun
	h.do(http.MethodPost, sweepPath, `{"dry_run":true}`).into(t, &run)
	require.True(t, run.DryRun)
	require.Equal(t, []acted{{"sweeps", nil}, {"sweep", false}, {"sweep", true}}, o.taken())
	h.do(http.MethodPost, sweepPath, `{"dry_run":1}`).refused(t, 422, "UNPROCESSABLE_ENTITY")
	require.Contains(t, h.do(http.MethodPost, "/v1/sweeps/nothing/run", `{}`).refused(t, 404, "NOT_FOUND").Message, "Sweep not found")
	o.fails(errors.New("odd"))
	h.do(http.MethodPost, sweepPath, `{}`).refused(t, 500, "INTERNAL_ERROR")
}

func TestBreakers(t *testing.T) {
	t.Parallel()
	h := newHouse(t, operated(&fakeOperator{}))
	r := h.get(breakersPath)
	r.golden(t, "breakers")
	require.NotContains(t, string(r.body), "dbhost-7", "hosts are not shown")
	var b client.Breaker
	for state, want := range map[string]string{"forced_open": "forced_open", "forced_closed": "forced_closed", "automatic": "automatic"} {
		h.do(http.MethodPut, breakersPath+"/web", `{"state":"`+state+`"}`).into(t, &b)
		require.Equal(t, want, b.Control)
	}
	require.Len(t, h.logs.FilterMessage("a circuit breaker was forced over the API").All(), 3)
	for body, want := range map[string]int{`{}`: 422, `{"state":"ajar"}`: 422, `{"state":1}`: 422, `{`: 400} {
		h.do(http.MethodPut, breakersPath+"/web", body).problem(t, want)
	}
	require.Contains(t, h.do(http.MethodPut, breakersPath+"/nothing", `{"state":"automatic"}`).problem(t, 404), "Circuit breaker not found")
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	a := &fakeAdmission{namespace: "shapes"}
	h := newHouse(t, func(_ *rest.Config, w *rest.Orchestrator) { w.Admission = a })
	h.engine.saturation = 0.99 // for the admission to judge
	r := h.do(http.MethodPost, "/v1/tasks", goodBody+"}")
	e := r.refused(t, 503, "BACKPRESSURE")
	require.Equal(t, "42", r.Header.Get("Retry-After"))
	require.EqualValues(t, 42, e.RetryAfterSeconds)
	require.Contains(t, e.Message, "namespace shapes")
	r = h.do(http.MethodPost, batchPath, batchOf(goodBody+"}", goodBody+"}"))
	r.refused(t, 503, "BACKPRESSURE")
	require.Equal(t, "42", r.Header.Get("Retry-After"))
	require.Empty(t, h.engine.created)

	other := strings.Replace(goodBody, `"namespace":"shapes"`, `"namespace":"lines"`, 1) + "}"
	var got client.TaskBatch
	h.do(http.MethodPost, batchPath, batchOf(goodBody+"}", `{}`, other)).into(t, &got)
	require.Equal(t, 1, got.Created)
	require.Equal(t, "BACKPRESSURE", got.Results[0].Error.Code)
	require.EqualValues(t, 42, got.Results[0].Error.RetryAfterSeconds)
	require.Equal(t, "UNPROCESSABLE_ENTITY", got.Results[1].Error.Code)
	require.Equal(t, taskID.String(), got.Results[2].TaskUUID)
	require.Equal(t, "lines", h.engine.created[0].Namespace)
	require.Equal(t, 5, a.asked, "once for each task that can be read")

	for reason, code := range map[backpressure.Reason]string{
		backpressure.BreakerOpen: "CIRCUIT_BREAKER_OPEN", backpressure.ChannelFull: "BACKPRESSURE", backpressure.QueueDepth: "BACKPRESSURE",
	} {
		a.request = &backpressure.Refusal{Reason: reason, RetryAfter: 300 * time.Millisecond}
		for _, path := range []string{"/v1/tasks", batchPath} {
			r := h.do(http.MethodPost, path, "its body is not read")
			r.refused(t, 503, code)
			require.Equal(t, "1", r.Header.Get("Retry-After"))
		}
	}
	require.Len(t, h.engine.created, 1)
}

// submittedQueues note the queues of what was submitted.
type submittedQueues struct {
	lockedQueues
	queues []string
}

func (q *submittedQueues) Submit(ctx context.Context, list []taskmaster.Submission) ([]orchestration.CreateResult, error) {
	for i := range list {
		q.queues = append(q.queues, list[i].Queue)
	}
	return q.lockedQueues.Submit(ctx, list)
}

// TestAdmissionOfQueues: many tasks at once are rejected like single ones.
func TestAdmissionOfQueues(t *testing.T) {
	t.Parallel()
	queues := &submittedQueues{}
	h := newHouse(t, func(_ *rest.Config, o *rest.Orchestrator) {
		o.Admission, o.Queues = &fakeAdmission{namespace: "shapes"}, queues
	})
	require.Contains(t, h.do(http.MethodPost, "/tasks/v1", `{"queue":"shapes","payload":1}`).problem(t, 503), "namespace shapes")
	r := h.do(http.MethodPost, "/tasks/v1/bulk", `{"tasks":[{"queue":"shapes","payload":1},{"queue":"shapes","payload":2}]}`)
	require.Contains(t, r.problem(t, 503), "namespace shapes")
	require.Equal(t, "42", r.Header.Get("Retry-After"))
	require.Empty(t, queues.queues)

	var got struct {
		Tasks []struct{ ID, Error string }
	}
	h.do(http.MethodPost, "/tasks/v1/bulk", `{"tasks":[{"queue":"shapes","payload":1},{"queue":"lines","payload":2}]}`).into(t, &got)
	require.Equal(t, []string{"lines"}, queues.queues)
	require.Contains(t, got.Tasks[0].Error, "namespace shapes")
	require.Empty(t, got.Tasks[0].ID)
	require.NotEmpty(t, got.Tasks[1].ID)
}

// partlyQueues fail for some tasks.
type partlyQueues struct {
	lockedQueues
	errs []error
}

func (q *partlyQueues) Submit(_ context.Context, list []taskmaster.Submission) ([]orchestration.CreateResult, error) {
	results := make([]orchestration.CreateResult, len(list))
	for i := range list {
		results[i].UUID, results[i].Err = taskID, q.errs[i]
	}
	return results, nil
}

func (q *partlyQueues) Finish(_ context.Context, list []taskmaster.Finish, _ func(string) error) ([]taskmaster.Finished, error) {
	answers := make([]taskmaster.Finished, len(list))
	for i := range list {
		answers[i].Status, answers[i].Err = taskmaster.Done, q.errs[i]
	}
	return answers, nil
}

// TestEachOfManyQueueTasksHasItsAnswer: the sender must learn which tasks were created or ended,
// or it would send them again.
func TestEachOfManyQueueTasksHasItsAnswer(t *testing.T) {
	t.Parallel()
	queues := &partlyQueues{}
	h := newHouse(t, func(_ *rest.Config, o *rest.Orchestrator) { o.Queues = queues })
	const end = `{"id":"019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f10","workerId":"w"}`
	for path, body := range map[string]string{
		"/tasks/v1/bulk":     `{"tasks":[{"payload":1},{"payload":2}]}`,
		"/tasks/v1/complete": `{"tasks":[` + end + `,` + end + `]}`,
	} {
		var got struct {
			Tasks []struct{ ID, Status, Error string }
		}
		queues.errs = []error{nil, store.ErrUnavailable}
		h.do(http.MethodPost, path, body).into(t, &got)
		require.NotEmpty(t, got.Tasks[0].ID, path)
		require.NotEmpty(t, got.Tasks[0].Status, path)
		require.Empty(t, got.Tasks[0].Error, path)
		require.Contains(t, got.Tasks[1].Error, "database", path)

		queues.errs = []error{store.ErrUnavailable, store.ErrUnavailable}
		h.do(http.MethodPost, path, body).problem(t, 503)
	}
}

// TestAQueueTaskThatCannotBeReadIsNotMissing: a client that waits for its end must ask again.
func TestAQueueTaskThatCannotBeReadIsNotMissing(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(_ *rest.Config, o *rest.Orchestrator) { o.Queues = &lockedQueues{} })
	h.do(http.MethodGet, "/tasks/v1/"+taskID.String(), "").problem(t, 404) // it is no task of a queue
	h.store.err = store.ErrUnavailable
	h.do(http.MethodGet, "/tasks/v1/"+taskID.String(), "").problem(t, 503)
}

// TestLimitsOfARealEngine: all that a limit says is stored, and its removal names the handler in its body.
func TestLimitsOfARealEngine(t *testing.T) {
	t.Parallel()
	c, e := operatedHouse(t)
	callable := e.DB.QueryString(t, `select callable from tasker.callables c join tasker.namespaces n on n.namespace_id = c.namespace_id where n.name = 'shapes' order by 1 limit 1`)
	path := []string{"v1", "namespaces", "shapes", "limits", callable}
	want := wire.LimitRequest{Rule: limitrule.Rule{KeyPath: []string{"tenant", "id"}, MaxRunning: new(7), PerSecond: new(2.5), Burst: 10, Ordered: true, Overtake: true, Weights: map[string]float64{"big": 3, "a.b": 0.5},
		Beyond: limitrule.CancelRunning}}
	request := want
	request.Why = client.Why{Reason: "r", Actor: "ana"}
	var l wire.Limit
	require.NoError(t, c.Call(t.Context(), http.MethodPut, path, request, &l))
	require.Equal(t, want, l.LimitRequest)
	require.Equal(t, []string{"shapes", callable, "ana"}, []string{l.Namespace, l.Callable, l.ChangedBy})
	want.KeyPath = []string{"other"}
	require.ErrorContains(t, c.Call(t.Context(), http.MethodPut, path, want, &l), "reason")
	want.Why = request.Why
	require.ErrorContains(t, c.Call(t.Context(), http.MethodPut, path, want, &l), "another key")
	want.Weights = map[string]float64{"big": 0}
	require.ErrorContains(t, c.Call(t.Context(), http.MethodPut, path, want, &l), "weights must be between")
	require.ErrorContains(t, c.Call(t.Context(), http.MethodPut, path, map[string]any{"weights": map[string]any{"big": "three"}, "max_running": 1, "reason": "r", "actor": "a"}, &l), "weights is wrong")
	require.ErrorContains(t, c.Call(t.Context(), http.MethodDelete, path, wire.LimitedHandler{Method: "none"}, &l), "Limit not found")
	require.NoError(t, c.Call(t.Context(), http.MethodDelete, path, wire.LimitedHandler{Why: client.Why{Actor: "ana"}}, &l))
	var list wire.LimitList
	require.NoError(t, c.Call(t.Context(), http.MethodGet, []string{"v1", "limits"}, nil, &list))
	require.Empty(t, list.Limits)
}

// TestPoliciesOfARealEngine: a change is recorded, and orders the tasks that follow.
func TestPoliciesOfARealEngine(t *testing.T) {
	t.Parallel()
	c, e := operatedHouse(t)
	path := []string{"v1", "namespaces", "shapes", "policies", ""}
	plan, err := e.Store.PlanNamed(t.Context(), "shapes", "chain", "1.0.0")
	require.NoError(t, err)
	path[4] = plan.Steps[0].Handler.Callable
	change := func(method string, body any) (list wire.PolicyList) {
		require.NoError(t, c.Call(t.Context(), method, path, body, &list))
		return list
	}
	list := change(http.MethodPut, wire.PolicyRequest{Policy: "fifo", Why: client.Why{Reason: "r", Actor: "ana"}})
	require.Len(t, list.Policies, 1)
	require.Equal(t, []string{"shapes", path[4], "fifo", "ana"}, []string{list.Policies[0].Namespace, list.Policies[0].Callable, list.Policies[0].Policy, list.Policies[0].ChangedBy})
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) { return plan.Ordered(), "the daemon has not read the policy" })
	require.Empty(t, change(http.MethodDelete, client.Why{Actor: "ana"}).Policies)
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) { return !plan.Ordered(), "the daemon has not read the policies again" })
	var list404 wire.PolicyList
	require.ErrorContains(t, c.Call(t.Context(), http.MethodDelete, path, client.Why{Actor: "ana"}, &list404), "Policy not found")
	require.Equal(t, 2, e.DB.QueryInt(t, `select count(*) from tasker.operator_actions where action in ('set_policy_fifo', 'delete_policy') and actor = 'ana'`))
}
