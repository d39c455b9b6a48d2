// Package notify carries signals by LISTEN/NOTIFY.
//
// Source listens on one direct connection of its own. It must reach the server
// itself: a pooler in transaction mode (PgBouncer) hands the session to
// somebody else after each transaction, and the LISTEN with it. Transport
// sends over the ordinary pool, which may go through a pooler, all signals of a
// batch in one statement outside of any working transaction, because NOTIFY in
// a transaction takes a database-wide lock until its commit is flushed.
//
// Read connection.go first: one goroutine owns the pgx connection, since only
// one may use it at a time, and everybody else interrupts it.
//
// What may not enter: reconnecting (listener), business statements (store).
package notify
