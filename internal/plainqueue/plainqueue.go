// Package plainqueue knows the template of plain task queues, by which store, the rules of
// submission and the API of queues tell their tasks from others.
//
// What may not enter: what becomes of their tasks, which is internal/taskmaster's.
package plainqueue

import (
	"strings"

	"github.com/tasker-go/tasker/workflow"
)

// Template is the name of the template of a plain task queue, and the callable of its only
// step. A queue is a namespace with this template; its tasks are submitted, claimed and ended
// over /tasks/v1. The context of a task is a JSON object with its payload, and the tags of
// which a worker must have all.
const Template = "taskmaster"

// Has reports whether a template is that of a plain task queue.
func Has(t *workflow.Template) bool {
	return t.Name == Template && len(t.Steps) == 1 && t.Steps[0].Handler.Callable == Template
}

// ownerMark is between the id of a worker and its principal. Ids from outside have none.
const ownerMark = "\x1f"

// WorkerOf is the id of a worker as it is kept: with its principal, "" without credentials, so that
// nobody claims as the worker of another.
func WorkerOf(principal, id string) string {
	if principal == "" || id == "" {
		return id
	}
	return id + ownerMark + principal
}

// ShownWorker is the id of a worker as its principal has chosen it.
func ShownWorker(kept string) string {
	id, _, _ := strings.Cut(kept, ownerMark)
	return id
}
