// Package schedules keeps schedules and runs the due ones: their tasks are created in the
// transaction that advances them.
//
// What may not enter: when a schedule is due next (internal/schedule).
package schedules
