package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow/template"
)

// pair are both daemons with clients of their gRPC servers.
type pair struct {
	t            *testing.T
	ctx          context.Context
	orchestrator *Orchestrator
	worker       *Worker
	over, ofWork *grpc.ClientConn
	rest         string
}

// the workflows: good has two steps, bad one that fails for good, slow one that never ends.
const overGRPCTemplates = `{name: good, namespace_name: none, version: 1.0.0, description: Two steps,
  steps: [{name: first, handler: {callable: ok}}, {name: second, dependencies: [first], handler: {callable: ok}}]}`

// registerPair registers them; slow ends when the test is over, else stopping would wait.
func registerPair(w *worker.Worker, over <-chan struct{}) error {
	errs := []error{
		w.Register("ok", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return map[string]any{"n": 7, "list": []int{1}}, nil })),
		w.Register("bad", worker.HandlerFunc(func(*worker.StepContext) (any, error) {
			return nil,
				worker.Permanent(errors.New("no more stock"))
		})),
		w.Register("go_bytes", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			b, err := worker.ResultOf[worker.Bytes](ctx, "py_bytes_step")
			slices.Reverse(b.Data)
			return worker.Bytes{ContentType: "application/x-go", Data: b.Data}, err
		})),
		w.Register("slow", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			select {
			case <-over:
			case <-ctx.Done():
			}
			return nil, context.Cause(ctx)
		})),
	}
	texts := []string{overGRPCTemplates}
	for _, name := range []string{"bad", "slow"} {
		texts = append(texts, "{name: "+name+", namespace_name: none, version: 1.0.0, steps: [{name: only, handler: {callable: "+name+"}}]}")
	}
	for _, text := range texts {
		parsed, _, err := template.Parse("inline.yaml", []byte(text))
		if err == nil {
			err = w.RegisterTemplate(parsed)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func newPair(t *testing.T, more string, change func(*config.Loaded)) *pair {
	t.Helper()
	loaded := loadToo(t, enginetest.Migrated(t), more)
	for _, g := range []*config.GRPC{&loaded.Orchestration.GRPC, &loaded.Worker.GRPC} {
		g.Enabled, g.BindAddress = true, "127.0.0.1:0"
	}
	if change != nil {
		change(loaded)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute) // subtests wait for those of other tests before they begin
	t.Cleanup(cancel)
	p, over := &pair{t: t, ctx: ctx}, make(chan struct{})
	var err error
	p.orchestrator, err = newOrchestrator(ctx, loaded, nil, zap.NewNop())
	require.NoError(t, err)
	p.start(p.orchestrator)
	p.worker, err = newWorker(ctx, loaded, func(w *worker.Worker) error { return registerPair(w, over) }, nil, zap.NewNop())
	require.NoError(t, err)
	p.start(p.worker)
	t.Cleanup(func() { close(over) }) // before the worker is stopped
	p.over, p.ofWork = p.dial(p.orchestrator.GRPCAddr().String()), p.dial(p.worker.GRPCAddr().String())
	p.rest = "http://" + p.orchestrator.Addr().String()
	return p
}

func (p *pair) start(d process) {
	require.NoError(p.t, d.Start(p.ctx))
	p.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(p.t, d.Stop(ctx))
	})
}

func (p *pair) dial(address string) *grpc.ClientConn {
	p.t.Helper()
	over, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(p.t, err)
	p.t.Cleanup(func() { require.NoError(p.t, over.Close()) })
	return over
}

func (p *pair) create(name string, n float64) *taskerv1.Task {
	p.t.Helper()
	r, err := taskerv1.NewTaskServiceClient(p.over).CreateTask(p.ctx, newTask(name, n))
	require.NoError(p.t, err)
	return r.GetTask()
}

// newTask is a request; n makes it another one than the others.
func newTask(name string, n float64) *taskerv1.CreateTaskRequest {
	return &taskerv1.CreateTaskRequest{Name: name, Namespace: "none", Version: "1.0.0",
		Context: &structpb.Struct{Fields: map[string]*structpb.Value{"n": structpb.NewNumberValue(n)}}}
}

