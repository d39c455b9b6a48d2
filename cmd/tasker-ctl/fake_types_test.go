package main

import (
	"encoding/json"
	"net/http"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/wire"
)

func fakeType(namespace, name string) client.TaskType {
	attempts, yes := 5, true
	return client.TaskType{Name: name, Namespace: namespace, Version: "1.0.0", Description: "Send a mail", Handler: "mail.send", Priority: 40, PriorityLevel: 3,
		PayloadSchema: json.RawMessage(`{"type":"object"}`), Retry: client.TypeRetry{Retryable: &yes, MaxAttempts: &attempts, Backoff: "fixed"},
		Identity:  client.TypeIdentity{Strategy: "always_unique", KeyLifetime: "7d"},
		CreatedAt: at(0), CreatedBy: "ana", UpdatedAt: at(60), UpdatedBy: "bob"}
}

// fakeTypes answers what is asked of task types.
func fakeTypes(w http.ResponseWriter, r *http.Request, path string, body []byte) {
	namespace := r.URL.Query().Get("namespace")
	switch r.Method + " " + path {
	case "GET v1/task-types":
		answer(w, wire.TaskTypeList{TaskTypes: []client.TaskType{fakeType("mail", "email.send")}})
	case "PUT v1/task-types/email.send":
		var q client.TaskTypeRequest
		_ = json.Unmarshal(body, &q)
		answer(w, fakeType(q.Namespace, "email.send"))
	case "PUT v1/task-types/diamond":
		fail(w, http.StatusConflict, "CONFLICT", "A template of this name exists that is no task type")
	case "GET v1/task-types/email.send", "DELETE v1/task-types/email.send":
		answer(w, fakeType(namespace, "email.send"))
	case "POST v1/enqueue":
		var q client.EnqueueRequest
		_ = json.Unmarshal(body, &q)
		switch {
		case q.Type != "email.send":
			fail(w, http.StatusBadRequest, "BAD_REQUEST", "Unknown task type: "+q.Type)
		case q.IdempotencyKey == "welcome-7":
			answer(w, client.Enqueued{ID: completeTask, Status: "complete", Queue: "mail", Existing: true})
		default:
			write(w, http.StatusCreated, client.Enqueued{ID: movingTask, Status: "pending", Queue: "mail"})
		}
	default:
		fail(w, http.StatusNotFound, "NOT_FOUND", "Task type not found: "+namespace+"/other")
	}
}
