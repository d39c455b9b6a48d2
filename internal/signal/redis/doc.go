// Package redis carries signals by the channels of Redis (pub/sub).
//
// Transport publishes a batch in one pipeline, one round trip. Source subscribes on one
// connection of its own, which Redis ends when it does not read fast enough. Signals that are
// published while no connection is subscribed are lost; so a lost connection is an error of
// Receive, never a silent reconnect of the library, and the listener looks at all rows once
// it has a new one. Nothing of this depends on keys or persistence: a server that was wiped
// carries signals as before, one that is full or cannot save does too.
//
// Channels belong to the server, not to one of its numbered databases; so their names begin
// with a prefix, one per fleet.
//
// Streams were the alternative. They keep missed signals, which a listener does not need, and
// cost writes, trimming, memory, and a position per listener.
//
// Read connection.go first. What may not enter: reconnecting (listener), keys.
package redis