// get reads an answer of REST.
func (p *pair) get(path string) []byte {
	p.t.Helper()
	r := request(p.t, http.MethodGet, p.rest+path, "")
	require.Equal(p.t, http.StatusOK, r.status, r.body)
	return []byte(r.body)
}

// end waits for the end of a task.
func (p *pair) end(task string) {
	p.t.Helper()
	var shown client.Task
	require.NoError(p.t, json.Unmarshal(p.get("/v1/tasks/"+task+"?wait=30s"), &shown))
	require.True(p.t, shown.Terminal(), shown.Status)
}

// running waits until a task has a step in progress.
func (p *pair) running(task string) {
	p.t.Helper()
	pgtest.Eventually(p.t, 30*time.Second, func() (bool, string) {
		shown, err := taskerv1.NewTaskServiceClient(p.over).GetTask(p.ctx, &taskerv1.GetTaskRequest{TaskUuid: task})
		require.NoError(p.t, err)
		return shown.GetTask().GetInProgressSteps() == 1, shown.GetTask().GetState().String()
	})
}

// refused checks the code of a failure and returns its text.
func refused(t *testing.T, code codes.Code, err error) string {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, code.String(), status.Code(err).String(), err.Error())
	return status.Convert(err).Message()
}

// infoOf is the reason among the details of a failure.
func infoOf(t *testing.T, err error) (info *errdetails.ErrorInfo, retry *errdetails.RetryInfo) {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.RetryInfo:
			retry = d
		}
	}
	require.NotNil(t, info, "%v", err)
	require.Equal(t, "tasker", info.GetDomain())
	return info, retry
}

// TestDaemonsOverGRPC runs tasks and compares what both interfaces say about them.
func TestDaemonsOverGRPC(t *testing.T) {
	t.Parallel()
	p := newPair(t, "", nil)
	tasks, steps := taskerv1.NewTaskServiceClient(p.over), taskerv1.NewStepServiceClient(p.over)
	correlation, parent := "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f11", "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f12"
	asked := newTask("good", 1)
	asked.CorrelationId, asked.ParentCorrelationId, asked.Priority = &correlation, &parent, proto.Int32(5)
	asked.SourceSystem, asked.Initiator = proto.String("console"), proto.String("ops")
	asked.Reason, asked.Tags = proto.String("demo"), []string{"a", "b"}
	created, err := tasks.CreateTask(p.ctx, asked)
	require.NoError(t, err)
	task := created.GetTask()
	require.Equal(t, []any{correlation, parent, "console", "ops", "demo", int32(5)}, []any{task.GetCorrelationId(),
		task.GetParentCorrelationId(),
		task.GetSourceSystem(), task.GetInitiator(), task.GetReason(), task.GetPriority()})
	other := p.create("good", 2)
	require.Equal(t, []string{"grpc", "grpc", "Task created via gRPC"}, []string{other.GetInitiator(),
		other.GetSourceSystem(), other.GetReason()})
	id := task.GetTaskUuid()
	p.end(id)
	p.end(other.GetTaskUuid())

	shown, err := tasks.GetTask(p.ctx, &taskerv1.GetTaskRequest{TaskUuid: id, IncludeSteps: true})
	require.NoError(t, err)
	p.same(p.get("/v1/tasks/"+id), shown.GetTask())
	require.Equal(t, taskerv1.TaskState_TASK_STATE_COMPLETE, shown.GetTask().GetState())
	require.NotNil(t, shown.GetTask().GetCompletedAt())
	require.Len(t, shown.GetSteps(), 2)
	listed, err := steps.ListSteps(p.ctx, &taskerv1.ListStepsRequest{TaskUuid: id})
	require.NoError(t, err)
	p.sameList(p.get("/v1/tasks/"+id+"/workflow_steps"), listed.GetSteps())
	require.Equal(t, []any{int64(2), int32(2)}, []any{listed.GetPagination().GetTotal(), listed.GetPagination().GetCount()})
	first := listed.GetSteps()[0]
	require.InEpsilon(t, 7, first.GetResults().GetFields()["result"].GetStructValue().GetFields()["n"].GetNumberValue(), 0)
	step, err := steps.GetStep(p.ctx, &taskerv1.GetStepRequest{TaskUuid: id, StepUuid: first.GetStepUuid()})
	require.NoError(t, err)
	p.same(p.get("/v1/tasks/"+id+"/workflow_steps/"+first.GetStepUuid()), step.GetStep())
	audit, err := steps.GetStepAudit(p.ctx, &taskerv1.GetStepAuditRequest{TaskUuid: id, StepUuid: first.GetStepUuid()})
	require.NoError(t, err)
	require.NotEmpty(t, audit.GetAuditRecords())
	p.sameList(p.get("/v1/tasks/"+id+"/workflow_steps/"+first.GetStepUuid()+"/audit"), audit.GetAuditRecords())

	templates := taskerv1.NewTemplateServiceClient(p.over)
	all, err := templates.ListTemplates(p.ctx, &taskerv1.ListTemplatesRequest{})
	require.NoError(t, err)
	p.same(p.get("/v1/templates"), all)
	one, err := templates.GetTemplate(p.ctx, &taskerv1.GetTemplateRequest{Namespace: "none", Name: "good", Version: "1.0.0"})
	require.NoError(t, err)
	p.same(p.get("/v1/templates/none/good/1.0.0"), one.GetTemplate())
	p.lists(id, other.GetTaskUuid())
}

