// Package engine runs the steps that a worker claims. A [Step] is its counterpart: it
// knows the handler and the events that publishers make of its end.
//
// An execution from claim to record: look.go claims as many steps as there are free
// permits, from the callables that queues.go offers; execution.go computes per claim the
// shared data of its steps; slots.go assigns permits and shows the states of an execution;
// engine.go runs it; ending.go decides who records its ending, and reporter.go or
// saver.go records it through delivery.go, which sends batches and retries them until
// they are answered. transaction.go is for handlers that work in one.
//
// The parts of the slots: ahead.go (steps claimed beyond the permits), room.go (how many
// to claim), leases.go (leases and time limits), saver.go (yields). unknown.go hands back
// claims whose answers were lost, heartbeat.go extends leases, stop.go has the stages of
// the stop, failure.go the stored form of failures.
//
// What may not enter: SQL and drivers (store), rules about what a result causes
// (workflow), listening and polling (coordinator and below), and handlers with their
// contexts (worker).
package engine
