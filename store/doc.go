// Package store keeps the product's data in PostgreSQL. Every SQL statement of
// the product is in here; nothing else knows pgx but the signal sources.
//
// The data lie in two places. The board holds what is alive: narrow
// rows that change in place and go away when the work is done.
// The ledger (tasks, step_attempts, task_events) holds what happened: rows
// that are inserted once, partitioned by time.
//
// Each flow has its file: create, claim, report, apply, due, heartbeat. A flow
// is one transaction with a fixed number of statements, however many tasks or
// steps it carries. Locks are taken in one order: the rows
// of tasks by task, then those of steps by key. The database's clock decides; durations cross the wire,
// never instants.
//
// What may not enter: rules about what happens next (workflow), goroutines
// that look for work (poller, coordinator), knowledge of HTTP.
package store