// lists checks the parts of a list, of which there are two tasks.
func (p *pair) lists(older, newer string) {
	p.t.Helper()
	tasks := taskerv1.NewTaskServiceClient(p.over)
	list := func(r *taskerv1.ListTasksRequest) (ids []string, page *taskerv1.PaginationResponse) {
		p.t.Helper()
		r.Namespace = proto.String("none")
		found, err := tasks.ListTasks(p.ctx, r)
		require.NoError(p.t, err)
		for _, task := range found.GetTasks() {
			ids = append(ids, task.GetTaskUuid())
		}
		return ids, found.GetPagination()
	}
	ids, page := list(&taskerv1.ListTasksRequest{})
	require.Equal(p.t, []string{newer, older}, ids)
	require.Equal(p.t, []any{int64(2), int32(2), false}, []any{page.GetTotal(), page.GetCount(), page.GetHasMore()})
	ids, page = list(&taskerv1.ListTasksRequest{Pagination: &taskerv1.PaginationRequest{Limit: proto.Int32(1)}})
	require.Equal(p.t, []string{newer}, ids)
	require.True(p.t, page.GetHasMore())
	ids, page = list(&taskerv1.ListTasksRequest{Pagination: &taskerv1.PaginationRequest{Limit: proto.Int32(2), Offset: proto.Int32(1)}})
	require.Equal(p.t, []string{older}, ids, "it begins in the middle of a page")
	require.Equal(p.t, []any{int32(1), int32(1), false}, []any{page.GetCount(), page.GetOffset(), page.GetHasMore()})
	ids, _ = list(&taskerv1.ListTasksRequest{Pagination: &taskerv1.PaginationRequest{Offset: proto.Int32(9)}})
	require.Empty(p.t, ids)
	ids, _ = list(&taskerv1.ListTasksRequest{States: []taskerv1.TaskState{taskerv1.TaskState_TASK_STATE_ERROR}})
	require.Empty(p.t, ids)
	ids, _ = list(&taskerv1.ListTasksRequest{Initiator: proto.String("ops"),
		States: []taskerv1.TaskState{taskerv1.TaskState_TASK_STATE_COMPLETE}})
	require.Equal(p.t, []string{older}, ids)
}

