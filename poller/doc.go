// Package poller looks for work on a schedule: at an interval with jitter,
// less often when told to relax, later after errors, not at all when off.
//
// The poller is the guarantee: whatever becomes of signals, it looks. It holds
// no connection between two polls.
//
// What may not enter: listening, and knowledge of what is looked for. Which
// pace is right is decided by deploymode.
package poller
