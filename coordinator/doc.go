// Package coordinator pairs a listener with a poller under a deployment mode.
//
// An [EventSystem] has one job: to call [Work.Look] whenever there may be work,
// however that became known — a signal, a poll, a timer, a catch-up scan after
// a connection was made, or a look that did not find the end — and never
// twice at once. What wakes it meanwhile is coalesced into the next look. A
// look that failed is repeated with a growing delay until it succeeds, so that
// nothing is forgotten, whatever the mode.
//
// The mode can be changed while it runs: the new listener or poller is running
// before the old one stops.
//
// What may not enter: knowledge of what is looked for, and the rules of the
// modes, which are in deploymode.
package coordinator
