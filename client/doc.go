// Package client is the Go client of the REST API and defines its JSON types: the
// server encodes the same structs that the client decodes, so they cannot drift apart.
//
// A [Client] bounds every call, retries safely repeatable calls (after network errors and
// 5xx, never 4xx; a creation only with idempotency keys or if nothing was sent), honours
// Retry-After, and rejects answers that lack a required field, naming it. Failures
// reported by the server are an [*Error].
//
// [Client.CreateTasks] creates many tasks with one request, a [Producer] any
// number of them with several requests in flight.
//
// In the structs a field without omitempty is always on the wire; a pointer,
// slice or raw message among them may be null there.
//
// What may not enter: anything that needs a database, and the engine's own
// packages; this package must stay cheap to import for other programs.
package client
