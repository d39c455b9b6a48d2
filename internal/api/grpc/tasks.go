package grpc

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/transcode"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// taskService creates, shows and cancels tasks.
type taskService struct {
	taskerv1.UnimplementedTaskServiceServer
	*Server
}

// The fields of a task whose request leaves them out.
const (
	defaultSource = "grpc" // also the initiator
	defaultReason = "Task created via gRPC"
)

// newTask is the body of a creation; the version is sent as it is, for an empty one is
// refused.
type newTask struct {
	client.TaskRequest
	Version string `json:"version"`
}

// CreateTask implements taskerv1.TaskServiceServer.
func (s taskService) CreateTask(ctx context.Context,
	r *taskerv1.CreateTaskRequest) (*taskerv1.CreateTaskResponse, error) {
	input, err := document("context", r.GetContext())
	if err != nil {
		return nil, err
	}
	body := newTask{Version: r.GetVersion(), TaskRequest: client.TaskRequest{
		Name: r.GetName(), Namespace: r.GetNamespace(), Context: input, Tags: r.GetTags(),
		Initiator: cmp.Or(r.GetInitiator(), defaultSource), SourceSystem: cmp.Or(r.GetSourceSystem(), defaultSource),
		Reason: cmp.Or(r.GetReason(), defaultReason), CorrelationID: r.CorrelationId, ParentCorrelationID: r.ParentCorrelationId,
	}}
	if r.Priority != nil {
		body.Priority = new(int(r.GetPriority()))
	}
	return askField(ctx, s.Server, call{body: body}, &taskerv1.CreateTaskResponse{}, "task")
}

// GetTask implements taskerv1.TaskServiceServer.
func (s taskService) GetTask(ctx context.Context, r *taskerv1.GetTaskRequest) (*taskerv1.GetTaskResponse, error) {
	path := []string{r.GetTaskUuid()}
	task, err := ask(ctx, s.Server, call{path: path}, &taskerv1.Task{})
	if err != nil {
		return nil, err
	}
	shown := &taskerv1.GetTaskResponse{Task: task}
	if r.GetIncludeSteps() {
		if shown.Steps, err = s.steps(ctx, r.GetTaskUuid()); err != nil {
			return nil, err
		}
	}
	if r.GetIncludeContext() {
		shown.Context, err = ask(ctx, s.Server, call{operation: opTaskContext, path: path}, &taskerv1.TaskContext{})
	}
	return shown, err
}

// steps lists the steps of a task.
func (s *Server) steps(ctx context.Context, task string) ([]*taskerv1.Step, error) {
	list, err := askField(ctx, s, call{operation: opListSteps, path: []string{task}}, &taskerv1.ListStepsResponse{}, "steps")
	return list.GetSteps(), err
}

// Bounds of ListTasks.
const (
	defaultListLimit = 50
	maxListLimit     = 100
)

// ListTasks implements taskerv1.TaskServiceServer. REST lists pages, and here the list begins
// anywhere: up to two pages have what is asked for.
func (s taskService) ListTasks(ctx context.Context, r *taskerv1.ListTasksRequest) (*taskerv1.ListTasksResponse, error) {
	query, err := listQuery(r)
	if err != nil {
		return nil, err
	}
	limit, offset, err := window(r.GetPagination())
	if err != nil {
		return nil, err
	}
	found, skip := &taskPage{}, offset%limit
	for page := offset/limit + 1; ; page++ {
		query.Set("page", strconv.Itoa(page))
		query.Set("per_page", strconv.Itoa(limit))
		if err := s.addPage(ctx, query, found); err != nil {
			return nil, err
		}
		if len(found.tasks) >= skip+limit || !found.more {
			break
		}
	}
	tasks := found.tasks[min(skip, len(found.tasks)):min(skip+limit, len(found.tasks))]
	return &taskerv1.ListTasksResponse{Tasks: tasks, Pagination: &taskerv1.PaginationResponse{
		Total: found.total, Count: int32(len(tasks)), Offset: int32(offset),
		HasMore: found.more || len(found.tasks) > skip+limit}}, nil
}

// window is the part of a list that is asked for.
func window(p *taskerv1.PaginationRequest) (limit, offset int, err error) {
	limit, offset = defaultListLimit, int(p.GetOffset())
	if p != nil && p.Limit != nil {
		limit = int(p.GetLimit())
	}
	if limit < 1 || limit > maxListLimit {
		return 0, 0, status.Errorf(codes.InvalidArgument, "limit must be between 1 and %d", maxListLimit)
	}
	if offset < 0 {
		return 0, 0, status.Error(codes.InvalidArgument, "offset must be at least 0")
	}
	return limit, offset, nil
}

