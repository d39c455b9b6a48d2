// Package engine runs the steps that a worker claims. A [Step] is the other side: it
// knows the handler and what publishers make of its end.
//
// Its stories: look.go claims as many steps as there are free permits; job.go computes
// per claim what its steps have in common; slots.go accounts for permits and claims and
// draws the states of an execution, room.go says how many steps may be claimed, ahead.go
// how many beyond the permits, leases.go accounts for leases and deadlines.go for time
// limits; engine.go runs executions and ending.go records how they ended; delivery.go
// sends what is to be stored in batches and retries them until they are answered:
// reports (reporter.go) and checkpoints (saver.go); settle.go decides what follows from
// successes; transaction.go commits with the handler's writes; yield.go reruns steps that
// yielded; heartbeat.go extends the leases; stop.go has the stages of the stop.
//
// What may not enter: SQL and drivers (store), rules about what a result causes
// (workflow), listening and polling (coordinator and below), and handlers with what they
// see (worker).
package engine
