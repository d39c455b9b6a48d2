// Package mux lets the listeners of one process share a connection of a
// source. Every NOTIFY wakes every session that listens in its database, and
// every reader of the WAL decodes it once more; so a process should have one.
//
// Source wraps another source. Each Connect makes a member: a connection with topics and
// a bounded buffer of its own. The first member opens the upstream connection, the last
// one closes it, and when it breaks, all members get the error and reconnect, each in
// its own time.
//
// A shared connection can be deaf for all members, so probes decide whether it may still
// be shared: a member that closes before its own probe has come back ends the upstream
// connection for all. In return, a probe that came back for one member may count for
// another. The rules are in probe.go.
//
// Read it in this order: source.go (joining), upstream.go (the shared connection: one
// goroutine reads, another one subscribes), member.go, probe.go.
//
// What may not enter: drivers, reconnecting (listener), the meaning of a topic.
package mux
