// Package orchestration is the orchestrator: it creates tasks, applies what workers
// report, moves due steps, ends cancelled tasks and notifies clients that wait for the
// end of a task.
//
// It connects the rules (workflow), the rows (store) and the event systems
// (coordinator). Two event systems run here: "orchestration" looks for reported steps,
// "task_readiness" for due steps, lost leases and due schedules. Each looks only when
// woken; what arrives during a look is handled by the next: batches form by themselves.
//
// What may not enter: SQL (store), HTTP (api), the running of handlers
// (worker, which this package never imports).
package orchestration