// TestTheDeadLetterQueueOverGRPC: a failed task is investigated, and its step resolved.
func TestTheDeadLetterQueueOverGRPC(t *testing.T) {
	t.Parallel()
	p := newPair(t, "", nil)
	dlq, steps := taskerv1.NewDlqServiceClient(p.over), taskerv1.NewStepServiceClient(p.over)
	task := p.create("bad", 1).GetTaskUuid()
	p.end(task)
	opened := request(t, http.MethodPost, p.rest+"/v1/dlq/entries",
		`{"task_uuid":"`+task+`","reason":"look","actor":"ana","metadata":{"ticket":"X-1"}}`)
	require.Equal(t, http.StatusOK, opened.status, opened.body)

	entry, err := dlq.GetEntryByTask(p.ctx, &taskerv1.GetDlqEntryByTaskRequest{TaskUuid: task})
	require.NoError(t, err)
	p.same(p.get("/v1/dlq/task/"+task), entry.GetEntry())
	pending := taskerv1.DlqResolutionStatus_DLQ_RESOLUTION_STATUS_PENDING
	entries, err := dlq.ListEntries(p.ctx, &taskerv1.ListDlqEntriesRequest{ResolutionStatus: &pending,
		Limit: proto.Int32(5), Offset: proto.Int32(0)})
	require.NoError(t, err)
	require.Len(t, entries.GetEntries(), 1)
	p.sameList(p.get("/v1/dlq"), entries.GetEntries())
	queue, err := dlq.GetInvestigationQueue(p.ctx, &taskerv1.GetDlqInvestigationQueueRequest{Limit: proto.Int32(5)})
	require.NoError(t, err)
	require.Len(t, queue.GetEntries(), 1)
	require.Equal(t, entry.GetEntry().GetDlqReason(), queue.GetEntries()[0].GetDlqReason())
	living := p.create("slow", 1).GetTaskUuid()
	p.running(living)
	stale, err := dlq.GetStalenessMonitoring(p.ctx, &taskerv1.GetStalenessMonitoringRequest{})
	require.NoError(t, err)
	require.Len(t, stale.GetEntries(), 1)
	p.sameList(p.get("/v1/dlq/staleness"), stale.GetEntries())
	require.Equal(t, living, stale.GetEntries()[0].GetTaskUuid())

	resolved := taskerv1.DlqResolutionStatus_DLQ_RESOLUTION_STATUS_MANUALLY_RESOLVED
	updated, err := dlq.UpdateInvestigation(p.ctx, &taskerv1.UpdateDlqInvestigationRequest{DlqEntryUuid: entry.GetEntry().GetDlqEntryUuid(),
		ResolutionStatus: &resolved, ResolutionNotes: proto.String("done"), ResolvedBy: proto.String("ana"),
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"by": structpb.NewStringValue("phone")}}})
	require.NoError(t, err)
	require.True(t, updated.GetSuccess())
	entry, err = dlq.GetEntryByTask(p.ctx, &taskerv1.GetDlqEntryByTaskRequest{TaskUuid: task})
	require.NoError(t, err)
	require.Equal(t, resolved, entry.GetEntry().GetResolutionStatus())
	require.Equal(t, "phone", entry.GetEntry().GetMetadata().GetFields()["by"].GetStringValue())
	stats, err := dlq.GetStats(p.ctx, &taskerv1.GetDlqStatsRequest{})
	require.NoError(t, err)
	p.sameList(p.get("/v1/dlq/stats"), stats.GetStats())

	listed, err := steps.ListSteps(p.ctx, &taskerv1.ListStepsRequest{TaskUuid: task})
	require.NoError(t, err)
	act := &taskerv1.ResolveStepRequest{TaskUuid: task, StepUuid: listed.GetSteps()[0].GetStepUuid(), PerformedBy: "ana", Reason: "by hand",
		ActionType: taskerv1.StepManualActionType_STEP_MANUAL_ACTION_TYPE_COMPLETE_MANUALLY,
		Result:     &structpb.Struct{Fields: map[string]*structpb.Value{"total": structpb.NewNumberValue(12)}}}
	done, err := steps.ResolveStep(p.ctx, act)
	require.NoError(t, err)
	require.Equal(t, taskerv1.StepState_STEP_STATE_COMPLETE, done.GetStep().GetState())
	act.ActionType = taskerv1.StepManualActionType_STEP_MANUAL_ACTION_TYPE_RESET_FOR_RETRY
	_, err = steps.ResolveStep(p.ctx, act)
	refused(t, codes.InvalidArgument, err)
}

