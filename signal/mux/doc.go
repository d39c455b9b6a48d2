// Package mux lets the listeners of one process share a connection of a
// source. Every NOTIFY wakes every session that listens in its database, and
// every reader of the WAL decodes it once more; so a process should have one.
//
// Source wraps another source. Whoever connects becomes a member: a connection
// with topics, a bounded buffer and a fate of its own, as far as that goes. The
// first member opens the upstream connection, the last one closes it, and when
// it breaks, all members learn why and come back each in its own time.
//
// What is shared can be deaf for all, so probes say whether it may be shared
// any longer: a member that closes while a probe of its own has not come back
// ends the upstream connection for everybody. In return a probe that came back
// for one member may stand for that of another. The rules are in probe.go.
//
// Read it in this order: source.go (joining), upstream.go (the one connection:
// a goroutine reads it, another one subscribes), member.go, probe.go.
//
// What may not enter: drivers, reconnecting (listener), what a topic means.
package mux
