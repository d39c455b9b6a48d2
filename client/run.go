package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/tasker-go/tasker/internal/jsonscan"
)

// EndedError is a task that ended in another state than complete.
type EndedError struct {
	Task *Task // with its failures
}

// Error names the state of the task.
func (e *EndedError) Error() string {
	return fmt.Sprintf("task %s of %s/%s ended as %s", e.Task.TaskUUID, e.Task.Namespace, e.Task.Name, e.Task.Status)
}

// runWait is the time that one request waits for a task; the server may cap it.
const runWait = 30 * time.Second

// shortestRound keeps a server that does not let requests wait from being asked all the time.
const shortestRound = time.Second

// Run creates a task, waits for its end and decodes its result: that of its last step, or of
// several last steps an object with their results by name. It waits as long as ctx lasts, while
// the task continues without it. The error is an [*EndedError] if the task did not complete.
func Run[T any](ctx context.Context, c *Client, r TaskRequest) (result T, err error) {
	task, err := c.CreateTask(ctx, r)
	for err == nil && !task.Terminal() {
		asked := time.Now()
		if task, err = c.Task(ctx, task.TaskUUID, runWait, IncludeResults); err == nil && !task.Terminal() {
			if !pause(ctx, shortestRound-time.Since(asked)) {
				err = cmp.Or(context.Cause(ctx), context.DeadlineExceeded)
			}
		}
	}
	switch {
	case err != nil:
		return result, err
	case task.Results == nil && task.Status == "complete": // it had ended when it was created: a duplicate
		if task, err = c.Task(ctx, task.TaskUUID, 0, IncludeResults); err != nil {
			return result, err
		}
	case task.Status != "complete":
		return result, &EndedError{task}
	}
	text, err := onlyResult(task.Results)
	if err == nil {
		err = jsonscan.Unmarshal(text, &result)
	}
	if err != nil {
		return result, fmt.Errorf("decode the result of task %s: %w", task.TaskUUID, err)
	}
	return result, nil
}

func onlyResult(results map[string]json.RawMessage) ([]byte, error) {
	if len(results) == 1 {
		for _, text := range results {
			return text, nil
		}
	}
	return json.Marshal(results)
}

// EachTask lists all tasks that the options select, newest first, PerPage of them with one
// request, each once, however many are created meanwhile. It ends with the first error. Page is
// ignored.
func (c *Client) EachTask(ctx context.Context, o TaskListOptions) iter.Seq2[*Task, error] {
	return func(yield func(*Task, error) bool) {
		o.Page, o.Cursor = 0, cmp.Or(o.Cursor, NewestTasks)
		for o.Cursor != "" {
			list, err := c.Tasks(ctx, o)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range list.Tasks {
				if !yield(&list.Tasks[i], nil) {
					return
				}
			}
			o.Cursor = list.NextCursor
		}
	}
}
