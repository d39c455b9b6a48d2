// Package ledger reads what happened: tasks with their steps, alive or ended, their
// history, and whether the records agree with the rules.
//
// What may not enter: writes.
package ledger
