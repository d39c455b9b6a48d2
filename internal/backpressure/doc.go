// Package backpressure decides whether the system takes in new work, and tells
// those who are turned away when to come back.
//
// Three things turn new work away: a dependency whose circuit breaker is open,
// a bounded channel that is nearly full, and a queue of claimable steps that
// has grown too deep. The depth of a queue is judged in tiers of its overflow
// threshold:
//
//	normal            below 70 %
//	warning           from 70 %: shown and logged
//	critical          from 85 %: a share of new tasks is refused, which grows
//	                  from nothing to all of them at 95 %
//	overflow          from 95 %: all new tasks are refused
//
// A share, because a queue that refuses all or nothing swings between the two;
// this way it settles where as much comes in as is worked off. Only the
// creation of tasks is refused, and only where the queue in question is that of
// the task's namespace. What ends work (results, cancelling, operators) always
// gets through: refusing it would keep the queue deep.
//
// When to come back follows from how fast the queues are being worked off: the
// time until the depth is back where nothing is refused.
//
// Nothing is measured while nobody asks: an idle daemon counts nothing.
//
// What may not enter: knowledge of tasks, of the database, and of HTTP.
package backpressure