// TestStatusesOverGRPC has the rows of the table of statuses.
func TestStatusesOverGRPC(t *testing.T) {
	t.Parallel()
	p := newPair(t, "", nil)
	tasks, steps, dlq := taskerv1.NewTaskServiceClient(p.over), taskerv1.NewStepServiceClient(p.over), taskerv1.NewDlqServiceClient(p.over)
	ended := p.create("good", 1).GetTaskUuid()
	p.end(ended)

	_, err := tasks.GetTask(p.ctx, &taskerv1.GetTaskRequest{TaskUuid: "x/../y"})
	require.Equal(t, `Invalid UUID: "x/../y"`, refused(t, codes.InvalidArgument, err))
	_, err = steps.GetStep(p.ctx, &taskerv1.GetStepRequest{TaskUuid: ended})
	require.Equal(t, `Invalid UUID: ""`, refused(t, codes.InvalidArgument, err))
	_, err = tasks.GetTask(p.ctx, &taskerv1.GetTaskRequest{TaskUuid: someUUID})
	refused(t, codes.NotFound, err)
	info, retry := infoOf(t, err)
	require.Equal(t, "NOT_FOUND", info.GetReason())
	require.NotEmpty(t, info.GetMetadata()["request_id"])
	require.Nil(t, retry)
	_, err = steps.GetStep(p.ctx, &taskerv1.GetStepRequest{TaskUuid: ended, StepUuid: someUUID})
	refused(t, codes.NotFound, err)
	_, err = dlq.GetEntryByTask(p.ctx, &taskerv1.GetDlqEntryByTaskRequest{TaskUuid: ended})
	refused(t, codes.NotFound, err)
	for _, version := range []string{"9.9.9", "", "..", "a/b"} {
		_, err = taskerv1.NewTemplateServiceClient(p.over).GetTemplate(p.ctx,
			&taskerv1.GetTemplateRequest{Namespace: "none", Name: "good", Version: version})
		refused(t, codes.NotFound, err)
	}
	_, err = tasks.CreateTask(p.ctx, newTask("nothing", 1))
	refused(t, codes.InvalidArgument, err)
	info, _ = infoOf(t, err)
	require.Equal(t, "NOT_FOUND", info.GetReason())
	empty := newTask("good", 3)
	empty.Version = ""
	_, err = tasks.CreateTask(p.ctx, empty)
	refused(t, codes.InvalidArgument, err)
	wrong := newTask("good", 3)
	wrong.CorrelationId = proto.String("none")
	_, err = tasks.CreateTask(p.ctx, wrong)
	refused(t, codes.InvalidArgument, err)

	var header metadata.MD
	cancelled, err := tasks.CancelTask(p.ctx, &taskerv1.CancelTaskRequest{TaskUuid: ended}, grpc.Header(&header))
	require.NoError(t, err)
	require.False(t, cancelled.GetSuccess())
	require.Equal(t, "Cannot cancel a completed task", cancelled.GetMessage())
	require.Equal(t, ended, cancelled.GetTask().GetTaskUuid())
	require.Len(t, header.Get("x-request-id"), 1)
	slow := p.create("slow", 1).GetTaskUuid()
	cancelled, err = tasks.CancelTask(p.ctx, &taskerv1.CancelTaskRequest{TaskUuid: slow, Reason: proto.String("enough")})
	require.NoError(t, err)
	require.True(t, cancelled.GetSuccess())
	require.Equal(t, taskerv1.TaskState_TASK_STATE_CANCELLED, cancelled.GetTask().GetState())

	_, err = steps.ResolveStep(p.ctx, &taskerv1.ResolveStepRequest{TaskUuid: ended, StepUuid: someUUID, Reason: "r", PerformedBy: "a"})
	require.Equal(t, "Action type must be specified", refused(t, codes.InvalidArgument, err))
	_, err = steps.ResolveStep(p.ctx, &taskerv1.ResolveStepRequest{TaskUuid: ended, StepUuid: someUUID, Reason: "r", PerformedBy: "a",
		ActionType: taskerv1.StepManualActionType_STEP_MANUAL_ACTION_TYPE_COMPLETE_MANUALLY})
	refused(t, codes.InvalidArgument, err)
	for name, list := range map[string]*taskerv1.ListTasksRequest{
		"limit 0": {Pagination: &taskerv1.PaginationRequest{Limit: proto.Int32(0), Offset: proto.Int32(1)}},
		"limit":   {Pagination: &taskerv1.PaginationRequest{Limit: proto.Int32(101)}},
		"state":   {States: []taskerv1.TaskState{0}},
		"sort":    {Sort: &taskerv1.SortSpec{Field: "name"}},
	} {
		_, err = tasks.ListTasks(p.ctx, list)
		require.Equal(t, codes.InvalidArgument, status.Code(err), name)
	}
	for name, list := range map[string]*taskerv1.ListTasksRequest{
		"name":    {Name: proto.String("nothing")},
		"tags":    {Tags: []string{"nowhere"}},
		"created": {CreatedAt: &taskerv1.TimestampRange{End: timestamppb.New(time.Unix(0, 0))}},
		"states":  {States: []taskerv1.TaskState{taskerv1.TaskState_TASK_STATE_BLOCKED_BY_FAILURES, taskerv1.TaskState_TASK_STATE_RESOLVED_MANUALLY}},
	} {
		found, err := tasks.ListTasks(p.ctx, list)
		require.NoError(t, err, name)
		require.Empty(t, found.GetTasks(), name)
	}
	found, err := tasks.ListTasks(p.ctx, &taskerv1.ListTasksRequest{Name: proto.String("slow"), CreatedAt: &taskerv1.TimestampRange{Start: timestamppb.New(time.Now().Add(-time.Hour))},
		States: []taskerv1.TaskState{taskerv1.TaskState_TASK_STATE_CANCELLED, taskerv1.TaskState_TASK_STATE_ERROR}})
	require.NoError(t, err)
	require.Len(t, found.GetTasks(), 1)
	p.unavailable()
}

