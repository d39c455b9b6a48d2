// Package breaker has circuit breakers, one per dependency and use: while a dependency
// does not answer, calls to it are refused at once instead of waiting for their
// time-outs, and a few trials detect its return.
//
// A breaker is closed (calls pass), open (calls are refused) or half-open (as many trials
// pass as successes are needed to close it). Consecutive failures open it. A judge decides
// what counts as a failure: an unwelcome answer is an answer, and a caller that leaves
// proves nothing. Operators can force a breaker open or closed.
//
// A breaker refuses only work that its caller still has: a request that is sent again, a
// report that is kept. It must not guard the calls that detect the return of the
// dependency (health checks, heartbeats, listeners), and no process may end because a
// breaker is open.
//
// Why not a library: the available ones count the result of a call that began before the
// breaker opened as that of a trial (the usual case with time-outs as long as the open
// time), or cannot end a trial without a verdict (a caller that leaves would use it up for
// ever); and none lets operators hold a state or keeps a state for a shortest time. A
// breaker without these is only a counter.
//
// What may not enter: knowledge of the calls, and retries.
package breaker
