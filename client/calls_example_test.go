package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/tasker-go/tasker/client"
)

// answering is a server that gives one answer to every request.
func answering(status int, body string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
}

// An event reaches the steps that wait for it; a repetition with the same id has no effect.
func ExampleClient_SendEvent() {
	server := answering(http.StatusOK, `{"event_uuid": "0199f0a0-0000-7000-8000-000000000001", "delivered": 1, "duplicate": false, "expires_at": "2026-12-01T00:00:00Z"}`)
	defer server.Close()
	c := client.New(client.Config{BaseURL: server.URL}) // the URL of an orchestrator
	receipt, err := c.SendEvent(context.Background(), client.ExternalEvent{
		Name: "payment_received", Namespace: "shop", Key: "order-17", ID: "bank-4711", Payload: json.RawMessage(`{"cents": 1200}`),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(receipt.Delivered, receipt.Duplicate)
	// Output: 1 false
}

// A second task with the idempotency key of a first one is a conflict that names the
// first.
func ExampleIsConflict() {
	server := answering(http.StatusConflict, `{"error": {"code": "CONFLICT", "message": "a task with this identity exists",
		"task_uuid": "0199f0a0-0000-7000-8000-000000000001"}}`)
	defer server.Close()
	c := client.New(client.Config{BaseURL: server.URL})
	_, err := c.CreateTask(context.Background(), client.TaskRequest{Namespace: "shop", Name: "book_order", Version: "1.0.0",
		Initiator: "shop", SourceSystem: "shop", Reason: "new order", IdempotencyKey: "order-17"})
	var failed *client.Error
	if client.IsConflict(err) && errors.As(err, &failed) {
		fmt.Println(failed.Status, failed.TaskUUID)
	}
	// Output: 409 0199f0a0-0000-7000-8000-000000000001
}
