// Package signal defines signals, their encoding and their delivery.
//
// A signal is a hint: "look at the rows now". The row is the truth and the
// poller is the guarantee, so losing, doubling or reordering signals costs
// time and never work. Everything here relies on that: equal waiting signals
// coalesce, a flood collapses to "something happened on this topic", and a sender
// that cannot reach the database gives up after one retry instead of blocking its
// caller. Fast domain events travel in the payloads of topics of their own
// (FastTopic); they may be lost, too.
//
// Read it in this order: signal.go (the vocabulary: Topic, Signal, Publisher,
// Source, Connection), codec.go (what a well-formed signal is and its bytes),
// buffer.go (the bounded set of waiting signals, used on both ends), sender.go
// (the Publisher of the product: natural batching, one flush in flight).
//
// The sources live one room further: notify (LISTEN/NOTIFY), wal (logical decoding
// messages), relay (one replica reads the WAL and notifies the others), inproc (one
// process, no network).
//
// What may not enter: pgx or any other driver, SQL, reconnecting (listener),
// reactions to a signal (coordinator), metrics and logging (they are wired from the
// statistics and hooks given here).
package signal
