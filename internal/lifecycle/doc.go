// Package lifecycle is how everything long-running in this program starts, is
// watched and stops: the [Service] interface, the supervised [Loop], an
// ordered list of services ([StartAll], [StopAll]) and the [Clock] that timers
// come from.
//
// The manners every service keeps: Start returns once it has started and its
// context bounds the starting only; Stop is bounded by its context; both may be
// called twice; a service has one life and is not started again after Stop.
//
// What may not enter: knowledge of what the services do. The clock is for
// timers; what is due is decided by the database clock.
package lifecycle
