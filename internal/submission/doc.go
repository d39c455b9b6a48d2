// Package submission is what a request for a task has to be, and what it
// becomes: the bounds of its fields, the template it names, the identity that
// makes a repetition a duplicate, and the row that is written for it.
//
// Tasks come in three ways: over the API (orchestration.Create), from a handler
// into its transaction (worker.StepContext.CreateTask), and from a program into
// a transaction of its own (client/pgclient). orchestration and worker do not
// know each other, so what all three must agree on stands below both of them,
// once: none of them can accept what another would refuse.
//
// Read request.go (what is asked for, and its bounds), plain.go (the same at a
// glance, for contexts that are plain), given.go (identifiers, start and
// deadline as people give them), task.go (what it becomes), into.go (one or many
// in a transaction of others), edit.go (how an operator changes the context of a
// task that exists).
//
// What may not enter: SQL (store), batches and signals (orchestration), the JSON
// of the API (client).
package submission
