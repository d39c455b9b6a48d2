// Package notify carries signals by LISTEN/NOTIFY.
//
// Source listens on one direct connection of its own. It must reach the server itself:
// a pooler in transaction mode (PgBouncer) gives the session, and its LISTEN, to
// another client after each transaction. Transport sends over the ordinary pool, which
// may use a pooler: all signals of a batch in one statement, outside of any working
// transaction, because NOTIFY in a transaction takes a database-wide lock until its
// commit is flushed.
//
// Read connection.go first: one goroutine owns the pgx connection, which allows no
// concurrent use, and all other goroutines interrupt it.
//
// What may not enter: reconnecting (listener), business statements (store).
package notify
