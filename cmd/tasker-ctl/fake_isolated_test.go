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

// fakeBatches are two groups of the complete task, one of them with a failure.
func fakeBatches(task string) client.Batches {
	list := client.Batches{TaskUUID: task, Groups: []client.BatchGroup{}}
	if task != completeTask {
		return list
	}
	speed, left := 250.0, 8.0
	list.Groups = append(list.Groups, client.BatchGroup{Batchable: "split", Worker: "rows", Strategy: "isolate", Total: 2, Complete: 1, InProgress: 1,
		TotalItems: 4000, CompletedItems: 2000, IsolatedItems: 2, PerSecond: &speed, SecondsLeft: &left, Batches: []client.Batch{
			{Name: "rows_001", BatchID: "001", Start: json.RawMessage(`0`), End: json.RawMessage(`2000`), Items: 2000, State: "complete", Attempts: 1},
			{Name: "rows_002", BatchID: "002", Start: json.RawMessage(`2000`), End: json.RawMessage(`4000`), Items: 2000, State: "in_progress", Attempts: 1}}})
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
