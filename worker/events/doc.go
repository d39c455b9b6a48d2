// Package events has the form of domain events ([Event]) and of the functions of a process
// that receive the fast ones ([Subscriber]). Nothing here is kept: events that must arrive
// are durable ones, which are in the database.
//
// What may not enter: when an event is published and its content (workflow, worker), its
// way to subscribers (worker), durable events (store).
package events
