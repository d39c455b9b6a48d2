// Package waits begins the steps that the engine runs and ends their waits: for events,
// approvals and other tasks, and the waits of tasks for those that they depend on.
//
// What may not enter: steps of workers (board).
package waits
