// Package sweep repairs what the event-driven flows miss: it finds dead workers, tasks
// past their deadline or without progress, tasks that wait for others and would never be
// released, lost signals and expired rows.
//
// A sweep is a [Job]: a name, an interval and a function. Every orchestrator has a
// [Runner] with all of them, and a row lease in the database makes the fleet run each
// once per interval, whatever the number of replicas. A replica that dies in a run
// blocks the others only until its lease ends. Sweeps are triggered by the state of the
// database, never by an event or a start: a missed run is made up for by the next.
//
// Each sweep has a loop of its own, so that a long one (retention) never delays a short
// one (liveness). A run is bounded in batches and time, and its context ends with its
// lease. Overlapping runs are harmless: row locks guard their changes, and the lease
// only saves work.
//
// What may not enter: SQL (store) and the effect on tasks (orchestration, behind
// [Tasks]).
package sweep
