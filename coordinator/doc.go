// Package coordinator pairs a listener with a poller under a deployment mode.
//
// An [EventSystem] has one job: to call [Work.Look] whenever there may be work
// (after a signal, a poll, a timer, a catch-up scan after a connection was made, or
// a look that stopped at a limit), and never twice at once. Wakes during a look are
// coalesced into the next. A failed look is repeated with a growing delay until it
// succeeds, so that no work is forgotten in any mode.
//
// The mode can be changed at run time: the new listener or poller runs before the
// old one stops.
//
// What may not enter: knowledge of what is looked for, and the rules of the
// modes, which are in deploymode.
package coordinator
