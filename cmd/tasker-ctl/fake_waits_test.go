package main

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/wire"
)

const (
	openApproval    = "7b8d7b7e-3c1f-4c43-9a53-0d6c33f3c001"
	decidedApproval = "7b8d7b7e-3c1f-4c43-9a53-0d6c33f3c002"
)

func fakeApproval() client.Approval {
	until := at(3600)
	return client.Approval{Token: openApproval, TaskUUID: runningTask, StepUUID: runningTask, Namespace: "shapes", TaskName: "diamond", StepName: "approve",
		Prompt: "Is the discount fine?", Since: at(0), Until: &until}
}

// waits answers what is asked of approvals and events.
func (f *fakeAPI) waits(w http.ResponseWriter, path string, body []byte) bool {
	token, one := strings.CutPrefix(path, "v1/approvals/")
	switch {
	case path == "v1/external-events":
		var e client.ExternalEvent
		_ = json.Unmarshal(body, &e)
		receipt := client.EventReceipt{EventUUID: decidedApproval, ExpiresAt: at(86400)}
		switch {
		case e.TaskUUID == unknownTask:
			fail(w, http.StatusNotFound, "NOT_FOUND", "Task not found: "+unknownTask)
			return true
		case e.ID != "":
			receipt.Duplicate = true
		case e.TaskUUID != "":
			receipt.Delivered = 2
		}
		answer(w, receipt)
	case path == "v1/approvals":
		answer(w, wire.Approvals{Approvals: []client.Approval{fakeApproval()}})
	case one && token == openApproval:
		answer(w, fakeApproval())
	case one:
		fail(w, http.StatusNotFound, "NOT_FOUND", "There is no such approval, or it has been decided")
	default:
		return false
	}
	return true
}
