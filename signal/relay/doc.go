// Package relay lets one replica read the write-ahead log for a whole fleet.
//
// With the event source "relay" signals are written into the WAL, inside the
// working transactions, and everybody listens by LISTEN. In between stands one
// elected Relay: it reads all signals from the WAL (package wal) and announces
// them again by NOTIFY (package notify), many in one statement. The server
// decodes its WAL once, however many listeners there are, and no working
// transaction takes the lock of NOTIFY.
//
// The election is an advisory lock of a session (voice.go). What the leader
// announces goes over that same session: whoever has lost the lock has lost the
// voice, too, and an announcement that fails ends the leadership. A new leader
// first reads the WAL from some point on and then announces every topic once
// (lead.go), because nobody knows what was lost before. So a signal is either
// forwarded or stood for by an announcement.
//
// Source is the end of the listeners. Their probes go the whole way: WAL, relay,
// NOTIFY.
//
// What may not enter: what signals mean, statements of the product (the
// namespaces are asked for through a function).
package relay
