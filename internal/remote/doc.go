// Package remote lends the worker's claims to processes in other languages. A process
// opens a session that offers callables and permits; a [Hub] hands it the steps that the
// worker claims for these callables, and turns its reports into what handlers return.
// docs/reference/protocol.md is the contract.
//
// wire.go has the messages. hub.go knows the sessions and which of them gets a step;
// session.go is one session: the steps it holds, the messages it gets and when it is lost; step.go
// is the handler that waits for the report.
//
// A session is present while one of its requests is under way, and for the grace after
// the last one. After that it is lost: steps that it was handed fail with ExecutorLost
// and may be retried at once, those that it never received wait for another session. The
// worker's lease does not depend on sessions.
//
// What may not enter: HTTP and gRPC (internal/api), SQL (store), and claiming, settling
// and leases (worker).
package remote
