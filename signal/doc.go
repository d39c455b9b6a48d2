// Package signal defines signals, and the contract of the sources that carry them.
//
// A signal is a hint: "look at the rows now". The row is the truth and the
// poller is the guarantee, so losing, doubling or reordering signals costs
// time and never work. Everything here relies on that: equal waiting signals may
// coalesce, and a flood may collapse to "something happened on this topic". Fast domain
// events travel in the payloads of topics of their own (FastTopic); they may be lost, too.
//
// Read it in this order: signal.go (the vocabulary: Topic, Signal, Publisher, Transport,
// Source, Connection), wellformed.go (what a well-formed signal is).
//
// What waits to be sent or received is kept in internal/signal/pending. The sources are its
// neighbours: notify (LISTEN/NOTIFY), wal (logical decoding messages), relay (one replica
// reads the WAL and notifies the others), redis (channels of Redis), inproc (one process, no
// network).
//
// What may not enter: pgx or any other driver, SQL, reconnecting (listener),
// reactions to a signal (coordinator), metrics and logging.
package signal
