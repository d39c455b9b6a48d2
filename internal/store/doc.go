// Package store keeps the product's data in PostgreSQL. It contains every SQL statement
// of the product; besides it only the signal sources use pgx.
//
// The data are in two places. The board holds live tasks and steps: narrow rows that
// change in place and are deleted when the work is done. The ledger (tasks,
// step_attempts, task_events) holds what happened: rows inserted once, partitioned by
// time.
//
// Statements name their arguments, constants and result columns, see internal/stmt; lists
// of rows are slices of structs with the columns as fields.
//
// The page of the contract is store.go: what each room promises, and the types that cross
// the border. The rooms are below internal. One imports pg, registry and board, in this
// order, and no other: registry knows what tasks are made of, board holds live tasks, and
// above it stand ledger, waits, schedules, events and operations, which do not know each
// other.
//
// A flow is one transaction with a fixed number of statements, for any number of tasks or
// steps. The database's clock decides; durations cross the wire, never instants.
//
// What may not enter: rules about what happens next (workflow), goroutines that look for
// work (poller, coordinator), knowledge of HTTP.
package store
