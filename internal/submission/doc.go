// Package submission defines requests for tasks and their result: the bounds of the fields,
// the template, the identity that makes a repetition a duplicate, and the row to write.
//
// Tasks come in three ways: over the API (orchestration.Create), from a handler into its
// transaction (worker.StepContext.CreateTask), and from a program into a transaction of its
// own (client/pgclient). orchestration and worker do not import each other, so the rules of
// all three are below both of them: none accepts a request that another would reject.
//
// Read request.go (requests and their bounds), context.go (the bounds of contexts),
// given.go (identifiers, start and deadline in their external form), task.go (the resulting
// task), into.go (one or many tasks in the caller's transaction), edit.go (how an operator
// changes the context of an existing task).
//
// What may not enter: SQL (store), batches and signals (orchestration), the JSON
// of the API (client).
package submission
