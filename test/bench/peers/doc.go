// Package peers runs other task queues on PostgreSQL, so that a benchmark can compare
// them with Tasker: the same server, machine, number of jobs and kind of handler.
//
// Each queue implements [Peer]. Where a queue has knobs that matter there are
// two of it: one as its own introduction sets it up, and one tuned as well as
// we can. The tuned one's knobs were chosen by measuring (BenchmarkRiverDrain),
// and [Peer.Settings] names each of them, so that a reader can judge whether
// the comparison is fair. Where a choice had to be made it favours the peer.
//
// Every time comes from the peer's own tables. Programs and server must
// therefore share one clock: run both on one machine.
package peers
