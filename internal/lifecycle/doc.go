// Package lifecycle is how everything long-running in this program starts, is supervised and
// stops: the [Service] interface, the supervised [Loop], and an ordered list of services
// ([StartAll], [StopAll]).
//
// The contract of every service: Start returns once it has started and its context bounds
// only the starting; Stop is bounded by its context; both may be called twice; a service has
// one life and is not started again after Stop.
//
// What may not enter: knowledge of the services' work.
package lifecycle
