// Package sweep keeps order behind the fleet: it finds workers that have died,
// tasks past their deadline or without movement, tasks that wait for others and
// would never be told, signals that nobody heard and rows whose time is over.
//
// A sweep is a [Job]: a name, an interval and a function. Every orchestrator
// has a [Runner] with all of them, and a row lease in the database sees to it
// that the fleet runs each once per interval, whatever the number of replicas.
// A replica that dies in a run holds the others up until its lease ends and no
// longer. Sweeps are triggered by the state of the database, again and again,
// never by an event or a start: one that was missed is made up for by the next.
//
// Each sweep has a loop of its own, so that a long one (retention) never keeps
// a short one (liveness) waiting. A run is bounded in batches and time, and its
// context ends with its lease. Overlapping runs would do no harm: what they do
// is guarded by row locks, and the lease only saves work.
//
// What may not enter: SQL (store) and what becomes of a task (orchestration,
// behind [Tasks]).
package sweep
