// Package client is the Go client of the REST API, and the home of the JSON
// types that the API speaks: the server encodes the same structs that the
// client decodes, so the two cannot drift apart.
//
// A [Client] bounds every call, retries what may be retried (network errors
// and 5xx, never 4xx; a creation only with idempotency keys or when nothing
// was sent), honours Retry-After, and refuses answers that lack a required
// field, naming it. Failures that the server tells of are an [*Error].
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
