package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/wire"
)

// Tasks are added one by one and go to the server in batches, several at once.
func ExampleProducer() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var batch wire.TaskBatchRequest
		_ = json.NewDecoder(r.Body).Decode(&batch)
		_ = json.NewEncoder(w).Encode(client.TaskBatch{Results: make([]client.TaskBatchResult, len(batch.Tasks))})
	}))
	defer server.Close()
	c := client.New(client.Config{BaseURL: server.URL, HTTP: server.Client()}) // the URL of an orchestrator

	ctx := context.Background()
	p := client.NewProducer(ctx, c, client.ProducerConfig{})
	var created atomic.Int64
	for order := range 2000 {
		err := p.Add(ctx, client.TaskRequest{
			Namespace: "shop", Name: "book_order", Version: "1.0.0", Context: json.RawMessage(fmt.Sprintf(`{"id": %d}`, order)),
			Initiator: "shop", SourceSystem: "shop", Reason: "new order",
			IdempotencyKey: fmt.Sprintf("order-%d", order), // makes retries of a batch safe
		}, func(got client.TaskOutcome) {
			if got.Err == nil || client.IsConflict(got.Err) {
				created.Add(1)
			} else {
				fmt.Println("order", order, got.Err)
			}
		})
		if err != nil {
			fmt.Println(err)
			break
		}
	}
	fmt.Println(p.Close(ctx), created.Load())
	// Output: <nil> 2000
}
