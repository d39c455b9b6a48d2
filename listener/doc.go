// Package listener keeps a source of signals alive for a process: it connects, subscribes,
// reconnects for ever with a capped and jittered delay, probes the path of the signals, and
// reports after every subscription that signals may have been missed.
//
// Every NOTIFY wakes every session that listens in its database, and every reader of the
// WAL decodes it once more; so a process has one [Listener], and each of its event systems
// a [Subscription]. The connection is subscribed to the topics of all. An arriving signal
// goes into the bounded buffer of each subscription that has its topic, so that a slow one
// loses payloads and blocks no other. When the connection breaks, it breaks for all. A probe
// that one subscription asks for is sent once and counts for all; a subscription that gives
// the connection up for deaf ends it for all.
//
// Each subscription has its own mode, thresholds and readiness. The rules are in
// deploymode.Machine; this package executes them.
//
// Read it in this order: listener.go (joining and leaving), connector.go (from the first
// subscription to the last), session.go (one connection), subscription.go, step.go, move.go (two
// sources, while a fleet moves from one to the other).
//
// What may not enter: polling, and knowledge of what a signal leads to.
package listener
