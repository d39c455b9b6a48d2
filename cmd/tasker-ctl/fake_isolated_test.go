package main

import (
	"encoding/json"

	"github.com/tasker-go/tasker/client"
)

// fakeIsolated are items of the complete task; others have none.
func fakeIsolated(task string) client.IsolatedItems {
	list := client.IsolatedItems{TaskUUID: task, Items: []client.IsolatedItem{}}
	if task != completeTask {
		return list
	}
	as, next := newTask, "5.2"
	list.Items = append(list.Items,
		client.IsolatedItem{Worker: "rows", Batch: "rows_001", StepUUID: task, Item: json.RawMessage(`{"row":17}`),
			Error: client.IsolatedError{Message: "no such account", Type: "PermanentError", Code: "E7"}},
		client.IsolatedItem{Worker: "rows", Batch: "rows_001", StepUUID: task, Item: json.RawMessage(`"b-18"`),
			Error: client.IsolatedError{Message: "timeout", Type: "UnexpectedError", Retryable: true}, ReplayedAs: &as})
	list.Next = &next
	return list
}

func fakeReplayed(task string, r client.IsolatedReplay) client.IsolatedReplayed {
	done := client.IsolatedReplayed{DryRun: r.DryRun}
	if task == completeTask {
		done.Items, done.Batches, done.More = 2, 1, r.Limit == 2
		if as := newTask; !r.DryRun {
			done.TaskUUID = &as
		}
	}
	return done
}
