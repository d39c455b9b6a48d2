// Package workertest runs handlers, and whole templates, in tests of programs, without a
// database.
//
//	got := workertest.Run(t, worker.Typed(charge), workertest.Step{Input: order{ID: 7}})
//	if got.Failure != nil || got.String() != `{"reference":"A-7"}` { … }
//
// Run executes one handler once ([Step] in, [Result] out). Play executes a task of a
// template by the engine's rules ([Task] in, [Outcome] out) on a clock of its own: delays
// and waits of days pass at once. PlayOn executes the same task on a PostgreSQL, in real
// time, for what memory cannot show.
//
// Handlers run on the worker's own code: inputs, panics, time limits, the classification
// of errors, checkpoints and events are those of a real worker. What needs PostgreSQL, such
// as HandleTx and CreateTask, fails the test and says so; nothing is ignored.
//
// step.go and run.go have the single handler; task.go, play.go and playing.go the template,
// play_on.go the same on PostgreSQL;
// board.go answers what executions read.
//
// What may not enter: rules of the engine (workflow), and what handlers see (worker).
package workertest
