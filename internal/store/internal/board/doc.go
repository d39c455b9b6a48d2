// Package board is the life of a task, from its creation to its last step: create, claim,
// report, settle, take and commit, with what the board remembers between two scans (marks
// and frontiers).
//
// Each flow has its file. A flow is one transaction with a fixed number of statements, for
// any number of tasks or steps. Locks are taken in one order: the rows of tasks by task,
// then those of steps by key.
//
// What may not enter: reads of ended tasks (ledger), and steps that the engine runs itself
// (waits).
package board
