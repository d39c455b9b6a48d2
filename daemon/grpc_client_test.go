package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/client/grpcclient"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/pgtest"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// clients are those of one daemon over both transports.
type clients struct{ rest, grpc *client.Client }

// over returns the clients of a daemon.
func (p *pair) clients(web, over net.Addr, worker bool) clients {
	p.t.Helper()
	return clients{client.New(client.Config{BaseURL: "http://" + web.String(), HTTP: &http.Client{Transport: p.web()}}), p.clientOver(over, worker)}
}

func (p *pair) web() *http.Transport {
	t := &http.Transport{}
	p.t.Cleanup(t.CloseIdleConnections)
	return t
}

func (p *pair) clientOver(over net.Addr, worker bool) *client.Client {
	p.t.Helper()
	t, err := grpcclient.New(client.Config{BaseURL: "http://" + over.String()}, grpcclient.Options{Worker: worker})
	require.NoError(p.t, err)
	p.t.Cleanup(func() { require.NoError(p.t, t.Close()) })
	return client.New(client.Config{Transport: t, MaxRetries: -1})
}

// both is a call, and the keys of its answer that may differ: those that tasker.v1 does not
// have, and those that differ from call to call.
type both struct {
	method string
	call   func(context.Context, *client.Client) (any, error)
	differ string
}

// Of a creation everything but what is asked for differs.
const ofCreation = "task_uuid correlation_id created_at updated_at priority_level steps status execution_status recommended_action " +
	"ready_steps in_progress_steps pending_steps total_steps completed_steps completion_percentage health_status completed_at"

// TestTheClientOverBothTransports: every call that both have answers the same.
func TestTheClientOverBothTransports(t *testing.T) {
	t.Parallel()
	p := newPair(t, "", func(l *config.Loaded) {
		l.Orchestration.Web.ConfigEndpoint, l.Worker.Web.ConfigEndpoint = true, true
	})
	of, ofWorker := p.clients(p.orchestrator.Addr(), p.orchestrator.GRPCAddr(), false), p.clients(p.worker.Addr(), p.worker.GRPCAddr(), true)
	good, bad := p.create("good", 1).GetTaskUuid(), p.create("bad", 2).GetTaskUuid()
	p.end(good)
	p.end(bad)
	_, err := of.rest.AddDLQEntry(p.ctx, client.DLQAdd{TaskUUID: bad, Reason: "look", Actor: "ana", Metadata: json.RawMessage(`{"ticket":"X-1"}`)})
	require.NoError(t, err)
	steps, err := of.rest.Steps(p.ctx, good)
	require.NoError(t, err)
	entry, err := of.rest.DLQEntryOfTask(p.ctx, bad)
	require.NoError(t, err)
	slow := p.create("slow", 3).GetTaskUuid()
	p.running(slow)
	compared := map[string]bool{}
	for _, b := range slices.Concat(readTask(good, steps[1].StepUUID), readTask(bad, ""), p.changes(), []both{
		{"Tasks", func(ctx context.Context, c *client.Client) (any, error) {
			return c.Tasks(ctx, client.TaskListOptions{Namespace: "none", Status: "complete,cancelled", PerPage: 3, CreatedAfter: &client.Time{Time: time.Now().Add(-time.Hour)}})
		}, "priority_level steps next_cursor"},
		{"Tasks", func(ctx context.Context, c *client.Client) (any, error) {
			var names []string
			for task, err := range c.EachTask(ctx, client.TaskListOptions{Name: "good", PerPage: 2}) {
				if err != nil {
					return nil, err
				}
				names = append(names, task.TaskUUID)
			}
			return names, nil
		}, ""},
		{"Templates", func(ctx context.Context, c *client.Client) (any, error) { return c.Templates(ctx, "none") }, ""},
		{"Template", func(ctx context.Context, c *client.Client) (any, error) {
			return c.Template(ctx, "none", "good", "1.0.0")
		}, "registration"},
		{"Health", func(ctx context.Context, c *client.Client) (any, error) { return c.Health(ctx) }, "timestamp"},
		{"Live", func(ctx context.Context, c *client.Client) (any, error) { return c.Live(ctx) }, "timestamp"},
		{"Ready", func(ctx context.Context, c *client.Client) (any, error) { return c.Ready(ctx) }, ofHealth},
		{"DetailedHealth", func(ctx context.Context, c *client.Client) (any, error) { return c.DetailedHealth(ctx) }, ofHealth},
		{"OrchestratorConfig", func(ctx context.Context, c *client.Client) (any, error) { return c.OrchestratorConfig(ctx) }, "timestamp"},
		{"Performance", func(ctx context.Context, c *client.Client) (any, error) { return c.Performance(ctx, 1) }, "analysis_period_start calculated_at"},
		{"Bottlenecks", func(ctx context.Context, c *client.Client) (any, error) { return c.Bottlenecks(ctx, 3, 1) }, "database_pool_utilization"},
		{"DLQEntries", func(ctx context.Context, c *client.Client) (any, error) {
			return c.DLQEntries(ctx, client.DLQListOptions{ResolutionStatus: client.ResolutionPending, Limit: 4})
		}, "detail step_name error"},
		{"DLQEntryOfTask", func(ctx context.Context, c *client.Client) (any, error) { return c.DLQEntryOfTask(ctx, bad) }, "detail step_name error"},
		{"DLQStats", func(ctx context.Context, c *client.Client) (any, error) { return c.DLQStats(ctx) }, ""},
		{"InvestigationQueue", func(ctx context.Context, c *client.Client) (any, error) { return c.InvestigationQueue(ctx, 4) }, "minutes_in_dlq priority_score"},
		{"Staleness", func(ctx context.Context, c *client.Client) (any, error) { return c.Staleness(ctx, 4) }, "detail"},
		{"UpdateDLQEntry", func(ctx context.Context, c *client.Client) (any, error) {
			resolved, by := client.ResolutionManuallyResolved, "ana"
			return c.UpdateDLQEntry(ctx, entry.DLQEntryUUID, client.DLQUpdate{ResolutionStatus: &resolved, ResolvedBy: &by, Metadata: json.RawMessage(`{"n":1}`)})
		}, ""},
	}) {
		compared[b.method] = true
		of.compare(p.ctx, t, b)
	}
	for _, b := range []both{
		{"Health", func(ctx context.Context, c *client.Client) (any, error) { return c.Health(ctx) }, "timestamp"},
		{"Live", func(ctx context.Context, c *client.Client) (any, error) { return c.Live(ctx) }, "timestamp"},
		{"Ready", func(ctx context.Context, c *client.Client) (any, error) { return c.Ready(ctx) }, ofHealth},
		{"DetailedHealth", func(ctx context.Context, c *client.Client) (any, error) { return c.DetailedHealth(ctx) }, ofHealth},
		{"WorkerConfig", func(ctx context.Context, c *client.Client) (any, error) { return c.WorkerConfig(ctx) }, "timestamp"},
		{"WorkerTemplates", func(ctx context.Context, c *client.Client) (any, error) { return c.WorkerTemplates(ctx, "none", true) }, ""},
		{"WorkerTemplate", func(ctx context.Context, c *client.Client) (any, error) {
			return c.WorkerTemplate(ctx, "none", "good", "1.0.0")
		}, "environment resolved_at config_schema handler_class registered_at template default_dependent_system"},
	} {
		compared[b.method] = true
		ofWorker.compare(p.ctx, t, b)
	}
	othersAreRefused(p.ctx, t, compared, of.grpc, ofWorker.grpc)
}

