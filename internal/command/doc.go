// Package command runs the commands of the daemons within bounds:
//
//   - [Processor]: a bounded queue of typed commands and a fixed number of
//     workers. A full queue makes the sender wait; nothing is dropped.
//   - [Batcher]: natural batching. While one batch is in flight, items gather
//     for the next; no timer is ever waited for.
//
// Both recover from panics, count themselves and drain on Stop.
//
// What may not enter: knowledge of what a command means.
package command