// unavailable: an open breaker, and a daemon that is not ready.
func (p *pair) unavailable() {
	p.t.Helper()
	p.orchestrator.breakers.Breaker(breaker.Web).Force(breaker.ForcedOpen)
	var header, trailer metadata.MD
	_, err := taskerv1.NewTaskServiceClient(p.over).ListTasks(p.ctx, &taskerv1.ListTasksRequest{},
		grpc.Header(&header), grpc.Trailer(&trailer))
	require.Contains(p.t, refused(p.t, codes.Unavailable, err), "Backpressure active: ")
	info, retry := infoOf(p.t, err)
	require.Equal(p.t, "CIRCUIT_BREAKER_OPEN", info.GetReason())
	require.Positive(p.t, retry.GetRetryDelay().GetSeconds())
	require.NotEmpty(p.t, trailer.Get("retry-after"))
	require.Equal(p.t, trailer.Get("retry-after"), header.Get("retry-after"))
	p.orchestrator.breakers.Breaker(breaker.Web).Force(breaker.Automatic)

	health := taskerv1.NewHealthServiceClient(p.over)
	_, err = health.CheckReadiness(p.ctx, &taskerv1.ReadinessRequest{})
	require.NoError(p.t, err)
	p.orchestrator.server.Drain()
	_, err = health.CheckReadiness(p.ctx, &taskerv1.ReadinessRequest{})
	require.Equal(p.t, "Service is not ready: the daemon is draining", refused(p.t, codes.Unavailable, err))
	p.worker.server.Drain()
	_, err = taskerv1.NewWorkerHealthServiceClient(p.ofWork).CheckReadiness(p.ctx, &taskerv1.WorkerReadinessRequest{})
	require.Equal(p.t, "Worker is not ready: the daemon is draining", refused(p.t, codes.Unavailable, err))
}

