// Package relay lets one replica read the write-ahead log for a whole fleet.
//
// With the event source "relay" signals are written into the WAL, inside the working
// transactions, and all listeners use LISTEN. One elected Relay connects them: it
// reads all signals from the WAL (package wal) and sends them again by NOTIFY (package
// notify), many in one statement. The server decodes its WAL once, however many
// listeners there are, and no working transaction takes the lock of NOTIFY.
//
// The election is an advisory lock of a session (session.go). The leader sends over
// that same session: a replica that has lost the lock cannot send any more, and a
// NOTIFY that fails ends the leadership. A new leader first starts reading the WAL and
// then announces every topic once (lead.go), because earlier signals may have been
// lost. So every signal is either forwarded or covered by an announcement.
//
// Source is for listeners. Their probes go the whole way: WAL, relay, NOTIFY.
//
// What may not enter: the meaning of signals, statements of the product (a function
// provides the namespaces).
package relay
