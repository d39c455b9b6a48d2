package grpcclient

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/transcode"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// specials are the operations that need more than one rpc, or more than its fields.
var specials = map[string]func(context.Context, *Transport, *asked) ([]byte, error){
	taskerv1.TaskService_GetTask_FullMethodName:    showTask,
	taskerv1.TaskService_ListTasks_FullMethodName:  listTasks,
	taskerv1.TaskService_CancelTask_FullMethodName: cancelTask,
}

// listTasks writes the position of a list as that of a page, or as a cursor: tasks that are
// created meanwhile shift others to the next page.
func listTasks(ctx context.Context, t *Transport, a *asked) ([]byte, error) {
	in, out := &taskerv1.ListTasksRequest{}, &taskerv1.ListTasksResponse{}
	if err := a.fill(in); err != nil {
		return nil, err
	}
	if err := t.invoke(ctx, taskerv1.TaskService_ListTasks_FullMethodName, in, out); err != nil {
		return nil, err
	}
	raw, err := transcode.EncodeList(out, "tasks")
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	list := client.TaskList{}
	if err := json.Unmarshal(raw, &list.Tasks); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	offset := int(in.GetPagination().GetOffset())
	if a.cursor {
		if out.GetPagination().GetHasMore() {
			list.NextCursor = strconv.Itoa(offset + len(list.Tasks))
		}
		return json.Marshal(list)
	}
	size, total := int(in.GetPagination().GetLimit()), int(out.GetPagination().GetTotal())
	page := offset/size + 1
	list.Pagination = client.Pagination{Page: page, PerPage: size, TotalCount: total, TotalPages: (total + size - 1) / size,
		HasNext: out.GetPagination().GetHasMore(), HasPrevious: page > 1}
	return json.Marshal(list)
}

// cancelTask turns the answer that nothing was cancelled into the refusal of REST.
func cancelTask(ctx context.Context, t *Transport, a *asked) ([]byte, error) {
	in, out := &taskerv1.CancelTaskRequest{}, &taskerv1.CancelTaskResponse{}
	if err := a.fill(in); err != nil {
		return nil, err
	}
	if err := t.invoke(ctx, taskerv1.TaskService_CancelTask_FullMethodName, in, out); err != nil {
		return nil, err
	}
	if !out.GetSuccess() {
		return nil, badRequest("%s", out.GetMessage())
	}
	return answer{"task", as[client.Task]}.of(out)
}

// showTask shows a task with its steps, after waiting for its end where that is asked for,
// and with the results that are.
func showTask(ctx context.Context, t *Transport, a *asked) ([]byte, error) {
	wait, err := time.ParseDuration(a.text("wait", "0"))
	if err != nil {
		return nil, badRequest("invalid wait")
	}
	include := a.text("include", "")
	in := &taskerv1.GetTaskRequest{IncludeSteps: true, IncludeContext: include != ""}
	for word := range strings.SplitSeq(include, ",") {
		if word != "" && word != client.IncludeResults && word != client.IncludeAllResults {
			return nil, a.notServed("no " + word + " of a task")
		}
	}
	if err := a.fill(in); err != nil {
		return nil, err
	}
	if wait > 0 {
		t.await(ctx, in.GetTaskUuid(), wait)
	}
	out := &taskerv1.GetTaskResponse{}
	if err := t.invoke(ctx, taskerv1.TaskService_GetTask_FullMethodName, in, out); err != nil {
		return nil, err
	}
	task, steps, err := read(out)
	if err == nil && include != "" {
		task.Errors = failures(steps)
		task.Results, err = t.results(ctx, out, slices.Contains(strings.Split(include, ","), client.IncludeAllResults))
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(task)
}

// text takes a text out of the keys.
func (a *asked) text(name, missing string) (text string) {
	if json.Unmarshal(a.keys[name], &text) != nil || text == "" {
		text = missing
	}
	delete(a.keys, name)
	return text
}

// await returns when a task has ended, after that time, or when its stream breaks. What has
// happened shows when the task is read.
func (t *Transport) await(ctx context.Context, task string, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	f := &following{t: t, in: &taskerv1.StreamTaskStatusRequest{TaskUuid: task}, yield: func(*taskerv1.TaskStatusUpdate, error) bool { return true }}
	_ = f.follow(ctx)
}

// read reads a task, and its steps in both forms that REST has for them.
func read(out *taskerv1.GetTaskResponse) (task *client.Task, steps []client.Step, err error) {
	task = &client.Task{}
	whole, err := transcode.Encode(out.GetTask())
	list, listErr := transcode.EncodeList(out, "steps")
	err = cmp.Or(err, listErr, json.Unmarshal(whole, task), json.Unmarshal(list, &steps), json.Unmarshal(list, &task.Steps))
	if err != nil {
		return nil, nil, fmt.Errorf("read the answer: %w", err)
	}
	for i := range task.Steps {
		task.Steps[i].WorkflowStepUUID = steps[i].StepUUID
	}
	return task, steps, nil
}

// failures are those of steps that have no result.
func failures(steps []client.Step) map[string]client.StepError {
	found := map[string]client.StepError{}
	for i := range steps {
		if s := &steps[i]; s.CurrentState == "error" || s.CurrentState == "waiting_for_retry" {
			var result client.StepResult
			if json.Unmarshal(s.Results, &result) == nil && result.Error != nil {
				found[s.Name] = *result.Error
			}
		}
	}
	return found
}

// results are those of all steps that have completed, or of the last ones.
func (t *Transport) results(ctx context.Context, of *taskerv1.GetTaskResponse, all bool) (map[string]json.RawMessage, error) {
	raw, err := transcode.Object(of.GetContext().GetOutputs())
	if err != nil {
		return nil, err
	}
	var found map[string]json.RawMessage
	if err := json.Unmarshal(raw, &found); err != nil || all || len(found) == 0 {
		return found, err
	}
	out := &taskerv1.GetTaskSummaryResponse{}
	in := &taskerv1.GetTaskSummaryRequest{TaskUuid: of.GetTask().GetTaskUuid()}
	if err := t.invoke(ctx, taskerv1.TaskService_GetTaskSummary_FullMethodName, in, out); err != nil {
		return nil, err
	}
	followed := followedSteps(out)
	maps.DeleteFunc(found, func(name string, _ json.RawMessage) bool { return followed[templateOf(out, name)] })
	return found, nil
}

// followedSteps are the steps of the template that others depend on which exist.
func followedSteps(s *taskerv1.GetTaskSummaryResponse) map[string]bool {
	exists, followed := map[string]bool{}, map[string]bool{}
	for _, step := range s.GetSteps() {
		exists[templateOf(s, step.GetName())] = true
	}
	for _, step := range s.GetTemplate().GetSteps() {
		if exists[step.GetName()] {
			for _, parent := range step.GetDependencies() {
				followed[parent] = true
			}
		}
	}
	return followed
}

// templateOf is the step of the template that a step was made from: that of its name, or
// for a batch the one whose name its own begins with.
func templateOf(s *taskerv1.GetTaskSummaryResponse, name string) string {
	longest := ""
	for _, step := range s.GetTemplate().GetSteps() {
		if step.GetName() == name {
			return name
		}
		if step.GetStepType() == "batch_worker" && strings.HasPrefix(name, step.GetName()+"_") && len(step.GetName()) > len(longest) {
			longest = step.GetName()
		}
	}
	return longest
}
