// Package load creates tasks and keeps systems busy: requests over REST one by one and in
// bulk, and a feeder that keeps a backlog at a size.
package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// BulkLimit is the most tasks in one request.
const BulkLimit = 10_000

// Creator creates tasks through the REST API of an orchestrator. Every task has its own
// context, since equal ones are duplicates. It is safe for concurrent use.
type Creator struct {
	server Server
	mix    []Workflow
	run    string // distinguishes the tasks of creators
	made   atomic.Int64
}

// NewCreator returns a creator of tasks of the workflows of a mix in turn.
func NewCreator(server Server, mix []Workflow) *Creator {
	return &Creator{server: server, mix: mix, run: strconv.FormatInt(time.Now().UnixNano(), 36)}
}

// appendTask writes the request for the next task.
func (c *Creator) appendTask(b []byte) []byte {
	n := c.made.Add(1)
	w := &c.mix[int(n)%len(c.mix)]
	b = append(b, `{"name":"`...)
	b = append(b, w.Name...)
	b = append(b, `","namespace":"`...)
	b = append(b, w.Namespace...)
	b = append(b, `","version":"1.0.0","context":{"even_number":2,`...)
	b = append(b, w.Fields...)
	b = append(b, `"run":"`...)
	b = append(b, c.run...)
	b = append(b, `","task":`...)
	b = strconv.AppendInt(b, n, 10)
	return append(b, `},"initiator":"bench","source_system":"bench","reason":"bench"}`...)
}

// Bulk makes n tasks, BulkLimit in a request at most.
func (c *Creator) Bulk(ctx context.Context, n int) error {
	wire, err := Dial(ctx, c.server)
	if err != nil {
		return err
	}
	defer wire.Close()
	for ; n > 0; n -= BulkLimit {
		if err := c.Batch(wire, min(n, BulkLimit)); err != nil {
			return err
		}
	}
	return nil
}

// Batch makes n tasks in one request, BulkLimit at most.
func (c *Creator) Batch(wire *Wire, n int) error {
	body := append(make([]byte, 0, 64+200*n), `{"tasks":[`...)
	for i := range n {
		if i > 0 {
			body = append(body, ',')
		}
		body = c.appendTask(body)
	}
	status, answer, err := wire.Post("/v1/tasks/batch", append(body, "]}"...))
	switch {
	case err != nil:
		return fmt.Errorf("create %d tasks: %w", n, err)
	case status >= http.StatusMultipleChoices:
		return fmt.Errorf("create %d tasks: status %d: %.300s", n, status, answer)
	}
	var batch struct {
		Created int `json:"created"`
	}
	if err := json.Unmarshal(answer, &batch); err != nil {
		return fmt.Errorf("read what was created: %w", err)
	}
	if batch.Created != n {
		return fmt.Errorf("create %d tasks: %d were created: %.300s", n, batch.Created, answer)
	}
	return nil
}

// One makes a task over an open connection and returns its id.
func (c *Creator) One(wire *Wire) (string, error) { return c.post(wire, "/v1/tasks") }

// Waited is One that waits over the API for the end of the task, at most for most.
func (c *Creator) Waited(wire *Wire, most time.Duration) (string, error) {
	return c.post(wire, "/v1/tasks?wait="+most.String())
}

func (c *Creator) post(wire *Wire, path string) (string, error) {
	status, answer, err := wire.Post(path, c.appendTask(nil))
	if err != nil {
		return "", fmt.Errorf("create a task: %w", err)
	}
	if status >= http.StatusMultipleChoices {
		return "", fmt.Errorf("create a task: status %d: %.300s", status, answer)
	}
	var task struct {
		UUID string `json:"task_uuid"`
	}
	if err := json.Unmarshal(answer, &task); err != nil {
		return "", fmt.Errorf("read the created task: %w", err)
	}
	return task.UUID, nil
}

// Singles has clients create tasks one by one until ctx ends and returns the duration of
// each request.
func (c *Creator) Singles(ctx context.Context, clients int) ([]time.Duration, error) {
	took, errs := make([][]time.Duration, clients), make([]error, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() { took[i], errs[i] = c.singles(ctx) })
	}
	wg.Wait()
	var all []time.Duration
	for _, t := range took {
		all = append(all, t...)
	}
	return all, errors.Join(errs...)
}

func (c *Creator) singles(ctx context.Context) (took []time.Duration, err error) {
	wire, err := Dial(ctx, c.server)
	if err != nil {
		return nil, err
	}
	defer wire.Close()
	var body []byte
	for ctx.Err() == nil {
		body = c.appendTask(body[:0])
		begin := time.Now()
		status, answer, err := wire.Post("/v1/tasks", body)
		if err != nil {
			return took, fmt.Errorf("create a task: %w", err)
		}
		if status >= http.StatusMultipleChoices {
			return took, fmt.Errorf("create a task: status %d: %.300s", status, answer)
		}
		took = append(took, time.Since(begin))
	}
	return took, nil
}
