// Package workertest runs handlers in tests of programs, without a database.
//
//	got := workertest.Run(t, worker.Typed(charge), workertest.Step{Input: order{ID: 7}})
//	if got.Failure != nil || got.String() != `{"reference":"A-7"}` { … }
//
// Run executes one handler once ([Step] in, [Result] out).
//
// Handlers run on the worker's own code: inputs, panics, time limits, the classification
// of errors, checkpoints and events are those of a real worker. What needs PostgreSQL, such
// as HandleTx and CreateTask, fails the test and says so; nothing is ignored.
//
// What may not enter: rules of the engine (workflow), and what handlers see (worker).
package workertest