// What of the health of a daemon changes from call to call, or is in REST only.
const ofHealth = "timestamp last_checked duration_ms message active_connections idle_connections total_acquires average_acquire_time_ms " +
	"max_acquire_time_ms utilization_percent uptime_seconds event_systems loops channel_saturation fleet_warning slow_acquires " +
	"circuit_breakers steps_without_worker sweeps"

// readTask are the reading calls about a task.
func readTask(id, step string) []both {
	const readiness = "priority_level named_step_uuid backoff_request_seconds"
	list := []both{
		{"Task", func(ctx context.Context, c *client.Client) (any, error) { return c.Task(ctx, id, 0) }, readiness},
		{"Task", func(ctx context.Context, c *client.Client) (any, error) {
			return c.Task(ctx, id, time.Second, client.IncludeResults)
		}, readiness},
		{"Task", func(ctx context.Context, c *client.Client) (any, error) {
			return c.Task(ctx, id, 0, client.IncludeAllResults)
		}, readiness},
		{"TaskContext", func(ctx context.Context, c *client.Client) (any, error) { return c.TaskContext(ctx, id) }, ""},
		{"TaskSummary", func(ctx context.Context, c *client.Client) (any, error) { return c.TaskSummary(ctx, id) }, ""},
		{"TaskLogs", func(ctx context.Context, c *client.Client) (any, error) {
			return c.TaskLogs(ctx, id, client.LogOptions{Level: "info", Limit: 7})
		}, ""},
		{"Steps", func(ctx context.Context, c *client.Client) (any, error) { return c.Steps(ctx, id) }, ""},
	}
	if step == "" {
		return list
	}
	return append(list,
		both{"Step", func(ctx context.Context, c *client.Client) (any, error) { return c.Step(ctx, id, step) }, ""},
		both{"StepAudit", func(ctx context.Context, c *client.Client) (any, error) { return c.StepAudit(ctx, id, step) }, ""},
		both{"ActOnStep", func(ctx context.Context, c *client.Client) (any, error) { // refused: it is complete
			return c.ActOnStep(ctx, id, step, client.StepAction{ActionType: client.ActionReset, ResetBy: "ana", Reason: "again"})
		}, ""},
		both{"CancelTask", func(ctx context.Context, c *client.Client) (any, error) { return c.CancelTask(ctx, id, client.Why{}) }, ""},
	)
}