// instant is a time as a parameter; empty: none.
func instant(at *timestamppb.Timestamp) string {
	if at == nil {
		return ""
	}
	return at.AsTime().Format(time.RFC3339Nano)
}

// listQuery are the filters of a list; an order that REST does not have is refused.
func listQuery(r *taskerv1.ListTasksRequest) (url.Values, error) {
	if sort := r.GetSort(); sort != nil && (sort.GetField() != "created_at" || sort.GetDirection() == taskerv1.SortDirection_SORT_DIRECTION_ASC) {
		return nil, status.Error(codes.InvalidArgument, "Tasks cannot be listed by sort, but by created_at in descending order")
	}
	query := url.Values{"tag": r.GetTags()}
	for name, value := range map[string]string{"namespace": r.GetNamespace(), "name": r.GetName(), "initiator": r.GetInitiator(),
		"created_after": instant(r.GetCreatedAt().GetStart()), "created_before": instant(r.GetCreatedAt().GetEnd())} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for _, state := range r.GetStates() {
		if transcode.EnumName(state) == "" {
			return nil, status.Errorf(codes.InvalidArgument, "invalid state %s: want one of the task states", state)
		}
		query.Add("status", transcode.EnumName(state))
	}
	return query, nil
}

// taskPage are the tasks of pages that follow one another.
type taskPage struct {
	tasks []*taskerv1.Task
	total int64
	more  bool
}

func (s taskService) addPage(ctx context.Context, query url.Values, to *taskPage) error {
	body, err := s.ask(ctx, call{query: query})
	if err != nil {
		return err
	}
	var page struct {
		Tasks      json.RawMessage   `json:"tasks"`
		Pagination client.Pagination `json:"pagination"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return fmt.Errorf("read a page of tasks: %w", err)
	}
	list := &taskerv1.ListTasksResponse{}
	if err := transcode.DecodeField(page.Tasks, list, "tasks"); err != nil {
		return err
	}
	to.tasks = append(to.tasks, list.GetTasks()...)
	to.total, to.more = int64(page.Pagination.TotalCount), page.Pagination.HasNext
	return nil
}

// CancelTask implements taskerv1.TaskServiceServer. A task that has ended is not a failure.
func (s taskService) CancelTask(ctx context.Context,
	r *taskerv1.CancelTaskRequest) (*taskerv1.CancelTaskResponse, error) {
	c := call{path: []string{r.GetTaskUuid()}, query: url.Values{}}
	if r.GetReason() != "" {
		c.query.Set("reason", r.GetReason())
	}
	task, err := ask(ctx, s.Server, c, &taskerv1.Task{})
	if err == nil {
		return &taskerv1.CancelTaskResponse{Task: task, Success: true}, nil
	}
	refusal, _ := status.FromError(err)
	if !strings.HasPrefix(refusal.Message(), cannotCancel) {
		return nil, err
	}
	message := refusal.Message()
	// The task is shown to those who may read it.
	task, err = ask(ctx, s.Server, call{operation: opGetTask, path: c.path, leaves: true}, &taskerv1.Task{})
	if err != nil && status.Code(err) != codes.PermissionDenied {
		return nil, err
	}
	return &taskerv1.CancelTaskResponse{Task: task, Message: &message}, nil
}

// GetTaskContext implements taskerv1.TaskServiceServer.
func (s taskService) GetTaskContext(ctx context.Context,
	r *taskerv1.GetTaskContextRequest) (*taskerv1.GetTaskContextResponse, error) {
	return askField(ctx, s.Server, call{path: []string{r.GetTaskUuid()}}, &taskerv1.GetTaskContextResponse{}, "context")
}

// GetTaskLogs implements taskerv1.TaskServiceServer.
func (s taskService) GetTaskLogs(ctx context.Context, r *taskerv1.GetTaskLogsRequest) (*taskerv1.GetTaskLogsResponse, error) {
	query := url.Values{}
	for name, value := range map[string]string{"step": r.GetStep(), "level": r.GetLevel(), "text": r.GetText(), "after": r.GetAfter()} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for name, value := range map[string]int32{"attempt": r.GetAttempt(), "limit": r.GetLimit()} {
		if value != 0 {
			query.Set(name, strconv.Itoa(int(value)))
		}
	}
	return ask(ctx, s.Server, call{path: []string{r.GetTaskUuid()}, query: query}, &taskerv1.GetTaskLogsResponse{})
}

// GetTaskSummary implements taskerv1.TaskServiceServer.
func (s taskService) GetTaskSummary(ctx context.Context,
	r *taskerv1.GetTaskSummaryRequest) (*taskerv1.GetTaskSummaryResponse, error) {
	return ask(ctx, s.Server, call{path: []string{r.GetTaskUuid()}}, &taskerv1.GetTaskSummaryResponse{})
}
