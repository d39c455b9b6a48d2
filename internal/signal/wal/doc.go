// Package wal carries signals in the write-ahead log.
//
// Transport writes a batch with pg_logical_emit_message in one statement (store
// may also emit such messages inside a working transaction: then the signal
// exists exactly when the work does, and without the lock that NOTIFY takes).
// Source reads them back by logical replication: pgoutput with messages, and a
// publication without tables, so that nothing but the messages is sent. It
// needs wal_level = logical, the REPLICATION attribute, PostgreSQL 14 or later
// and a direct connection; poolers do not speak replication.
//
// The slot is temporary by default and ends with the connection. A persistent slot keeps
// the signals of a disconnect, and their WAL: guard it with max_slot_wal_keep_size and
// drop it by name (DropSlot) when the listener is retired. A slot that the server has
// invalidated is made anew; the signals since are lost, and a listener that connects
// looks at everything anyway.
//
// Read position.go first (what may be confirmed, pure), then slot.go (what the server
// must have), connection.go (the goroutine that owns the stream).
//
// What may not enter: reconnecting (listener), changes of tables, business
// statements (store).
package wal
