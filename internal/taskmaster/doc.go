// Package taskmaster makes plain task queues of the engine: tasks are submitted, claimed and
// ended by clients in any language over /tasks/v1, /workers/v1 and /queues/v1.
//
// A queue is a namespace with one template of one step ([plainqueue.Template]), which is
// registered when the queue is first named. A claim is a claim of the board whose worker is the
// registration of a client. Its lease follows the heartbeats of that client: they write one row,
// and when the lease ends the orchestrator looks there before it takes the claim away. So a
// worker of a thousand tasks costs no more than a worker of one, and death needs no sweep.
//
// A claim that waits is answered by the signal of the queue. Waiting claims of the same tags
// are one look, so none of them polls.
//
// What may not enter: SQL, HTTP, and rules about what follows an end.
package taskmaster
