// Package command runs the commands of the daemons within bounds:
//
//   - [Processor]: typed commands, each kind with workers and a buffer of its own.
//     A command beyond them is rejected; one that was accepted runs.
//   - [Batcher]: natural batching. While one batch is in flight, items gather
//     for the next; no timer is ever waited for.
//
// Both recover from panics, count themselves and drain on Stop.
//
// What may not enter: knowledge of what a command means.
package command
