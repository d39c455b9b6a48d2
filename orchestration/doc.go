// Package orchestration is what the orchestrator does: it creates tasks,
// applies what workers reported, moves what has become due, ends what is
// cancelled, and tells those who wait that a task has ended.
//
// It brings together the rules (workflow), the rows (store) and the ways of
// learning that there is something to do (coordinator). Two event systems run
// here: "orchestration" looks for reported steps, "task_readiness" for due
// steps, lost leases and schedules whose time has come. Each looks only when it is woken, and what it finds
// while it works it finds together: batches form by themselves.
//
// What may not enter: SQL (store), HTTP (api), the running of handlers
// (worker, which this package never imports).
package orchestration
