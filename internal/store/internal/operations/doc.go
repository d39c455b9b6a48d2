// Package operations is what operators and sweeps do about the fleet and its data: the
// registry of daemons, dead letters, stale tasks, retention, and the leases of sweeps.
//
// What may not enter: flows of tasks (board).
package operations