// changes are calls that change a task of their own each time.
func (p *pair) changes() []both {
	n := 100.0
	failed := func() (task, step string) {
		n++
		task = p.create("bad", n).GetTaskUuid()
		p.end(task)
		listed, err := taskerv1.NewStepServiceClient(p.over).ListSteps(p.ctx, &taskerv1.ListStepsRequest{TaskUuid: task})
		require.NoError(p.t, err)
		return task, listed.GetSteps()[0].GetStepUuid()
	}
	request := func() client.TaskRequest {
		n++
		input, _ := json.Marshal(map[string]any{"n": n, "list": []int{1, 2}})
		priority := 3
		return client.TaskRequest{Name: "good", Namespace: "none", Version: "1.0.0", Context: input, Initiator: "ana", SourceSystem: "shop",
			Reason: "order", Tags: []string{"a"}, Priority: &priority}
	}
	return []both{
		{"CreateTask", func(ctx context.Context, c *client.Client) (any, error) { return c.CreateTask(ctx, request()) }, ofCreation + " context"},
		{"CreateTask", func(ctx context.Context, c *client.Client) (any, error) {
			return c.CreateTask(ctx, client.TaskRequest{Name: "absent", Namespace: "none", Version: "1.0.0", Context: json.RawMessage(`{}`)})
		}, ""},
		{"CancelTask", func(ctx context.Context, c *client.Client) (any, error) {
			n++
			task := p.create("slow", n).GetTaskUuid()
			p.running(task)
			return c.CancelTask(ctx, task, client.Why{Actor: "ana", Reason: "no longer"})
		}, ofCreation + " context"},
		{"ActOnStep", func(ctx context.Context, c *client.Client) (any, error) {
			task, step := failed()
			return c.ActOnStep(ctx, task, step, client.StepAction{ActionType: client.ActionComplete, CompletedBy: "ana", Reason: "by hand",
				CompletionData: &client.CompletionData{Result: json.RawMessage(`{"total":12}`)}})
		}, "task_uuid step_uuid created_at updated_at completed_at last_failure_at last_attempted_at execution_time_ms started_at worker_id"},
		{"Run", func(ctx context.Context, c *client.Client) (any, error) {
			return client.Run[map[string]any](ctx, c, request())
		}, ""},
		{"EachTask", func(ctx context.Context, c *client.Client) (any, error) {
			var names []string
			for task, err := range c.EachTask(ctx, client.TaskListOptions{Namespace: "none", Initiator: "ana", PerPage: 1}) {
				if err != nil {
					return nil, err
				}
				names = append(names, task.TaskUUID)
			}
			return names, nil
		}, ""},
	}
}

// compare makes a call over both transports.
func (c clients) compare(ctx context.Context, t *testing.T, b both) {
	t.Helper()
	if b.differ == ofHealth { // a check may change between two questions
		pgtest.Eventually(t, time.Minute, func() (bool, string) {
			want, restErr := b.call(ctx, c.rest)
			got, grpcErr := b.call(ctx, c.grpc)
			if err := errors.Join(restErr, grpcErr); err != nil {
				return false, fmt.Sprintf("%s: %v", b.method, err)
			}
			one, other := without(t, want, b.differ), without(t, got, b.differ)
			return reflect.DeepEqual(one, other), fmt.Sprintf("%s differs:\n%v\n%v", b.method, one, other)
		})
		return
	}
	want, restErr := b.call(ctx, c.rest)
	got, grpcErr := b.call(ctx, c.grpc)
	var refused, alsoRefused *client.Error
	if errors.As(restErr, &refused) {
		require.ErrorAs(t, grpcErr, &alsoRefused, b.method)
		require.Equal(t, []any{refused.Status, refused.Code, refused.Message, refused.TaskUUID},
			[]any{alsoRefused.Status, alsoRefused.Code, alsoRefused.Message, alsoRefused.TaskUUID}, b.method)
		return
	}
	require.NoError(t, restErr, b.method)
	require.NoError(t, grpcErr, b.method)
	require.Equal(t, without(t, want, b.differ), without(t, got, b.differ), b.method)
}