// TestHealthOverGRPC: of both daemons, in Tasker's services and in the standard one.
func TestHealthOverGRPC(t *testing.T) {
	t.Parallel()
	p := newPair(t, "", nil)
	health, ofWork := taskerv1.NewHealthServiceClient(p.over), taskerv1.NewWorkerHealthServiceClient(p.ofWork)
	basic, err := health.CheckHealth(p.ctx, &taskerv1.HealthRequest{})
	require.NoError(t, err)
	require.Equal(t, "healthy", basic.GetStatus())
	_, err = time.Parse(time.RFC3339, basic.GetTimestamp())
	require.NoError(t, err)
	live, err := health.CheckLiveness(p.ctx, &taskerv1.LivenessRequest{})
	require.NoError(t, err)
	require.Equal(t, "alive", live.GetStatus())
	ready, err := health.CheckReadiness(p.ctx, &taskerv1.ReadinessRequest{})
	require.NoError(t, err)
	require.Equal(t, "healthy", ready.GetChecks().GetWebDatabase().GetStatus())
	require.NotEmpty(t, ready.GetChecks().GetCommandProcessor().GetStatus())
	detailed, err := health.CheckDetailedHealth(p.ctx, &taskerv1.DetailedHealthRequest{})
	require.NoError(t, err)
	require.NotEmpty(t, detailed.GetChecks().GetQueueDepth().GetStatus())
	require.Positive(t, detailed.GetInfo().GetPoolUtilization().GetTaskerPool().GetMaxConnections())

	worked, err := ofWork.CheckHealth(p.ctx, &taskerv1.WorkerHealthRequest{})
	require.NoError(t, err)
	require.Equal(t, "worker-under-test", worked.GetWorkerId())
	_, err = ofWork.CheckLiveness(p.ctx, &taskerv1.WorkerLivenessRequest{})
	require.NoError(t, err)
	_, err = ofWork.CheckReadiness(p.ctx, &taskerv1.WorkerReadinessRequest{})
	require.NoError(t, err)
	all, err := ofWork.CheckDetailedHealth(p.ctx, &taskerv1.WorkerDetailedHealthRequest{})
	require.NoError(t, err)
	require.NotEmpty(t, all.GetChecks().GetStepProcessing().GetStatus())
	require.NotNil(t, all.GetChecks().GetDatabase().GetLastChecked())
	require.Equal(t, []string{"none"}, all.GetSystemInfo().GetSupportedNamespaces())

	standard := grpc_health_v1.NewHealthClient(p.over)
	for _, name := range []string{"", "tasker.v1.TaskService", "tasker.v1.DlqService"} {
		answer, err := standard.Check(p.ctx, &grpc_health_v1.HealthCheckRequest{Service: name})
		require.NoError(t, err)
		require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, answer.GetStatus(), name)
	}
	p.orchestrator.grpc.Drain()
	answer, err := standard.Check(p.ctx, &grpc_health_v1.HealthCheckRequest{Service: "tasker.v1.TaskService"})
	require.NoError(t, err)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_NOT_SERVING, answer.GetStatus())
	require.Contains(t, p.services(p.over), "tasker.v1.TaskService")
	require.Contains(t, p.services(p.ofWork), "tasker.v1.WorkerHealthService")
	require.NotContains(t, p.services(p.ofWork), "tasker.v1.TaskService")
}

// services lists by reflection.
func (p *pair) services(over *grpc.ClientConn) (names []string) {
	p.t.Helper()
	stream, err := grpc_reflection_v1.NewServerReflectionClient(over).ServerReflectionInfo(p.ctx)
	require.NoError(p.t, err)
	require.NoError(p.t, stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}))
	answer, err := stream.Recv()
	require.NoError(p.t, err)
	require.NoError(p.t, stream.CloseSend())
	for _, service := range answer.GetListServicesResponse().GetService() {
		names = append(names, service.GetName())
	}
	return names
}

// follow reads a stream to its end, and cancels slow tasks at their first message.
func (p *pair) follow(r *taskerv1.StreamTaskStatusRequest) (updates []*taskerv1.TaskStatusUpdate, err error) {
	p.t.Helper()
	stream, err := taskerv1.NewTaskServiceClient(p.over).StreamTaskStatus(p.ctx, r)
	require.NoError(p.t, err)
	for {
		update, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return updates, nil
		}
		if err != nil {
			return updates, err
		}
		updates = append(updates, update)
	}
}

