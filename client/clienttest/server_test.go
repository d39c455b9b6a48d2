package clienttest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/client/clienttest"
)

// The program under test gets a client, or the URL of the server.
func ExampleServer() {
	orchestrator := clienttest.NewServer()
	defer orchestrator.Close()
	orchestrator.Handle("book_order", func(r client.TaskRequest) (any, error) {
		if string(r.Context) == `{"cents":0}` {
			return nil, errors.New("nothing to book")
		}
		return map[string]string{"invoice": "R-17"}, nil
	})
	book := func(cents int) (string, error) { // what is tested
		booked, err := client.Run[map[string]string](context.Background(), orchestrator.Client(), client.TaskRequest{
			Namespace: "shop", Name: "book_order", Version: "1.0.0", Context: json.RawMessage(fmt.Sprintf(`{"cents":%d}`, cents))})
		return booked["invoice"], err
	}
	invoice, err := book(1200)
	fmt.Println(invoice, err)
	_, err = book(0)
	var ended *client.EndedError
	fmt.Println(errors.As(err, &ended), ended.Task.Status, ended.Task.Errors["book_order"].Message)
	fmt.Println(len(orchestrator.Requests()))
	// Output:
	// R-17 <nil>
	// true error nothing to book
	// 2
}

func TestTasks(t *testing.T) {
	t.Parallel()
	s := clienttest.NewServer()
	t.Cleanup(s.Close)
	require.Contains(t, s.URL(), "http://127.0.0.1:")
	c, empty := s.Client(), json.RawMessage(`{}`)
	s.Handle("a", func(r client.TaskRequest) (any, error) { return r.Context, nil })
	s.Handle("endless", func(client.TaskRequest) (any, error) { return func() {}, nil })
	ctx, request := t.Context(), client.TaskRequest{Namespace: "n", Name: "a", Version: "1.0.0", Context: json.RawMessage(`{"x":1}`), IdempotencyKey: "k"}
	first, err := c.CreateTask(ctx, request)
	require.NoError(t, err)
	require.True(t, first.Terminal())
	_, err = c.CreateTask(ctx, request)
	var conflict *client.Error
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, []any{409, "CONFLICT", first.TaskUUID}, []any{conflict.Status, conflict.Code, conflict.TaskUUID})
	request.ConflictPolicy = client.ConflictUseExisting
	again, err := c.CreateTask(ctx, request)
	require.NoError(t, err)
	require.Equal(t, first.TaskUUID, again.TaskUUID)
	kept, err := c.TaskByKey(ctx, "n", "a", "k", 0, client.IncludeResults)
	require.NoError(t, err)
	require.JSONEq(t, `{"x":1}`, string(kept.Results["a"]))

	batch, err := c.CreateTasks(ctx, []client.TaskRequest{request, {Namespace: "n", Name: "a", Version: "1.0.0", Context: empty}, {Namespace: "n", Name: "b", Version: "1.0.0", Context: empty}})
	require.NoError(t, err)
	require.Equal(t, []int{1, 1, 1}, []int{batch.Created, batch.Existing, batch.Failed})
	require.Equal(t, "NOT_FOUND", batch.Results[2].Error.Code)
	var listed []string
	for task, err := range c.EachTask(ctx, client.TaskListOptions{Namespace: "n", Status: "complete", PerPage: 1}) {
		require.NoError(t, err)
		listed = append(listed, task.TaskUUID)
	}
	require.Equal(t, []string{batch.Results[1].TaskUUID, first.TaskUUID}, listed)
	_, err = c.CancelTask(ctx, first.TaskUUID, client.Why{})
	require.ErrorContains(t, err, "Cannot cancel")
	require.Len(t, s.Requests(), 6)
	for _, call := range []func() error{
		func() error {
			_, err := c.CreateTask(ctx, client.TaskRequest{Namespace: "n", Name: "b", Context: empty})
			return err
		},
		func() error { _, err := c.Task(ctx, "absent", 0); return err },
		func() error { _, err := c.TaskByKey(ctx, "n", "a", "other", 0); return err },
		func() error { _, err := c.CancelTask(ctx, "absent", client.Why{}); return err },
		func() error { _, err := c.Fleet(ctx); return err },
	} {
		require.True(t, client.IsNotFound(call()))
	}
	for _, wrong := range []client.TaskRequest{{Name: "a"}, {Namespace: "n", Name: "a", Context: json.RawMessage(`[]`)}, {Namespace: "n", Name: "endless", Context: empty}} {
		_, err = c.CreateTask(ctx, wrong)
		require.ErrorContains(t, err, "BAD_REQUEST")
	}
}

// TestRequestsAtOnceAreOneTask where they have the same idempotency key: the second one comes
// while the first is answered.
func TestRequestsAtOnceAreOneTask(t *testing.T) {
	t.Parallel()
	s := clienttest.NewServer()
	t.Cleanup(s.Close)
	c := s.Client()
	request := client.TaskRequest{Namespace: "n", Name: "a", Version: "1.0.0", Context: json.RawMessage(`{}`), IdempotencyKey: "k"}
	var faster *client.Task
	s.Handle("a", func(client.TaskRequest) (any, error) {
		if len(s.Requests()) > 1 {
			return 1, nil
		}
		var err error
		faster, err = c.CreateTask(context.Background(), request)
		return 1, err
	})
	_, err := c.CreateTask(t.Context(), request)
	var conflict *client.Error
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, []any{409, faster.TaskUUID}, []any{conflict.Status, conflict.TaskUUID})
}
