// Package events delivers domain events to functions of the same process: the form of an
// event (event.go), subscribers and their patterns (subscriber.go), and the bus between
// both (bus.go).
//
// Every subscriber has a buffer and a goroutine of its own, so a subscriber that is slow,
// fails, panics or hangs does not affect the others. A full buffer drops its oldest event,
// which is counted. Nothing here is kept: events that must arrive are durable ones, which
// are in the database.
//
// What may not enter: when an event is published and its content (workflow, worker), the
// way to other processes (worker), durable events (store).
package events