func TestATaskIsFollowedOverGRPC(t *testing.T) {
	t.Parallel()
	p := newPair(t, "", nil)
	updates, err := p.follow(&taskerv1.StreamTaskStatusRequest{TaskUuid: p.create("good", 1).GetTaskUuid(), IncludeSteps: true})
	require.NoError(t, err)
	last := updates[len(updates)-1]
	require.Equal(t, taskerv1.TaskStatusUpdate_UPDATE_TYPE_TASK_COMPLETE, last.GetUpdateType())
	require.Equal(t, taskerv1.TaskState_TASK_STATE_COMPLETE, last.GetTaskState())
	complete := map[string]bool{}
	for i, u := range updates {
		require.False(t, i > 0 && u.GetUpdateType() == taskerv1.TaskStatusUpdate_UPDATE_TYPE_TASK_STATE_CHANGE &&
			updates[i-1].GetUpdateType() == u.GetUpdateType() && updates[i-1].GetTaskState() == u.GetTaskState(), "only differences are sent")
		if u.GetStepUpdate().GetState() == taskerv1.StepState_STEP_STATE_COMPLETE {
			require.False(t, complete[u.GetStepUpdate().GetName()])
			complete[u.GetStepUpdate().GetName()] = true
		}
	}
	require.Equal(t, map[string]bool{"first": true, "second": true}, complete)

	updates, err = p.follow(&taskerv1.StreamTaskStatusRequest{TaskUuid: p.create("bad", 1).GetTaskUuid()})
	require.NoError(t, err)
	last = updates[len(updates)-1]
	require.Equal(t, taskerv1.TaskStatusUpdate_UPDATE_TYPE_TASK_ERROR, last.GetUpdateType())
	require.Contains(t, last.GetErrorMessage(), "no more stock")
	require.Nil(t, last.GetStepUpdate())
	_, err = p.follow(&taskerv1.StreamTaskStatusRequest{TaskUuid: someUUID})
	refused(t, codes.NotFound, err)

	slow := &taskerv1.StreamTaskStatusRequest{TaskUuid: p.create("slow", 1).GetTaskUuid()}
	stream, err := taskerv1.NewTaskServiceClient(p.over).StreamTaskStatus(p.ctx, slow)
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	p.orchestrator.grpc.Drain()
	for err == nil {
		_, err = stream.Recv()
	}
	require.Equal(t, "The daemon is shutting down", refused(t, codes.Unavailable, err))
}

// TestAThrottleOverGRPC: the refusal says when a place is free, as that over REST does.
func TestAThrottleOverGRPC(t *testing.T) {
	t.Parallel()
	p := newPair(t, "", nil)
	set := request(t, http.MethodPut, p.rest+"/v1/namespaces/none/submissions/good", `{"throttle":{"max":1,"period_ms":60000},"reason":"r","actor":"a"}`)
	require.Equal(t, http.StatusOK, set.status, set.body)
	p.create("good", 1)
	_, err := taskerv1.NewTaskServiceClient(p.over).CreateTask(p.ctx, newTask("good", 2))
	require.Equal(t, "as many tasks of none/good were created of late as its throttle allows", refused(t, codes.ResourceExhausted, err))
	info, retry := infoOf(t, err)
	require.Equal(t, "THROTTLED", info.GetReason())
	require.InDelta(t, 60, retry.GetRetryDelay().AsDuration().Seconds(), 30)
	over := request(t, http.MethodPost, p.rest+"/v1/tasks", `{"namespace":"none","name":"good","version":"1.0.0","context":{"n":3},"initiator":"i","source_system":"s","reason":"r"}`)
	require.Equal(t, http.StatusTooManyRequests, over.status, over.body)
	require.NotEmpty(t, over.retryAfter)
	require.Contains(t, request(t, http.MethodGet, p.rest+"/metrics", "").body, `tasker_backpressure_refusals_total{reason="throttle"} 2`)
}
