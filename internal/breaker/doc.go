// Package breaker has circuit breakers, one per dependency and use: while a
// dependency does not answer, calls to it are refused at once instead of
// waiting for their time-outs, and a few trials find out when it is back.
//
// A breaker is closed (calls go through), open (calls are refused) or half-open
// (so many trials go through as successes are needed to close it). Failures in
// a row open it. What counts as a failure is for a judge to say: an answer that
// the caller does not like is an answer, and a caller who leaves proves
// nothing. Operators can force a breaker open or closed.
//
// A breaker refuses work that somebody else still has: a request that is sent
// again, a report that is kept. It must not stand in the way of what finds out
// whether the dependency is back (health checks, heartbeats, listeners), and
// nothing may end a process because a breaker is open.
//
// Why not a library: those at hand count the result of a call that began before
// the breaker opened as that of a trial (with time-outs as long as the open
// time that is the usual case), or have no way to end a trial without a verdict
// (a caller who leaves would use it up for ever); and none lets operators hold
// a state or keeps a state for a least time. What is left of a breaker without
// these is a counter.
//
// What may not enter: knowledge of what is called, and retries.
package breaker
