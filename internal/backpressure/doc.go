// Package backpressure decides whether the system admits new work, and when rejected
// callers should retry.
//
// Three things reject new work: a dependency whose circuit breaker is open, a bounded
// channel that is nearly full, and a queue of claimable steps that is too deep. The depth
// of a queue is judged in tiers of its overflow threshold:
//
//	normal            below 70 %
//	warning           from 70 %: shown and logged
//	critical          from 85 %: a share of new tasks is refused, which grows
//	                  from nothing to all of them at 95 %
//	overflow          from 95 %: all new tasks are refused
//
// A share, because a queue that rejects all or nothing oscillates; this way it converges
// where arrivals equal completions. Only the creation of tasks is rejected, and only for
// the namespace of the queue. Work that ends other work (results, cancelling, operators)
// always passes: rejecting it would keep the queue deep.
//
// The retry time follows from the drain rate: the time until the depth is back in the
// normal tier.
//
// An idle daemon measures nothing: measurements are made only on request.
//
// What may not enter: knowledge of tasks, of the database, and of HTTP.
package backpressure
