// Package events carries domain events to functions of the same process: the
// form of an event as others see it (event.go), what subscribes to it and by
// which patterns (subscriber.go), the bus between both (bus.go), and which ids
// came lately, for what other processes send (recent.go).
//
// Every subscriber has a buffer and a goroutine of its own, so one that is slow,
// fails, panics or hangs costs nobody else anything. A buffer that is full loses
// its oldest event, which is counted. Nothing here is kept: events that have to
// arrive are durable ones, which are in the database.
//
// What may not enter: when an event is published and what is in it (workflow,
// worker), how it gets to other processes (worker), durable events (store).
package events