// without is a value as JSON, without some keys and what is empty.
func without(t *testing.T, value any, keys string) any {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	var tree any
	require.NoError(t, json.Unmarshal(text, &tree))
	return prune(tree, strings.Fields(keys))
}

func prune(tree any, keys []string) any {
	switch v := tree.(type) {
	case map[string]any:
		for key := range v {
			if v[key] = prune(v[key], keys); v[key] == nil || slices.Contains(keys, key) {
				delete(v, key)
			}
		}
	case []any:
		if len(v) == 0 {
			return nil
		}
		for i := range v {
			v[i] = prune(v[i], keys)
		}
	}
	return tree
}

// othersAreRefused checks that every call that was not compared is refused, with its route of REST.
func othersAreRefused(ctx context.Context, t *testing.T, compared map[string]bool, of ...*client.Client) {
	t.Helper()
	shape := reflect.TypeFor[*client.Client]()
	for i := range shape.NumMethod() {
		m := shape.Method(i)
		if compared[m.Name] {
			continue
		}
		arguments := []reflect.Value{{}, reflect.ValueOf(ctx)}
		for j := 2; j < m.Type.NumIn(); j++ {
			in := m.Type.In(j)
			if m.Type.IsVariadic() && j == m.Type.NumIn()-1 {
				break
			}
			arguments = append(arguments, reflect.New(in).Elem())
		}
		if m.Name == "Call" { // it is told what it calls
			arguments[2], arguments[3] = reflect.ValueOf(http.MethodGet), reflect.ValueOf([]string{"v1", "policies"})
		}
		for _, c := range of {
			arguments[0] = reflect.ValueOf(c)
			results := m.Func.Call(arguments)
			err, _ := results[len(results)-1].Interface().(error)
			switch sequence := results[0].Interface().(type) {
			case iter.Seq2[*client.Transition, error]:
				for _, err = range sequence {
					break
				}
			case iter.Seq2[*client.LogLine, error]:
				for _, err = range sequence {
					break
				}
			}
			require.ErrorIs(t, err, client.ErrNotServed, m.Name)
			require.Regexp(t, `REST serves [A-Z]+ /`, err.Error(), m.Name)
		}
	}
}

// What tasker.v1 has no field for is not left out.
func TestTheClientLeavesNothingOut(t *testing.T) {
	t.Parallel()
	p := newPair(t, "", nil)
	c := p.clientOver(p.orchestrator.GRPCAddr(), false)
	for want, r := range map[string]client.TaskRequest{
		"no field idempotency_key": {IdempotencyKey: "k"}, "no field delay_seconds": {DelaySeconds: new(float64)},
		"only objects for context":           {Context: json.RawMessage(`[1]`)},
		"no exact number 9007199254740993":   {Context: json.RawMessage(`{"n":[9007199254740993]}`)},
		"no exact number 123456789012345678": {Context: json.RawMessage(`{"n":123456789012345678901}`)},
	} {
		_, err := c.CreateTask(p.ctx, r)
		require.ErrorIs(t, err, client.ErrNotServed)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "REST serves POST /v1/tasks")
	}
	_, err := c.Tasks(p.ctx, client.TaskListOptions{SourceSystem: "shop"})
	require.ErrorIs(t, err, client.ErrNotServed)
	_, err = c.Task(p.ctx, someUUID, 0, "steps")
	require.ErrorIs(t, err, client.ErrNotServed)
	for _, call := range []func() error{
		func() error { _, err := c.Tasks(p.ctx, client.TaskListOptions{Status: "unheard"}); return err },
		func() error { _, err := c.Tasks(p.ctx, client.TaskListOptions{Page: -1}); return err },
		func() error {
			_, err := c.DLQEntries(p.ctx, client.DLQListOptions{ResolutionStatus: "Unheard"})
			return err
		},
		func() error { _, err := c.Task(p.ctx, "no-uuid", 0); return err },
	} {
		var refused *client.Error
		require.ErrorAs(t, call(), &refused)
		require.Equal(t, []any{400, true}, []any{refused.Status, refused.Code == "BAD_REQUEST" || refused.Code == "INVALID_UUID"}, refused.Error())
	}
	_, err = c.Task(p.ctx, someUUID, 10*time.Second)
	require.True(t, client.IsNotFound(err), "%v", err)
}
